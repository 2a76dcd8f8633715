"""The store: results depend neither on the order of lines nor on lines that are cut off."""

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from itemfold.errors import ItemfoldError
from itemfold.experiments.suites.store import (
    Line,
    append_lines,
    identity,
    path_of,
    read_store,
    row_line,
    tidy,
)
from itemfold.experiments.suites.user_values import UserValues, check_means

ROOT = Path(__file__).parents[2]
DATA = "toy/inductive"


def run_line(run: str, ndcg: float = 0.5, **other: Any) -> Line:
    line = {"kind": "run", "id": run, "seconds": {"train": 1.0}, "hardware": {"device": "CPU"}}
    return {**line, "config": {"of": run}, "valid": {}, "test": {"ndcg@20": ndcg}, **other}


def results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    store = read_store(folder)
    return {suite: store.results(suite) for suite in store.files}


def test_a_row_shows_the_run_that_it_refers_to(tmp_path: Path) -> None:
    append_lines(tmp_path, "one", run_line("a"), row_line(DATA, "item", 0, "a"))
    append_lines(tmp_path, "two", row_line(DATA, "ours", 3, "a"))
    store = read_store(tmp_path)
    first, second = store.result("one", (DATA, "item", 0)), store.result("two", (DATA, "ours", 3))
    assert first is not None
    assert first["test"] == {"ndcg@20": 0.5}
    assert second == {**first, "suite": "two", "row": "ours", "seed": 3}
    assert store.result("two", (DATA, "item", 0)) is None
    assert store.result("three", (DATA, "item", 0)) is None


def test_of_two_lines_with_the_same_key_the_later_is_valid(tmp_path: Path) -> None:
    append_lines(tmp_path, "one", run_line("a"), row_line(DATA, "item", 0, "a"))
    append_lines(tmp_path, "one", run_line("b", 0.6), row_line(DATA, "item", 0, "b"))
    tidy(tmp_path)
    (found,) = results(tmp_path)["one"]
    assert found["id"] == "b"
    assert list(read_store(tmp_path).files["one"].runs) == ["b"]  # nothing refers to the other


def test_a_run_is_kept_while_another_suite_refers_to_it(tmp_path: Path) -> None:
    append_lines(tmp_path, "one", run_line("a"), row_line(DATA, "item", 0, "a"))
    append_lines(tmp_path, "two", row_line(DATA, "item", 0, "a"))
    append_lines(tmp_path, "one", run_line("b", 0.6), row_line(DATA, "item", 0, "b"))
    before = results(tmp_path)["two"]
    tidy(tmp_path)
    assert results(tmp_path)["two"] == before


def test_tidying_changes_no_result_and_stores_a_run_once(tmp_path: Path) -> None:
    """A repetition has other times and may have further metrics; one with other figures stays."""
    further = {"ndcg@20": 0.5, "ap": 0.1}
    append_lines(tmp_path, "one", run_line("a"), row_line(DATA, "item", 0, "a"))
    again = run_line("a", seconds={"train": 9.0}, test=further)
    append_lines(tmp_path, "two", again, row_line(DATA, "item", 0, "a"))
    append_lines(tmp_path, "three", run_line("a", 0.4), row_line(DATA, "item", 0, "a"))
    before = results(tmp_path)
    tidy(tmp_path)
    after = results(tmp_path)
    assert {suite: file.runs.keys() for suite, file in read_store(tmp_path).files.items()} == {
        "one": {"a"},
        "two": set(),
        "three": {"a"},
    }
    assert after["two"] == before["two"]
    assert after["three"] == before["three"]
    assert after["one"] == [{**before["one"][0], "test": further}]


