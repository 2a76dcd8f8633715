"""A small trained run, in memory and as a folder."""

from pathlib import Path

import pytest
from served import DATA

import itemfold as ir


@pytest.fixture(scope="session")
def recommender() -> ir.Recommender:
    split = ir.split_interactions(DATA, seed=0)
    run = ir.train(split, ir.models.LightGCN(dim=8, layers=2), epochs=3, lr=0.05, eval_every=3)
    return ir.Recommender.from_run(run)


@pytest.fixture(scope="session")
def folder(recommender: ir.Recommender, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "r"
    recommender.run.save(out)
    return out
