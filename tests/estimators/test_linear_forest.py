"""Linear forests: the linear part, the cells grown on its residuals, and the two estimators."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

import jointleaf
from jointleaf._data.columns import Columns
from jointleaf.estimators._linear_forest import LinearForestClassifier, LinearForestRegressor
from jointleaf.partitions import LinearForestPartitioner, RandomForestPartitioner
from jointleaf.partitions._base import check_fit_rows
from jointleaf.partitions._union import fit_linear_part


@parametrize_with_checks([LinearForestRegressor(10), LinearForestClassifier(10)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def case(n=300, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.logspace(-2, 2, d)
    Z = X / np.logspace(-2, 2, d)
    y = 3 * Z[:, 0] - Z[:, 1] + 2 * (Z[:, 2] > 0.5) + 0.3 * rng.normal(size=n)
    return X, y, rng.uniform(0.2, 3, n)


def small(**kwargs):
    return LinearForestPartitioner(n_partitions=8, n_cells=5, random_state=0, **kwargs)


# ------------------------------------------------------------------ the linear part


@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_has_the_smallest_leave_one_out_error(weighted):
    X, y, s = case(40)
    rows = check_fit_rows(X, y, s if weighted else None, "regression")
    part, residuals = fit_linear_part(rows)
    s = s / s.mean() if weighted else np.ones(len(y))
    mean = np.average(X, axis=0, weights=s)
    Z = (X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=s))
    target = (y - np.average(y, weights=s)) / part.scale
    assert np.average(target**2, weights=s) == pytest.approx(1.0)

    def error(strength):
        left_out = []
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            ridge = Ridge(strength).fit(Z[rest], target[rest], s[rest])
            left_out.append(s[i] * (ridge.predict(Z[i : i + 1])[0] - target[i]) ** 2)
        return sum(left_out)

    strengths = len(y) * np.logspace(-6, 1, 15)
    models = [Ridge(a).fit(Z, target, s) for a in strengths]
    chosen = [k for k, m in enumerate(models) if np.allclose(m.coef_, part.coef, atol=1e-7)]
    best = int(np.argmin([error(a) for a in strengths]))
    assert best in chosen
    assert 0 < best < 14
    expected = target - models[best].predict(Z)
    np.testing.assert_allclose(residuals, expected, atol=1e-8)
    np.testing.assert_allclose(part.mean + part.scale * (part.predict(X) + residuals), y)


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_residuals_are_indicators_minus_probabilities(classes):
    X, y, s = case()
    labels = 2 * np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    rows = check_fit_rows(X, labels, s, "classification")
    part, residuals = fit_linear_part(rows)
    s = s / s.mean()
    mean = np.average(X, axis=0, weights=s)
    Z = (X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=s))
    model = LogisticRegression(max_iter=1000).fit(Z, labels, s)
    shares = model.predict_proba(Z)
    indicators = labels[:, None] == np.unique(labels)
    expected = indicators - shares
    if classes == 2:
        shares, expected = shares[:, 1], expected[:, 1]
    np.testing.assert_allclose(part.predict(X), shares, atol=1e-6)
    np.testing.assert_allclose(residuals, expected, atol=1e-6)


def test_categories_have_indicators_and_missing_values_count_as_the_mean():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400), rng.integers(0, 3, 400)])
    effect = np.array([0.0, 5.0, -1.0])
    y = X[:, 0] + effect[X[:, 1].astype(int)]  # linear in indicators, not in codes or scores
    X[:50, 0] = np.nan
    columns = Columns.read(X, [1])
    part, residuals = fit_linear_part(check_fit_rows(X, y, None, "regression", columns))
    assert np.abs(residuals[50:]).max() < 0.05
    known = X[50:, 0]
    filled = part.predict(np.array([[np.nan, 1.0], [known.mean(), 1.0]]))
    assert filled[0] == pytest.approx(filled[1])


def test_hardly_any_rows_or_columns():
    for n in (1, 2, 3):
        X, y, _ = case(n)
        part, residuals = fit_linear_part(check_fit_rows(X, y, None, "regression"))
        assert np.isfinite(residuals).all()
    constant = np.ones((20, 2))
    y = np.arange(20.0)
    part, residuals = fit_linear_part(check_fit_rows(constant, y, None, "regression"))
    np.testing.assert_allclose(part.mean + part.scale * part.predict(constant), 9.5)
    columns = Columns.read(constant, [0, 1])  # one category: no linear feature at all
    for target_type, target in (("regression", y), ("classification", y > 4)):
        rows = check_fit_rows(constant, target, None, target_type, columns)
        part, residuals = fit_linear_part(rows)
        assert abs(residuals.mean()) < 1e-4
    _, left = fit_linear_part(check_fit_rows(constant, np.zeros(20), None, "classification"))
    assert not left.any()
    part, residuals = fit_linear_part(check_fit_rows(*case()[:2], None, "regression"))
    large = check_fit_rows(case()[0], case()[1] * 1e150, None, "regression")
    np.testing.assert_allclose(fit_linear_part(large)[1], residuals, rtol=1e-9)


# ------------------------------------------------------------------ the partitioner


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_cells_are_those_of_a_forest_on_the_residuals(classes):
    X, y, s = case()
    target_type = "classification" if classes else "regression"
    if classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    rows = check_fit_rows(X, y, s, target_type)
    residuals = fit_linear_part(rows)[1]
    assert residuals.shape == ((300, 3) if classes == 3 else (300,))
    forest = RandomForestRegressor(8, max_leaf_nodes=5, random_state=0)
    forest.fit(X, residuals, s / s.mean())
    partitioner = small().fit(X, y, s, target_type=target_type)
    for code, leaf in zip(partitioner.apply(X).T, forest.apply(X).T, strict=True):
        pairs = np.unique(np.stack([code, leaf]), axis=1).shape[1]
        assert pairs == len(np.unique(code)) == len(np.unique(leaf))
    np.testing.assert_allclose(partitioner.split_gains_, forest.feature_importances_)
    np.testing.assert_array_equal(partitioner.n_cells_, np.full(8, 5))


def test_splits_go_where_the_linear_model_fails():
    X, y, _ = case(1000)
    ours, plain = small().fit(X, y), RandomForestPartitioner(8, 5, random_state=0).fit(X, y)
    assert ours.split_gains_.argmax() == 2  # the step
    assert plain.split_gains_.argmax() == 0  # the steepest slope
    assert (LinearForestPartitioner().n_partitions, LinearForestPartitioner().n_cells) == (100, 16)


def test_degenerate_data(diabetes):
    X, y, X_new = diabetes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (1, 2, 3, 5):
            assert small().fit(X[:n], y[:n]).apply(X_new).shape == (len(X_new), 8)
            labels = np.arange(n) % 2
            small().fit(X[:n], labels, target_type="classification").apply(X_new)
        for flat in (
            small().fit(np.ones_like(X), y),
            small().fit(X, np.ones_like(y)),
            small().fit(X, np.zeros(len(y)), target_type="classification"),
            small().fit(np.ones_like(X), y > 150, target_type="classification"),
        ):
            assert set(flat.n_cells_) == {1}
            assert not flat.split_gains_.any()
            assert not flat.apply(X).any()
    with pytest.raises(ValueError, match="pass y"):
        small().fit(X)
    with pytest.raises(ValueError, match="n_cells=1"):
        LinearForestPartitioner(n_cells=1).fit(X, y)


def test_weights_seeds_threads_options_and_pickles(diabetes):
    X, y, X_new = diabetes
    s = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    weighted = small().fit(X, y, s).apply(X_new)
    kept = s > 0
    np.testing.assert_array_equal(small().fit(X[kept], y[kept], s[kept]).apply(X_new), weighted)
    fitted = small().fit(X, y)
    codes = fitted.apply(X_new)
    assert (codes != weighted).any()
    np.testing.assert_array_equal(small(n_jobs=2).fit(X, y).apply(X_new), codes)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).apply(X_new), codes)
    np.testing.assert_array_equal(fitted.fresh().fit(X, y).apply(X_new), codes)
    assert (clone(fitted).set_params(random_state=1).fit(X, y).apply(X_new) != codes).any()
    stumps = small(options={"max_depth": 1, "n_estimators": 3}).fit(X, y)
    np.testing.assert_array_equal(stumps.n_cells_, [2, 2, 2])


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_cells_with_categories_and_missing_values(classes):
    """What categories add is taken out; those where x has a step besides come apart."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, 1500).astype(float)
    x = rng.normal(size=1500)
    special = np.isin(codes, [1, 4])
    y = 10 * special + codes / 9 + x + 8 * special * (x > 0)
    target_type = "classification" if classes else "regression"
    if classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    X = np.column_stack([x, codes])
    X[rng.random(X.shape) < 0.1] = np.nan
    columns = Columns.read(X, [1])
    partitioner = small().fit(X, y, target_type=target_type, columns=columns)
    found = partitioner.apply(X)
    np.testing.assert_array_equal(partitioner.n_cells_, found.max(axis=0) + 1)
    assert (partitioner.trees_.table >= 0).any()
    assert partitioner.apply([[np.nan, np.nan], [0.0, 6.0], [np.nan, -1.0]]).shape == (3, 8)
    if not classes:
        rows = np.column_stack([np.full(6, 1.5), np.arange(6)])
        cells = partitioner.apply(rows)
        apart = (cells[[1, 4]][:, None] != cells[[0, 2, 3, 5]]).all(axis=(0, 1))
        assert apart.mean() > 0.7


