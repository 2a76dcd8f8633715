"""Recommended lists: the users are those at the quantiles, hits are what was held out."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from results_page.example_page import picture
from results_page.pages import generate
from rich.console import Console
from small import board_split

from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.other_tables import QUANTILES, example_lists
from itemfold.experiments.suites.reproduce import run_tables
from itemfold.losses import bpr, item_ndcg
from itemfold.models import LightGCN
from itemfold.training.fit import train


def test_users_are_at_the_quantiles_and_hits_are_held_out() -> None:
    split = board_split("inductive", test=0.3)
    settings = {"epochs": 2, "eval_every": 1, "n_negatives": 5, "device": "cpu"}
    runs = {
        name: train(split, LightGCN(dim=4, layers=1), loss=loss, **settings)
        for name, loss in (("ITEM", item_ndcg), ("BPR", bpr))
    }
    gain = runs["ITEM"].per_user["ndcg@20"] - runs["BPR"].per_user["ndcg@20"]
    shown = example_lists(runs, split)
    assert [user["quantile"] for user in shown] == list(QUANTILES)
    names = {str(name): row for row, name in enumerate(split.test.ids)}
    for user in shown:
        row = names[user["user"]]
        below = np.mean(gain < gain[row])
        assert below <= user["quantile"] + 0.1
        assert np.mean(gain <= gain[row]) >= user["quantile"] - 0.1
        own = np.flatnonzero(split.test.target.toarray()[row])
        known = np.flatnonzero(split.test.history.toarray()[row])
        titles = np.asarray(split.titles)
        assert (user["targets"], user["history"]) == (len(own), len(known))
        for listed in user["lists"].values():
            assert len(listed["items"]) == min(20, split.n_items - len(known))
            for item in listed["items"]:
                assert item["hit"] == (item["title"] in titles[own])
                assert item["title"] not in titles[known]
            places = [n for n, item in enumerate(listed["items"]) if item["hit"]]
            ideal = sum(1 / np.log2(n + 2) for n in range(min(len(own), 20)))
            ndcg = sum(1 / np.log2(n + 2) for n in places) / ideal
            assert listed["ndcg@20"] == pytest.approx(ndcg, abs=1e-5)


def test_the_picture_shows_every_title_and_marks_hits() -> None:
    items = [{"title": f"A & B <{n}>", "hit": n % 3 == 0} for n in range(20)]
    lists = {name: {"ndcg@20": 0.5, "items": items} for name in ("ITEM", "BPR")}
    user = {"user": "7", "history": 3, "targets": 9, "lists": lists}
    text = picture({"users": [user]})
    root = ET.fromstring(text)
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words.index("ITEM") < words.index("BPR")  # above it
    assert all(words.count(item["title"]) == 2 for item in items)
    assert sum(str(word).endswith("✓") for word in words) == 2 * 7
    assert "7 hits of 20" in words


def test_one_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home, log = tmp_path / "results", tmp_path / "log"
    for printed in ("training ITEM on synthetic/inductive", "qualitative: done"):
        with log.open("w") as file:
            options = Options(datasets=["synthetic"], results=home, device="cpu")
            assert run_tables("qualitative", options, Console(file=file, width=200))
        assert printed in log.read_text()
    stored = json.loads((home / "qualitative.json").read_text())
    assert stored["configs"]["ITEM"]["loss"]["name"] == "item-ndcg"
    assert stored["configs"]["BPR"]["loss"]["name"] == "bpr"
    made = generate(home)
    assert "![Recommended lists](plots/qualitative.svg)" in made["qualitative.md"]
    assert "[Recommended lists](results/qualitative.md)" in made["RESULTS.md"]
    assert f"user {stored['users'][0]['user']}:" in made["plots/qualitative.svg"]
