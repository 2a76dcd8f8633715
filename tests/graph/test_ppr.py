import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from small import pagerank

from itemfold.errors import ItemfoldError
from itemfold.graph import ppr_cache
from itemfold.graph.ppr import PPRScores, personalised_pagerank


def graph(n_users: int = 40, n_items: int = 30, density: float = 0.12, seed: int = 0) -> Any:
    """Random interactions; nodes may have no neighbours, the graph may be disconnected."""
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.random((n_users, n_items)) < density).astype(np.float32))


def l1(scores: PPRScores, truth: np.ndarray) -> np.ndarray:
    return np.abs(scores.matrix().toarray() - truth).sum(1)


@pytest.mark.parametrize("restart", [0.05, 0.15, 0.5, 0.9])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-5])
def test_power_agrees_with_a_dense_solve_within_its_bound(restart: float, tolerance: float) -> None:
    train = graph()
    scores = personalised_pagerank(
        train, restart=restart, tolerance=tolerance, positives=True, block=7
    )
    assert (l1(scores, pagerank(train, restart)) <= scores.error + 1e-6).all()
    assert (scores.error <= tolerance).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 25), st.integers(1, 25), st.floats(0.02, 0.9), st.integers(0, 99))
def test_both_methods_agree_on_any_graph(n: int, m: int, density: float, seed: int) -> None:
    train = graph(n, m, density, seed)
    truth = pagerank(train, 0.15)
    power = personalised_pagerank(train, positives=True)
    push = personalised_pagerank(train, method="push", epsilon=1e-4, positives=True, block=5)
    assert (l1(power, truth) <= 1e-3).all()
    assert (l1(push, truth) <= push.error + 1e-6).all()
    assert (push.matrix().toarray() <= truth + 1e-6).all()  # a lower bound of every entry


def test_push_is_as_accurate_as_requested() -> None:
    train = graph()
    errors = [
        personalised_pagerank(train, method="push", epsilon=e).error.max()
        for e in (1e-2, 1e-4, 1e-7)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-4
    push = personalised_pagerank(train, method="push", epsilon=1e-8, positives=True)
    assert l1(push, pagerank(train, 0.15)).max() < 1e-5


@pytest.mark.parametrize("method", ["power", "push"])
def test_keeps_the_top_entries_above_the_threshold_and_counts_what_it_drops(method: Any) -> None:
    train = graph(density=0.2)
    positive = train.toarray() > 0
    kwargs = {"method": method, "tolerance": 1e-6, "epsilon": 1e-9}
    truth = pagerank(train, 0.15)
    truth[positive] = 0
    scores = personalised_pagerank(train, top=6, threshold=0.002, **kwargs)
    for row in range(train.shape[0]):
        part = slice(scores.indptr[row], scores.indptr[row + 1])
        items, values = scores.indices[part], scores.values[part]
        assert len(items) == min(6, (truth[row] > 0.002).sum())
        assert not positive[row, items].any()
        assert (np.diff(values) <= 0).all()
        assert values == pytest.approx(np.sort(truth[row])[::-1][: len(items)], abs=1e-5)
        assert values.sum() + scores.dropped[row] == pytest.approx(truth[row].sum(), abs=1e-4)


@pytest.mark.parametrize("method", ["power", "push"])
def test_users_and_blocks_do_not_matter(method: Any) -> None:
    train = graph()
    whole = personalised_pagerank(train, method=method, top=5, block=64).matrix().toarray()
    users = np.array([7, 3, 3, 39])
    some = personalised_pagerank(train, users, method=method, top=5, block=3).matrix().toarray()
    assert some == pytest.approx(whole[users], abs=1e-3)
    assert len(personalised_pagerank(train, [], method=method)) == 0


def test_a_user_without_items_has_no_entries() -> None:
    train = sp.csr_array(np.array([[1, 1, 0], [0, 0, 0], [0, 1, 1]], np.float32))
    for method in ("power", "push"):
        scores = personalised_pagerank(train, method=method)  # type: ignore[arg-type]
        assert np.diff(scores.indptr).tolist() == [1, 0, 1]


def test_cache_gives_the_same_and_does_not_compute_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = graph()
    first = personalised_pagerank(train, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr("itemfold.graph.ppr._power", lambda *_: pytest.fail("computed again"))
    again = personalised_pagerank(train.astype(np.float64), cache=tmp_path)
    assert isinstance(again.values, np.memmap)
    for name in ("indptr", "indices", "values", "error", "dropped"):
        assert (getattr(first, name) == getattr(again, name)).all()


def test_cache_distinguishes_graphs_users_and_settings(tmp_path: Path) -> None:
    train = graph()
    other = train.toarray()
    other[0, 0] = 1 - other[0, 0]
    personalised_pagerank(train, cache=tmp_path)
    personalised_pagerank(sp.csr_array(other), cache=tmp_path)
    personalised_pagerank(train, [1, 2], cache=tmp_path)
    personalised_pagerank(train, restart=0.2, cache=tmp_path)
    personalised_pagerank(train, top=3, cache=tmp_path)
    personalised_pagerank(train, method="push", cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize("harm", ["bit", "short", "gone", "json"])
def test_a_damaged_cache_is_rebuilt_with_a_message(tmp_path: Path, harm: str) -> None:
    train = graph()
    first = personalised_pagerank(train, cache=tmp_path)
    folder = next(tmp_path.iterdir())
    target = folder / "values.npy"
    data = bytearray(target.read_bytes())
    if harm == "bit":
        data[-2] ^= 4
        target.write_bytes(data)
    elif harm == "short":
        target.write_bytes(data[:-9])
    elif harm == "gone":
        target.unlink()
    else:
        (folder / "facts.json").write_text("{")
    with pytest.warns(UserWarning, match="damaged and is computed again"):
        again = personalised_pagerank(train, cache=tmp_path)
    assert (again.values == first.values).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (personalised_pagerank(train, cache=tmp_path).values == first.values).all()


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ppr_cache.os, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        personalised_pagerank(graph(), cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "x" * 300])  # no folder can be made there
def test_a_cache_that_cannot_be_written_costs_only_the_next_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="could not be cached"):
        found = personalised_pagerank(graph(), cache=tmp_path / name / "ppr")
    assert (found.values == personalised_pagerank(graph()).values).all()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_cache_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert ppr_cache.cache_home() == Path("/somewhere/itemfold/ppr")


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"restart": 0}, "'restart' must be a probability in (0, 1), got 0"),
        ({"method": "magic"}, "'method' must be power or push, got 'magic'"),
        ({"top": 0}, "'top' must be a positive integer, got 0"),
        ({"block": 0}, "'block' must be a positive integer, got 0"),
    ],
)
def test_bad_settings_get_one_sentence(settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(ItemfoldError) as caught:
        personalised_pagerank(graph(), **settings_)
    assert str(caught.value) == message