# ------------------------------------------------------------------ the estimators


def test_regressor_is_linear_plus_forest():
    X, y, s = case()
    model = LinearForestRegressor(7, max_leaf_nodes=9, random_state=3).fit(X, y, s)
    both = model.linear_.predict(X) + model.forest_.predict(X)
    np.testing.assert_allclose(model.predict(X), model.linear_.mean + model.linear_.scale * both)
    assert model.linear_.mean == pytest.approx(np.average(y, weights=s))
    assert len(model.forest_.estimators_) == 7
    assert max(t.get_n_leaves() for t in model.forest_.estimators_) == 9
    residual = (y - model.linear_.mean) / model.linear_.scale - model.linear_.predict(X)
    assert np.std(residual - model.forest_.predict(X)) < 0.8 * np.std(residual)
    far = model.predict(np.array([[10.0, 0, 0, 0], [20.0, 0, 0, 0]]))
    slope = model.linear_.scale * np.diff(
        model.linear_.predict(np.array([[10.0, 0, 0, 0], [20, 0, 0, 0]]))
    )
    assert np.diff(far) == pytest.approx(slope)  # extrapolates, linearly
    assert slope[0] > 1000


def test_regressor_beats_both_of_its_parts():
    X, y, _ = case(600)
    model = LinearForestRegressor(50, random_state=0).fit(X[:400], y[:400])
    forest = RandomForestRegressor(50, random_state=0).fit(X[:400], y[:400])
    linear = Ridge(1e-3).fit(X[:400], y[:400])
    best = max(forest.score(X[400:], y[400:]), linear.score(X[400:], y[400:]))
    assert model.score(X[400:], y[400:]) > best


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_clipped_and_sum_to_one(classes):
    X, y, s = case()
    labels = np.array(["a", "b", "c"])[
        np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    ]
    model = LinearForestClassifier(20, random_state=0).fit(X, labels, s)
    new = 3 * case(seed=1)[0]
    shares = model.predict_proba(new)
    sums = model.linear_.predict(new) + model.forest_.predict(new)
    if classes == 2:
        sums = np.stack([1 - sums, sums], axis=1)
    assert sums.min() < 0  # there was something to clip
    positive = np.maximum(sums, 0)
    np.testing.assert_allclose(shares, positive / positive.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(new), model.classes_[shares.argmax(axis=1)])
    assert model.score(X, labels) > 0.9
    assert list(model.classes_) == ["a", "b", "c"][:classes]


