"""The pages that guide a newcomer: their code runs, and what they show is what was measured."""

import csv
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.datasets import make_friedman1

from blend_fits import true_fits
from jointleaf import (
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    prune,
    refine,
    to_onnx,
    to_sql,
)
from jointleaf._fit.recipes import recipe_for

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*(?:e-?\d+)?")


def run(page, capsys):
    """Run the blocks of a page; return its names, and pairs of what is shown and printed."""
    names: dict = {}
    pairs, printed = [], ""
    for kind, text in FENCE.findall((DOCS / page).read_text(encoding="utf-8")):
        if kind == "text":
            pairs.append((text, printed))
        else:
            exec(compile(text, page, "exec"), names)
            printed = capsys.readouterr().out
    return names, pairs


def assert_alike(shown, printed, rtol):
    """Compare words, and numbers as far as versions of LightGBM and scikit-learn agree on them."""
    assert NUMBER.sub("0", shown).split() == NUMBER.sub("0", printed).split()
    a, b = (
        [float(n.replace(",", "")) for n in NUMBER.findall(text)
         if "e" not in n]
        for text in (shown, printed)
    )  # fmt: skip
    np.testing.assert_allclose(a, b, rtol=rtol)


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with true_fits():
        names, pairs = run("tutorial.md", capsys)
    assert len(pairs) == 5
    for shown, printed in pairs:
        if "recipe" not in shown:  # the setting that is best by a hair may be another
            assert_alike(shown, printed, rtol=0.05)
    assert (names["served"].predict(names["X"]) == names["final"].predict(names["X"])).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*eval_set.*")  # its successor is not in the oldest LightGBM
def test_the_page_for_users_of_boosting_runs_as_written(capsys):
    pytest.importorskip("shap")
    names, _ = run("migrating.md", capsys)
    assert names["shap_values"].shape == names["X_test"].shape


@pytest.mark.slow
def test_the_page_on_tuning_runs_as_written(capsys):
    names, _ = run("tuning.md", capsys)
    assert len(names["search"].cv_results_["params"]) == 4
    assert names["search"].best_score_ > 0.6


@pytest.mark.slow
def test_which_model_can_do_what():
    pytest.importorskip("onnx")
    X, y = make_friedman1(400, noise=1.0, random_state=0)
    X, classes = pd.DataFrame(X, columns=[f"c{j}" for j in range(10)]), (y > 14).astype(int)
    trained = {"n_estimators": 20, "verbose": -1, "random_state": 0}
    assert recipe_for(2000) == "joint"
    assert recipe_for(2001) == "blend"
    penalty = Frobenius(0.01)
    models = [
        JOPLEnRegressor(random_state=0).fit(X, y),
        JOPLEnClassifier(random_state=0).fit(X, classes),
        JOPLEnRegressor(recipe="blend", random_state=0).fit(X, y),  # as above 2,000 rows
        JOPLEnRegressor(recipe="joint", random_state=0).fit(X, y),
        JOPLEnClassifier(recipe="joint", random_state=0).fit(X, classes),
        refine(LGBMRegressor(**trained).fit(X, y), X, y),
        refine(LGBMClassifier(**trained).fit(X, classes), X, classes),
        JOPLEnRegressor(penalty=penalty, random_state=0).fit(X, y),
    ]
    uses = [
        lambda model, y: to_onnx(model),
        lambda model, y: to_sql(model, "t"),
        lambda model, y: prune(model, X, y, n_cells=60),
        lambda model, y: getattr(model, "predict_set", getattr(model, "predict_interval", None))(X),
        lambda model, y: model.update(X[:20], y[:20]),
    ]
    page = (DOCS / "user-guide.md").read_text(encoding="utf-8")
    lines = page.split("### Which model can do what\n\n")[1].split("\n\n")[0].splitlines()[2:]
    for line, model in zip(lines, models, strict=True):
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        targets = classes if hasattr(model, "classes_") else y
        found = []
        for use in uses:
            try:
                use(model, targets)
                found.append("yes")
            except ValueError:
                found.append("no")
        assert [cell.split()[0] for cell in cells] == found, name


