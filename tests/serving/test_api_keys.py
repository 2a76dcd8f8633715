"""Keys in a file: private, valid, and replaced without a restart."""

import json
import os
import time
from pathlib import Path

import pytest
from command import call
from served import Service, open_client

import itemfold as ir
from itemfold.client import Client, ServiceError
from itemfold.serving.http import ServiceSettings
from itemfold.serving.http.access import api_keys
from itemfold.serving.http.access.api_keys import ApiKey, ApiKeys, read_keys

OLD, NEW, FIXED = "old-key-0123456789", "new-key-0123456789", "fixed-key-0123456789"


def write(path: Path, *keys: str, age: float = 60.0) -> Path:
    """A private file of keys that was last changed a while ago."""
    path.write_text("\n".join(keys) + "\n")
    path.chmod(0o600)
    os.utime(path, (time.time() - age,) * 2)
    return path


def numbers(keys: ApiKeys, *asked: str) -> list[int | None]:
    """The number of each key, None if it is not valid."""
    found = [keys.find(key) for key in asked]
    return [None if one is None else one[0] for one in found]


@pytest.fixture(autouse=True)
def look_always(monkeypatch):
    """Look at the file in every request."""
    monkeypatch.setattr(api_keys, "CHECK_SECONDS", 0.0)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o666])
def test_a_file_that_others_can_read_is_rejected(tmp_path, mode):
    path = write(tmp_path / "keys", OLD)
    path.chmod(mode)
    with pytest.raises(ir.ItemfoldError, match=f"chmod 600 {path}") as caught:
        read_keys(path)
    assert f"{mode:03o}" in str(caught.value)
    path.chmod(0o400)
    assert read_keys(path) == (ApiKey(OLD, "key"),)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "must hold one key per line"),
        (b"short\n", "must have at least 16 printable ASCII characters and no spaces, got 5 char"),
        (b"0123456789012345 67\n", "must have at least 16 printable"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"a-key-that-is-long-enough another-that-is-long-enough\n", "and no spaces, got 53 char"),
        (b"a-key-that-is-long-enough class=a/b\n", "and no spaces, got 35 characters"),
        (b"a-key-that-is-long-enough class=none\n", "must not have the class none"),
        (
            b"".join(b"a-key-that-is-long-enough class=c%d\n" % n for n in range(21)),
            "must hold at most 20 classes, got 21",
        ),
        (b"a-key-that-is-long-enough\n" * 1001, "must hold at most 1,000 keys, got 1,001"),
    ],
)
def test_an_invalid_file_is_rejected_without_showing_a_key(tmp_path, content, sentence):
    path = tmp_path / "keys"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ir.ItemfoldError, match=sentence) as caught:
        read_keys(path)
    assert "a-key-that" not in str(caught.value)
    with pytest.raises(ir.ItemfoldError, match="cannot be read"):
        read_keys(tmp_path / "none")


def test_a_changed_file_replaces_its_keys(tmp_path):
    path = write(tmp_path / "keys", OLD)
    keys = ApiKeys([FIXED], path)
    assert numbers(keys, FIXED, OLD, NEW, "") == [0, 1, None, None]
    write(path, NEW, OLD, age=30)
    assert numbers(keys, FIXED, OLD, NEW) == [0, 2, 1]
    write(path, NEW, age=20)
    assert numbers(keys, FIXED, OLD, NEW) == [0, None, 1]
    replaced = write(tmp_path / "next", OLD, age=20)  # the same times and size, another file
    replaced.replace(path)
    assert numbers(keys, FIXED, OLD, NEW) == [0, 1, None]


def test_a_file_that_is_being_written_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(api_keys, "SETTLED_SECONDS", 10_000)
    path = write(tmp_path / "keys", OLD, age=50_000)
    keys = ApiKeys([], path)
    write(path, NEW, age=60)
    assert numbers(keys, OLD, NEW) == [0, None]
    write(path, NEW, age=20_000)
    assert numbers(keys, OLD, NEW) == [None, 0]
    write(path, OLD, age=-3600)  # a wrong clock must not keep a key for ever
    assert numbers(keys, OLD, NEW) == [0, None]


