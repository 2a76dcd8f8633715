"""The map from features to scores: against scipy, and against a map of item vectors."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import itemfold as ir
from itemfold.data.items.feature_matrix import FeatureEncoder, FeatureMatrix
from itemfold.models.feature_map import FeatureMap, MapSettings, Ridge, similarities, smoother
from itemfold.models.feature_map_fit import ITEMS, SHARE, Fold, choose_map, fit_weights, make_folds
from itemfold.models.with_new_items import WithNewItems

RNG = np.random.default_rng(0)
ONLY_RIDGE = MapSettings(l2=3.0, scores=1.0, similar_scores=0.0)
SPLIT = ir.split_items(ir.load("synthetic:users=150,items=160,interactions=4000"), seed=0)


def matrix(rows: int, columns: int, density: float = 0.4) -> sp.csr_array:
    dense = RNG.random((rows, columns)) * (RNG.random((rows, columns)) < density)
    return sp.csr_array(dense.astype(np.float32))


def features(rows: int) -> FeatureMatrix:
    words = matrix(rows, 12, 0.3)
    length = np.sqrt(words.multiply(words).sum(axis=1))
    unit = sp.csr_array(sp.diags_array(1 / np.maximum(length, 1e-9)) @ words)
    return FeatureMatrix(matrix(rows, 5), unit)


def test_ridge_is_the_minimum_of_its_objective() -> None:
    from scipy.optimize import minimize

    rows, target, other = matrix(30, 4), RNG.normal(size=(1, 30)).astype(np.float32), matrix(3, 4)
    weights = RNG.random(30).astype(np.float32)
    weights /= weights.mean()
    ridge = Ridge(rows, weights, 2.5)
    found = ridge.predict(ridge.fit(target), other)
    a = rows.toarray()

    def objective(x: np.ndarray) -> float:  # with an intercept that is not penalised
        errors = (a @ x[1:] + x[0] - target[0]) ** 2
        return float((weights * errors).sum() + 2.5 * (x[1:] ** 2).sum())

    best = minimize(objective, np.zeros(5), tol=1e-12).x
    np.testing.assert_allclose(found[0], other.toarray() @ best[1:] + best[0], atol=1e-4)


def test_similar_items_are_weighted_as_a_loop_would() -> None:
    known, new = features(20).words, features(4).words
    weights = RNG.random(20).astype(np.float32)
    found = smoother(similarities(new, known), weights, 2.0, 0.5).toarray()
    for n in range(4):
        cosines = [float(new[[n]].toarray()[0] @ known[[j]].toarray()[0]) for j in range(20)]
        raw = [w * cosine**2 for w, cosine in zip(weights, cosines, strict=True)]
        np.testing.assert_allclose(found[n], np.array(raw) / (sum(raw) + 0.5), atol=1e-5)


def test_likeness_is_the_sum_of_two_cosines() -> None:
    known, new = features(20), features(4)
    feature_map = FeatureMap(known, new, MapSettings(), np.arange(1, 21))
    for item in range(4):
        found = feature_map.similarity(slice(item, item + 1))[0]
        for row in range(20):
            a, b = (m.regressors.toarray()[n] for m, n in ((known, row), (new, item)))
            words = known.words.toarray()[row] @ new.words.toarray()[item]
            lengths = max(np.linalg.norm(a) * np.linalg.norm(b), 1e-12)
            assert found[row] == pytest.approx(a @ b / lengths + words, abs=1e-5)


@pytest.fixture(scope="module")
def lightgcn() -> ir.Run:
    return ir.train(SPLIT, ir.models.LightGCN(dim=8), epochs=4, eval_every=2, device="cpu")


def wide(history: sp.csr_array) -> sp.csr_array:
    shape = (history.shape[0], SPLIT.test.target.shape[1])
    return sp.csr_array((history.data, history.indices, history.indptr), shape=shape)


def test_scores_of_new_items_are_products_with_mapped_vectors(lightgcn: ir.Run) -> None:
    """Regressing each user's scores is the same as mapping features to item vectors."""
    run, model = lightgcn, lightgcn.model
    parts = (run.features, run.item_ids, SPLIT.new_items, ONLY_RIDGE.record())
    extended = WithNewItems.of(model, run.train, *parts)
    users = np.arange(SPLIT.n_users)
    found = extended.scores(wide(run.train), users).numpy()
    seen = np.flatnonzero(np.bincount(run.train.indices, minlength=SPLIT.n_items))
    encode = FeatureEncoder(run.features.of(run.item_ids.take(seen)))
    old = encode(run.features.of(run.item_ids)).regressors[seen].toarray()
    new = encode(run.features.of(SPLIT.new_items)).regressors.toarray()
    vectors, centre = model.item_vectors.numpy()[seen], old.mean(0)
    a = old - centre
    mapped = np.linalg.solve(a.T @ a + 3.0 * np.eye(a.shape[1]), a.T @ vectors)
    mapped = vectors.mean(0) + (new - centre) @ mapped
    np.testing.assert_allclose(found[:, : SPLIT.n_items], model.scores(run.train, users).numpy())
    expected = model.user_vectors.numpy() @ mapped.T
    np.testing.assert_allclose(found[:, SPLIT.n_items :], expected, atol=1e-4)


