"""`read`: interactions from files, folders, frames and sparse matrices."""

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.columns.choice import Names
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.feedback.reading import read_feedback
from itemfold.data.feedback.store import is_postgres
from itemfold.data.id_arrays import text_array
from itemfold.data.interactions import Interactions
from itemfold.data.items.item_features import read_item_features
from itemfold.data.items.item_files import Titles, read_titles, titles_of_frame
from itemfold.data.merging import to_interactions
from itemfold.data.preparing.prepared import is_prepared, read_prepared
from itemfold.data.readers.files import RowRules, read_path, short_name
from itemfold.data.readers.frames import arrow_frame, read_frame
from itemfold.data.readers.remote import is_address, local_copy
from itemfold.data.weights import Weighting, duration_text
from itemfold.errors import ItemfoldError, NoRowsError


def read(
    source: Any,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
    min_rating: float | None = None,
    k_core: int | None = None,
    titles: Any = None,
    item_features: Any = None,
    name: str | None = None,
    skip_bad_rows: bool = False,
    weight: str | int | None = None,
    half_life: str | dt.timedelta | None = None,
    weight_transform: Literal["log", "none"] | None = None,
    duplicates: Literal["merge", "sum"] = "merge",
    header: bool | None = None,
    title: str | None = None,
    title_id: str | None = None,
) -> Interactions:
    """Read interactions from a file, a folder, a table in memory, or a sparse matrix.

    The content of a file, not its suffix, determines its format: text with any usual separator,
    with or without a header line, UTF-8, UTF-16, Windows-1252 or Latin-1; JSON with an object for
    each row, in an array or on lines, or with the items of each user; a matrix of ratings; lines of
    a user and its items; parquet. Text may be compressed (.gz, .zst, .zip). A pattern such as
    "plays/*.csv" names several files, an address such as "s3://bucket/plays.parquet" a file in a
    store that fsspec knows.

    A folder holds train.txt (and test.txt) as in LightGCN, ratings.csv, ratings.dat or u.data
    (and the titles beside it) as in MovieLens, tables with the same columns, a published split by
    users (see `read_user_split`), or the output of `prepare`. A table in memory is a pandas or
    polars frame, an Arrow table, a DuckDB relation, or anything else with Arrow's C stream.
    Feedback that `itemfold serve` stored is read, too, from a .jsonl file or its folder, a SQLite
    file, or "postgres", the database of DATABASE_URL: its likes and clicks are interactions.

    Rows with the same user and item are merged into one pair and counted in `duplicates`. The pair
    keeps the highest rating and the latest time; it is a training pair if any of its rows is. Then
    `min_rating` is applied, then `k_core`.

    Args:
        source: A path, a pattern, an address, a table, or a sparse matrix of users × items.
        user: Name of the user column; default: a guess by the names and values of the columns.
            The columns of a file without a header line are called "1", "2", …
        item: The item column, likewise.
        rating: The rating column, likewise. A column that was not requested and cannot be read is
            left out and reported in `notes`.
        time: The time column, likewise.
        min_rating: Keep ratings of at least this value.
        k_core: Keep users and items with at least this many interactions.
        titles: A file or a pandas or polars frame with an item and a title column, or a mapping
            from item id to title.
        item_features: A table of item features: a file or a frame whose column `item`, or else
            first column, has the item ids. It may have items without interactions.
        name: Name of the data in results; default: the file's name.
        skip_bad_rows: Leave out rows with a missing user or item, or an invalid value; `skipped`
            counts them by reason. By default they raise an error.
        weight: Name of a column of positive numbers, such as plays, that weights each
            interaction; "value" takes the entries of a matrix. Default: equal weights.
        half_life: Time after which the weight of an interaction halves, such as "30d" or "1y";
            needs times.
        weight_transform: "log" turns a weight v into log(1 + v), the default; "none" keeps it.
        duplicates: "merge" keeps the highest weight of a pair's rows, "sum" adds them up; without a
            weight column each row counts 1.
        header: Whether the first line of a text file has the names of its columns; default:
            recognised by its content.
        title: Name of the title column in `titles`; default: a guess by the names.
        title_id: Name of the column with item ids in `titles`, likewise.

    Returns:
        The interactions, with the external ids of the source.

    Raises:
        ItemfoldError: The source cannot be read: no such file, an unknown format, a missing column,
            an invalid value.

    Examples:
        >>> import polars as pl
        >>> import scipy.sparse as sp
        >>> import itemfold as ir
        >>> plays = pl.DataFrame({"who": ["ann", "ann", "bob"], "track": ["x", "y", "x"]})
        >>> data = ir.read(plays, user="who", item="track")
        >>> data.user_ids.ids.tolist(), data.items.tolist()
        (['ann', 'bob'], [0, 1, 0])
        >>> ir.read(sp.csr_array([[1, 0, 1], [0, 1, 0]])).users.tolist()
        [0, 0, 1]
    """
    names = {"user": user, "item": item, "rating": rating, "time": time, "weight": weight}
    weighting = Weighting(weight, duration_text(half_life), weight_transform, duplicates)
    titles_file = Path(titles).expanduser().resolve() if isinstance(titles, str | Path) else None
    is_frame = hasattr(titles, "columns")
    if is_frame:
        titles = titles_of_frame(titles, title_id, title)
    if titles_file is None and not isinstance(titles, Mapping | None):
        raise ItemfoldError(
            "'titles' must be a file, a frame, or a mapping from item id to title, "
            f"got {type(titles).__name__}"
        )
    if not isinstance(skip_bad_rows, bool):
        raise ItemfoldError(f"'skip_bad_rows' must be true or false, got {skip_bad_rows!r}")
    if header not in (None, True, False):
        raise ItemfoldError(f"'header' must be true or false, got {header!r}")
    for key, value in {"title": title, "title_id": title_id}.items():
        if value is not None and titles_file is None and not is_frame:
            raise ItemfoldError(f"'{key}' needs a file of titles; name it with 'titles'")
    requested = {
        **names,
        **weighting.settings(),
        "min_rating": min_rating,
        "k_core": k_core,
        "titles": titles_file,
        "skip_bad_rows": skip_bad_rows or None,
        "header": header,
        "title": title,
        "title_id": title_id,
    }
    rules = RowRules(names, skip_bad_rows, header)
    data, adjacent = _read_source(source, rules, name, requested, weighting)
    if titles_file is not None:
        data = with_titles(data, str(titles_file), read_titles(titles_file, title_id, title))
    elif adjacent is not None and titles is None:
        data = with_titles(data, str(adjacent), read_titles(adjacent))
    elif isinstance(titles, Mapping):
        texts = [str(title) for title in titles.values()]
        data = with_titles(data, "'titles'", (list(titles), texts, None))
    if min_rating is not None:
        data = data.at_least(min_rating)
    data = data if k_core is None else data.k_core(k_core)
    return data if item_features is None else with_features(data, item_features, item)


