"""Importing changes nothing in a process; a command, or `tune_threads`, tunes it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from itemfold.threads import SPINS, set_by_user, tune_threads, usable_cpus

OURS = ("OMP_", "GOMP_", "KMP_", "MKL_", "THP_")
linux = pytest.mark.skipif(sys.platform != "linux", reason="libgomp and affinity: Linux")


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where nothing else is set."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={**kept, **variables})
    assert done.returncode == 0, done.stderr
    return done


STATE = """
import os, signal, sys, threading, warnings

def state():
    torch = sys.modules.get("torch")
    return {
        "environment": dict(os.environ),
        "import hooks": [*sys.meta_path, *sys.path_hooks],
        "warnings": list(warnings.filters),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "exception hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook),
        "threads": torch and torch.get_num_threads(),
        "precision": torch and torch.get_float32_matmul_precision(),
    }
"""
COMPARE = """
after = state()
assert after["environment"].items() <= before["environment"].items(), [
    name for name in after["environment"] if name not in before["environment"]
]
for name in before:
    assert before[name] == after[name], name
"""
# what other packages change when they are imported is not ours
OTHERS = """
import numpy, polars, scipy.sparse, scipy.stats, torch
torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()  # imports more of torch
"""
TRAIN = """
import itemfold as ir
split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
before = state()
run = ir.train(split, {model}, epochs=2)
ir.evaluate(run, split)
ir.Recommender(run).recommend(history=split.item_ids.ids[:2].tolist())
"""


def test_importing_the_package_changes_nothing_in_the_process() -> None:
    python(f"{STATE}\nbefore = state()\nimport itemfold\n{COMPARE}")
    names = "import itemfold; [getattr(itemfold, name) for name in itemfold.__all__]"
    python(f"{STATE}{OTHERS}before = state()\n{names}\n{COMPARE}")


@pytest.mark.parametrize("model", ["ir.models.LightGCN(dim=4)", "None"])
def test_training_in_python_changes_nothing_in_the_process(model: str) -> None:
    python(STATE + OTHERS + TRAIN.format(model=model) + COMPARE)


@linux
def test_threads_do_not_spin_for_long_and_respect_the_affinity() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); import itemfold; "
    code += "itemfold.tune_threads(); import torch; from itemfold.threads import usable_cpus; "
    code += "print(usable_cpus(), torch.get_num_threads())"
    done = python(code, OMP_DISPLAY_ENV="verbose")  # libgomp prints the settings it has read
    assert done.stdout.split() == ["1", "1"]
    if "GOMP_SPINCOUNT" in done.stderr:  # otherwise this torch uses another OpenMP than libgomp
        assert f"GOMP_SPINCOUNT = '{SPINS}'" in done.stderr


QUOTA = """
from itemfold import threads
threads._scheduled_cpus = lambda: 4
threads._quotas = lambda root: [{quota}]
{first}
threads.tune_threads()
import torch
print(torch.get_num_threads())
"""


@pytest.mark.parametrize(
    ("first", "variables", "quota", "count"),
    [
        ("", {}, 0.5, "1"),
        ("", {"OMP_NUM_THREADS": "2"}, 0.5, "2"),
        ("import torch; torch.set_num_threads(3)", {}, 1.5, "2"),
        ("import torch; torch.set_num_threads(1)", {}, 1.5, "1"),
    ],
)
def test_threads_respect_a_quota(
    first: str, variables: dict[str, str], quota: float, count: str
) -> None:
    code = QUOTA.format(first=first, quota=quota)
    assert python(code, **variables).stdout.strip() == count


@pytest.mark.parametrize(
    "name",
    ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS", "MKL_NUM_THREADS"],
)
def test_settings_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    waits = not name.endswith("NUM_THREADS")
    kept = {key: text for key, text in os.environ.items() if not key.startswith(OURS)}
    with mock.patch.dict(os.environ, {**kept, name: "2"}, clear=True):
        monkeypatch.delitem(sys.modules, "torch")
        monkeypatch.setattr("itemfold.threads._set", set())
        monkeypatch.setattr("itemfold.threads._tuned", False)
        monkeypatch.setattr("itemfold.threads._scheduled_cpus", lambda: 8)
        monkeypatch.setattr("itemfold.threads._quotas", lambda root: [] if waits else [1.0])
        tune_threads()
        assert "torch" not in sys.modules  # so the number of threads was not changed
        found = {key: text for key, text in os.environ.items() if key.startswith(OURS)}
        assert set_by_user(name)
        assert not set_by_user("THP_MEM_ALLOC_ENABLE")
    ours = {} if waits else {"GOMP_SPINCOUNT": str(SPINS)}
    assert found == {name: "2", "THP_MEM_ALLOC_ENABLE": "1", **ours}


PROBE = """
import json, os
from itemfold import threads
names = ("GOMP_SPINCOUNT", "THP_MEM_ALLOC_ENABLE")
print(json.dumps([threads.is_tuned(), *map(os.environ.get, names)]), file=open("found", "w"))
"""


@pytest.mark.parametrize(
    "start",
    [
        ("itemfold", "datasets"),
        ("torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "itemfold", "models"),
    ],
    ids=lambda words: words[0],
)
def test_commands_and_workers_are_tuned(tmp_path: Path, start: tuple[str, ...]) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
    subprocess.run(
        [sys.executable, "-m", *start],
        cwd=tmp_path,
        env={**kept, "ITEMFOLD_EXTENSIONS": "probe.py"},
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    assert json.loads((tmp_path / "found").read_text()) == [True, str(SPINS), "1"]


def control_groups(root: Path, lines: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": lines, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("lines", "files", "cpus"),
    [
        ("0::/\n", {}, 8),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "5000 100000\n"}, 1),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "6400000 100000\n"}, 8),
        (  # the limit of a parent group counts as well
            "0::/pod/box\n",
            {
                "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
                "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
            },
            3,
        ),
        (  # version 1; the path is the host's, the mounted group is the container's
            "3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n",
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            "2:cpu,cpuacct:/\n",
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_the_quota_of_a_container_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, files: dict[str, str], cpus: int
) -> None:
    monkeypatch.setattr("itemfold.threads._scheduled_cpus", lambda: 8)
    assert usable_cpus(control_groups(tmp_path, lines, files)) == cpus


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert 1 <= usable_cpus() <= usable_cpus(tmp_path) <= (os.cpu_count() or 1)
