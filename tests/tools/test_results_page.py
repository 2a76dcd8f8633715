"""The pages: every figure comes from the store, and the committed ones are up to date."""

import functools
import json
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_page.pages import generate, write
from results_page.rank_page import rank_plot

from itemfold.errors import ItemfoldError
from itemfold.evaluation.rank_tests import RankTest
from itemfold.experiments.suites import FOLDER
from itemfold.experiments.suites.ranking_losses_runs import MeanRanks
from itemfold.experiments.suites.store import Line, append_lines, path_of, read_store, row_line
from itemfold.experiments.suites.suite import Cell, load_suite

ROOT = Path(__file__).parents[2]
DATA = "yelp2018/transductive"
VALUES = {"uniform": (0.050, 0.054), "tempered": (0.056, 0.060)}
FOUND = "negatives.md"


@functools.cache
def cells() -> list[Cell]:
    return load_suite("negatives").cells(["yelp2018"])


def result(row: str, seed: int, ndcg: float, **other: Any) -> Line:
    cell = next(cell for cell in cells() if cell.row == row)
    return {
        "kind": "run",
        "id": f"{row}{seed}",
        "dataset": {"fingerprint": "f9b405a08c5d2c9f", "users": 7, "items": 8, "interactions": 9},
        "best_epoch": 40,
        "epochs": 80,
        "refit": True,
        "seconds": {"train": 12.0},
        "valid": {},
        "test": {"capped_recall@20": 0.07, "recall@20": 0.06, "ndcg@20": ndcg},
        "config": cell.seeded(seed),
        "hardware": {"device": "GPU X", "cpu": "C", "cores": 4, "jobs": 2, "torch": "2.13.0"},
        **other,
    }