def with_features(
    data: Interactions, item_features: Any, item: str | int | None = None
) -> Interactions:
    """Add a table of item features to the data."""
    features = read_item_features(item_features, item=None if item is None else str(item))
    if not (data.item_ids.index(features.ids.ids) >= 0).any():
        raise ItemfoldError(
            f"'item_features' must have rows for items of '{data.name}', got {len(features):,} ids "
            f"and none is among its {data.n_items:,} items"
        )
    source = dict(data.source)
    if isinstance(item_features, str | Path):
        source["item_features"] = str(Path(item_features).expanduser().resolve())
    return replace(data, features=features, source=source)


def _read_source(
    source: Any, rules: RowRules, name: str | None, requested: dict[str, Any], weighting: Weighting
) -> tuple[Interactions, Path | None]:
    """Interactions from any kind of source, and the file of titles next to it, if any."""
    if isinstance(source, str | Path):
        return _read_named(source, rules, name, requested, weighting)
    if sp.issparse(source):
        if rules.skip:
            raise ItemfoldError("'skip_bad_rows' needs a table with columns, and a matrix has none")
        table, shape = _from_sparse(source, weighting, requested["min_rating"])
        return to_interactions(table, shape, name or "data", {}, weighting), None
    if (in_memory := read_memory(source, rules.names, skip=rules.skip)) is not None:
        return to_interactions(in_memory, None, name or "data", {}, weighting), None
    raise ItemfoldError(
        "'source' must be a path, a pandas or polars frame, an Arrow table, a DuckDB relation, or "
        f"a scipy sparse matrix, got {type(source).__name__}"
    )


