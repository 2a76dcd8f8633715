"""Files and frames to columns: one function per format; every error names file and line."""

import csv
import gzip
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, TextIO

import numpy as np
import numpy.typing as npt

from itemrec.data.bad_rows import find_problems, kept_rows
from itemrec.data.columns import KNOWN_NAMES, Names, RawTable, choose_columns, plain_name, table_of
from itemrec.errors import ItemrecError, NoRowsError


def read_frame(
    frame: Any, names: Names, place: str = "the frame", *, skip: bool = False
) -> RawTable:
    """Columns of a pandas or polars frame; with `skip`, rows that cannot be used are left out."""
    if type(frame).__name__ == "LazyFrame":
        frame = frame.collect()
    if len(frame) == 0:
        raise NoRowsError(f"{place}: has no rows")
    columns = [str(c) for c in frame.columns]
    at = choose_columns(columns, names, place)
    real = list(frame.columns)

    def where(row: int) -> str:
        return f"{place}, row {row + 1}"

    def table(rows: Any) -> RawTable:
        return table_of(lambda j: rows[real[j]], at, where, text=False, names=names)

    def without_bad_rows() -> RawTable | None:
        values = {role: frame[real[at[role]]].to_list() for role in _used(at, names, skip)}
        bad = find_problems(values)
        if not bad:
            return None
        keep, skipped = kept_rows(bad, len(frame), place, where, skip=skip)
        kept = frame.filter(keep.tolist()) if hasattr(frame, "with_columns") else frame[keep]
        return replace(table(kept), skipped=skipped)

    return _salvaged(lambda: table(frame), without_bad_rows)


def _used(at: dict[str, int], names: Names, skip: bool) -> list[str]:
    """The roles whose values must be good: a column that was not requested may be left out."""
    return [r for r in at if skip or r in ("user", "item") or names.get(r) is not None]


def _salvaged(
    strict: Callable[[], RawTable], without_bad_rows: Callable[[], RawTable | None]
) -> RawTable:
    """What `strict` reads; if it cannot, the table without bad rows, where these are the reason."""
    try:
        table = strict()
    except ItemrecError:
        if (kept := without_bad_rows()) is None:
            raise
        return kept
    return (without_bad_rows() or table) if table.left_out else table


# ------------------------------------------------------------------ delimited text and parquet


