"""The figures that `itemfold models` shows are those of the stored results."""

import json
from pathlib import Path

import measured
import pytest
from rich.console import Console

from itemfold.cli.tables import catalogue
from itemfold.experiments.suites.store import append_lines, row_line

ROOT = Path(__file__).parents[2]


def test_the_shipped_figures_are_those_of_the_results() -> None:
    assert measured.FILE.read_text("utf-8") == measured.to_text(measured.collect(ROOT / "results"))


def test_a_figure_is_the_mean_over_seeds(tmp_path: Path) -> None:
    for row, model in (("ease", "ease"), ("gcn-item", "gcn"), ("tuned", "ease")):
        for seed, value in enumerate((0.1, 0.2)):
            test = {"ndcg@20": value, "capped_recall@20": 2 * value}
            run = {"kind": "run", "id": f"{row}{seed}", "model": model, "test": test}
            append_lines(
                tmp_path, "systems", run, row_line("toy/transductive", row, seed, run["id"])
            )
    found = measured.collect(tmp_path)
    assert set(found) == {"ease", "gcn", "tuned"}  # a model without a row of its name too
    assert found["ease"]["toy/transductive"] == {
        "ndcg@20": pytest.approx(0.15),
        "capped_recall@20": pytest.approx(0.3),
        "seeds": 2,
    }


def test_models_shows_them() -> None:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(catalogue.model_table())
    shown = console.export_text()
    for data, test in json.loads(measured.FILE.read_text("utf-8"))["ease"].items():
        assert f"{data} {100 * test['ndcg@20']:.2f}" in shown
