"""The fingerprint of a run: a hash of everything its recommendations depend on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

import torch

from itemfold.data.items.item_features import ItemFeatures
from itemfold.data.items.item_table import ItemTable
from itemfold.data.weights import is_weighted
from itemfold.training.run import Run
from itemfold.training.stored_ids import features_record


def fingerprint(
    run: Run, item_table: ItemTable | None = None, features: ItemFeatures | None = None
) -> str:
    """A hash of a run's weights, training interactions, ids, texts and features.

    ``features`` may include items added after training; default: the features of the run.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(run.model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    for column in (run.interactions.indptr, run.interactions.indices):
        digest.update(column.astype("int64").data)
    if is_weighted(run.interactions):
        digest.update(run.interactions.data.astype("float32").data)
    texts = [c for c in (run.titles, run.genres) if c is not None]
    lists = [c.tolist() for c in (run.user_ids.ids, run.item_ids.ids, *texts)]
    digest.update(json.dumps([run.config["model"], lists], default=str).encode())
    features = run.features if features is None else features
    if features is not None:
        record = [features_record(features), run.metrics.get("new_items")]
        digest.update(json.dumps(record, default=str).encode())
        for feature in features.vectors():
            digest.update(feature.values.astype("float32").data)
    if item_table is not None:
        digest.update(json.dumps(asdict(item_table), default=str).encode())
    return digest.hexdigest()[:16]
