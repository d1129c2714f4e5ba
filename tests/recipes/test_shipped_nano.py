"""The shipped rose-nano on a short form of the evaluation."""

from pathlib import Path

import pytest

import rose
from recipes.nano.evaluate import evaluate_model
from recipes.nano.heldout import effort_cases, heldout_cases

FOLDER = Path(rose.__file__).parent / "assets" / "nano"
PER_ROW = 10

pytestmark = pytest.mark.skipif(
    not (FOLDER / "model.safetensors").is_file(), reason=f"{FOLDER} holds no trained model yet"
)


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
