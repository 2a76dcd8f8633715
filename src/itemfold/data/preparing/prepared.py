"""Prepared folders: sorted arrays of interactions to be mapped, and their ids in parquet files.

``prepared.json`` counts, settings and checksums, written last · ``indptr.npy``, ``indices.npy`` the
items of each user · ``users.npy`` the user of each pair · ``ratings.npy``, ``times.npy``,
``weights.npy`` where there are any · ``users.parquet``, ``items.parquet`` external ids in order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.columns.time_units import in_seconds
from itemfold.data.id_arrays import read_id_file
from itemfold.data.interactions import IdMap, Interactions
from itemfold.errors import ItemfoldError
from itemfold.files import checksum, json_object, read_file, write_text

MANIFEST, STATE = "prepared.json", Path("work", "state.json")
FORMAT = 1


@dataclass(frozen=True)
class Prepared:
    """The result of `prepare`.

    Attributes:
        folder: The folder, which `load`, `read` and every command accept as data.
        users: Number of users.
        items: Number of items.
        interactions: Number of unique pairs.
        rows: Number of valid rows.
        duplicates: Number of rows that were merged into others.
        fingerprint: `Interactions.fingerprint` of the data.
        weighting: How weights were computed, "" if there are none.
        left_out: For each column that was left out, the reason.
        skipped: For each reason, the number of rows that were left out.
    """

    folder: Path
    users: int
    items: int
    interactions: int
    rows: int
    duplicates: int
    fingerprint: str
    weighting: str
    left_out: dict[str, str]
    skipped: dict[str, int]


def is_prepared(folder: Path) -> bool:
    """Whether a folder was written by `prepare`; raises if it is unfinished."""
    if (folder / MANIFEST).is_file():
        return True
    if (folder / STATE).is_file():
        raise ItemfoldError(f"{folder} is not finished; run the same `itemfold prepare` again")
    return False


def write_manifest(folder: Path, names: list[str], facts: dict[str, Any]) -> None:
    """Write the manifest of a folder, with a checksum of each of its other files."""
    files = {
        name: {"size": (folder / name).stat().st_size, "sha256": checksum(folder / name)}
        for name in names
    }
    content = {"format": FORMAT, **facts, "files": files}
    write_text(folder / MANIFEST, json.dumps(content, indent=1) + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a prepared folder."""
    found = read_file(folder / MANIFEST, json_object)
    if found.get("format") != FORMAT:
        raise ItemfoldError(f"{folder} was prepared by a newer itemfold; update itemfold")
    return found


def prepared_facts(folder: Path, manifest: dict[str, Any]) -> Prepared:
    """The facts in a manifest."""
    names = [name for name in Prepared.__dataclass_fields__ if name != "folder"]
    try:
        return Prepared(folder, **{name: manifest[name] for name in names})
    except KeyError as error:
        raise ItemfoldError(f"{folder / MANIFEST} is damaged: {error} is missing") from error


def read_prepared(folder: Path, name: str, source: dict[str, Any]) -> Interactions:
    """Map the interactions of a folder; raises if the checksum of a file is wrong."""
    manifest = read_manifest(folder)
    facts, files = prepared_facts(folder, manifest), manifest.get("files", {})
    for file, known in files.items():
        path = folder / file
        if not path.is_file():
            raise ItemfoldError(
                f"{folder} is incomplete: {file} is missing; run `itemfold prepare` again"
            )
        if path.stat().st_size != known["size"] or checksum(path) != known["sha256"]:
            raise ItemfoldError(
                f"{path} is damaged or was changed: its checksum differs from {MANIFEST}; run "
                "`itemfold prepare` again"
            )

    def array(column: str) -> npt.NDArray[Any] | None:
        file = f"{column}.npy"
        if file not in files:
            return None
        load = partial(np.load, mmap_mode="c", allow_pickle=False)  # changes stay in the process
        return np.asarray(read_file(folder / file, load))

    users, items, times = array("users"), array("indices"), array("times")
    remarks = tuple(manifest.get("remarks", ()))
    if times is not None:  # folders of release 0.2 have the unit of their files
        times, more = in_seconds(times, name)
        remarks = (*remarks, *more)
    if users is None or items is None or not len(users) == len(items) == facts.interactions:
        raise ItemfoldError(f"the files of {folder} are inconsistent; run `itemfold prepare` again")
    data = Interactions(
        users=users,
        items=items,
        user_ids=_ids(folder / "users.parquet", facts.users),
        item_ids=_ids(folder / "items.parquet", facts.items),
        ratings=array("ratings"),
        times=times,
        weights=array("weights"),
        weighting=facts.weighting,
        name=name,
        duplicates=facts.duplicates,
        source=source,
        left_out=facts.left_out,
        skipped=facts.skipped,
        remarks=remarks,
    )
    data.__dict__["fingerprint"] = facts.fingerprint  # checked by the checksums of the files
    return data


def _ids(path: Path, count: int) -> IdMap:
    found = read_file(path, read_id_file)
    if len(found) != count:
        raise ItemfoldError(f"{path} is damaged: expected {count:,} ids, found {len(found):,}")
    return IdMap(found)
