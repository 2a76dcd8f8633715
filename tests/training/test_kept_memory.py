"""In a tuned process a training step reuses the memory that the last one freed."""

import subprocess
import sys
from contextlib import nullcontext

import pytest

import itemfold as ir
from itemfold.training import kept_memory as module

# Pages that the system provides for a table of 100 MB as large as those freed before it, while
# memory is kept and after it was returned. Other threads may need pages in the meantime.
FAULTS = """
import resource
import itemfold
itemfold.tune_threads()
import torch
from itemfold.training.kept_memory import keep_memory, returning_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def faults_of_a_table():
    found = []
    for _ in range(6):
        before = faults()
        table = torch.ones(25_000_000)
        found.append(faults() - before)
        del table
    return min(found[1:])

with returning_memory():
    keep_memory()
    kept = faults_of_a_table()
print(kept, faults_of_a_table())
"""


@pytest.fixture(autouse=True)
def _tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("itemfold.threads._tuned", True)
    module._mallopt.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can keep memory")
def test_a_table_takes_the_place_of_a_freed_one_until_memory_is_returned() -> None:
    if not hasattr(module._mallopt(), "argtypes"):
        pytest.skip("the C library is not glibc, or its settings are the user's")
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True)
    kept, returned = map(int, done.stdout.split())
    assert kept < 10 < returned  # 48 pages of 2 MB, or 24,414 of 4 kB


def test_settings_of_the_user_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert module._mallopt()(module.MMAP_MAX, 0) is None
    module._mallopt.cache_clear()


def settings_of_a_training(monkeypatch: pytest.MonkeyPatch, lr: float) -> list[tuple[int, int]]:
    """What a short training sets in the allocator; it fails with a large learning rate."""
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "_mallopt", lambda: lambda *setting: calls.append(setting))
    split = ir.split_interactions(ir.load("synthetic:users=60,items=80,interactions=900"))
    model = ir.models.LightGCN(dim=4)
    with pytest.raises(ir.ItemfoldError, match="loss became") if lr > 1 else nullcontext():
        ir.train(split, model, loss=ir.losses.item_ndcg, epochs=3, refit=False, lr=lr)
    return calls


@pytest.mark.parametrize("fails", [False, True])
def test_steps_keep_memory_and_the_end_of_training_returns_it(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    calls = settings_of_a_training(monkeypatch, lr=1e30 if fails else 0.01)
    kept, returned = len(module.KEEP), len(module.RETURN)
    assert tuple(calls[:kept]) == module.KEEP
    assert tuple(calls[-returned:]) == module.RETURN
    assert calls.count(module.RETURN[0]) == 1


def test_training_leaves_the_allocator_of_an_untuned_process_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("itemfold.threads._tuned", False)
    assert settings_of_a_training(monkeypatch, lr=0.01) == []
