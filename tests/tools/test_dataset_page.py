"""The table of data sets: counts from the data, next to the paper's figures."""

from pathlib import Path
from typing import Any

import pytest
from results_page.dataset_page import dataset_page
from results_page.pages import generate
from rich.console import Console

from itemfold.data.datasets import load
from itemfold.errors import ItemfoldError
from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.other_tables import count_datasets
from itemfold.experiments.suites.reproduce import run_tables

TINY = "synthetic:users=60,items=50,interactions=900"


def test_counts_are_those_of_the_data(tmp_path: Path) -> None:
    quiet = Console(file=(tmp_path / "log").open("w"))
    home = tmp_path / "results"
    assert run_tables("datasets", Options(datasets=[TINY], results=home), quiet)
    data = load(TINY)
    pairs = set(zip(data.users.tolist(), data.items.tolist(), strict=True))
    users, items = ({pair[n] for pair in pairs} for n in (0, 1))
    row = f"| {TINY} | {data.n_users} | {data.n_items} | {len(pairs)} |"
    assert len(users) == data.n_users
    assert len(items) <= data.n_items
    assert row in generate(home)["datasets.md"]
    assert data.fingerprint in generate(home)["datasets.md"]


def test_absent_data_is_reported_and_what_was_counted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: Any) -> None:
        raise OSError("no network")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ITEMFOLD_DATA", raising=False)
    monkeypatch.setattr("itemfold.data.named.download._stream", no_network)
    with (tmp_path / "log").open("w") as log:
        quiet = Console(file=log, width=200)
        count_datasets(Options(datasets=[TINY], results=tmp_path), quiet)
        before = dataset_page(tmp_path)
        count_datasets(Options(datasets=["yelp2018"], results=tmp_path), quiet)
    assert dataset_page(tmp_path) == before
    assert "skipped: 'yelp2018'" in (tmp_path / "log").read_text()


def test_an_unknown_name_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ItemfoldError, match="gowalla"):
        count_datasets(Options(datasets=["gowalla"], results=tmp_path), Console(quiet=True))
    assert not list(tmp_path.iterdir())
    with pytest.raises(ItemfoldError, match=r"one of all, datasets, qualitative, .*got 'dataset'"):
        run_tables("dataset", Options(), Console(quiet=True))


@pytest.mark.data
def test_the_papers_figures_are_next_to_ours(data_root: Path, tmp_path: Path) -> None:
    options = Options(datasets=["yelp2018"], data_root=data_root, results=tmp_path)
    count_datasets(options, Console(quiet=True))
    counts = "| yelp2018 | 31,668 (31,668) | 38,048 (38,048) | 1,561,406 (1.5m) |"
    assert counts in dataset_page(tmp_path)
