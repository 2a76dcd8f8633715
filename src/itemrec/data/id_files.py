"""Parquet files of external ids, one column `id` in the order of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.data.texts import text_array
from itemrec.files import atomic


def write_ids(path: Path, ids: npt.NDArray[Any]) -> None:
    """Write ids, int64 or text."""
    values = ids if ids.dtype.kind in "iu" else ids.tolist()
    with atomic(path) as draft:
        try:
            import polars as pl
        except ImportError:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({"id": values}), draft)
        else:
            pl.DataFrame({"id": values}).write_parquet(draft)


def read_ids(path: Path) -> npt.NDArray[Any]:
    """The ids in a parquet file, int64 or text."""
    try:
        import polars as pl
    except ImportError:
        import pyarrow.parquet as pq

        column = pq.read_table(path, columns=["id"])["id"]
        is_text, listed = "string" in str(column.type), column.to_pylist
    else:
        column = pl.read_parquet(path, columns=["id"], glob=False)["id"]
        is_text, listed = column.dtype == pl.String, column.to_list
    return text_array(listed()) if is_text else np.asarray(column.to_numpy(), dtype=np.int64)
