"""The figures that `itemfold models` shows are those of the stored results."""

import json
from pathlib import Path

import measured
import pytest
from rich.console import Console

from itemfold.cli.tables import catalogue
from itemfold.cli.tables.formats import on_terminal
from itemfold.errors import ItemfoldError
from itemfold.experiments.suites.store import append_lines, row_line
from itemfold.models import MODELS
from itemfold.validation import schema

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
    stored = json.loads(measured.FILE.read_text("utf-8"))
    rows = {row["model"]: row for row in catalogue.model_table().records()}
    assert list(rows) == list(MODELS)
    for name, row in rows.items():
        for data, column in catalogue.SHORT.items():
            expected = stored.get(name, {}).get(data)
            assert row[column] == (expected and pytest.approx(100 * expected["ndcg@20"]))
    for data, test in stored["ease"].items():
        (found,) = (
            r
            for r in catalogue.one_model("ease")[2].records()
            if r["data"] + "/" + r["protocol"] == data
        )
        assert found["NDCG@20"] == pytest.approx(100 * test["ndcg@20"])
        assert found["seeds"] == test["seeds"]


def test_models_has_a_line_a_model_in_80_columns() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(on_terminal(catalogue.model_table()))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    for name in MODELS:
        assert len([line for line in lines if line.split()[:1] == [name]]) == 1
    assert len(lines) < len(MODELS) + 12


def test_one_model_in_full_and_an_unknown_one() -> None:
    for name in MODELS:
        facts, *others = catalogue.one_model(name)
        assert MODELS[name].paper in facts.rows[0][1]
        settings = [
            row["setting"] for table in others for row in table.records() if "setting" in row
        ]
        assert settings == [f"model.{key}" for key in schema(MODELS[name])]
    with pytest.raises(ItemfoldError, match="'MODEL' must be one of hybrid, lightgcn"):
        catalogue.one_model("easy")
