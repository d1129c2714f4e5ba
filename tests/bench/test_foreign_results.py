"""Result files from anywhere: what would break a figure, a chart or a terminal is refused whole."""

import copy
import json
import warnings
import xml.dom.minidom

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rose.bench.results import BenchError, load
from rose.cli import main
from tests.bench import synthetic

PARTS = {
    "prefill": synthetic.prefill,
    "decode": synthetic.decode,
    "roofline": synthetic.roofline,
    "serve": synthetic.serving,
}
NUMBERS = [0, -1, 0.5, 1e308, -1e308, 5e-324, 2**31, 2**63, 10**30]
WORDS = [
    "",
    "<script>alert(1)</script>",
    "../../x",
    "$x_{$",
    "_a",
    "日本",
    "a\x00\x1b[31m",
    "b" * 400,
]
ODD = [*NUMBERS, *WORDS, None, True, [], {}, [0.0], [1e308, 1e308], [5e-324], [1.0]]


def content(name: str) -> dict:
    found = json.loads(msgspec.json.encode(PARTS[name]()))
    for cell in found["cells"]:
        if "requests" in cell:
            del cell["requests"][4:]
    return found


CONTENTS = {name: content(name) for name in PARTS}


def places(value, path=()):
    """Every place of a JSON value, of arrays the first elements."""
    yield path
    pairs = value.items() if isinstance(value, dict) else []
    if isinstance(value, list):
        pairs = enumerate(value[:2])
    for key, inner in pairs:
        yield from places(inner, (*path, key))


@st.composite
def altered(draw):
    """A result file in which one value is another."""
    found = copy.deepcopy(CONTENTS[draw(st.sampled_from(sorted(PARTS)))])
    *way, last = draw(st.sampled_from([place for place in places(found) if place]))
    inner = found
    for key in way:
        inner = inner[key]
    inner[last] = draw(st.sampled_from(ODD))
    return found


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=altered(), other=st.sampled_from(sorted(PARTS)))
def test_whatever_a_file_holds_the_answer_is_figures_or_one_line(tmp_path, content, other):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps(content))
    second.write_text(json.dumps(CONTENTS[other]))
    workload = ["--input-tokens", "10000", "--output-tokens", "500", "--rate", "2"]
    for words in (
        ["bench", "compare", str(first), str(second)],
        ["bench", "compare", str(second), str(first)],
        ["cost", str(first), str(second), *workload],
    ):
        done = CliRunner().invoke(main, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), words
        assert done.exit_code in (0, 1, 3)
        if done.exit_code == 1:
            assert done.output.startswith("Error: ")
            assert done.output.count("\n") == 1
        assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("name", "field", "value", "told"),
    [
        ("decode", "samples", [], "length >= 1"),
        ("decode", "samples", [0.0], ">= 1e-12"),
        ("decode", "samples", [-1.0], ">= 1e-12"),
        ("decode", "samples", [None], "Expected `float`"),
        ("decode", "batch", 10**9, "<= 65536"),
        ("decode", "model", "a\nb", "matching regex"),
        ("decode", "model", "b\n", "matching regex"),
        ("roofline", "amount", 0, ">= 1e-09"),
    ],
)
def test_cells_that_nobody_measured(tmp_path, name, field, value, told):
    found = copy.deepcopy(CONTENTS[name])
    found["cells"][0][field] = value
    path = tmp_path / "r.json"
    path.write_text(json.dumps(found))
    with pytest.raises(BenchError, match=told):
        load(path)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"token_times": [1.0]}, "as many"),
        ({"token_times": [], "token_counts": []}, "must have output"),
        ({"token_times": [2.0, 1.0], "token_counts": [1, 1]}, "must ascend"),
    ],
)
def test_requests_that_nobody_sent(tmp_path, changes, told):
    found = copy.deepcopy(CONTENTS["serve"])
    request = {"error": None, "token_counts": [1, 1, 1]} | changes
    found["cells"][0]["requests"][0].update(request)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(found))
    with pytest.raises(BenchError, match=told):
        load(path)


def test_names_of_models_stay_in_the_folder_apart_and_quiet(tmp_path):
    """Markup, paths, letters without a glyph, and names that differ in signs alone."""
    names = ["../../x", "a:b", "a;b", "a-b", "<script>alert(1)</script>", "日本", "c" * 300]
    found = copy.deepcopy(CONTENTS["decode"])
    cells = found["cells"][:2]
    found["cells"] = [{**one, "model": name} for name in names for one in cells]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(found))
    folder = tmp_path / "inner" / "report"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = CliRunner().invoke(main, ["bench", "report", str(path), "--out", str(folder)])
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inner", "r.json"]
    drawings = list(folder.glob("decode-*.svg"))
    assert len(drawings) == len(names)
    for drawing in drawings:
        xml.dom.minidom.parse(str(drawing))
    page = (folder / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert page.count("<figure") == len(names)


@pytest.mark.parametrize("price", ["nan", "inf", "0", "-1", "1e300"])
@pytest.mark.parametrize("words", [["report", "r.json", "--out", "x"], ["prefill", "nano"]])
def test_prices_that_are_none(words, price):
    done = CliRunner().invoke(main, ["bench", *words, "--usd-per-gpu-hour", price])
    assert done.exit_code == 2
    assert "--usd-per-gpu-hour" in done.output
