"""Lines that suggest another option, and how long a fit takes and what makes it shorter."""

import json
from datetime import date, timedelta

import numpy as np
import pytest

from blend_fits import small_fits
from cli_data import as_csv, fails, run
from jointleaf import JOPLEnRegressor
from jointleaf._core.progress import Progress
from jointleaf._fit.budget import expected_seconds
from jointleaf.cli import _fitting
from jointleaf.cli._output import CliError
from jointleaf.cli._scores import coverage_summary, coverage_text, error_table

RNG = np.random.default_rng(0)
N = 60
DAYS = [(date(2020, 1, 1) + timedelta(3 * k)).isoformat() for k in range(N)]
A, NOISE = RNG.normal(size=N), RNG.normal(0, 0.1, N)


def write(path, rows, header):
    path.write_text(as_csv([list(row) for row in rows], header))
    return path


def fitted(capsys, path, *options):
    model = path.with_suffix(".jleaf")
    code, out, err = run(capsys, "fit", path, "-t", "y", "-o", model, *options)
    assert code == 0, err
    return out, err


def hints(out):
    return [line.removeprefix("hint: ") for line in out.splitlines() if line.startswith("hint: ")]


@pytest.mark.parametrize(
    ("days", "options", "is_hinted"),
    [
        (DAYS, (), True),
        (DAYS[::-1], (), True),
        ([DAYS[0], *DAYS[:-1]], (), True),
        ([DAYS[1], DAYS[0], *DAYS[2:]], (), False),
        (["", *DAYS[1:]], (), False),
        (DAYS, ("--time", "day"), False),
        (DAYS, ("--drop", "day"), False),
    ],
)
def test_rows_in_order_of_time_are_told(capsys, tmp_path, days, options, is_hinted):
    path = write(tmp_path / "d.csv", zip(days, A, A + NOISE, strict=True), ("day", "a", "y"))
    out, _ = fitted(capsys, path, "--no-compare", *options)
    expected = ["rows are in the order of 'day': where new rows come later, use --time day"]
    assert hints(out) == (expected if is_hinted else [])
    page = path.with_suffix(".html").read_text()
    before, _, _ = page.partition('<section id="errors">')  # hints come first
    assert (expected[0].replace("'", "&#x27;") in before) == is_hinted
    assert ('<section id="hints">' in before) == is_hinted


def test_coverage_far_below_what_was_asked_is_told(capsys, tmp_path):
    """A series that leaves the range it had before."""
    time = np.arange(300)
    y = np.where(time < 240, RNG.normal(size=300), 0.2 * time)
    path = write(tmp_path / "d.csv", zip(time / 7, y, strict=True), ("t", "y"))
    text = "far too few: held-out rows are unlike those before"
    assert text in fitted(capsys, path, "--time", "t", "--no-compare")[0]
    path = write(tmp_path / "d.csv", zip(time[:240] / 7, y[:240], strict=True), ("t", "y"))
    assert text not in fitted(capsys, path, "--no-compare")[0]


@pytest.mark.parametrize(
    ("errors", "line"),
    [
        ({"jointleaf": 2.0, "linear model": 1.5, "constant": 1.4}, "no model is better than"),
        ({"jointleaf": 2.1, "constant": 2.0}, "no model is better than"),
        ({"jointleaf": 2.0, "linear model": 1.5, "constant": 1.8}, "jointleaf is no better than"),
        ({"jointleaf": 1.7, "linear model": 1.5, "constant": 1.8}, "a linear model is as good"),
        ({"jointleaf": 1.7, "linear model": 1.7, "constant": 1.8}, "a linear model is as good"),
        ({"jointleaf": 1.7, "linear model": 1.75, "constant": 1.8}, None),
        ({"jointleaf": 1.7, "constant": 1.8}, None),
        ({"jointleaf": 1.7}, None),
    ],
)
def test_models_that_are_no_better_than_simple_ones_are_told(errors, line):
    table = [{"model": name, "rmse": v, "seconds": 0.1} for name, v in errors.items()]
    validation = {"method": "by hand", "measure": "rmse", "table": table}
    found = hints(error_table(validation))
    assert len(found) == (line is not None)
    assert line is None or found[0].startswith(line)


def test_a_constant_on_held_out_rows_is_told():
    table = [{"model": name, "rmse": 2.0, "seconds": 0.1} for name in ("jointleaf", "constant")]
    validation = {"method": "by hand", "measure": "rmse", "table": table}
    line = "jointleaf was a constant on held-out rows: the model of all rows may be another"
    assert hints(error_table(validation)) == [line]


@pytest.mark.parametrize("is_same", [True, False])
def test_columns_that_name_the_groups_as_well_are_told(capsys, tmp_path, is_same):
    groups = [f"g{k % 12}" for k in range(N)]
    codes = [f"c{k % 12 if is_same else k % 6}" for k in range(N)]
    path = write(tmp_path / "d.csv", zip(groups, codes, A, A + NOISE, strict=True), "gcay")
    out, _ = fitted(capsys, path, "--no-compare", "--group", "g")
    assert hints(out) == ["'c' names the groups of 'g' as well: --drop what does"] * is_same


