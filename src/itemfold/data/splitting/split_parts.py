"""Shared code of split strategies: argument checks, sorted interactions, a checked `Split`."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Ints
from itemfold.data.csr import as_sorted, from_parts, take_columns, take_entries
from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.splitting.exchangeability import given_part_notes
from itemfold.data.splitting.split import HeldOut, Joining, Protocol, Split
from itemfold.data.splitting.times import Times
from itemfold.data.weights import scaled, weight_digest, weight_note
from itemfold.errors import ItemfoldError
from itemfold.validation import one_of

TRAIN, VALID, TEST = 0, 1, 2
ROUNDINGS = ("random", "nearest")  # of the number of held-out items of a user


def check_share(name: str, value: float, low: float = -1) -> float:
    """Validate a share below 1 and above ``low``."""
    if not isinstance(value, Real) or not max(low, 0) <= value < 1 or value == low:
        rule = "(0, 1)" if low == 0 else "[0, 1)"
        raise ItemfoldError(f"{name!r} must be a fraction in {rule}, got {value!r}")
    return value


def seeded(seed: int) -> np.random.Generator:
    """A random generator from a valid seed."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise ItemfoldError(f"'seed' must be an integer of at least 0, got {seed!r}")
    return np.random.default_rng(int(seed))


def sorted_matrix(data: Interactions) -> tuple[sp.csr_array, Ints]:
    """The interactions as CSR with their weights, and each entry's position in the data.

    Entries are sorted, so a split depends on the seed and the pairs, not on the order of rows.
    """
    if not isinstance(data, Interactions):
        raise ItemfoldError(
            f"'data' must be what 'load' or 'read' returns, got {type(data).__name__}"
        )
    if not len(data):
        raise ItemfoldError(f"{data.name!r} has no interactions to split")
    users, items = data.users, data.items
    after, same = users[1:] > users[:-1], users[1:] == users[:-1]
    if (after | (same & (items[1:] > items[:-1]))).all():  # mapped items are then not copied
        order = np.arange(len(data))
    else:
        order = np.argsort(data.users.astype(np.int64) * data.n_items + data.items)
        items = data.items[order]
    counts = np.bincount(data.users, minlength=data.n_users)
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    weights = None if data.weights is None else data.weights[order]
    return from_parts(items, indptr, data.n_items, weights), order


def transductive_split(
    data: Interactions,
    matrix: sp.csr_array,
    part: npt.NDArray[np.int8],
    settings: dict[str, Any],
) -> Split:
    """A split of known users; ``part`` assigns each interaction to TRAIN, VALID or TEST."""
    train, valid, test = (take_entries(matrix, part == p) for p in (TRAIN, VALID, TEST))
    columns, notes = item_columns(train, settings["unseen_items"])
    train, valid, test = (take_columns(m, columns) for m in (train, valid, test))
    known = as_sorted(train + valid)
    users = np.arange(data.n_users, dtype=np.int64)
    ids = data.user_ids.external(users)
    valid_part = held_out_part(train, valid, users, ids, "validation", notes) if valid.nnz else None
    test_part = held_out_part(known, test, users, ids, "test", notes)
    parts = (train, valid_part, test_part)
    return finished_split(data, "transductive", parts, data.user_ids, columns, settings, notes)


def no_user_left(data: Interactions, part: str) -> ItemfoldError:
    """The error for a part without users."""
    longest = int(np.bincount(data.users).max())
    return ItemfoldError(
        f"the split of {data.name!r} leaves no user with a {part} item: a user needs an item to "
        f"learn from and one to hold out, and the longest history has {longest:,}"
    )


