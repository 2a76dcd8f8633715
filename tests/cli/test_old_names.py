"""Names of a hybrid's settings in release 0.2 work, and are noted in one line on stderr."""

import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.cli.errors import warnings_as_notes
from itemfold.settings.toml_file import flat

TINY = "synthetic:users=80,items=60,interactions=900"
WORKS = "the old name still works"


def call(*args: object) -> list[str]:
    """The lines on stderr."""
    result = CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "160"})
    assert result.exit_code == 0, (result.output, result.stderr, result.exception)
    return result.stderr.splitlines()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


OLD = [
    ("dim=4", "dim", "gnn.dim", 4),
    ("model.layers=1", "layers", "gnn.layers", 1),
    ("linear_l2=30.0", "linear_l2", "linear.l2", 30.0),
    ("model.keep=9", "keep", "linear.keep", 9),
]


@pytest.mark.parametrize(("text", "old", "new", "value"), OLD)
def test_a_setting_by_its_old_name(text, old, new, value):
    lines = call("train", TINY, "--epochs", "1", "--set", text, "--out", "r")
    noted = [] if text == "dim=4" else [f"itemfold: '{old}' is now '{new}'; {WORKS}"]
    assert [line for line in lines if "is now" in line] == noted
    assert flat(ir.Run.load("r").config)[f"model.{new}"] == value


def test_a_file_with_old_names_gives_one_note_each(here):
    (here / "c.toml").write_text(
        '[model]\nname = "hybrid"\ngnn = "gcn"\ndim = 4\nlinear_l2 = 30.0\n[train]\nepochs = 1\n'
    )
    lines = call("train", TINY, "--config", "c.toml", "--out", "r")
    assert sorted(line for line in lines if "is now" in line) == [
        f"itemfold: 'dim' is now 'gnn.dim'; {WORKS}",
        f"itemfold: 'linear_l2' is now 'linear.l2'; {WORKS}",
    ]
    model = ir.Run.load("r").config["model"]
    assert (model["gnn"]["name"], model["gnn"]["dim"], model["linear"]["l2"]) == ("gcn", 4, 30.0)


def test_names_of_release_0_1_are_errors_that_list_the_names_of_today(here):
    (here / "c.toml").write_text("[train]\nsampled = 5\n")
    result = CliRunner().invoke(app, ["train", TINY, "--config", "c.toml"])
    assert result.exit_code == 2
    assert "'train' has no setting 'sampled'" in result.stderr
    assert "n_negatives" in result.stderr


def test_other_warnings_are_left_alone():
    with warnings.catch_warnings(record=True) as caught, warnings_as_notes():
        warnings.simplefilter("always")
        warnings.warn("something else will change", FutureWarning, stacklevel=1)
        warnings.warn("'b' is now 'c.d'; the old name still works", UserWarning, stacklevel=1)
    assert [str(one.message) for one in caught] == [
        "something else will change",
        "'b' is now 'c.d'; the old name still works",
    ]
