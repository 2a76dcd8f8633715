"""The end of `prepare`: remove ids without a pair, compute the fingerprint, publish the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from itemfold.data.array_types import Ints
from itemfold.data.content_hash import fingerprint_of, hash_ids
from itemfold.data.preparing.inputs import literal, parquet
from itemfold.data.preparing.pairs import ARRAYS, append_array, array_pieces
from itemfold.data.preparing.prepared import write_manifest
from itemfold.data.preparing.work import StepFacts, Work

ROLES = ("users", "items")
CHUNK = 2**20  # ids that are fetched at once


def renumber(connection: Any, work: Work, counts: dict[str, int]) -> StepFacts:
    """Write the ids of users and items that have a pair, and renumber the arrays to match."""
    indptr = np.load(work.folder / "indptr.npy")
    seen = np.zeros(counts["items"], dtype=np.bool_)
    for items in array_pieces(work.folder / "indices.npy"):
        seen[items] = True
    used = {"users": np.diff(indptr) > 0, "items": seen}
    facts = {role: int(used[role].sum()) for role in ROLES}
    for role in ROLES:
        kept = None if used[role].all() else np.flatnonzero(used[role])
        target = work.fresh(f"final-{role}.parquet")
        _copy_ids(connection, work.folder / f"{role}.parquet", target, kept)
        if kept is not None:
            name = "users" if role == "users" else "indices"
            new, done = np.cumsum(used[role], dtype=np.int64) - 1, 0
            array = work.fresh(f"final-{name}.npy")
            for old in array_pieces(work.folder / f"{name}.npy"):
                append_array(array, done, new[old].astype(ARRAYS[name]))
                done += len(old)
    if facts["users"] < counts["users"]:
        kept_ends = indptr[1:][used["users"]]
        append_array(work.fresh("final-indptr.npy"), 0, np.concatenate(([0], kept_ends)))
    return facts


def _copy_ids(connection: Any, path: Path, target: Path, kept: Ints | None) -> None:
    """Copy the ids, all of them or those of some rows, without their counts."""
    connection.execute("SET preserve_insertion_order = true")
    select = f"SELECT id FROM {parquet(path)}"
    if kept is not None:
        connection.register("kept", {"place": kept})
        select += " JOIN kept ON file_row_number = place"
    options = "(FORMAT parquet, COMPRESSION zstd)"
    connection.execute(
        f"COPY ({select} ORDER BY file_row_number) TO {literal(str(target))} {options}"
    )
    if kept is not None:
        connection.unregister("kept")


def find_fingerprint(connection: Any, work: Work, counts: dict[str, int]) -> StepFacts:
    """The fingerprint of the final files."""
    hashes = {}
    for role in ROLES:
        hashes[role] = np.empty(counts[role], np.uint64)
        ids = parquet(work.folder / f"final-{role}.parquet")
        for start in range(0, counts[role], CHUNK):
            part = f"file_row_number BETWEEN {start} AND {start + CHUNK - 1}"
            select = f"SELECT id FROM {ids} WHERE {part} ORDER BY file_row_number"
            found = connection.execute(select).fetchnumpy()["id"]
            hashes[role][start : start + len(found)] = hash_ids(np.asarray(found))
    pairs = zip(
        *(array_pieces(_latest(work, f"{name}.npy")) for name in ("users", "indices")), strict=True
    )
    return {"fingerprint": fingerprint_of(hashes["users"], hashes["items"], pairs)}


def publish(work: Work, out: Path, facts: dict[str, Any]) -> None:
    """Move all files into ``out``, then write the manifest; files already moved stay."""
    names = [f"{role}.parquet" for role in ROLES]
    arrays = (f"{array}.npy" for array in ARRAYS)
    names += [name for name in arrays if _latest(work, name).exists() or (out / name).exists()]
    for name in names:
        source = _latest(work, name)
        if source.exists():
            if source.name != name:  # remove what it replaces, which must not be moved later
                (work.folder / name).unlink(missing_ok=True)
            move(source, out / name)
    write_manifest(out, sorted(names), facts)


def move(source: Path, target: Path) -> None:
    """Move a complete file."""
    source.replace(target)


def _latest(work: Work, name: str) -> Path:
    """The newest version of a file: the renumbered one, if there is one."""
    final = work.folder / f"final-{name}"
    return final if final.exists() or name.endswith(".parquet") else work.folder / name
