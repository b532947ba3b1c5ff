"""The report: well-formed, whole, escaped, nothing from elsewhere, and fit for a phone."""

import base64
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from cli_data import as_csv, fails, make_rows, run
from jointleaf import Frobenius, JOPLEnRegressor
from jointleaf._data.formatting import natural_key
from jointleaf.cli import _validation, main
from jointleaf.cli._charts import class_charts, classes_chart, effect_chart
from jointleaf.cli._html import breakable, page, table
from jointleaf.cli._preparation import Rows
from jointleaf.cli._record import effect_summary
from jointleaf.cli._report import render_report
from jointleaf.cli._scores import histogram, prediction_summary
from jointleaf.cli._using import load_model

NASTY = '<script>alert("x")</script>'
SECTIONS = ["errors", "target", "predictions", "importances", "effects", "data", "fit"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Reports of a number and of three classes; a column and a class have nasty names."""
    path = tmp_path_factory.mktemp("report")
    rows = [[row[2], row[3], row[-1]] for row in make_rows(60)]
    header = ("city", f"area {NASTY}", "price & more")
    (path / "number.csv").write_text(as_csv(rows, header))
    kinds = [NASTY, "b'\"", "c"]
    rng = np.random.default_rng(0)
    rows = [
        [f"{k % 3 + rng.normal(0, 0.7):.3f}", f"{rng.normal():.3f}", kinds[k % 3]]
        for k in range(60)
    ]
    (path / "classes.csv").write_text(as_csv(rows, ("a", "b", "kind")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_validation, "_FOLDS", 2)  # for speed
        for name, target in (("number", "price & more"), ("classes", "kind")):
            model = str(path / f"{name}.jleaf")
            assert main(["fit", str(path / f"{name}.csv"), "-t", target, "-o", model]) == 0
    return path


def parsed(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>\n")
    return text, ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


@pytest.mark.parametrize("name", ["number", "classes"])
def test_reports_are_whole_well_formed_and_alone(folder, name):
    text, root = parsed(folder / f"{name}.html")
    # A linear model is better on the few rows of both.
    assert [section.get("id") for section in root.iter("section")] == ["hints", *SECTIONS]
    assert root.find("head/meta[@name='viewport']").get("content").startswith("width=device-width")
    # Nothing is loaded: no scripts, links, pictures, imports or addresses.
    tags = {element.tag for element in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "use", "image"}
    for element in root.iter():
        assert not {"src", "href", "srcset", "onload", "onclick"} & set(element.attrib)
    assert not re.search(r"https?:|url\(|@import", text)
    assert len(root.findall(".//figure/svg")) >= 3
    for svg in root.iterfind(".//figure/svg"):
        assert svg.get("aria-label")
        assert "nan" not in ElementTree.tostring(svg, encoding="unicode").lower().replace(
            "dominant", ""
        )


@pytest.mark.parametrize("name", ["number", "classes"])
def test_names_are_escaped_and_shown(folder, name):
    text, root = parsed(folder / f"{name}.html")
    assert "<script" not in text
    assert NASTY in "".join(root.itertext())


def test_the_numbers_are_those_of_the_model_file(capsys, folder):
    found = json.loads(run(capsys, "info", folder / "number.jleaf", "--json")[1])
    ours = next(r for r in found["validation"]["table"] if r["model"] == "jointleaf")
    _, root = parsed(folder / "number.html")
    errors = root.find(".//section[@id='errors']")
    rows = [[cell.text or "" for cell in row.iter("td")] for row in errors.iter("tr")]
    (row,) = [row for row in rows if row and row[0] == "jointleaf"]
    assert float(row[2].replace(",", "")) == pytest.approx(ours["rmse"], rel=1e-3)
    assert {row[0] for row in rows if row} == {r["model"] for r in found["validation"]["table"]}


@pytest.mark.parametrize("name", ["number", "classes"])
def test_report_once_more_and_on_further_data(capsys, folder, tmp_path, name):
    out = tmp_path / "again.html"
    code, shown, _ = run(capsys, "report", folder / f"{name}.jleaf", "-o", out)
    assert (code, shown) == (0, f"wrote {out}\n")
    assert out.read_text() == (folder / f"{name}.html").read_text()
    data = folder / f"{name}.csv"
    code, shown, _ = run(capsys, "report", folder / f"{name}.jleaf", data, "-o", out, "--json")
    assert code == 0
    found = json.loads(shown)
    assert found["rows"] == 60
    assert found["errors"]["rmse" if name == "number" else "log_loss"] > 0
    _, root = parsed(out)
    sections = ["hints", *SECTIONS[:3], "further", *SECTIONS[3:]]
    assert [s.get("id") for s in root.iter("section")] == sections


def test_long_lists_of_columns_are_folded(folder):
    record = load_model(str(folder / "number.jleaf")).record
    assert "<details>" not in render_report(record)
    text = render_report({**record, "columns": 11 * record["columns"]})
    root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    (details,) = root.iter("details")
    assert details.find("summary").text == "All 22 columns"
    assert len(details.findall(".//tbody/tr")) == 22


def test_further_data_must_have_the_target(capsys, folder, tmp_path):
    data = tmp_path / "new.csv"
    data.write_text("a,b\n1,2\n")
    assert "the target 'kind' is not there" in fails(
        capsys, "report", folder / "classes.jleaf", data
    )
    data.write_text("a,b,kind\n1,2,d\n")
    line = fails(capsys, "report", folder / "classes.jleaf", data)
    assert "holds 'd', which is none of the model's classes" in line


NAMES = ["sulfur_dioxide.mean", "SquareFeet", "a b", "x" * 200, NASTY]


def test_names_break_behind_marks_and_never_within_words():
    shown = [breakable(name) for name in NAMES]
    assert shown[0] == "sulfur_<wbr/>dioxide.<wbr/>mean"
    assert shown[1:3] == ["SquareFeet", "a b"]
    assert shown[3] == f'<span class="long">{"x" * 200}</span>'
    for name, html in zip(NAMES, shown, strict=True):
        assert "".join(ElementTree.fromstring(f"<p>{html}</p>").itertext()) == name
    style = page("", "").split("<style>")[1].split("</style>")[0]
    assert "break-all" not in style
    for rule in re.findall(r"([^{}]+)\{[^{}]*overflow-wrap:anywhere", style):
        assert rule.strip() == ".text,.long"
    cells = ElementTree.fromstring(table(["feature", "values"], [["a_b", "c_d"]], texts=(1,)))
    assert [cell.get("class") for cell in cells.iter("td")] == [None, "text"]


def test_calibration_of_many_classes_is_that_of_the_likeliest():
    """Of all classes together nearly all points were at 0 and 1."""
    p = np.random.default_rng(0).dirichlet(np.full(9, 0.3), 400)
    y = np.array([np.random.default_rng(k).choice(9, p=row) for k, row in enumerate(p)])
    summary = prediction_summary(Rows(None, y), p)
    order = np.argsort(p.max(axis=1))
    means = [p.max(axis=1)[rows].mean() for rows in np.array_split(order, 10)]
    right = [(p.argmax(axis=1) == y)[rows].mean() for rows in np.array_split(order, 10)]
    np.testing.assert_allclose([g["probability"] for g in summary["calibration"]], means)
    np.testing.assert_allclose([g["frequency"] for g in summary["calibration"]], right)
    assert summary["calibration_of"] == "the likeliest class"
    two = prediction_summary(Rows(None, (y > 4).astype(int)), np.c_[1 - p[:, 0], p[:, 0]])
    groups = [p[rows, 0].mean() for rows in np.array_split(np.argsort(p[:, 0]), 10)]
    np.testing.assert_allclose([g["probability"] for g in two["calibration"]], groups)


def test_means_are_drawn_where_most_targets_are_zero(folder):
    """Single counts are all on the left edge of a square."""
    rng = np.random.default_rng(0)
    predicted = rng.uniform(0.01, 0.3, 400)
    counts = rng.poisson(predicted)
    summary = prediction_summary(Rows(None, counts.astype(float)), predicted)
    order = np.argsort(predicted)
    means = [counts[rows].mean() for rows in np.array_split(order, 10)]
    np.testing.assert_allclose([group["mean"] for group in summary["means"]], means)
    record = load_model(str(folder / "number.jleaf")).record
    text = render_report({**record, "validation": {**record["validation"], "summary": summary}})
    assert "Mean target by prediction" in text
    assert "Target against prediction" not in text
    assert prediction_summary(Rows(None, predicted), predicted)["means"] is None


def test_classes_with_numbers_are_in_their_order():
    names = ["v0", "v1", "v10", "v2"]
    summary = {"calibration": [], "confusion": [[10 * j + k for k in range(4)] for j in range(4)]}
    matrix = class_charts(summary, names)[1][1]
    assert list(dict.fromkeys(re.findall(r">(v\d+)<", matrix))) == ["v0", "v1", "v2", "v10"]
    _, bars = classes_chart({"classes": names, "counts": [4, 3, 2, 1]})
    assert re.findall(r">(v\d+)<", bars) == ["v0", "v1", "v2", "v10"]
    assert sorted(["16.7", "8.3", "9.4"], key=natural_key) == ["8.3", "9.4", "16.7"]


def test_a_target_called_target_is_named_once(folder):
    record = load_model(str(folder / "number.jleaf")).record
    text = render_report({**record, "target": {**record["target"], "name": "target"}})
    assert "<span>target</span>" in text
    assert "target target" not in text


def test_the_search_by_another_error_is_explained(folder):
    """Its unit is its own: ten, where the loss is a fifth."""
    record = load_model(str(folder / "number.jleaf")).record
    assert "a unit of their own" not in render_report(record)
    lines = [{**line, "exact": False} for line in record["search"]]
    text = render_report({**record, "search": lines})
    assert "a unit of their own: they do not compare with the validation loss" in text
    assert "Search by squared errors, weaker penalties to the right" in text


def test_effects_of_truth_values_are_those_of_two_categories():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=80), "b": rng.integers(0, 2, 80).astype(float)})
    model = JOPLEnRegressor("lightgbm", penalty=Frobenius(0.01)).fit(X, X["a"] + 3 * X["b"])
    features = [{"name": name, "importance": 0.5} for name in X]
    by_name = [
        {
            c["name"]: c
            for c in effect_summary(model, X, features, {"name": "y"}, set(), some)["curves"]
        }
        for some in ((), ("b",))
    ]
    assert by_name[0]["a"] == by_name[1]["a"]
    assert by_name[0]["b"]["grid"] == [0.0, 1.0]
    assert by_name[1]["b"]["names"] == ["no", "yes"]
    assert by_name[1]["b"]["values"] == by_name[0]["b"]["values"]
    assert ">yes<" in effect_chart(by_name[1]["b"], (-2, 2), "change of y")


@pytest.mark.parametrize("name", ["number", "classes"])
def test_effects_of_the_main_columns_are_drawn(folder, name):
    record = load_model(str(folder / f"{name}.jleaf")).record
    curves = record["effects"]["curves"]
    assert [c["name"] for c in curves] == [f["name"] for f in record["features"]][: len(curves)]
    _, root = parsed(folder / f"{name}.html")
    section = root.find(".//section[@id='effects']")
    captions = ["".join(caption.itertext()) for caption in section.iter("figcaption")]
    assert captions == [c["name"] for c in curves]
    assert len(section.findall(".//figure/svg")) == len(curves) == 2
    if name == "number":
        kinds = {c["name"]: "names" in c for c in curves}
        assert kinds["city"]
        assert sum(kinds.values()) == 1
    else:
        assert record["effects"]["outputs"] == record["target"]["classes"]
        assert {len(c["values"]) for c in curves} == {3}
    older = {key: value for key, value in record.items() if key != "effects"}
    assert 'id="effects"' not in render_report(older)


def test_intervals_are_shown(folder):
    text, root = parsed(folder / "number.html")
    figures = root.findall(".//section[@id='predictions']//figure")
    assert len(figures) == 3
    assert figures[2].find("figcaption").text == "Intervals of 90 %"
    assert "Intervals of 90 % hold" in text


def test_the_report_says_how_many_intervals_are_drawn(folder):
    record = load_model(str(folder / "number.jleaf")).record
    y = np.arange(400.0)
    summary = prediction_summary(Rows(None, y), y, np.column_stack([y - 1, y + 1]))
    text = render_report({**record, "validation": {**record["validation"], "summary": summary}})
    root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    figure = root.findall(".//section[@id='predictions']//figure")[2]
    marks = figure.findall(".//circle")
    in_chart = [mark for mark in marks if mark.get("r") == "2.2"]
    assert figure.find("figcaption").text == f"Intervals of 90 %, {len(in_chart)} of 400 rows"


def test_what_effects_are_of_is_named_in_english(folder):
    text = (folder / "number.html").read_text()
    assert "<p>How price &amp; more moves with" in text
    assert "<p>How the raw prediction moves with" in (folder / "classes.html").read_text()


def test_one_line_of_losses_is_not_called_every_line(folder):
    record = load_model(str(folder / "number.jleaf")).record
    assert "Every line is one way" in render_report(record)
    text = render_report({**record, "search": record["search"][:1]})
    assert "The line is this loss; the band" in text
    assert "Every line" not in text


def test_the_names_of_classes_are_below_the_effects_too(folder):
    _, root = parsed(folder / "classes.html")
    legends = root.findall(".//section[@id='effects']//p[@class]")
    kinds = [p.get("class") for p in legends if "legend" in p.get("class")]
    assert kinds == ["legend", "legend again"]


def test_no_card_covers_a_table_beside_it():
    """A table that is wider than its card scrolls, and the one of errors has room for itself."""
    style = re.sub(r"\s", "", page("t", ""))
    (card,) = re.findall(r"section\{(background.*?)\}", style)
    assert "overflow-x:auto" in card
    (width,) = re.findall(r"@media\(min-width:(\d+)px\)\{\.row\{display:grid", style)
    assert int(width) > 1000


# -- in a browser --------------------------------------------------------------------------------

DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Browser:
    """A headless Chromium of a width, by the WebDriver protocol."""

    def __init__(self, port, profile, width):
        self.base = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                self.call("GET", "/status")
                break
            except OSError:
                time.sleep(0.1)
        screen = {"width": width, "height": 844, "pixelRatio": 1}
        options = {
            "args": [*FLAGS, f"--user-data-dir={profile}"],
            "mobileEmulation": {"deviceMetrics": screen},
        }
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options,
                                  "goog:loggingPrefs": {"browser": "ALL"}}}  # fmt: skip
        self.base += (
            "/session/" + self.call("POST", "/session", {"capabilities": wanted})["sessionId"]
        )

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, data, head, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def run(self, script):
        return self.call("POST", "/execute/sync", {"script": script, "args": []})


@pytest.mark.skipif(DRIVER is None, reason="no chromedriver")
@pytest.mark.parametrize("width", [360, 390, 1000, 1200])
@pytest.mark.parametrize("name", ["number", "classes"])
def test_reports_in_a_browser(folder, tmp_path, name, width):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        browser = Browser(port, tmp_path / "profile", width)
        try:
            browser.call("POST", "/url", {"url": (folder / f"{name}.html").as_uri()})
            # No sideways scrolling, nothing beyond the right edge.
            assert browser.run("return document.documentElement.scrollWidth") <= width
            beyond = "e => e.getBoundingClientRect().right > window.innerWidth + 1"
            every = "[...document.querySelectorAll('body *')]"
            assert browser.run(f"return {every}.filter({beyond}).length") == 0
            assert browser.run(COVERED) == []
            assert browser.run(BROKEN) == []
            # Text of charts is readable, and no two labels of an axis overlap.
            small = browser.run(
                "return Math.min(...[...document.querySelectorAll('figure > svg')].map("
                "s => 11 * s.getBoundingClientRect().width / s.viewBox.baseVal.width))"
            )
            assert small > 8
            assert browser.run(OVERLAPS) == []
            assert browser.run(CUT) == []
            assert browser.run(SPLIT_NAMES) == []
            assert browser.run(TALL) == []
            assert browser.run("return performance.getEntriesByType('resource').length") == 0
            assert browser.call("POST", "/se/log", {"type": "browser"}) == []
            picture = base64.b64decode(browser.call("GET", "/screenshot"))
            assert picture.startswith(b"\x89PNG")
        finally:
            browser.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(timeout=20)


# Single words at the top that take several lines.
BROKEN = """
return [...document.querySelectorAll('.facts b')].filter(b => {
  const range = document.createRange();
  range.selectNodeContents(b);
  return range.getClientRects().length > 1;
}).map(b => b.textContent);
"""

# Tables that reach out of their cards, which do not scroll.
COVERED = """
return [...document.querySelectorAll('section')].filter(card =>
  getComputedStyle(card).overflowX !== 'auto' && card.scrollWidth > card.clientWidth + 1
).map(card => card.id);
"""

# Texts of charts that reach beyond them.
CUT = """
return [...document.querySelectorAll('figure > svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => {
    const box = t.getBoundingClientRect();
    const [left, right, bottom] = [frame.left - 1, frame.right + 1, frame.bottom + 1];
    return box.left < left || box.right > right || box.bottom > bottom;
  }).map(t => t.textContent);
});
"""

# Rows of importances in which the share is not beside the name, or with much below these.
TALL = """
return [...document.querySelectorAll('#importances tbody tr')].filter(row => {
  const [all, name, , share] = [row, ...row.cells].map(e => e.getBoundingClientRect());
  return Math.abs(name.top - share.top) > 2 || all.height - name.height > 60;
}).map(row => row.textContent);
"""

# Words of names in tables that take several lines, but for those too long for any.
SPLIT_NAMES = """
return [...document.querySelectorAll('td:first-child')].flatMap(cell => {
  const found = [];
  for (const node of cell.childNodes) if (node.nodeType === 3) {
    for (const word of node.data.matchAll(/[^\\s-]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (range.getClientRects().length > 1) found.push(word[0]);
    }
  }
  return found;
});
"""

OVERLAPS = """
const found = [];
for (const svg of document.querySelectorAll('figure > svg')) {
  const texts = [...svg.querySelectorAll('text')];
  const boxes = texts.map(t => [t.textContent, t.getBoundingClientRect()]);
  for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
    const [a, p] = boxes[i], [b, q] = boxes[j];
    if (p.left < q.right && q.left < p.right && p.top < q.bottom - 2 && q.top < p.bottom - 2)
      found.push(a + ' / ' + b);
  }
}
return found;
"""


def test_few_whole_numbers_have_all_their_bars_and_long_tails_are_said():
    counts = np.repeat([0.0, 1.0, 3.0], [990, 8, 2])
    found = histogram(counts)
    assert (found["counts"], found["is_clipped"]) == ([990, 8, 0, 2], False)
    tail = np.append(np.linspace(0, 1, 999), 100.0)
    found = histogram(tail)
    assert found["is_clipped"]
    assert sum(found["counts"]) == 1000
    assert found["edges"][-1] < 2


def test_a_rare_value_is_a_place_of_its_curve():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=400), "rare": np.arange(400) % 400 == 7, "same": 1.0})
    X = X.astype(float)
    y = X["a"] + 5 * X["rare"]
    model = JOPLEnRegressor("lightgbm", penalty=Frobenius(0.01), random_state=0).fit(X, y)
    features = [{"name": name, "importance": 1.0} for name in X]
    curves = effect_summary(model, X, features, {"name": "y"}, set())["curves"]
    assert [curve["name"] for curve in curves] == ["a", "rare"]
    assert curves[1]["grid"] == [0.0, 1.0]
