"""Examples in the OpenAPI document, with ids of the served run."""

from __future__ import annotations

from typing import Any

from itemfold.serving.http.runs import ServedRun

ITEM, USER = "ITEM_ID", "USER_ID"  # stand for ids in the examples of schemas and routes


def with_known_ids(document: dict[str, Any], run: ServedRun) -> dict[str, Any]:
    """The document with an item and a user of a run in the examples."""
    known = run.recommender.run
    ids = {ITEM: str(known.item_ids.ids[0]), USER: str(known.user_ids.ids[0])}
    filled: dict[str, Any] = _fill(document, ids)
    return filled


def _fill(value: Any, ids: dict[str, str]) -> Any:
    """Replace the texts that stand for ids.

    >>> _fill({"history": ["ITEM_ID", "12"]}, {"ITEM_ID": "7"})
    {'history': ['7', '12']}
    """
    if isinstance(value, dict):
        return {key: _fill(part, ids) for key, part in value.items()}
    if isinstance(value, list):
        return [_fill(part, ids) for part in value]
    return ids.get(value, value) if isinstance(value, str) else value
