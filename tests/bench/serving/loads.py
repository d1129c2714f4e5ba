"""Loads on the scripted server, and what it says of them."""

from rose.bench.results import RequestSample
from rose.bench.serving.arrivals import ClosedLoop, Load
from rose.bench.serving.processes import Interrupt, run_processes
from rose.bench.serving.settings import Settings
from rose.bench.serving.share import Assignment, ShareResult


def assignment(url: str, load: Load, *, model: str = "plain", **changes: object) -> Assignment:
    """A load of plain requests of 8 tokens for 6, without warm-up; `changes` are of Settings."""
    users = {"concurrency": str(load.users)} if isinstance(load, ClosedLoop) else {"rate": "1"}
    fields = {"url": url, "model": model, "input": "8", "output": "6", "seed": 11, "timeout": 60.0}
    settings = Settings(**fields | users | changes)
    return Assignment(
        target=settings.target(),
        plan=settings.plan((), 1000),
        load=load,
        extent=settings.extent(),
    )


def run(assigned: Assignment, workers: int = 1) -> list[ShareResult]:
    """Run it to its end."""
    return run_processes(assigned, workers, interrupt=Interrupt(), advance=lambda more: None)


def run_one(assigned: Assignment) -> tuple[float, list[RequestSample]]:
    """Run it in one process: its origin and its samples, by number."""
    [result] = run(assigned)
    assert [number for number, _ in result.samples] == list(range(len(result.samples)))
    return result.origin, [sample for _, sample in result.samples]


def by_prompt(log: list[dict]) -> dict[tuple[int, ...], dict]:
    """What the server saw, by the prompt, which each request has for itself."""
    return {tuple(entry["prompt"]): entry for entry in log if "prompt" in entry}