def test_the_column_of_item_item_weights_is_predicted_likewise() -> None:
    run = ir.train(SPLIT, ir.models.EASE(l2=20.0))
    parts = (run.features, run.item_ids, SPLIT.new_items, ONLY_RIDGE.record())
    extended = WithNewItems.of(run.model, run.train, *parts)
    alone = WithNewItems(run.model, extended.map)
    columns = alone.map.combine(run.model.weights.numpy(), np.zeros(run.model.weights.shape, "f4"))
    history = run.train[[3, 8, 21]]
    found = extended.scores(wide(history), np.full(3, -1))[:, SPLIT.n_items :].numpy()
    np.testing.assert_allclose(found, history @ columns, atol=1e-4)


@pytest.mark.parametrize("only_new", [False, True])
def test_scores_and_explainer_equal_scores_and_explain(lightgcn: ir.Run, only_new: bool) -> None:
    run = lightgcn
    parts = (run.features, run.item_ids, SPLIT.new_items)
    extended = WithNewItems.of(run.model, run.train, *parts)
    extended.only_new = only_new
    history = wide(run.train[[7]])
    for row in (-1, 7):
        scores, explain = extended.scores_and_explainer(history, row)
        assert torch.equal(scores, extended.scores(history, np.array([row])))
        scores.fill_(-torch.inf)  # the caller may change them
        for items in ([2, SPLIT.n_items, SPLIT.n_items + 3], [2], [SPLIT.n_items], []):
            rows = torch.tensor(items, dtype=torch.long)
            assert torch.equal(explain(rows), extended.explain(history, row, rows))


@pytest.mark.parametrize("row", [-1, 7])
def test_shares_add_up_for_new_items_too(lightgcn: ir.Run, row: int) -> None:
    run = lightgcn
    extended = WithNewItems.of(run.model, run.train, run.features, run.item_ids, SPLIT.new_items)
    history = wide(run.train[[7]])
    items = torch.tensor([2, SPLIT.n_items, SPLIT.n_items + 3])
    shares = extended.explain(history, row, items)
    empty = extended.scores(history, np.array([row]))[0, items]
    fewer = run.train[[7]].copy()
    assert shares.shape == (3, fewer.nnz)
    again = run.model.explain(run.train[[7]], row, items[:1])
    torch.testing.assert_close(shares[:1], again)
    if row < 0:  # a history alone: the rest is the shift and nothing that the user did
        s = extended.map.settings
        mean, deviation = mean_and_spread(run, 7)
        constant = deviation * s.shift + mean * (1 - s.scale * total(extended, s))
        torch.testing.assert_close(
            empty[1:], shares[1:].sum(1) + torch.tensor(constant, dtype=torch.float32),
            atol=1e-4, rtol=1e-4,
        )  # fmt: skip


def mean_and_spread(run: ir.Run, user: int) -> tuple[float, float]:
    scores = run.model.scores(run.train[[user]], np.array([-1]))[0].numpy()
    return float(scores.mean()), float(scores.std())


def total(extended: WithNewItems, s: MapSettings) -> np.ndarray:
    """What constant scores of 1 become, for the new items of the test above."""
    one = np.ones((1, extended.n_known), np.float32)
    return extended.map.combine(one, np.zeros_like(one))[0, [0, 3]]


