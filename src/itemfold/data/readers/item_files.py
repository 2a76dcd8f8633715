"""Readers of files with a row for each item: titles and genres, or columns of any name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from itemfold.data.columns import KNOWN_NAMES, plain_name
from itemfold.data.readers.delimited import kind_of, records_of, separator_of
from itemfold.data.readers.parquet import load_parquet
from itemfold.errors import ItemfoldError

Titles = tuple[list[Any], list[str], list[str] | None]  # item ids, titles, genres


def read_titles(path: Path) -> Titles:
    """Read item ids, titles and genres from a parquet file or a text file such as movies.csv."""
    if not path.is_file():
        raise ItemfoldError(f"'titles' must be an existing file, got '{path}'")
    records = text_rows(path)
    columns = [c.split(":")[0] for c in next(records, (0, [""]))[1]]
    plain = [plain_name(c) for c in columns]

    def first(*names: str) -> int | None:
        return next((plain.index(name) for name in names if name in plain), None)

    item, title = first(*KNOWN_NAMES["item"], "id"), first("title", "name", "movietitle")
    if item is None or title is None or item == title:
        raise ItemfoldError(
            f"{path}: expected an item column and a title column; "
            f"columns found: {', '.join(columns)}"
        )
    genre = first("genres", "genre", "category")
    ids, titles, genres = [], [], []
    for _, fields in records:
        ids.append(fields[item].strip())
        titles.append(fields[title].strip())
        shown = fields[genre].strip() if genre is not None else ""
        genres.append("" if shown == "(no genres listed)" else shown)
    return ids, titles, genres


def text_rows(path: Path, *, quotes: bool = True) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of a text or parquet file as text, starting with the column names.

    Every row of a text file must have as many fields as there are names.
    """
    if kind_of(path) != ".parquet":
        width = None
        for line, fields in records_of(path, separator_of(path), quotes=quotes):
            width = len(fields) if width is None else width
            if len(fields) != width:
                raise ItemfoldError(
                    f"{path}, line {line}: expected {width} fields, found {len(fields)}"
                )
            yield line, fields
        return
    frame = load_parquet(path)
    yield 0, [str(column) for column in frame.columns]
    columns = (frame[column].to_list() for column in frame.columns)
    for row, values in enumerate(zip(*columns, strict=True), start=1):
        whole = (int(v) if isinstance(v, float) and v.is_integer() else v for v in values)
        yield row, ["" if v is None or v != v else str(v) for v in whole]


def read_columns(path: Path) -> dict[str, list[Any]]:
    """Read all columns of a text or parquet file by name; values of a text file are texts."""
    if kind_of(path) == ".parquet":
        frame = load_parquet(path)
        return {str(column): frame[column].to_list() for column in frame.columns}
    records = text_rows(path, quotes=kind_of(path) != ".item")
    names = next(records, (0, []))[1]
    if len(set(names)) < len(names):
        raise ItemfoldError(f"{path}: every column must have a unique name, got {names}")
    rows = [fields for _, fields in records]
    if not rows:
        raise ItemfoldError(f"{path}: expected a header line and rows")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