def test_files_of_two_machines_are_merged_by_concatenation(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    append_lines(here, "one", run_line("a"), row_line(DATA, "item", 0, "a"))
    append_lines(there, "one", run_line("b"), row_line(DATA, "item", 1, "b"))
    append_lines(there, "one", {"kind": "tests", "data": DATA, "rows": {}, "runs": {"item-1": "b"}})
    both = results(here)["one"] + results(there)["one"]
    with path_of(here, "one").open("ab") as file:
        file.write(path_of(there, "one").read_bytes())
    tidy(here)
    assert results(here)["one"] == both
    assert read_store(here).tests("one", DATA)["runs"] == {"item-1": "b"}


def test_the_order_of_lines_has_no_meaning(tmp_path: Path) -> None:
    lines = [run_line(name) for name in "abc"]
    lines += [row_line(DATA, "item", seed, name) for seed, name in enumerate("abc")]
    texts = set()
    for n, seed in itertools.product(range(2), range(3)):
        folder = tmp_path / f"{n}{seed}"
        random.Random(seed).shuffle(lines)
        append_lines(folder, "one", *lines)
        tidy(folder)
        texts.add(path_of(folder, "one").read_text())
    assert len(texts) == 1


def test_a_line_cut_off_anywhere_loses_only_that_line(tmp_path: Path) -> None:
    """As if a process was killed while it wrote: everything before stays, the next append works."""
    append_lines(tmp_path, "one", run_line("a"), row_line(DATA, "item", 0, "a"))
    path = path_of(tmp_path, "one")
    whole, kept = path.read_bytes(), results(tmp_path)
    run = run_line("é–b")
    line = (json.dumps({**run, "digest": identity(run)}, ensure_ascii=False) + "\n").encode()
    for length in range(1, len(line)):
        path.write_bytes(whole + line[:length])
        assert results(tmp_path) == kept
        append_lines(tmp_path, "one", run_line("c"), row_line(DATA, "item", 1, "c"))
        assert [found["id"] for found in results(tmp_path)["one"]] == ["a", "c"]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path_of(tmp_path, "one").write_text('{"kind": "ro\n{"kind": "rows"}\n')
    with pytest.raises(ItemfoldError, match=r"one\.jsonl, line 1 is damaged"):
        read_store(tmp_path)


def test_a_reference_to_a_missing_run_is_reported(tmp_path: Path) -> None:
    append_lines(tmp_path, "two", row_line(DATA, "item", 0, "a"))
    assert read_store(tmp_path).result("two", (DATA, "item", 0)) is None
    with pytest.raises(ItemfoldError, match=r"two\.jsonl refers to run 'a', which no file"):
        read_store(tmp_path).results("two")


WRITER = """
import sys
from pathlib import Path
from itemfold.experiments.suites.store import append_lines, row_line, tidy
folder, name = Path(sys.argv[1]), sys.argv[2]
for n in range(40):
    run = {"kind": "run", "id": f"{name}{n}", "valid": {}, "test": {}}
    append_lines(folder, "one", run, row_line("toy/inductive", name, n, run["id"]))
    if n % 5 == 0:
        tidy(folder)
"""


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name], env=os.environ)
        for name in ("a", "b")
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    found = {(result["row"], result["seed"]) for result in results(tmp_path)["one"]}
    assert found == set(itertools.product("ab", range(40)))


def test_the_committed_store_is_tidy_and_its_ids_are_those_of_its_settings() -> None:
    store = read_store(ROOT / "results")
    known: set[str] = set()
    for suite, file in store.files.items():
        assert path_of(store.folder, suite).read_text(encoding="utf-8") == file.text()
        assert not known & set(file.runs)  # each in one file only
        known |= set(file.runs)
        assert all(identity(run["config"]) == run["id"] for run in file.runs.values())
    assert known == {row["run"] for file in store.files.values() for row in file.rows.values()}


# --- digests -------------------------------------------------------------------------------------


def edited(folder: Path, old: str, new: str) -> None:
    path = path_of(folder, "negatives")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def stored_run(folder: Path) -> None:
    run = {"kind": "run", "id": "r", "seconds": 1, "test": {"ndcg@20": 0.348}, "valid": {}}
    append_lines(folder, "negatives", run, row_line("ml", "item", 0, "r"))


def test_an_edited_figure_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    stored_run(tmp_path)
    assert read_store(tmp_path).files["negatives"].runs["r"]["test"] == {"ndcg@20": 0.348}
    edited(tmp_path, "0.348", "0.648")
    with pytest.raises(ItemfoldError, match=r"line 1 \(run r\) was changed after it was stored"):
        read_store(tmp_path)


def test_an_edited_line_without_its_digest_is_an_error(tmp_path: Path) -> None:
    stored_run(tmp_path)
    text = path_of(tmp_path, "negatives").read_text(encoding="utf-8")
    digest = f', "digest": "{json.loads(text.splitlines()[0])["digest"]}"'
    edited(tmp_path, digest, "")
    with pytest.raises(ItemfoldError, match=r"line 1 \(run r\) was changed .* lost its digest"):
        read_store(tmp_path)


def test_a_file_of_an_earlier_release_has_no_digest_and_gets_one(tmp_path: Path) -> None:
    stored_run(tmp_path)
    path = path_of(tmp_path, "negatives")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        del line["digest"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert read_store(tmp_path).files["negatives"].runs["r"]["test"] == {"ndcg@20": 0.348}
    tidy(tmp_path)
    assert all("digest" in json.loads(line) for line in path.read_text().splitlines())
    read_store(tmp_path)


def test_figures_must_be_the_means_of_their_users(tmp_path: Path) -> None:
    values = UserValues("r", [1, 2, 3], {"ndcg@20": np.array([0.2, 0.4, np.nan])})
    check_means({"ndcg@20": 0.3, "recall@20": 0.9}, values, "here")
    with pytest.raises(ItemfoldError, match=r"here: ndcg@20 of run r is 0\.6, but the mean of its"):
        check_means({"ndcg@20": 0.6}, values, "here")