def test_weights_are_those_of_scipy() -> None:
    from scipy.optimize import minimize

    users, items = 12, 9
    parts = [RNG.normal(size=(users, items)).astype(np.float32) for _ in range(3)]
    target = RNG.random((users, items)) < 0.3
    target[:, 0] |= ~target.any(1)
    empty = features(1)
    one = np.arange(1)
    fold = Fold(parts[0], parts[0], target, empty, empty, one, one, one)
    value, weights = fit_weights([parts], [fold])
    spread = np.array([part.std() for part in parts])

    def loss(w: np.ndarray) -> float:
        out = 1e-3 * float(((w * spread) ** 2).sum())
        for u in range(users):
            z = sum(x * part[u] for x, part in zip(w, parts, strict=True))
            log = z - np.log(np.exp(z).sum())
            out -= log[target[u]].mean() / users
        return out

    best = minimize(loss, np.zeros(3), tol=1e-10)
    np.testing.assert_allclose(weights, best.x, atol=2e-3)
    assert value == pytest.approx(-best.fun, abs=1e-5)


def test_settings_are_chosen_on_known_items_and_scores_stay_on_their_scale(
    lightgcn: ir.Run,
) -> None:
    run = lightgcn
    extended = WithNewItems.of(run.model, run.train, run.features, run.item_ids, SPLIT.new_items)
    assert extended.map.settings.record() == run.metrics["new_items"]
    scores = extended.scores(wide(run.train), np.arange(SPLIT.n_users)).numpy()
    known, new = scores[:, : SPLIT.n_items], scores[:, SPLIT.n_items :]
    share = (new > np.quantile(known, 0.9, axis=1, keepdims=True)).mean()
    assert 0.02 < share < 0.35  # about a tenth: neither hidden nor on top


def test_the_choice_tells_how_far_it_is(lightgcn: ir.Run) -> None:
    told: list[tuple[str, int]] = []

    def watched(steps: Any, text: str) -> list[Any]:
        told.append((text, len(steps)))
        return list(steps)

    assert SPLIT.features is not None
    encode = FeatureEncoder(SPLIT.features.of(SPLIT.item_ids))
    with mock.patch.object(lightgcn.model, "watch", watched):
        choose_map(lightgcn.model, SPLIT.train, encode(SPLIT.features.of(SPLIT.item_ids)))
    assert {text for text, _ in told} == {"leaving items out", "choosing the map of features"}
    assert all(steps > 1 for _, steps in told)


def test_too_few_known_items_leave_the_defaults() -> None:
    train = sp.csr_array(np.ones((3, 2), np.float32))
    model = ir.models.Popularity()
    model.setup(train, inductive=False, generator=torch.Generator())
    assert choose_map(model, train, features(2)) == MapSettings()


def test_damaged_settings_are_refused() -> None:
    good = MapSettings().record()
    for bad in ({}, {**good, "l2": "x"}, {**good, "scale": float("nan")}, [1]):
        with pytest.raises(ir.ItemfoldError, match="the stored settings of new items must"):
            MapSettings.read(bad)
    assert MapSettings.read(good) == MapSettings()


def test_without_a_model_histories_are_mapped_alone() -> None:
    """Scores of zero say nothing, and the features of histories still do."""

    class Nothing(ir.models.Model):
        def scores(self, history: sp.csr_array, users: np.ndarray) -> torch.Tensor:
            return torch.zeros(history.shape)

    model, split = Nothing(), SPLIT.refit()
    model.setup(split.train, inductive=False, generator=torch.Generator())
    found = ir.evaluate(model, split, metrics=["ndcg@5"]).metrics["ndcg@5"]
    rng = np.random.default_rng(0)
    order = [rng.permutation(len(SPLIT.new_items))[:5] for _ in range(len(split.test))]
    gain, by_chance = 1 / np.log2(np.arange(5) + 2), []
    for row, listed in zip(split.test.target.toarray(), order, strict=True):
        ideal = gain[: int(row.sum())].sum()
        by_chance.append(row[SPLIT.n_items :][listed] @ gain / ideal)
    assert found > 1.2 * np.mean(by_chance)


@pytest.mark.parametrize("n_items", [30, 400, 3000])
def test_few_items_leave_at_a_time_and_none_twice(n_items: int) -> None:
    train = sp.csr_array((RNG.random((60, n_items)) < 0.2).astype(np.float32))
    model = ir.models.Popularity()
    model.setup(train, inductive=False, generator=torch.Generator())
    model.solve(train)
    folds = list(make_folds(model, train, features(n_items)))
    gone = np.concatenate([fold.out_items for fold in folds])
    assert len(set(gone.tolist())) == len(gone) <= n_items
    assert len(gone) >= 0.5 * n_items
    for fold in folds:
        assert len(fold.out_items) <= max(ITEMS[0], SHARE * n_items)
        assert not set(fold.out_items.tolist()) & set(fold.kept_items.tolist())
        assert not fold.history[:, fold.out_items].any()
        assert fold.target.any(axis=1).all()  # every user has something to predict
