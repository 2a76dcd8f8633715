"""RLAE: its formula in numpy, the special cases EASE and EDLAE, pruning, and trials."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import board_split, random_matrix

from itemfold.data.datasets import load
from itemfold.data.splitting.splitters import split_interactions
from itemfold.errors import ItemfoldError
from itemfold.models import EASE, RLAE, ridge_problem, rlae
from itemfold.models.hybrid_settings import make_part
from itemfold.models.item_item import gram_matrix
from itemfold.models.rlae import TRIED
from itemfold.training.fit import train as run_training

X = random_matrix(40, 25, 0.2)


def weights(model: EASE | RLAE, train: sp.csr_array = X) -> np.ndarray:
    """The dense weights of a fitted model: the scores of one-item histories."""
    model.setup(train, inductive=True, generator=torch.Generator())
    model.solve(train)
    eye = sp.csr_array(np.eye(train.shape[1], dtype=np.float32))
    return model.scores(eye, np.full(train.shape[1], -1)).numpy()


def formula(l2: float, a: float, b: float, p: float, xi: float) -> np.ndarray:
    """The weights as the papers write them, with numpy's inverse in double precision."""
    x = X.toarray().astype(np.float64)
    users, items = np.maximum(x.sum(1), 1), np.maximum(x.sum(0), 1)
    gram = x.T @ np.diag(users**-b) @ x
    ridge = l2 + p / (1 - p) * np.diag(gram)
    inverse = np.linalg.inv(gram + np.diag(ridge))
    out = -inverse * np.maximum(ridge, (1 - xi) / np.diag(inverse))
    np.fill_diagonal(out, 0)
    return np.diag(items**a) @ out @ np.diag(items**-a)


@given(
    l2=st.floats(1, 500),
    item_power=st.floats(0, 1),
    user_power=st.floats(0, 1),
    dropout=st.floats(0, 0.9),
    relax=st.floats(0, 0.9),
)
def test_the_weights_are_those_of_the_formula(
    l2: float, item_power: float, user_power: float, dropout: float, relax: float
) -> None:
    found = weights(RLAE(l2, item_power, user_power, dropout, relax))
    expected = formula(l2, item_power, user_power, dropout, relax)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-5)


def test_with_l2_alone_it_is_ease() -> None:
    np.testing.assert_allclose(weights(RLAE(l2=20.0)), weights(EASE(l2=20.0)), rtol=1e-4, atol=1e-6)


def test_with_l2_and_dropout_it_is_edlae() -> None:
    """EDLAE (NeurIPS 2020): B minimises |X − ZB|² over inputs Z with a share p dropped.

    In expectation that is a ridge with λ + p/(1−p)·diag(XᵀX) and a zero diagonal; here solved
    column by column as a constrained least-squares problem, without any inverse of EASE's kind.
    """
    p, l2 = 0.3, 5.0
    x = X.toarray().astype(np.float64)
    gram = x.T @ x
    system = gram + np.diag(l2 + p / (1 - p) * np.diag(gram))
    expected = np.zeros_like(gram)
    for j in range(len(gram)):
        others = np.arange(len(gram)) != j
        expected[others, j] = np.linalg.solve(system[np.ix_(others, others)], gram[others, j])
    found = weights(RLAE(l2=l2, dropout=p))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_the_largest_weights_of_each_item_are_kept() -> None:
    dense, kept = weights(RLAE(l2=5.0)), weights(RLAE(l2=5.0, keep=4))
    for j in range(dense.shape[1]):
        order = np.argsort(-np.abs(dense[:, j]), kind="stable")
        np.testing.assert_allclose(kept[order[:4], j], dense[order[:4], j], rtol=1e-5)
        assert not kept[order[4:], j].any()


def test_only_the_most_popular_items_have_weights_if_asked() -> None:
    degree = np.bincount(X.indices, minlength=25)
    popular = np.sort(np.argsort(-degree, kind="stable")[:10])
    found = weights(RLAE(l2=5.0, items=10))
    alone = weights(RLAE(l2=5.0), sp.csr_array(X[:, popular]))
    np.testing.assert_allclose(found[np.ix_(popular, popular)], alone, rtol=1e-4, atol=1e-6)
    others = np.setdiff1d(np.arange(25), popular)
    assert not found[others].any()
    assert not found[:, others].any()


def test_without_l2_the_best_of_twelve_settings_on_validation_is_taken() -> None:
    data = load("synthetic:users=900,items=300,interactions=20000")
    run = run_training(split_interactions(data, rounding="nearest"), RLAE())
    trials = run.metrics["trials"]
    best = max(trials, key=lambda trial: trial["ndcg@20"])
    names = ("l2", "item_power", "user_power", "dropout", "relax")
    assert [{name: trial[name] for name in names} for trial in trials] == TRIED
    assert best["l2"] != TRIED[0]["l2"]
    assert {name: run.config["model"][name] for name in names} == {n: best[n] for n in names}
    assert run.metrics["chosen"]["model"]["l2"] == best["l2"]


