"""Fixtures shared by all tests; real data is found through ITEMREC_DATA."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

pytest.register_assert_rewrite("contract", "small")

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the GPU's kernels, on a CPU; triton reads it once
torch.set_num_threads(1)  # two test workers share two cores
# the same examples every time, and no stop-watch: a shared machine is slow now and then
settings.register_profile("itemrec", deadline=None, derandomize=True)
settings.load_profile("itemrec")


@pytest.fixture
def data_root() -> Path:
    """The folder of real data sets; tests that need it are skipped by name where it is absent."""
    root = os.environ.get("ITEMREC_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("needs real data: set ITEMREC_DATA")
    return Path(root)
