"""Corrections of linear models: the inverse of numpy, a refit, the way of least work."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from itemrec.errors import ItemrecError
from itemrec.models import EASE, RLAE
from itemrec.models import linear_update as module
from itemrec.models.linear_update import LinearUpdate, Problem, recover_inverse, update_linear
from itemrec.ops.woodbury import correct_inverse

OLD, NEW = (30, 20), (36, 23)  # users and items before and after


def grown(seed: int, changed: int = 4) -> tuple[sp.csr_array, sp.csr_array]:
    """Interactions before, in the shape of those after, and after: more of some, new ones."""
    rng = np.random.default_rng(seed)
    before = np.zeros(NEW, np.float32)
    before[: OLD[0], : OLD[1]] = rng.random(OLD) < 0.2
    after = before.copy()
    rows = [*rng.choice(OLD[0], changed, replace=False), *range(*sorted((OLD[0], NEW[0])))]
    after[rows] = np.maximum(after[rows], rng.random((len(rows), NEW[1])) < 0.2)
    return sp.csr_array(before), sp.csr_array(after)


def fitted(model: Any, train: sp.csr_array) -> Any:
    model.setup(train, inductive=True, generator=torch.Generator())
    model.fit(train)
    return model


def dense(model: EASE | RLAE) -> np.ndarray:
    eye = sp.csr_array(np.eye(model.n_items, dtype=np.float32))
    return model.scores(eye, np.full(model.n_items, -1)).numpy()


def updated(
    make: Any, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, LinearUpdate, sp.csr_array]:
    """A model that was updated in this way, whatever the work."""
    before, after = grown(seed)
    old = fitted(make(), sp.csr_array(before[: OLD[0], : OLD[1]]))
    model = make()
    model.setup(after, inductive=True, generator=torch.Generator())
    price = {"refit": 9e9, "expand": 9e9, "correct": 9e9, way: 0.0}
    prices = iter([price["expand"], price["correct"]])
    monkeypatch.setattr(module, "correction_flops", lambda *sizes: next(prices))
    monkeypatch.setattr(module, "inverse_flops", lambda n: price["refit"])
    return model, update_linear(model, old, before, after), after


@given(seed=st.integers(0, 999), ridge=st.floats(1.0, 300.0))
def test_the_corrected_inverse_is_that_of_numpy(seed: int, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.random((12, 9)) < 0.4
    first = x.T.astype(float) @ x + ridge * np.eye(9)
    rows, signs = x[:3].astype(np.float32), np.array([-1.0, -0.5, 2.0])
    expected = np.linalg.inv(first + rows.T.astype(float) @ np.diag(signs) @ rows)
    start = torch.from_numpy(np.linalg.inv(first).astype(np.float32))
    found = correct_inverse(start, sp.csr_array(rows), signs)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-6)


def test_a_correction_without_rows_changes_nothing_and_a_zero_is_refused() -> None:
    start = torch.eye(3)
    assert correct_inverse(start, sp.csr_array((0, 3)), np.zeros(0)).equal(torch.eye(3))
    with pytest.raises(ItemrecError, match="must not be 0"):
        correct_inverse(start, sp.csr_array(np.eye(3)[:1]), np.zeros(1))


@settings(max_examples=30)
@given(
    l2=st.floats(2, 300),
    item_power=st.floats(0, 1),
    user_power=st.floats(0, 1),
    dropout=st.floats(0, 0.8),
    relax=st.floats(0, 0.8),
)
def test_the_inverse_is_recovered_from_the_weights(
    l2: float, item_power: float, user_power: float, dropout: float, relax: float
) -> None:
    _, train = grown(1)
    model = fitted(RLAE(l2, item_power, user_power, dropout, relax), train)
    problem = Problem.of(model, train)
    s = problem.scaled.toarray().astype(np.float64)
    expected = np.linalg.inv(s.T @ s + np.diag(problem.ridge))
    found = recover_inverse(model.dense_weights(train), problem, relax)
    np.testing.assert_allclose(found.numpy(), expected, rtol=5e-3, atol=2e-3 / l2)


@pytest.mark.parametrize("way", ["refit", "expand", "correct"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "make",
    [
        lambda: EASE(20.0),
        lambda: RLAE(20.0),
        lambda: RLAE(10.0, item_power=0.2, user_power=0.3, dropout=0.5, relax=0.1),
        lambda: RLAE(5.0, dropout=0.3),
        lambda: RLAE(15.0, user_power=0.5, relax=0.5),
    ],
)
def test_every_way_equals_a_refit(
    make: Any, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, how, after = updated(make, seed, way, monkeypatch)
    assert how.how == way
    expected = dense(fitted(make(), after))
    np.testing.assert_allclose(dense(model), expected, rtol=2e-3, atol=2e-5)


def test_the_least_work_is_done_and_told() -> None:
    rng = np.random.default_rng(0)

    def drawn(users: int, items: int) -> sp.csr_array:
        return sp.csr_array((rng.random((users, items)) < 0.05).astype(np.float32))

    many_users, few_users = drawn(300, 200), drawn(9, 400)
    more = many_users.tolil()
    more[0, :5] = 1
    for before, after, way in (
        (many_users, sp.csr_array(more), "correct"),
        (many_users, drawn(300, 200), "refit"),
        (few_users, drawn(9, 400), "expand"),
    ):
        old, model = fitted(EASE(50.0), before), EASE(50.0)
        model.setup(after, inductive=True, generator=torch.Generator())
        found = update_linear(model, old, before, after)
        assert found.how == way == min(found.flops, key=found.flops.__getitem__)
        assert str(found).startswith("refitted" if way == "refit" else f"rank-{found.rank}")
    assert "2" in str(LinearUpdate("correct", 2, {"refit": 100.0, "correct": 1.0}))


def test_pruned_weights_are_never_corrected() -> None:
    before, after = grown(0)
    old, model = fitted(RLAE(20.0, keep=5), sp.csr_array(before)), RLAE(20.0, keep=5)
    model.setup(after, inductive=True, generator=torch.Generator())
    assert "correct" not in update_linear(model, old, before, after).flops
    np.testing.assert_allclose(dense(model), dense(fitted(RLAE(20.0, keep=5), after)), atol=1e-5)


def test_a_model_of_few_items_covers_the_most_popular_ones_of_all_data() -> None:
    before, after = grown(2)
    old, model = fitted(RLAE(20.0, items=12), before), RLAE(20.0, items=12)
    model.setup(after, inductive=True, generator=torch.Generator())
    update_linear(model, old, before, after)
    np.testing.assert_allclose(dense(model), dense(fitted(RLAE(20.0, items=12), after)), atol=1e-5)
