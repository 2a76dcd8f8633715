"""Test NDCG@20 against wall seconds: the default model at several budgets, against other libraries.

All seconds count from the start of a process: imports, reading, fitting, and the lists of all test
users. The default model reads the original text and chooses its settings within its time; the
others read a stored matrix, and their settings are the best of ten trials on the same validation
part, whose time is not counted. implicit and LightFM run in an environment of their own, which is
created once in the user's cache folder. With `--out`, figures and plots are written there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import Verdicts, hardware, parser

import numpy as np
import scipy.sparse as sp
from peers import environment

from itemfold.data.datasets import load
from itemfold.data.split import Split
from itemfold.data.splitters import split_interactions
from itemfold.evaluation.metrics import METRICS
from itemfold.files import write_text

HERE = Path(__file__).parent
PACKAGES = ("implicit==0.7.3", "lightfm-next==1.19.0")
PEERS = ("implicit cosine", "implicit BM25", "implicit ALS", "implicit BPR", "LightFM WARP")
OWN, K = "itemfold", 20
BUDGETS = (5, 10, 20, 40, 80, 160, 320)  # seconds; then without a budget
FROM = 5.0  # seconds from which the default model should be ahead
WITHIN = 0.005  # of the best peer


def main() -> None:
    """Print a table for each data set and the verdict: the worst share of the best peer."""
    options = parser(__doc__)
    options.add_argument("data", nargs="*", default=["ml-latest-small"], help="names or folders")
    options.add_argument("--data-root", help="folder of the data sets (default: ITEMFOLD_DATA)")
    options.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="in seconds")
    options.add_argument("--peers", default=",".join(PEERS), help="separated by commas")
    options.add_argument("--trials", type=int, default=10)
    options.add_argument("--repeats", type=int, default=1, help="runs, of which the median counts")
    options.add_argument("--out", type=Path, help="folder for frontier.json and plots")
    given = options.parse_args()
    if given.quick:
        given.budgets, given.peers = "2", ""
    print(hardware(given.threads), flush=True)
    found = {}
    for data in given.data:
        name = Path(data).name if Path(data).exists() else data
        found[name] = measure(data, given)
        if given.out is not None:
            save(given.out, found, given.threads)
    worst = min(worst_share(points) for points in found.values())
    Verdicts().last("frontier_share_of_best_peer", worst, 1 - WITHIN, at_least=True)


def measure(data: str, options: Any) -> list[dict[str, Any]]:
    """The points of all systems on a data set."""
    points = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        split = prepare(data, folder, options)
        peers = list(filter(None, options.peers.split(",")))
        python = environment("frontier", [PACKAGES]) if peers else None
        for name in peers if python is not None else ():
            best = call(python, "choose", name, folder, str(options.trials), options)
            spent = []
            for _ in range(options.repeats):
                started = time.perf_counter()
                call(python, "fit", name, folder, best, options)
                spent.append(time.perf_counter() - started)
            lists = np.load(folder / "lists.npy")
            points.append(point(name, spent, ndcg(lists, split), json.loads(best)))
        budgets = [int(text) for text in options.budgets.split(",")]
        for budget in [*budgets, *([] if options.quick else [None])]:
            runs = [train(data, folder, budget, options) for _ in range(options.repeats)]
            value = float(np.median([quality for _, quality in runs]))
            points.append(point(OWN, [s for s, _ in runs], value, {"budget": budget}))
    return points


def point(name: str, spent: list[float], value: float, settings: dict[str, Any]) -> dict[str, Any]:
    """A point of the plot; it is printed."""
    seconds = float(np.median(spent))
    print(f"{name:16} {seconds:8.1f} s  NDCG@20 {100 * value:6.2f}  {settings}", flush=True)
    return {"system": name, "seconds": round(seconds, 2), "ndcg@20": value, "settings": settings}


def prepare(data: str, folder: Path, options: Any) -> Split:
    """Write the matrices that the other libraries read; the split is that of the default model."""
    split = split_interactions(load(data, data_root=options.data_root))
    print(f"\n{data}: {split.n_users} users, {split.n_items} items, {split.train.nnz} interactions")
    assert split.valid is not None
    whole = split.refit()
    for name, matrix in (
        ("train", split.train),
        ("valid", split.valid.target),
        ("whole", whole.train),
    ):
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(matrix))
    np.save(folder / "valid_users.npy", split.valid.users)
    np.save(folder / "test_users.npy", whole.test.users)
    return whole


def train(data: str, folder: Path, budget: int | None, options: Any) -> tuple[float, float]:
    """Seconds of the command and its test NDCG@20."""
    run = folder / "run"
    command = [sys.executable, "-m", "itemfold", "train", data]
    command += ["--out", str(run)]
    command += ["--budget", f"{budget}s"] if budget is not None else []
    command += ["--data-root", options.data_root] if options.data_root else []
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    spent = time.perf_counter() - started
    value = json.loads((run / "metrics.json").read_text())["test"][f"ndcg@{K}"]
    shutil.rmtree(run)
    return spent, value


def call(python: Path | None, task: str, name: str, folder: Path, value: str, options: Any) -> str:
    """The last line that frontier_peers.py prints."""
    script, threads = str(HERE / "frontier_peers.py"), str(options.threads)
    settings = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as implicit asks for
    settings.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(python), script, task, name, str(folder), value, threads],
        capture_output=True,
        text=True,
        env=settings,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr.strip()}")
    return (done.stdout.splitlines() or [""])[-1]


def ndcg(lists: np.ndarray, split: Split) -> float:
    """NDCG@20 of lists, by the metric of the package."""
    target = sp.csr_matrix(split.test.target)
    rows = np.repeat(np.arange(len(lists)), lists.shape[1])
    hits = np.asarray(target[rows, lists.ravel()] > 0).reshape(lists.shape)
    count = np.diff(target.indptr)
    return float(METRICS["ndcg"](hits, count, K)[count > 0].mean())


def worst_share(points: list[dict[str, Any]]) -> float:
    """The default model over the best peer that needs no more time, at its worst from 5 s on."""
    own = [p for p in points if p["system"] == OWN]
    shares = [1.0]
    for each in own:
        better = [
            p["ndcg@20"]
            for p in points
            if p["system"] != OWN and p["seconds"] <= max(each["seconds"], FROM)
        ]
        shares += [each["ndcg@20"] / max(better)] if better else []
    return min(shares)


def save(out: Path, found: dict[str, list[dict[str, Any]]], threads: int) -> None:
    """Write the figures and one plot a data set; figures of other data sets stay."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "frontier.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    now = {name: {"machine": hardware(threads), "points": each} for name, each in found.items()}
    write_text(path, json.dumps({**stored, **now}, indent=1) + "\n")
    for name, points in found.items():
        plot(out / f"frontier-{name}.svg", name, points)


