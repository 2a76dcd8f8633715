"""`read`: files, folders, frames and sparse matrices become `Interactions`, ids mapped once."""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemrec.data.columns import Names, RawTable
from itemrec.data.feedback import FILES, read_feedback
from itemrec.data.id_arrays import text_array
from itemrec.data.interactions import IdMap, Interactions
from itemrec.data.item_features import read_item_features
from itemrec.data.merging import merge_rows
from itemrec.data.prepared import is_prepared, read_prepared
from itemrec.data.readers.delimited import read_delimited
from itemrec.data.readers.file_kinds import is_pattern, kind_of, matching_files
from itemrec.data.readers.frames import arrow_frame, read_frame
from itemrec.data.readers.item_files import Titles, read_titles
from itemrec.data.readers.lightgcn import read_lightgcn
from itemrec.data.readers.parquet import read_parquet, read_parquet_parts
from itemrec.data.weights import Weighting, duration_text
from itemrec.errors import ItemrecError, NoRowsError

FILE_KINDS = ".csv, .tsv, .inter (each also with .gz), .parquet or .jsonl"


def read(
    source: Any,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
    min_rating: float | None = None,
    k_core: int | None = None,
    titles: str | Path | Mapping[Any, str] | None = None,
    item_features: Any = None,
    name: str | None = None,
    skip_bad_rows: bool = False,
    weight: str | int | None = None,
    half_life: str | dt.timedelta | None = None,
    weight_transform: Literal["log", "none"] | None = None,
    duplicates: Literal["merge", "sum"] = "merge",
) -> Interactions:
    """Read interactions from a file, a folder, a table in memory, or a sparse matrix.

    Files may be .csv, .tsv, RecBole .inter (each also .gz) or .parquet; a pattern such as
    "plays/*.parquet" names several parquet files. Folders hold train.txt (and test.txt) as in
    LightGCN, ratings.csv (and movies.csv) as in MovieLens, or parquet files, or were written by
    `prepare`. A table is a pandas or
    polars frame, an Arrow table, a DuckDB relation, or anything else with Arrow's C stream. Of the
    feedback that `itemrec serve` writes, a .jsonl file or its folder, likes and clicks are
    interactions.

    Rows with the same user and item are merged into one pair, counted in `duplicates`: it keeps the
    highest rating and the latest time, and is a training pair if any of its rows is. Then
    `min_rating` is applied, then `k_core`.

    Args:
        source: A path, a pattern, a table, or a sparse matrix of users × items.
        user: Name (or position) of the user column; by default found by common names.
        item: The item column, likewise.
        rating: The rating column, likewise. If it was not requested and cannot be read, it is left
            out and reported in `notes`.
        time: The time column, likewise.
        min_rating: Keep ratings of at least this value.
        k_core: Keep users and items that have at least this many interactions.
        titles: A file with an item and a title column, or a mapping from item id to title.
        item_features: A table of item features, also of items without interactions: a file or a
            frame whose first column, or whose column `item`, has the item ids.
        name: Name of the data in results; the file's name by default.
        skip_bad_rows: Leave out rows of a table without a user or an item, or with an invalid
            value in a column; `skipped` counts them by reason. By default they are an error.
        weight: Name (or position) of a column of positive numbers, such as plays: how much an
            interaction counts. "value" takes the entries of a matrix. By default all count alike.
        half_life: Time after which an interaction counts half, such as "30d" or "1y"; a weight is
            multiplied by it. It needs times.
        weight_transform: "log" makes a weight v log(1 + v), the default; "none" keeps it.
        duplicates: "merge" keeps the highest weight of a pair's rows, "sum" adds them up; a row
            without a weight column counts 1.

    Returns:
        The interactions, with the external ids of the source.

    Raises:
        ItemrecError: The source cannot be read: no such file, an unknown format, a missing column,
            an invalid value.

    Examples:
        >>> import polars as pl
        >>> import scipy.sparse as sp
        >>> import itemrec as ir
        >>> plays = pl.DataFrame({"who": ["ann", "ann", "bob"], "track": ["x", "y", "x"]})
        >>> data = ir.read(plays, user="who", item="track")
        >>> data.user_ids.ids.tolist(), data.items.tolist()
        (['ann', 'bob'], [0, 1, 0])
        >>> ir.read(sp.csr_array([[1, 0, 1], [0, 1, 0]])).users.tolist()
        [0, 0, 1]
    """
    names = {"user": user, "item": item, "rating": rating, "time": time, "weight": weight}
    weighting = Weighting(weight, duration_text(half_life), weight_transform, duplicates)
    titles_file = _titles_file(titles)
    requested = {
        **names,
        **weighting.settings(),
        "min_rating": min_rating,
        "k_core": k_core,
        "titles": titles_file,
    }
    if not isinstance(skip_bad_rows, bool):
        raise ItemrecError(f"'skip_bad_rows' must be true or false, got {skip_bad_rows!r}")
    requested["skip_bad_rows"] = skip_bad_rows or None
    data, adjacent = _read_source(source, names, name, requested, weighting)
    titles_file = titles_file or adjacent
    if titles_file is not None:
        data = _with_titles(data, str(titles_file), read_titles(titles_file))
    elif isinstance(titles, Mapping):
        texts = [str(title) for title in titles.values()]
        data = _with_titles(data, "'titles'", (list(titles), texts, None))
    if min_rating is not None:
        data = data.at_least(min_rating)
    data = data if k_core is None else data.k_core(k_core)
    return data if item_features is None else with_features(data, item_features, item)