def _read_named(
    source: str | Path,
    rules: RowRules,
    name: str | None,
    requested: dict[str, Any],
    weighting: Weighting,
) -> tuple[Interactions, Path | None]:
    """Interactions from a path, a pattern or an address, and the file of titles next to it."""
    if not str(source).strip():
        raise ItemfoldError("'source' must be the path of a file or a folder, got an empty text")
    path = Path(source).expanduser()
    is_named = is_address(source) or is_postgres(source)
    place = str(source) if is_named else str(path.resolve())
    arguments = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in {"data": place, **requested}.items()
        if value is not None
    }
    if is_postgres(source):
        table = read_feedback(source, skip=rules.skip)
        return to_interactions(table, None, name or str(source), arguments, weighting), None
    with local_copy(str(source)) if is_address(source) else nullcontext(path) as path:
        if path.is_dir() and is_prepared(path):
            of_rows = (*rules.names, *weighting.settings(), "header", "skip_bad_rows")
            if given := [key for key in of_rows if requested[key] is not None]:
                raise ItemfoldError(
                    f"'{given[0]}' has no effect on a prepared folder, and {path} is one; pass it "
                    "to `itemfold prepare`"
                )
            return read_prepared(path, name or short_name(path), arguments), None
        table, adjacent = read_path(path, rules)
        data = to_interactions(table, None, name or short_name(path), arguments, weighting)
        return data, None if is_address(source) else adjacent


def read_memory(
    source: Any, names: Names, place: str = "the frame", *, skip: bool = False
) -> RawTable | None:
    """The columns of a pandas or polars frame or of an Arrow table; None for anything else."""
    of_frames = type(source).__module__.split(".")[0] in ("pandas", "polars")
    is_frame = of_frames and type(source).__name__ in ("DataFrame", "LazyFrame")
    if not is_frame and (of_frames or not hasattr(source, "__arrow_c_stream__")):
        return None
    frame = source if is_frame else arrow_frame(source)
    return read_frame(frame, names, place, skip=skip)


def _from_sparse(
    matrix: Any, weighting: Weighting, min_rating: float | None
) -> tuple[RawTable, tuple[int, ...]]:
    coo = sp.coo_array(matrix)
    if coo.ndim != 2:
        raise ItemfoldError(f"the matrix: must have two dimensions, got {coo.ndim}")
    if np.iscomplexobj(coo.data):
        raise ItemfoldError("the matrix: entries must be real numbers, got complex ones")
    nonzero = coo.data != 0
    values = np.asarray(coo.data[nonzero], dtype=np.float64)
    if not np.isfinite(values).all():
        raise ItemfoldError("the matrix: entries must be finite numbers")
    if not len(values):
        raise NoRowsError("the matrix: has no entries")
    users, items = coo.coords[0][nonzero].astype(np.int64), coo.coords[1][nonzero].astype(np.int64)
    rating = None if (values == 1).all() else values
    if min_rating is None and weighting.column is None and (values < 0).any():
        raise ItemfoldError(
            f"the matrix: entries must be positive, got {values.min():g}, which would count as a "
            "like; remove such entries or give 'min_rating'"
        )
    if weighting.column is None:
        return RawTable(users, items, rating=rating), coo.shape
    if weighting.column != "value":
        raise ItemfoldError(f"'weight' must be 'value' for a matrix, got {weighting.column!r}")
    if (values < 0).any():
        raise ItemfoldError(f"the matrix: weights must be positive numbers, got {values.min():g}")
    return RawTable(users, items, rating=rating, weight=values), coo.shape


def with_titles(data: Interactions, place: str, found: Titles) -> Interactions:
    """Add titles and genres of items to the data; ``place`` names them in notes."""
    ids, titles, genres = found
    rows = data.item_ids.index(ids)
    known = rows >= 0
    if not known.any():
        none = f"none of the {data.n_items:,} items has a title in {place}"
        if len(ids):
            none += f", with ids such as {ids[0]!r} instead of {data.item_ids.ids.tolist()[0]!r}"
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
