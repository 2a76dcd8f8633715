"""The config.toml of a finished hybrid repeats it, without choosing anything again."""

from pathlib import Path

import itemrec as ir
from itemrec.config_file import load_config
from itemrec.experiments.build import run_config

TINY = "synthetic:users=60,items=80,interactions=900"


def test_the_stored_settings_of_a_hybrid_repeat_it(tmp_path: Path) -> None:
    asked = {"data": {"data": TINY}, "train": {"epochs": 20, "refit": False, "device": "cpu"}}
    first = run_config(asked, tmp_path / "first")
    assert len(first.metrics["trials"]) == 12
    assert len(first.metrics["candidates"]) == 2
    again = run_config(load_config(tmp_path / "first" / "config.toml"), tmp_path / "again")
    assert again.metrics["trials"] == []
    assert [entry["name"] for entry in again.metrics["candidates"]] == ["the network as given"]
    assert again.metrics["test"] == first.metrics["test"]
    assert ir.Run.load(tmp_path / "again").config == ir.Run.load(tmp_path / "first").config