def with_features(
    data: Interactions, item_features: Any, item: str | int | None = None
) -> Interactions:
    """The data with a table of item features; a file becomes part of its source."""
    features = read_item_features(item_features, item=None if item is None else str(item))
    if not (data.item_ids.index(features.ids.ids) >= 0).any():
        raise ItemrecError(
            f"'item_features' must have rows of the {data.n_items:,} items of '{data.name}', "
            f"and none of its {len(features):,} ids is one of them"
        )
    source = dict(data.source)
    if isinstance(item_features, str | Path):
        source["item_features"] = str(Path(item_features).expanduser().resolve())
    return replace(data, features=features, source=source)


def _titles_file(titles: Any) -> Path | None:
    """The file with the titles, None for a mapping or if no titles are given."""
    if isinstance(titles, str | Path):
        return Path(titles).expanduser().resolve()
    if titles is not None and not isinstance(titles, Mapping):
        raise ItemrecError(
            "'titles' must be a file, or a mapping from item id to title, "
            f"got {type(titles).__name__}"
        )
    return None


def _read_source(
    source: Any, names: Names, name: str | None, requested: dict[str, Any], weighting: Weighting
) -> tuple[Interactions, Path | None]:
    """Interactions from any kind of source, and the file of titles next to them, if any."""
    skip = bool(requested["skip_bad_rows"])
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        arguments = {
            key: str(value) if isinstance(value, Path) else value
            for key, value in {"data": path.resolve(), **requested}.items()
            if value is not None
        }
        if path.is_dir() and is_prepared(path):
            _check_prepared(path, names, weighting, skip)
            return read_prepared(path, name or short_name(path), arguments), None
        parts = matching_files(path)
        if parts is None:
            table, adjacent = _read_path(path, names, skip)
        else:
            table, adjacent = read_parquet_parts(path, parts, names, skip=skip), None
        return _build(table, None, name or short_name(path), arguments, weighting), adjacent
    if sp.issparse(source):
        if skip:
            _only_for_tables("a matrix")
        table, shape = _from_sparse(source, weighting)
        return _build(table, shape, name or "data", {}, weighting), None
    module = type(source).__module__.split(".")[0]
    of_frames = module in ("pandas", "polars")
    is_frame = of_frames and type(source).__name__ in ("DataFrame", "LazyFrame")
    if is_frame or (hasattr(source, "__arrow_c_stream__") and not of_frames):
        frame = source if is_frame else arrow_frame(source)
        table = read_frame(frame, names, skip=skip)
        return _build(table, None, name or "data", {}, weighting), None
    raise ItemrecError(
        "'source' must be a path, a pandas or polars frame, an Arrow table, a DuckDB relation, or "
        f"a scipy sparse matrix, got {type(source).__name__}"
    )