@pytest.mark.parametrize("cls", [LinearForestRegressor, LinearForestClassifier])
def test_weights_are_copies(cls):
    X, y, _ = case(120)
    y = y if cls is LinearForestRegressor else np.digitize(y, [-1.0, 1.0])
    s = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = cls(5, random_state=0).fit(X, y, s)
    copies = cls(5, random_state=0).fit(np.repeat(X, s, axis=0), np.repeat(y, s))
    predict = "predict" if cls is LinearForestRegressor else "predict_proba"
    np.testing.assert_allclose(getattr(weighted, predict)(X), getattr(copies, predict)(X))
    plain = cls(5, random_state=0).fit(X, y)
    assert np.abs(getattr(plain, predict)(X) - getattr(weighted, predict)(X)).max() > 1e-3


@pytest.mark.parametrize("cls", [LinearForestRegressor, LinearForestClassifier])
def test_frames_with_text_and_missing_values(cls):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    names = np.array(["oak", "ash", "elm", "yew"])
    number = rng.integers(0, 4, 500)
    frame = pd.DataFrame({"x": rng.normal(size=500), "tree": names[number]})
    y = (
        frame["x"]
        + np.array([0.0, 9.0, 1.0, -5.0])[number]
        + 4 * ((frame["x"] > 0) & (number == 2))
    )
    frame.loc[::9, "x"] = np.nan
    frame.loc[::11, "tree"] = None
    if cls is LinearForestClassifier:
        y = np.digitize(y, [-1.0, 3.0])
    model = cls(20, random_state=0).fit(frame[:400], y[:400])
    assert model.score(frame[400:], y[400:]) > 0.8
    assert list(model.feature_names_in_) == ["x", "tree"]
    linear, forest = model.linear_, model.forest_
    matrix = model.columns_.encode(frame)
    both = linear.predict(matrix) + forest.predict(model.encoding_.numbers(matrix))
    if cls is LinearForestRegressor:
        np.testing.assert_allclose(model.predict(frame), linear.mean + linear.scale * both)
    else:
        shares = np.maximum(both, 0) / np.maximum(both, 0).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(model.predict_proba(frame), shares)
    new = frame[400:].copy()
    new["tree"] = "palm"
    assert len(model.predict(new)) == 100
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    codes = frame.assign(tree=pd.Series(number).where(frame["tree"].notna()))
    declared = cls(20, random_state=0, categorical_features=["tree"]).fit(codes[:400], y[:400])
    assert declared.score(codes[400:], y[400:]) > 0.8
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["tree", "x"]])


