"""rose bench report: figures recomputed, charts free of overlap, the page opened in a browser."""

import itertools
import re
import shutil
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser

import msgspec
import pytest
from click.testing import CliRunner

from rose.bench.ceiling import H200 as RATES
from rose.bench.ceiling import decode_seconds
from rose.bench.chart_style import COLORS, GRID, INK, inline_svg, save_files
from rose.bench.charts import decode_chart, roofline_chart, serve_charts, speedup_chart
from rose.bench.report import TEMPLATES, Source, warnings, write_report
from rose.bench.report_tables import decode_tables, prefill_tables, roofline_table, sharding_name
from rose.bench.results import BenchError, Sharding, SkippedCell, save
from rose.bench.rooflines import ceiling, place, rates_for
from rose.bench.series import PUBLISHED, collect, fastest, leading_peers
from rose.bench.tables import Row, Table, plain_text, seconds, significant
from rose.cli import main
from rose.config import ModelConfig
from rose.models.builtin import builtin_shape
from tests.bench import synthetic
from tests.bench.synthetic import H100, H200, NOTE, cell, result

BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome", "chromium-browser")
VOID = {"meta", "use", "path"}


def everything():
    made = [synthetic.prefill(), synthetic.decode(), synthetic.peer()]
    return [*made, synthetic.roofline(), synthetic.serving()]