def add(home: Path, row: str, seed: int, run: Line) -> None:
    append_lines(home, "negatives", run, row_line(DATA, row, seed, run["id"]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "results"
    for row, values in VALUES.items():
        for seed, value in enumerate(values):
            add(home, row, seed, result(row, seed, value))
    tests = {"ndcg@20": {"p_t": 0.0123, "difference": 0.006}, "seeds": [0, 1]}
    runs = {f"{row}-{seed}": f"{row}{seed}" for row in VALUES for seed in (0, 1)}
    line = {"kind": "tests", "data": DATA, "rows": {"tempered": tests}, "runs": runs}
    append_lines(home, "negatives", line)
    return home


TEMPLATE = "RESULTS.template.md"
PLACE = "negatives yelp2018/transductive"


def test_figures_of_the_template_are_looked_up(folder: Path) -> None:
    words = f"# Found\n\nUniform has {{{PLACE} uniform ndcg@20}}.\n"
    words += f"\n| a |\n| - |\n| 1 |\n\n{{{PLACE} uniform ndcg@20#1}}\n"
    (folder / TEMPLATE).write_text(words)
    mean = 100 * statistics.mean(VALUES["uniform"])
    second = 100 * VALUES["uniform"][1]
    expected = f"# Found\n\nUniform has {mean:.2f}.\n\n| a |\n| - |\n| 1 |\n\n{second:.2f}\n"
    assert expected in generate(folder)["RESULTS.md"]
    (folder / TEMPLATE).write_text(words.replace("uniform ndcg", "other ndcg"))
    with pytest.raises(ItemfoldError, match=r"no result has the figure .*other"):
        generate(folder)


@pytest.mark.parametrize(
    ("placeholder", "text"),
    [
        (f"p {PLACE} tempered ndcg@20", ".012"),
        (f"epoch_seconds {PLACE} uniform", "0.10"),  # 12 s for 80 + 40 epochs
        (f"best_seconds {PLACE} uniform", "4.0"),
        ("above negatives tempered ndcg@20", "1 of 1"),
        ("significant negatives tempered ndcg@20", "1 of 1"),
        ("exceeds negatives uniform tempered ndcg@20", "0 of 1"),
        ("behind negatives ndcg@20 uniform", "10.3 %"),  # 5.2 of 5.8
        ("behind negatives ndcg@20 tempered", "0.0 %"),
        (f"ratio {PLACE} uniform ndcg@20 recall@20", ".867"),
        ("published yelp2018/transductive ndcg@20", "–"),
        ("rank_test negatives", "no test: yelp2018/transductive is the only data set so far"),
        (
            "rank_table negatives ndcg@20",
            f"| loss | mean rank | {DATA} |\n| :-- | --: | --: |\n"
            "| tempered | 1.0 | 5.80 ± 0.28 ▲ |\n| uniform | 2.0 | 5.20 ± 0.28 |",
        ),
        (
            "pages",
            "| | |\n| :-- | :-- |\n"
            "| [Negatives by personalised PageRank](results/negatives.md) |  |",
        ),
    ],
)
def test_a_placeholder_is_replaced_by_its_figure(folder: Path, placeholder: str, text: str) -> None:
    (folder / TEMPLATE).write_text(f"{{{placeholder}}}")
    assert generate(folder)["RESULTS.md"].split("\n\n")[0] == text


def test_losses_near_the_best_are_filled() -> None:
    test = RankTest(np.array([1.5, 2.0, 6.0]), 9.0, 0.01, 2.0)
    each = {"x": [1.0, 2.0], "y": [2.0, 2.0], "z": [6.0, 6.0]}
    found = MeanRanks(("a", "b"), {"x": 1.5, "y": 2.0, "z": 6.0}, test, each)
    picture = rank_plot(found, 2.0, "ranks")
    assert "critical difference 2.0" in picture
    assert "mean rank over 2 data sets" in picture
    dots = re.findall(r'style="fill: (#\w+); stroke: #1f5fa8"', picture)
    assert dots == ["#1f5fa8", "#1f5fa8", "#ffffff"]
    assert re.findall(r">([xyz])</text>", picture) == ["x", "y", "z"]


@pytest.mark.parametrize(
    "wrong", ["p a b", "paper x", "nothing", "above negatives gone ndcg@20", "future"]
)
def test_an_unknown_placeholder_is_named(folder: Path, wrong: str) -> None:
    (folder / TEMPLATE).write_text(f"{{{wrong}}}")
    with pytest.raises(ItemfoldError, match=f"no result has the figure {{{wrong}}}"):
        generate(folder)


def test_a_table_of_the_future_has_all_and_new_users(folder: Path) -> None:
    def row(every: float, new: float | None, **more: float) -> dict[str, float | None]:
        return {"all": every, "new": new, **more}

    timed = {
        "popularity": row(0.1, 0.2),
        "best popularity": row(0.9, 0.9),  # chosen on the test part
        "default, chosen at random": row(0.25, 0.3, p=0.0312),
        "default, chosen in time": row(0.3, 0.25),
    }
    stored = [
        {"data": "plays", "rows": timed},
        {"data": "synthetic:users=9", "rows": {"popularity": row(0.4, None)}},
    ]
    (folder / "future.json").write_text(json.dumps(stored))
    (folder / TEMPLATE).write_text("{future}\n\np = {future_p plays}")
    table, p, *_ = generate(folder)["RESULTS.md"].split("\n\n")
    assert table.split("\n") == [
        "|  | plays | synthetic |",
        "| :-- | --: | --: |",
        "| popularity | 10.00 / 20.00 | **40.00** |",
        "| default, chosen at random | 25.00 / 30.00 | – |",
        "| default, chosen in time | **30.00** / 25.00 | – |",
    ]
    assert p == "p = .031"


def test_figures_are_means_over_seeds(folder: Path) -> None:
    made = generate(folder)
    name = "Negatives by personalised PageRank"
    assert f"[{name}](results/negatives.md)" in made["RESULTS.md"]
    text = made[FOUND]
    assert text.startswith(f"# {name}\n")
    assert f"![{name}](plots/negatives.svg)" in text
    for values, mark in zip(VALUES.values(), ("", " ▲"), strict=True):
        mean, spread = 100 * statistics.mean(values), 100 * statistics.stdev(values)
        assert f"{mean:.2f} ± {spread:.2f}{mark}" in text
    assert "| .012 |" in text
    assert "`itemfold reproduce negatives --datasets yelp2018/transductive --rows tempered`" in text
    assert "fingerprint `f9b405a08c5d2c9f`" in text
    assert "GPU X (C, 4 cores), torch 2.13.0, 2 runs in parallel" in text
    assert "- *uniform*, *tempered*: 2 of 3 seeds so far." in text
    assert re.search(
        "Not run yet: `itemfold reproduce negatives --datasets yelp2018/tra.*band", text
    )


def test_a_row_that_stopped_at_the_epoch_limit_is_reported(folder: Path) -> None:
    remark = "stopped at the maximum number of epochs"
    assert remark not in generate(folder)[FOUND]
    limit = result("tempered", 1, 0.060)["config"]["train"]["epochs"]
    add(folder, "tempered", 1, result("tempered", 1, 0.060, epochs=limit))
    assert f"- *tempered*: {remark}" in generate(folder)[FOUND]


def test_a_first_validation_that_wins_is_reported(folder: Path) -> None:
    remark = "the first validation was the best"
    assert remark not in generate(folder)[FOUND]
    every = result("tempered", 1, 0.060)["config"]["train"]["eval_every"]
    add(folder, "tempered", 1, result("tempered", 1, 0.060, best_epoch=every))
    assert f"- *tempered*: {remark} in 1 of 2 runs" in generate(folder)[FOUND]
    early = result("tempered", 1, 0.060, best_epoch=every)
    early["config"]["train"]["eval_early"] = 3  # it looked at epochs 1 to 3 before
    add(folder, "tempered", 1, early)
    assert remark not in generate(folder)[FOUND]


def test_the_legend_says_what_the_tests_are_over(folder: Path) -> None:
    assert "paired t-test over users, Holm" in generate(folder)[FOUND]  # stored before 0.3
    tests = read_store(folder).tests("negatives", DATA)
    tests["rows"]["tempered"]["ndcg@20"]["seeds"] = 2
    append_lines(folder, "negatives", tests)
    assert "paired t-test over users and seeds, Holm" in generate(folder)[FOUND]


def test_a_table_tells_how_many_settings_were_tried(folder: Path) -> None:
    assert "tuned trials" not in generate(folder)[FOUND]
    text = (FOLDER / "negatives.toml").read_text()
    row = 'name = "tempered"\n'
    (folder / "negatives.toml").write_text(text.replace(row, row + "tuned.yelp2018 = 17\n"))
    page = generate(folder)[FOUND]
    lines = {line.split(" | ")[0].strip("| "): line for line in page.splitlines() if "|" in line}
    assert lines["tempered"].endswith("| 17 |")
    assert lines["uniform"].endswith("|  |")


def test_tests_of_other_results_are_not_shown(folder: Path) -> None:
    add(folder, "tempered", 1, result("tempered", 1, 0.061, id="newer"))
    text = generate(folder)[FOUND]
    assert "▲" not in text.partition("Settings of the rows")[0]
    assert "No paired tests of *tempered*: the results are newer than the stored tests." in text


def test_any_template_becomes_a_page(folder: Path) -> None:
    (folder / "more.template.md").write_text(f"# More\n\nUniform: {{{PLACE} uniform ndcg@20}}.")
    made = generate(folder)
    assert made["more.md"].startswith("# More\n\nUniform: 5.20.\n")
    assert "[More](results/more.md)" in made["RESULTS.md"]


def test_published_figures_are_compared_with_ours(folder: Path) -> None:
    text = (FOLDER / "negatives.toml").read_text()
    for row, figure in (("tempered", 0.0580), ("uniform", 0.0650)):
        name = f'name = "{row}"\n'
        text = text.replace(name, name + f'paper.yelp2018 = {{ "ndcg@20" = {figure} }}\n')
    (folder / "negatives.toml").write_text(text)
    (folder / TEMPLATE).write_text("{gaps negatives ndcg@20}\n\n{short 5 negatives ndcg@20}")
    table, short, _ = generate(folder)["RESULTS.md"].split("\n\n")
    rows = [line.split(" | ") for line in table.splitlines()]
    assert rows[0][1].strip(" |") == DATA
    assert ["| tempered", "5.80 (+0.0 %) |"] in rows
    assert ["| uniform", "5.20 (−20.0 %) |"] in rows
    assert short == "*uniform*"


def test_a_row_that_left_the_suite_does_not_remove_the_tests(folder: Path) -> None:
    add(folder, "gone", 0, {**result("uniform", 0, 0.050), "id": "gone0"})
    tests = read_store(folder).tests("negatives", DATA)
    for runs in (tests["runs"], {**tests["runs"], "gone-0": "gone0"}):  # with and without the row
        append_lines(folder, "negatives", {**tests, "runs": runs})
        text = generate(folder)[FOUND]
        assert " ▲" in text
        assert "No paired tests" not in text
        assert "Left out because the suite no longer has them: gone." in text


def test_results_of_other_settings_are_reported(folder: Path) -> None:
    content = result("tempered", 1, 0.060)
    content["config"]["train"]["lr"] = 0.5
    add(folder, "tempered", 1, content)
    assert "- *tempered*: run with another value of train.lr" in generate(folder)[FOUND]


def test_the_same_store_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in write(folder, tmp_path / "RESULTS.md")}
    assert set(first) == {"RESULTS.md", FOUND, "negatives.svg"}
    store = path_of(folder, "negatives").read_bytes()
    assert {p.name: p.read_bytes() for p in write(folder, tmp_path / "RESULTS.md")} == first
    assert path_of(folder, "negatives").read_bytes() == store
    assert first["negatives.svg"].startswith(b"<svg")
    add(folder, "uniform", 1, result("uniform", 1, 0.0541))
    assert generate(folder)["plots/negatives.svg"].encode() != first["negatives.svg"]


def test_the_committed_pages_agree_with_the_store() -> None:
    """Text is compared as it is; a plot by the figures in it, whatever version drew it."""
    home = ROOT / "results"
    marks = re.compile("<!-- figures .* -->")
    for name, text in generate(home).items():
        path = ROOT / name if name == "RESULTS.md" else home / name
        assert path.exists(), f"{path} is missing: call make results"
        stored = path.read_text(encoding="utf-8")
        if name.endswith(".md"):
            assert stored == text, f"{name} is out of date: call make results"
        else:
            assert marks.findall(stored) == marks.findall(text), f"{name}: call make results"


def test_the_summary_is_short_and_its_links_exist() -> None:
    text = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    pages = {ROOT / "RESULTS.md", *(ROOT / "results").glob("*.md")}
    for page in pages - {*(ROOT / "results").glob("*.template.md")}:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)


