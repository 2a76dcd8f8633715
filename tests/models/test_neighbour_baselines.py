"""RP3β and UserKNN against numpy."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import random_matrix

from itemfold.errors import ItemfoldError
from itemfold.models import ItemKNN, Model, RP3Beta, UserKNN

X = random_matrix(30, 20, 0.25)


def fitted(model: Model, train: sp.csr_array = X) -> Model:
    model.setup(train, inductive=True, generator=torch.Generator())
    model.solve(train)
    return model


def item_weights(model: Model) -> np.ndarray:
    eye = sp.csr_array(np.eye(20, dtype=np.float32))
    return model.scores(eye, np.full(20, -1)).numpy()


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (1.0, 0.6), (0.5, 0.3), (2.0, 1.0)])
def test_rp3beta_is_the_walk_of_three_steps(alpha: float, beta: float) -> None:
    x = X.toarray().astype(np.float64)
    users, items = np.maximum(x.sum(1), 1e-300), np.maximum(x.sum(0), 1e-300)
    expected = np.zeros((20, 20))
    for i, j in np.ndindex(20, 20):
        walks = [(x[u, i] / items[i]) ** alpha * (x[u, j] / users[u]) ** alpha for u in range(30)]
        if i != j and x[:, j].any():
            expected[i, j] = sum(walks) / items[j] ** beta
    plain = functools.partial(RP3Beta, alpha=alpha, beta=beta, normalise=False)
    found = item_weights(fitted(plain(neighbours=20)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
    few = item_weights(fitted(plain(neighbours=3)))
    assert ((few != 0).sum(1) <= 3).all()  # of each item where walks begin
    np.testing.assert_allclose(few.max(1), expected.max(1), rtol=1e-4)
    shares = item_weights(fitted(RP3Beta(neighbours=3, alpha=alpha, beta=beta)))
    total = np.maximum(few.sum(1, keepdims=True), 1e-30)
    np.testing.assert_allclose(shares, few / total, rtol=1e-4, atol=1e-7)


def test_without_a_penalty_popular_items_are_more_probable() -> None:
    popularity = X.toarray().sum(0)
    means = [
        popularity
        @ item_weights(fitted(RP3Beta(beta=beta))).sum(0)
        / item_weights(fitted(RP3Beta(beta=beta))).sum()
        for beta in (0.0, 1.0)
    ]
    assert means[0] > means[1]


@pytest.mark.parametrize("k", [3, 100])
def test_userknn_sums_the_nearest_histories(k: int) -> None:
    x = X.toarray().astype(np.float64)
    model = fitted(UserKNN(neighbours=k, shrink=2.0))
    new = sp.csr_array((np.random.default_rng(5).random((4, 20)) < 0.3).astype(np.float32))
    found = model.scores(new, np.full(4, -1)).numpy()
    for row, h in enumerate(new.toarray().astype(np.float64)):
        lengths = np.linalg.norm(h) * np.linalg.norm(x, axis=1)
        similarity = x @ h / (lengths + 2.0)
        least = np.sort(similarity)[-k] if k < len(x) else 0.0
        nearest = np.where(similarity >= least - 1e-7, similarity, 0.0)
        np.testing.assert_allclose(found[row], nearest @ x, rtol=1e-4, atol=1e-5)


def test_a_training_user_is_not_its_own_neighbour() -> None:
    model = fitted(UserKNN(neighbours=30, shrink=0.0))
    known = model.scores(X, np.arange(30)).numpy()
    alone = fitted(UserKNN(neighbours=30, shrink=0.0), sp.csr_array(X[1:]))
    first = alone.scores(sp.csr_array(X[:1]), np.array([-1])).numpy()
    np.testing.assert_allclose(known[:1], first, rtol=1e-4, atol=1e-6)


def test_both_differ_from_itemknn_and_reject_bad_settings() -> None:
    ranked = [
        np.argsort(-fitted(m).scores(X, np.arange(30)).numpy()) for m in (ItemKNN(), UserKNN())
    ]
    assert (ranked[0] != ranked[1]).any()
    with pytest.raises(ItemfoldError, match="'alpha' must be a positive number, got 0"):
        RP3Beta(alpha=0)
    with pytest.raises(ItemfoldError, match="'neighbours' must be a positive integer, got 0"):
        UserKNN(neighbours=0)
