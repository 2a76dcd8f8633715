"""Small graphs and splits that several test files share."""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import split_interactions, split_users
from itemfold.graph.graph import Graph
from itemfold.sampling.base import Batch


@st.composite
def bipartite(draw: Any, least: int = 0) -> sp.csr_array:
    """Training interactions of a few users and items; some nodes may have none at all."""
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 8)))
    dense = draw(hnp.arrays(np.bool_, shape, elements=st.booleans(), fill=st.just(False)))
    for cell in range(min(least, dense.size)):
        dense.ravel()[cell] = True
    return sp.csr_array(dense.astype(np.float32))


def random_matrix(users: int, items: int, density: float, seed: int = 0) -> sp.csr_array:
    """Random interactions; the last user and the last item have none."""
    dense = np.random.default_rng(seed).random((users, items)) < density
    dense[-1] = dense[:, -1] = False
    return sp.csr_array(dense.astype(np.float32))


def dense_adjacency(train: sp.csr_array) -> np.ndarray:
    """[[0, X], [Xᵀ, 0]]."""
    x = train.toarray()
    users, items = x.shape
    zero = np.zeros
    return np.block([[zero((users, users)), x], [x.T, zero((items, items))]]).astype(np.float32)


def normalised(train: sp.csr_array) -> np.ndarray:
    """D^-½ A D^-½ of `dense_adjacency` in float64; nodes without edges have zeros."""
    dense = dense_adjacency(train).astype(np.float64)
    degree = dense.sum(1)
    root = np.divide(1, np.sqrt(degree), where=degree > 0, out=np.zeros_like(degree))
    return root[:, None] * dense * root


def pagerank(train: sp.csr_array, restart: float = 0.15) -> np.ndarray:
    """The item part of p = restart · e_u + (1 − restart) Pᵀ p for all users, by a dense solve."""
    n_users, n_items = train.shape
    adjacency = dense_adjacency(train).astype(np.float64)
    walk = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
    start = restart * np.eye(n_users + n_items)[:, :n_users]
    p = np.linalg.solve(np.eye(n_users + n_items) - (1 - restart) * walk.T, start)
    return p[n_users:].T


def checkerboard(users: int = 40, items: int = 40, seed: int = 0) -> Interactions:
    """Even users like even items, odd users odd ones; each user has 3 of 4 of their colour."""
    rng = np.random.default_rng(seed)
    liked = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    pairs = np.argwhere(liked & (rng.random((users, items)) < 0.75))
    return Interactions(
        users=pairs[:, 0].astype(np.int32),
        items=pairs[:, 1].astype(np.int32),
        user_ids=IdMap(np.array([f"u{u}" for u in range(users)])),
        item_ids=IdMap(np.arange(items, dtype=np.int64) + 100),
        titles=np.array([f"title {i}" for i in range(items)]),
        name="checkerboard",
    )


def board_split(protocol: str = "transductive", seed: int = 0, **settings: Any) -> Split:
    """The checkerboard split for one of the protocols; every user has held-out items."""
    strategy = split_users if protocol == "inductive" else split_interactions
    return strategy(checkerboard(seed=seed), seed=seed, **{"rounding": "nearest", **settings})


def seeded(seed: int = 0) -> torch.Generator:
    """A generator with this seed."""
    return torch.Generator().manual_seed(seed)


def ready(model: Any, matrix: sp.csr_array, inductive: bool = False) -> Graph:
    """Set a model up for a training matrix and return the graph."""
    model.setup(matrix, inductive=inductive, generator=seeded())
    return Graph.from_csr(matrix)


def batch_of(matrix: sp.csr_array, per_user: int = 2, padding: int = 0) -> Batch:
    """The first items of every user that has any, then padding rows."""
    lists = [row.nonzero()[0][:per_user] for row in matrix.toarray()]
    users = [u for u, items in enumerate(lists) if len(items)]
    positives = torch.zeros(len(users) + padding, per_user, dtype=torch.int64)
    mask = torch.zeros(len(users) + padding, per_user, dtype=torch.bool)
    for row, user in enumerate(users):
        positives[row, : len(lists[user])] = torch.from_numpy(lists[user])
        mask[row, : len(lists[user])] = True
    return Batch(torch.tensor(users + [0] * padding), positives, mask)