def _check_prepared(path: Path, names: Names, weighting: Weighting, skip: bool) -> None:
    """Raise if a setting is given that only counts while a folder is prepared."""
    settings = {**names, **weighting.settings(), "skip_bad_rows": skip or None}
    for setting in (name for name, value in settings.items() if value is not None):
        raise ItemrecError(
            f"'{setting}' is for files with rows, {path} is prepared: give it to `itemrec prepare`"
        )


def short_name(path: Path) -> str:
    """The name of data in results: that of its file or its folder.

    >>> short_name(Path("/data/plays/*.parquet")), short_name(Path("plays-2026*.parquet"))
    ('plays', 'plays-2026')
    """
    if is_pattern(path):
        fixed = re.sub(r"[*?\[].*", "", path.name).strip("-_.")
        return fixed or path.resolve().parent.name
    inner = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return inner.stem if path.is_file() else path.resolve().name


def _read_path(path: Path, names: Names, skip: bool) -> tuple[RawTable, Path | None]:
    try:
        if path.is_dir():
            if (path / "train.txt").is_file():
                if skip:
                    _only_for_tables(str(path / "train.txt"))
                return read_lightgcn(path, names), None
            if (path / "ratings.csv").is_file():
                movies = path / "movies.csv"
                table = read_delimited(path / "ratings.csv", names, skip=skip)
                return table, movies if movies.is_file() else None
            if parts := sorted(path.glob("*.parquet")):
                return read_parquet_parts(path, parts, names, skip=skip), None
            if any(path.glob(FILES)):
                return read_feedback(path, skip=skip), None
            raise ItemrecError(
                f"{path}: expected train.txt, ratings.csv, parquet files or {FILES} in the folder"
            )
        if not path.exists():
            raise ItemrecError(f"{path}: no such file or folder")
        if not path.is_file():  # reading a pipe would wait for a writer
            raise ItemrecError(f"{path}: must be a file or a folder, not a pipe or a device")
        if path.name in ("train.txt", "test.txt"):
            raise ItemrecError(f"{path}: give the folder that holds train.txt and test.txt")
        kind = kind_of(path)
        if kind == ".parquet":
            return read_parquet(path, names, skip=skip), None
        if kind in (".csv", ".tsv", ".inter"):
            return read_delimited(path, names, skip=skip), None
        if kind == ".jsonl":
            return read_feedback(path, skip=skip), None
    except OSError as error:
        raise ItemrecError(f"{path}: cannot be read ({error.strerror or error})") from error
    raise ItemrecError(
        f"{path}: unknown kind of file '{path.suffix}'; expected {FILE_KINDS}, "
        "or a folder with train.txt or ratings.csv; save any other table as .csv"
    )


def _only_for_tables(what: str) -> NoReturn:
    raise ItemrecError(f"'skip_bad_rows' is for tables with columns, {what} has none")


def _from_sparse(matrix: Any, weighting: Weighting) -> tuple[RawTable, tuple[int, ...]]:
    coo = sp.coo_array(matrix)
    if coo.ndim != 2:
        raise ItemrecError(f"the matrix: must have two dimensions, got {coo.ndim}")
    if np.iscomplexobj(coo.data):
        raise ItemrecError("the matrix: entries must be real numbers, got complex ones")
    nonzero = coo.data != 0
    values = np.asarray(coo.data[nonzero], dtype=np.float64)
    if not np.isfinite(values).all():
        raise ItemrecError("the matrix: entries must be finite numbers")
    if not len(values):
        raise NoRowsError("the matrix: has no entries")
    users, items = coo.coords[0][nonzero].astype(np.int64), coo.coords[1][nonzero].astype(np.int64)
    rating = None if (values == 1).all() else values
    if weighting.column is None:
        return RawTable(users, items, rating=rating), coo.shape
    if weighting.column != "value":
        raise ItemrecError(f"'weight' must be 'value' for a matrix, got {weighting.column!r}")
    if (values < 0).any():
        raise ItemrecError(f"the matrix: weights must be positive numbers, got {values.min():g}")
    return RawTable(users, items, rating=rating, weight=values), coo.shape


