"""New versions of runs reach one worker after another."""

from pathlib import Path
from types import SimpleNamespace

from itemfold.serving.http.processes.staggered import StaggeredReload
from itemfold.serving.http.processes.versions import Versions


class FakeWorker:
    """A worker that answers when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folders = {"shop": folder}
        self.is_ready, self.loaded, self.orders, self.was_killed = True, None, [], False
        self.process = SimpleNamespace(kill=self._kill)

    def order(self, name: str, folder: Path) -> None:
        self.loaded = None
        self.orders.append((name, folder))

    def _kill(self) -> None:
        self.was_killed = True


def start(tmp_path: Path, n_workers: int = 3):
    """A service of one run whose link was switched from `old` to `new`."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to("old")
    versions = Versions({"shop": link})
    link.unlink()
    link.symlink_to("new")
    reload = StaggeredReload(versions)
    workers = [FakeWorker((tmp_path / "old").resolve()) for _ in range(n_workers)]
    reload.add(versions.poll(at_once=True))
    return versions, reload, workers


def loading(workers: list[FakeWorker]) -> list[int]:
    return [place for place, w in enumerate(workers) if w.orders and w.loaded is None]


def test_one_worker_loads_at_a_time(tmp_path):
    versions, reload, workers = start(tmp_path)
    for place in range(3):
        for _ in range(5):  # nothing happens until it has answered
            reload.step(workers)
            assert loading(workers) == [place]
        assert versions.accepted["shop"].name == ("new" if place else "old")
        workers[place].loaded = ""
    reload.step(workers)
    assert [len(worker.orders) for worker in workers] == [1, 1, 1]
    assert (versions.accepted["shop"].name, versions.previous["shop"].name) == ("new", "old")
    assert versions.rollback() == [("shop", (tmp_path / "old").resolve())]


def test_a_version_that_the_first_worker_cannot_load_reaches_no_other(tmp_path):
    versions, reload, workers = start(tmp_path)
    reload.step(workers)
    workers[0].loaded = "it has no weights"
    for _ in range(5):
        reload.step(workers)
    assert [len(worker.orders) for worker in workers] == [1, 0, 0]
    assert versions.accepted["shop"].name == "old"
    assert not versions.rollback()
    reload.add(versions.poll(at_once=True))  # the next order is carried out
    reload.step(workers)
    assert len(workers[0].orders) == 2


def test_a_worker_that_was_still_starting_gets_the_accepted_version(tmp_path):
    versions, reload, workers = start(tmp_path, 2)
    workers[1].is_ready = False  # it has begun to load the old version
    reload.step(workers)
    workers[0].loaded = ""
    for _ in range(3):
        reload.step(workers)
    assert versions.accepted["shop"].name == "new"
    workers[1].is_ready = True
    for _ in range(3):
        reload.step(workers)
    assert workers[1].orders == [("shop", (tmp_path / "new").resolve())]
    workers[1].loaded = ""
    for _ in range(5):
        reload.step(workers)
    assert [len(worker.orders) for worker in workers] == [1, 1]  # nobody lacks anything


def test_a_served_folder_that_breaks_costs_no_worker(tmp_path):
    versions, reload, workers = start(tmp_path)
    for _ in range(4):  # all load the new version
        reload.step(workers)
        for place in loading(workers):
            workers[place].loaded = ""
    reload.add([("shop", versions.accepted["shop"])])  # its files were removed
    reload.step(workers)
    workers[0].loaded = "no such folder"
    for _ in range(5):
        reload.step(workers)
    assert [len(worker.orders) for worker in workers] == [2, 1, 1]
    assert not any(worker.was_killed for worker in workers)


def test_a_worker_that_ends_while_loading_is_not_waited_for(tmp_path):
    versions, reload, workers = start(tmp_path)
    reload.step(workers)
    workers[0].loaded = ""
    reload.step(workers)
    left = [workers[0], workers[2]]  # the second has ended
    reload.step(left)
    assert loading(workers) == [1, 2]
    workers[2].loaded = "out of memory"  # it cannot have what the others have
    reload.step(left)
    assert workers[2].was_killed
    assert versions.accepted["shop"].name == "new"


def test_a_version_that_ends_its_worker_is_not_accepted(tmp_path):
    versions, reload, workers = start(tmp_path)
    reload.step(workers)
    for _ in range(3):
        reload.step(workers[1:])
    assert [len(worker.orders) for worker in workers] == [1, 0, 0]
    assert versions.accepted["shop"].name == "old"


def test_a_folder_is_tried_once_it_no_longer_changes(tmp_path):
    (tmp_path / "run").mkdir()
    versions = Versions({"shop": tmp_path / "run"})
    assert versions.poll() == []
    (tmp_path / "run" / "config.toml").write_text("half")
    assert versions.poll() == []  # it may still be written
    assert [name for name, _ in versions.poll()] == ["shop"]
    assert versions.poll() == []
