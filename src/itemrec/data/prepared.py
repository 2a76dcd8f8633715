"""A prepared folder: sorted, mapped arrays of interactions, and their ids in parquet.

``prepared.json`` counts, settings and checksums, written last · ``indptr.npy``, ``indices.npy`` the
items of each user · ``users.npy`` the user of each pair · ``ratings.npy``, ``times.npy``,
``weights.npy`` where there are any · ``users.parquet``, ``items.parquet`` external ids in order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.data.id_arrays import read_id_file
from itemrec.data.interactions import IdMap, Interactions
from itemrec.errors import ItemrecError
from itemrec.files import checksum, json_object, read_file, write_text

MANIFEST, STATE = "prepared.json", Path("work", "state.json")
FORMAT = 1


@dataclass(frozen=True)
class Prepared:
    """What `prepare` has made.

    Attributes:
        folder: The folder, which `load`, `read` and every command take as data.
        users: Number of users.
        items: Number of items.
        interactions: Number of unique pairs.
        rows: Number of rows that were read and used.
        duplicates: Number of rows that were merged into others.
        fingerprint: That of the interactions, as `Interactions.fingerprint`.
        weighting: How weights were made, "" if there are none.
        left_out: The reason for each column that was not requested and could not be read.
        skipped: The number of rows that were left out for each reason.
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
    """Whether a folder was prepared; raises if that has only begun."""
    if (folder / MANIFEST).is_file():
        return True
    if (folder / STATE).is_file():
        raise ItemrecError(f"{folder} is not finished: run the same `itemrec prepare` again")
    return False


def write_manifest(folder: Path, names: list[str], facts: dict[str, Any]) -> None:
    """Write the manifest of a folder whose other files are complete."""
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
        raise ItemrecError(f"{folder} was prepared by a newer itemrec")
    return found


def facts_of(folder: Path, manifest: dict[str, Any]) -> Prepared:
    """The counts of a manifest."""
    names = [name for name in Prepared.__dataclass_fields__ if name != "folder"]
    try:
        return Prepared(folder, **{name: manifest[name] for name in names})
    except KeyError as error:
        raise ItemrecError(f"{folder / MANIFEST} is damaged: it has no {error}") from error


def read_prepared(folder: Path, name: str, source: dict[str, Any]) -> Interactions:
    """The interactions of a folder, mapped and not read; every file must have its checksum."""
    manifest = read_manifest(folder)
    facts, files = facts_of(folder, manifest), manifest.get("files", {})
    for file, known in files.items():
        path = folder / file
        if not path.is_file():
            raise ItemrecError(f"{folder} is incomplete: {file} is missing")
        if path.stat().st_size != known["size"] or checksum(path) != known["sha256"]:
            raise ItemrecError(
                f"{path} is damaged or was changed: its checksum is not the one in {MANIFEST}"
            )

    def array(column: str) -> npt.NDArray[Any] | None:
        file = f"{column}.npy"
        return read_file(folder / file, mapped) if file in files else None

    users, items = array("users"), array("indices")
    if users is None or items is None or not len(users) == len(items) == facts.interactions:
        raise ItemrecError(f"the files of {folder} do not belong together")
    data = Interactions(
        users=users,
        items=items,
        user_ids=_ids(folder / "users.parquet", facts.users),
        item_ids=_ids(folder / "items.parquet", facts.items),
        ratings=array("ratings"),
        times=array("times"),
        weights=array("weights"),
        weighting=facts.weighting,
        name=name,
        duplicates=facts.duplicates,
        source=source,
        left_out=facts.left_out,
        skipped=facts.skipped,
    )
    data.__dict__["fingerprint"] = facts.fingerprint  # of files that have their checksums
    return data


def mapped(path: Path) -> npt.NDArray[Any]:
    """The array of a file, which stays on disk; changes to it are private to this process."""
    return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))


def _ids(path: Path, count: int) -> IdMap:
    found = read_file(path, read_id_file)
    if len(found) != count:
        raise ItemrecError(f"{path} is damaged: expected {count:,} ids, found {len(found):,}")
    return IdMap(found)
