"""One very long id or title does not multiply the memory of all others."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import itemfold as ir
from itemfold.data.id_arrays import fixed_width, text_array
from itemfold.data.interactions import IdMap

LONG = "x" * 20_000
N = 3000  # 240 MB as texts of fixed width


def peak(call: Callable[[], Any]) -> int:
    """The most memory, in bytes, that Python and numpy held during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plays") / "plays.csv"
    ids = [f"i{n}" for n in range(N)] + [LONG]
    rows = [f"u{n % 50 if n % 7 else LONG},{name}" for n, name in enumerate(ids * 2)]
    path.write_text("\n".join(["user,item", *rows]) + "\n")
    titles = path.with_name("titles.csv")
    titles.write_text("\n".join(["item,title", f"i1,{LONG}", *(f"{i},t {i}" for i in ids[2:])]))
    return path


def test_reading_a_long_id_takes_the_memory_of_its_characters(plays: Path) -> None:
    ir.read(plays)  # imports do not count
    titles = plays.with_name("titles.csv")
    assert peak(lambda: ir.read(plays, titles=titles).fingerprint) < 60_000_000


def test_a_run_with_a_long_id_is_saved_and_loaded_and_recommends_it(
    plays: Path, tmp_path: Path
) -> None:
    data = ir.read(plays, titles=plays.with_name("titles.csv"))
    run = ir.train(ir.split_interactions(data), ir.models.Popularity(), refit=False)
    run.save(tmp_path / "r")
    assert peak(lambda: run.save(tmp_path / "r")) < 60_000_000
    assert peak(lambda: ir.Run.load(tmp_path / "r")) < 60_000_000
    recommender = ir.Recommender.load(tmp_path / "r")
    found = recommender.recommend(history=[LONG], k=N + 1, exclude_seen=False)
    assert found.unknown == ()
    assert LONG in [pick.item for pick in found]
    assert recommender.recommend(f"u{LONG}", k=1)
    table = recommender.recommend_all(k=N, users=["u1", f"u{LONG}"])
    assert peak(lambda: table.save(tmp_path / "recs.parquet")) < 60_000_000


@pytest.mark.parametrize("kind", [str, object])
def test_the_fingerprint_depends_on_the_ids_not_on_their_array(kind: type) -> None:
    """The value is that of version 0.1, which hashed all ids at the width of the longest."""
    texts = ["a", "bb", "ü 1", "x" * 300, "日本", "", "seven77", "eight888"]
    rows = np.arange(8, dtype=np.int32)
    users, items = IdMap(np.array(texts, dtype=kind)), IdMap(np.arange(8) * 1000)
    assert ir.Interactions(rows, rows[::-1].copy(), users, items).fingerprint == "00e3d4a11383f397"


def test_cut_texts_stay_different() -> None:
    texts = [LONG + "a", LONG + "b", *map(str, range(1000))]
    assert text_array(texts).dtype == object
    cut = fixed_width(texts)
    assert len(set(cut.tolist())) == len(texts)
    assert cut.dtype.itemsize <= 4 * 200
    assert cut.tolist() == fixed_width(texts).tolist()  # runs are paired by them
    assert cut.tolist()[2:] == texts[2:]