def kind_of(path: Path) -> str:
    """The suffix that determines a file's format, ignoring case and compression.

    >>> kind_of(Path("Plays.CSV")), kind_of(Path("plays.csv.gz"))
    ('.csv', '.csv')
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _open(path: Path, **options: Any) -> TextIO:
    unpack: Callable[..., TextIO] = gzip.open if path.name.lower().endswith(".gz") else open
    return unpack(path, "rt", encoding="utf-8-sig", **options)


def _load(path: Path, **csv_options: Any) -> Any:
    """A polars frame, or a pandas one where polars is not installed."""
    text = csv_options.pop("text", [])
    try:
        import polars as pl
    except ImportError:
        import pandas as pd

        if kind_of(path) == ".parquet":
            return pd.read_parquet(path)
        quoting = csv.QUOTE_MINIMAL if csv_options["quotes"] else csv.QUOTE_NONE
        return pd.read_csv(
            path, sep=csv_options["sep"], quoting=quoting, dtype=dict.fromkeys(text, str),
            keep_default_na=False, na_values=[""], low_memory=False, encoding="utf-8-sig",
            index_col=False,
        ).dropna(how="all")  # fmt: skip
    if kind_of(path) == ".parquet":
        return pl.read_parquet(path, glob=False)
    frame = pl.read_csv(
        path, separator=csv_options["sep"], quote_char='"' if csv_options["quotes"] else None,
        schema_overrides=dict.fromkeys(text, pl.String), infer_schema_length=None, glob=False,
    )  # fmt: skip
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines


def read_parquet(path: Path, names: Names, *, skip: bool = False) -> RawTable:
    """Columns of a parquet file."""
    return read_frame(_parquet(path), names, str(path), skip=skip)


def is_pattern(path: Path) -> bool:
    """Whether a path names several files, as plays/*.parquet does, and no file of that name.

    >>> is_pattern(Path("plays/*.parquet")), is_pattern(Path("plays.parquet"))
    (True, False)
    """
    return bool(re.search(r"[*?\[]", path.name)) and not path.exists()


def matching_files(path: Path) -> list[Path] | None:
    """The files of a pattern, sorted; None if the path is not a pattern."""
    if not is_pattern(path):
        return None
    if kind_of(path) != ".parquet":
        raise ItemrecError(f"{path}: a pattern must end in .parquet, to name parquet files")
    found = sorted(file for file in path.parent.glob(path.name) if file.is_file())
    if not found:
        raise ItemrecError(f"{path}: no file matches this pattern")
    return found


def read_parquet_parts(
    place: Path, parts: list[Path], names: Names, *, skip: bool = False
) -> RawTable:
    """Columns of several parquet files, one below the other; all must have the same columns."""
    frames = [_parquet(part) for part in parts]
    first = list(frames[0].columns)
    for part, frame in zip(parts, frames, strict=True):
        if set(frame.columns) != set(first):
            listed = ", ".join(map(str, first))
            raise ItemrecError(f"{part}: expected the columns of {parts[0].name}, {listed}")
        for column in first:
            if _is_text(frame[column]) != _is_text(frames[0][column]):
                problem = f"text in this file or in {parts[0].name}, but not in both"
                raise ItemrecError(f"{part}: column '{column}' is {problem}")
    try:
        whole = _stacked([frame[first] for frame in frames])
    except Exception as error:  # each engine raises its own types
        problem = f"{place}: a column has different types in these files ({_first(error)})"
        raise ItemrecError(problem) from error
    return read_frame(whole, names, str(place), skip=skip)


def _is_text(column: Any) -> bool:
    return str(column.dtype).lower() in ("string", "str", "object", "categorical")


def _stacked(frames: list[Any]) -> Any:
    if hasattr(frames[0], "with_columns"):
        import polars as pl

        return pl.concat(frames, how="vertical_relaxed")
    import pandas as pd

    return pd.concat(frames, ignore_index=True)


def arrow_frame(table: Any) -> Any:
    """A frame from anything with Arrow's C stream: a pyarrow table or reader, a DuckDB relation."""
    try:
        import polars as pl
    except ImportError:
        import pyarrow as pa

        return pa.table(table).to_pandas()
    return pl.DataFrame(table)


def check_parquet(path: Path) -> None:
    """Raise if a file is not a parquet file, or only the beginning of one."""
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(max(0, path.stat().st_size - 4))
        tail = file.read(4)
    if head != b"PAR1":
        raise ItemrecError(f"{path}: not a parquet file (it does not begin with PAR1)")
    if tail != b"PAR1":
        raise ItemrecError(f"{path}: the parquet file is truncated (it does not end with PAR1)")


def _parquet(path: Path) -> Any:
    check_parquet(path)
    try:
        return _load(path)
    except Exception as error:  # each engine raises its own types
        raise ItemrecError(f"{path}: the parquet file is damaged ({_first(error)})") from error


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


def _records(path: Path, sep: str, quotes: bool) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of every line that is not blank; slow, for headers and error messages."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    csv.field_size_limit(1 << 30)
    try:
        with _open(path, newline="") as file:
            reader = csv.reader(file, delimiter=sep, quoting=quoting)
            for fields in reader:
                if any(fields):
                    yield reader.line_num, fields
    except UnicodeDecodeError as error:
        raise ItemrecError(f"{path}: expected UTF-8 text ({_first(error)})") from error
    except (csv.Error, EOFError) as error:  # EOFError: a truncated .gz
        raise ItemrecError(f"{path}: expected delimited text ({_first(error)})") from error


def _separator(path: Path) -> str:
    """A tab, or the most frequent separator in the first line of a .csv file."""
    if kind_of(path) in (".tsv", ".inter", ".item"):
        return "\t"
    with _open(path, errors="replace") as file:
        first = file.readline()
    return max(",;\t|", key=first.count)  # the comma wins ties


@dataclass(frozen=True)
class Header:
    """The first line of a text file: its columns, the position of each role, and the format."""

    line: int
    columns: list[str]
    at: dict[str, int]  # role → position
    sep: str
    quotes: bool

    @property
    def shown(self) -> str:
        """The separator in a sentence."""
        return {"\t": "a tab"}.get(self.sep, f"'{self.sep}'")

    def ragged(self, fields: list[str]) -> str:
        """The problem of a row that has not as many fields as the header, or an empty string."""
        if len(fields) == len(self.columns):
            return ""
        return (
            f"expected {len(self.columns)} fields separated by {self.shown}, as in the header, "
            f"found {len(fields)}: {self.sep.join(fields)[:60]!r}"
        )


def read_header(path: Path, names: Names, more: Sequence[str] = ()) -> Header:
    """The header of a text file; roles may also be found in ``more`` columns, which follow."""
    sep, quotes = _separator(path), kind_of(path) != ".inter"
    first = next(_records(path, sep, quotes), None)
    if first is None:
        raise ItemrecError(f"{path}: the file is empty; expected a header line and rows")
    line, columns = first
    header = Header(line, columns, {}, sep, quotes)
    if len(columns) == 1:
        raise ItemrecError(
            f"{path}, line {line}: expected columns separated by {header.shown}, "
            f"found one column: {columns[0][:60]!r}"
        )
    try:
        return replace(header, at=choose_columns([*columns, *more], names, str(path)))
    except ItemrecError as error:
        if not _looks_like_data(columns):
            raise
        hint = f"line {line} looks like data, not column names: add a header line"
        raise ItemrecError(f"{error}; {hint}") from error


def text_records(path: Path, header: Header) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of every row below the header that is not blank."""
    records = _records(path, header.sep, header.quotes)
    next(records, None)
    return records


def read_delimited(path: Path, names: Names, *, skip: bool = False) -> RawTable:
    """Columns of a .csv, .tsv or RecBole .inter file with a header line."""
    header = read_header(path, names)
    columns, at, sep, quotes = header.columns, header.at, header.sep, header.quotes

    def where(row: int) -> str:
        for n, (line, _) in enumerate(_records(path, sep, quotes)):
            if n == row + 1:
                return f"{path}, line {line}"
        return f"{path}, row {row + 1}"

    def strict() -> RawTable:
        text = [columns[at["user"]], columns[at["item"]]]
        try:
            frame = _load(path, sep=sep, quotes=quotes, text=text)
        except Exception as error:  # each engine raises its own types
            problem = f"{path}: not readable as text separated by {header.shown} ({_first(error)})"
            raise ItemrecError(problem) from error
        if len(frame) == 0:
            raise NoRowsError(f"{path}: the file has a header but no rows")
        real = list(frame.columns)
        return table_of(lambda j: frame[real[j]], at, where, text=True, names=names)

    def without_bad_rows() -> RawTable | None:
        rows = [fields for _, fields in text_records(path, header)]
        ragged = {row: why for row, fields in enumerate(rows) if (why := header.ragged(fields))}
        whole = [fields if row not in ragged else columns for row, fields in enumerate(rows)]
        used = _used(at, names, skip)
        bad = find_problems({r: [f[at[r]] for f in whole] for r in used}, ragged)
        if not bad:
            return None
        keep, skipped = kept_rows(bad, len(rows), str(path), where, skip=skip)
        kept = [fields for fields, good in zip(rows, keep, strict=True) if good]

        def column(position: int) -> npt.NDArray[Any]:
            return np.array([fields[position] for fields in kept], dtype=object)

        return replace(table_of(column, at, where, text=True, names=names), skipped=skipped)

    return _salvaged(strict, without_bad_rows)


def _looks_like_data(columns: list[str]) -> bool:
    """Whether no column has a known name and some names are numbers."""
    known = {name for names in KNOWN_NAMES.values() for name in names}
    numbers = (column.strip().removeprefix("-").replace(".", "", 1) for column in columns)
    return not known & set(map(plain_name, columns)) and any(map(str.isdecimal, numbers))


# ------------------------------------------------------------------ LightGCN folders


def read_adjacency(path: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(users, items) of a LightGCN file: one line per user, `user item item …`, ids ≥ 0."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise ItemrecError(f"{path}: the file is empty; expected lines 'user item item …'")
    if data.translate(None, b"0123456789 \t\r\n"):
        _raise_bad_id(path, data)
    raw = np.frombuffer(data, dtype=np.uint8)
    digit = raw >= 48  # every remaining byte below '0' is white space
    starts = np.flatnonzero(digit & ~np.concatenate(([False], digit[:-1])))  # [tokens]
    ends = np.flatnonzero(digit & ~np.concatenate((digit[1:], [False])))
    if (ends - starts).max() >= 18:
        _raise_bad_id(path, data)
    values = np.fromstring(data.decode("ascii"), dtype=np.int64, sep=" ")  # [tokens]
    line = np.searchsorted(np.flatnonzero(raw == 10), starts)  # [tokens], from 0
    first = np.concatenate(([True], line[1:] != line[:-1]))
    heads = values[first]
    unique, counts = np.unique(heads, return_counts=True)
    if len(unique) != len(heads):
        user = unique[counts.argmax()]
        lines = line[first][heads == user][:2] + 1
        raise ItemrecError(
            f"{path}, line {lines[1]}: user {user} already has line {lines[0]}; "
            "expected one line per user"
        )
    per_line = np.diff(np.flatnonzero(np.concatenate((first, [True])))) - 1
    return np.repeat(heads, per_line), values[~first]


def _raise_bad_id(path: Path, data: bytes) -> NoReturn:
    for number, text in enumerate(io.BytesIO(data), start=1):
        for token in text.split():
            if not token.isdigit() or len(token) > 18:
                shown = token.decode("utf-8", "replace")[:40]
                raise ItemrecError(
                    f"{path}, line {number}: expected non-negative integer ids separated by "
                    f"spaces, got '{shown}'"
                )
    raise ItemrecError(f"{path}: expected non-negative integer ids separated by spaces")


def read_lightgcn(folder: Path, names: Names) -> RawTable:
    """Read a folder with train.txt and optionally test.txt, whose pairs are held out."""
    for role in (role for role, requested in names.items() if requested is not None):
        raise ItemrecError(f"'{role}' is for files with columns, {folder / 'train.txt'} has none")
    users, items = read_adjacency(folder / "train.txt")
    if len(users) == 0:
        raise ItemrecError(f"{folder / 'train.txt'}: no user has an item")
    if not (folder / "test.txt").exists():
        return RawTable(users, items)
    test_users, test_items = read_adjacency(folder / "test.txt")
    held_out = np.zeros(len(users) + len(test_users), dtype=np.bool_)
    held_out[len(users) :] = True
    return RawTable(
        np.concatenate((users, test_users)), np.concatenate((items, test_items)), held_out=held_out
    )


# ------------------------------------------------------------------ titles

Titles = tuple[list[Any], list[str], list[str] | None]  # item ids, titles, genres


def text_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of a text or parquet file, starting with the column names."""
    if kind_of(path) != ".parquet":
        yield from _records(path, _separator(path), quotes=True)
        return
    frame = _parquet(path)
    yield 0, [str(column) for column in frame.columns]
    columns = (frame[column].to_list() for column in frame.columns)
    for row, values in enumerate(zip(*columns, strict=True), start=1):
        whole = (int(v) if isinstance(v, float) and v.is_integer() else v for v in values)
        yield row, ["" if v is None or v != v else str(v) for v in whole]


def read_columns(path: Path) -> dict[str, list[Any]]:
    """All columns of a text or parquet file by name; the values of a text file are texts."""
    if kind_of(path) == ".parquet":
        frame = _parquet(path)
        return {str(column): frame[column].to_list() for column in frame.columns}
    records = _records(path, _separator(path), quotes=kind_of(path) != ".item")
    names = next(records, (0, []))[1]
    if len(set(names)) < len(names):
        raise ItemrecError(f"{path}: every column must have a name of its own, got {names}")
    rows = []
    for line, fields in records:
        if len(fields) != len(names):
            raise ItemrecError(
                f"{path}, line {line}: expected {len(names)} fields, found {len(fields)}"
            )
        rows.append(fields)
    if not rows:
        raise ItemrecError(f"{path}: expected a header line and rows")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def read_titles(path: Path) -> Titles:
    """(item ids, titles, genres) of a file with a header, such as movies.csv, or of parquet."""
    if not path.is_file():
        raise ItemrecError(f"'titles' must be an existing file, got '{path}'")
    records = text_rows(path)
    columns = [c.split(":")[0] for c in next(records, (0, [""]))[1]]
    plain = [plain_name(c) for c in columns]

    def first(*names: str) -> int | None:
        return next((plain.index(name) for name in names if name in plain), None)

    item, title = first(*KNOWN_NAMES["item"], "id"), first("title", "name", "movietitle")
    if item is None or title is None or item == title:
        raise ItemrecError(
            f"{path}: expected an item column and a title column; "
            f"columns found: {', '.join(columns)}"
        )
    genre = first("genres", "genre", "category")
    ids, titles, genres = [], [], []
    for line, fields in records:
        if len(fields) != len(columns):
            raise ItemrecError(
                f"{path}, line {line}: expected {len(columns)} fields, found {len(fields)}"
            )
        ids.append(fields[item].strip())
        titles.append(fields[title].strip())
        shown = fields[genre].strip() if genre is not None else ""
        genres.append("" if shown == "(no genres listed)" else shown)
    return ids, titles, genres
