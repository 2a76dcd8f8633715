"""More users to choose on: where few new users validate, training users are held out in turn.

The settings of a closed form that are best for sixty users are mostly lucky. A fit without some of
the training users is cheap on such data, and those users are then as new as validation users are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from itemfold.data.csr import as_sorted, pick_share, take_entries
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.training.strategies.noise import has_few

ENOUGH = 500  # users to choose on, together with those of the validation part


def rotations(split: Split, seed: int) -> Iterator[tuple[sp.csr_array, HeldOut]]:
    """Training parts without some users, and these users with a part of their items hidden.

    Each holds out as many users as the validation part has, and hides the same share of their
    items; nothing is yielded if that part has enough users, or users with a row in training.
    """
    valid = split.valid
    if valid is None or not has_few(valid):
        return
    size, rng = len(valid), np.random.default_rng(seed)
    shown_share = valid.history.nnz / max(valid.history.nnz + valid.target.nnz, 1)
    order = rng.permutation(np.flatnonzero(np.diff(split.train.indptr) > 1))
    times = min((ENOUGH - 1) // size, len(order) // size)
    for rows in np.split(np.sort(order[: times * size].reshape(times, size), axis=1), times):
        whole = as_sorted(split.train[rows[0]])
        shown = pick_share(whole, shown_share, rng, least=1, leave=1, dither=True)
        hidden = take_entries(whole, ~shown & (whole.data > 0))
        rest = as_sorted(split.train[np.setdiff1d(np.arange(split.n_users), rows[0])])
        has_target = np.diff(hidden.indptr) > 0
        if not rest.nnz or not has_target.any():
            continue
        history = take_entries(whole, shown)
        users = np.full(len(whole.indptr) - 1, -1, np.int64)
        ids = split.user_ids.external(rows[0])
        yield rest, HeldOut(history, hidden, users, ids).take(np.flatnonzero(has_target))