def plot(path: Path, name: str, points: list[dict[str, Any]]) -> None:
    """NDCG@20 by seconds, with the upper envelope of the other libraries."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "itemfold", "font.size": 11})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    own = sorted((p["seconds"], 100 * p["ndcg@20"]) for p in points if p["system"] == OWN)
    peers = sorted((p["seconds"], 100 * p["ndcg@20"], p["system"]) for p in points
                   if p["system"] != OWN)  # fmt: skip
    first, last = (edge(s for s, *_ in (*own, *peers)) for edge in (min, max))
    last *= 1.3
    best = np.maximum.accumulate([value for _, value, _ in peers]) if peers else []
    if peers:
        steps = [s for s, *_ in peers]
        axes.step([*steps, last], [*best, best[-1]], where="post", color="#888888", lw=1, ls="--",
                  label="best of the others")  # fmt: skip
        axes.plot(steps, [value for _, value, _ in peers], "o", color="#555555", ms=5)
        for seconds, value, system in peers:
            axes.annotate(system, (seconds, value), xytext=(6, -4), textcoords="offset points",
                          fontsize=9, color="#333333")  # fmt: skip
    axes.plot(*zip(*own, strict=True), "o-", color="#1f5fa8", ms=6, lw=2, label="itemfold")
    axes.set_xscale("log")
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500) if first / 2 <= t <= last]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(right=last)
    axes.set_xlabel("seconds on two cores, from the start of the process")
    axes.set_ylabel("NDCG@20 × 100, test")
    axes.set_title(name)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
