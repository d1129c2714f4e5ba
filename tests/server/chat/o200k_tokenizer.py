"""The published o200k_harmony vocabulary as a tokenizer of the `tokenizers` library."""

import base64
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

SPECIALS = {
    "<|startoftext|>": 199998,
    "<|endoftext|>": 199999,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
}
FIRST_SPECIAL, LAST_SPECIAL = 199998, 200017
WORD_END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
CAPITALS, SMALL = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
SPLIT = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?[{CAPITALS}]*[{SMALL}]+{WORD_END}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{CAPITALS}]+[{SMALL}]*{WORD_END}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def token_bytes_of(path: Path) -> dict[bytes, int]:
    """Tokens and their ranks, from a .tiktoken file."""
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def build_tokenizer(ranks: dict[bytes, int]) -> Tokenizer:
    """A byte-level BPE tokenizer with these tokens and Harmony's special tokens."""
    char_of = _char_of_byte()

    def written(token: bytes) -> str:
        return "".join(char_of[byte] for byte in token)

    merges = [(written(left), written(right)) for left, right in _merges(ranks)]
    vocabulary = {written(token): rank for token, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    names = {token_id: name for name, token_id in SPECIALS.items()}
    for token_id in range(FIRST_SPECIAL, LAST_SPECIAL + 1):
        name = names.get(token_id, f"<|reserved_{token_id}|>")
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)])
        assert tokenizer.token_to_id(name) == token_id
    return tokenizer


def _merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """All pairs that make a token, by the token's rank: tiktoken merges by rank of the result."""
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        halves = ((token[:at], token[at:]) for at in range(1, len(token)))
        pairs = [(left, right) for left, right in halves if left in ranks and right in ranks]
        merges += sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return merges


def _char_of_byte() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + n) for n, byte in enumerate(others)
    }
