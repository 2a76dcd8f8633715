"""Large catalogues: a linear model of a million items, lists for all users, an approximate index.

Four parts. `quality`: the sparse form of EASE against the dense one, by NDCG@20 on the test part.
`fit`: the sparse form for a large catalogue in a process of its own, and its peak memory. `lists`:
`itemfold recommend --all` into a folder, killed and continued: users a second, peak
memory against that of a tenth of the users, and whether finished parts were left alone. `index`:
usearch against exact search over as many item vectors, recall and speed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Verdicts, hardware, parser, resident

import numpy as np
import scipy.sparse as sp
import torch

import itemfold as ir
from itemfold.data.datasets import load
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import split_interactions
from itemfold.evaluation.evaluate import evaluate
from itemfold.evaluation.ranking import mask_history, top_items
from itemfold.models import EASE
from itemfold.models.base import Model

PARTS = ("quality", "fit", "lists", "index")
DATA = ["yelp2018", "amazon-cds"]
RESULTS = Path(__file__).parents[1] / "results" / "hybrid.jsonl"
FULL = {
    "items": 1_000_000,
    "interactions": 20_000_000,
    "users": 1_000_000,
    "listed": 100_000,
    "part": 10_000,
}
QUICK = {"items": 3000, "interactions": 30_000, "users": 1200, "listed": 500, "part": 50}
GROUP = 500  # items of a group that users share
OUTSIDE = 0.2  # of the interactions of a user are with any items
DIM = 64
QUERIES = 200
K = 20


def main() -> None:
    options = _options()
    size = {name: getattr(options, name) for name in FULL}
    torch.set_num_threads(options.threads)
    if options.child:
        print(json.dumps(CHILDREN[options.child](size)))
        return
    print(f"{hardware(options.threads)}; load average {os.getloadavg()[0]:.1f}")
    verdicts = Verdicts()
    if "quality" in options.parts:
        for data in options.data:
            _quality(data, options.data_root, verdicts)
    if "lists" in options.parts:
        _lists(options, size, verdicts)
    if "index" in options.parts:
        _index(size, verdicts)
    if "fit" in options.parts:
        found = _child("fit", options)
        print(
            f"{size['items']:,} items, {found['interactions']:,} interactions: fitted in "
            f"{found['seconds']:.0f} s, {found['weights']:,} weights, {found['ms']:.1f} ms a user"
        )
        print(
            f"held-out items in the top {K}: {found['hit']:.4f}, popularity {found['popular']:.4f}"
        )
        verdicts.also(
            "hit_over_popularity", found["hit"] / max(found["popular"], 1e-9), 1, at_least=True
        )
        verdicts.last("sparse_fit_peak_gb", found["peak"] / 1e9, 12)


def _options() -> argparse.Namespace:
    out = parser(__doc__)
    out.add_argument("data", nargs="*", default=DATA, help="data sets of the quality part")
    out.add_argument("--data-root", help="folder of the data sets (default: ITEMFOLD_DATA)")
    out.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    for name in FULL:
        out.add_argument(f"--{name}", type=int)
    out.add_argument("--child", choices=tuple(CHILDREN), help=argparse.SUPPRESS)
    options = out.parse_args()
    for name, value in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The result of a part in a process of its own, so that its memory can be measured."""
    command = [sys.executable, __file__, "--child", name, "--threads", str(options.threads)]
    for key in FULL:
        command += [f"--{key}", str(getattr(options, key))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- data ----------------------------------------------------------------------------------------


def draw(n_users: int, n_items: int, n_interactions: int, seed: int = 0) -> sp.csr_array:
    """Users of a few groups of items each; within a group items are drawn by popularity."""
    rng = np.random.default_rng(seed)
    groups = max(n_items // GROUP, 2)
    group = np.sort(rng.integers(groups, size=n_items))
    popularity = rng.permutation(n_items) + 10.0
    before = np.concatenate(([0.0], np.cumsum(popularity**-0.7)))
    first = np.searchsorted(group, np.arange(groups + 1))
    length = rng.geometric(min(n_users / n_interactions, 1.0), size=n_users)
    user = np.repeat(np.arange(n_users, dtype=np.int32), length)
    own = rng.integers(groups, size=(n_users, 3))[user, rng.integers(3, size=len(user))]
    low, high = before[first[own]], before[first[own + 1]]
    outside = rng.random(len(user)) < OUTSIDE
    low[outside], high[outside] = 0.0, before[-1]
    place = low + rng.random(len(user)) * (high - low)
    item = np.minimum(np.searchsorted(before, place, side="right") - 1, n_items - 1)
    shape = (n_users, n_items)
    out = sp.csr_array((np.ones(len(user), np.float32), (user, item.astype(np.int32))), shape=shape)
    out.sum_duplicates()
    out.data[:] = 1
    return out


# --- quality -------------------------------------------------------------------------------------


def _quality(name: str, data_root: str | None, verdicts: Verdicts) -> None:
    """NDCG@20 of the sparse form over that of the dense one, with the same λ."""
    split = split_interactions(load(name, data_root=data_root), valid=0.0)
    l2, dense, source = _dense(split)
    start = time.perf_counter()
    sparse = _ndcg(EASE(l2, form="sparse"), split)
    print(f"{name}: NDCG@20 {sparse:.5f} sparse, {dense:.5f} dense ({source}), λ {l2:g}")
    print(f"fitted and evaluated in {time.perf_counter() - start:.0f} s")
    verdicts.also(
        f"{name.partition(':')[0]}_sparse_over_dense", sparse / dense, 0.99, at_least=True
    )


def _dense(split: Split) -> tuple[float, float, str]:
    """λ and NDCG@20 of dense EASE: a stored run on the same data and protocol, or one made now."""
    for line in RESULTS.read_text().splitlines():
        run = json.loads(line)
        is_ease = run.get("kind") == "run" and run["model"] == "ease" and run["refit"]
        if is_ease and run["dataset"]["fingerprint"] == split.dataset["fingerprint"]:
            value = run["test"]["ndcg@20"]
            return run["config"]["model"]["l2"], value, f"stored run {run['id']}"
    return 200.0, _ndcg(EASE(200.0, form="dense"), split), "fitted now"


def _ndcg(model: Model, split: Split) -> float:
    model.setup(split.train, inductive=False, generator=torch.Generator())
    model.solve(split.train)
    return float(evaluate(model, split, k=K, metrics=["ndcg@20"]).metrics["ndcg@20"])


# --- fit -----------------------------------------------------------------------------------------


def _fit(size: dict[str, int]) -> dict[str, Any]:
    """Fit the sparse form, then rank all items for users whose last item was held out."""
    whole = draw(size["users"], size["items"], size["interactions"])
    users = np.flatnonzero(np.diff(whole.indptr) > 3)[:1000]
    last = whole.indptr[users + 1] - 1
    wanted = whole.indices[last].copy()
    whole.data[last] = 0
    whole.eliminate_zeros()
    model = EASE(50.0, form="sparse")
    start = time.perf_counter()
    model.setup(whole, inductive=True, generator=torch.Generator())
    model.solve(whole)
    seconds = time.perf_counter() - start
    popular = torch.from_numpy(np.bincount(whole.indices, minlength=size["items"])).float()
    hit, base, spent = [], [], []
    for row, item in zip(users, wanted, strict=True):
        history = whole[[row]]
        start = time.perf_counter()
        best = top_items(mask_history(model.scores(history, np.array([-1])), history), K)
        spent.append(time.perf_counter() - start)
        hit.append(bool((best == item).any()))
        base.append(
            bool((top_items(mask_history(popular[None].clone(), history), K) == item).any())
        )
    return {
        "interactions": whole.nnz,
        "weights": len(model.weight_values),
        "seconds": seconds,
        "ms": float(np.median(spent)) * 1e3,
        "hit": float(np.mean(hit)),
        "popular": float(np.mean(base)),
        "peak": resident("VmHWM"),
    }


# --- lists ---------------------------------------------------------------------------------------


def _train(size: dict[str, int]) -> dict[str, Any]:
    """Train the sparse form for the lists, in the folder RUN_FOLDER."""
    train = draw(size["users"], size["listed"], 10 * size["users"])
    run = ir.train(ir.keep_all(ir.read(train)), EASE(50.0, form="sparse"))
    run.save(os.environ["RUN_FOLDER"])
    return {"users": train.shape[0]}


def _lists(options: argparse.Namespace, size: dict[str, int], verdicts: Verdicts) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RUN_FOLDER"] = str(Path(folder) / "run")
        _child("train", options)
        command = [sys.executable, "-m", "itemfold", "recommend", os.environ["RUN_FOLDER"], "--all"]
        command += ["--part", str(size["part"]), "--out"]
        tenth = _peak([*command, str(Path(folder) / "tenth"), "--shard", "0/10"])
        out = Path(folder) / "lists"
        total = -(-size["users"] // size["part"])
        spent, kept = _killed([*command, str(out)], out, total // 3)
        rest = time.perf_counter()
        peak = _peak([*command, str(out), "--resume"])
        rest = time.perf_counter() - rest
        untouched = sum((out / name).stat().st_mtime_ns == at for name, at in kept.items())
        parts = len(list(out.glob("part-*.parquet")))
        print(
            f"{size['users']:,} users x {size['listed']:,} items: killed after {spent:.0f} s and "
            f"{len(kept)} parts, continued for {rest:.0f} s; peak {peak / 1e9:.2f} GB, "
            f"{tenth / 1e9:.2f} GB for a tenth of the users"
        )
        verdicts.also("finished_parts_left_alone", untouched / max(len(kept), 1), 1, at_least=True)
        verdicts.also("parts_there", parts / total, 1, at_least=True)
        verdicts.also("lists_peak_over_tenth", peak / tenth, 1.1)
        verdicts.also("lists_users_per_second", size["users"] / (spent + rest), 1000, at_least=True)


def _peak(command: list[str]) -> int:
    """Peak memory of a command in bytes."""
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_maxrss * 1024


def _killed(command: list[str], out: Path, after: int) -> tuple[float, dict[str, int]]:
    """Kill a command once it has some parts: its seconds, and when each part was written."""
    start = time.perf_counter()
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    manifest, parts = out / "manifest-0-of-1.json", {}
    while len(parts) < after and started.poll() is None:
        time.sleep(0.05)
        if manifest.exists():
            parts = json.loads(manifest.read_text())["parts"]
    started.send_signal(signal.SIGKILL)
    started.wait()
    parts = json.loads(manifest.read_text())["parts"]
    return time.perf_counter() - start, {name: (out / name).stat().st_mtime_ns for name in parts}


# --- index ---------------------------------------------------------------------------------------


def _index(size: dict[str, int], verdicts: Verdicts) -> None:
    """Recall and speed of a usearch index over item vectors with groups, as training gives them."""
    try:
        from usearch.index import Index
    except ImportError:
        print("usearch is not installed: no index")
        return
    from itemfold.serving.exports.search import write_usearch

    rng = np.random.default_rng(0)
    groups = rng.normal(size=(max(size["items"] // GROUP, 2), DIM))
    of_item = rng.integers(len(groups), size=size["items"])
    items = groups[of_item].astype(np.float32)
    items += rng.standard_normal(size=items.shape, dtype=np.float32)
    users = groups[rng.integers(len(groups), size=QUERIES)] + rng.normal(size=(QUERIES, DIM)) / 2
    queries = users.astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items.usearch"
        _, built = _timed(lambda: write_usearch(items, path))
        index: Any = Index.restore(str(path))
    found, fast = _timed(lambda: index.search(queries, K).keys.astype(np.int64))
    table = torch.from_numpy(items).T
    best, slow = _timed(lambda: top_items(torch.from_numpy(queries) @ table, K).numpy())
    same = (best[:, :, None] == found[:, None, :]).any(2)
    print(
        f"{size['items']:,} vectors of length {DIM}: index built in {built:.0f} s; a query takes "
        f"{fast / QUERIES * 1e3:.2f} ms, exact search {slow / QUERIES * 1e3:.2f} ms"
    )
    verdicts.also("index_recall", float(same.mean()), 0.9, at_least=True)
    verdicts.also("index_speedup", slow / fast, 1, at_least=True)


def _timed(task: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return task(), time.perf_counter() - start


CHILDREN = {"fit": _fit, "train": _train}

if __name__ == "__main__":
    main()
