"""Lines of progress where there is no terminal."""

import io

import pytest

from rose import progress as module
from rose.progress import Progress, note


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when a test says so."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def test_bytes_have_a_rate_once_there_is_time_to_tell_it(clock):
    stream = io.StringIO()
    with Progress("Loading", total=4 * 10**9, unit="B", stream=stream) as progress:
        clock.now += 0.5
        progress.advance(10**9)
        clock.now += 4.5
        progress.advance(10**9)
        clock.now += 1
        progress.advance(2 * 10**9)
    assert stream.getvalue().splitlines() == [
        "Loading: 2.00 GB of 4.00 GB, 0.40 GB/s",
        "Loading: 4.00 GB of 4.00 GB, 0.67 GB/s",
    ]


def test_what_took_no_time_has_no_rate(clock):
    stream = io.StringIO()
    with Progress("Loading", total=2_500_000, unit="B", stream=stream) as progress:
        progress.advance(2_500_000)
    assert stream.getvalue() == "Loading: 2.50 MB of 2.50 MB\n"


def test_other_units_have_no_rate(clock):
    stream = io.StringIO()
    with Progress("Scoring", total=3, unit="prompts", stream=stream) as progress:
        clock.now += 10
        progress.advance(3)
    assert stream.getvalue().splitlines()[-1] == "Scoring: 3 of 3 prompts"


def test_a_note_is_a_line_on_standard_error(capsys):
    note("All is well")
    assert capsys.readouterr() == ("", "All is well\n")


def test_a_note_without_a_standard_error(monkeypatch):
    monkeypatch.setattr(module.sys, "stderr", None)
    note("nobody hears")
