"""`metrics_as` reproduces the figures that the other libraries themselves produced.

`tests/fixtures/metrics/make.py` ran them on the lists in figures.json.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.data.interactions import IdMap
from itemfold.data.splitting.split import HeldOut
from itemfold.evaluation.conventions import CONVENTIONS, convention_values
from itemfold.evaluation.evaluator import Evaluator
from itemfold.evaluation.metrics import parse_metric, parse_metrics

FILE = Path(__file__).parents[1] / "fixtures" / "metrics" / "figures.json"
CONTENT = json.loads(FILE.read_text(encoding="utf-8"))
FIGURES = CONTENT["figures"]
CASES = [(name, kind) for name, found in FIGURES.items() for kind in found if kind != "version"]


class Listed(ir.models.Model):
    """Scores that give exactly these lists; the other items have −∞, so that lists may be short."""

    def __init__(self) -> None:
        super().__init__()

    def scores(self, history: sp.csr_array, users: np.ndarray) -> torch.Tensor:
        out = torch.full((len(users), CONTENT["items"]), -torch.inf)
        for row, user in enumerate(users):
            for place, item in enumerate(self.lists[user]):
                out[row, item] = -place
        return out


def evaluated(kind: str, convention: str, names: list[str]) -> dict[str, float]:
    """The means as `evaluate` computes them, for lists of a fixture."""
    targets = CONTENT["targets"]
    model = Listed()
    model.lists = CONTENT["lists"][kind]
    rows = np.repeat(np.arange(len(targets)), [len(t) for t in targets])
    shape = (len(targets), CONTENT["items"])
    ones = np.ones(len(rows), dtype=np.float32)
    target = sp.csr_array((ones, (rows, np.concatenate(targets))), shape=shape)
    users = np.arange(len(targets))
    held = HeldOut(sp.csr_array(shape, dtype=np.float32), target, users, IdMap(users).ids)
    values, _ = Evaluator(held, "cpu").values(model, parse_metrics(names), None, convention)
    return {name: float(np.mean(value)) for name, value in values.items()}


@pytest.mark.parametrize(("library", "kind"), CASES)
def test_figures_are_those_that_the_library_produced(library: str, kind: str) -> None:
    expected = FIGURES[library][kind]
    found = evaluated(kind, library, list(expected))
    assert len(found) == len(expected) >= 9
    for name, value in expected.items():
        assert found[parse_metric(name).key] == pytest.approx(value, abs=1e-9), name


def test_every_library_has_figures_of_every_metric_that_it_is_said_to_have() -> None:
    assert set(CONVENTIONS) == {*FIGURES, "paper"}
    for library, figures in FIGURES.items():
        measured = {parse_metric(name).name for name in figures["full"]}
        assert measured == set(CONVENTIONS[library])


def test_the_definitions_do_differ() -> None:
    at_5 = {name: figures["full"].get("ndcg@5") for name, figures in FIGURES.items()}
    assert len({round(value, 6) for value in at_5.values()}) == 3  # recbole and implicit agree
    assert FIGURES["recbole"]["full"]["recall@5"] < FIGURES["lenskit"]["full"]["recall@5"]


def test_the_paper_divides_recall_by_what_fits_into_the_list() -> None:
    found = evaluated("full", "paper", ["recall@5", "ndcg@5"])
    recalls, gains = [], []
    for listed, wanted in zip(CONTENT["lists"]["full"], CONTENT["targets"], strict=True):
        places = [place for place, item in enumerate(listed[:5], start=1) if item in wanted]
        recalls.append(len(places) / min(len(wanted), 5))
        ideal = sum(1 / math.log2(1 + place) for place in range(1, min(len(wanted), 5) + 1))
        gains.append(sum(1 / math.log2(1 + place) for place in places) / ideal)
    assert found["recall@5"] == pytest.approx(np.mean(recalls))
    assert found["ndcg@5"] == pytest.approx(np.mean(gains))


@pytest.mark.parametrize("library", CONVENTIONS)
def test_a_cut_off_beyond_the_catalogue_and_an_empty_list_have_finite_values(library: str) -> None:
    hits = np.array([[True, False, False], [False, False, False]])
    listed = np.array([[2, 0, 1], [-1, -1, -1]])
    for name in CONVENTIONS[library]:
        metric = parse_metric(f"{name}@50")
        values = convention_values(library, metric, hits, np.array([1, 2]), listed)
        assert np.isfinite(values).all()
        assert values[0] > 0 == values[1]


# --- in Python and on the command line -----------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[ir.Run, ir.Split, Path]:
    data = "synthetic:users=60,items=80,interactions=900"
    folder = tmp_path_factory.mktemp("conventions") / "r"
    done = CliRunner().invoke(app, ["train", data, "--model", "ease", "--out", str(folder)])
    assert done.exit_code == 0, done.output
    run = ir.Run.load(folder)
    return run, ir.split_interactions(ir.load(data)).refit(), folder


def test_the_default_is_all_metrics_of_the_library(trained) -> None:
    run, split, _ = trained
    found = ir.evaluate(run, split, k=[5, 10], metrics_as="lenskit")
    assert set(found.metrics) == {f"{n}@{k}" for n in CONVENTIONS["lenskit"] for k in (5, 10)}
    ours = ir.evaluate(run, split, k=10)
    assert found.metrics["recall@10"] == pytest.approx(ours.metrics["capped_recall@10"])
    assert found.metrics["ndcg@10"] != pytest.approx(ours.metrics["ndcg@10"], abs=1e-6)
    same = ir.evaluate(run, split, k=10, metrics_as="recbole")
    for name, value in same.metrics.items():
        assert value == pytest.approx(ours.metrics[name])


def test_the_command_line_says_whose_metrics_they_are(trained) -> None:
    run, split, folder = trained
    command = ["evaluate", str(folder), "--k", "10", "--metrics-as", "implicit"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert "metrics as implicit defines them" in shown.output
    stored = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert stored["metrics_as"] == "implicit"
    expected = ir.evaluate(run, split, k=10, metrics_as="implicit").metrics
    assert stored["metrics"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"metrics_as": "trec"},
            "must be recbole, lenskit, rectools, implicit or paper, got 'trec'",
        ),
        ({"metrics_as": "implicit", "metrics": ["mrr@5"]}, "'metrics' must be of precision@k"),
        ({"metrics_as": "recbole", "metrics": ["ndcg"]}, "got 'ndcg'"),
        ({"metrics_as": "recbole", "metrics": ["coverage@5"]}, "got 'coverage@5'"),
        ({"metrics_as": "recbole", "k": 0}, "'k' must be a positive integer"),
    ],
)
def test_what_a_library_does_not_have_is_reported(trained, settings, sentence: str) -> None:
    run, split, _ = trained
    with pytest.raises(ir.ItemfoldError) as error:
        ir.evaluate(run, split, **settings)
    assert sentence in str(error.value)
