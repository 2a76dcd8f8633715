"""Several runs side by side: traffic split and reload."""

import asyncio
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from served import DATA

import itemfold as ir
from itemfold.serving.http import ServedRuns, create_app
from itemfold.serving.http.monitoring.telemetry import Telemetry
from itemfold.serving.http.processes.reloader import Reloader
from itemfold.serving.http.runs import run_folders
from itemfold.training.fingerprint import fingerprint


@pytest.fixture(scope="module")
def other() -> ir.Recommender:
    run = ir.train(ir.split_interactions(DATA, seed=0), ir.models.EASE())
    return ir.Recommender.from_run(run)


@pytest.fixture
def runs(recommender, other) -> ServedRuns:
    return ServedRuns({"gnn": recommender, "ease": other})


@pytest.fixture
def client(runs):
    with TestClient(create_app(runs), base_url="http://localhost") as client:
        yield client


def items(answer) -> list:
    return [pick["item"] for pick in answer.json()["items"]]


def test_a_request_names_its_run(client, recommender, other):
    for name, expected in ((None, recommender), ("gnn", recommender), ("ease", other)):
        body = {"history": [12, 57], "k": 9, "run": name}
        answer = client.post("/v1/recommend", json=body)
        picks = expected.recommend(history=[12, 57], k=9)
        assert items(answer) == [pick.item for pick in picks]
        assert answer.json()["run"] == name or (name is None and answer.json()["run"] == "gnn")
        assert answer.json()["run_fingerprint"] == fingerprint(expected.run)
        about = client.get("/v1/about", params={"run": name} if name else {}).json()
        assert about["model"] == expected.run.metrics["model"]
        assert about["runs"] == ["gnn", "ease"]
    alike = client.get("/similar", params={"item": 12, "k": 5, "run": "ease"}).json()
    assert [pick["item"] for pick in alike] == [pick.item for pick in other.similar_items(12, 5)]
    wrong = client.post("/recommend", json={"history": [1], "run": "nosuch"})
    assert wrong.json() == {"error": "'run' must be one of gnn, ease, got 'nosuch'"}


def test_traffic_is_split_by_user_and_a_user_stays(recommender, other):
    runs = ServedRuns({"gnn": recommender, "ease": other}, {"gnn": 80, "ease": 20})
    with TestClient(create_app(runs), base_url="http://localhost") as client:

        def run_of(body: dict) -> str:
            return client.post("/recommend", json={"k": 1, **body}).json()["run"]

        users = DATA.user_ids.ids.tolist()[:60]
        drawn = [run_of({"user": user}) for user in users]
        assert drawn == [run_of({"user": str(user)}) for user in users]  # "5" is 5
        assert set(drawn) == {"gnn", "ease"}
        visits = [run_of({"history": [n], "visitor": "ann"}) for n in range(20)]
        assert len(set(visits)) == 1  # whatever she has liked by then
        assert run_of({"user": users[0], "run": "ease"}) == "ease"
    counts = Counter(runs.choose(None, f"visitor {n}").name for n in range(5000))
    assert counts["ease"] / 5000 == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        ({"nosuch": 1}, "'split' must name runs .gnn, ease., got 'nosuch'"),
        ({"gnn": -1}, "'split' must have shares of at least 0, got gnn=-1"),
        ({"gnn": 0, "ease": 0}, "'split' must have a share above 0"),
    ],
)
def test_an_invalid_split_raises(recommender, other, split, sentence):
    with pytest.raises(ir.ItemfoldError, match=sentence):
        ServedRuns({"gnn": recommender, "ease": other}, split)


def test_runs_are_named_by_their_folders_or_by_the_user(tmp_path):
    assert run_folders(["a/bpr/", "b=x/bpr"]) == {"bpr": Path("a/bpr"), "b": Path("x/bpr")}
    odd = tmp_path / "a=b"
    odd.mkdir()
    assert run_folders([str(odd)]) == {"a-b": odd}
    with pytest.raises(ir.ItemfoldError, match="two runs are called 'bpr': name them"):
        run_folders(["a/bpr", "b/bpr"])


# --- weights and reload --------------------------------------------------------------------------


@pytest.fixture
def folder(recommender, tmp_path) -> Path:
    recommender.run.save(tmp_path / "run")
    return tmp_path / "run"


def test_a_loaded_run_does_not_change_with_its_files(folder, recommender):
    loaded = ir.Recommender.load(folder)
    weights = folder / "model.safetensors"
    size = weights.stat().st_size
    with weights.open("r+b") as file:  # in place, as `cp` writes
        file.write(bytes(size))
    assert fingerprint(loaded.run) == fingerprint(recommender.run)
    os.truncate(weights, 0)  # reading a mapped file would now end the process
    asked = {"history": [12, 57], "k": 9}
    assert loaded.recommend(**asked) == recommender.recommend(**asked)


def test_other_weights_have_another_fingerprint(folder, recommender, other):
    assert fingerprint(ir.Run.load(folder)) == fingerprint(recommender.run)
    changed = ir.Run.load(folder)
    next(iter(changed.model.state_dict().values())).view(-1)[0] += 1
    assert len({fingerprint(run) for run in (changed, recommender.run, other.run)}) == 3


class Watched:
    """A service of one folder, with a reloader that polls on demand."""

    def __init__(self, folder: Path) -> None:
        self.runs = ServedRuns({"run": ir.Recommender.load(folder)})
        self.telemetry = Telemetry()
        self.reloader = Reloader(self.runs, {"run": folder}, self.telemetry, "cpu")

    def poll(self, times: int = 2) -> str:
        for _ in range(times):
            asyncio.run(self.reloader.poll())
        return self.runs.choose("run", None).fingerprint


def test_a_changed_link_is_followed_and_requests_in_progress_keep_their_run(
    folder, recommender, other, tmp_path
):
    other.run.save(tmp_path / "next")
    link = tmp_path / "link"
    link.symlink_to(folder)
    service = Watched(link)
    before = service.runs.choose("run", None)
    assert service.poll() == fingerprint(recommender.run)
    link.unlink()
    link.symlink_to(tmp_path / "next")
    assert service.poll(1) == fingerprint(recommender.run)  # it may still be changing
    assert service.poll(1) == fingerprint(other.run)
    assert before.recommender.recommend(history=[12]) == recommender.recommend(history=[12])


def test_a_broken_folder_is_not_loaded_until_it_is_repaired(folder, recommender, other):
    service, old = Watched(folder), fingerprint(recommender.run)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:100])
    assert service.poll(4) == old
    shutil.rmtree(folder)
    assert service.poll(4) == old
    refused = service.telemetry.reloads.labels("run", "refused")
    assert refused._value.get() == 2  # once for each change, not at every poll
    other.run.save(folder)
    assert service.poll() == fingerprint(other.run)


def test_a_reload_can_be_asked_for(folder):
    service = Watched(folder)
    first = service.runs.choose("run", None)
    service.reloader.reload_all()
    service.poll(1)
    again = service.runs.choose("run", None)
    assert again is not first
    assert again.fingerprint == first.fingerprint
