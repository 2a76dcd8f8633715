"""Vectors and weights as parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from itemrec.files import atomic
from itemrec.serving.exports.score_parts import ScoreParts
from itemrec.training.run import Run


def write_items(run: Run, folder: Path, parts: ScoreParts | None) -> None:
    """Write ``items.parquet``: row, item_id, and title and vector if there are any."""
    columns: dict[str, Any] = {"row": np.arange(len(run.item_ids)), "item_id": run.item_ids.ids}
    if run.titles is not None:
        columns["title"] = [str(title) for title in run.titles]
    _write(pl.DataFrame({**columns, **_vectors(parts and parts.items)}), folder / "items.parquet")


def write_users(run: Run, folder: Path, parts: ScoreParts) -> None:
    """Write ``users.parquet``, for users with a history: user_id, vector, factor of the weights."""
    known = np.flatnonzero(np.diff(run.train.indptr))
    columns: dict[str, Any] = {"user_id": run.user_ids.external(known)}
    if parts.users is not None:
        columns |= _vectors(parts.users[known])
    if parts.factors is not None:
        columns["factor"] = parts.factors[known]
    _write(pl.DataFrame(columns), folder / "users.parquet")


def write_weights(run: Run, folder: Path, parts: ScoreParts) -> None:
    """Write ``weights.parquet``: history_id, item_id and weight, where it is not 0."""
    if parts.weights is None:
        return
    coo = parts.weights.tocoo()
    source, target = coo.coords
    columns = {
        "history_id": run.item_ids.external(source),
        "item_id": run.item_ids.external(target),
        "weight": coo.data,
    }
    kept = pl.DataFrame(columns).filter(pl.col("weight") != 0)
    _write(kept, folder / "weights.parquet")


def _write(frame: pl.DataFrame, path: Path) -> None:
    with atomic(path) as draft:
        frame.write_parquet(draft)


def _vectors(vectors: Any) -> dict[str, Any]:
    if vectors is None:
        return {}
    return {"vector": pl.Series(vectors, dtype=pl.Array(pl.Float32, vectors.shape[1]))}
