"""Values of single users: suites that share a run share its file."""

from pathlib import Path

import numpy as np

from itemfold.experiments.suites.user_values import read_values, write_values

USERS = np.array([3, 5])


def values(**metrics: list[float]) -> dict[str, np.ndarray]:
    return {"user": USERS, **{name: np.array(column) for name, column in metrics.items()}}


def test_a_repetition_with_fewer_metrics_takes_none_away(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "abc.npz"
    write_values(path, values(ndcg=[0.5, 0.25], ap=[1.0, 0.0]), "abc")
    write_values(path, values(ap=[0.5, 0.0]), "abc")
    found = read_values(path)
    assert found is not None
    assert {name: list(column) for name, column in found.metrics.items()} == {
        "ndcg": [0.5, 0.25],
        "ap": [0.5, 0.0],
    }


def test_values_of_another_run_or_of_other_users_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "abc.npz"
    for run, users in (("abd", USERS), ("abc", USERS + 1)):
        write_values(path, {"user": users, "ndcg": np.array([0.5, 0.25])}, run)
        write_values(path, values(ap=[0.5, 0.0]), "abc")
        found = read_values(path)
        assert found is not None
        assert (list(found.metrics), found.users) == (["ap"], [3, 5])