def write(folder, results):
    sources = [Source(f"result-{n}.json", one) for n, one in enumerate(results)]
    return write_report(sources, folder).read_text("utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("report")
    write(made, everything())
    return made


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text("utf-8")


def of(points, phase, **fields):
    """Points of a phase whose fields have these values."""
    wanted = {"phase": phase, **fields}
    return [p for p in points if all(getattr(p, name) == want for name, want in wanted.items())]


def cells_of(table, name):
    """The cells of the first row of that name."""
    return next(list(row.cells[1:]) for row in table.rows if row.cells[0] == name)


# Figures


def test_prefill_tables_hold_ours_beside_published_and_peer():
    ours = result([cell("prefill", 0.182, tokens=8192), cell("prefill", 1.21, tokens=32768)])
    points = of(collect([ours]), "prefill", batch=1)
    time, cost = prefill_tables(points, 3.0, None)
    assert list(time.header) == ["", "8,192 tokens", "32,768 tokens"]
    assert cells_of(time, "rose 0.1.0, mxfp4, TP1") == ["0.182", "1.21"]
    assert cells_of(time, f"{PUBLISHED}, TP1") == ["0.364", "2.42"]
    assert cells_of(time, "vllm 0.26.0, TP1") == ["0.204", "0.986"]
    assert cells_of(time, "speed over published") == ["2.00x", "2.00x"]
    assert cells_of(time, "speed over fastest peer") == ["1.12x", "0.81x"]
    assert cells_of(cost, "rose 0.1.0, mxfp4, TP1") == ["0.019", "0.031"]
    assert cells_of(cost, f"{PUBLISHED}, TP1") == ["0.037", "0.062"]
    # Where Rose was not measured nothing stands alone.
    assert [row.cells[0] for row in time.rows if row.kind == "group"] == ["1 device"]


def test_shardings_over_as_many_gpus_stand_together():
    tp2, ep2 = Sharding(tp=2), Sharding(tp=2, ep=2)
    ours = result([cell("prefill", 0.1, tokens=8192, sharding=s) for s in (tp2, ep2)])
    time = prefill_tables(of(collect([ours]), "prefill"), 3.0, None)[0]
    assert cells_of(time, "rose 0.1.0, mxfp4, EP2 TP2") == ["0.100"]
    assert cells_of(time, "speed over published (TP2, rose 0.1.0, mxfp4)") == ["1.90x"]
    assert sharding_name(Sharding(dp=2, ep=4, tp=2)) == "DP2 EP4 TP2"


def test_decode_tables_price_tokens_and_state_the_share_of_the_ceiling():
    ours = result(
        [cell("decode", 0.004, tokens=8192, batch=1), cell("decode", 0.02, tokens=8192, batch=64)]
    )
    speed, cost = decode_tables(of(collect([ours]), "decode"), 3.6, RATES)
    assert cells_of(speed, "rose 0.1.0, mxfp4, TP1") == ["250", "50.0"]
    assert cells_of(cost, "rose 0.1.0, mxfp4, TP1") == ["4.00", "0.312"]
    assert cells_of(speed, "vllm 0.26.0, TP1") == ["227", "37.4"]
    model = ModelConfig.load(builtin_shape("gpt-oss-120b"))
    least = decode_seconds(model, "mxfp4", 8192, 1, RATES)
    assert cells_of(speed, "share of ceiling")[0] == f"{least / 0.004:.0%}"


def test_the_published_price_is_the_printed_one_at_its_own_price_only():
    point = next(
        p
        for p in collect([synthetic.prefill()])
        if p.subject.name == PUBLISHED
        and (p.sharding.gpus, p.tokens) == (8, 8192)
        and p.model == "gpt-oss-120b"
    )
    assert point.usd_per_million(3.0) == 0.145  # seconds as printed would give 0.146
    assert point.usd_per_million(6.0) == pytest.approx(2 * 0.1457, abs=1e-3)


def test_a_later_result_replaces_a_cell_and_commits_tell_engines_apart():
    first, later = (result([cell("prefill", s, tokens=8192)]) for s in (0.2, 0.1))
    ours = [p for p in collect([first, later]) if p.subject.kind == "ours"]
    assert [p.seconds for p in ours] == [0.1]
    other = result([cell("prefill", 0.3, tokens=8192)], commit="f" * 40)
    names = {p.subject.name for p in collect([first, other]) if p.subject.kind == "ours"}
    assert names == {"rose 0.1.0, mxfp4, 01234567", "rose 0.1.0, mxfp4, ffffffff"}


def test_a_peer_that_was_measured_joins_the_shipped_ones():
    points = collect([synthetic.decode(), synthetic.peer()])
    like = of(points, "decode", model="gpt-oss-120b", batch=1, tokens=8192)
    best = fastest(points, "peer", like[0])
    assert best.subject.name == "vllm 0.0.synthetic, mxfp4"
    leading = leading_peers(of(points, "decode", model="gpt-oss-120b", tokens=8192))
    assert [row[0].sharding.gpus for row in leading] == [1, 2]


def test_a_cell_lies_below_the_roofline_as_far_as_its_share_of_the_ceiling_says():
    for point in of(collect([synthetic.decode()]), "decode", tokens=8192):
        found = place(point)
        if point.subject.kind != "ours":
            assert found is None  # its quantization was not told
            continue
        roof = min(RATES.matmul, RATES.read * found.intensity)
        share = found.flop_per_s / roof
        assert share == pytest.approx(ceiling(point, RATES) / point.seconds, rel=0.02)


def test_rates_are_measured_else_known_else_none():
    assert rates_for([synthetic.roofline()]).read == pytest.approx(4.24e12)
    assert rates_for([synthetic.decode()]) == RATES  # its GPU is an H200 by name
    assert rates_for([synthetic.roofline(), result([], machine=H100)]) is None
    assert rates_for([result([], machine=H100)]) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0370, "0.0370"),
        (1.6249, "1.62"),
        (23902, "23900"),
        (0.9996, "1.00"),
        (99.96, "100"),
    ],
)
def test_significant_digits(value, text):
    assert significant(value) == text


def test_times_have_the_unit_that_suits_them():
    assert [seconds(s) for s in (2.5, 0.0021, 1.14e-6, 0)] == [
        "2.50 s",
        "2.10 ms",
        "1.14 us",
        "0 us",
    ]


def test_plain_tables_align():
    table = Table(
        "Title", ["name", "n"], [Row(["all"], "group"), Row(["a", "5"]), Row(["bcdef", "12"])]
    )
    assert plain_text(table).splitlines() == [
        "Title",
        "name    n",
        "-----  --",
        "all",
        "a       5",
        "bcdef  12",
    ]


# Warnings


def test_what_cannot_be_compared_is_said():
    assert warnings([synthetic.prefill(), synthetic.decode()]) == []
    mixed = [synthetic.prefill(), result([], machine=H100, partial=True, commit=None)]
    found = " ".join(warnings(mixed))
    for words in ("DIFFERENT MACHINES", "Synthetic H200; Synthetic H100", "PARTIAL", "commits"):
        assert words in found
    assert "peers ran on NVIDIA H200" in found
    assert "poisson 8/s" in " ".join(warnings([synthetic.serving()]))


