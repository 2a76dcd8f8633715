"""Splits by time: one cut, rolling windows, and the last item of each user."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from itemfold.data.array_types import Floats
from itemfold.data.csr import row_of_entry, take_entries
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.periods import (
    Periods,
    boundary_note,
    cut_window,
    empty_period,
    latest_from,
    latest_part,
    split_of_periods,
    unseen_items_note,
    with_validation,
)
from itemfold.data.splitting.repeats import check_repeats, repeat_note, repeating_periods
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.split_parts import (
    TEST,
    VALID,
    check_share,
    item_columns,
    seeded,
    sorted_matrix,
    transductive_split,
)
from itemfold.errors import ItemfoldError
from itemfold.validation import one_of, positive_integers

NEW_USERS = ("fold-in", "drop")


def split_by_time(
    data: Interactions,
    *,
    seed: int = 0,
    valid: float = 0.25,
    test: float = 0.2,
    unseen_items: Literal["keep", "drop"] = "keep",
    new_users: Literal["fold-in", "drop"] = "fold-in",
    valid_by: Literal["time", "random"] = "time",
    rounding: Literal["random", "nearest"] = "random",
    repeats: bool = False,
) -> Split:
    """Transductive: split by two points in time into training, validation and test period.

    The latest fraction `test` of all interactions is the test period, the latest fraction `valid`
    of the rest the validation period. Interactions with the same time stay together. A known user's
    history is everything before the period. A user whose first interaction is in a period is folded
    in with the earlier half of the interactions there ("fold-in") or left out ("drop"); `refit`
    gives those of the validation period a row in training.

    Args:
        data: Interactions with times, as returned by `load` or `read`.
        seed: Seed of a random validation part.
        valid: Fraction of the interactions before the test period, in [0, 1).
        test: Fraction of all interactions, in (0, 1).
        unseen_items: "keep" or "drop" items without a training interaction.
        new_users: "fold-in" or "drop" users whose first interaction is in a period.
        valid_by: Validate on the latest interactions before the test period ("time"), or on some
            of each user's ("random").
        rounding: How many interactions of a user are drawn for a random validation part, as in
            `split_interactions`.
        repeats: Hold a pair of user and item out again in every period in which it occurs, and
            also rank items of the history: for repeated consumption, such as check-ins, baskets
            and plays.

    Returns:
        A split of the transductive protocol, already checked for leaks.

    Raises:
        ItemfoldError: The data has no times, a share is out of range, a part would be empty, or
            `repeats` is combined with weights or a random validation part.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> split = ir.split_by_time(data, test=0.2)
        >>> split.refit().train.nnz  # all interactions before the test period
        720
    """
    rng = seeded(seed)
    check_share("test", test, low=0)
    check_share("valid", valid)
    one_of("new_users", new_users, NEW_USERS)
    matrix, order = sorted_matrix(data)
    times = times_of(data, "split_by_time")[order]
    suggestion = [] if repeats else repeat_note(data, times, order, test)
    if check_repeats(repeats, data):
        if valid_by != "time":
            raise ItemfoldError(f"'valid_by' must be time with 'repeats', got {valid_by!r}")
        data, periods = repeating_periods(data, times, order, valid, test)
    else:
        inside = times >= latest_from(times, test)
        periods = with_validation(matrix, times, ~inside, inside, valid, valid_by, rounding, rng)
    if problem := empty_period(times, periods, validates=valid > 0 and valid_by == "time"):
        raise ItemfoldError(f"{data.name!r} cannot be split by time: {problem}")
    train = take_entries(matrix, periods.train)
    columns, notes = item_columns(train, unseen_items)
    notes = [
        *boundary_note(times, periods, valid_by),
        *unseen_items_note(matrix, periods, unseen_items),
        *notes,
        *suggestion,
    ]
    rows = np.arange(data.n_users) if new_users == "drop" else np.flatnonzero(np.diff(train.indptr))
    settings = {"strategy": "time", "seed": seed, "valid": valid, "test": test}
    settings |= {"unseen_items": unseen_items, "new_users": new_users}
    settings |= {"valid_by": valid_by, "rounding": rounding}
    settings |= {"repeats": True} if repeats else {}  # older runs do not have it
    return split_of_periods(data, matrix, times, periods, columns, rows, settings, notes)


def split_window(
    data: Interactions,
    *,
    seed: int = 0,
    windows: int = 5,
    window: int = 1,
    start: float = 0.5,
    valid: float = 0.1,
    new_users: Literal["fold-in", "drop"] = "fold-in",
    valid_by: Literal["time", "random"] = "time",
    rounding: Literal["random", "nearest"] = "random",
) -> Split:
    """One of the time windows of `split_rolling`, which has the same arguments.

    Args:
        data: Interactions with times, as returned by `load` or `read`.
        seed: Seed of the draw of the validation part.
        windows: Number of windows.
        window: Which one, from 1.
        start: Fraction of all interactions before the first window, in (0, 1).
        valid: Fraction of the interactions before the window for validation, in [0, 1).
        new_users: "fold-in" or "drop" users whose first interaction is in the window.
        valid_by: Validate on the latest interactions before the window ("time"), or on some of
            each user's ("random").
        rounding: How many interactions of a user are drawn for a random validation part, as in
            `split_interactions`.

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
    one_of("new_users", new_users, NEW_USERS)
    check_share("start", start, low=0)
    check_share("valid", valid)
    rng = seeded(seed)
    matrix, order = sorted_matrix(data)
    times = times_of(data, "split_rolling")[order]
    settings = {"strategy": "rolling", "seed": seed, "windows": windows, "window": window}
    settings |= {"start": start, "valid": valid, "new_users": new_users}
    settings |= {"valid_by": valid_by, "rounding": rounding}
    masks = cut_window(times, start, windows, window)
    periods = with_validation(matrix, times, *masks, valid, valid_by, rounding, rng)
    past = take_entries(matrix, periods.past)
    columns = np.flatnonzero(np.bincount(past.indices, minlength=data.n_items))
    kept = past if new_users == "drop" else take_entries(matrix, periods.train)
    rows = np.flatnonzero(np.diff(kept.indptr))
    notes = unseen_items_note(matrix, periods, "drop")
    return split_of_periods(data, matrix, times, periods, columns, rows, settings, notes)


