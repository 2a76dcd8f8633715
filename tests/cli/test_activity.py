"""Commands show results by activity, and the parts of a hybrid against their sum."""

import copy
import json
import re
from pathlib import Path

import pytest
from command import call
from rich.console import Console

import itemfold as ir
from itemfold.cli.report.page import write_report
from itemfold.cli.tables.details import details
from itemfold.cli.tables.parts import part_warning, parts_alone

DATA = "synthetic:users=200,items=80,interactions=3000"
NAMES = ["all", "new", "known", "light", "middle", "heavy"]


def groups(shown: str) -> list[list[str]]:
    """The cells of the rows by activity."""
    table = re.split(r"^ *group ", shown, flags=re.M)[1]
    rows = [line.split() for line in table.partition("items: length")[0].splitlines()]
    return [cells for cells in rows if cells and cells[0] in NAMES]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    for name in ("ease", "popularity"):
        call("train", DATA, "--split", "rolling", "--model", name, "--out", root / name)
    return {name: root / name for name in ("ease", "popularity")}


def test_train_and_evaluate_print_the_groups(folders, tmp_path):
    trained = call(
        "train",
        DATA,
        *("--split", "rolling", "--model", "ease", "--out", tmp_path / "r", "--details"),
    )
    evaluated = call("evaluate", tmp_path / "r")
    stored = json.loads((tmp_path / "r/metrics.json").read_text())["activity"]
    new, known = (entry for entry in stored if entry["name"] in ("new", "known"))
    apart = [
        f"{e['users']} {e['name']} with ndcg@20 {e['ndcg@20']['mean']:.4f}" for e in (new, known)
    ]
    assert f"test users: {', '.join(apart)}\n" in trained.output
    for shown in (trained.stdout, evaluated.stdout):
        found = groups(shown)
        assert [cells[0] for cells in found] == NAMES
        for cells, entry in zip(found, stored, strict=True):
            assert cells[2] == str(entry["users"])
            assert cells[3] == f"{entry['ndcg@20']['mean']:.4f}"
            assert cells[5] == f"{entry['recall@20']['mean']:.4f}"
        assert "new: first seen in the test period" in " ".join(shown.split())
    as_json = json.loads(call("evaluate", tmp_path / "r", "--json").stdout)
    assert as_json["activity"] == stored


def test_tables_fit_into_80_columns(folders):
    run = ir.Run.load(folders["ease"])
    for entry in run.metrics["activity"]:  # of a large data set
        entry["users"] += 90_000
        entry["most"] += 1000
        entry["least"] += 1000
    console = Console(width=80)
    with console.capture() as capture:
        console.print(details(run))
    shown = capture.get()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert len(groups(shown)) == len(NAMES)


def test_compare_prints_the_groups(folders):
    shown = call("compare", folders["popularity"], folders["ease"]).stdout
    found = groups(shown)
    assert [cells[0] for cells in found] == NAMES[1:]
    stored = json.loads((folders["popularity"] / "metrics.json").read_text())["activity"]
    for cells, entry in zip(found, stored[1:], strict=True):
        assert cells[3:5] == ["popularity", f"{entry['ndcg@20']['mean']:.4f}"]
    assert "Holm correction over all groups" in " ".join(shown.split())


def test_compare_by_another_metric(folders):
    shown = call("compare", *folders.values(), "--metrics", "mrr@20,hit@20").stdout
    assert shown.count("mrr@20") == 2  # in both tables; hit@20 in the first one only
    assert shown.count("hit@20") == 1


def test_the_report_shows_the_groups(folders, tmp_path):
    text = write_report(list(folders.values()), tmp_path / "r.html").read_text(encoding="utf-8")
    section = text.partition("<h3>By activity</h3>")[2].partition("<h3>")[0]
    assert section.count("<svg ") == 1
    for folder in folders.values():
        for entry in json.loads((folder / "metrics.json").read_text())["activity"]:
            for metric in ("ndcg@20", "recall@20"):
                assert f"{entry[metric]['mean']:.4f}" in section
    for name in NAMES:
        assert re.search(rf"{name} \(\d+(–\d+)? items?\)", section)
    assert "Holm correction over all groups" in section


# --- the parts of a hybrid -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def hybrid() -> ir.Run:
    return ir.train(ir.split_users(ir.load(DATA)), epochs=2, eval_every=2)


def with_linear(run: ir.Run, factor: float, p: float) -> ir.Run:
    """A run whose linear part is better than the sum by a factor."""
    out = copy.copy(run)
    whole = run.metrics["test"]["ndcg@20"]
    parts = {name: {"ndcg@20": whole * 0.5, "p": 0.001} for name in run.metrics["parts"]}
    parts["linear"] = {"ndcg@20": whole * factor, "difference": whole * (factor - 1), "p": p}
    out.metrics = {**run.metrics, "parts": parts}
    return out


def test_parts_are_stored_with_their_difference_from_the_sum(hybrid):
    whole = hybrid.metrics["test"]["ndcg@20"]
    assert set(hybrid.metrics["parts"]) >= {"linear", "popularity"}
    for part in hybrid.metrics["parts"].values():
        assert part["ndcg@20"] - part["difference"] == pytest.approx(whole)
    assert [part.value for part in parts_alone(hybrid)] == sorted(
        (part["ndcg@20"] for part in hybrid.metrics["parts"].values()), reverse=True
    )


@pytest.mark.parametrize(
    ("factor", "p", "warns"),
    [
        (1.02, 0.9, True),
        (1.005, 0.04, True),
        (1.005, 0.06, False),
        (1.0, 1.0, False),
        (0.9, 0.001, False),
    ],
)
def test_a_part_better_than_the_sum_is_named(hybrid, factor, p, warns, tmp_path):
    run = with_linear(hybrid, factor, p)
    whole = hybrid.metrics["test"]["ndcg@20"]
    sentence = part_warning(run)
    console = Console(width=300)
    with console.capture() as capture:
        console.print(details(run))
    assert ("warning: " in capture.get()) == warns == bool(sentence)
    assert f"linear alone {whole * factor:.4f}" in re.sub(" +", " ", capture.get())
    if warns:
        assert sentence in capture.get()
        for text in (
            "linear",
            f"{whole * factor:.4f}",
            f"{whole:.4f}",
            "validation selected the sum",
        ):
            assert text in sentence
    if p == 0.9:
        text = write_report({"h": run}, tmp_path / "r.html").read_text(encoding="utf-8")
        assert f"Warning: {sentence}." in text


def test_a_run_of_an_earlier_release_has_no_difference(hybrid):
    run = with_linear(hybrid, 1.05, 0.5)
    del run.metrics["parts"]["linear"]["difference"]
    assert "linear" in part_warning(run)
    run.metrics["test"] = {}  # the metric was not among those of the test
    assert part_warning(run) == ""


def test_a_metric_at_another_cut_off_is_compared_too():
    split = ir.split_users(ir.load(DATA))
    run = ir.train(split, epochs=2, eval_every=2, metric="ndcg@5")
    whole = ir.evaluate(run, split, metrics=["ndcg@5"]).metrics["ndcg@5"]
    for part in parts_alone(run):
        assert part.whole == pytest.approx(whole)


def test_other_models_have_no_parts(folders, tmp_path):
    run = ir.Run.load(folders["ease"])
    assert parts_alone(run) == []
    assert part_warning(run) == ""
    text = write_report({"ease": run}, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Parts of the hybrid" not in text
