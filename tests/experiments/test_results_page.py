"""RESULTS.md: every figure comes from a result file, and the committed one is up to date."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from itemrec.errors import ItemrecError
from itemrec.experiments.results_page.page import generate, write
from itemrec.experiments.suites.suite import FOLDER, Entry, load_suite

ROOT = Path(__file__).parents[2]
VALUES = {"uniform": (0.050, 0.054), "tempered": (0.056, 0.060)}


def result(row: str, seed: int, ndcg: float, **other: Any) -> dict[str, Any]:
    cell = next(c for c in load_suite("negatives").cells(["yelp2018"]) if c.row == row)
    return {
        "suite": "negatives",
        "row": row,
        "data": "yelp2018/transductive",
        "seed": seed,
        "id": f"{row}{seed}",
        "dataset": {"fingerprint": "f9b405a08c5d2c9f", "users": 7, "items": 8, "interactions": 9},
        "best_epoch": 40,
        "epochs": 80,
        "refit": True,
        "seconds": {"train": 12.0},
        "test": {"capped_recall@20": 0.07, "recall@20": 0.06, "ndcg@20": ndcg},
        "config": cell.seeded(seed),
        "hardware": {"device": "GPU X", "cpu": "C", "cores": 4, "jobs": 2, "torch": "2.13.0"},
        **other,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "results"
    place = home / "negatives" / Entry("yelp2018", "transductive").folder
    place.mkdir(parents=True)
    for row, values in VALUES.items():
        for seed, value in enumerate(values):
            (place / f"{row}-{seed}.json").write_text(json.dumps(result(row, seed, value)))
    tests = {"ndcg@20": {"p_t": 0.0123, "difference": 0.006}, "seeds": [0, 1]}
    runs = {f"{row}-{seed}": f"{row}{seed}" for row in VALUES for seed in (0, 1)}
    (place / "tests.json").write_text(json.dumps({"rows": {"tempered": tests}, "runs": runs}))
    return home


def test_figures_of_the_preamble_are_looked_up(folder: Path) -> None:
    words = "# Found\n\nUniform has {negatives yelp2018/transductive uniform ndcg@20}.\n"
    words += "\n| a |\n| - |\n| 1 |\n\n{negatives yelp2018/transductive uniform ndcg@20#1}\n"
    (folder / "PREAMBLE.md").write_text(words)
    mean = 100 * statistics.mean(VALUES["uniform"])
    second = 100 * VALUES["uniform"][1]
    expected = f"Uniform has {mean:.2f}.\n\n| a |\n| - |\n| 1 |\n\n{second:.2f}\n"
    assert expected in generate(folder)["RESULTS.md"]
    (folder / "PREAMBLE.md").write_text(words.replace("uniform ndcg", "other ndcg"))
    with pytest.raises(ItemrecError, match=r"names a figure that no result has: .*other"):
        generate(folder)


def test_figures_are_means_over_seeds(folder: Path) -> None:
    (folder / "PREAMBLE.md").write_text("# What was found\n\nWords.\n")
    text = generate(folder)["RESULTS.md"]
    name, link = "Negatives by personalised PageRank", "negatives-by-personalised-pagerank"
    assert text.startswith(f"# What was found\n\nWords.\n\n- [{name}](#{link})\n\n## {name}")
    for values, mark in zip(VALUES.values(), ("", " ▲"), strict=True):
        mean, spread = 100 * statistics.mean(values), 100 * statistics.stdev(values)
        assert f"{mean:.2f} ± {spread:.2f}{mark}" in text
    assert "| .012 |" in text
    assert "`itemrec reproduce negatives --datasets yelp2018/transductive --rows tempered`" in text
    assert "fingerprint `f9b405a08c5d2c9f`" in text
    assert "GPU X (C, 4 cores), torch 2.13.0, 2 runs side by side" in text
    assert "- *uniform*, *tempered*: 2 of 3 seeds so far." in text


def test_a_row_that_its_limit_ended_is_named(folder: Path) -> None:
    remark = "ended by the limit of epochs"
    assert remark not in generate(folder)["RESULTS.md"]
    limit = result("tempered", 1, 0.060)["config"]["train"]["epochs"]
    path = next(folder.rglob("tempered-1.json"))
    path.write_text(json.dumps(result("tempered", 1, 0.060, epochs=limit)))
    assert f"- *tempered*: {remark}" in generate(folder)["RESULTS.md"]


def test_tests_of_other_results_are_not_shown(folder: Path) -> None:
    path = next(folder.rglob("tempered-1.json"))
    path.write_text(json.dumps(result("tempered", 1, 0.061, id="newer")))
    text = generate(folder)["RESULTS.md"]
    assert "▲" not in text
    assert "No paired tests: they were made before the last of these results." in text


def test_a_row_that_left_the_suite_takes_no_tests_with_it(folder: Path) -> None:
    left = {**result("uniform", 0, 0.050), "row": "gone", "id": "gone0"}
    next(folder.rglob("uniform-0.json")).with_name("gone-0.json").write_text(json.dumps(left))
    path = next(folder.rglob("tests.json"))
    tests = json.loads(path.read_text())
    for runs in (tests["runs"], {**tests["runs"], "gone-0": "gone0"}):  # made after, or before
        path.write_text(json.dumps({**tests, "runs": runs}))
        text = generate(folder)["RESULTS.md"]
        assert " ▲" in text
        assert "No paired tests" not in text
        assert "Left out, no longer rows of the suite: gone." in text


def test_results_of_other_settings_are_told(folder: Path) -> None:
    content = result("tempered", 1, 0.060)
    content["config"]["train"]["lr"] = 0.5
    next(folder.rglob("tempered-1.json")).write_text(json.dumps(content))
    assert "- *tempered*: made when train.lr had another value" in generate(folder)["RESULTS.md"]


def test_the_same_files_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in write(folder, tmp_path / "RESULTS.md")}
    assert set(first) == {"RESULTS.md", "negatives.svg"}
    assert {p.name: p.read_bytes() for p in write(folder, tmp_path / "RESULTS.md")} == first
    assert first["negatives.svg"].startswith(b"<svg")
    next(folder.rglob("uniform-1.json")).write_text(json.dumps(result("uniform", 1, 0.0541)))
    assert generate(folder)["plots/negatives.svg"].encode() != first["negatives.svg"]


def test_the_committed_results_agree_with_their_files() -> None:
    """Text is compared as it is; a plot by the figures in it, whatever version drew it."""
    home = ROOT / "results"
    if not any(home.glob("*/*/*.json")):
        pytest.skip("there are no results yet")
    for name, text in generate(home).items():
        path = ROOT / name if name == "RESULTS.md" else home / name
        assert path.exists(), f"{path} is missing: call make results"
        stored = path.read_text(encoding="utf-8")
        if name == "RESULTS.md":
            assert stored == text, "RESULTS.md is out of date: call make results"
        else:
            assert re.findall("<!-- figures .* -->", stored) == re.findall(
                "<!-- figures .* -->", text
            ), f"{path} is out of date: call make results"


def test_a_table_of_cost_has_seconds_an_epoch(folder: Path) -> None:
    text = (FOLDER / "negatives.toml").read_text()
    (folder / "negatives" / "negatives.toml").write_text("cost = true\n" + text)
    table = generate(folder)["RESULTS.md"]
    assert "s an epoch | s to the best epoch | epoch | seconds" in table
    assert "| 0.10 | 4.0 | 40 | 12.0 | 2 |" in table  # 12 s for 80 + 40 epochs, 40 to the best


def test_several_metrics_can_be_plotted(folder: Path) -> None:
    text = (FOLDER / "negatives.toml").read_text()
    (folder / "negatives" / "negatives.toml").write_text('plot = ["recall@20", "ndcg@20"]\n' + text)
    plot = generate(folder)["plots/negatives.svg"]
    assert "yelp2018, transductive: recall@20" in plot
    assert "yelp2018, transductive: NDCG@20" in plot


def test_the_legend_names_the_baseline_of_a_row(folder: Path) -> None:
    text = (FOLDER / "negatives.toml").read_text()
    row = 'name = "tempered"\n'
    assert "below *uniform*, p" in generate(folder)["RESULTS.md"]
    (folder / "negatives" / "negatives.toml").write_text(
        text.replace(row, row + 'baseline = "literal"\n')
    )
    assert "below *literal* (*tempered*), p" in generate(folder)["RESULTS.md"]


def test_a_folder_that_is_not_there_leaves_the_page_alone(tmp_path: Path) -> None:
    (tmp_path / "RESULTS.md").write_text("precious")
    with pytest.raises(ItemrecError, match="'results' must be a folder of results"):
        write(tmp_path / "typo", tmp_path / "RESULTS.md")
    assert (tmp_path / "RESULTS.md").read_text() == "precious"