def test_typical_settings_stay_if_others_are_only_lucky() -> None:
    """With four validation users no difference is larger than its standard error here."""
    run = run_training(board_split("inductive"), RLAE())
    assert {name: run.config["model"][name] for name in TRIED[0]} == TRIED[0]


def test_trials_share_gram_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counting(scaled: sp.csr_array, device: torch.device) -> torch.Tensor:
        made.append(model.user_power)
        return gram_matrix(scaled, device)

    monkeypatch.setattr(ridge_problem, "gram_matrix", counting)
    model = RLAE()
    model.setup(X, inductive=True, generator=torch.Generator())
    assert len(list(model.trials(X))) == 12
    assert made == [0.3, 0.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"l2": 0.0}, "'l2' must be a positive number, got 0"),
        ({"dropout": 1.0}, "'dropout' must be at least 0 and below 1, got 1"),
        ({"keep": 0}, "'keep' must be a positive integer, got 0"),
        ({"items": -1}, "'items' must be a positive integer, got -1"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ItemfoldError, match=message):
        RLAE(**settings)  # type: ignore[arg-type]


def test_memory_is_checked_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("itemfold.environment.memory_of", lambda device: 2000)
    with pytest.raises(ItemfoldError, match="'rlae' needs an items × items matrix: 25 items"):
        RLAE(l2=1.0, form="dense").setup(X, inductive=True, generator=torch.Generator())
    RLAE(l2=1.0, items=20, form="dense").setup(X, inductive=True, generator=torch.Generator())


# --- how many weights are stored -----------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a catalogue of 25 items that large ones have: 4 weights an item."""
    monkeypatch.setattr(rlae, "STORED", 100)
    monkeypatch.setattr(rlae, "KEPT", 2)


def counts(model: RLAE) -> np.ndarray:
    return (weights(model) != 0).sum(0)


@pytest.mark.usefixtures("few")
def test_all_weights_are_stored_if_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = RLAE(l2=5.0)
    np.testing.assert_allclose(weights(model), formula(5.0, 0, 0, 0, 0), rtol=2e-3, atol=2e-5)
    assert model.has_all_weights
    assert model.fit_notes == ()
    monkeypatch.setattr(rlae, "memory_of", lambda device: 8 * 25 * 25 * rlae.SHARE - 1)
    assert counts(model).max() == 4
    assert not model.has_all_weights
    assert model.fit_notes[0].startswith("rlae stores the 4 largest of the 24 weights of each item")
    assert "model.keep=24 stores all" in model.fit_notes[0]
    assert counts(RLAE(l2=5.0, keep=24)).max() > 4


def test_ten_thousand_items_are_stored_in_full_with_eight_gigabytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rlae, "memory_of", lambda device: 8 * 2**30)
    model = RLAE()
    assert [model._stored(n) for n in (100, 2_900, 10_000)] == [100, 2_900, 10_000]
    assert model._stored(38_000) == 2**23 // 38_000
    model.compact = True
    assert model._stored(10_000) == 2**23 // 10_000


@pytest.mark.usefixtures("few")
def test_a_part_of_a_hybrid_is_compact_and_an_object_given_to_it_is_not() -> None:
    part, _ = make_part("linear", {"name": "rlae", "l2": 5.0}, "rlae")
    assert isinstance(part, RLAE)
    assert counts(part).max() == 4
    given = RLAE(l2=5.0)
    assert make_part("linear", given, "rlae")[0] is given
    assert counts(given).max() > 4


@pytest.mark.usefixtures("few")
def test_trials_are_scored_with_the_share_of_weights_that_will_be_stored() -> None:
    for model, most in ((RLAE(keep=5), 5), (RLAE(), 24)):
        model.setup(X, inductive=True, generator=torch.Generator())
        eye = sp.csr_array(np.eye(25, dtype=np.float32))
        for _ in model.trials(X):
            used = (model.scores(eye, np.full(25, -1)) != 0).sum(0)
            assert used.max() <= most
            assert used.max() > 4


@pytest.mark.usefixtures("few")
def test_weights_of_an_earlier_release_are_not_taken_for_all_of_them() -> None:
    """Runs of release 0.2 with many items have 2²³/n weights an item, and load as they are."""
    old, now = RLAE(l2=5.0, keep=4), RLAE(l2=5.0)
    weights(old)
    now.setup(X, inductive=True, generator=torch.Generator())
    assert now.has_all_weights  # not fitted yet: it will have all
    for name in ("weight_starts", "weight_items", "weight_values"):
        now.store(name, old.get_buffer(name))
    now.restore(X)
    assert not now.has_all_weights
