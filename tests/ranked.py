"""Small trainings, run by one process or, as a script under `torchrun`, by several ranks.

The script writes the metrics and the weights of every case into one file, so that many cases share
the start of the processes.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import itemfold as ir
from itemfold import ranks
from itemfold.training.learner import Learner
from itemfold.training.run import Run

DATA = "synthetic:users=150,items=130,interactions=3000"
SHORT: dict[str, Any] = {"epochs": 3, "eval_every": 1, "batch": 64, "device": "cpu"}
SHORT |= {"n_negatives": 20, "seed": 3, "refit": False}
losses, negatives, models = ir.losses, ir.negatives, ir.models


def known(model: Any, loss: Any, sampler: Any = None, **settings: Any) -> Run:
    """Train on known users."""
    split = ir.split_interactions(ir.load(DATA), seed=1)
    if loss is losses.bpr:  # batches of interactions
        settings = {"batch": 512, **settings}
    return ir.train(split, model, loss=loss, negatives=sampler, **{**SHORT, **settings})


def unseen(model: Any, loss: Any, sampler: Any = None, **settings: Any) -> Run:
    """Train on some users, evaluate others."""
    split = ir.split_users(ir.load(DATA), seed=1)
    return ir.train(split, model, loss=loss, negatives=sampler, **{**SHORT, **settings})


CASES: dict[str, Callable[[], Run]] = {
    "item-ndcg, PageRank": lambda: known(
        models.LightGCN(dim=18), losses.item_ndcg(tau=0.5), negatives.PPR(cache=False)
    ),
    "item-log, in-batch, cosine": lambda: unseen(
        models.LightGCN(dim=16),
        losses.item_log(tau=0.1),
        negatives.InBatch(group=24),
        batch_by="interactions",
        batch=256,
        similarity="cosine",
    ),
    "softmax, whole batch, concatenated": lambda: known(
        models.LRGCCF(dim=18), losses.softmax(tau=0.5), negatives.InBatch()
    ),
    "item-ap, whole catalogue": lambda: unseen(
        models.LightGCN(dim=16), losses.item_ap(tau=0.5), negatives.All()
    ),
    "bpr, l2": lambda: known(models.MF(dim=16), losses.bpr, l2=0.01, lr=0.01),
    "refit, concatenated layers": lambda: known(
        models.LRGCCF(dim=16), losses.softmax(tau=0.5), refit=True
    ),
    "mixgcf, cosine": lambda: known(
        models.LightGCN(dim=16),
        losses.bpr,
        negatives.MixGCF(candidates=4),
        similarity="cosine",
    ),
    "dynamic": lambda: known(models.LightGCN(dim=16), losses.bpr, negatives.Dynamic(candidates=4)),
    "unseen users, concatenated": lambda: unseen(models.LRGCCF(dim=16), losses.neural_ndcg),
    "sgl": lambda: known(models.SGL(dim=16, weight=0.05), losses.bpr, l2=0.001),
    "simgcl": lambda: known(models.SimGCL(dim=16, weight=0.05), losses.bpr, lr=0.01),
    "xsimgcl": lambda: known(models.XSimGCL(dim=16, weight=0.05), losses.bpr, lr=0.01),
    "hybrid": lambda: unseen(models.Hybrid(gnn={"dim": 16}), None, lr=0.01),
    "svd start": lambda: known(
        models.LightGCN(dim=18, start="svd"), losses.softmax(tau=0.5), refit=True
    ),
    "closed form": lambda: unseen(models.EASE(), None),
    "popularity negatives": lambda: known(
        models.LightGCN(dim=16), losses.bsl, negatives.Popularity(), ema_decay=0
    ),
}


def stored(folder: str, *, resume: bool) -> Run:
    """Train with a run folder, in which the state of every epoch is saved."""
    return known(
        models.LightGCN(dim=16),
        losses.bpr,
        batch=64,
        out=folder,
        resume=resume,
        save_seconds=0,
        refit=True,
    )


def stopped(folder: str, steps: int = 60) -> None:
    """`stored`, ended in the middle of an epoch."""
    step, taken = Learner.step, [0]

    def counted(self: Learner, keys: torch.Tensor) -> torch.Tensor:
        taken[0] += 1
        if taken[0] > steps:
            raise KeyboardInterrupt
        return step(self, keys)

    Learner.step = counted  # type: ignore[method-assign]
    try:
        stored(folder, resume=False)
    except KeyboardInterrupt:
        return
    finally:
        Learner.step = step  # type: ignore[method-assign]
    raise RuntimeError("the training was too short to be stopped")


def outcome(run: Run) -> dict[str, torch.Tensor]:
    """Everything that must not depend on the number of ranks."""
    out = {f"model.{k}": v.detach().contiguous() for k, v in run.model.state_dict().items()}
    for part in ("valid", "test"):
        out |= {f"{part}.{k}": torch.tensor(v) for k, v in run.metrics[part].items()}
    values = {k: v for k, v in run.per_user.items() if v.dtype == np.float64}
    return out | {f"user.{k}": torch.from_numpy(v) for k, v in values.items()}


def outcomes(names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The outcomes of several cases; a name may also be that of a folder to stop or resume in."""
    out = {}
    for name in names:
        what, _, folder = name.partition(":")
        if what == "stop":
            stopped(folder)
            continue
        run = stored(folder, resume=True) if what == "resume" else CASES[name]()
        out |= {f"{what}/{key}": value for key, value in outcome(run).items()}
    return out


def threads_of_gloo() -> list[str]:
    """The threads of this process that exchange tensors, by name, where the system tells them."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


def by_ranks(count: int, names: Sequence[str], folder: Path) -> list[dict[str, torch.Tensor]]:
    """The outcomes of the cases on each of several ranks, which leave no thread behind."""
    target = folder / f"ranks-{count}"
    done = torchrun(count, __file__, str(target), *names)
    assert done.returncode == 0, done.stderr
    return [load_file(target.with_suffix(f".{rank}")) for rank in range(count)]


def torchrun(
    count: int, *arguments: str, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script, or a module after "-m", in several processes on this machine."""
    return subprocess.run(
        command(count, *arguments, options=options),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )


def command(count: int, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """The command line of `torchrun`, with a port of its own."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", str(count), *options, *arguments]


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = outcomes(sys.argv[2:])
    save_file(found, Path(sys.argv[1]).with_suffix(f".{ranks.rank()}"))
    ranks.stop()
    assert not threads_of_gloo()  # one that outlives Python aborts the process
