"""A small trained run, in memory, as a folder, and served to a browser."""

from pathlib import Path

import pytest
from browser import Browser
from served import DATA, Service

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


@pytest.fixture(scope="session")
def other() -> ir.Recommender:
    return ir.Recommender(ir.train(ir.split_interactions(DATA, seed=0), ir.models.EASE()))


@pytest.fixture(scope="module")
def service(folder, other, tmp_path_factory):
    place = tmp_path_factory.mktemp("page")
    other.run.save(place / "ease")
    runs = (f"gnn={folder}", place / "ease", f"copy={folder}")
    options = (*runs, "--feedback", place / "feedback")
    with Service(*options) as service:
        service.feedback = place / "feedback" / "feedback.jsonl"
        yield service


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(chromium):
    chromium.resize(1200, 900)
    return chromium
