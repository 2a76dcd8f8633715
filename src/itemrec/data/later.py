"""Interactions that came after a run was trained, as a test part for it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from itemrec.data.csr import as_ones
from itemrec.data.interactions import IdMap, Interactions
from itemrec.data.split import HeldOut
from itemrec.errors import ItemrecError


def later_part(
    train: sp.csr_array, user_ids: IdMap, item_ids: IdMap, data: Interactions
) -> tuple[HeldOut, list[str]]:
    """Pairs of known users and items that are not in training, and notes on the others."""
    rows, columns = user_ids.index(data.user_ids.ids), item_ids.index(data.item_ids.ids)
    users, items = rows[data.users], columns[data.items]
    known = (users >= 0) & (items >= 0)
    pairs = np.ones(int(known.sum()), np.float32), (users[known], items[known])
    later = as_ones(sp.csr_array(sp.coo_array(pairs, shape=train.shape)))
    target = sp.csr_array(later - later.multiply(train))
    target.eliminate_zeros()
    found = np.flatnonzero(np.diff(target.indptr)).astype(np.int64)
    if not len(found):
        raise ItemrecError(
            f"'{data.name}' has no interaction of a known user with a known item that is not part "
            "of training already"
        )
    notes = [
        f"{what}, left out: {count:,}."
        for what, count in (
            ("Interactions of users that the run does not know", int((users < 0).sum())),
            ("Interactions with items that it does not know", int((items[users >= 0] < 0).sum())),
            ("Interactions that it was trained on", int(later.nnz - target.nnz)),
        )
        if count
    ]
    ids = user_ids.external(found)
    return HeldOut(as_ones(train[found]), as_ones(target[found]), found, ids), notes
