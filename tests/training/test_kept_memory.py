"""A training step uses the memory again that the last one freed."""

import gc
import sys

import pytest
import torch

import itemrec as ir
import itemrec.training.learner as learner_module
from itemrec.training import kept_memory as module
from itemrec.training.config import TrainConfig
from itemrec.training.kept_memory import keep_memory, return_memory
from itemrec.training.plan import Plan

resource = pytest.importorskip("resource")


def faults_of_second_table() -> int:
    """Pages that the system had to provide for a table as large as one freed before."""
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        table = torch.ones(25_000_000)  # 100 MB
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        del table
    return after - before


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to keep memory")
def test_a_table_takes_the_place_of_a_freed_one_until_memory_is_returned() -> None:
    module._mallopt.cache_clear()
    if not hasattr(module._mallopt(), "argtypes"):
        pytest.skip("the C library is not glibc, or its settings are the user's")
    keep_memory()
    try:
        kept = faults_of_second_table()
    finally:
        return_memory()
    returned = faults_of_second_table()
    assert kept < 10 < returned  # 48 pages of 2 MB, or 24,414 of 4 kB


def test_settings_of_the_user_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    module._mallopt.cache_clear()
    assert module._mallopt()(module.MMAP_MAX, 0) is None
    module._mallopt.cache_clear()


def test_memory_is_kept_by_a_step_and_returned_when_the_learner_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    for name in ("keep_memory", "return_memory"):
        monkeypatch.setattr(learner_module, name, lambda name=name: calls.append(name))
    split = ir.split_interactions(ir.load("synthetic:users=60,items=80,interactions=900"))
    loss, sampler = ir.losses.item_ndcg, ir.negatives.Uniform()
    plan = Plan(split, ir.models.LightGCN(dim=4), loss, sampler, TrainConfig(device="cpu"))
    learner = learner_module.Learner(plan, split)
    for keys in learner.batches.epoch(torch.Generator())[:1].repeat(2, 1):
        learner.step(keys)
    assert calls == ["keep_memory"] * 2
    del learner
    gc.collect()
    assert calls[2:] == ["return_memory"]
