"""Trains the byte-level BPE that all nano models share.

Words do not take their space with them, except for the commonest function words: so a name is the
same tokens in a sentence, in a JSON string and in a call's header, and copying it is easy for a
small model. Digits are single tokens, camelCase words split at the capitals.

    python -m recipes.nano.tokenizer rose/assets/nano
"""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from recipes.nano import corpus
from recipes.nano.sizes import VOCABULARY
from recipes.nano.vocabulary import ASSETS, SPECIAL_TOKENS
from rose.server.chat.harmony import render_pieces, render_turn_pieces

SEED = 4_242
EXAMPLES = 40_000
ATTACHED = (
    "the|to|must|is|for|are|every|be|by|included|cutoff|large|trained|a|of|these|go|in|this|and|do|"
    "me|not|you|with|that|can|has|have|fits|says|an|tell|it|am|many|needs|my|gave|needed|on|does|"
    "told|one|at|fit|than|about|only|from|before|no|as|cannot|what|asks|know|other|use|I|any|"
    "did|so|will|was|wants|or|should|them|which|its|how|something|comes|called|both|more|want"
)
PATTERN = (
    rf" (?:{ATTACHED})(?![\p{{L}}\p{{N}}_])"
    r"|\p{Lu}?\p{Ll}+|\p{Lu}+(?!\p{Ll})|\p{L}"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+ ?"
    r"|\n+| +|\s+"
)


def texts(examples: int = EXAMPLES) -> Iterator[str]:
    """The plain texts of rendered training examples."""
    for example in itertools.islice(corpus.stream(SEED, "train"), examples):
        tools = example.conversation.tools
        pieces = [
            *render_pieces(example.conversation),
            *render_turn_pieces(example.turn, tools=tools),
        ]
        yield from (piece for piece in pieces if isinstance(piece, str))


def train_tokenizer(examples: int = EXAMPLES) -> Tokenizer:
    """The tokenizer, the same for the same corpus.

    Raises:
        ValueError: the corpus holds too few different words to fill the vocabulary.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(examples), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_TOKENS])
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise ValueError(
            f"{tokenizer.get_vocab_size()} tokens came out; {VOCABULARY} need more examples"
        )
    return tokenizer


def main(folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer().save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|startoftext|>",
        "eos_token": "<|return|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS)
