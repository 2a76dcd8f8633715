"""Reader of lists: each line has a user and its items, or the items of one basket."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from itemfold.data.columns import Names, RawTable, object_array
from itemfold.data.readers.packed import encoding_note
from itemfold.data.readers.text_format import Record, TextFormat, records_of
from itemfold.errors import ItemfoldError

REPEATED = 0.1  # share of ids in lists that come more than once
LEAST = 3  # lines from which equal lengths are more than chance


def is_basket_file(form: TextFormat, rows: list[Record]) -> bool:
    """Whether lines are lists: of different lengths, or with the same ids in several columns.

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
    requested = next((role for role, name in names.items() if name is not None), None)
    if skip or requested:
        setting = requested or "skip_bad_rows"
        raise ItemfoldError(
            f"'{setting}' needs a file with columns, and {path} has a list of ids on each line"
        )
    lists = [
        [field.strip() for field in fields if field.strip()] for _, fields in records_of(path, form)
    ]
    heads = [ids[0] for ids in lists]
    if len(set(heads)) == len(heads):
        users = [ids[0] for ids in lists for _ in ids[1:]]
        items = [item for ids in lists for item in ids[1:]]
        remark = f"Each of the {len(lists):,} lines was read as a user and its items."
    else:
        users = [str(n) for n, ids in enumerate(lists, start=1) for _ in ids]
        items = [item for ids in lists for item in ids]
        remark = (
            f"Each of the {len(lists):,} lines was read as a basket of items; users are the "
            "numbers of the lines, because the first ids repeat."
        )
    if not items:
        raise ItemfoldError(f"{path}: no user has an item")
    _check_repeats(path, items)
    return RawTable(
        object_array(users),
        object_array(items),
        ids_are_text=True,
        remarks=(remark, *encoding_note(form.encoding)),
    )


def _check_repeats(path: Path, items: list[str]) -> None:
    """Raise for texts of other kinds, such as logs, whose words hardly repeat."""
    counts = Counter(items)
    repeated = sum(count for count in counts.values() if count > 1)
    if repeated < REPEATED * len(items) and not all(map(str.isdecimal, items)):
        raise ItemfoldError(
            f"{path}: lines have different numbers of fields, and only {repeated:,} of "
            f"{len(items):,} ids come more than once; expected a table, or a user and its items on "
            "each line"
        )
