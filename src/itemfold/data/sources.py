"""`read`: interactions from files, folders, frames and sparse matrices."""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.columns import Names, RawTable
from itemfold.data.feedback import FEEDBACK_FILES, read_feedback
from itemfold.data.id_arrays import text_array
from itemfold.data.interactions import Interactions
from itemfold.data.item_features import read_item_features
from itemfold.data.merging import to_interactions
from itemfold.data.prepared import is_prepared, read_prepared
from itemfold.data.readers.delimited import kind_of, read_delimited
from itemfold.data.readers.frames import arrow_frame, read_frame
from itemfold.data.readers.item_files import Titles, read_titles
from itemfold.data.readers.lightgcn import read_lightgcn
from itemfold.data.readers.parquet import read_parquet, read_parquet_parts
from itemfold.data.readers.title_frames import titles_of_frame
from itemfold.data.readers.user_split import is_user_split, read_split_folder
from itemfold.data.weights import Weighting, duration_text
from itemfold.errors import ItemfoldError, NoRowsError

FILE_KINDS = ".csv, .tsv, .inter (each also with .gz), .parquet or .jsonl"
NO_BAD_ROWS = "'skip_bad_rows' needs a table with columns, and {} has none"


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
) -> Interactions:
    """Read interactions from a file, a folder, a table in memory, or a sparse matrix.

    Files may be .csv, .tsv, RecBole .inter (each also .gz) or .parquet; a pattern such as
    "plays/*.parquet" names several parquet files. A folder holds train.txt (and test.txt) as in
    LightGCN, ratings.csv (and movies.csv) as in MovieLens, parquet files, a published split by
    users (see `read_user_split`), or the output of `prepare`. A table is a pandas or polars frame,
    an Arrow table, a DuckDB relation, or anything else with Arrow's C stream. A .jsonl file or
    folder of feedback that `itemfold serve` wrote is read, too: its likes and clicks are
    interactions.

    Rows with the same user and item are merged into one pair and counted in `duplicates`. The pair
    keeps the highest rating and the latest time; it is a training pair if any of its rows is. Then
    `min_rating` is applied, then `k_core`.

    Args:
        source: A path, a pattern, a table, or a sparse matrix of users × items.
        user: Name (or position) of the user column; default: a common name such as "user_id".
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
        weight: Name (or position) of a column of positive numbers, such as plays, that weights each
            interaction; "value" takes the entries of a matrix. Default: equal weights.
        half_life: Time after which the weight of an interaction halves, such as "30d" or "1y";
            needs times.
        weight_transform: "log" turns a weight v into log(1 + v), the default; "none" keeps it.
        duplicates: "merge" keeps the highest weight of a pair's rows, "sum" adds them up; without a
            weight column each row counts 1.

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
    if hasattr(titles, "columns"):
        titles = titles_of_frame(titles)
    if titles_file is None and not isinstance(titles, Mapping | None):
        raise ItemfoldError(
            "'titles' must be a file, a frame, or a mapping from item id to title, "
            f"got {type(titles).__name__}"
        )
    requested = {
        **names,
        **weighting.settings(),
        "min_rating": min_rating,
        "k_core": k_core,
        "titles": titles_file,
    }
    if not isinstance(skip_bad_rows, bool):
        raise ItemfoldError(f"'skip_bad_rows' must be true or false, got {skip_bad_rows!r}")
    requested["skip_bad_rows"] = skip_bad_rows or None
    data, adjacent = _read_source(source, names, name, requested, weighting)
    titles_file = titles_file or adjacent
    if titles_file is not None:
        data = with_titles(data, str(titles_file), read_titles(titles_file))
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
    source: Any, names: Names, name: str | None, requested: dict[str, Any], weighting: Weighting
) -> tuple[Interactions, Path | None]:
    """Interactions from any kind of source, and the file of titles next to it, if any."""
    skip = bool(requested["skip_bad_rows"])
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        arguments = {
            key: str(value) if isinstance(value, Path) else value
            for key, value in {"data": path.resolve(), **requested}.items()
            if value is not None
        }
        if path.is_dir() and is_prepared(path):
            settings = {**names, **weighting.settings(), "skip_bad_rows": skip or None}
            for setting in (key for key, value in settings.items() if value is not None):
                raise ItemfoldError(
                    f"'{setting}' has no effect on a prepared folder, and {path} is one; pass it "
                    "to `itemfold prepare`"
                )
            return read_prepared(path, name or short_name(path), arguments), None
        if is_pattern(path):
            parts = _matching_files(path)
            table, adjacent = read_parquet_parts(path, parts, names, skip=skip), None
        else:
            table, adjacent = read_path(path, names, skip)
        return to_interactions(
            table, None, name or short_name(path), arguments, weighting
        ), adjacent
    if sp.issparse(source):
        if skip:
            raise ItemfoldError(NO_BAD_ROWS.format("a matrix"))
        table, shape = _from_sparse(source, weighting)
        return to_interactions(table, shape, name or "data", {}, weighting), None
    if (table_in_memory := read_memory(source, names, skip=skip)) is not None:
        return to_interactions(table_in_memory, None, name or "data", {}, weighting), None
    raise ItemfoldError(
        "'source' must be a path, a pandas or polars frame, an Arrow table, a DuckDB relation, or "
        f"a scipy sparse matrix, got {type(source).__name__}"
    )


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


def is_pattern(path: Path) -> bool:
    """Whether a path is a pattern of file names and not itself an existing file.

    >>> is_pattern(Path("plays/*.parquet")), is_pattern(Path("plays.parquet"))
    (True, False)
    """
    return bool(re.search(r"[*?\[]", path.name)) and not path.exists()


def _matching_files(path: Path) -> list[Path]:
    """The files that match a pattern, sorted."""
    if kind_of(path) != ".parquet":
        raise ItemfoldError(f"{path}: a pattern must end in .parquet")
    found = sorted(file for file in path.parent.glob(path.name) if file.is_file())
    if not found:
        raise ItemfoldError(f"{path}: no file matches this pattern")
    return found


def short_name(path: Path) -> str:
    """The name of data in results: the name of its file or folder.

    >>> short_name(Path("/data/plays/*.parquet")), short_name(Path("plays-2026*.parquet"))
    ('plays', 'plays-2026')
    """
    if is_pattern(path):
        fixed = re.sub(r"[*?\[].*", "", path.name).strip("-_.")
        return fixed or path.resolve().parent.name
    inner = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return inner.stem if path.is_file() else path.resolve().name


def read_path(path: Path, names: Names, skip: bool) -> tuple[RawTable, Path | None]:
    """The columns of a file or a folder, and the file of titles next to them, if any."""
    try:
        if path.is_dir():
            return _read_folder(path, names, skip)
        return _read_file(path, names, skip), None
    except OSError as error:
        raise ItemfoldError(f"{path}: cannot be read ({error.strerror or error})") from error


def _read_folder(path: Path, names: Names, skip: bool) -> tuple[RawTable, Path | None]:
    if is_user_split(path):
        return read_split_folder(path, names, skip=skip), None
    if (path / "train.txt").is_file():
        if skip:
            raise ItemfoldError(NO_BAD_ROWS.format(path / "train.txt"))
        return read_lightgcn(path, names), None
    if (path / "ratings.csv").is_file():
        movies = path / "movies.csv"
        table = read_delimited(path / "ratings.csv", names, skip=skip)
        return table, movies if movies.is_file() else None
    if parts := sorted(path.glob("*.parquet")):
        return read_parquet_parts(path, parts, names, skip=skip), None
    if any(path.glob(FEEDBACK_FILES)):
        return read_feedback(path, skip=skip), None
    raise ItemfoldError(
        f"{path}: expected train.txt, ratings.csv, parquet files or {FEEDBACK_FILES} in the "
        "folder, or the files of a split by users"
    )


def _read_file(path: Path, names: Names, skip: bool) -> RawTable:
    if not path.exists():
        raise ItemfoldError(f"{path}: no such file or folder")
    if not path.is_file():  # reading a pipe would wait for a writer
        raise ItemfoldError(f"{path}: must be a file or a folder, not a pipe or a device")
    kind = kind_of(path)
    if kind == ".parquet":
        return read_parquet(path, names, skip=skip)
    if kind in (".csv", ".tsv", ".inter"):
        return read_delimited(path, names, skip=skip)
    if kind == ".jsonl":
        return read_feedback(path, skip=skip)
    if path.name in ("train.txt", "test.txt") or (kind == ".txt" and is_user_split(path.parent)):
        raise ItemfoldError(f"{path}: pass the folder that holds train.txt and test.txt")
    raise ItemfoldError(
        f"{path}: unknown file type '{path.suffix}'; expected {FILE_KINDS}, "
        "or a folder with train.txt or ratings.csv; save any other table as .csv"
    )


def _from_sparse(matrix: Any, weighting: Weighting) -> tuple[RawTable, tuple[int, ...]]:
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
