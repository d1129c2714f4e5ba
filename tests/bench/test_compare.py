"""Two files side by side: matched cells, ratios, and warnings that nobody overlooks."""

import msgspec
import pytest
from click.testing import CliRunner

from rose.bench.compare import Figure, Row, compare, show, table
from rose.bench.recorder import new_result
from rose.bench.results import (
    EngineCell,
    RequestSample,
    RooflineCell,
    ServeCell,
    Sharding,
)
from rose.bench.serving.stats import summarize
from rose.cli import main


def engine_cell(phase="prefill", seconds=1.0, tokens=8192, quantization="fp8"):
    return EngineCell(
        phase=phase,
        model="gpt-oss-20b",
        quantization=quantization,
        sharding=Sharding(),
        batch=1,
        tokens=tokens,
        samples=[seconds] * 3,
    )


def result(*cells, flags=None, **changes):
    made = new_result(flags=flags or {})
    return msgspec.structs.replace(made, cells=list(cells), partial=False, **changes)


def test_cells_match_by_what_was_measured():
    first = result(engine_cell(seconds=2.0), engine_cell(tokens=128000), engine_cell("decode"))
    second = result(engine_cell("decode", 1.25), engine_cell(seconds=1.0))
    found = compare(first, second)
    assert [(row.name, row.faster) for row in found.rows] == [
        ("prefill gpt-oss-20b tp1, batch 1, input 8192", 2.0),
        ("decode gpt-oss-20b tp1, batch 1, context 8192", 0.8),
    ]
    assert found.only_first == ["prefill gpt-oss-20b tp1, batch 1, input 128000"]
    assert not found.only_second
    assert not found.machines_differ
    assert not found.warnings
    text = "\n".join(table(found))
    assert "2.000x faster" in text
    assert "1.250x slower" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.0, "equal"),
        (1.0001, "equal"),
        (0.9999, "equal"),
        (0.5, "2.000x faster"),
        (2.0, "2.000x slower"),
    ],
)
def test_a_ratio_is_above_1_and_has_a_word(seconds, text):
    found = compare(result(engine_cell(seconds=1.0)), result(engine_cell(seconds=seconds)))
    assert table(found)[-1].endswith(f" {text} |")


def test_the_help_of_compare_says_what_is_printed():
    shown = " ".join(CliRunner().invoke(main, ["bench", "compare", "--help"]).output.split())
    assert "how many times faster or slower SECOND is" in shown


def test_other_machines_are_told_in_the_table_too():
    here = result(engine_cell())
    machine = msgspec.structs.replace(here.machine, gpu="NVIDIA H100", gpus=8)
    found = compare(here, msgspec.structs.replace(here, machine=machine))
    assert found.machines_differ == ["machine gpu: None / NVIDIA H100", "machine gpus: 0 / 8"]
    assert "ON ANOTHER MACHINE" in table(found)[0]


def test_another_gpu_of_the_same_kind_is_a_lesser_warning():
    def on(*uuids):
        made = result(engine_cell())
        machine = msgspec.structs.replace(made.machine, gpu="NVIDIA H200", gpu_uuids=list(uuids))
        return msgspec.structs.replace(made, machine=machine)

    found = compare(on("GPU-a"), on("GPU-b"))
    assert not found.machines_differ
    [text] = found.warnings
    assert text.startswith("another GPU of the same kind")
    assert text.endswith(": GPU-a / GPU-b")
    for second in (on("GPU-a"), on()):  # the same, and unknown
        found = compare(on("GPU-a"), second)
        assert not found.machines_differ
        assert not found.warnings


def test_everything_else_that_differs_is_a_warning():
    first = result(engine_cell(), flags={"dtype": "bfloat16", "seed": "0"})
    software = msgspec.structs.replace(
        first.software, commit="abc", packages={**first.software.packages, "triton": "9"}
    )
    second = result(
        engine_cell(quantization="mxfp4"),
        flags={"dtype": "float32", "runs": "3", "seed": "0"},
        software=software,
        notes=["dummy weights"],
    )
    found = compare(first, msgspec.structs.replace(second, partial=True))
    text = "\n".join(found.warnings)
    assert f"software commit: {first.software.commit} / abc" in text
    assert "software triton:" in text
    assert "flag dtype: bfloat16 / float32" in text
    assert "flag runs: unset / 3" in text
    assert "seed" not in text
    assert "quantization: fp8 / mxfp4" in text
    assert "the second file is partial" in text
    assert "the second file: dummy weights" in text


def test_rates_are_better_when_higher_and_seconds_when_lower():
    def roofline(copy, launch):
        return result(
            RooflineCell(name="copy", unit="B", amount=4e12, samples=[copy]),
            RooflineCell(name="launch graph", unit="call", amount=1000.0, samples=[launch]),
        )

    copy, launch = compare(roofline(2.0, 0.001), roofline(1.0, 0.002)).rows
    assert (copy.faster, launch.faster) == (2.0, 0.5)
    assert (show(copy.first), show(launch.first)) == ("2 TB/s", "1 us")


def request(scheduled, times, **changes):
    return RequestSample(
        scheduled=scheduled,
        sent=scheduled,
        token_times=times,
        token_counts=[1] * len(times),
        finished=times[-1] if times else scheduled,
        prompt_tokens=4,
        output_tokens=len(times),
        **changes,
    )


def test_loads_compare_by_waits_and_output():
    cell = ServeCell(
        model="m",
        load="fixed 1/s",
        duration=2.0,
        requests=[
            request(0.0, [0.5, 0.6, 0.7]),
            request(1.0, [1.5, 1.6, 1.7]),
            request(0.0, [9.0, 99.0], warmup=True),
            request(0.0, [], error="timeout"),
        ],
        saturated="too slow",
    )
    found = compare(result(cell), result(cell))
    values = {row.name.rpartition(": ")[2]: row.first for row in found.rows}
    assert values["time to first token"].value == pytest.approx(0.5)
    assert values["time per output token"].value == pytest.approx(0.1)
    assert values["output"] == Figure(3.0, "tokens/s")
    assert any("load generator was too slow at fixed 1/s" in text for text in found.warnings)


def test_output_is_what_rose_bench_serve_calls_it():
    """The drain after an overload is no throughput; nor is the rest of an answer cut short."""
    requests = [request(0.0, [0.5, 1.5, 2.5, 9.0]), request(1.0, [1.5], error="interrupted")]
    cell = ServeCell(model="m", load="fixed 1/s", duration=2.0, requests=requests)
    rows = compare(result(cell), result(cell)).rows
    [output] = [row for row in rows if row.name.endswith(": output")]
    assert output.first == Figure(summarize(cell).output_rate, "tokens/s")
    assert output.first.value == 1.5


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure(23.902, "s"), "23.9 s"),
        (Figure(0.364, "s"), "364 ms"),
        (Figure(7.5e-6, "s"), "7.5 us"),
        (Figure(701e12, "FLOP/s"), "701 TFLOP/s"),
        (Figure(4.27e12, "B/s"), "4.27 TB/s"),
        (Figure(12.0, "tokens/s"), "12 tokens/s"),
    ],
)
def test_figures_for_people(figure, text):
    assert show(figure) == text


def test_nothing_divides_by_zero():
    zero, one = Figure(0.0, "tokens/s"), Figure(1.0, "tokens/s")
    assert Row("x", zero, one).faster == float("inf")
    assert Row("x", one, zero).faster == 0
    assert Row("x", zero, zero).faster == 1
