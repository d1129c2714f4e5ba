"""Servers that the tests of /v1/responses share."""

from collections.abc import Iterator

import openai
import pytest

from tests.playback_engine import NANO, Played, playing


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    """A front end before an engine that writes what a test says."""
    with playing(NANO) as served:
        yield served


@pytest.fixture(scope="session")
def nano(nano_url: str) -> Iterator[openai.OpenAI]:
    """OpenAI's client before it."""
    with openai.OpenAI(base_url=nano_url, api_key="none", max_retries=0) as client:
        yield client
