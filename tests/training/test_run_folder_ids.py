"""Runs with very many users or items keep their ids in parquet; others list them in JSON."""

import json
from pathlib import Path

import pytest

import itemfold as ir
from itemfold.training import stored_ids

TINY = "synthetic:users=60,items=50,interactions=900"


def test_ids_in_parquet_are_those_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ir.train(ir.split_users(ir.load(TINY)), ir.models.EASE())
    run.save(tmp_path / "listed")
    assert not list((tmp_path / "listed").glob("*.parquet"))
    assert len(run.user_ids) < len(run.item_ids)
    monkeypatch.setattr(stored_ids, "MAX_IDS_IN_JSON", len(run.user_ids))
    run.save(tmp_path / "filed")
    kept = json.loads((tmp_path / "filed" / "ids.json").read_text())
    assert (kept["format"], kept["users"]) == (3, run.user_ids.ids.tolist())
    monkeypatch.setattr(stored_ids, "MAX_IDS_IN_JSON", 10)
    run.save(tmp_path / "filed")
    kept = json.loads((tmp_path / "filed" / "ids.json").read_text())
    assert (kept["users"], kept["items"]) == ("user_ids.parquet", "item_ids.parquet")
    one, two = (ir.Run.load(tmp_path / name) for name in ("listed", "filed"))
    for role in ("user_ids", "item_ids"):
        assert getattr(one, role).ids.tolist() == getattr(two, role).ids.tolist()
        assert getattr(one, role).ids.dtype == getattr(two, role).ids.dtype
    user = one.user_ids.ids[3]
    lists = [
        ir.Recommender.load(tmp_path / name).recommend(user, k=5) for name in ("listed", "filed")
    ]
    assert lists[0] == lists[1]
    path = tmp_path / "filed" / "user_ids.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ir.ItemfoldError, match=r"user_ids.parquet is damaged or was changed"):
        ir.Run.load(tmp_path / "filed")