def _factorise(values: npt.NDArray[Any], text: bool) -> tuple[IdMap, npt.NDArray[np.int64]]:
    """Sorted ids and the row of each value; text ids that are all integers become int."""
    if values.dtype.kind in "iu":
        unique, codes = np.unique(values, return_inverse=True)
        return IdMap(unique), codes.reshape(-1)
    listed = values.tolist()
    stripped = {value: value.strip() for value in dict.fromkeys(listed)}
    unique_text = sorted(set(stripped.values()))
    ids: npt.NDArray[Any]
    if text and all(_is_plain_int(v) for v in unique_text):  # "007" stays text
        unique_text.sort(key=int)
        ids = np.array([int(v) for v in unique_text], dtype=np.int64)
    else:
        ids = text_array(unique_text)
    row = {value: n for n, value in enumerate(unique_text)}
    row_of = {value: row[short] for value, short in stripped.items()}
    return IdMap(ids), np.fromiter(map(row_of.__getitem__, listed), np.int64, len(listed))


def _is_plain_int(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19 and str(int(text)) == text


def _build(
    table: RawTable,
    shape: tuple[int, ...] | None,
    name: str,
    source: dict[str, Any],
    weighting: Weighting,
) -> Interactions:
    """Map the ids and merge duplicates."""
    if shape is None:
        user_ids, users = _factorise(table.user, table.ids_are_text)
        item_ids, items = _factorise(table.item, table.ids_are_text)
    else:  # a matrix keeps all rows and columns, including empty ones
        user_ids, item_ids = IdMap(np.arange(shape[0])), IdMap(np.arange(shape[1]))
        users, items = table.user, table.item
    if max(len(user_ids), len(item_ids)) >= 2**31:
        raise ItemrecError(f"{name}: at most 2**31 users and items are supported")
    check_recency(table, weighting, name)
    pairs = merge_rows(users, items, len(item_ids), table, weighting)
    return Interactions(
        users=pairs.users,
        items=pairs.items,
        user_ids=user_ids,
        item_ids=item_ids,
        ratings=pairs.ratings,
        times=pairs.times,
        held_out=pairs.held_out,
        weights=pairs.weights,
        weighting=str(weighting),
        name=name,
        duplicates=pairs.duplicates,
        source=source,
        left_out=table.left_out,
        skipped=table.skipped,
    )


def check_recency(table: RawTable, weighting: Weighting, name: str) -> None:
    """Raise if recency is asked for and there are no times."""
    if weighting.half_life is not None and table.time is None:
        none = f"'half_life' needs timestamps, and {name!r} has none"
        raise ItemrecError(table.left_out.get("time", none))


def _with_titles(data: Interactions, place: str, found: Titles) -> Interactions:
    ids, titles, genres = found
    rows = data.item_ids.index(ids)
    known = rows >= 0
    if not known.any():
        none = f"0 of {data.n_items:,} items have a title in {place}"
        return replace(data, left_out={**data.left_out, "title": none})

    def aligned(values: Sequence[str]) -> npt.NDArray[Any]:
        out = np.full(data.n_items, "", dtype=object)
        out[rows[known]] = np.array(values, dtype=object)[known]
        return text_array(out.tolist())

    return replace(
        data,
        titles=aligned(titles),
        genres=aligned(genres) if genres is not None and any(genres) else None,
    )
