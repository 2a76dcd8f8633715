"""EASE and RLAE on a published split by users, against the formulas in numpy.

On the most popular items only: an inverse of all 38,048 takes a quarter of an hour and more.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import itemfold as ir
from itemfold.data.splitting.user_parts import UserPart

ITEMS = 3000
METRICS = ("recall@20", "capped_recall@20", "capped_recall@50", "ndcg@100")


@pytest.fixture(scope="module")
def data() -> ir.Interactions:
    """yelp2018-strong with its most popular items, without users who have no shown items."""
    whole = ir.load("yelp2018-strong", data_root=os.environ["ITEMFOLD_DATA"])
    trained = whole.user_parts == UserPart.TRAIN
    degree = np.bincount(whole.items[trained], minlength=whole.n_items)
    keep = np.isin(whole.items, np.argsort(-degree, kind="stable")[:ITEMS])
    shown = np.isin(whole.user_parts, (UserPart.VALID_SHOWN, UserPart.TEST_SHOWN))
    has_past = np.bincount(whole.users[keep & shown], minlength=whole.n_users) > 0
    return whole.where(keep & (trained | has_past[whole.users]))


def dense(data: ir.Interactions, part: UserPart, users: np.ndarray) -> np.ndarray:
    """The interactions of some users in a part, ones."""
    rows = (data.user_parts == part) & np.isin(data.users, users)
    out = np.zeros((len(users), data.n_items))
    out[np.searchsorted(users, data.users[rows]), data.items[rows]] = 1
    return out


def weights(gram: np.ndarray, l2: float, dropout: float, relax: float | None) -> np.ndarray:
    """B of EASE (relax None), RLAE, and RDLAE (with dropout), as their papers define it."""
    ridge = l2 + dropout / (1 - dropout) * np.diag(gram)
    inverse = np.linalg.inv(gram + np.diag(ridge))
    if relax is None:
        out = np.eye(len(gram)) - inverse / np.diag(inverse)
    else:
        free = 1 - np.diag(inverse) * ridge  # the diagonal without a constraint
        multiplier = np.where(free > relax, (1 - relax) / np.diag(inverse) - ridge, 0)
        out = np.eye(len(gram)) - inverse * (ridge + multiplier)
        np.fill_diagonal(out, 0)
    return out


def figures(shown: np.ndarray, hidden: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """The metrics of Mult-VAE, whose recall is capped, and recall by the number of hidden items."""
    scores = np.where(shown > 0, -np.inf, shown @ b)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :100]
    hits, total = np.take_along_axis(hidden, order, 1), hidden.sum(1)
    discount = 1 / np.log2(np.arange(2, 102))
    ideal = np.cumsum(discount)[np.minimum(total, 100).astype(int) - 1]
    return {
        "recall@20": (hits[:, :20].sum(1) / total).mean(),
        "capped_recall@20": (hits[:, :20].sum(1) / np.minimum(total, 20)).mean(),
        "capped_recall@50": (hits[:, :50].sum(1) / np.minimum(total, 50)).mean(),
        "ndcg@100": ((hits * discount).sum(1) / ideal).mean(),
    }


@pytest.mark.data
@pytest.mark.parametrize(
    ("model", "setting"),
    [
        (ir.models.EASE(l2=300.0), (300.0, 0.0, None)),
        (ir.models.RLAE(l2=400.0, relax=0.4, keep=ITEMS), (400.0, 0.0, 0.4)),
        (ir.models.RLAE(l2=200.0, dropout=0.6, relax=0.3, keep=ITEMS), (200.0, 0.6, 0.3)),
    ],
    ids=["ease", "rlae", "rdlae"],
)
def test_linear_models_equal_their_formulas(data, model, setting) -> None:
    known = np.unique(data.users[data.user_parts == UserPart.TRAIN])
    judged = np.unique(data.users[data.user_parts == UserPart.TEST_HIDDEN])
    train = dense(data, UserPart.TRAIN, known)
    shown, hidden = (dense(data, p, judged) for p in (UserPart.TEST_SHOWN, UserPart.TEST_HIDDEN))
    want = figures(shown, hidden, weights(train.T @ train, *setting))
    split = ir.split_users(data)
    found = ir.evaluate(ir.train(split, model), split, metrics=list(METRICS)).metrics
    assert {name: found[name] for name in METRICS} == pytest.approx(want, abs=1e-6)
