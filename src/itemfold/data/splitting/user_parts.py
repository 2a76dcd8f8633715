"""The parts of a split by users, and tables of these parts joined into one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools, Ints
from itemfold.data.columns.concatenation import concatenated
from itemfold.data.columns.raw_table import RawTable
from itemfold.errors import ItemfoldError


class UserPart(IntEnum):
    """The part of an interaction in data that is split by users."""

    TRAIN = 0  # full history of a training user
    VALID_SHOWN = 1  # what a model sees of a validation user
    VALID_HIDDEN = 2  # what it must find
    TEST_SHOWN = 3
    TEST_HIDDEN = 4


HIDDEN = (UserPart.VALID_HIDDEN, UserPart.TEST_HIDDEN)
PAIRS = (
    (UserPart.VALID_SHOWN, UserPart.VALID_HIDDEN),
    (UserPart.TEST_SHOWN, UserPart.TEST_HIDDEN),
)
GROUPS = ("training", "validation", "test")


def group_of(parts: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """The group of users that a part belongs to, an index of `GROUPS`.

    >>> group_of(np.array([0, 1, 2, 3, 4], np.int8)).tolist()
    [0, 1, 1, 2, 2]
    """
    return ((parts + 1) // 2).astype(np.int8)


def is_hidden(parts: npt.NDArray[np.int8]) -> Bools:
    """Mask of the interactions that a model must find."""
    return np.isin(parts, HIDDEN)


def check_complete(given: Mapping[UserPart, Any], names: Mapping[UserPart, str]) -> None:
    """Raise if the training or the test part is missing, or one of shown and hidden items."""
    for shown, hidden in PAIRS:
        for part, other in ((shown, hidden), (hidden, shown)):
            if part in given and other not in given:
                raise ItemfoldError(
                    f"{names[other]} is missing: a split by users needs the shown and the hidden "
                    f"items of its held-out users, and only {names[part]} is given"
                )
    for part in (UserPart.TRAIN, UserPart.TEST_SHOWN):
        if part not in given:
            raise ItemfoldError(
                f"{names[part]} is missing: a split by users needs a training part and a test part"
            )


def join_tables(tables: Mapping[UserPart, RawTable], places: Mapping[UserPart, str]) -> RawTable:
    """One table of all parts; raises if the parts overlap. ``places`` name them in errors."""
    listed = list(tables.values())
    part = np.repeat(np.array(list(tables), np.int8), [len(table.user) for table in listed])
    joined = replace(concatenated(listed, [places[name] for name in tables]), part=part)
    check_disjoint(joined, places)
    return joined


def check_disjoint(table: RawTable, places: Mapping[UserPart, str]) -> None:
    """Raise if a user is in two groups, an item is shown and hidden, or parts share no item."""
    assert table.part is not None
    users, user_codes = np.unique(table.user, return_inverse=True)
    items, item_codes = np.unique(table.item, return_inverse=True)

    def first(found: Bools, explain: Callable[[str], str]) -> None:
        if found.any():
            raise ItemfoldError(explain(repr(users[[int(found.argmax())]].tolist()[0])))

    trained = np.zeros(len(items), np.bool_)
    trained[item_codes[table.part == UserPart.TRAIN]] = True
    members: dict[UserPart, Bools] = {}
    for part in places:
        members[part] = np.zeros(len(users), np.bool_)
        members[part][user_codes[table.part == part]] = True
        if not trained[item_codes[table.part == part]].any():
            raise ItemfoldError(
                f"{places[part]}: no item is in {places[UserPart.TRAIN]}, too; use the same item "
                "ids in all parts"
            )
    for shown, hidden in PAIRS:
        if shown not in places:
            continue
        first(
            members[hidden] & ~members[shown],
            lambda user, shown=shown, hidden=hidden: (  # type: ignore[misc]
                f"{places[hidden]}: user {user} has hidden items but no shown ones in "
                f"{places[shown]}; a user needs both"
            ),
        )
        _check_pairs(table, (shown, hidden), places, user_codes * len(items) + item_codes)
    for n, one in enumerate(places):
        for two in list(places)[n + 1 :]:
            if group_of(np.array(one)) != group_of(np.array(two)):
                first(
                    members[one] & members[two],
                    lambda user, one=one, two=two: (  # type: ignore[misc]
                        f"{places[two]}: user {user} is also in {places[one]}; training, "
                        "validation and test users must be different"
                    ),
                )


def _check_pairs(
    table: RawTable, pair: tuple[UserPart, UserPart], places: Mapping[UserPart, str], keys: Ints
) -> None:
    """Raise if an item is among the shown and the hidden ones of a user."""
    shown, hidden = pair
    rows = np.flatnonzero(table.part == hidden)
    both = rows[np.isin(keys[rows], keys[table.part == shown])]
    if len(both):
        user, item = (ids[both[:1]].tolist()[0] for ids in (table.user, table.item))
        raise ItemfoldError(
            f"{places[hidden]}: item {item!r} of user {user!r} is also in {places[shown]} "
            f"({len(both):,} such items); a hidden item must not be shown"
        )
