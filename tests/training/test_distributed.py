"""Several processes train one model: the same result as one, also after one of them was killed."""

import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import ranked
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from typer.testing import CliRunner

import itemfold as ir
from itemfold import ranks
from itemfold.cli.app import app
from itemfold.models.base import Kind
from itemfold.ops.columns import drawn
from itemfold.sampling import Uniform
from itemfold.training.across_ranks import check_model, check_sampler, is_by_columns

DATA = "synthetic:users=300,items=200,interactions=8000"
LONG = [DATA, "--model", "lightgcn", "--dim", "16", "--device", "cpu"]
for setting in ("epochs=12", "eval_every=4", "batch=64", "refit=false", "save_seconds=0"):
    LONG += ["--set", f"train.{setting}"]


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Up to the rounding of sums, which a few steps of Adam enlarge."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(
            found[key].double(), value.double(), rtol=1e-3, atol=1e-4, msg=lambda m, k=key: k + m
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    """The outcomes of all cases in one process."""
    return ranked.outcomes(list(ranked.CASES))


@pytest.fixture(scope="module")
def stopped_by_two(folder: Path) -> tuple[list[dict[str, Tensor]], Path]:
    """The outcomes of all cases with two ranks, and a run folder that they left unfinished."""
    begun = folder / "begun"
    return ranked.by_ranks(2, [*ranked.CASES, f"stop:{begun}"], folder), begun


def test_two_ranks_reach_the_result_of_one_process(
    stopped_by_two: tuple[list[dict[str, Tensor]], Path], alone: dict[str, Tensor]
) -> None:
    first, second = stopped_by_two[0]
    assert_same(first, alone)
    assert all(torch.equal(second[key], value) for key, value in first.items())


def test_a_state_of_two_ranks_is_continued_by_one_and_by_three(
    stopped_by_two: tuple[list[dict[str, Tensor]], Path], alone: dict[str, Tensor], folder: Path
) -> None:
    begun, copy = stopped_by_two[1], folder / "copy"
    assert not (begun / "metrics.json").exists()
    subprocess.run(["cp", "-r", begun, copy], check=True)
    whole = ranked.outcome(ranked.stored(str(folder / "whole"), resume=False))
    one = ranked.outcome(ranked.stored(str(begun), resume=True))
    assert_same(one, whole)
    names = ["item-ndcg, PageRank", "item-log, in-batch, cosine", "hybrid"]
    names += ["softmax, whole batch, concatenated"]
    three = ranked.by_ranks(3, [f"resume:{copy}", *names], folder)[0]
    assert_same({k.removeprefix("resume/"): v for k, v in three.items() if "resume/" in k}, whole)
    rest = {key: value for key, value in three.items() if "resume/" not in key}
    assert_same(rest, {k: v for k, v in alone.items() if k.rpartition("/")[0] in names})
    assert_same(ranked.outcome(ir.Run.load(copy)), whole)  # the folder is that of any run