def test_the_report_of_noise_says_so(capsys, tmp_path):
    rows = zip(A, np.arange(N) // 2 % 2, strict=True)
    path = write(tmp_path / "d.csv", [(round(a), y) for a, y in rows], ("a", "y"))
    out, _ = fitted(capsys, path)
    (hint,) = hints(out)
    assert "than a constant on held-out rows" in hint
    page = path.with_suffix(".html").read_text()
    assert hint in page.partition('<section id="errors">')[0]


@pytest.mark.parametrize(
    ("y", "is_hinted"),
    [
        (np.repeat([0, 1, 2], [35, 18, 7]), True),  # detected as classes
        (np.r_[np.zeros(8), RNG.geometric(0.1, N - 8)], True),
        (np.r_[0, RNG.integers(18, 90, N - 1)], False),  # one zero: no counts
        (np.arange(N) % 4, False),  # classes that are as frequent
        (np.r_[np.zeros(8), RNG.geometric(0.1, N - 8)] + 0.5, False),
    ],
)
def test_counts_are_told_of_their_loss(capsys, tmp_path, y, is_hinted):
    path = write(tmp_path / "d.csv", zip(A, y.astype(str), strict=True), ("a", "y"))
    out, _ = fitted(capsys, path, "--no-compare", "--no-report")
    expected = ["'y' holds whole numbers from 0: for counts use --loss poisson"]
    assert hints(out) == (expected if is_hinted else [])


def test_columns_that_give_the_target_away_are_told(capsys, tmp_path):
    rng = np.random.default_rng(0)  # whatever other tests have drawn
    y = rng.poisson(0.5, N)
    amount, other = y * rng.uniform(10, 90, N), y * 1.0
    other[:2] = 1 - other[:2]
    rows = list(zip(A, amount.round(2), other, y, strict=True))
    path = write(tmp_path / "d.csv", rows, ("a", "amount", "other", "y"))
    out, _ = fitted(capsys, path, "--loss", "poisson", "--no-compare", "--no-report")
    assert hints(out) == [
        "whether 'amount' is 0 or missing tells whether 'y' is 0: --drop what is known only "
        "afterwards"
    ]
    kind = np.where(y > 0, np.where(A > 0, "b", "c"), "a")
    rows = [(a, x if k == "b" else "", k) for a, x, k in zip(A, amount, kind, strict=True)]
    path = write(tmp_path / "d.csv", rows, ("a", "amount", "y"))
    out, _ = fitted(capsys, path, "--no-compare", "--no-report")
    assert hints(out) == [
        "whether 'amount' is 0 or missing tells whether 'y' is b: --drop what is known only "
        "afterwards"
    ]


def test_numbers_that_hardly_repeat_are_no_classes(capsys, tmp_path):
    path = write(tmp_path / "d.csv", zip(A, NOISE, strict=True), ("a", "y"))
    text = fails(capsys, "fit", path, "-t", "y", "--task", "classification")
    assert text.endswith(
        "the target 'y' has 60 different numbers in 60 rows, too many to be classes: use --task "
        "regression"
    )


def test_columns_are_dropped_with_commas_between_them(capsys, tmp_path):
    rows = list(zip(A, A**2, NOISE, A + NOISE, strict=True))
    path = write(tmp_path / "d.csv", rows, ("a", "b", "c,d", "y"))
    options = "--no-compare", "--no-report", "--json"
    found = json.loads(fitted(capsys, path, "--drop", "a, b", *options)[0])
    assert [c["name"] for c in found["columns"] if c["used"]] == ["c,d"]
    found = json.loads(fitted(capsys, path, "--drop", "c,d", *options)[0])
    assert [c["name"] for c in found["columns"] if c["used"]] == ["a", "b"]


LABELS = RNG.permutation(2000)[:120] * 7 + 200_114_871


@pytest.mark.parametrize(
    ("numbers", "options", "is_hinted"),
    [
        (LABELS, (), True),
        (np.r_[LABELS[:118], LABELS[:2]], (), True),
        (np.r_[LABELS[:115], LABELS[:5]], (), False),  # some repeat
        (LABELS, ("--keep", "policy"), False),
        (LABELS, ("--drop", "policy"), False),
        (LABELS[:99], (), False),
        (LABELS + 0.5, (), False),
        (LABELS - 200_100_000, (), False),  # an amount
        (np.r_[1_000_000, LABELS[1:]], (), False),  # of several lengths
        (LABELS * 10, (), False),  # Unix times
        ([int((date(2020, 1, 1) + timedelta(3 * k)).strftime("%Y%m%d")) for k in range(120)],
         (), False),
    ],
)  # fmt: skip
def test_numbers_that_name_rows_are_told(capsys, tmp_path, numbers, options, is_hinted):
    x = RNG.normal(size=len(numbers))
    rows = zip(numbers, x, x + RNG.normal(size=len(x)), strict=True)
    path = write(tmp_path / "d.csv", rows, ("policy", "x", "y"))
    out, _ = fitted(capsys, path, *options, "--no-compare", "--no-report")
    line = (
        "'policy' may name the rows (whole numbers of one length, nearly all different): --drop "
        "identifiers"
    )
    assert hints(out) == [line] * is_hinted


def test_what_is_said_of_sets_of_classes():
    truth, sets = np.arange(40) % 2, np.ones((40, 2), bool)
    sets[:10, 0] = False  # five rows of the first class are outside
    found = coverage_text(coverage_summary(truth, sets, np.arange(40)))
    assert found == "sets of 90 % hold the true class of 87.5 % of the rows, mean size 1.750"


@pytest.mark.parametrize(("n_groups", "words"), [(3, "uncertain"), (1, "uncertain"), (40, "")])
def test_few_groups_do_not_tell_that_rows_are_unlike_others(n_groups, words):
    """Rows of one group may all be alike: three of them are no alarm."""
    truth, ends = np.zeros(400), np.tile([-1.0, 1.0], (400, 1))
    ends[:100] += 5.0  # coverage 75 %, which would be far too few of 400 rows on their own
    alarm = "far too few: held-out rows are unlike those before"
    assert alarm in coverage_text(coverage_summary(truth, ends, np.arange(3)))
    text = coverage_text(coverage_summary(truth, ends, np.arange(3), n_groups))
    assert alarm not in text
    groups = "1 group" if n_groups == 1 else f"{n_groups} groups"
    assert (f"; uncertain, as these rows are of {groups} only" in text) == bool(words)


def test_the_groups_of_held_out_rows_are_counted(capsys, tmp_path):
    groups = [f"g{k % 12}" for k in range(N)]
    path = write(tmp_path / "d.csv", zip(groups, A, A + NOISE, strict=True), "gay")
    out, _ = fitted(capsys, path, "--no-compare", "--group", "g", "--no-report")
    assert "held-out rows (17%) of 2 other groups:" in out
    assert "uncertain, as these rows are of 2 groups only" in out


@pytest.mark.parametrize(
    ("data", "stem"),
    [
        *((f"a/g.{end}", "g") for end in ("csv", "json", "jsonl", "ndjson", "parquet", "xlsx")),
        *(("g.json.gz", "g"), ("g.1", "g.1"), ("-", "model")),
    ],
)
def test_models_are_named_after_the_data(data, stem, capsys, tmp_path, monkeypatch):
    files = []

    def stop(outputs, *inputs):
        files.extend(map(str, outputs.values()))
        raise CliError("stopped")

    monkeypatch.setattr(_fitting.out, "check_outputs", stop)
    fails(capsys, "fit", data, "-t", "y")
    assert files == [f"{stem}.jleaf", f"{stem}.html"]


# -- time ------------------------------------------------------------------------------------------


def test_without_a_comparison_one_fifth_is_held_out(capsys, tmp_path):
    path = write(tmp_path / "d.csv", zip(A, A + NOISE, strict=True), ("a", "y"))
    found = json.loads(fitted(capsys, path, "--no-compare", "--json")[0])
    assert found["validation"]["method"] == "on 12 held-out rows (20%)"
    assert [row["model"] for row in found["validation"]["table"]] == ["jointleaf"]
    assert "the same for all models" not in path.with_suffix(".html").read_text()


def test_a_budget_is_passed_on(capsys, tmp_path, monkeypatch):
    budgets = []

    def fit(self, *args, **options):
        budgets.append(self.time_budget)
        return original(self, *args, **options)

    original = JOPLEnRegressor.fit
    monkeypatch.setattr(JOPLEnRegressor, "fit", fit)
    path = write(tmp_path / "d.csv", zip(A, A + NOISE, strict=True), ("a", "y"))
    fitted(capsys, path, "--time-budget", "0.001", "--no-compare", "--no-report")
    assert budgets == [0.001, 0.001]
    assert run(capsys, "fit", path, "-t", "y", "--time-budget", "0")[0] == 2


def test_long_fits_are_announced(capsys, tmp_path, monkeypatch):
    path = write(tmp_path / "d.csv", zip(A, A + NOISE, strict=True), ("a", "y"))
    assert "take about" not in fitted(capsys, path, "--no-report", "--no-compare")[1]
    monkeypatch.setattr(_fitting, "_LONG", 0.1)
    _, err = fitted(capsys, path, "--no-report")
    seconds = expected_seconds(60, 1) + 5 * expected_seconds(48, 1)
    line = next(line for line in err.splitlines() if "take about" in line)
    assert line == (
        f"fits of jointleaf take about {seconds:.0f} s; shorter with --no-compare or "
        "--time-budget SECONDS"
    )


def test_a_fit_moves_the_bar_that_holds_it():
    """By the time that its components are expected to take."""
    bar = Progress(110, "all")
    places = []
    bar.step_to = lambda done, note="", step_to=bar.step_to: places.append(done) or step_to(done)
    X = RNG.normal(size=(60, 3))
    with small_fits(), bar.holding("here", 100):
        JOPLEnRegressor(random_state=0).fit(X, X[:, 0])
    assert places[-1] == 100
    assert places == sorted(places)
    assert len(set(places)) > 2