def test_another_gpu_of_the_same_kind_is_said():
    first, second = (msgspec.structs.replace(H200, gpu_uuids=[uuid]) for uuid in ("GPU-a", "GPU-b"))
    cells = [cell("prefill", 0.5, tokens=8192)]
    assert warnings([result(cells, machine=first), result(cells, machine=first)]) == []
    assert warnings([result(cells, machine=first), result(cells)]) == []  # unknown
    [text] = warnings([result(cells, machine=first), result(cells, machine=second)])
    assert "another GPU of the same kind" in text


def test_the_page_shows_warnings_notes_and_what_was_not_measured(tmp_path):
    odd = "batch 128 needs <b>more</b> & memory"
    skipped = SkippedCell(
        phase="decode",
        model="gpt-oss-120b",
        sharding=Sharding(),
        batch=128,
        tokens=32768,
        reason=odd,
    )
    other = result(
        [cell("prefill", 0.5, tokens=8192)],
        machine=H100,
        partial=True,
        skipped=[skipped],
        notes=["<script>alert(1)</script>"],
        command="rose bench prefill '<img src=x>'",
    )
    text = write(tmp_path, [synthetic.prefill(), other])
    assert "DIFFERENT MACHINES" in text
    assert '<span class="partial">partial</span>' in text
    assert "batch 128 needs &lt;b&gt;more&lt;/b&gt; &amp; memory" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script" not in text
    assert "<img" not in text


# Charts


@cache
def charts():
    points = collect(everything())
    made = [
        decode_chart(of(points, "decode", model=model, tokens=tokens), 3.0)
        for model in ("gpt-oss-20b", "gpt-oss-120b")
        for tokens in (8192, 32768)
    ]
    made.append(speedup_chart(of(points, "prefill", model="gpt-oss-120b")))
    made.append(roofline_chart([p for p in points if p.model == "gpt-oss-120b"], RATES))
    made.append(crowded_chart())
    longer = [
        msgspec.structs.replace(c, model="somebody/" + 3 * "a-long-name-" + "120b")
        for c in synthetic.serving().cells
    ]
    made += serve_charts(longer, "long")
    return made + serve_charts(synthetic.serving().cells, "test")


def crowded_chart():
    """Two commits, each with four shardings, and peers."""
    slower = [msgspec.structs.replace(c, tokens=4096) for c in synthetic.decode().cells]
    slower = [msgspec.structs.replace(c, samples=[1.2 * s for s in c.samples]) for c in slower]
    faster = [msgspec.structs.replace(c, tokens=4096) for c in synthetic.decode().cells]
    points = collect([result(slower), result(faster, commit="f" * 40), synthetic.peer()])
    return decode_chart(of(points, "decode", model="gpt-oss-20b", tokens=4096), 3.0)


