"""Splits by time: one cut, rolling windows, and the last item of each user."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from itemrec.data.csr import row_of_entry
from itemrec.data.interactions import Interactions
from itemrec.data.rolling import Window, window_split
from itemrec.data.split import Split
from itemrec.data.split_parts import (
    TEST,
    TRAIN,
    VALID,
    check_share,
    seeded,
    sorted_matrix,
    transductive_split,
)
from itemrec.errors import ItemrecError
from itemrec.validation import one_of, positive_integers


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
        seed: Unused: nothing is drawn; accepted so that all strategies have the same call.
        valid: Share of the interactions before the test part, in [0, 1).
        test: Share of all interactions, in (0, 1).
        unseen_items: Whether items without a training interaction stay in the catalogue ("keep")
            or are removed ("drop").

    Returns:
        A split of the transductive protocol, already checked for leaks.

    Raises:
        ItemrecError: The data has no times, a share is out of range, or a part would be empty.

    Examples:
        >>> import itemrec as ir
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
        new_users: Whether users whose first interaction is in the window are evaluated, too.

    Returns:
        A split of the transductive protocol, already checked for leaks.

    Raises:
        ItemrecError: The data has no times, or a number is out of range.

    Examples:
        >>> import itemrec as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> ir.split_window(data, windows=2, window=2, start=0.8).settings["window"]
        2
    """
    positive_integers(windows=windows, window=window)
    if window > windows:
        raise ItemrecError(f"'window' must be at most 'windows' ({windows}), got {window}")
    one_of("new_users", new_users, ("fold-in", "drop"))
    check_share("start", start, low=0), check_share("valid", valid)
    rng = seeded(seed)
    matrix, order = sorted_matrix(data)
    times = _times(data, "split_rolling")[order]
    settings = {"strategy": "rolling", "seed": seed, "windows": windows, "window": window}
    settings |= {"start": start, "valid": valid, "new_users": new_users}
    found = Window.cut(times, start, windows, window)
    return window_split(data, matrix, times, found, rng, settings)


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
    A model knows all interactions before its window; the share `valid` of each user's is its
    validation part. Items that never occurred before a window cannot be recommended: they are no
    targets, and a note tells their share. A user whose first interaction is in a window is folded
    in with the earlier half of the interactions there ("fold-in"), or left out ("drop").

    Args:
        data: What `load` or `read` returns, with times.
        windows: Number of windows.
        seed: Seed of the draw of the validation parts.
        start: Share of all interactions before the first window, in (0, 1).
        valid: Share of a user's interactions before a window for validation, in [0, 1).
        new_users: Whether users whose first interaction is in a window are evaluated, too.

    Returns:
        A split for each window, in order, each already checked for leaks.

    Raises:
        ItemrecError: The data has no times, or a number is out of range.

    Examples:
        >>> import itemrec as ir
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
        unseen_items: Whether items without a training interaction stay in the catalogue ("keep")
            or are removed ("drop").

    Returns:
        A split of the transductive protocol, already checked for leaks.

    Raises:
        ItemrecError: The data has no times, or a part would be empty.

    Examples:
        >>> import itemrec as ir
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


def _times(data: Interactions, strategy: str) -> npt.NDArray[np.float64]:
    if data.times is None:
        none = f"{strategy} needs timestamps, and {data.name!r} has none"
        raise ItemrecError(data.left_out.get("time", none))
    return data.times


def _cut(times: npt.NDArray[np.float64], share: float) -> float:
    at = min(len(times) - 1, round((1 - share) * len(times)))
    return float(np.partition(times, at)[at])
