"""Rolling time windows: train until t, test from t to t + 1, and so on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemrec.data.csr import as_sorted, pick_share, row_of_entry, take_columns, take_entries
from itemrec.data.interactions import Interactions
from itemrec.data.split import HeldOut, Split
from itemrec.data.split_parts import finished_split, held_out_part
from itemrec.errors import ItemrecError, LeakError

Times = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Window:
    """What is known before a window, and what happens in it, as masks over the interactions."""

    past: Mask
    inside: Mask

    @classmethod
    def cut(cls, times: Times, start: float, windows: int, window: int) -> Window:
        """Window number 1, 2, … of equal numbers of interactions; equal times stay together."""
        shares = np.linspace(start, 1.0, windows + 1)
        ordered = np.sort(times)
        at = np.minimum(np.round(shares * len(times)).astype(np.int64), len(times) - 1)
        begins, ends = ordered[at[window - 1]], ordered[at[window]]
        is_last = window == windows
        found = cls(times < begins, (times >= begins) & ((times < ends) | is_last))
        if not found.past.any() or not found.inside.any():
            raise ItemrecError(
                f"'windows' must be smaller: window {window} of {windows} has no interaction "
                "in it or before it"
            )
        return found

    def check(self, times: Times) -> None:
        """Prove that all that is known is older than all that is to be found."""
        if times[self.past].max() >= times[self.inside].min():
            raise LeakError("a training interaction is as late as a test interaction")


def window_split(
    data: Interactions,
    matrix: sp.csr_array,
    times: Times,
    window: Window,
    rng: np.random.Generator,
    settings: dict[str, object],
) -> Split:
    """The split of one window; users and items that come later are not part of it.

    ``times`` are those of the entries of the matrix.
    """
    window.check(times)
    known, target = take_entries(matrix, window.past), take_entries(matrix, window.inside)
    degree = np.bincount(known.indices, minlength=known.shape[1])
    columns = np.flatnonzero(degree)
    notes = [_unseen_items(target, degree)]
    rows = np.flatnonzero(np.diff(known.indptr)).astype(np.int64)
    moments = times[window.inside]
    target, moments = _known_items(target, moments, degree)
    known, target = take_columns(known, columns), take_columns(target, columns)
    past = as_sorted(known[rows])
    held = pick_share(past, float(settings["valid"]), rng, leave=1)  # type: ignore[arg-type]
    train, valid = take_entries(past, ~held), take_entries(past, held)
    users, ids = np.arange(len(rows), dtype=np.int64), data.user_ids.external(rows)
    valid_part = None
    if valid.nnz:
        valid_part = held_out_part(train, valid, users, ids, "validation", [])
    test = _known_users(past, as_sorted(target[rows]), users, ids)
    others = np.setdiff1d(np.arange(data.n_users), rows)
    new, count = _new_users(data, target, moments, others)
    notes.append(_told(count, new, str(settings["new_users"])))
    if settings["new_users"] == "fold-in":
        test = _stacked(test, new)
    parts = train, valid_part, test if len(test) else None
    user_ids = data.user_ids.take(rows)
    return finished_split(data, "transductive", parts, user_ids, columns, settings, notes)


def _known_items(
    target: sp.csr_array, moments: Times, degree: npt.NDArray[np.int64]
) -> tuple[sp.csr_array, Times]:
    """Targets with items that occur in the past, and their times."""
    keep = degree[target.indices] > 0
    return take_entries(target, keep), moments[keep]


def _unseen_items(target: sp.csr_array, degree: npt.NDArray[np.int64]) -> str:
    """A note on the test interactions that no model can find."""
    unseen = int((degree[target.indices] == 0).sum())
    return (
        "Test interactions with items that never occurred before, which cannot be recommended, "
        f"left out: {unseen:,} of {target.nnz:,} ({unseen / target.nnz:.1%})."
    )


def _known_users(
    past: sp.csr_array,
    target: sp.csr_array,
    users: npt.NDArray[np.int64],
    ids: npt.NDArray[np.generic],
) -> HeldOut:
    """Users of the window who were there before."""
    rows = np.flatnonzero(np.diff(target.indptr))
    return HeldOut(as_sorted(past[rows]), as_sorted(target[rows]), users[rows], ids[rows])


def _new_users(
    data: Interactions, target: sp.csr_array, moments: Times, rows: npt.NDArray[np.int64]
) -> tuple[HeldOut, int]:
    """Users whose first interaction is in the window: the earlier half of theirs is their history.

    Equal times stay together. Also returns how many there are, with those of too few moments.
    """
    row, size = row_of_entry(target), np.diff(target.indptr)
    order = np.lexsort((moments, row))  # rows stay in order
    filled = np.flatnonzero(size)
    middle = np.zeros(target.shape[0])  # when the later half of a user's interactions begins
    middle[filled] = moments[order][(target.indptr[:-1] + size // 2)[filled]]
    return _halves(data, target, moments < middle[row], rows, size)


def _halves(
    data: Interactions,
    target: sp.csr_array,
    early: Mask,
    rows: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
) -> tuple[HeldOut, int]:
    history, later = take_entries(target, early), take_entries(target, ~early)
    both = (np.diff(history.indptr) > 0) & (np.diff(later.indptr) > 0)
    kept = rows[both[rows]]
    unknown = np.full(len(kept), -1, np.int64)
    ids = data.user_ids.external(kept)
    found = HeldOut(as_sorted(history[kept]), as_sorted(later[kept]), unknown, ids)
    return found, int((size[rows] > 0).sum())


def _told(count: int, found: HeldOut, new_users: str) -> str:
    if new_users == "drop":
        return f"Test users who were never there before, left out: {count:,}."
    few = count - len(found)
    rest = f"; {few:,} with too few interactions are left out" if few else ""
    return (
        f"Test users who were never there before: {count:,}, folded in with the earlier half of "
        f"their interactions{rest}."
    )


def _stacked(one: HeldOut, two: HeldOut) -> HeldOut:
    return HeldOut(
        as_sorted(sp.vstack([one.history, two.history])),
        as_sorted(sp.vstack([one.target, two.target])),
        np.concatenate([one.users, two.users]),
        np.concatenate([one.ids, two.ids]),
    )
