"""Text of token ids, as they come.

gpt-oss tokenizers are byte-level BPE: each token stands for fixed bytes, and the text is their
UTF-8. So a table of bytes and an incremental UTF-8 decoder detokenise exactly, at a table look-up
a token, however characters are split across tokens.
"""

import codecs
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from rose.protocol import UserError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TokenizerError(UserError):
    """A tokenizer.json that cannot be used; the message says why."""


def _byte_of_char() -> dict[str, int]:
    """The characters by which byte-level BPE writes bytes (GPT-2's `bytes_to_unicode`, inverted).

    Printable Latin-1 characters stand for themselves; the other bytes take the characters from
    U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    table = {chr(b): b for b in printable}
    table.update({chr(0x100 + n): b for n, b in enumerate(others)})
    return table


class TextCodec:
    """A model's tokenizer: text to ids, and ids to bytes.

    Args:
        tokenizer: a byte-level tokenizer.

    Raises:
        TokenizerError: its decoder is not byte-level.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        decoder = type(tokenizer.decoder).__name__
        if decoder != "ByteLevel":
            raise TokenizerError(
                f"the tokenizer's decoder is {decoder}; expected ByteLevel, which gpt-oss uses"
            )
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._special_ids = {t.content: i for i, t in added.items() if t.special}
        specials = set(self._special_ids.values())
        byte_of = _byte_of_char()
        self._all_bytes = [
            _token_bytes(tokenizer.id_to_token(i), byte_of) for i in range(_table_size(tokenizer))
        ]
        self._text_bytes = [b"" if i in specials else b for i, b in enumerate(self._all_bytes)]

    @classmethod
    def load(cls, folder: Path) -> "TextCodec | None":
        """Read tokenizer.json of a checkpoint; None if it has none.

        Raises:
            TokenizerError: the file is unreadable or no byte-level tokenizer.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            return None
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise TokenizerError(f"cannot read {path}: {error}") from None
        try:
            return cls(tokenizer)
        except TokenizerError as error:
            raise TokenizerError(f"{path}: {error}") from None

    def encode(self, text: str) -> list[int]:
        """Ids of a raw text prompt.

        Names of special tokens in the text (`<|start|>`) become those tokens: who posts a raw
        prompt writes the whole of it, control tokens included. Nothing is added around it. Text
        that comes from a chat's users must not pass through here.
        """
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """Ids of text that somebody else wrote: `<|start|>` in it is text like any other."""
        ids: list[int] = self._plain_tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def special_token_id(self, name: str) -> int | None:
        """Id of a special token; None if the vocabulary has none of that name."""
        return self._special_ids.get(name)

    def special_token_ids(self) -> frozenset[int]:
        """Ids of all special tokens."""
        return frozenset(self._special_ids.values())

    def special_token_names(self) -> list[str]:
        """Names of all special tokens."""
        return list(self._special_ids)

    @cached_property
    def _plain_tokenizer(self) -> Tokenizer:
        # A copy: the switch belongs to the tokenizer, not to a call.
        plain = Tokenizer.from_str(self._tokenizer.to_str())
        plain.encode_special_tokens = True
        return plain

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The whole text of ids; bytes that are no UTF-8 become U+FFFD."""
        table = self.bytes_table(skip_special_tokens=skip_special_tokens)
        return b"".join(_lookup(table, i) for i in token_ids).decode(errors="replace")

    def bytes_table(self, *, skip_special_tokens: bool) -> list[bytes]:
        """Bytes of each id; those of special tokens are empty if they are skipped."""
        return self._text_bytes if skip_special_tokens else self._all_bytes

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token; of a special one, its name."""
        return _lookup(self._all_bytes, token_id)

    def token_name(self, token_id: int) -> str:
        r"""One token as a string of its own, for logprobs.

        A token that is no whole UTF-8 is written `bytes:\xe2\x82`, as OpenAI does.
        """
        raw = _lookup(self._all_bytes, token_id)
        if not raw:
            return f"token_id:{token_id}"
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _table_size(tokenizer: Tokenizer) -> int:
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def _token_bytes(token: str | None, byte_of: dict[str, int]) -> bytes:
    if token is None:
        return b""
    try:
        return bytes([byte_of[char] for char in token])
    except KeyError:  # an added token is written as it is
        return token.encode()


def _lookup(table: list[bytes], token_id: int) -> bytes:
    """Bytes of an id. Models have more ids than their tokenizers; the rest stand for nothing."""
    return table[token_id] if 0 <= token_id < len(table) else b""


class Detokenizer:
    """Text of one sequence as its tokens come.

    Text is emitted as soon as its bytes are complete, and never a U+FFFD for bytes that a later
    token may complete. All pieces and the flush together are the text of the whole.
    """

    def __init__(self, codec: TextCodec, *, skip_special_tokens: bool = True) -> None:
        self._table = codec.bytes_table(skip_special_tokens=skip_special_tokens)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token_id: int) -> str:
        """The text that this token completes."""
        return self._decoder.decode(_lookup(self._table, token_id))

    def flush(self) -> str:
        """At the end: U+FFFD for bytes that no token completed."""
        return self._decoder.decode(b"", final=True)
