"""Periods of training, validation and test, and the split that they define."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.data.columns.time_units import moment_text
from itemfold.data.csr import as_sorted, pick_share, row_of_entry, take_columns, take_entries
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.split import HeldOut, Joining, Split
from itemfold.data.splitting.split_parts import (
    ROUNDINGS,
    finished_split,
    no_user_left,
    no_users,
)
from itemfold.errors import ItemfoldError
from itemfold.validation import one_of

MANY_UNSEEN = 0.5  # share of the test interactions from which a note says what to change


def latest_from(times: Floats, share: float) -> float:
    """The time from which the latest fraction of the interactions starts."""
    at = min(len(times) - 1, round((1 - share) * len(times)))
    return float(np.partition(times, at)[at])


def cut_window(times: Floats, start: float, windows: int, window: int) -> tuple[Bools, Bools]:
    """Masks of the interactions before and inside window 1, 2, … of equal size.

    Equal times stay together.
    """
    shares = np.linspace(start, 1.0, windows + 1)
    at = np.minimum(np.round(shares * len(times)).astype(np.int64), len(times) - 1)
    begins, ends = np.sort(times)[at[window - 1 : window + 1]]
    past = times < begins
    inside = ~past & ((times < ends) | (window == windows))
    if not past.any() or not inside.any():
        raise ItemfoldError(
            f"'windows' must be smaller: window {window} of {windows} has no interaction in it or "
            "before it"
        )
    return past, inside


@dataclass(frozen=True)
class Periods:
    """The interactions of training, validation and test, as masks."""

    train: Bools
    valid: Bools
    test: Bools
    valid_times: Floats | None = None  # of the validation period, if pairs may occur in several

    @property
    def past(self) -> Bools:
        """The interactions before the test period."""
        return self.train | self.valid


def latest_part(times: Floats, past: Bools, share: float) -> Bools:
    """A mask of the latest fraction of the past; equal times stay together."""
    if not share or not past.any():
        return np.zeros(len(times), np.bool_)
    found: Bools = past & (times >= latest_from(times[past], share))
    return found


def empty_period(times: Floats, periods: Periods, *, validates: bool, tests: bool = True) -> str:
    """The reason that a period has no interaction, or an empty string."""
    if times.min() == times.max():
        return "all times are equal"
    masks = {"training": periods.train}
    masks |= {"validation": periods.valid} if validates else {}
    masks |= {"test": periods.test} if tests else {}
    empty = [name for name, mask in masks.items() if not mask.any()]
    if not empty:
        return ""
    return f"there are too few different times, so the {empty[0]} part would be empty"


def with_validation(
    matrix: sp.csr_array,
    times: Floats,
    past: Bools,
    inside: Bools,
    valid: float,
    valid_by: str = "time",
    rounding: str = "random",
    rng: np.random.Generator | None = None,
) -> Periods:
    """Hold out the fraction ``valid`` of the past: its latest part or some of each user's."""
    one_of("valid_by", valid_by, ("time", "random"))
    one_of("rounding", rounding, ROUNDINGS)
    held = np.zeros(len(times), np.bool_)
    if valid_by == "random":
        assert rng is not None
        drawn = pick_share(
            take_entries(matrix, past), valid, rng, leave=1, dither=rounding == "random"
        )
        held[np.flatnonzero(past)[drawn]] = True
    else:
        held = latest_part(times, past, valid)
    return Periods(past & ~held, held, inside)


