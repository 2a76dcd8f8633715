"""Checks that the parts of a split are consistent and that no held-out interaction leaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from itemfold.data.csr import scatter_rows
from itemfold.data.interactions import IdMap
from itemfold.errors import ItemfoldError, LeakError
from itemfold.validation import one_of

if TYPE_CHECKING:
    from itemfold.data.splitting.split import HeldOut, Joining, Split


def check_split(split: Split) -> None:
    """Raise if parts are inconsistent or a held-out interaction is known."""
    held_out = {"validation": split.valid, "test": split.test}
    parts = {name: held for name, held in held_out.items() if held is not None}
    if split.new_items is not None:
        _check_new_items(split, split.new_items)
    _check_sizes(split, parts)
    for name, held in parts.items():
        _no_common(split, held.target, held.history, held, name, "in that user's own history")
        if held.excluded is not None:
            _no_common(split, held.target, held.excluded, held, name, "excluded from ranking")
        if split.protocol == "transductive":
            _check_rows(split, held, name)
        if split.new_items is not None and held is split.test:
            continue  # its targets have no column in training
        if split.protocol == "inductive":
            known = np.flatnonzero(split.user_ids.index(held.ids) >= 0)
            if len(known) or (held.users >= 0).any():
                row = int(known[0]) if len(known) else int(np.argmax(held.users >= 0))
                user = held.ids[[row]].tolist()[0]
                raise LeakError(f"{name} user {user!r} is also a training user")
        rows = np.flatnonzero(held.users >= 0)
        trained = scatter_rows(split.train[held.users[rows]], rows, len(held))
        _no_common(split, held.target, trained, held, name, "in training")
    if split.joining is not None:
        _check_joining(split, split.joining)
    if split.valid is None or split.new_items is not None:
        return
    match = IdMap(split.valid.ids).index(split.test.ids)  # [test rows] → validation row or -1
    rows = np.flatnonzero(match >= 0)
    for part, where in (("target", "a validation target"), ("history", "validation history")):
        other = scatter_rows(getattr(split.valid, part)[match[rows]], rows, len(split.test))
        _no_common(split, split.test.target, other, split.test, "test", where)


def _check_sizes(split: Split, parts: dict[str, HeldOut]) -> None:
    """Check the shapes of the parts, and that no user is in a part twice."""
    one_of("protocol", split.protocol, ("transductive", "inductive"))
    ids = (len(split.user_ids), len(split.item_ids))
    if split.train.shape != ids:
        raise ItemfoldError(
            f"'train' must have a row for each of {ids[0]:,} user ids and a column for each of "
            f"{ids[1]:,} item ids, got {split.train.shape}"
        )
    for name, held in parts.items():
        new = () if split.new_items is None or held is split.valid else split.new_items.ids
        shape = (len(held.users), split.n_items + len(new))
        for part in ("history", "target", "excluded"):
            matrix = getattr(held, part)
            if matrix is not None and matrix.shape != shape:
                raise ItemfoldError(
                    f"'{part}' of the {name} part must be {shape}, users × items, got "
                    f"{matrix.shape}"
                )
        if len(held.ids) != len(held.users):
            raise ItemfoldError(
                f"'ids' of the {name} part must be those of its {len(held.users):,} users, got "
                f"{len(held.ids):,}"
            )
        listed, count = np.unique(held.ids, return_counts=True)
        if len(listed) < len(held.ids):
            twice = listed[[int(count.argmax())]].tolist()[0]
            raise ItemfoldError(f"user {twice!r} must be in the {name} part once, got several rows")


def _check_rows(split: Split, held: HeldOut, name: str) -> None:
    """Check that the ids of known users are those of their rows, and that others have none."""
    rows = split.user_ids.index(held.ids)
    wrong = np.flatnonzero(rows != held.users)
    if not len(wrong):
        return
    user, row = held.ids[wrong[:1]].tolist()[0], int(held.users[wrong[0]])
    if row < 0:
        raise LeakError(f"{name} user {user!r} is also a training user, but has no row there")
    raise LeakError(f"{name} user {user!r} has row {row} of the training part, another user's")


def _check_joining(split: Split, joining: Joining) -> None:
    """Check that users who join in a refit have no row and bring no test target along."""
    known = np.flatnonzero(split.user_ids.index(joining.ids.ids) >= 0)
    if len(known):
        user = joining.ids.ids[known[:1]].tolist()[0]
        raise LeakError(f"user {user!r} joins training in a refit, but is already there")
    match = joining.ids.index(split.test.ids)
    rows = np.flatnonzero(match >= 0)
    other = scatter_rows(joining.train[match[rows]], rows, len(split.test))
    _no_common(split, split.test.target, other, split.test, "test", "in training after a refit")


def _check_new_items(split: Split, new: IdMap) -> None:
    """Check that held-out items are neither columns in training or validation nor in histories.

    Graph, sampler, model selection and feature map see no other columns.
    """
    known = np.flatnonzero(split.item_ids.index(new.ids) >= 0)
    if len(known):
        item = new.ids[known[:1]].tolist()[0]
        raise LeakError(f"held-out item {item!r} is also an item of the training part")
    valid = () if split.valid is None else (split.valid.history, split.valid.target)
    for matrix in (split.train, *valid):
        if matrix.shape[1] != len(split.item_ids):
            raise LeakError("a held-out item has a column in training or validation")
    test = split.test
    shown = test.history.indices[test.history.indices >= split.n_items]
    if len(shown):
        item = new.ids[shown[:1] - split.n_items].tolist()[0]
        raise LeakError(f"held-out item {item!r} is in the history of a test user")
    if len(test.target.indices) and test.target.indices.min() < split.n_items:
        item = split.item_ids.ids[test.target.indices.min()]
        raise LeakError(f"test target {item!r} is an item of the training part")


def _no_common(
    split: Split,
    target: sp.csr_array,
    other: sp.csr_array,
    held: HeldOut,
    name: str,
    where: str,
) -> None:
    common = target.multiply(other).tocoo()
    if not common.nnz or held.repeats:
        return
    user, column = held.ids[common.row[:1]].tolist()[0], int(common.col[0])
    if column < split.n_items or split.new_items is None:
        item = split.item_ids.ids[[column]].tolist()[0]
    else:
        item = split.new_items.ids[[column - split.n_items]].tolist()[0]
    raise LeakError(
        f"{name} target {item!r} of user {user!r} is also {where} ({common.nnz} such interactions)"
    )
