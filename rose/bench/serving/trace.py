"""Requests recorded elsewhere: conversations in ShareGPT's form, or lengths alone.

A file is a JSON array or one JSON object a line. An entry is either a conversation,

    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}

of which the first turn is asked and the answer's length in tokens is the budget, or lengths,

    {"input_length": 512, "output_length": 128}

(also `prompt_tokens` and `output_tokens`), for which a prompt is made up.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rose.bench.results import BenchError
from rose.bench.serving.lengths import LONGEST

_INPUT_NAMES = ("input_length", "prompt_tokens", "input_tokens")
_OUTPUT_NAMES = ("output_length", "output_tokens", "completion_tokens")
_ASKS = ("human", "user")


Tokenizer = Callable[[str], list[int]]
"""Text to token ids."""


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One request.

    Attributes:
        input_tokens: of the prompt.
        output_tokens: of the answer.
        prompt: token ids or text; None: to be made up.
    """

    input_tokens: int
    output_tokens: int
    prompt: list[int] | str | None = None


def load_tokenizer(path: Path) -> tuple[Tokenizer, int]:
    """A `tokenizer.json`, or a folder that holds one, and the size of its vocabulary.

    Raises:
        BenchError: it is missing or is none.
    """
    from tokenizers import Tokenizer as File

    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        tokenizer = File.from_file(str(file))
    except Exception as error:  # the library raises no narrower class
        raise BenchError(f"--tokenizer {file}: {error}") from None

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode, tokenizer.get_vocab_size(with_added_tokens=False)


def read_trace(path: Path, tokenizer: Tokenizer | None, *, as_text: bool) -> tuple[TraceEntry, ...]:
    """The requests of a trace file.

    Args:
        path: to read.
        tokenizer: counts the tokens of conversations; None: the file must hold lengths.
        as_text: prompts of conversations stay text.

    Raises:
        BenchError: it cannot be read, an entry has neither form, or none can be used.
    """
    entries = []
    for number, item in enumerate(_items(path)):
        try:
            entry = _entry(item, tokenizer, as_text=as_text)
        except _EntryError as error:
            raise BenchError(f"--trace {path}: entry {number}: {error}") from None
        if entry is not None:
            entries.append(entry)
    if not entries:
        raise BenchError(f"--trace {path}: no entry has both a question and an answer")
    return tuple(entries)


class _EntryError(Exception):
    pass


def _items(path: Path) -> list[object]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if text.lstrip().startswith("["):
            found = json.loads(text)
            assert isinstance(found, list)
            return found
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise BenchError(f"--trace {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BenchError(f"--trace {path}: neither JSON nor JSON lines: {error}") from None


def _entry(item: object, tokenizer: Tokenizer | None, *, as_text: bool) -> TraceEntry | None:
    """None: a conversation that does not begin with a question and its answer."""
    if not isinstance(item, Mapping):
        raise _EntryError(f"must be an object; got {str(item)[:40]!r}")
    if "conversations" in item:
        return _conversation(item["conversations"], tokenizer, as_text=as_text)
    input_tokens, output_tokens = _number(item, _INPUT_NAMES), _number(item, _OUTPUT_NAMES)
    if not (1 <= input_tokens <= LONGEST and 1 <= output_tokens <= LONGEST):
        raise _EntryError(
            f"lengths must be from 1 to {LONGEST}; got {input_tokens} and {output_tokens}"
        )
    return TraceEntry(input_tokens, output_tokens)


def _number(item: Mapping[str, object], names: tuple[str, ...]) -> int:
    found = next((item[name] for name in names if name in item), None)
    if type(found) is not int:
        raise _EntryError(f"needs conversations, or an integer {names[0]}; got {found!r}")
    return found


def _conversation(
    turns: object, tokenizer: Tokenizer | None, *, as_text: bool
) -> TraceEntry | None:
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        raise _EntryError("conversations must be an array of objects")
    if len(turns) < 2 or turns[0].get("from") not in _ASKS or turns[1].get("from") in _ASKS:
        return None
    question, answer = turns[0].get("value"), turns[1].get("value")
    if not isinstance(question, str) or not isinstance(answer, str):
        raise _EntryError("the value of a turn must be a string")
    if tokenizer is None:
        raise _EntryError("is a conversation: give --tokenizer to count its tokens")
    ids, budget = tokenizer(question), len(tokenizer(answer))
    if not ids or not budget:
        return None
    return TraceEntry(len(ids), budget, question if as_text else ids)
