"""The command `forget`, and a service that goes on without the user."""

import json
import time
from pathlib import Path

import pytest
from command import call
from served import Service

import itemfold as ir
from itemfold.client import Client, ServiceError


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    data = ir.load("synthetic:users=60,items=80,interactions=900")
    ir.train(ir.keep_all(data), ir.models.EASE()).save(folder)
    return folder


def test_a_user_is_deleted_from_runs_and_feedback(trained, tmp_path):
    run = ir.Run.load(trained)
    user = run.user_ids.ids[0].item()
    run.save(tmp_path / "a")
    feedback = tmp_path / "feedback"
    feedback.mkdir()
    rows = [{"user_id": user, "item_id": 1}, {"user_id": "other", "item_id": 2}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (feedback / "feedback.jsonl").write_text(text)
    places = ("--feedback", feedback, "--feedback", feedback)
    text = call("forget", user, "--run", tmp_path / "a", *places).output
    assert f"{feedback}: 1 events deleted" in text
    assert f"{feedback}: 0 events deleted" in text
    own = run.interactions[[0]].nnz
    assert f"user and {own} interactions removed" in text
    assert "Weights that all users share" in text
    assert "train again" in text
    assert ir.Run.load(tmp_path / "a").user_ids.index([user])[0] < 0
    assert "other" in (feedback / "feedback.jsonl").read_text()
    assert "no such user" in call("forget", user, "--run", tmp_path / "a").output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "give --run, --feedback, or both"),
        (("--run", "none"), "none: no such folder"),
        (("--feedback", "none"), "none: No such file or directory"),
        (("--feedback", "none.sqlite"), "none.sqlite: no such file or folder"),
        (("--feedback", "postgresql://a:b@c/d"), "set DATABASE_URL to it"),
    ],
)
def test_mistakes_are_one_sentence(options, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("forget", "5", *options, code=2)
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_service_loads_the_run_without_the_user(trained, tmp_path):
    run = ir.Run.load(trained)
    first, second = run.user_ids.ids[:2].tolist()
    run.save(tmp_path / "run")
    with Service(tmp_path / "run") as service:
        client = Client(service.address, timeout=60)
        assert len(client.recommend(first)) == 20
        call("forget", first, "--run", tmp_path / "run")
        end = time.monotonic() + 120
        while client.about()["users"] == len(run.user_ids):  # the old version still answers
            assert time.monotonic() < end
            time.sleep(0.2)
        with pytest.raises(ServiceError, match="must be a user of the training data") as caught:
            client.recommend(first)
        assert caught.value.status == 404
        assert len(client.recommend(second)) == 20
