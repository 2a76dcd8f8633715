"""Reader of lists: each line has a user and its items, or the items of one basket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from itemfold.data.columns.choice import Names, check_not_requested
from itemfold.data.columns.raw_table import RawTable, object_array
from itemfold.data.readers.packed import encoding_note
from itemfold.data.readers.text_format import Record, TextFormat, records_of
from itemfold.errors import ItemfoldError

REPEATED = 0.1  # share of ids in lists that come more than once
LEAST = 3  # lines from which equal lengths are more than chance


def is_basket_file(form: TextFormat, rows: list[Record]) -> bool:
    """Whether lines are lists: of different lengths, or with shared ids in several columns.

    >>> rows = [(1, ["u1", "a", "b"]), (2, ["u2", "b", "c"]), (3, ["u3", "c", "a"])]
    >>> is_basket_file(TextFormat(" ", header=False), rows)
    True
    """
    if form.header:
        return False
    if not form.even:
        return True
    listed = [fields for _, fields in rows]
    width = len(listed[0])
    if len(listed) < LEAST or width < 3 or any(len(fields) != width for fields in listed):
        return False
    if len({fields[0] for fields in listed}) < len(listed):
        return False
    seconds, last = {fields[1] for fields in listed}, {fields[-1] for fields in listed}
    others = [set(column) for column in zip(*(fields[2:] for fields in listed), strict=True)]
    return all(seconds & column for column in others) and bool(seconds & last)


def read_baskets(path: Path, names: Names, form: TextFormat, *, skip: bool = False) -> RawTable:
    """Read lines of ids: a user and its items, or only items if the first ids repeat."""
    pairs, remark = basket_pairs(path, names, form, skip=skip)
    users, items = zip(*pairs, strict=True)
    return RawTable(
        object_array(users),
        object_array(items),
        ids_are_text=True,
        remarks=(remark, *encoding_note(form.encoding)),
    )


def basket_pairs(
    path: Path, names: Names, form: TextFormat, *, skip: bool = False
) -> tuple[Iterator[tuple[str, str]], str]:
    """The pairs of users and items of a file of lists, line by line, and how it was read."""
    check_not_requested(names, skip, path, "a list of ids on each line")
    heads: set[str] = set()
    counts: Counter[str] = Counter()
    n_lines = 0
    for head, *rest in _lists(path, form):
        n_lines += 1
        heads.add(head)
        counts.update(rest)
    with_users = len(heads) == n_lines
    if with_users:
        pairs = ((head, item) for head, *rest in _lists(path, form) for item in rest)
        remark = f"Each of the {n_lines:,} lines was read as a user and its items."
    else:
        counts.update(ids[0] for ids in _lists(path, form))
        lists = enumerate(_lists(path, form), start=1)
        pairs = ((str(n), item) for n, ids in lists for item in ids)
        remark = (
            f"Each of the {n_lines:,} lines was read as a basket of items; users are the "
            "numbers of the lines, because the first ids repeat."
        )
    if not counts:
        raise ItemfoldError(f"{path}: no user has an item")
    _check_repeats(path, counts)
    return pairs, remark


def _lists(path: Path, form: TextFormat) -> Iterator[list[str]]:
    """The ids of each line."""
    for _, fields in records_of(path, form):
        yield [field.strip() for field in fields if field.strip()]


def _check_repeats(path: Path, counts: Counter[str]) -> None:
    """Raise for other texts, such as logs, whose words hardly repeat."""
    total = counts.total()
    repeated = sum(count for count in counts.values() if count > 1)
    if repeated < REPEATED * total and not all(map(str.isdecimal, counts)):
        raise ItemfoldError(
            f"{path}: lines have different numbers of fields, and only {repeated:,} of "
            f"{total:,} ids come more than once; expected a table, or a user and its items on "
            "each line"
        )
