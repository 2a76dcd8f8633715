"""A training step uses the memory again that the last one freed."""

import sys
from contextlib import nullcontext

import pytest
import torch

import itemrec as ir
from itemrec.training import kept_memory as module
from itemrec.training.kept_memory import keep_memory, memory_returned

resource = pytest.importorskip("resource")


def faults_of_a_table() -> int:
    """Pages that the system had to provide for a table as large as those freed before it."""
    faults = []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        table = torch.ones(25_000_000)  # 100 MB
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        del table
    return min(faults[1:])  # other threads may need pages in the meantime


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to keep memory")
def test_a_table_takes_the_place_of_a_freed_one_until_memory_is_returned() -> None:
    module._mallopt.cache_clear()
    if not hasattr(module._mallopt(), "argtypes"):
        pytest.skip("the C library is not glibc, or its settings are the user's")
    with memory_returned():
        keep_memory()
        kept = faults_of_a_table()
    returned = faults_of_a_table()
    assert kept < 10 < returned  # 48 pages of 2 MB, or 24,414 of 4 kB


def test_settings_of_the_user_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    module._mallopt.cache_clear()
    assert module._mallopt()(module.MMAP_MAX, 0) is None
    module._mallopt.cache_clear()


@pytest.mark.parametrize("fails", [False, True])
def test_steps_keep_memory_and_the_end_of_training_returns_it(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "_mallopt", lambda: lambda *setting: calls.append(setting))
    split = ir.split_interactions(ir.load("synthetic:users=60,items=80,interactions=900"))
    model, lr = ir.models.LightGCN(dim=4), 1e30 if fails else 0.01
    with pytest.raises(ir.ItemrecError, match="loss became") if fails else nullcontext():
        ir.train(split, model, loss=ir.losses.item_ndcg, epochs=3, refit=False, lr=lr)
    kept, returned = len(module.KEEP), len(module.RETURN)
    assert tuple(calls[:kept]) == module.KEEP
    assert tuple(calls[-returned:]) == module.RETURN
    assert calls.count(module.RETURN[0]) == 1
