"""The figure of every system on ml-latest-small after a short training; prints the bands to commit.

``python tests/figures.py [SYSTEM …] >> tests/figures.toml`` measures systems. A change of code that
moves a figure on purpose brings the new line with it, and says why.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

from itemfold.experiments.build import run_config
from itemfold.experiments.suites.suite import load_suite, row_settings

COMMITTED = Path(__file__).with_name("figures.toml")
WIDTH = 0.08  # relative: other processors round differently, and training amplifies it
# a few epochs in small batches: the figure need not be good, only the same
SHORT = {"epochs": 12, "eval_every": 4, "eval_early": 0, "patience": 12, "refit": False}
LARGEST = {"batch": 2048, "n_negatives": 100}


def systems() -> list[str]:
    """Every row of the suite that has every model."""
    return list(load_suite("systems").rows)


def measure(system: str) -> float:
    """Test NDCG@20 of known users, seed 0, on one thread of a CPU."""
    config = row_settings(f"systems/{system}", "ml-latest-small", "transductive")
    train = {**config.get("train", {}), **SHORT, "device": "cpu", "seed": 0}
    for name, most in LARGEST.items():
        if name in train:
            train[name] = min(int(train[name]), most)
    sections: dict[str, dict[str, Any]] = {**config, "train": train}
    sections["data"] = {"data": "ml-latest-small"}
    sections["split"] = {"strategy": "interactions", "seed": 0}
    return float(run_config(sections).metrics["test"]["ndcg@20"])


def committed() -> dict[str, float]:
    """The figures that were measured when the code was known to be right."""
    return tomllib.loads(COMMITTED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    for name in sys.argv[1:] or systems():
        print(f"{name} = {measure(name):.4f}", flush=True)