def visible_texts(figure):
    """Of each text its words and its box in pixels."""
    figure.draw_without_rendering()
    [axes] = figure.axes
    [legend] = figure.legends
    texts = [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
    texts += [*axes.get_xticklabels(), *axes.get_yticklabels(), *legend.get_texts()]
    low_x, high_x = axes.get_xlim()
    low_y, high_y = axes.get_ylim()
    for label in axes.get_xticklabels():
        label.set_visible(low_x <= label.get_position()[0] <= high_x)
    for label in axes.get_yticklabels():
        label.set_visible(low_y <= label.get_position()[1] <= high_y)
    shown = [text for text in texts if text.get_text() and text.get_visible()]
    return [(text.get_text(), text.get_window_extent()) for text in shown]


@pytest.mark.parametrize("chart", charts(), ids=lambda chart: chart.name)
def test_no_text_of_a_chart_overlaps_another_or_leaves_it(chart):
    texts = visible_texts(chart.figure)
    assert len(texts) > 8
    for (word, box), (other_word, other) in itertools.combinations(texts, 2):
        assert not box.overlaps(other), f"{word!r} overlaps {other_word!r}"
    width, height = chart.figure.canvas.get_width_height()
    for word, box in texts:
        assert box.x0 >= 0, word
        assert box.y0 >= 0, word
        assert box.x1 <= width, word
        assert box.y1 <= height, word


@pytest.mark.parametrize("chart", charts(), ids=lambda chart: chart.name)
def test_axes_have_units_and_the_chart_a_description(chart):
    [axes] = chart.figure.axes
    units = ("tokens", "$", "FLOP", "ms", "times as fast", "load")
    for label in (axes.get_xlabel(), axes.get_ylabel()):
        assert any(unit in label for unit in units), label
    assert len(chart.description) > 40


def test_decode_charts_label_batches_and_say_cost_against_speed():
    chart = charts()[2]
    assert chart.name == "decode-gpt-oss-120b-8192"
    [axes] = chart.figure.axes
    labelled = [text.get_text() for text in axes.texts]
    assert {"1", "16", "128"} <= set(labelled)
    names = {line.get_label(): line for line in axes.get_lines()}
    ours = names["rose 0.1.0, mxfp4, TP1"]
    step = synthetic.step_seconds("gpt-oss-120b", 1, 1, 8192)
    assert ours.get_xdata()[0] == pytest.approx(1 / step)
    assert ours.get_ydata()[0] == pytest.approx(step * 3 / 3600 * 1e6)
    assert "vllm 0.26.0, TP2" in names


def test_many_launches_a_sample_are_shown_as_one():
    cells = {row.cells[0]: row.cells for row in roofline_table(synthetic.roofline()).rows}
    assert cells["launch in a graph"][1:] == ["-", "1.14 us", "1.13 us to 1.16 us"]
    assert cells["copy"][1] == "4.27 TB/s"


def test_a_legend_names_two_quantizations_of_a_sharding_once():
    one = cell("prefill", 1.0, tokens=8192)
    other = msgspec.structs.replace(one, quantization="fp8")
    (axes,) = roofline_chart(collect([result([one]), result([other])]), RATES).figure.axes
    assert axes.get_legend_handles_labels()[1].count("prefill, TP1") == 1


def test_speed_says_which_published_row_it_is_over():
    [chart] = [chart for chart in charts() if chart.name == "speedup-gpt-oss-120b"]
    [legend] = chart.figure.legends
    assert "published, as many GPUs = 1" in [text.get_text() for text in legend.get_texts()]


def test_no_chart_without_something_to_draw():
    points = collect([result([cell("prefill", 1.0, tokens=512, model="another")])])
    assert speedup_chart(points) is None
    assert roofline_chart(points, RATES) is None


def test_inline_charts_take_the_colours_of_the_page_and_share_it():
    svg = inline_svg(charts()[0])
    assert INK not in svg
    assert GRID not in svg
    assert "currentColor" in svg
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert all(one.startswith("decode-gpt-oss-20b-8192-") for one in ids)
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', svg)
    assert used
    assert set(used) <= set(ids)


def test_files_of_a_chart_are_the_same_every_time(tmp_path):
    points = of(collect([synthetic.decode()]), "decode", model="gpt-oss-20b", tokens=8192)
    for turn in ("a", "b"):
        (tmp_path / turn).mkdir()
        paths = save_files(decode_chart(points, 3.0), tmp_path / turn)
        assert [path.suffix for path in paths] == [".png", ".svg"]
    for path in paths:
        assert (tmp_path / "a" / path.name).read_bytes() == path.read_bytes()


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_read_on_light_and_on_dark():
    css = (TEMPLATES / "report.css").read_text("utf-8")
    themes = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    ]
    assert len(themes) == 2
    for theme in themes:
        for color in COLORS:  # WCAG: 3 for what is drawn
            assert contrast(color, theme["page"]) >= 3, color
        for page in ("page", "band", "ours", "note-page"):
            assert contrast(theme["text"], theme[page]) >= 7
        assert contrast(theme["quiet"], theme["page"]) >= 4.5
        assert contrast(theme["link"], theme["page"]) >= 4.5
        assert contrast(theme["alarm"], theme["alarm-page"]) >= 4.5


# The page


