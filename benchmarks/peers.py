"""A LightGCN-BPR epoch and an evaluation against RecBole, torch-geometric and implicit.

Batches of 2,048 interactions with one negative each, 3 layers, 64 columns, the same training and
test interactions. RecBole and implicit run in separate environments, which are created on first use
in the user's cache folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Training, Verdicts, begin, parser

import numpy as np
import scipy.sparse as sp
import torch

from itemfold.data.named.find_dataset import cache_folder
from itemfold.data.splitting.split import Split
from itemfold.evaluation.evaluate import evaluate
from itemfold.losses import bpr
from itemfold.settings.schema import TrainConfig

RECBOLE = ("recbole==1.2.1", "setuptools<80", "numpy==1.26.4", "pandas<3", "scipy<1.13")
IMPLICIT = ("implicit==0.7.3",)
TORCH = "torch==2.13.0"  # the only version with a CPU build; always pinned
HERE = Path(__file__).parent


def main() -> None:
    options = parser(__doc__, "ml-1m").parse_args()
    split = begin(options)
    rounds = 1 if options.quick else 3
    count = 3 if options.quick else 25
    training = Training(
        split.train, bpr(), TrainConfig(batch_by="interactions", n_negatives=1, l2=1e-4, lr=0.001)
    )
    keys = training.keys()
    n_steps = len(keys)
    print(f"an epoch has {n_steps} steps; every epoch below is {count} timed steps, scaled")
    own: list[float] = []

    def ours() -> None:  # before and after each peer, so that a busy moment affects us too
        own.extend(timed(training.step, keys[: count + 2])[2:])

    ours()
    theirs = recbole(split, options.threads, count)
    ours()
    geometric = torch_geometric(split, keys[: 3 if options.quick else 6])
    ours()
    factors = implicit(split, options.threads)
    training.model.cache_embeddings(training.graph)
    evaluated = timed(lambda _: evaluate(training.model, split, metrics=["recall@20", "ndcg@20"]),
                      range(rounds + 1))[1:]  # fmt: skip
    epoch = float(np.median(own)) * n_steps
    found = {"RecBole 1.2.1": theirs, "torch-geometric": geometric}
    print(
        f"{'itemfold':>16} {epoch:8.2f} s per epoch, {np.median(evaluated):6.3f} s per evaluation"
    )
    for name, row in found.items():
        if row is not None:
            peer = row["step"] * n_steps
            print(
                f"{name:>16} {peer:8.2f} s per epoch, {row['evaluation']:6.3f} s per evaluation: "
                f"{peer / epoch:.1f}× and {row['evaluation'] / np.median(evaluated):.1f}× ours"
            )
    for name, spent in factors.items():
        print(f"{name:>16} {spent:8.2f} s per epoch (another model, for context)")
    if theirs is None:
        raise SystemExit("RecBole could not be installed here, so there is nothing to compare with")
    verdicts = Verdicts()
    verdicts.last("peers_speedup", theirs["step"] * n_steps / epoch, 5.0, at_least=True)


def timed(task: Callable[[Any], Any], inputs: Any) -> list[float]:
    """Seconds of the task for each input."""
    spent = []
    for value in inputs:
        start = time.perf_counter()
        task(value)
        spent.append(time.perf_counter() - start)
    return spent


# --- RecBole and implicit, in other environments -------------------------------------------------


def recbole(split: Split, threads: int, count: int) -> dict[str, float] | None:
    """Seconds per step and per evaluation of RecBole's own loops on the same interactions."""
    python = environment("recbole-1.2.1", [(TORCH, *RECBOLE[1:]), (TORCH, *RECBOLE)])
    if python is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        name = "peers"
        data = Path(folder) / name
        data.mkdir()
        held = sp.coo_array(split.test.target)
        write_inter(data / f"{name}.train.inter", *sp.coo_array(split.train).coords)
        for part in ("valid", "test"):
            write_inter(data / f"{name}.{part}.inter", split.test.users[held.coords[0]],
                        held.coords[1])  # fmt: skip
        return call(python, "peers_recbole.py", folder, str(count), str(threads))


def implicit(split: Split, threads: int) -> dict[str, float]:
    """Seconds per iteration of implicit's ALS and BPR; empty if it cannot be installed."""
    python = environment("implicit-0.7.3", [IMPLICIT])
    if python is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        sp.save_npz(Path(folder) / "train.npz", sp.csr_matrix(split.train))
        return call(python, "peers_implicit.py", folder, str(threads)) or {}


def call(python: Path, script: str, *arguments: str) -> dict[str, float] | None:
    """The JSON on the last line of a script that another environment runs."""
    settings = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "OPENBLAS_NUM_THREADS": "1"}
    settings.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(python), str(HERE / script), *arguments], capture_output=True, text=True, env=settings
    )
    if done.returncode:
        print(f"{script} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def environment(name: str, installs: list[tuple[str, ...]]) -> Path | None:
    """The Python of a virtual environment with these packages; created once, completely or not."""
    home = cache_folder() / "peers" / name
    python, stamp = home / "bin" / "python", home / "complete"
    if stamp.is_file():
        return python
    print(f"creating the environment {name}: this takes minutes, once", file=sys.stderr)
    home.mkdir(parents=True, exist_ok=True)
    venv.create(home, with_pip=True, clear=True)
    for packages in installs:
        command = [str(python), "-m", "pip", "install", "--quiet", *packages]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            message = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{name} could not be installed: {message}", file=sys.stderr)
            return None
    stamp.touch()
    return python


def write_inter(path: Path, users: np.ndarray, items: np.ndarray) -> None:
    """Write RecBole's table of interactions."""
    with path.open("w") as file:
        file.write("user_id:token\titem_id:token\n")
        np.savetxt(file, np.column_stack([users, items]), fmt="%d", delimiter="\t")


# --- torch-geometric, in this environment --------------------------------------------------------


def torch_geometric(split: Split, keys: torch.Tensor) -> dict[str, float]:
    """Its LightGCN with the same batches, trained as in its documentation."""
    from torch_geometric.nn.models import LightGCN

    n_users, n_items = split.train.shape
    rows, columns = (torch.from_numpy(c).long() for c in sp.coo_array(split.train).coords)
    both = torch.stack([rows, columns + n_users])
    edges = torch.cat([both, both.flip(0)], dim=1)
    model = LightGCN(n_users + n_items, embedding_dim=64, num_layers=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    generator = torch.Generator().manual_seed(0)

    def step(chosen: torch.Tensor) -> None:
        chosen = chosen[chosen >= 0]
        users, positives = both[:, chosen]
        drawn = torch.randint(n_items, (len(chosen),), generator=generator) + n_users
        pairs = torch.stack([users.repeat(2), torch.cat([positives, drawn])])
        optimizer.zero_grad()
        pos, neg = model(edges, pairs).chunk(2)
        named = torch.cat([users, positives, drawn]).unique()
        loss = model.recommendation_loss(pos, neg, node_id=named, lambda_reg=1e-4)
        loss.backward()
        optimizer.step()

    spent = timed(step, keys)[1:]
    users = torch.from_numpy(split.test.users)
    items = torch.arange(n_users, n_users + n_items)
    with torch.no_grad():  # its `recommend` neither leaves out known items nor evaluates the lists
        evaluated = timed(
            lambda _: model.recommend(edges, src_index=users, dst_index=items, k=20), range(2)
        )
    return {"step": float(np.median(spent)), "evaluation": float(min(evaluated))}


if __name__ == "__main__":
    main()
