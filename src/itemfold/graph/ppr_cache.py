"""PageRank results on disk, keyed by the graph and the settings."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.graph.ppr import PPRScores

_ARRAYS = [field.name for field in fields(PPRScores) if field.name != "n_items"]


def cache_home() -> Path:
    """The user's folder for PageRank results: $XDG_CACHE_HOME/itemfold/ppr."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "itemfold" / "ppr"


def cached(
    folder: Path,
    train: sp.csr_array,
    rows: npt.NDArray[np.int64],
    settings: dict[str, Any],
    compute: Callable[[], PPRScores],
) -> PPRScores:
    """Load the result from the folder, memory-mapped; compute and store it if it is absent.

    A damaged result is computed again, and a failure to store is ignored, both with a warning.
    """
    place = folder / key(train, rows, settings)
    if os.path.exists(place):  # Path.exists raises without permission
        try:
            return _load(place)
        except (OSError, ValueError, KeyError) as error:
            text = f"the cached PageRank {place} is damaged and is computed again: {error}"
            warnings.warn(text, stacklevel=3)
            shutil.rmtree(place, ignore_errors=True)
    scores = compute()
    _store(scores, place)
    return scores


def key(train: sp.csr_array, rows: npt.NDArray[np.int64], settings: dict[str, Any]) -> str:
    """Name of a result: sha256 of the graph, the requested users and the settings."""
    digest = hashlib.sha256(str(train.shape).encode())
    for array in (train.indptr, train.indices, rows):
        digest.update(np.ascontiguousarray(array, np.int64).tobytes())
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()[:32]


def _store(scores: PPRScores, place: Path) -> None:
    """Write all files into a temporary folder, then rename it in one step."""
    draft = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=place.parent))
        sums = {}
        for name in _ARRAYS:
            array = getattr(scores, name)
            np.save(draft / f"{name}.npy", array, allow_pickle=False)
            sums[name] = zlib.crc32(np.ascontiguousarray(array).data)
        facts = {"n_items": scores.n_items, "crc32": sums}
        (draft / "facts.json").write_text(json.dumps(facts))
        os.rename(draft, place)
    except OSError as error:
        # Another process may have stored the same result; with a full disk or a read-only folder
        # the next run computes the result again.
        if not os.path.exists(place):
            warnings.warn(f"the PageRank could not be cached in {place}: {error}", stacklevel=4)
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _load(place: Path) -> PPRScores:
    facts = json.loads((place / "facts.json").read_text())
    arrays = {}
    for name in _ARRAYS:
        array = np.load(place / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        if zlib.crc32(np.ascontiguousarray(array).data) != facts["crc32"][name]:
            raise ValueError(f"{name}.npy does not have the checksum it was written with")
        arrays[name] = array
    return PPRScores(n_items=int(facts["n_items"]), **arrays)
