"""Indices of item vectors by inner product: usearch and faiss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.serving.exports.score_parts import Floats
from itemfold.training.progress import track

ItemRows = npt.NDArray[np.int64]
BLOCK = 2**14  # vectors added at a time


def write_usearch(vectors: Floats, path: Path, *, progress: bool = False) -> None:
    """Write an HNSW graph of usearch; its keys are the rows of ``items.parquet``."""
    from usearch.index import Index

    index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32")
    keys = np.arange(len(vectors), dtype=np.uint64)
    for start in track(range(0, len(keys), BLOCK), "indexing vectors", show=progress):
        index.add(keys[start : start + BLOCK], vectors[start : start + BLOCK])
    index.save(str(path))


def search_usearch(path: Path, queries: Floats, depth: int, *, exact: bool = True) -> ItemRows:
    """The best rows of each query, by exact or approximate search; −1 where none is found."""
    from usearch.index import Index

    index: Any = Index.restore(str(path))
    found: Any = index.search(queries, depth, exact=exact)
    keys = np.asarray(found.keys).astype(np.int64).reshape(len(queries), -1)
    return np.where((keys >= 0) & (keys < len(index)), keys, -1)


def recall_usearch(path: Path, queries: Floats, depth: int) -> float:
    """Recall of approximate search with its default settings."""
    best, found = (search_usearch(path, queries, depth, exact=exact) for exact in (True, False))
    return float((best[:, :, None] == found[:, None, :]).any(2).mean())


def write_faiss(vectors: Floats, path: Path, *, progress: bool = False) -> None:
    """Write a flat (exact) index of faiss; its ids are the rows of ``items.parquet``."""
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    for start in track(range(0, len(vectors), BLOCK), "indexing vectors", show=progress):
        index.add(vectors[start : start + BLOCK])
    faiss.write_index(index, str(path))


def search_faiss(path: Path, queries: Floats, depth: int) -> ItemRows:
    """The best rows of each query."""
    import faiss

    return np.asarray(faiss.read_index(str(path)).search(queries, depth)[1], dtype=np.int64)
