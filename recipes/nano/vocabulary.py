"""The tokenizer that all of the recipe's models share."""

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from recipes.nano.sizes import VOCABULARY
from rose.server.detokenize import TextCodec

ASSETS = Path(__file__).resolve().parents[2] / "rose" / "assets" / "nano"
TOKENIZER_FILE = ASSETS / "tokenizer.json"

SPECIAL_TOKENS = (
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


@cache
def tokenizer() -> Tokenizer:
    """The shipped tokenizer.json.

    Raises:
        FileNotFoundError: it has not been trained yet.
    """
    if not TOKENIZER_FILE.is_file():
        raise FileNotFoundError(
            f"{TOKENIZER_FILE} is missing; train it with recipes.nano.tokenizer"
        )
    return Tokenizer.from_file(str(TOKENIZER_FILE))


@cache
def codec() -> TextCodec:
    """Text to ids and back."""
    return TextCodec(tokenizer())


def special_token_ids() -> dict[str, int]:
    """Ids of the special tokens that Harmony uses."""
    ids = {token: tokenizer().token_to_id(token) for token in SPECIAL_TOKENS}
    wrong = {token: number for token, number in ids.items() if number is None}
    if wrong or max(ids.values()) >= VOCABULARY:
        raise ValueError(f"{TOKENIZER_FILE} lacks special tokens or is too large: {ids}")
    return ids