def split_rolling(
    data: Interactions,
    windows: int = 5,
    *,
    seed: int = 0,
    start: float = 0.5,
    valid: float = 0.1,
    new_users: Literal["fold-in", "drop"] = "fold-in",
    valid_by: Literal["time", "random"] = "time",
    rounding: Literal["random", "nearest"] = "random",
) -> list[Split]:
    """Rolling time windows: train until t, test from t to t + 1, then train until t + 1, …

    The first fraction `start` of all interactions is before the first window; the rest is cut into
    windows of equal numbers of interactions. Interactions with the same time stay together.
    A model knows all interactions before its window; the latest fraction `valid` of them is held
    out for validation. Items that never occurred before a window cannot be recommended, so they are
    not targets; a note reports their fraction. A user whose first interaction is in a window, or in
    the validation period before it, is folded in there with the earlier half of the interactions
    ("fold-in") or left out ("drop").

    Args:
        data: Interactions with times, as returned by `load` or `read`.
        windows: Number of windows.
        seed: Seed of the draw of the validation parts.
        start: Fraction of all interactions before the first window, in (0, 1).
        valid: Fraction of the interactions before a window for validation, in [0, 1).
        new_users: "fold-in" or "drop" users whose first interaction is in a window.
        valid_by: Validate on the latest interactions before a window ("time"), or on some of each
            user's ("random").
        rounding: How many interactions of a user are drawn for a random validation part, as in
            `split_interactions`.

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
    fixed: dict[str, Any] = {"seed": seed, "start": start, "valid": valid, "new_users": new_users}
    fixed |= {"valid_by": valid_by, "rounding": rounding}
    return [split_window(data, windows=windows, window=n + 1, **fixed) for n in range(windows)]


def leave_last_out(
    data: Interactions, *, seed: int = 0, unseen_items: Literal["keep", "drop"] = "keep"
) -> Split:
    """Transductive: each user's last item is the test part, the one before it validation.

    Ties in time are broken at random by the seed; at least one item stays in training.

    Args:
        data: Interactions with times, as returned by `load` or `read`.
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
    times, rows = times_of(data, "leave_last_out")[order], row_of_entry(matrix)
    late = np.lexsort((seeded(seed).random(matrix.nnz), times, rows))
    from_end = np.empty(matrix.nnz, np.int64)
    from_end[late] = matrix.indptr[rows + 1] - 1 - np.arange(matrix.nnz)
    size_of = np.diff(matrix.indptr)
    size = size_of[rows]
    part = np.zeros(matrix.nnz, np.int8)
    part[(from_end == 0) & (size >= 2)] = TEST
    part[(from_end == 1) & (size >= 3)] = VALID
    settings = {"strategy": "last", "seed": seed, "unseen_items": unseen_items}
    split = transductive_split(data, matrix, part, settings)
    ends = matrix.indptr[1:][size_of >= 2]
    tied = int((times[late[ends - 1]] == times[late[ends - 2]]).sum())
    if not tied:
        return split
    note = f"Users whose two last items have the same time, drawn at random: {tied:,}."
    return replace(split, notes=(*split.notes, note))


