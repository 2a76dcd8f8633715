"""Corrections of linear models: the inverse of numpy, a refit, the way of least work."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.errors import ItemfoldError
from itemfold.models import EASE, RLAE
from itemfold.models.linear_update import recover_inverse, update_linear
from itemfold.models.ridge_problem import RidgeProblem
from itemfold.ops.woodbury import correct_inverse

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
    model.solve(train)
    return model


def dense(model: EASE | RLAE) -> np.ndarray:
    eye = sp.csr_array(np.eye(model.n_items, dtype=np.float32))
    return model.scores(eye, np.full(model.n_items, -1)).numpy()


def updated(make: Any, before: sp.csr_array, after: sp.csr_array) -> tuple[Any, Any]:
    """A model that was updated, and how."""
    old = fitted(make(), sp.csr_array(before[: OLD[0], : OLD[1]]))
    model = make()
    model.setup(after, inductive=True, generator=torch.Generator())
    return model, update_linear(model, old, before, after)


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
    with pytest.raises(ItemfoldError, match="must not be 0"):
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
    problem = model.problem(train)
    s = problem.scaled.toarray().astype(np.float64)
    expected = np.linalg.inv(s.T @ s + np.diag(model.ridge_of(problem)))
    found = recover_inverse(model.dense_weights(train), model, problem)
    np.testing.assert_allclose(found.numpy(), expected, rtol=5e-3, atol=2e-3 / l2)


@pytest.mark.parametrize("corrects", [False, True])
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
def test_an_update_equals_a_refit(
    make: Any, seed: int, corrects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RidgeProblem, "flops", 9e9 if corrects else 0.0)
    before, after = grown(seed)
    model, how = updated(make, before, after)
    assert (how.rank > 0) == corrects
    expected = dense(fitted(make(), after))
    np.testing.assert_allclose(dense(model), expected, rtol=2e-3, atol=2e-5)


@given(seed=st.integers(0, 99), ridge=st.floats(1.0, 300.0), power=st.floats(0, 1))
def test_both_ways_to_an_inverse_are_that_of_numpy(seed: int, ridge: float, power: float) -> None:
    rng = np.random.default_rng(seed)
    found = {}
    for users, items in ((6, 40), (90, 30)):
        x = (rng.random((users, items)) < 0.2).astype(np.float32)
        problem = RidgeProblem(sp.csr_array(x), power, torch.device("cpu"))
        s = x * np.maximum(x.sum(1, keepdims=True), 1) ** (-power / 2)
        diagonal = ridge * (1 + rng.random(items))
        expected = np.linalg.inv(s.T.astype(float) @ s + np.diag(diagonal))
        for again in (True, False):  # the Gram matrix survives
            inverse = problem.inverse(diagonal, lambda steps, text: steps, again=again)
            np.testing.assert_allclose(inverse.numpy(), expected, rtol=2e-3, atol=1e-4 / ridge)
        found[problem.by_users] = True
    assert set(found) == {True, False}


def test_the_least_work_is_done_and_told() -> None:
    rng = np.random.default_rng(0)

    def drawn(users: int, items: int) -> sp.csr_array:
        return sp.csr_array((rng.random((users, items)) < 0.05).astype(np.float32))

    many_users = drawn(300, 200)
    more = many_users.tolil()
    more[0, :5] = 1
    for after, corrects, told in (
        (sp.csr_array(more), True, "corrected by rank 2, "),
        (drawn(300, 200), False, "refitted, because a correction is"),
    ):
        old, model = fitted(EASE(50.0), many_users), EASE(50.0)
        model.setup(after, inductive=True, generator=torch.Generator())
        found = update_linear(model, old, many_users, after)
        assert found.correction_flops is not None
        assert (found.correction_flops < found.fit_flops) == corrects == (found.rank > 0)
        assert str(found).startswith(told)


def test_pruned_weights_are_never_corrected() -> None:
    before, after = grown(0)
    old, model = fitted(RLAE(20.0, keep=5), sp.csr_array(before)), RLAE(20.0, keep=5)
    model.setup(after, inductive=True, generator=torch.Generator())
    found = update_linear(model, old, before, after)
    assert found.correction_flops is None
    assert str(found) == "refitted, because its stored weights are pruned"
    np.testing.assert_allclose(dense(model), dense(fitted(RLAE(20.0, keep=5), after)), atol=1e-5)


def test_a_model_of_few_items_covers_the_most_popular_ones_of_all_data() -> None:
    before, after = grown(2)
    old, model = fitted(RLAE(20.0, items=12), before), RLAE(20.0, items=12)
    model.setup(after, inductive=True, generator=torch.Generator())
    update_linear(model, old, before, after)
    np.testing.assert_allclose(dense(model), dense(fitted(RLAE(20.0, items=12), after)), atol=1e-5)
