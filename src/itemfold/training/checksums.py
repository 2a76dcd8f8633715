"""Checksums of the files in a run folder, checked before a run is loaded."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path

from itemfold.errors import ItemfoldError, ItemfoldWarning
from itemfold.files import checksum, json_object, read_file, write_text

NAME = "checksums.json"
SINCE = 2  # first format of run folders that has checksums
CHECKSUMMED = (
    *("config.toml", "model.safetensors", "ids.json"),
    *("history.jsonl", "per_user.npz", "metrics.json"),
)
ID_FILES = {"users": "user_ids.parquet", "items": "item_ids.parquet"}  # for very many ids
OPTIONAL = ("request.toml", *ID_FILES.values())


def write_checksums(folder: Path, metrics: str) -> None:
    """Write the checksums of all files; ``metrics`` is the text of ``metrics.json``."""
    present = [name for name in OPTIONAL if (folder / name).exists()]
    names = [name for name in CHECKSUMMED if name != "metrics.json"] + present
    known = {name: checksum(folder / name) for name in names}
    known["metrics.json"] = hashlib.sha256(metrics.encode()).hexdigest()  # written afterwards
    write_text(folder / NAME, json.dumps(known, indent=1) + "\n")


def check_files(folder: Path, version: int) -> None:
    """Raise if a file does not match its checksum; warn if an older folder has no checksums."""
    path = folder / NAME
    if not path.exists():
        if version >= SINCE:
            raise ItemfoldError(f"{folder} is not a finished run: {NAME} is missing")
        warnings.warn(
            f"{folder} was written by an older version, without checksums: damaged files cannot be "
            "detected",
            ItemfoldWarning,
            stacklevel=2,
        )
        return
    known = read_file(path, json_object)
    for name in (name for name in known if not (folder / name).exists()):
        raise ItemfoldError(f"{folder} is not complete: {name} is missing, and {NAME} lists it")
    for name in (*CHECKSUMMED, *(name for name in OPTIONAL if (folder / name).exists())):
        file = folder / name
        if name not in known:
            raise ItemfoldError(f"{path} is damaged: it has no '{name}'")
        if file.exists() and checksum(file) != known[name]:
            raise ItemfoldError(
                f"{file} is damaged or was changed: its checksum does not match {NAME}"
            )
