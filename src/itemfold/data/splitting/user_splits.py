"""The split of data that comes split by users, with its own validation and test users."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools
from itemfold.data.csr import as_sorted, pick_share, row_of_entry, take_entries
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.data.splitting.split_parts import (
    finished_split,
    held_out_part,
    item_columns,
    seeded,
    sorted_matrix,
)
from itemfold.data.splitting.user_parts import GROUPS, group_of, is_hidden
from itemfold.errors import ItemfoldError


def split_given_users(
    data: Interactions, *, seed: int, valid: float, fold_in: float, rounding: str
) -> Split:
    """Hold out the users that the data names, with its own shown and hidden items.

    Without validation users in the data, the fraction ``valid`` of the training users is drawn, and
    ``fold_in`` of their items are shown, with their number rounded as ``rounding`` says. All items
    are kept: a published test part is judged whole.
    """
    assert data.user_parts is not None
    matrix, order = sorted_matrix(data)
    parts = data.user_parts[order]
    group = np.zeros(data.n_users, np.int8)
    group[data.users] = group_of(data.user_parts)
    train_rows, valid_rows, test_rows = (np.flatnonzero(group == n) for n in range(len(GROUPS)))
    hidden: Bools = is_hidden(parts)
    settings: dict[str, Any] = {"strategy": "users", "seed": seed, "valid": "given"}
    settings |= {"test": "given", "fold_in": "given", "unseen_items": "keep"}
    notes: list[str] = []
    if not len(valid_rows):
        settings |= {"valid": valid, "fold_in": fold_in, "rounding": rounding}
        rng = seeded(seed)
        drawn = np.sort(rng.permutation(train_rows)[: round(valid * len(train_rows))])
        train_rows, valid_rows = np.setdiff1d(train_rows, drawn), drawn
        whole = np.isin(row_of_entry(matrix), drawn)
        dither = rounding == "random"
        drawn_part = take_entries(matrix, whole)
        shown = pick_share(drawn_part, fold_in, rng, least=1, leave=1, dither=dither)
        hidden[np.flatnonzero(whole)[~shown]] = True
        notes.append(f"Validation users, drawn from the training users: {len(drawn):,}.")
    train = as_sorted(matrix[train_rows])
    if not len(test_rows) or not train.nnz:
        missing = "test" if not len(test_rows) else "training"
        raise ItemfoldError(
            f"{data.name!r} has no {missing} users left; lower 'min_rating', 'k_core' or 'valid'"
        )
    columns, about_items = item_columns(train, "keep")
    notes += about_items
    history, target = take_entries(matrix, ~hidden), take_entries(matrix, hidden)

    def held(rows: npt.NDArray[np.int64], name: str) -> HeldOut | None:
        past, future = as_sorted(history[rows]), as_sorted(target[rows])
        unknown = np.full(len(rows), -1, np.int64)
        ids = data.user_ids.external(rows)
        return held_out_part(past, future, unknown, ids, name, notes)

    test_part = held(test_rows, GROUPS[2])
    valid_part = held(valid_rows, GROUPS[1]) if len(valid_rows) else None
    user_ids = data.user_ids.take(train_rows)
    split_parts = (train, valid_part, test_part)
    return finished_split(data, "inductive", split_parts, user_ids, columns, settings, notes)
