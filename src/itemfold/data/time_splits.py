"""Splits by time: one cut, rolling windows, and the last item of each user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.data.csr import as_sorted, pick_share, row_of_entry, take_columns, take_entries
from itemfold.data.interactions import Interactions
from itemfold.data.split import HeldOut, Split
from itemfold.data.split_parts import (
    TEST,
    TRAIN,
    VALID,
    check_share,
    finished_split,
    held_out_part,
    seeded,
    sorted_matrix,
    transductive_split,
)
from itemfold.errors import ItemfoldError, LeakError
from itemfold.validation import one_of, positive_integers


def split_by_time(
    data: Interactions,
    *,
    seed: int = 0,
    valid: float = 0.1,
    test: float = 0.2,
    unseen_items: Literal["keep", "drop"] = "keep",
) -> Split:
    """Transductive, one global cut: the latest share `test` of all interactions is the test part.

    The latest share `valid` of the rest is the validation part. Interactions with the same time
    stay together. Users without an interaction before a cut are left out of that part.

    Args:
        data: What `load` or `read` returns, with times.
        seed: Unused; accepted so that all strategies have the same signature.
        valid: Share of the interactions before the test part, in [0, 1).
        test: Share of all interactions, in (0, 1).
        unseen_items: "keep" or "drop" items without a training interaction.

    Returns:
        A split of the transductive protocol, already checked for leaks.

    Raises:
        ItemfoldError: The data has no times, a share is out of range, or a part would be empty.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> ir.split_by_time(data).settings["strategy"]
        'time'
    """
    seeded(seed)  # validates the seed
    matrix, order = sorted_matrix(data)
    times = _times(data, "split_by_time")[order]
    part = np.zeros(matrix.nnz, np.int8)
    part[times >= _cut(times, check_share("test", test, low=0))] = TEST
    rest = part == TRAIN
    if check_share("valid", valid) > 0 and rest.any():
        part[rest & (times >= _cut(times[rest], valid))] = VALID
    settings = {"strategy": "time", "seed": seed, "valid": valid, "test": test}
    return transductive_split(
        data, matrix, part, settings | {"unseen_items": unseen_items}, past=True
    )


def split_window(
    data: Interactions,
    *,
    seed: int = 0,
    windows: int = 5,
    window: int = 1,
    start: float = 0.5,
    valid: float = 0.1,
    new_users: Literal["fold-in", "drop"] = "fold-in",
) -> Split:
    """One of the time windows of `split_rolling`, which has the same arguments.

    Args:
        data: What `load` or `read` returns, with times.
        seed: Seed of the draw of the validation part.
        windows: Number of windows.
        window: Which one, from 1.
        start: Share of all interactions before the first window, in (0, 1).
        valid: Share of a user's interactions before the window for validation, in [0, 1).
        new_users: "fold-in" or "drop" users whose first interaction is in the window.

    Returns:
        A split of the transductive protocol, already checked for leaks.

    Raises:
        ItemfoldError: The data has no times, or a number is out of range.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> ir.split_window(data, windows=2, window=2, start=0.8).settings["window"]
        2
    """
    positive_integers(windows=windows, window=window)
    if window > windows:
        raise ItemfoldError(f"'window' must be at most 'windows' ({windows}), got {window}")
    one_of("new_users", new_users, ("fold-in", "drop"))
    check_share("start", start, low=0), check_share("valid", valid)
    rng = seeded(seed)
    matrix, order = sorted_matrix(data)
    times = _times(data, "split_rolling")[order]
    settings = {"strategy": "rolling", "seed": seed, "windows": windows, "window": window}
    settings |= {"start": start, "valid": valid, "new_users": new_users}
    found = Window.cut(times, start, windows, window)
    found.check(times)
    return _window_split(data, matrix, times, found, rng, settings)


def split_rolling(
    data: Interactions,
    windows: int = 5,
    *,
    seed: int = 0,
    start: float = 0.5,
    valid: float = 0.1,
    new_users: Literal["fold-in", "drop"] = "fold-in",
) -> list[Split]:
    """Rolling time windows: train until t, test from t to t + 1, then train until t + 1, …

    The first share `start` of all interactions is before the first window; the rest is cut into
    windows of equal numbers of interactions. Interactions with the same time stay together.
    A model knows all interactions before its window; the share `valid` of each user's interactions
    is held out for validation. Items that never occurred before a window cannot be recommended, so
    they are not targets; a note reports their share. A user whose first interaction is in a window
    is folded in with the earlier half of the interactions there ("fold-in") or left out ("drop").

    Args:
        data: What `load` or `read` returns, with times.
        windows: Number of windows.
        seed: Seed of the draw of the validation parts.
        start: Share of all interactions before the first window, in (0, 1).
        valid: Share of a user's interactions before a window for validation, in [0, 1).
        new_users: "fold-in" or "drop" users whose first interaction is in a window.

    Returns:
        A split for each window, in order, each already checked for leaks.

    Raises:
        ItemfoldError: The data has no times, or a number is out of range.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> splits = ir.split_rolling(data, windows=3)
        >>> [split.refit().train.nnz for split in splits]
        [450, 600, 750]
    """
    positive_integers(windows=windows)
    fixed = {"seed": seed, "start": start, "valid": valid, "new_users": new_users}
    return [split_window(data, windows=windows, window=n + 1, **fixed) for n in range(windows)]  # type: ignore[arg-type]


def leave_last_out(
    data: Interactions, *, seed: int = 0, unseen_items: Literal["keep", "drop"] = "keep"
) -> Split:
    """Transductive: each user's last item is the test part, the one before it validation.

    Ties in time are broken at random by the seed; at least one item stays in training.

    Args:
        data: What `load` or `read` returns, with times.
        seed: Breaks ties.
        unseen_items: "keep" or "drop" items without a training interaction.

    Returns:
        A split of the transductive protocol, already checked for leaks.

    Raises:
        ItemfoldError: The data has no times, or a part would be empty.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.leave_last_out(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> int(split.test.target.sum(axis=1).max())  # one item per user
        1
    """
    matrix, order = sorted_matrix(data)
    times, rows = _times(data, "leave_last_out")[order], row_of_entry(matrix)
    late = np.lexsort((seeded(seed).random(matrix.nnz), times, rows))
    from_end = np.empty(matrix.nnz, np.int64)
    from_end[late] = matrix.indptr[rows + 1] - 1 - np.arange(matrix.nnz)
    size = np.diff(matrix.indptr)[rows]
    part = np.zeros(matrix.nnz, np.int8)
    part[(from_end == 0) & (size >= 2)] = TEST
    part[(from_end == 1) & (size >= 3)] = VALID
    settings = {"strategy": "last", "seed": seed, "unseen_items": unseen_items}
    return transductive_split(data, matrix, part, settings)


def _times(data: Interactions, strategy: str) -> Floats:
    if data.times is None:
        none = f"{strategy} needs timestamps, and {data.name!r} has none; name them with 'time'"
        raise ItemfoldError(data.left_out.get("time", none))
    return data.times


def _cut(times: Floats, share: float) -> float:
    """The time from which the latest share of the interactions begins."""
    at = min(len(times) - 1, round((1 - share) * len(times)))
    return float(np.partition(times, at)[at])


# --- one window ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """Interactions before a time window and inside it, as masks."""

    past: Bools
    inside: Bools

    @classmethod
    def cut(cls, times: Floats, start: float, windows: int, window: int) -> Window:
        """Window number 1, 2, … of equal numbers of interactions; equal times stay together."""
        shares = np.linspace(start, 1.0, windows + 1)
        ordered = np.sort(times)
        at = np.minimum(np.round(shares * len(times)).astype(np.int64), len(times) - 1)
        begins, ends = ordered[at[window - 1]], ordered[at[window]]
        is_last = window == windows
        found = cls(times < begins, (times >= begins) & ((times < ends) | is_last))
        if not found.past.any() or not found.inside.any():
            raise ItemfoldError(
                f"'windows' must be smaller: window {window} of {windows} has no interaction "
                "in it or before it"
            )
        return found

    def check(self, times: Floats) -> None:
        """Raise if a known interaction is not older than every interaction in the window."""
        if times[self.past].max() >= times[self.inside].min():
            raise LeakError("a training interaction is as late as a test interaction")


def _window_split(
    data: Interactions,
    matrix: sp.csr_array,
    times: Floats,
    window: Window,
    rng: np.random.Generator,
    settings: dict[str, object],
) -> Split:
    """The split of one window, without users and items that come later.

    ``times`` are those of the entries of the matrix.
    """
    known, target = take_entries(matrix, window.past), take_entries(matrix, window.inside)
    degree = np.bincount(known.indices, minlength=known.shape[1])
    columns = np.flatnonzero(degree)
    is_known = degree[target.indices] > 0
    unseen = int((~is_known).sum())
    notes = [
        "Test interactions with items that never occurred before the window, left out: "
        f"{unseen:,} of {target.nnz:,} ({unseen / target.nnz:.1%})."
    ]
    target, moments = take_entries(target, is_known), times[window.inside][is_known]
    known, target = take_columns(known, columns), take_columns(target, columns)
    rows = np.flatnonzero(np.diff(known.indptr)).astype(np.int64)
    past = as_sorted(known[rows])
    held = pick_share(past, float(settings["valid"]), rng, leave=1)  # type: ignore[arg-type]
    train, valid = take_entries(past, ~held), take_entries(past, held)
    users, ids = np.arange(len(rows), dtype=np.int64), data.user_ids.external(rows)
    valid_part = None
    if valid.nnz:
        valid_part = held_out_part(train, valid, users, ids, "validation", [])
    known_target = as_sorted(target[rows])
    some = np.flatnonzero(np.diff(known_target.indptr))
    test = HeldOut(as_sorted(past[some]), as_sorted(known_target[some]), users[some], ids[some])
    others = np.setdiff1d(np.arange(data.n_users), rows)
    count = int((np.diff(target.indptr)[others] > 0).sum())
    if settings["new_users"] == "drop":
        notes.append(f"New users in the test window, left out: {count:,}.")
    else:
        new = _new_users(data, target, moments, others)
        few = count - len(new)
        rest = f"; left out for too few interactions: {few:,}" if few else ""
        notes.append(
            f"New users in the test window: {count:,}, folded in with the earlier half of their "
            f"interactions{rest}."
        )
        test = HeldOut(
            as_sorted(sp.vstack([test.history, new.history])),
            as_sorted(sp.vstack([test.target, new.target])),
            np.concatenate([test.users, new.users]),
            np.concatenate([test.ids, new.ids]),
        )
    parts = train, valid_part, test if len(test) else None
    user_ids = data.user_ids.take(rows)
    return finished_split(data, "transductive", parts, user_ids, columns, settings, notes)


def _new_users(data: Interactions, target: sp.csr_array, moments: Floats, rows: Ints) -> HeldOut:
    """Users whose first interaction is in the window, with the earlier half as their history.

    Interactions with the same time stay together; a user with one time only is left out.
    """
    row, size = row_of_entry(target), np.diff(target.indptr)
    order = np.lexsort((moments, row))  # rows stay in order
    filled = np.flatnonzero(size)
    middle = np.zeros(target.shape[0])  # when the later half of a user's interactions begins
    middle[filled] = moments[order][(target.indptr[:-1] + size // 2)[filled]]
    early = moments < middle[row]
    history, later = take_entries(target, early), take_entries(target, ~early)
    both = (np.diff(history.indptr) > 0) & (np.diff(later.indptr) > 0)
    kept = rows[both[rows]]
    ids, unknown = data.user_ids.external(kept), np.full(len(kept), -1, np.int64)
    return HeldOut(as_sorted(history[kept]), as_sorted(later[kept]), unknown, ids)
