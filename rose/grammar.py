"""Grammars as llguidance reads them; shared by the front end, which checks, and the worker.

llguidance (https://github.com/guidance-ai/llguidance) is imported where a grammar is used and not
before. Its limits on grammars are its own defaults: they bound compiling to some tens of
milliseconds, and a mask to a few.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rose.protocol import InvalidRequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


def schema_problem(schema_json: str) -> str | None:
    """Why a JSON schema cannot be followed; None: it can.

    For the front end, which can name the field that the schema came in. What is compiled here is
    not kept: the worker, another process, compiles the whole grammar for its tokens.
    """
    from llguidance import LLMatcher

    failed, messages = LLMatcher.validate_grammar_with_warnings(
        LLMatcher.grammar_from_lark(f"start: %json {schema_json}")
    )
    return _brief(messages[0]) if failed else None


def load_tokenizer(path: Path, vocab_size: int, eos_token_ids: tuple[int, ...]) -> LLTokenizer:
    """A checkpoint's tokenizer.json as llguidance needs it.

    It takes over a second at 200,000 ids, in which llguidance (1.9.1) lets no other Python run.

    Args:
        path: the file.
        vocab_size: the model's, perhaps padded; ids without a token are never allowed.
        eos_token_ids: what may follow where a grammar is complete.

    Raises:
        InvalidRequestError: the checkpoint is not fit for grammars; the message says why.
    """
    from llguidance import LLTokenizer

    if not eos_token_ids:
        raise InvalidRequestError("this model names no end token, so no grammar can end", "grammar")
    if not path.is_file():
        raise InvalidRequestError(
            "this checkpoint has no tokenizer.json, which a grammar needs to know its tokens",
            "grammar",
        )
    try:
        return LLTokenizer(str(path), n_vocab=vocab_size, eos_token=list(eos_token_ids))
    except ValueError as error:
        raise InvalidRequestError(
            f"this checkpoint's tokenizer.json cannot be used with grammars: {error}", "grammar"
        ) from None


def compile_grammar(source: str, tokenizer: LLTokenizer) -> LLMatcher:
    """A matcher at the grammar's start.

    Args:
        source: llguidance's Lark.
        tokenizer: whose tokens it is to match.

    Raises:
        InvalidRequestError: the grammar is malformed, unsupported or too large.
    """
    from llguidance import LLMatcher

    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(source), log_level=0)
    if matcher.is_error():
        problem = _brief(matcher.get_error())
        raise InvalidRequestError(f"the grammar cannot be used: {problem}", "grammar")
    return matcher


def _brief(message: str) -> str:
    """The reason alone: without its place in the grammar, which the client did not write."""
    reason = message.split("\n   1 |")[0].split("failed to compile JSON schema: ")[-1]
    return " ".join(reason.split())