def validate_on_latest(data: Interactions, valid: float, settings: dict[str, Any]) -> Split:
    """A split without test part that validates on the latest fraction ``valid``."""
    matrix, order = sorted_matrix(data)
    times = times_of(data, 'valid_by="time"')[order]
    if settings.get("repeats"):
        data, periods = repeating_periods(data, times, order, valid, test=0)
    else:
        none = np.zeros(len(times), np.bool_)
        periods = with_validation(matrix, times, ~none, none, valid)
    if not periods.train.any():
        raise ItemfoldError(
            f"'valid_by' must be random: nearly all times of {data.name!r} are equal"
        )
    rows = np.flatnonzero(np.diff(take_entries(matrix, periods.train).indptr))
    columns = np.arange(data.n_items)
    return split_of_periods(data, matrix, times, periods, columns, rows, settings, [])


def time_problem(data: Interactions, valid: float = 0.25, test: float = 0.2) -> str:
    """The reason that data cannot be split by time, or an empty string.

    >>> import itemfold as ir
    >>> time_problem(ir.load("synthetic:users=60,items=80,interactions=900"))
    ''
    """
    if data.times is None:
        return "there are no times"
    times = np.asarray(data.times)
    inside = latest_part(times, np.ones(len(times), np.bool_), test)
    held = latest_part(times, ~inside, valid)
    periods = Periods(~inside & ~held, held, inside)
    if problem := empty_period(times, periods, validates=bool(valid), tests=bool(test)):
        return problem
    first = np.full(data.n_users, np.inf)
    np.minimum.at(first, data.users, times)
    for name, period in (("validation", held), ("test", inside)):
        if period.any() and not (first[data.users[period]] < times[period].min()).any():
            return f"no user has an interaction in the {name} period and one before it"
    return ""


def times_of(data: Interactions, strategy: str) -> Floats:
    """The times of the data; raises if it has none, or if all are equal."""
    if data.times is None:
        none = (
            f"{strategy} needs timestamps, and {data.name!r} has none; name their column with "
            "time=… or --time-col"
        )
        raise ItemfoldError(data.left_out.get("time", none))
    if len(data) and data.times.min() == data.times.max():
        raise ItemfoldError(
            f"{data.name!r} cannot be split by time: all times are equal; split it at random"
        )
    return data.times
