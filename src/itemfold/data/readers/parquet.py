"""Reader of parquet files, one or several with the same columns."""

from pathlib import Path
from typing import Any

from itemfold.data.columns.choice import Names
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.readers.frames import first_line, read_frame
from itemfold.data.readers.packed import plain_suffix, read_bytes
from itemfold.errors import ItemfoldError


def read_parquet(path: Path, names: Names, *, skip: bool = False) -> RawTable:
    """Read the columns of a parquet file."""
    return read_frame(load_parquet(path), names, str(path), skip=skip)


def read_parquet_parts(
    place: Path, parts: list[Path], names: Names, *, skip: bool = False
) -> RawTable:
    """Read the columns of several parquet files, concatenated; all must have the same columns."""
    frames = [load_parquet(part) for part in parts]
    first = list(frames[0].columns)
    for part, frame in zip(parts, frames, strict=True):
        if set(frame.columns) != set(first):
            listed = ", ".join(map(str, first))
            raise ItemfoldError(f"{part}: expected the columns of {parts[0].name}, {listed}")
        for column in first:
            if _is_text(frame[column]) != _is_text(frames[0][column]):
                problem = f"text in this file or in {parts[0].name}, but not in both"
                raise ItemfoldError(f"{part}: column '{column}' is {problem}")
    aligned = [frame[first] for frame in frames]
    try:
        if hasattr(frames[0], "with_columns"):
            import polars as pl

            whole: Any = pl.concat(aligned, how="vertical_relaxed")
        else:
            import pandas as pd

            whole = pd.concat(aligned, ignore_index=True)
    except Exception as error:  # each engine raises its own types
        problem = f"{place}: a column has different types in these files ({first_line(error)})"
        raise ItemfoldError(problem) from error
    return read_frame(whole, names, str(place), skip=skip)


def _is_text(column: Any) -> bool:
    return str(column.dtype).lower() in ("string", "str", "object", "categorical")


def is_parquet(path: Path) -> bool:
    """Whether a file is parquet by its content or name."""
    return plain_suffix(path) == ".parquet" or read_bytes(path, 4) == b"PAR1"


def check_parquet(path: Path) -> None:
    """Raise if a file is not a parquet file or is truncated."""
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(max(0, path.stat().st_size - 4))
        tail = file.read(4)
    if head != b"PAR1":
        raise ItemfoldError(f"{path}: not a parquet file (it does not begin with PAR1)")
    if tail != b"PAR1":
        raise ItemfoldError(f"{path}: the parquet file is truncated (it does not end with PAR1)")


def load_parquet(path: Path) -> Any:
    """Load a parquet file as a polars frame, or a pandas one without polars."""
    check_parquet(path)
    try:
        try:
            import polars as pl
        except ImportError:
            import pandas as pd

            return pd.read_parquet(path)
        return pl.read_parquet(path, glob=False)
    except Exception as error:  # each engine raises its own types
        raise ItemfoldError(f"{path}: the parquet file is damaged ({first_line(error)})") from error