class Page(HTMLParser):
    """Checks that tags close in order, and collects ids, links and what rows hold."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.cells, self.figures = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[name] for name in ("href", "src", "xlink:href") if name in values]
        if tag == "figure":
            self.figures.append(values)
        if tag in ("th", "td"):
            self.cells.append((tag, values))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_accessible_and_needs_no_network(page):
    parsed = Page()
    parsed.feed(page)
    assert not parsed.open
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert parsed.links
    assert all(link.startswith("#") and link[1:] in parsed.ids for link in parsed.links)
    assert not re.search(r"url\((?!#)|@import", page)
    assert len(parsed.figures) == 4 + 2 + 2 + 2
    assert all(figure["role"] == "img" and figure["aria-label"] for figure in parsed.figures)
    assert all(values.get("scope") for tag, values in parsed.cells if tag == "th")
    assert page.count("<caption>") == page.count("<table>") > 8


def test_the_page_says_where_the_numbers_are_from(page):
    for words in (
        NOTE,
        "rose bench decode gpt-oss-120b",
        "0123456789abcdef",
        "8 &times; Synthetic H200 (139 GiB each, driver 580.0)",
        "triton 3.6.0",
        "<code>runs=5</code>",
        "2026-01-02T03:04:05Z",
        "DO NOT TRUST",
    ):
        assert words in page


def test_charts_are_files_too(folder):
    names = {path.stem for path in folder.glob("*.png")}
    assert names == {path.stem for path in folder.glob("*.svg")}
    assert "decode-gpt-oss-20b-32768" in names
    assert len(names) == 10


def find_browser():
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    # Only the page's layout needs one: overlap inside the charts is tested above without it.
    pytest.skip(f"no browser ({', '.join(BROWSERS)}); .ci/run installs one where it may")


PROBE = """<script>
const wide = document.documentElement.scrollWidth > window.innerWidth;
const flat = [...document.querySelectorAll("figure svg")].filter(
  (svg) => svg.getBoundingClientRect().width < 200 || svg.getBoundingClientRect().height < 100);
const seen = [...document.querySelectorAll("figure, table, h1, h2, p")].map(
  (one) => one.getBoundingClientRect()).filter((box) => box.height);
const crossed = [...document.querySelectorAll("section, nav, main > p")].map(
  (one) => one.getBoundingClientRect()).filter((box, n, all) => n && box.top < all[n - 1].bottom);
document.title = `wide=${wide} flat=${flat.length} crossed=${crossed.length} seen=${seen.length}`;
</script></body>"""


@pytest.mark.parametrize("width", [500, 1300])
def test_a_browser_lays_the_page_out_without_overlap(page, tmp_path, width):
    browser = find_browser()
    probe = tmp_path / "probe.html"
    probe.write_text(page.replace("</body>", PROBE), encoding="utf-8")
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000"]
    words += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", probe.as_uri()]
    dom = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", dom).group(1)
    assert title.startswith("wide=false flat=0 crossed=0 seen="), title
    assert int(title.rpartition("=")[2]) > 25


# The command


def test_the_command_writes_the_report(tmp_path):
    paths = synthetic.write_all(tmp_path)
    words = ["bench", "report", *map(str, paths[3:]), "--out", str(tmp_path / "new" / "folder")]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.strip() == str(tmp_path / "new" / "folder" / "report.html")
    assert "Serving gpt-oss-120b" in (tmp_path / "new" / "folder" / "report.html").read_text()


def test_a_report_of_nothing_or_of_several_prices_is_refused(tmp_path):
    with pytest.raises(BenchError, match="nothing was measured"):
        write(tmp_path, [result([])])
    cells = [cell("prefill", 1.0, tokens=8192)]
    two = [result(cells), result(cells, usd_per_gpu_hour=2.0)]
    with pytest.raises(BenchError, match=r"priced at \$2, \$3; choose by --usd-per-gpu-hour"):
        write(tmp_path, two)
    assert not (tmp_path / "report.html").exists()


def test_a_report_without_matplotlib_says_what_to_install(tmp_path):
    save(synthetic.roofline(), tmp_path / "r.json")
    words = ["bench", "report", str(tmp_path / "r.json"), "--out", str(tmp_path / "out")]
    code = (
        "import sys; sys.modules['matplotlib'] = None; from click.testing import CliRunner; "
        f"from rose.cli import main; ran = CliRunner().invoke(main, {words!r}); "
        "assert ran.exit_code == 1; assert 'pip install' in ran.stderr, ran.stderr; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
