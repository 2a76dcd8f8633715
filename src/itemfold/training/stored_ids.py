"""``ids.json`` of a run folder: external ids, titles, genres and item features.

Long lists of ids are stored in ``user_ids.parquet`` and ``item_ids.parquet`` instead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.id_arrays import read_id_file, text_array, write_id_file
from itemfold.data.interactions import IdMap
from itemfold.data.items.feature_columns import FEATURE_KINDS, FeatureColumn
from itemfold.data.items.item_features import ItemFeatures
from itemfold.errors import ItemfoldError
from itemfold.files import json_object, read_file, write_text
from itemfold.training.checksums import ID_FILES
from itemfold.training.run import Run

FORMAT = 2  # version of the run folder; newer versions are rejected
FORMAT_WITH_PARQUET = 3  # with ids in parquet files, which load faster
MAX_IDS_IN_JSON = 2**20  # users or items listed in ``ids.json``
Record = dict[str, Any]  # the content of ``ids.json``


def save_ids(folder: Path, run: Run) -> None:
    """Write the ids, texts and features of a run."""
    ids: Record = {"format": FORMAT, "protocol": run.protocol}
    for role, known in (("users", run.user_ids), ("items", run.item_ids)):
        path = folder / ID_FILES[role]
        path.unlink(missing_ok=True)
        if len(known) <= MAX_IDS_IN_JSON:
            ids[role] = known.ids.tolist()
        else:
            write_id_file(path, known.ids)
            ids |= {"format": FORMAT_WITH_PARQUET, role: path.name}
    for name, column in (("titles", run.titles), ("genres", run.genres)):
        if column is not None:
            ids[name] = [str(text) for text in column]
    if run.features is not None:
        ids["features"] = features_record(run.features)
    write_text(folder / "ids.json", json.dumps(ids))


def read_record(folder: Path) -> Record:
    """The content of ``ids.json``; raise if a newer version wrote it."""
    ids = read_file(folder / "ids.json", json_object)
    if ids.get("format", 0) not in range(FORMAT_WITH_PARQUET + 1):
        raise ItemfoldError(f"{folder} was written by a newer itemfold: upgrade to load it")
    return ids


def id_map(folder: Path, ids: Record, role: str) -> IdMap:
    """The ids of the users or the items, from ``ids.json`` or their parquet file."""
    if ids[role] == ID_FILES[role]:
        return IdMap(read_file(folder / ID_FILES[role], read_id_file))
    return _listed(ids[role])


def _listed(ids: list[Any]) -> IdMap:
    is_text = any(isinstance(value, str) for value in ids)
    return IdMap(text_array(ids) if is_text else np.array(ids))


def item_texts(ids: Record, column: str, n_items: int) -> npt.NDArray[Any] | None:
    """The titles or genres of the items, or None if they are not stored."""
    if column not in ids:
        return None
    if len(ids[column]) != n_items:
        raise ValueError(f"there are {len(ids[column])} {column} for {n_items} items")
    return text_array(ids[column])


def features_record(features: ItemFeatures) -> dict[str, Any]:
    """Features as stored in ``ids.json``; vectors are stored with the tensors."""

    def values(column: FeatureColumn) -> list[Any]:
        if column.kind == "vector":
            return []
        if column.kind == "number":
            return [None if value != value else value for value in column.values.tolist()]
        return [value if isinstance(value, str) else list(value) for value in column.values]

    columns = [{"name": c.name, "kind": c.kind, "values": values(c)} for c in features.columns]
    return {"items": features.ids.ids.tolist(), "columns": columns}


def read_features(stored: Any, vectors: dict[str, npt.NDArray[Any]]) -> ItemFeatures | None:
    """Features from their record and vectors; ValueError or KeyError if they are damaged."""
    if stored is None:
        return None
    columns, n_items = [], len(stored["items"])
    for entry in stored["columns"]:
        name, kind, values = entry["name"], entry["kind"], entry["values"]
        if kind not in FEATURE_KINDS:
            raise ValueError(f"the feature {name!r} has the unknown kind {kind!r}")
        if kind == "vector":
            values = vectors[name]
        elif kind == "number":
            values = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        elif kind == "category":
            values = [tuple(map(str, names)) for names in values]
        if len(values) != n_items:
            raise ValueError(f"there are {len(values)} values of {name!r} for {n_items} items")
        columns.append(FeatureColumn(name, kind, values))
    return ItemFeatures(_listed(stored["items"]), tuple(columns))
