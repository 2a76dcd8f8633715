"""The end of a preparation: ids without a pair are removed, and the files move to their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.data.content_hash import fingerprint_of, hash_ids
from itemrec.data.prepared import write_manifest
from itemrec.data.preparing.arrays import append, pieces
from itemrec.data.preparing.ids import copy_ids, id_chunks
from itemrec.data.preparing.pairs import ARRAYS
from itemrec.data.preparing.work import Facts, Work

ROLES = ("users", "items")


def renumber(connection: Any, work: Work, counts: dict[str, int]) -> Facts:
    """Write the final ids: of all users and items, or of those that still have a pair."""
    indptr = np.load(work.folder / "indptr.npy")
    seen = np.zeros(counts["items"], dtype=np.bool_)
    for items in pieces(work.folder / "indices.npy"):
        seen[items] = True
    used = {"users": np.diff(indptr) > 0, "items": seen}
    facts = {role: int(used[role].sum()) for role in ROLES}
    for role in ROLES:
        kept = None if used[role].all() else np.flatnonzero(used[role])
        target = work.fresh(f"final-{role}.parquet")
        copy_ids(connection, work.folder / f"{role}.parquet", target, kept)
        if kept is not None:
            name = "users" if role == "users" else "indices"
            _renumber_array(work, name, np.cumsum(used[role], dtype=np.int64) - 1)
    if facts["users"] < counts["users"]:
        kept_ends = indptr[1:][used["users"]]
        append(work.fresh("final-indptr.npy"), 0, np.concatenate(([0], kept_ends)))
    return facts


def _renumber_array(work: Work, name: str, new: npt.NDArray[np.int64]) -> None:
    target, done = work.fresh(f"final-{name}.npy"), 0
    for old in pieces(work.folder / f"{name}.npy"):
        append(target, done, new[old].astype(ARRAYS[name]))
        done += len(old)


def find_fingerprint(connection: Any, work: Work, counts: dict[str, int]) -> Facts:
    """The fingerprint of the final files."""
    hashes = {}
    for role in ROLES:
        hashes[role] = np.empty(counts[role], np.uint64)
        start = 0
        for ids in id_chunks(connection, work.folder / f"final-{role}.parquet", counts[role]):
            hashes[role][start : start + len(ids)] = hash_ids(np.asarray(ids))
            start += len(ids)
    pairs = zip(
        *(pieces(_latest(work, f"{name}.npy")) for name in ("users", "indices")), strict=True
    )
    return {"fingerprint": fingerprint_of(hashes["users"], hashes["items"], pairs)}


def publish(work: Work, out: Path, facts: dict[str, Any]) -> None:
    """Move all files to their place and write the manifest; what has been moved before is there."""
    names = [f"{role}.parquet" for role in ROLES]
    arrays = (f"{array}.npy" for array in ARRAYS)
    names += [name for name in arrays if _latest(work, name).exists() or (out / name).exists()]
    for name in names:
        source = _latest(work, name)
        if source.exists():
            if source.name != name:  # first what it replaces, which must not follow it
                (work.folder / name).unlink(missing_ok=True)
            move(source, out / name)
    write_manifest(out, sorted(names), facts)


def move(source: Path, target: Path) -> None:
    """Move a complete file to its place."""
    source.replace(target)


def _latest(work: Work, name: str) -> Path:
    """A file as the steps have left it, renumbered if that was needed."""
    final = work.folder / f"final-{name}"
    return final if final.exists() or name.endswith(".parquet") else work.folder / name
