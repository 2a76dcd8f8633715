"""Lists of all users in parts: shards, manifests, killed processes, one large file."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.serving import recommendation_parts as parts
from itemfold.serving.recommendation_parts import write_parts

Files = dict[str, tuple[bytes, int, int]]  # contents, inode and time of writing


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def files_of(folder: Path, pattern: str = "part-*.parquet") -> Files:
    return {
        path.name: (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(folder.glob(pattern))
    }


def contents(files: Files) -> dict[str, bytes]:
    return {name: content for name, (content, _, _) in files.items()}


def call(*args: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "200"})
    return done.output if not done.exit_code else f"{done.exit_code}: {done.stderr}"


def test_parts_hold_the_lists_of_recommend(recommender: ir.Recommender, tmp_path: Path) -> None:
    done = write_parts(recommender, tmp_path, 4, users_per_part=25)
    users = recommender.run.user_ids.ids.tolist()
    assert (done.users, done.parts, done.skipped) == (len(users), -(-len(users) // 25), 0)
    table = pl.read_parquet(tmp_path / "part-*.parquet")
    assert table.columns == ["user_id", "item_id", "rank", "score"]
    assert table["user_id"].unique(maintain_order=True).to_list() == users
    for user in (users[0], users[25], users[-1]):
        own = table.filter(pl.col("user_id") == user)
        expected = recommender.recommend(user, k=4)
        assert own["item_id"].to_list() == [pick.item for pick in expected]
        assert own["rank"].to_list() == [1, 2, 3, 4]
        assert own["score"].to_list() == pytest.approx([pick.score for pick in expected])


def test_shards_write_the_parts_of_one_process(recommender: ir.Recommender, tmp_path: Path) -> None:
    write_parts(recommender, tmp_path / "one", 4, users_per_part=10)
    for shard in (2, 0, 1):
        write_parts(recommender, tmp_path / "three", 4, shard=(shard, 3), users_per_part=10)
    one, three = (files_of(tmp_path / name) for name in ("one", "three"))
    assert contents(one) == contents(three)
    listed: list[str] = []
    for shard in range(3):
        manifest = json.loads((tmp_path / "three" / f"manifest-{shard}-of-3.json").read_text())
        assert manifest["complete"]
        assert manifest["shard"] == [shard, 3]
        listed += manifest["parts"]
    assert sorted(listed) == sorted(one)
    # another number of shards finds everything complete
    done = write_parts(
        recommender, tmp_path / "three", 4, shard=(1, 2), users_per_part=10, resume=True
    )
    assert done.skipped == done.parts
    assert files_of(tmp_path / "three") == three


KILLED = """
import os, signal, sys
import itemfold as ir
from itemfold.serving import recommendation_parts as parts
from itemfold.serving.recommendation_table import RecommendationTable

save, count = RecommendationTable.save, 0

def save_or_die(table, path):
    global count
    count += 1
    if count == 4:  # the part is written, its manifest is not
        save(table, path)
        path.with_name(f".{path.name}.1.tmp").write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    save(table, path)

RecommendationTable.save = save_or_die
parts.write_parts(ir.Recommender.load(sys.argv[1]), sys.argv[2], 4, users_per_part=10)
"""


def test_a_killed_process_is_continued_without_repeating_finished_parts(
    folder: Path, recommender: ir.Recommender, tmp_path: Path
) -> None:
    out = tmp_path / "lists"
    killed = subprocess.run([sys.executable, "-c", KILLED, folder, out], env=os.environ)
    assert killed.returncode == -signal.SIGKILL
    manifest = json.loads((out / "manifest-0-of-1.json").read_text())
    assert list(manifest["parts"]) == [f"part-0000{n}.parquet" for n in range(3)]
    assert not manifest["complete"]
    before = files_of(out)
    text = call("recommend", folder, "--all", "--out", out, "-k", 4, "--part", 10, "--resume")
    assert "3 of them already complete" in text
    after = files_of(out)
    for name in manifest["parts"]:
        assert after[name] == before[name]  # the same file, not one with the same contents
    write_parts(recommender, tmp_path / "whole", 4, users_per_part=10)
    assert sorted(after) == sorted(files_of(tmp_path / "whole"))
    for name in after:  # another number of threads may round scores differently
        found, expected = (pl.read_parquet(place / name) for place in (out, tmp_path / "whole"))
        assert_frame_equal(found, expected, rel_tol=1e-5)
    assert not list(out.glob(".*"))
    assert json.loads((out / "manifest-0-of-1.json").read_text())["complete"]


def test_a_damaged_or_missing_part_is_written_again(
    recommender: ir.Recommender, tmp_path: Path
) -> None:
    write_parts(recommender, tmp_path, 4, users_per_part=30)
    before = files_of(tmp_path)
    (tmp_path / "part-00001.parquet").write_bytes(b"PAR1")
    (tmp_path / "part-00002.parquet").unlink()
    done = write_parts(recommender, tmp_path, 4, users_per_part=30, resume=True)
    assert done.parts - done.skipped == 2
    assert contents(files_of(tmp_path)) == contents(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r, f: write_parts(r, f, 4, users_per_part=30), "has lists; --resume continues"),
        (
            lambda r, f: write_parts(r, f, 5, users_per_part=30, resume=True),
            "another 'k': 4, not 5",
        ),
        (
            lambda r, f: write_parts(r, f, 4, users_per_part=30, resume=True, without=[3]),
            r"another 'without': not given, not \[3\]",
        ),
        (
            lambda r, f: write_parts(r, f, 4, resume=True),
            "another 'users_per_part': 30, not 10000",
        ),
        (
            lambda r, f: write_parts(
                ir.Recommender(ir.train(ir.keep_all(ir.read(r.train)), ir.models.EASE())),
                f,
                4,
                users_per_part=30,
                resume=True,
            ),
            "another 'run'",
        ),
        (lambda r, f: write_parts(r, f, 4, shard=(0, 2), users_per_part=30), "has lists"),
    ],
)
def test_a_folder_of_other_lists_raises_and_is_left_alone(
    recommender: ir.Recommender,
    tmp_path: Path,
    change: Callable[[ir.Recommender, Path], object],
    message: str,
) -> None:
    write_parts(recommender, tmp_path, 4, users_per_part=30)
    before = files_of(tmp_path, "*")
    with pytest.raises(ir.ItemfoldError, match=message):
        change(recommender, tmp_path)
    assert files_of(tmp_path, "*") == before


def test_a_folder_without_parts_raises(recommender: ir.Recommender, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(
        ir.ItemfoldError, match="'out' must be a new folder or one with parts of lists"
    ):
        write_parts(recommender, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_shards_may_begin_at_the_same_moment(recommender: ir.Recommender, tmp_path: Path) -> None:
    """One of them may see no more than the draft of another one's manifest."""
    (tmp_path / ".manifest-0-of-2.json.123.tmp").write_text("{")
    done = write_parts(recommender, tmp_path, 4, shard=(1, 2), users_per_part=30)
    assert done.parts == len(files_of(tmp_path)) == 2