@pytest.mark.parametrize("how", ["removed", "readable", "empty", "short"])
def test_an_invalid_change_keeps_the_keys_and_is_logged_once(tmp_path, how, caplog):
    path = write(tmp_path / "keys", OLD)
    keys = ApiKeys([], path)
    if how == "removed":
        path.unlink()
    elif how == "readable":
        path.chmod(0o644)
    else:
        write(path, "" if how == "empty" else "short", age=30)
    with caplog.at_level("ERROR", logger="itemfold.serving"):
        assert numbers(keys, *[OLD] * 5) == [0] * 5
    assert [record.message[:29] for record in caplog.records] == ["the API keys are not replaced"]
    write(path, NEW, age=20)
    assert numbers(keys, OLD, NEW) == [None, 0]


def test_requests_need_a_key_of_the_file(recommender, tmp_path):
    path = write(tmp_path / "keys", OLD)

    def status(key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        return client.get("/about", headers=headers).status_code

    with open_client(recommender, api_key_file=path, rate_limit=1000.0) as client:
        assert (status(OLD), status(NEW)) == (200, 401)
        write(path, *(f"{n:02d}-another-key-0123" for n in range(50)), NEW, age=30)
        assert (status(OLD), status(NEW)) == (401, 200)


def test_keys_are_replaced_in_all_workers_without_a_restart(folder, tmp_path):
    path = write(tmp_path / "keys", OLD)
    options = ("--api-key-file", path, "--rate-limit", "1000", "--no-access-log")

    def statuses(key: str) -> set[int | None]:
        """What several connections, hence all workers, answer."""
        found: set[int | None] = set()
        for _ in range(4):
            try:
                Client(service.address, key, timeout=60).about()
                found.add(200)
            except ServiceError as error:
                found.add(error.status)
        return found

    with Service(folder, *options, workers=2) as service:
        assert (statuses(OLD), statuses(NEW)) == ({200}, {401})
        write(path, NEW, age=30)
        end = time.monotonic() + 120
        while (statuses(OLD), statuses(NEW)) != ({401}, {200}):
            assert time.monotonic() < end
        assert service.process.poll() is None


def test_a_key_on_the_command_line_is_warned_about(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    started: list[tuple[str, ...]] = []

    def start(*_: object, settings: ServiceSettings, **__: object) -> None:
        started.append(settings.api_keys)

    monkeypatch.setattr("itemfold.serving.http.serve", start)
    monkeypatch.delenv("ITEMFOLD_API_KEY", raising=False)
    advice = "set ITEMFOLD_API_KEY or give --api-key-file instead"
    text = call("serve", "run", "--api-key", OLD).stderr
    assert advice in text
    assert OLD not in text
    monkeypatch.setenv("ITEMFOLD_API_KEY", f"{OLD} {NEW}")
    assert advice not in call("serve", "run").stderr
    assert started == [(OLD,), (OLD, NEW)]


def test_a_readable_file_is_reported_before_a_run_is_loaded(tmp_path):
    path = write(tmp_path / "keys", OLD)
    path.chmod(0o644)
    text = call("serve", tmp_path, "--api-key-file", path, code=2).stderr
    assert f"run chmod 600 {path}" in text


def test_log_lines_of_new_keys_hold_no_key(tmp_path, caplog):
    path = write(tmp_path / "keys", OLD)
    keys = ApiKeys([], path)
    write(path, NEW, age=30)
    with caplog.at_level("INFO", logger="itemfold.serving"):
        keys.find(NEW)
    assert [record.message for record in caplog.records] == [
        "1 API keys were read from the changed file"
    ]
    assert NEW not in json.dumps([record.__dict__ for record in caplog.records], default=str)