def test_a_cost_table_has_seconds_per_epoch(folder: Path) -> None:
    text = (FOLDER / "negatives.toml").read_text()
    (folder / "negatives.toml").write_text("cost = true\n" + text)
    table = generate(folder)[FOUND]
    assert "s per epoch | s to the best epoch | epoch | seconds" in table
    assert "| 0.10 | 4.0 | 40 | 12.0 | 2 |" in table  # 12 s for 80 + 40 epochs, 40 to the best


def test_several_metrics_can_be_plotted(folder: Path) -> None:
    text = (FOLDER / "negatives.toml").read_text()
    (folder / "negatives.toml").write_text('plot = ["recall@20", "ndcg@20"]\n' + text)
    plot = generate(folder)["plots/negatives.svg"]
    assert "yelp2018, transductive: recall@20" in plot
    assert "yelp2018, transductive: NDCG@20" in plot


def test_the_legend_names_the_baseline_of_a_row(folder: Path) -> None:
    text = (FOLDER / "negatives.toml").read_text()
    row = 'name = "tempered"\n'
    assert "below *uniform*, p" in generate(folder)[FOUND]
    (folder / "negatives.toml").write_text(text.replace(row, row + 'baseline = "literal"\n'))
    add(folder, "literal", 0, result("literal", 0, 0.05))
    tests = read_store(folder).tests("negatives", DATA)
    append_lines(folder, "negatives", {**tests, "runs": {**tests["runs"], "literal-0": "literal0"}})
    assert "below *literal* (*tempered*), p" in generate(folder)[FOUND]


def test_a_missing_folder_leaves_the_page_unchanged(tmp_path: Path) -> None:
    (tmp_path / "RESULTS.md").write_text("precious")
    with pytest.raises(ItemfoldError, match="'results' must be a folder of results"):
        write(tmp_path / "typo", tmp_path / "RESULTS.md")
    assert (tmp_path / "RESULTS.md").read_text() == "precious"