def pid_of(rank: int, parent: int) -> int:
    """The process of a rank that `torchrun` has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            about = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(about[1]) == parent and f"RANK={rank}\0" in (folder / "environ").read_text():
                return int(folder.name)
        except OSError:  # it has ended
            continue
    raise RuntimeError(f"rank {rank} is not running")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_killed_rank_is_started_again_and_changes_nothing(folder: Path) -> None:
    out, calm = folder / "killed", folder / "calm"
    line = ["-m", "itemfold", "train", *LONG, "--out", str(out)]
    started = subprocess.Popen(
        ranked.command(2, *line, options=["--max-restarts", "1"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while not (out / "state.pt").exists():
        assert started.poll() is None, started.communicate()[1]
        time.sleep(0.02)
    os.kill(pid_of(1, started.pid), signal.SIGKILL)
    shown, errors = started.communicate(timeout=300)
    assert started.returncode == 0, errors
    assert shown.count("run folder: ") == 1  # one rank speaks
    assert "exitcode: -9" in errors
    assert CliRunner().invoke(app, ["train", *LONG, "--out", str(calm)]).exit_code == 0
    found, expected = (json.loads((at / "metrics.json").read_text()) for at in (out, calm))
    assert found["best_epoch"] == expected["best_epoch"]
    for part in ("valid", "test"):
        assert found[part] == pytest.approx(expected[part], abs=1e-4)


@pytest.fixture
def as_rank_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("as_rank_of_two")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--model", "gcn"], "GCN"),
        (["--model", "ultragcn"], "UltraGCN"),
        (["--set", "model.gnn=gat"], "'gnn' must compute each column"),
        (["--model", "lightgcn", "--dim", "1"], "'dim' must be at least"),
    ],
)
def test_what_cannot_be_divided_is_refused_before_data_is_read(
    options: list[str], reason: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    data = tmp_path / "broken.csv"
    data.write_text("no table\n")
    line = ["train", str(data), *options, "--out", str(out)]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 2
    assert reason in done.stderr
    told = [line for line in done.stderr.strip().splitlines() if " reading " not in line]
    assert len(told) == 1
    assert not out.exists()


@pytest.mark.usefixtures("as_rank_of_two")
def test_a_rank_that_fails_before_it_has_met_the_others_says_why_if_the_first_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("itemfold.cli.errors.time.sleep", waited.append)
    for number in "01":
        monkeypatch.setenv("RANK", number)
        done = CliRunner().invoke(app, ["recommend", "absent", "--all", "--out", "lists"])
        assert done.exit_code == 2
        assert "itemfold: rank 1: absent: no such folder" in done.stderr or number == "0"
        assert len(done.stderr.strip().splitlines()) == 1
        assert len(waited) == int(number)  # the first one does not wait


@pytest.mark.usefixtures("as_rank_of_two")
def test_every_rank_recommends_with_its_own_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    used: list[int] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", used.append)

    def told(local: str, device: str) -> str:
        monkeypatch.setenv("LOCAL_RANK", local)
        line = ["recommend", str(tmp_path), "--all", "--out", "lists", "--device", device]
        return CliRunner().invoke(app, line).stderr

    assert "is not a finished run" in told("0", "cuda")
    assert "is not a finished run" in told("1", "auto")
    assert "is not a finished run" in told("1", "cpu")
    assert used == [0, 1]
    assert "'--nproc-per-node' must be at most the number of GPUs (2)" in told("2", "cuda")
    assert "'device' must be cuda with several processes" in told("0", "cuda:0")


@pytest.mark.usefixtures("as_rank_of_two")
def test_a_class_answers_for_itself_alone() -> None:
    class Mixing(ir.models.LightGCN):
        """May mix columns, whatever LightGCN does."""

    @dataclass
    class OwnScores(Uniform):
        """May forget to sum its products."""

        def score(self, *args: Any) -> Any:
            return super().score(*args)

    class OwnDraws(Uniform):
        """Only draws."""

    check_model(ir.models.LightGCN())
    check_sampler(OwnDraws())
    with pytest.raises(ir.ItemfoldError, match="Mixing"):
        check_model(Mixing())
    with pytest.raises(ir.ItemfoldError, match="OwnScores"):
        check_sampler(OwnScores())


def test_the_page_names_all_models_and_says_what_happens_to_them() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "distributed.md"
    section = page.read_text(encoding="utf-8").split("## Supported models")[1]
    able, refused = section.split("## Fault tolerance")[0].split("Models with weight matrices")
    for name, kind in ir.models.MODELS.items():
        divided = is_by_columns(kind) or kind.kind in (Kind.CLOSED_FORM, Kind.HYBRID)
        assert f"`{name}`" in (able if divided else refused), name


@given(st.integers(1, 70_000), st.integers(1, 9), st.integers(0, 8), st.integers(0, 8))
def test_columns_drawn_in_blocks_are_those_of_one_draw(n: int, width: int, a: int, b: int) -> None:
    columns = slice(min(a, b, width - 1), max(a, b, 1))
    for sample in (torch.randn, torch.rand):
        one, other = torch.Generator().manual_seed(n), torch.Generator().manual_seed(n)
        whole = sample(n, width, generator=one)
        part = drawn(n, width, columns, lambda rows: sample(rows, width, generator=other))  # noqa: B023
        assert torch.equal(part, whole[:, columns])
        assert torch.equal(one.get_state(), other.get_state())  # and so is what comes next


@given(st.integers(0, 500), st.integers(1, 9), st.integers(1, 64))
def test_every_row_and_column_belongs_to_one_rank(count: int, size: int, multiple: int) -> None:
    group = ranks._group
    group.size = size
    try:
        for parts in (ranks.column_slices(count), ranks.row_slices(count, multiple)):
            assert [at for part in parts for at in range(count)[part]] == list(range(count))
        sizes = [part.stop - part.start for part in ranks.column_slices(count)]
        assert max(sizes) - min(sizes) <= 1
    finally:
        group.size = 1


def test_ranks_that_are_started_again_find_those_that_are_alive() -> None:
    """Whatever dead ranks have left in the store, and in whichever order the others come."""
    store, found = dist.HashStore(), dict[int, tuple[str, bool]]()

    def join(rank: int, count: int) -> threading.Thread:
        def run() -> None:
            found[rank] = ranks.agree_on_name(store, rank, count)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    names = set()
    for attempt, order in enumerate(([0, 1, 2], [2, 0, 1], [1, 0], [1, 2, 0])):
        found.clear()
        started = []
        for rank in order:
            time.sleep(0.1)  # time to be misled by tokens of dead ranks
            assert not found
            started.append(join(rank, len(order)))
        for thread in started:
            thread.join(10)
        assert len(found) == len(order)
        assert {again for _, again in found.values()} == {attempt > 0}
        names |= {name for name, _ in found.values()}
    assert len(names) == 4


@pytest.mark.slow
def test_what_fails_on_one_rank_is_said_once_and_ends_all(tmp_path: Path) -> None:
    extension = tmp_path / "failing.py"
    extension.write_text(
        "import os\n"
        "from itemfold.errors import ItemfoldError\n"
        "from itemfold.models import LightGCN\n"
        "def fail(self, graph, generator):\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise ItemfoldError('this machine is too small')\n"
        "LightGCN.begin_epoch = fail\n"
    )
    line = ["-m", "itemfold", "--extension", str(extension), "train", *LONG]
    done = ranked.torchrun(2, *line, "--out", str(tmp_path / "run"))
    assert done.returncode != 0
    said = [text for text in done.stderr.splitlines() if text.startswith("itemfold: ")]
    assert said == ["itemfold: rank 1: this machine is too small"]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_signal_ends_all_ranks_after_the_same_epoch(tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = ["-m", "itemfold", "train", *LONG, "--set", "train.epochs=2000", "--out", str(out)]
    started = subprocess.Popen(
        ranked.command(2, *line), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (out / "state.pt").exists():
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    errors = started.communicate(timeout=300)[1]
    assert f"terminated; continue with: itemfold train --resume --out {out}" in errors
    state = torch.load(out / "state.pt", weights_only=True)
    assert 0 < state["epoch"] < 2000
    assert state["model"]["item_embedding"].shape[1] == 16


@pytest.mark.slow
def test_evaluation_divides_the_users_and_other_commands_run_once(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    assert CliRunner().invoke(app, ["train", DATA, "--model", "ease", "--out", out]).exit_code == 0
    one = CliRunner().invoke(app, ["evaluate", out, "--json"])
    two = ranked.torchrun(2, "-m", "itemfold", "evaluate", out, "--json")
    assert json.loads(two.stdout) == json.loads(one.stdout)
    line = ["recommend", out, "--history", "3,5", "--k", "2"]
    shown = ranked.torchrun(2, "-m", "itemfold", *line).stdout
    assert shown == CliRunner().invoke(app, line).stdout
    lists, ids = tmp_path / "lists", {}
    written = ["recommend", out, "--all", "--part", "20", "--out"]
    ranked.torchrun(2, "-m", "itemfold", *written, str(lists))
    assert CliRunner().invoke(app, [*written[:3], "--out", f"{lists}.parquet"]).exit_code == 0
    for name, files in (("two", sorted(lists.glob("*.parquet"))), ("one", [f"{lists}.parquet"])):
        ids[name] = [row for file in files for row in pl.read_parquet(file).rows()]
    assert sorted(ids["two"]) == sorted(ids["one"])
    assert len(sorted(lists.glob("manifest-*-of-2.json"))) == 2
