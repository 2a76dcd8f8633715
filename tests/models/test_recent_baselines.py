"""LightGCN++, EGCF, ChebyCF and SANSA against numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import random_matrix

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models import EASE, EGCF, SANSA, ChebyCF, LightGCNPP, Model
from itemfold.models.chebycf import plateau_coefficients
from itemfold.models.sansa import approximate_inverse, ldl, pruned
from itemfold.sampling.base import Batch

X = random_matrix(30, 20, 0.25)
DENSE = X.toarray().astype(np.float64)
ADJACENCY = np.block([[np.zeros((30, 30)), DENSE], [DENSE.T, np.zeros((20, 20))]])
DEGREE = ADJACENCY.sum(1)


def fitted(model: Model) -> Model:
    model.setup(X, inductive=False, generator=torch.Generator().manual_seed(1))
    model.solve(X)
    return model


def item_weights(model: Model) -> np.ndarray:
    eye = sp.csr_array(np.eye(20, dtype=np.float32))
    return model.scores(eye, np.full(20, -1)).numpy()


def test_lightgcnpp_is_its_definition() -> None:
    model = LightGCNPP(dim=5, layers=2, alpha=0.6, beta=-0.1, gamma=0.2)
    model.setup(X, inductive=False, generator=torch.Generator().manual_seed(1))
    h = np.concatenate([model.user_embedding.detach(), model.item_embedding.detach()])
    layers = [h.astype(np.float64)]
    for _ in range(2):
        out = np.zeros_like(layers[0])
        for v, w in np.argwhere(ADJACENCY):
            unit = layers[-1][w] / np.linalg.norm(layers[-1][w])
            out[v] += DEGREE[v] ** -0.6 * DEGREE[w] ** 0.1 * unit
        layers.append(out)
    expected = 0.2 * layers[0] + 0.8 * (layers[1] + layers[2]) / 2
    found = torch.cat(model.encode(Graph.from_csr(X))).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["parallel", "alternating"])
def test_egcf_is_its_definition(mode: str) -> None:
    model = EGCF(dim=5, layers=2, mode=mode)
    model.setup(X, inductive=False, generator=torch.Generator().manual_seed(1))
    assert model.user_embedding is None
    users, items = np.maximum(DENSE.sum(1), 1), np.maximum(DENSE.sum(0), 1)
    r = DENSE / np.sqrt(np.outer(users, items))
    item = model.item_embedding.detach().numpy().astype(np.float64)
    user, sums = np.tanh(r @ item), [np.zeros((30, 5)), np.zeros((20, 5))]
    for _ in range(2):
        new_user = np.tanh(r @ item)
        item = np.tanh(r.T @ (user if mode == "parallel" else new_user))
        user = new_user
        sums = [sums[0] + user, sums[1] + item]
    for found, expected in zip(model.encode(Graph.from_csr(X)), sums, strict=True):
        np.testing.assert_allclose(found.detach(), expected, rtol=1e-4, atol=1e-6)
    model.cache_embeddings(Graph.from_csr(X))  # a new user with the same history is the same user
    np.testing.assert_allclose(model.fold_in(X), sums[0], rtol=1e-4, atol=1e-6)


def test_egcf_contrasts_users_items_and_pairs() -> None:
    model = EGCF(dim=5, layers=2, weight=0.3, temperature=0.2)
    model.setup(X, inductive=False, generator=torch.Generator().manual_seed(1))
    graph = Graph.from_csr(X)
    users, items = [3, 7, 3, 9], [4, 4, 2, 11]  # a user and an item that occur twice
    batch = Batch(torch.tensor(users), torch.tensor(items)[:, None], torch.ones(4, 1).bool())
    draws = torch.Generator()
    found = model.extra_loss(graph, batch, model.encode_step(graph, draws), draws)
    of_users, of_items = (part.detach().double().numpy() for part in model.encode(graph))

    def info_nce(one: np.ndarray, two: np.ndarray) -> float:
        one, two = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (one, two))
        e = np.exp(one @ two.T / 0.2)
        return float(np.mean([-np.log(e[n, n] / e[n].sum()) for n in range(len(e))]))

    distinct_users, distinct_items = of_users[[3, 7, 9]], of_items[[4, 2, 11]]
    expected = info_nce(distinct_users, distinct_users)
    expected += info_nce(distinct_items, distinct_items)
    expected += info_nce(of_users[users], of_items[items])
    assert float(found.detach()) == pytest.approx(0.3 * expected, rel=1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_chebycf_filters_the_spectrum(beta: float) -> None:
    model = fitted(ChebyCF(order=6, flatness=4.0, dim=3, alpha=0.3, beta=beta, iterations=200))
    users, items = np.maximum(DENSE.sum(1), 1), np.maximum(DENSE.sum(0), 1)
    r = DENSE / np.sqrt(np.outer(users, items))
    values, vectors = np.linalg.eigh(r.T @ r)
    coefficients = plateau_coefficients(6, 4.0)
    response = np.polynomial.chebyshev.chebval(1 - 2 * values, coefficients)
    response[-3:] += 0.3
    expected = (vectors * response) @ vectors.T
    expected = expected * items[None] ** beta / items[:, None] ** beta
    expected *= DENSE.any(0)[:, None]  # an item without interactions contributes nothing
    np.testing.assert_allclose(item_weights(model), expected, rtol=1e-3, atol=1e-4)


def test_the_coefficients_interpolate_the_plateau() -> None:
    zeros = np.sort(np.polynomial.chebyshev.chebpts1(9))
    found = np.polynomial.chebyshev.chebval(zeros, plateau_coefficients(8, 10.0))
    y = np.sort(np.polynomial.chebyshev.chebpts2(9))
    expected = np.where(y < 0, 0.5 + 0.5 * np.abs(y) ** 10, 0.5 - 0.5 * np.abs(y) ** 10)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_ldl_is_a_factorisation() -> None:
    matrix = DENSE.T @ DENSE + 5 * np.eye(20)
    lower, diagonal, order = ldl(sp.csc_array(matrix))
    dense = lower.toarray()
    np.testing.assert_allclose(dense, np.tril(dense))
    np.testing.assert_allclose(np.diag(dense), 1)
    np.testing.assert_allclose((dense * diagonal) @ dense.T, matrix[order][:, order], atol=1e-9)
    inverse = approximate_inverse(lower, 400, 60, 1)
    np.testing.assert_allclose(inverse.toarray(), np.linalg.inv(dense), atol=1e-6)


def test_sansa_with_all_entries_is_ease() -> None:
    found = item_weights(fitted(SANSA(l2=5.0, density=1.0, scans=60)))
    expected = item_weights(fitted(EASE(l2=5.0, form="dense")))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_sansa_keeps_the_largest_entries() -> None:
    model = fitted(SANSA(l2=5.0, density=0.15))
    assert len(model.left_values) <= 60
    matrix = sp.csc_array(np.array([[1.0, 0, 0], [0.2, 1, 0], [-3, 0.1, 1]]))
    np.testing.assert_array_equal(pruned(matrix, 4).toarray(), [[1.0, 0, 0], [0, 1, 0], [-3, 0, 1]])


def test_bad_settings_are_rejected() -> None:
    with pytest.raises(ItemfoldError, match="'density' must be a number above 0 and at most 1"):
        SANSA(density=0)
    with pytest.raises(ItemfoldError, match="'gamma' must be a number from 0 to 1, got 2"):
        LightGCNPP(gamma=2)
    with pytest.raises(ItemfoldError, match="'mode'"):
        EGCF(mode="both")  # type: ignore[arg-type]