def split_of_periods(
    data: Interactions,
    matrix: sp.csr_array,
    times: Floats,
    periods: Periods,
    columns: Ints,
    rows: Ints,
    settings: dict[str, Any],
    notes: list[str],
) -> Split:
    """The split of periods; the users ``rows`` have a row in training, others are folded in."""
    folds_in = settings.get("new_users", "fold-in") == "fold-in"
    at = np.full(data.n_users, -1, np.int64)  # row in training
    at[rows] = np.arange(len(rows))

    def part(mask: Bools) -> sp.csr_array:
        return take_columns(take_entries(matrix, mask), columns)

    train, past = part(periods.train), part(periods.past)
    kept = np.isin(matrix.indices, columns)
    held = []
    for name, mask, history in (
        ("validation", periods.valid, train),
        ("test", periods.test, past),
    ):
        own = periods.valid_times if name == "validation" else None
        target, moments = part(mask), (times if own is None else own)[mask & kept]
        found = _evaluated(data, history, target, moments, at, name, folds_in, notes)
        repeats = settings.get("repeats", False)
        held.append(found if found is None else replace(found, repeats=repeats))
    later = np.flatnonzero((np.diff(past.indptr) > 0) & (at < 0))
    joining = None
    if len(later):
        joining = Joining(as_sorted(past[later]), data.user_ids.take(later))
    valid, test = held
    if not periods.test.any():  # nothing was to be held out for test
        test = no_users(data, columns)
        if valid is None:
            raise no_user_left(data, "validation")
    parts = as_sorted(train[rows]), valid, test
    user_ids = data.user_ids if len(rows) == data.n_users else data.user_ids.take(rows)
    return finished_split(
        data, "transductive", parts, user_ids, columns, settings, notes, joining=joining
    )


def _evaluated(
    data: Interactions,
    history: sp.csr_array,
    target: sp.csr_array,
    moments: Floats,
    at: Ints,
    name: str,
    folds_in: bool,
    notes: list[str],
) -> HeldOut | None:
    """The users of a period, first those with a past, then new ones; None if there are none.

    ``moments`` are the times of the targets, ``at`` the rows of users in training.
    """
    active, has_past = np.diff(target.indptr) > 0, np.diff(history.indptr) > 0
    known, new = np.flatnonzero(active & has_past), np.flatnonzero(active & ~has_past)
    ids = data.user_ids.external(known)
    held = HeldOut(as_sorted(history[known]), as_sorted(target[known]), at[known], ids)
    if not folds_in:
        if len(new):
            notes.append(f"New users in the {name} period, left out: {len(new):,}.")
    elif len(new):
        found = _new_users(data, target, moments, new)
        few = len(new) - len(found)
        rest = f"; left out for too few interactions: {few:,}" if few else ""
        notes.append(
            f"New users in the {name} period: {len(new):,}, folded in with the earlier half of "
            f"their interactions{rest}."
        )
        held = HeldOut(
            as_sorted(sp.vstack([held.history, found.history])),
            as_sorted(sp.vstack([held.target, found.target])),
            np.concatenate([held.users, found.users]),
            np.concatenate([held.ids, found.ids]),
        )
    return held if len(held) else None


def boundary_note(times: Floats, periods: Periods, valid_by: str) -> list[str]:
    """A note with the boundaries of a split by time, and the option for a random split."""
    parts = [times[mask] for mask in (periods.train, periods.valid, periods.test)]
    if not all(len(part) for part in (parts[0], parts[2])):
        return []
    by_time = bool(len(parts[1])) and valid_by == "time"
    moments = [float(part.min()) for part in (parts[1:] if by_time else parts[2:])]
    texts = [moment_text(moment, float(np.ptp(times))) for moment in moments]
    if len(set(texts)) < len(texts):  # both periods begin on one day
        texts = [moment_text(moment, 0) for moment in moments]
    if by_time:
        text = f"train before {texts[0]}, validation until {texts[1]}, test after"
    else:
        text = f"train and validation before {texts[0]}, test after"
    return [f"Split by time: {text}; for a random split: --split interactions."]


def unseen_items_note(matrix: sp.csr_array, periods: Periods, unseen_items: str) -> list[str]:
    """A note on test interactions with items that first occur in the test period."""
    seen = np.bincount(matrix.indices[periods.past], minlength=matrix.shape[1]) > 0
    items = matrix.indices[periods.test]
    unseen = int((~seen[items]).sum())
    if not unseen:
        return []
    drops, share = unseen_items == "drop", unseen / len(items)
    what = ", left out" if drops else ", which no model can find"
    shorter = f"--set split.test={float(periods.test.mean()) / 4:.2g}"
    hint = "" if drops or share < MANY_UNSEEN else f"; a shorter test period has fewer: {shorter}"
    return [
        f"Test interactions with items that never occurred before the test period{what}: "
        f"{unseen:,} of {len(items):,} ({share:.1%}){hint}."
    ]


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
