"""Readers of files with a row for each item: titles and genres, or columns of any name."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from itemfold.data.columns.column_guess import (
    candidates,
    is_number,
    listed_columns,
    plain_name,
    untyped,
)
from itemfold.data.columns.column_words import KNOWN_NAMES
from itemfold.data.readers.json_table import is_json, open_json
from itemfold.data.readers.packed import checked_encoding
from itemfold.data.readers.parquet import is_parquet, load_parquet
from itemfold.data.readers.text_format import SAMPLE, records_of, sniff
from itemfold.errors import ItemfoldError

Titles = tuple[list[Any], list[str], list[str] | None]  # item ids, titles, genres
TITLE_OPTIONS = {"item": "--title-id-col", "title": "--title-col"}
ACCEPTED = (
    "an id column such as item_id, movieId, game_id or id, and a title column such as title, name "
    "or game_name"
)


def read_titles(path: Path, item: str | None = None, title: str | None = None) -> Titles:
    """Read item ids, titles and genres from a table such as movies.csv.

    Args:
        path: The file.
        item: Name of the id column; default: a guess by the names of the columns.
        title: Name of the title column, likewise.
    """
    if not path.is_file():
        raise ItemfoldError(f"'titles' must be an existing file, got '{path}'")
    columns, rows = text_table(path)
    at = title_columns(path, columns, rows[:SAMPLE], item, title)
    genre = at.get("genre")
    ids, titles, genres = [], [], []
    for fields in rows:
        ids.append(fields[at["item"]].strip())
        titles.append(fields[at["title"]].strip())
        shown = fields[genre].strip() if genre is not None else ""
        genres.append("" if shown == "(no genres listed)" else shown)
    return ids, titles, genres


def titles_of_frame(
    frame: Any, item: str | None = None, title: str | None = None
) -> dict[Any, str]:
    """The title of each item id in a pandas or polars frame; the columns are named or guessed."""
    frame = frame.collect() if type(frame).__name__ == "LazyFrame" else frame
    columns = list(frame.columns)
    at = title_columns("'titles'", [str(column) for column in columns], [], item, title)
    pairs = zip(*(frame[columns[at[role]]].to_list() for role in ("item", "title")), strict=True)
    return {key: str(text) for key, text in pairs if text is not None and text == text}


def has_titles(path: Path) -> bool:
    """Whether a table has a column of item ids and one of titles, by their names."""
    try:
        columns = next(text_rows(path), (0, [""]))[1]
        return bool(title_columns(path, columns, [], None, None))
    except ItemfoldError:
        return False


def title_columns(
    path: Path | str, columns: list[str], rows: list[list[str]], item: str | None, title: str | None
) -> dict[str, int]:
    """Positions of the ids, the titles and the genres."""
    names = [untyped(column) for column in columns]
    found: dict[str, int] = {}
    if columns == [str(n) for n in range(1, len(columns) + 1)]:  # no header
        found = _by_content(rows, len(columns))
    for role, asked in (("item", item), ("title", title), ("genre", None)):
        if asked is not None:
            if asked not in names:
                raise ItemfoldError(
                    f"{path}: no column '{asked}', as named with {TITLE_OPTIONS[role]}; columns "
                    f"found: {listed_columns(names)}"
                )
            found[role] = names.index(asked)
        elif role not in found and (hits := _guessed(names, role, set(found.values()))):
            if len(hits) > 1 and role != "genre":
                several = " or ".join(names[j] for j in hits)
                raise ItemfoldError(
                    f"{path}: no {role} column is certain, it could be {several}; name it with "
                    f"{TITLE_OPTIONS[role]}"
                )
            found[role] = hits[0]
    if "item" not in found or "title" not in found or found["item"] == found["title"]:
        raise ItemfoldError(
            f"{path}: expected an item column and a title column; columns found: "
            f"{listed_columns(names)}; expected {ACCEPTED}, or name them with --title-id-col and "
            "--title-col"
        )
    return found


def _guessed(names: list[str], role: str, used: set[int]) -> list[int]:
    """The columns that match a role by their names."""
    if role == "item":
        at = item_column(names)
        return candidates(names, role) if at is None else [at]
    hits = [j for j in candidates(names, role) if j not in used]
    if role == "title" and len(hits) > 1:  # a name of the item goes before others
        of_items = [j for j in hits if candidates([names[j]], "item")]
        hits = of_items or hits
    return hits


def item_column(names: Sequence[str]) -> int | None:
    """The column of item ids in a table of items, by its name; None if there is none or several.

    >>> item_column(["Game_ID", "Game Name"]), item_column(["id", "colour"]), item_column(["a"])
    (0, 0, None)
    """
    short = [untyped(name) for name in names]
    plain = [plain_name(name) for name in short]
    if known := [plain.index(name) for name in (*KNOWN_NAMES["item"], "id") if name in plain]:
        return known[0]
    hits = candidates(short, "item")
    return hits[0] if len(hits) == 1 else None


def _by_content(rows: list[list[str]], width: int) -> dict[str, int]:
    """Ids in the first column, titles in the first column of texts, genres in one with ``|``."""
    texts = [
        j
        for j in range(1, width)
        if not all(is_number(row[j]) or not row[j].strip() for row in rows)
    ]
    found = {"item": 0, "title": texts[0]} if texts else {}
    several = [j for j in texts[1:] if sum("|" in row[j] for row in rows) > len(rows) / 4]
    return {**found, "genre": several[0]} if several else found


def text_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names of the columns of a table and its rows, as text; without a header 1, 2, …"""
    records = text_rows(path)
    columns = next(records, (0, [""]))[1]
    return columns, [fields for _, fields in records]


def text_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of any table as text, starting with the column names.

    Every row of a text file must have as many fields as there are names.
    """
    if is_parquet(path):
        frame = load_parquet(path)
        yield 0, [str(column) for column in frame.columns]
        columns = (frame[column].to_list() for column in frame.columns)
        for row, values in enumerate(zip(*columns, strict=True), start=1):
            yield row, [_text(value) for value in values]
        return
    if is_json(path):
        rows = open_json(path)
        yield 0, rows.names
        for n, (_, content) in enumerate(rows, start=1):
            yield n, [_text(content.get(name)) for name in rows.names]
        return
    form, first = sniff(path)
    form = replace(form, encoding=checked_encoding(path, form.encoding))
    width = len(first[0][1])
    if not form.header:
        yield 0, [str(n) for n in range(1, width + 1)]
    for line, fields in records_of(path, form):
        if len(fields) != width:
            raise ItemfoldError(
                f"{path}, line {line}: expected {width} fields, found {len(fields)}"
            )
        yield line, fields


def _text(value: Any) -> str:
    """A value of a table as text; a missing value is empty, lists are joined by ``|``."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, list | tuple):
        return "|".join(map(str, value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_columns(path: Path) -> dict[str, list[Any]]:
    """Read all columns of a text or parquet file by name; values of a text file are texts."""
    if is_parquet(path):
        frame = load_parquet(path)
        return {str(column): frame[column].to_list() for column in frame.columns}
    names, rows = text_table(path)
    if len(set(names)) < len(names):
        raise ItemfoldError(f"{path}: every column must have a unique name, got {names}")
    if not rows:
        raise ItemfoldError(f"{path}: expected a header line and rows")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
