"""What a written turn is worth: is it Harmony to the letter, and is it right?

Two judges that share nothing. The grammar reads token ids and forgives nothing; whether the answer
is right is asked of what the server's parser makes of the same ids.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recipes.nano.example import Example
from rose.server.chat.format import ChatFormat, ContentDelta, ReasoningDelta, ToolCallDelta
from rose.server.detokenize import TextCodec

SPECIAL_NAMES = (
    "<|startoftext|>",
    "<|endoftext|>",
    "<|return|>",
    "<|constrain|>",
    "<|channel|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|call|>",
)
_MARKS = {name: chr(0xE000 + i) for i, name in enumerate(SPECIAL_NAMES)}
"""A private character for each special token, so that text that spells one is still text."""

LAST_NUMBER_TASKS = frozenset({"addition", "subtraction", "multiplication", "division"})
_NUMBER = re.compile(r"(?<![\d.])-?\d+(?:\.\d+)?")
REFUSAL = re.compile(
    r"\b(sorry|afraid|cannot|can not|can't|unable|not able|beyond"
    r"|(do not|don't|no way to) (know|have|tell|find))\b",
    re.IGNORECASE,
)


def _pattern(template: str) -> re.Pattern[str]:
    for name, mark in _MARKS.items():
        template = template.replace(name, mark)
    text = f"[^{''.join(_MARKS.values())}]"
    return re.compile(template.replace("TEXT", f"{text}*?"))


_TURN = _pattern(
    r"<|channel|>analysis<|message|>TEXT<|end|><|start|>assistant"
    r"(?:<|channel|>commentary<|message|>TEXT<|end|><|start|>assistant)*"
    r"(?:<|channel|>commentary to=functions\.[\w.-]+ <|constrain|>json<|message|>TEXT<|call|>"
    r"|<|channel|>final(?: <|constrain|>json)?<|message|>TEXT<|return|>)"
)


class TurnGrammar:
    """Accepts the ids of a turn, after `<|start|>assistant`, if they are strict Harmony.

    Analysis first, then a call that ends in `<|call|>` or a final message that ends in
    `<|return|>`; visible commentary may stand between.
    """

    def __init__(self, codec: TextCodec) -> None:
        written = codec.bytes_table(skip_special_tokens=False)
        spoken = codec.bytes_table(skip_special_tokens=True)
        self._bytes = list(spoken)
        for token_id, name in enumerate(written):
            if name and not spoken[token_id]:
                # A special token that the grammar does not know cannot be part of a turn.
                mark = _MARKS.get(name.decode(), _MARKS["<|startoftext|>"])
                self._bytes[token_id] = mark.encode()

    def accepts(self, token_ids: Sequence[int]) -> bool:
        """Whether the whole turn, its stop token included, follows the grammar."""
        known = all(0 <= i < len(self._bytes) and self._bytes[i] for i in token_ids)
        raw = b"".join(self._bytes[i] for i in token_ids) if known else b""
        return _TURN.fullmatch(raw.decode(errors="replace")) is not None


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """What the server's parser makes of a turn; `calls` are (name, arguments as written)."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]


def parse_turn(chat_format: ChatFormat, example: Example, token_ids: Sequence[int]) -> ParsedTurn:
    """Run a turn's ids through the format's parser."""
    parser = chat_format.parser(example.conversation)
    deltas = [delta for token_id in token_ids for delta in parser.push(token_id)]
    deltas += parser.flush()
    reasoning = "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))
    content = "".join(d.text for d in deltas if isinstance(d, ContentDelta))
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            names[delta.index] = names.get(delta.index, "") + (delta.name or "")
            arguments[delta.index] = arguments.get(delta.index, "") + delta.arguments
    return ParsedTurn(reasoning, content, tuple((names[i], arguments[i]) for i in sorted(names)))


def is_right(example: Example, turn: ParsedTurn) -> bool:
    """Whether a turn gives what was expected: the call, the object, the answer or a refusal."""
    expected = example.expected
    if expected.call is not None:
        [name, arguments], calls = expected.call, turn.calls
        return len(calls) == 1 and calls[0][0] == name and _same(calls[0][1], arguments)
    if turn.calls or not turn.content.strip():
        return False
    if expected.json is not None:
        return _same(turn.content, expected.json)
    if expected.answer is not None:
        return gives(example.task, turn.content, expected.answer)
    # There is no single right text, but a right time to say that one does not know.
    return refuses(turn.content) == refuses(example.turn[-1].content)


def refuses(content: str) -> bool:
    """Whether a text says that its writer cannot or does not know."""
    return REFUSAL.search(content) is not None


def gives(task: str, content: str, answer: str) -> bool:
    """Whether a final text gives the answer, and gives it as the answer.

    "12 is less than 31." names both numbers, so where a task's texts may hold others than the
    result, it must come first (comparisons) or be the last number (sums).
    """
    if task == "compare":
        return mentions(content, answer) and _first_word(content, answer)
    if task in LAST_NUMBER_TASKS:
        return _NUMBER.findall(content)[-1:] == [answer]
    return mentions(content, answer)


def _first_word(content: str, answer: str) -> bool:
    """Whether the answer, be it a word or a number, comes before all others of its kind."""
    pattern = _NUMBER if _NUMBER.fullmatch(answer) else re.compile(r"\w+")
    return pattern.findall(content)[:1] == [answer]


def mentions(content: str, answer: str) -> bool:
    """Whether `answer` stands in `content` as it is, and is no part of a longer one.

    12 is part of 112, 12.5, -12 and "11, 12"; it is not part of "So it is 12."
    """
    number = answer[-1:].isdigit()
    for found in re.finditer(re.escape(answer), content):
        before, after = content[: found.start()], content[found.end() :]
        cut = re.search(r"(?:\w|[-.]|\d,\s*)$" if number else r"\w$", before)
        if not cut and not re.match(r"\w|[.,]\s*\d" if number else r"\w", after):
            return True
    return False


def _same(written: str, wanted: object) -> bool:
    """Equal as JSON, whatever the order of keys; 1, 1.0 and true are three values."""
    try:
        found = json.loads(written)
    except ValueError:
        return False
    return _canonical(found) == _canonical(wanted)


def _canonical(value: object) -> str:
    plain = dict(value) if isinstance(value, Mapping) else value
    return json.dumps(plain, sort_keys=True, default=dict)
