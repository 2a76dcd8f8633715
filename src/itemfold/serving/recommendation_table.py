"""The lists of many users as columns: as a frame, and in files."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.errors import ItemfoldError
from itemfold.files import atomic, check_file, check_folder
from itemfold.validation import one_of

FORMATS = (".parquet", ".csv", ".tsv")
MANIFESTS = "manifest-*-of-*.json"  # of a folder of parts
FRAMES = ("polars", "pandas")
Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class RecommendationTable:
    """The lists of many users as columns.

    Attributes:
        users: External ids, `[users]`.
        rows: Row of each item, `[users, k]`; −1 where no item is left.
        scores: `[users, k]`.
        item_ids: External ids of all items.
        unknown: Unknown ids in the filters.
        titles: Titles of all items, or None.

    Examples:
        >>> import numpy as np
        >>> rows, scores = np.array([[1, 0]], np.int32), np.array([[0.9, 0.1]], np.float32)
        >>> table = RecommendationTable(np.array(["ann"]), rows, scores, np.array(["x", "y"]))
        >>> table.columns()["item_id"].tolist()
        ['y', 'x']
    """

    users: npt.NDArray[Any]
    rows: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]
    item_ids: npt.NDArray[Any] = field(repr=False)
    unknown: tuple[Any, ...] = ()
    titles: npt.NDArray[Any] | None = field(default=None, repr=False)

    def columns(self) -> Columns:
        """One row per recommendation.

        Returns:
            The columns user_id, item_id, rank and score.
        """
        there = self.rows >= 0
        user, place = np.nonzero(there)
        rows = self.rows[there]
        return {
            "user_id": self.users[user],
            "item_id": self.item_ids[rows],
            "rank": (place + 1).astype(np.int32),
            "score": self.scores[there],
        }

    def titled_columns(self) -> Columns:
        """One row per recommendation, with a column of titles if there are any.

        Returns:
            The columns user_id, item_id, title, rank and score.
        """
        columns = self.columns()
        if self.titles is None:
            return columns
        shown = [str(text) for text in self.titles[self.rows[self.rows >= 0]]]
        columns["title"] = np.array(shown, dtype=object)
        return {name: columns[name] for name in ("user_id", "item_id", "title", "rank", "score")}

    def frame(self, library: str) -> Any:
        """One row per recommendation.

        Args:
            library: "polars" or "pandas".

        Returns:
            A frame with the columns of `titled_columns`.
        """
        columns = self.titled_columns()
        if library == "pandas":
            import pandas as pd

            return pd.DataFrame(columns)
        import polars as pl

        return pl.DataFrame(columns)

    def save(self, path: str | Path) -> None:
        """Write a .parquet, .csv or .tsv file, complete or not at all; text files have titles.

        Args:
            path: The file; its suffix determines the format.

        Raises:
            ItemfoldError: The suffix is unknown, or the folder does not exist.
        """
        save_tables([self], path)


def kind_of_frame(thing: Any) -> str | None:
    """ "pandas" or "polars" for a frame or a column of that library, else None."""
    module = type(thing).__module__.split(".")[0]
    return module if module in FRAMES else None


def check_frames(frames: str | None) -> str:
    """The library of frames, polars by default; raise if it is not installed."""
    frames = "polars" if frames is None else frames
    one_of("frames", frames, FRAMES)
    if find_spec(frames) is None:
        raise ItemfoldError(f"'frames' is {frames}, which is not installed: pip install {frames}")
    return frames


def save_tables(tables: Iterable[RecommendationTable], path: str | Path) -> None:
    """Write tables one after another into one file, with one of them in memory at a time."""
    path = check_table_path(path)
    with atomic(path) as draft:
        if path.suffix == ".parquet":
            _write_parquet((table.columns() for table in tables), draft)
        else:
            separator = "," if path.suffix == ".csv" else "\t"
            _write_text((table.titled_columns() for table in tables), draft, separator)


def check_table_path(path: str | Path) -> Path:
    """Raise if a table cannot be written to this file, before any work is done."""
    return check_file(path, FORMATS)


def check_parts_folder(folder: str | Path) -> Path:
    """Raise if a folder cannot be written to, or holds something other than parts."""
    path = check_folder("out", folder)
    found = path.iterdir() if path.exists() else ()
    # the draft of a manifest may belong to another shard that starts at this moment
    is_used = any(not file.name.startswith(".manifest-") for file in found)
    if is_used and not any(path.glob(MANIFESTS)):
        raise ItemfoldError(f"'out' must be a new folder or one with parts of lists, got '{path}'")
    return path


def _write_text(blocks: Iterable[Columns], path: Path, delimiter: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        for number, columns in enumerate(blocks):
            if not number:
                writer.writerow(columns)
            writer.writerows(zip(*(c.tolist() for c in columns.values()), strict=True))


def _write_parquet(blocks: Iterable[Columns], path: Path) -> None:
    """Write each block to a file of its own, then join them: polars cannot append."""
    import polars as pl

    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}-") as folder:
        files: list[Path] = []
        try:
            for number, columns in enumerate(blocks):
                files.append(Path(folder) / f"{number:06}.parquet")
                pl.DataFrame(columns).write_parquet(files[-1])
            if len(files) == 1:
                files[0].replace(path)
            else:
                pl.scan_parquet(files).sink_parquet(path)
        except OSError as error:  # callers do not know the temporary files
            raise OSError(error.errno, error.strerror, str(path)) from error