@pytest.mark.slow
def test_the_page_on_targets_runs_as_written(capsys):
    names, _ = run("targets.md", capsys)
    days, per_day = names["days"][200:], names["per_day"]
    np.testing.assert_allclose(names["expected"], days * per_day)
    X, rare = names["X"][200:], names["rare"][200:]
    found, wanted = (names[name].predict(X)[rare == 1].sum() for name in ("plain", "balanced"))
    assert wanted > found  # "balanced" finds more of the rare class


@pytest.mark.slow
def test_parity_is_lost_as_the_page_shows(capsys):
    with true_fits():
        names, ((shown, _),) = run("when-it-loses.md", capsys)
    assert names["losses"]["joint"] > 0.68
    assert names["losses"]["the default"] < names["losses"]["LightGBM"] < 0.65
    assert shown.startswith("the default: 0.15\njoint: 0.69\n")


@pytest.fixture(scope="module")
def scores():
    """Mean test error by task, set and model, and rows by set."""
    found = defaultdict(list)
    with (ROOT / "benchmarks/results/accuracy.csv").open() as file:
        for row in csv.DictReader(file):
            regression = row["task"] == "regression"
            score = max(float(row["nmse"]), 1e-6) if regression else float(row["log_loss"])
            found[row["task"], row["set"], row["model"]].append(score)
    n_rows = {}
    for name in ("fresh", "sets"):
        with (ROOT / f"benchmarks/accuracy/{name}.csv").open() as file:
            n_rows.update({row["set"]: int(row["rows"]) for row in csv.DictReader(file)})
    return {key: float(np.mean(values)) for key, values in found.items()}, n_rows


def table(heading):
    """The rows of the table under a heading of the page on losses."""
    section = (DOCS / "when-it-loses.md").read_text().split(f"\n## {heading}\n")[1]
    lines = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def compare(scores, task, peer):
    """Ratio of the errors of jointleaf and a peer, and rows, by set."""
    mean, n_rows = scores
    sets = {name for kind, name, model in mean if kind == task and model == peer}
    return {
        name: (mean[task, name, "jointleaf"] / mean[task, name, peer], n_rows[name])
        for name in sets
        if (task, name, "jointleaf") in mean
    }


def test_counts_of_lost_sets_are_those_of_the_file(scores):
    bounds = {"up to 100": (0, 100), "101 to 300": (100, 300), "301 to 2,000": (300, 2000)}
    counted = []
    for task, kind in (("regression", "regression"), ("two classes", "binary")):
        pairs = compare(scores, kind, "catboost").values()
        for rows, (least, most) in (bounds | {"more": (2000, np.inf)}).items():
            ratios = np.array([ratio for ratio, n in pairs if least < n <= most])
            numbers = (len(ratios), (ratios > 1).sum(), (ratios > 1.05).sum())
            counted.append([task, rows, *map(str, numbers)])
    assert table("How often") == counted


def test_errors_of_lost_sets_are_those_of_the_file(scores):
    mean, n_rows = scores
    for name, rows, *errors in table("Where, by name"):
        name, _, classes = name.partition(",")
        task = "binary" if classes else "regression"
        models = ("jointleaf", "catboost", "linear")
        assert rows == str(n_rows[name])
        assert errors == [f"{mean[task, name, model]:.4f}" for model in models], name


def test_sets_on_which_a_linear_model_is_better_are_counted(scores):
    counts = []
    for task in ("regression", "binary"):
        pairs = compare(scores, task, "linear").values()
        lost = [n for ratio, n in pairs if ratio > 1.05]
        counts.append((len(lost), len(pairs), np.median(lost)))
    (a, n, rows), (b, m, _) = counts
    text = (DOCS / "when-it-loses.md").read_text()
    assert f"on {a} of {n} sets of regression and on {b} of {m} of two classes" in text
    assert f"half of the {a} have {rows:.0f} rows or fewer" in text
