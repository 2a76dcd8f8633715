"""The figures that `itemrec models` shows are those of the result files."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from itemrec.cli.tables import catalogue
from itemrec.experiments import measured

ROOT = Path(__file__).parents[2]


def test_the_shipped_figures_are_those_of_the_results() -> None:
    assert measured.FILE.read_text("utf-8") == measured.text(measured.collect(ROOT / "results"))


def test_a_figure_is_the_mean_over_seeds(tmp_path: Path) -> None:
    folder = tmp_path / "systems" / "toy-transductive"
    folder.mkdir(parents=True)
    for seed, value in enumerate((0.1, 0.2)):
        test = {"ndcg@20": value, "capped_recall@20": 2 * value}
        result = {"row": "ease", "data": "toy/transductive", "test": test}
        (folder / f"ease-{seed}.json").write_text(json.dumps(result))
    found = measured.collect(tmp_path)["ease"]["toy/transductive"]
    assert found == {
        "ndcg@20": pytest.approx(0.15),
        "capped_recall@20": pytest.approx(0.3),
        "seeds": 2,
    }


def test_models_shows_them() -> None:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(catalogue.models())
    told = console.export_text()
    for data, test in measured.figures()["ease"].items():
        assert f"{data} {100 * test['ndcg@20']:.2f}" in told
