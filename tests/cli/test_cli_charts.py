"""The charts of a report: axes, labels and marks, without any fit."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from jointleaf.cli._charts import class_charts, classes_chart, effect_chart, search_chart
from jointleaf.cli._svg import LARGE, SMALL, Axis, Chart, Matrix, shortened, text_width, wrapped


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [(0, 1, False), (-3.2, 1e6, False), (1e-9, 2e-9, True), (1e-8, 1e3, True), (5, 5, False),
     (3.0, 3.3, True), (10, 0.001, True)],
)  # fmt: skip
def test_ticks_are_few_and_inside(low, high, log):
    axis = Axis(low, high, "x", log=log)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 8
    assert all(-1e-9 <= axis.place(tick) <= 1 + 1e-9 for tick in ticks)


def texts_outside(svg):
    """Return the texts of a chart that reach beyond it, by a narrow estimate of their widths."""
    root = ElementTree.fromstring(f"<p>{svg}</p>").find("svg")
    _, _, width, height = map(float, root.get("viewBox").split())
    found = []
    for text in root.iter("text"):
        if text.get("transform") is not None:
            continue
        anchor = text.get("text-anchor")
        for line in text.findall("tspan") or [text]:
            half = 0.8 * text_width(line.text or "") * {"middle": 0.5, "end": 1}[anchor]
            x, y = float(line.get("x")), float(line.get("y"))
            right = x if anchor == "end" else x + half
            if x - half < 0 or right > width or not 0 < y < height:
                found.append(line.text)
    return found


@pytest.mark.parametrize("size", [LARGE, SMALL])
@pytest.mark.parametrize(
    ("low", "high", "log"),
    [(0, 600_000, False), (-150_000, 150_000, False), (0, 9.4e6, False), (1, 0.001, True)],
)
def test_labels_are_whole_and_clear_of_titles(low, high, log, size):
    chart = Chart(
        Axis(low, high, "SalePrice", log=log), Axis(low, high, "y " * 90, log=log), "t", size
    )
    svg = chart.render()
    assert texts_outside(svg) == []
    texts = list(ElementTree.fromstring(svg).iter("text"))
    (title,) = [t for t in texts if t.get("transform")]
    assert title.text.endswith("…")  # longer than the axis
    baseline = float(re.match(r"translate\((\d+)", title.get("transform"))[1])
    numbers = [t for t in texts if t.get("text-anchor") == "end"]
    assert len(numbers) >= 2
    for number in numbers:
        assert float(number.get("x")) - text_width(number.text) > baseline + 3


def test_ticks_of_dates_are_dates():
    assert Axis(13222, 13400, "sold", days=True).texts() == ["2006-05", "2006-07", "2006-09"]
    assert Axis(0, 9000, "sold", days=True).texts() == ["1970", "1980", "1990"]
    assert Axis(13222, 13230, "sold", days=True).texts() == ["2006-03-15", "2006-03-23"]


@pytest.mark.parametrize("n", [2, 9, 26, 41])
def test_confusion_is_a_picture(n):
    classes = [f"class number {k}" for k in range(n)]
    counts = (1234 * np.eye(n, dtype=int) + np.arange(n)).tolist()
    groups = [{"probability": 0.5, "frequency": 0.5, "error": 0.1, "count": 10}]
    pictures = class_charts({"calibration": groups, "confusion": counts}, classes)
    assert len(pictures) == (2 if n <= 40 else 1)
    if n > 40:
        return
    svg = pictures[1][1]
    assert svg == Matrix(counts, classes).render()
    root = ElementTree.fromstring(svg)
    assert float(root.get("viewBox").split()[2]) == LARGE[0]
    right, total = np.trace(counts), np.sum(counts)
    assert f"{right:,} of {total:,} rows are predicted right" in root.get("aria-label")
    squares = list(root.iter("rect"))
    assert len(squares) == n * n
    assert squares[1].find("title").text == "true class number 0, predicted class number 1: 1"
    assert texts_outside(svg) == []
    shown = [t.text for t in root.iter("text") if t.get("class") == "count"]
    assert (f"{1234 + 1:,}" in shown) == (n <= 12)
    assert shown or n > 12


def test_every_class_has_its_name_beside_its_bar():
    target = {"classes": [f"class number {k}" for k in range(30)], "counts": [*range(1, 31)]}
    caption, chart = classes_chart(target)
    root = ElementTree.fromstring(chart)
    assert caption == root.get("aria-label") == "Rows of the 20 most frequent of 30 classes"
    names = [t.text for t in root.iter("text") if t.get("text-anchor") == "end"]
    assert names == target["classes"][10:]


def test_an_effect_of_dates_has_dates_below_it():
    curve = {"name": "sold", "days": True, "grid": [0.0, 9000.0], "values": [[-1.0, 1.0]]}
    assert ">1980</text>" in effect_chart(curve, (-1.0, 1.0), "change")


def test_points_are_where_they_belong():
    chart = Chart(Axis(0, 10, "x"), Axis(0, 100, "y"), "t")
    chart.points([0, 5, 10], [0, 50, 100])
    root = ElementTree.fromstring(chart.render())
    places = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter("circle")]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.1)
    assert x0 < x2
    assert y2 < y0  # up is small in SVG


def test_the_legend_of_the_search_has_one_mark_for_every_name():
    lines = [
        {"strength": [1.0, 0.1], "loss": [2.0, 1.0 + k], "error": [0.1, 0.1], "slope_scale": s,
         "feature_power": 1.0}
        for k, s in enumerate((0.0, 3.0))
    ]  # fmt: skip
    setting = {"strength": 0.1, "slope_scale": 3.0, "feature_power": 1.0}
    html = search_chart(lines, setting, "loss")
    legend = re.findall(r'<i class="(\w+)" style="background:(#\w+)"></i>([^<]+)<', html)
    assert [name for *_, name in legend] == [
        "constant cells", "slope scale 3, feature power 1", "chosen",
    ]  # fmt: skip
    assert len({color for _, color, _ in legend}) == 3
    assert [mark for mark, *_ in legend] == ["stroke", "stroke", "dot"]


def test_strengths_that_are_far_too_weak_are_not_on_the_axis():
    line = {
        "strength": [1.0, 0.1, 0.01, 1e-5, 1e-8], "loss": [2.0, 1.0, 2.1, 80.0, 1e6],
        "error": [0.1] * 5, "slope_scale": 3.0, "feature_power": 1.0,
    }  # fmt: skip
    html = search_chart([line], {"strength": 0.1}, "loss")
    assert ">0.01</text>" in html
    assert not re.search(">1e-[5-8]<", html)


def test_long_names_are_in_two_lines_and_cut_only_where_these_are_full():
    assert wrapped("tropical", 92, 2) == ["tropical"]
    assert wrapped("subtropical depression", 92, 2) == ["subtropical", "depression"]
    assert wrapped("breakfast_lunch_and_dinner", 122, 2) == ["breakfast_lunch_", "and_dinner"]
    assert wrapped("subtropical depression", 92, 1) == [shortened("subtropical depression", 92)]
    assert wrapped("a very long name of a class", 70, 2)[-1].endswith("…")
    assert wrapped("unbreakablyunbreakable", 60, 2) == [shortened("unbreakablyunbreakable", 60)]
