"""Runs with weights: from the command line to the folder and back, resumed, refitted, damaged."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import run_config
from itemfold.settings.toml_file import load_config
from itemfold.training.checksums import write_checksums


@pytest.fixture
def plays(tmp_path: Path) -> Path:
    """A file of plays with times and repeated rows."""
    return write(tmp_path / "plays.csv", seed=0)


def write(path: Path, seed: int) -> Path:
    rng = np.random.default_rng(0)
    amounts = np.random.default_rng(seed).integers(1, 400, 1200)
    rows = zip(rng.integers(0, 40, 1200), rng.integers(0, 30, 1200), amounts, strict=True)
    lines = [f"u{u},t{t},{n},{1_700_000_000 + 50_000 * k}" for k, (u, t, n) in enumerate(rows)]
    path.write_text("user,item,plays,time\n" + "\n".join(lines) + "\n")
    return path


def call(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


OPTIONS = ("--weight-col", "plays", "--half-life", "90d", "--duplicates", "sum")


def test_from_the_command_line_to_a_folder_and_back(plays: Path, tmp_path: Path):
    found = json.loads(call("describe", plays, *OPTIONS, "--json"))["weights"]
    assert found["made_of"] == "log(1 + sum of column plays) × recency with half-life 90d"
    assert 0 < found["effective"] < 1200
    folder = tmp_path / "run"
    text = call("train", plays, *OPTIONS, "--model", "ease", "--out", folder)
    assert "Weights: log(1 + sum of column plays)" in " ".join(text.split())
    assert "the linear model is fitted to weights" in " ".join(text.split())
    config = load_config(folder / "config.toml")
    given = {"weight": "plays", "half_life": "90d", "duplicates": "sum"}
    assert given.items() <= config["data"].items()
    run, again = ir.Run.load(folder), run_config(config)
    np.testing.assert_array_equal(run.train.toarray(), again.train.toarray())
    assert run.metrics["test"] == again.metrics["test"]
    shown = call(
        "recommend",
        folder,
        "--history",
        "t1,t2",
        "--weights",
        "1,4",
        "--dislike",
        "t3",
        "--explain",
    )
    assert "t3 " in shown  # as a reason
    text = call("recommend", folder, "--history", "t1", "--dislike", "t3", "--json", "-k", 40)
    assert "t3" not in [pick["item"] for pick in json.loads(text)["items"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "mult-vae", *OPTIONS), "MultVAE cannot use weights"),
        (("--half-life", "soon"), "'half_life' must be a duration such as 12h, 30d, 2w or 1y"),
        (("--duplicates", "add"), "'duplicates' must be merge or sum, got 'add'"),
        (("--weight-col", "user"), "line 2: the weight must be a number, got 'u34'"),
    ],
)
def test_errors_leave_no_folder(plays: Path, tmp_path: Path, options, message):
    out = tmp_path / "run"
    result = CliRunner().invoke(app, ["train", str(plays), *options, "--out", str(out)])
    assert result.exit_code != 0
    assert message in str(result.exception) + result.output
    assert not out.exists()


def weighted(plays: Path) -> ir.Split:
    return ir.split_interactions(ir.read(plays, weight="plays"))


def test_a_run_resumes_only_with_the_same_weights(plays: Path, tmp_path: Path):
    settings = {"epochs": 4, "eval_every": 2, "save_seconds": 0, "device": "cpu"}
    model = ir.models.LightGCN(dim=8)
    run = ir.train(weighted(plays), model, out=tmp_path / "run", **settings)
    again = ir.train(weighted(plays), model, out=tmp_path / "run", resume=True, **settings)
    assert again.metrics["test"] == run.metrics["test"]
    write(plays, seed=1)  # the same pairs, other amounts
    with pytest.raises(ItemfoldError, match="holds a run on other data"):
        ir.train(weighted(plays), model, out=tmp_path / "run", resume=True, **settings)
    (tmp_path / "run" / "metrics.json").unlink()  # as if it had not finished
    (tmp_path / "run" / "config.toml").unlink()
    if (tmp_path / "run" / "state.pt").exists():
        with pytest.raises(ItemfoldError, match="holds a run on other data"):
            ir.train(weighted(plays), model, out=tmp_path / "run", resume=True, **settings)


def test_a_refit_uses_the_weights_of_the_validation_part(plays: Path):
    split = weighted(plays)
    run = ir.train(split, ir.models.EASE(l2=20.0))
    assert run.metrics["refit"]
    assert run.train.nnz == split.train.nnz + split.valid.target.nnz
    x = run.train.toarray().astype(np.float64)
    assert len(np.unique(x)) > 50
    inverse = np.linalg.inv(x.T @ x + 20 * np.eye(x.shape[1]))
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(run.model.weights, expected, atol=1e-4)


def test_damaged_weights_are_noticed(plays: Path, tmp_path: Path):
    folder = tmp_path / "run"
    ir.train(weighted(plays), ir.models.EASE(), out=folder)
    tensors = load_file(folder / "model.safetensors")
    for damage in (np.nan, -1.0):
        tensors["train.weight"][3] = damage
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(ItemfoldError):  # by its checksum
            ir.Run.load(folder)
        write_checksums(folder, (folder / "metrics.json").read_text())
        with pytest.raises(ItemfoldError, match="weights must be positive numbers"):
            ir.Run.load(folder)