def finished_split(
    data: Interactions,
    protocol: Protocol,
    parts: tuple[sp.csr_array, HeldOut | None, HeldOut | None],
    user_ids: IdMap,
    columns: Ints,
    settings: dict[str, Any],
    notes: list[str],
    new_items: IdMap | None = None,
    joining: Joining | None = None,
) -> Split:
    """Build the split; raises if a part is empty or a held-out interaction leaks."""
    train, valid, test = parts
    if not train.nnz:
        raise ItemfoldError(f"the split of {data.name!r} leaves no training interaction")
    if test is None:
        if data.held_out is not None and not data.held_out.any():
            raise ItemfoldError(
                f"every test interaction of {data.name!r} is a training interaction, too; remove "
                "them from one of the two parts"
            )
        raise no_user_left(data, "test")
    facts = {"name": data.name, "fingerprint": data.fingerprint, "users": data.n_users}
    facts |= {"items": data.n_items, "interactions": len(data)}
    if data.weights is not None:  # divide all weights by their mean over the training part
        mean = float(train.data.mean())
        train, test = scaled(train, mean), _scaled_part(test, mean)
        valid = None if valid is None else _scaled_part(valid, mean)
        if joining is not None:
            joining = replace(joining, train=scaled(joining.train, mean))
        facts["weights"] = weight_digest(train)
        notes = [*notes, weight_note(data.weighting, train.data)]
    notes = [*notes, *given_part_notes(data, settings)]
    split = Split(
        protocol=protocol,
        train=train,
        valid=valid,
        test=test,
        user_ids=user_ids,
        item_ids=data.item_ids.take(columns),
        titles=None if data.titles is None else data.titles[columns],
        genres=None if data.genres is None else data.genres[columns],
        dataset=facts,
        settings=settings,
        source=data.source,
        notes=(*data.notes, *notes, *([data.features.account()] if data.features else [])),
        features=data.features,
        new_items=new_items,
        joining=joining,
        times=_known_times(data, columns, (train, user_ids), valid, test, joining),
    )
    split.check()
    return split


def held_out_part(
    history: sp.csr_array,
    target: sp.csr_array,
    users: Ints,
    ids: npt.NDArray[Any],
    name: str,
    notes: list[str],
    past: bool = False,
) -> HeldOut | None:
    """The rows with a target (and, with `past`, a history); the others are counted in ``notes``."""
    has_target, has_past = np.diff(target.indptr) > 0, np.diff(history.indptr) > 0
    if missing := int((~has_target).sum()):
        notes.append(f"Users without a {name} item, not evaluated: {missing:,}.")
    if unknown := int((has_target & ~has_past).sum()):
        what = "left out" if past else "evaluated without a history"
        notes.append(
            f"Users without an interaction before their {name} items, {what}: {unknown:,}."
        )
    rows = np.flatnonzero(has_target & has_past if past else has_target)
    if not len(rows):
        return None
    return HeldOut(as_sorted(history[rows]), as_sorted(target[rows]), users[rows], ids[rows])


def _known_times(
    data: Interactions,
    columns: Ints,
    train: tuple[sp.csr_array, IdMap],
    valid: HeldOut | None,
    test: HeldOut,
    joining: Joining | None,
) -> Times | None:
    """The times of all interactions that a model may know, if the data has any."""
    if data.times is None:
        return None
    matrix, order = sorted_matrix(data)
    moments = np.asarray(data.times)[order].astype(np.float64, copy=False)
    del order
    whole = take_columns(from_parts(matrix.indices, matrix.indptr, data.n_items, moments), columns)
    parts: list[tuple[sp.csr_array, Any]] = [train, (test.history, test.ids)]
    if valid is not None:
        parts += [(valid.history, valid.ids), (valid.target, valid.ids)]
    if joining is not None:
        parts.append((joining.train, joining.ids))
    return Times(data.user_ids, whole).only(parts)


def no_users(data: Interactions, columns: Ints) -> HeldOut:
    """An empty held-out part."""
    empty = from_parts(np.empty(0, np.int32), np.zeros(1, np.int32), len(columns))
    return HeldOut(empty, empty, np.empty(0, np.int64), data.user_ids.ids[:0])


def _scaled_part(held: HeldOut, mean: float) -> HeldOut:
    return replace(held, history=scaled(held.history, mean), target=scaled(held.target, mean))


def item_columns(train: sp.csr_array, unseen_items: str) -> tuple[Ints, list[str]]:
    """The items that stay in the split, and a note on those without a training interaction."""
    one_of("unseen_items", unseen_items, ("keep", "drop"))
    n_items = int(train.shape[1])
    seen = np.bincount(train.indices, minlength=n_items) > 0
    missing = n_items - int(seen.sum())
    if not missing:
        return np.arange(n_items), []
    if unseen_items == "keep":
        return np.arange(n_items), [f"Items without a training interaction: {missing:,}."]
    return np.flatnonzero(seen), [f"Items without a training interaction, dropped: {missing:,}."]
