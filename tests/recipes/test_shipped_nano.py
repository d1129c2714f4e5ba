"""The shipped rose-nano on a short form of the evaluation."""

import pytest

from recipes.nano.evaluate import evaluate_model
from recipes.nano.heldout import effort_cases, heldout_cases

PER_ROW = 10


@pytest.mark.slow
def test_nano_reaches_what_it_must():
    cases = heldout_cases(PER_ROW)
    report = evaluate_model(
        "nano",
        quantization="mxfp4",
        device="cpu",
        batch=64,
        cases=cases,
        efforts=effort_cases(cases, 6),
    )
    assert [target.name for target in report.targets if not target.turns] == []
    assert report.failures == []
