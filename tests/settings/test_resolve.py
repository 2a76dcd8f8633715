"""One path from a request to settings: sources, immutability, and the same result from anywhere."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import run_config
from itemfold.settings.resolve import Request, resolve
from itemfold.settings.schema import SECTIONS, TrainConfig
from itemfold.settings.stored_config import difference_of_requests
from itemfold.settings.toml_file import dump_config, flat, load_config

TINY = "synthetic:users=60,items=80,interactions=900"


def test_every_value_has_a_source() -> None:
    request = Request.from_options(
        {"model": {"name": "sgl"}, "train": {"lr": 0.1, "batch": 64}},
        {"model": {"name": "sgl", "dim": 8}, "train": {"lr": 0.1, "batch": 32}},
        "file",
    )
    settings = resolve(request)
    sources = settings.sources
    assert set(sources) == set(flat(settings.record())) - unset(settings.record())
    assert sources["train.lr"] == "file"
    assert sources["train.batch"] == sources["model.dim"] == "option"
    assert sources["train.n_negatives"] == "default of bpr"  # the loss of SGL's paper
    assert sources["loss.name"] == "default of sgl"
    assert (
        sources["model.layers" if "model.layers" in sources else "model.weight"] == "default of sgl"
    )
    assert sources["train.ema_decay"] == "default"


def unset(config: Any) -> set[str]:
    """Settings without a value, which a file leaves out."""
    return {path for path, value in flat(config).items() if value is None}


def test_python_arguments_and_files_resolve_to_the_same_settings() -> None:
    by_objects = Request(
        {
            "model": ir.models.LightGCN(dim=8),
            "loss": ir.losses.item_ndcg(tau=0.5),
            "negatives": ir.negatives.PPR(top=50),
            "train": {"lr": 0.02},
        }
    )
    by_names = {
        "model": {"name": "lightgcn", "dim": 8},
        "loss": {"name": "item-ndcg", "tau": 0.5},
        "negatives": {"name": "ppr", "top": 50},
        "train": {"lr": 0.02},
    }
    assert resolve(by_objects).record() == resolve(by_names).record()
    assert difference_of_requests(resolve(by_objects).request(), resolve(by_names)) == ""


def test_settings_cannot_be_changed_and_choosing_makes_new_ones() -> None:
    settings = resolve({"model": {"name": "rlae"}})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.train = TrainConfig()  # type: ignore[misc]
    chosen = settings.choose({"model": {"l2": 5.0}}, "chosen on validation")
    assert settings.record()["model"]["l2"] is None
    assert chosen.record()["model"]["l2"] == 5.0
    assert chosen.sources["model.l2"] == "chosen on validation"
    assert "model.l2" not in settings.chosen


def test_a_request_resolves_to_itself() -> None:
    for request in (
        {"model": {"name": "hybrid", "gnn": {"name": "gcn", "dim": 8}, "linear": "none"}},
        {
            "model": {"name": "gat", "heads": 2},
            "train": {"lr": 0.5},
            "split": {"strategy": "users"},
        },
        {},
    ):
        settings = resolve(request)
        again = resolve(settings.request())
        assert again.record() == settings.record()
        assert difference_of_requests(settings.request(), again) == ""


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ({"train": {"lr": 0.1}}, {"train": {"lr": 0.2}}, "train.lr"),
        ({}, {"train": {"batch": 32768}}, "train.batch"),  # its default, but no longer open
        ({}, {"model": {"name": "hybrid"}, "loss": {"name": "item-log"}}, "loss.name"),
        ({}, {"model": {"name": "hybrid", "gnn": {"dim": 8}}}, "model.gnn.dim"),
        ({"model": {"name": "ease"}}, {"model": {"name": "ease", "l2": 5.0}}, "model.l2"),
    ],
)
def test_requests_that_differ_are_told_apart(one: Any, other: Any, path: str) -> None:
    assert f"'{path}'" in difference_of_requests(resolve(one).request(), resolve(other))
    assert f"'{path}'" in difference_of_requests(resolve(other).request(), resolve(one))


def test_a_default_that_is_given_is_the_same_request_where_nothing_is_open() -> None:
    plain, given = {"model": {"name": "lightgcn"}}, {"model": {"name": "lightgcn", "dim": 64}}
    assert difference_of_requests(resolve(plain).request(), resolve(given)) == ""


def test_the_request_is_written_once_and_the_final_settings_have_sources(tmp_path: Path) -> None:
    folder, request = tmp_path / "r", tmp_path / "r" / "request.toml"
    (tmp_path / "c.toml").write_text("[train]\nepochs = 3\neval_every = 1\n")
    options = ["--config", tmp_path / "c.toml", "--dim", "8", "--protocol", "inductive"]
    options += ["--set", "split.rounding=nearest"]
    done = CliRunner().invoke(app, ["train", TINY, *map(str, options), "--out", str(folder)])
    assert done.exit_code == 0, done.output
    stored = load_config(request)
    assert stored["train"] == {"epochs": 3, "eval_every": 1}
    assert stored["model"] == {"name": "hybrid", "gnn": {"dim": 8}}
    before = request.read_bytes()
    text = (folder / "config.toml").read_text()
    for line in ("epochs = 3  # file", "dim = 8  # option", "norm = 0.5  # default of hybrid"):
        assert line in text
    assert "  # chosen on validation" in text
    assert "  # chosen from the data" in text
    assert CliRunner().invoke(app, ["train", "--resume", "--out", str(folder)]).exit_code == 0
    assert request.read_bytes() == before
    again = run_config(load_config(request))
    assert again.metrics["test"] == ir.Run.load(folder).metrics["test"]


def test_comments_do_not_change_what_a_file_says(tmp_path: Path) -> None:
    settings = resolve({"model": {"name": "hybrid", "blend": [[0, 0.5, 1], [3, 0.1, 2]]}})
    path = tmp_path / "c.toml"
    path.write_text(dump_config(settings.record(), settings.sources))
    assert resolve(load_config(path)).record() == settings.record()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"modle": {}}, r"unknown section \[modle\]; the sections are data, split, model"),
        ({"model": {"name": "lightgnc"}}, "'model' must be one of"),
        ({"model": {"gnn": {"name": "mf"}}}, "'gnn' must be a network that folds in unseen users"),
        ({"model": {"gnn": {"dmi": 3}}}, "'lightgcn' has no setting 'dmi'; its settings are: dim"),
        ({"train": {"lr": -1.0}}, "'lr' must be a positive number"),
    ],
)
def test_bad_requests_get_one_sentence(config: Any, message: str) -> None:
    with pytest.raises(ItemfoldError, match=message) as found:
        resolve(config)
    assert "\n" not in str(found.value)


def test_sections_are_those_of_the_record() -> None:
    assert tuple(resolve({}).record()) == SECTIONS
