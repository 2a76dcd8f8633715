"""A training step uses the memory again that the last one freed."""

import sys

import pytest
import torch

from itemrec.training import kept_memory as module
from itemrec.training.kept_memory import kept_memory

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
def test_a_table_takes_the_place_of_a_freed_one_only_within_the_context() -> None:
    module._mallopt.cache_clear()
    if not hasattr(module._mallopt(), "argtypes"):
        pytest.skip("the C library is not glibc, or its settings are the user's")
    with kept_memory():
        kept = faults_of_second_table()
    returned = faults_of_second_table()
    assert kept < 10 < returned  # 48 pages of 2 MB, or 24,414 of 4 kB


def test_settings_of_the_user_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    module._mallopt.cache_clear()
    assert module._mallopt()(module.MMAP_MAX, 0) is None
    module._mallopt.cache_clear()