def test_options_and_rejections():
    X, y, _ = case()
    model = LinearForestRegressor(5, options={"max_depth": 1, "n_estimators": 2}, random_state=0)
    assert [t.get_n_leaves() for t in model.fit(X, y).forest_.estimators_] == [2, 2]
    two = LinearForestRegressor(5, n_jobs=2, random_state=0).fit(X, y).predict(X)
    np.testing.assert_allclose(LinearForestRegressor(5, random_state=0).fit(X, y).predict(X), two)
    with pytest.raises(ValueError, match="n_estimators=0"):
        LinearForestRegressor(0).fit(X, y)
    with pytest.raises(ValueError, match="one class only"):
        LinearForestClassifier().fit(X, y > 0, (y > 0).astype(float))
    empty = X.copy()
    empty[:, 1] = np.nan
    with pytest.warns(UserWarning, match="no values at all"):
        LinearForestRegressor(5).fit(empty, y)


def test_the_same_bits_for_every_number_of_threads():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2000, 3)), rng.standard_normal(2000)
    one, two = (
        LinearForestRegressor(100, max_leaf_nodes=50, n_jobs=n, random_state=0).fit(X, y)
        for n in (1, 2)
    )
    expected = one.predict(X)
    for _ in range(10):  # threads end in another order every time
        np.testing.assert_array_equal(two.predict(X), expected)


def test_very_large_values_before_and_after_saving(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    model = LinearForestRegressor(5, random_state=0).fit(X, X[:, 0])
    jointleaf.save(model, tmp_path / "model.jleaf")
    rows = np.array([[1e300, 0.0], [-1e300, 0.0]])
    expected = jointleaf.load(tmp_path / "model.jleaf").predict(rows)
    np.testing.assert_array_equal(model.predict(rows), expected)
