"""The recommendations of many users as columns, and the files they are written to."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.errors import ItemrecError
from itemrec.files import atomic, check_file, check_folder

FILES = (".parquet", ".csv", ".tsv")
MANIFESTS = "manifest-*-of-*.json"  # of a folder of parts
Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class RecommendationTable:
    """The lists of many users as columns; −1 where a user has no item left.

    Attributes:
        users: External ids, `[users]`.
        rows: Row of each item, `[users, k]`.
        scores: `[users, k]`.
        item_ids: External ids of all items.
        unknown: Ids in the filters that the model does not know.

    Examples:
        >>> import numpy as np
        >>> rows, scores = np.array([[1, 0]], np.int32), np.array([[0.9, 0.1]], np.float32)
        >>> table = RecommendationTable(np.array(["ann"]), rows, scores, np.array(["x", "y"]))
        >>> table.columns()["item_id"].tolist()
        ['y', 'x']
    """

    users: npt.NDArray[Any]  # external ids [users]
    rows: npt.NDArray[np.int32]  # row of each item [users, k]
    scores: npt.NDArray[np.float32]  # [users, k]
    item_ids: npt.NDArray[Any] = field(repr=False)  # external ids of all items
    unknown: tuple[Any, ...] = ()  # ids in filters that the model does not know

    def columns(self) -> dict[str, npt.NDArray[Any]]:
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

    def save(self, path: str | Path) -> None:
        """Write a .parquet, .csv or .tsv file, complete or not at all.

        Args:
            path: The file; its suffix determines the format.

        Raises:
            ItemrecError: The suffix is unknown, or the folder does not exist.
        """
        save_tables([self], path)


def save_tables(tables: Iterable[RecommendationTable], path: str | Path) -> None:
    """Write tables one after another into one file; only one of them is in memory at a time."""
    path = check_table_path(path)
    blocks = (table.columns() for table in tables)
    with atomic(path) as draft:
        if path.suffix == ".parquet":
            _write_parquet(blocks, draft)
        else:
            _write_text(blocks, draft, "," if path.suffix == ".csv" else "\t")


def check_table_path(path: str | Path) -> Path:
    """Reject a file name that cannot be written, before any work is done."""
    return check_file(path, FILES)


def check_parts_folder(folder: str | Path) -> Path:
    """Reject a folder that cannot be written, or that holds something else than parts."""
    path = check_folder("out", folder)
    # the draft of a manifest: another shard begins at this moment
    others = path.iterdir() if path.exists() else ()
    is_used = any(not other.name.startswith(".manifest-") for other in others)
    if is_used and not any(path.glob(MANIFESTS)):
        raise ItemrecError(f"'out' must be a new folder, or one of such parts, got '{path}'")
    return path


def _write_text(blocks: Iterable[Columns], path: Path, delimiter: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        for number, columns in enumerate(blocks):
            if not number:
                writer.writerow(columns)
            writer.writerows(zip(*(c.tolist() for c in columns.values()), strict=True))


def _write_parquet(blocks: Iterable[Columns], path: Path) -> None:
    """Write blocks to files of their own, which are then joined: polars has no other way."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}-") as folder:
        files = []
        try:
            for number, columns in enumerate(blocks):
                files.append(Path(folder) / f"{number:06}.parquet")
                _write_block(columns, files[-1])
            if len(files) == 1:
                files[0].replace(path)
            else:
                _join(files, path)
        except OSError as error:  # callers do not know these files
            raise OSError(error.errno, error.strerror, str(path)) from error


def _write_block(columns: Columns, path: Path) -> None:
    try:
        import polars
    except ImportError:  # pyarrow may be installed without polars
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    else:
        polars.DataFrame(columns).write_parquet(path)


def _join(files: list[Path], path: Path) -> None:
    """Write the rows of all files into one, in their order."""
    try:
        import polars
    except ImportError:
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(files[0])
        with pyarrow.parquet.ParquetWriter(path, schema) as out:
            for file in files:
                out.write_table(pyarrow.parquet.read_table(file))
    else:
        polars.scan_parquet(files).sink_parquet(path)
