"""Help shows defaults and whole lists of choices, from the same tables that training reads."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.evaluation.metrics import DEFINITIONS
from itemfold.losses import LOSSES
from itemfold.models import MODELS
from itemfold.sampling import NEGATIVES
from itemfold.settings.resolve import resolve
from itemfold.settings.schema import TrainConfig

TINY = "synthetic:users=80,items=60,interactions=900"


def help_of(command: str, columns: int = 160) -> str:
    """The text of help without frames and line ends."""
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": str(columns)}).output
    return " ".join(re.sub("[│─╭╮╰╯]", " ", shown).split())


@pytest.mark.parametrize("command", ["train", "tune"])
def test_defaults_are_shown(command: str) -> None:
    text, usual = help_of(command), resolve({"data": {"data": TINY}})
    name = usual.model.name
    assert f"`itemfold models` describes them. Default: {name}, which selects its own" in text
    other = resolve({"data": {"data": TINY}, "loss": {"name": "bpr"}}).model.name
    assert f"{other} if only --loss or --negatives is given." in text
    for default in ("default_loss", "default_negatives"):
        usually = Counter(getattr(model, default) for model in MODELS.values()).most_common(1)
        assert f"Default: set by the model, usually {usually[0][0]}." in text
    assert "transductive (known users) or inductive (unseen users). Default: transductive." in text
    assert usual.split["strategy"] == "interactions"
    for setting in ("seed", "device"):
        assert f"Default: {getattr(TrainConfig(), setting)}." in text
    for setting in ("epochs", "lr", "l2", "batch"):
        assert f"Default: set by the model, or {getattr(TrainConfig(), setting)}." in text
    assert "{" not in text  # everything was filled in


@pytest.mark.parametrize("columns", [80, 200])
def test_lists_of_choices_are_whole(columns: int) -> None:
    text = help_of("train", columns)
    assert "…" not in text
    for table in (MODELS, LOSSES, NEGATIVES):
        assert ", ".join(table) in text


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command in an empty folder and return what it prints."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    return call


def test_novelty_is_explained_where_it_is_shown(run: Callable[..., str]) -> None:
    run("train", TINY, "--model", "ease", "--out", "r")
    assert DEFINITIONS["novelty"] in run("evaluate", "r")
    assert DEFINITIONS["novelty"] not in run("evaluate", "r", "--metrics", "ndcg@5")


def test_a_report_has_the_best_of_each_metric_in_bold_but_not_of_novelty(
    run: Callable[..., str],
) -> None:
    names = ("ease", "popularity")
    for model in names:
        run("train", TINY, "--model", model, "--out", model)
    run("report", *names)
    page = Path("report.html").read_text(encoding="utf-8")
    tests = [ir.Run.load(name).metrics["test"] for name in names]

    def best(metric: str) -> str:
        return f"{max(test[metric] for test in tests):.4f}"

    assert f"<b>{best('ndcg@20')}</b>" in page
    assert f"<b>{best('coverage@20')}</b>" in page
    assert best("novelty@20") in page
    assert f"<b>{best('novelty@20')}</b>" not in page
    assert "higher means rarer items, not better lists" in page


def test_models_names_the_default_and_shows_no_empty_values(run: Callable[..., str]) -> None:
    text = run("models")
    assert text.count("Default: hybrid.") == 1
    assert "None" not in text