def test_blocks_of_a_killed_process_are_removed_with_its_draft(
    recommender: ir.Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"

    def kill(block: pl.DataFrame, path: Path) -> None:
        path.write_bytes(b"half")
        shutil.copytree(killed, tmp_path / "left")  # as `kill -9` would leave it
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pl.DataFrame, "write_parquet", kill)
        with pytest.raises(KeyboardInterrupt):
            write_parts(recommender, killed, 4, users_per_part=30)
    left = tmp_path / "left"
    assert any(path.is_dir() for path in left.iterdir())
    write_parts(recommender, left, 4, users_per_part=30, resume=True)
    assert not list(left.glob(".*"))


def test_torchrun_starts_lists_again_where_they_were(
    folder: Path, recommender: ir.Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parts(recommender, tmp_path / "lists", 4, shard=(0, 2), users_per_part=30)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    line = ("recommend", folder, "--all", "--out", tmp_path / "lists", "-k", 4, "--part", 30)
    assert "--resume continues them" in call(*line)
    assert "'--shard' must not be given under torchrun" in call(*line, "--shard", "0/2")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert "2 of them already complete" in call(*line)


def test_under_torchrun_each_process_writes_its_shard(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "lists"
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        text = call("recommend", folder, "--all", "--out", out, "-k", 4, "--part", 25)
        assert f"of shard {rank}/2" in text
    assert len(files_of(out)) == 5
    refused = call("recommend", folder, "--all", "--out", tmp_path / "x.csv")
    assert refused.startswith("2: ")
    assert "must be a folder if several processes write" in refused
    alone = call("recommend", folder, "--all", "--out", tmp_path / "own", "--shard", "0/1")
    assert "shard" not in alone


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--all --out lists --shard 2/2", "'--shard' must be i/n with i from 0 to n - 1"),
        ("--all --out lists --shard x", "'--shard' must be i/n with i from 0 to n - 1"),
        ("--all --out lists --part 0", "'--part' must be a positive integer, got 0"),
        ("--all --out lists.csv --resume", "'--resume' needs --all and a folder"),
        ("--user 3 --shard 0/2", "'--shard' needs --all and a folder"),
    ],
)
def test_invalid_options_raise_before_anything_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = call("recommend", folder, *options.split())
    assert found.startswith("2: ")
    assert message in found
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["lists.parquet", "lists.csv", "lists.tsv"])
def test_one_file_is_written_in_blocks(
    folder: Path,
    recommender: ir.Recommender,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """The file of all users is that of `recommend_all`, but no more than a block is in memory."""
    monkeypatch.setattr(parts, "USERS", 25)
    sizes, whole = [], ir.Recommender.recommend_all

    def noted(self: ir.Recommender, *args: object, **given: object) -> object:
        table = whole(self, *args, **given)  # type: ignore[arg-type]
        sizes.append(len(table.users))
        return table

    monkeypatch.setattr(ir.Recommender, "recommend_all", noted)
    text = call("recommend", folder, "--all", "--out", tmp_path / name, "-k", 4)
    assert sum(sizes) == recommender.train.shape[0]
    assert max(sizes) == 25
    assert f"{sum(sizes)} users, up to 4 items each" in text
    monkeypatch.undo()
    expected = tmp_path / f"expected-{name}"
    recommender.recommend_all(4).save(expected)
    if name.endswith("parquet"):
        found = pl.read_parquet(tmp_path / name)
        assert found.equals(pl.read_parquet(expected))
    else:
        assert (tmp_path / name).read_text() == expected.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {name, expected.name}
