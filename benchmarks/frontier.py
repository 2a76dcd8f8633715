"""Test NDCG@20 against wall seconds: the default model at several budgets, against other libraries.

All seconds count from the start of a process: imports, reading, fitting, and the lists of all test
users. The default model reads the original text and chooses its settings within its time; the
others read stored interactions, and their settings are the best of ten trials on the same
validation part, whose time is not counted. They run in environments of their own, which are created
once in the user's cache folder.

Settings and points are stored in frontier.json as soon as they are known, and are used again as
long as the data, the packages and the number of trials are the same: `--only trials` chooses the
settings of the others, `--only peers` times them, `--only itemfold` times the default model, and
`--only table` only draws and compares what is stored.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from common import Verdicts, hardware, parser

import numpy as np
import scipy.sparse as sp
from frontier_plot import OWN, plot, with_table, worst_share
from peers import RECBOLE, TORCH, environment, write_inter

import itemfold
from itemfold.data.datasets import DATASETS, load
from itemfold.data.named.find_dataset import data_variable
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import split_interactions
from itemfold.evaluation.metrics import METRICS
from itemfold.files import write_text

HERE = Path(__file__).resolve().parent
K = 20
STEPS = ("trials", "peers", "itemfold", "table")
DATA = ("ml-latest-small", "electronic", "food", "allrecipes", "ml-1m", "amazon-cds", "yelp2018")
BUDGETS = (5, 10, 20, 40, 80, 160, 320)  # seconds, below those without a budget
FROM = 5.0  # seconds from which the default model should be ahead
WITHIN = 0.005  # of the best peer
LIMIT_S = 1200  # of a peer's fit
DENSE_ITEMS = 20_000  # with more, RecBole's EASE needs more than 10 GB
SPARSE_NNZ = 200_000  # with more, RecBole's LightGCN needs more than the limit


class Library(NamedTuple):
    """Packages of an environment, the script that runs in it, and what it can fit."""

    home: str
    installs: list[tuple[str, ...]]
    script: str
    systems: tuple[str, ...]


LIBRARIES = (
    Library(
        "frontier",
        [("implicit==0.7.3", "lightfm-next==1.19.0")],
        "frontier_peers.py",
        ("implicit cosine", "implicit BM25", "implicit ALS", "implicit BPR", "LightFM WARP"),
    ),
    Library(
        "recbole-1.2.1",
        [(TORCH, *RECBOLE[1:]), (TORCH, *RECBOLE)],
        "frontier_recbole.py",
        ("RecBole EASE", "RecBole LightGCN"),
    ),
)
PEERS = tuple(name for library in LIBRARIES for name in library.systems)
Point = dict[str, Any]


def main() -> None:
    """Print all points and the verdict: the worst share of the best peer."""
    options = parser(__doc__)
    options.add_argument("data", nargs="*", default=list(DATA), help="names or folders")
    options.add_argument("--data-root", help="folder of the data sets (default: ITEMFOLD_DATA)")
    options.add_argument(
        "--only", choices=["trials", "peers", "itemfold", "table"], help="see above"
    )
    options.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="in seconds")
    options.add_argument("--no-full", action="store_true", help="no run without a budget")
    options.add_argument("--peers", default=",".join(PEERS), help="separated by commas")
    options.add_argument("--trials", type=int, default=10)
    options.add_argument("--repeats", type=int, default=1, help="runs, of which the median counts")
    options.add_argument("--out", type=Path, default=HERE, help="folder of figures and plots")
    given = options.parse_args()
    print(hardware(given.threads), flush=True)
    shares = []
    with tempfile.TemporaryDirectory() as scratch:
        if given.quick:
            given.budgets, given.no_full, given.peers, given.out = "2", True, "", Path(scratch)
        for name in given.data:
            data = source(name, given.data_root)
            given.out.mkdir(parents=True, exist_ok=True)
            points = measure(data, given)
            shares.append(worst_share(points, FROM))
            if given.only != "trials":
                plot(given.out / f"frontier-{name_of(data)}.svg", name_of(data), points)
        page = given.out / "README.md"
        if page.exists() and given.only != "trials":
            write_text(page, with_table(page.read_text(), stored(given.out), FROM))
    Verdicts().last("frontier_share_of_best_peer", min(shares), 1 - WITHIN, at_least=True)


def measure(data: str, options: Namespace) -> list[Point]:
    """The points of all systems on a data set; each is stored as soon as it is known."""
    if options.only == "table":
        return list(stored(options.out).get(name_of(data), {}).get("points", []))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        split = prepare(data, folder, options)
        store = Store(options.out, name_of(data), digest_of(split), options)
        for library in LIBRARIES:
            wanted = [name for name in library.systems if name in options.peers.split(",")]
            wanted = [name for name in wanted if fits(name, split)]
            if wanted and options.only != "itemfold":
                peers(library, wanted, folder, split, store, options)
        if options.only in ("trials", "peers"):
            return store.points
        made_by = {"packages": [own_version()]}
        store.points = [
            p for p in store.points if p["system"] != OWN or made_by.items() <= p.items()
        ]
        longest = float("inf")  # without a budget; longer budgets change nothing
        budgets: list[int | None] = [int(text) for text in options.budgets.split(",")]
        for budget in budgets if options.no_full else [None, *budgets]:
            if budget is not None and budget >= longest:
                break
            point = store.point(OWN, made_by, {"budget": budget})
            store.repeat(point, lambda b=budget: train(data, folder, b, options))
            longest = point["seconds"] if budget is None else longest
        return store.points


def peers(
    library: Library,
    systems: list[str],
    folder: Path,
    split: Split,
    store: Store,
    options: Namespace,
) -> None:
    """Choose the settings of the systems of a library, unless they are stored, and time them."""
    python = environment(library.home, library.installs)
    if python is None:
        return
    packages = sorted({name for names in library.installs for name in names})
    for name in systems:

        def run(task: str, value: str, name: str = name) -> str:
            command = [str(python), str(HERE / library.script), task, name, str(folder), value]
            return call([*command, str(options.threads)], folder)

        point = store.point(name, {"packages": packages, "trials": options.trials})
        if "settings" not in point:
            point["settings"] = json.loads(run("choose", str(options.trials)))
            store.save()
        settings = json.dumps(point["settings"])
        if options.only != "trials":
            store.repeat(
                point, lambda run=run, settings=settings: timed(run, settings, folder, split)
            )


def timed(
    run: Callable[[str, str], str], settings: str, folder: Path, split: Split
) -> tuple[float, float]:
    """Seconds of a peer's process and its test NDCG@20."""
    started = time.perf_counter()
    run("fit", settings)
    spent = time.perf_counter() - started
    return spent, ndcg(np.load(folder / "lists.npy"), split)


def train(data: str, folder: Path, budget: int | None, options: Namespace) -> tuple[float, float]:
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


def call(command: list[str], folder: Path) -> str:
    """The last line that the script of a peer prints."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if "implicit" in command[3]:
        env["OPENBLAS_NUM_THREADS"] = "1"  # as implicit asks for
    limit = LIMIT_S if "fit" in command else None
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, cwd=folder, timeout=limit
    )
    if done.returncode:
        raise SystemExit(f"{command[3]} failed: {done.stderr.strip()}")
    return (done.stdout.splitlines() or [""])[-1]


# --- data ----------------------------------------------------------------------------------------


def source(data: str, root: str | None) -> str:
    """The data set as it is, or the folder of this name among the data sets."""
    home = root or data_variable()
    is_named = data.partition(":")[0] in DATASETS or Path(data).exists()
    return data if is_named or home is None else str(Path(home) / data)


def name_of(data: str) -> str:
    """The name of a data set, or of its folder."""
    return Path(data).name if Path(data).exists() else data


def prepare(data: str, folder: Path, options: Namespace) -> Split:
    """Write what the other libraries read; the split is that of the default model."""
    split = split_interactions(load(data, data_root=options.data_root))
    print(f"\n{data}: {split.n_users} users, {split.n_items} items, {split.train.nnz} interactions")
    assert split.valid is not None
    whole = split.refit()
    matrices = {"train": split.train, "valid": split.valid.target, "whole": whole.train}
    for name, matrix in matrices.items():
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(matrix))
    for name in ("train", "whole") if split.n_items <= DENSE_ITEMS else ():
        write_inter(folder / f"{name}.inter", *sp.coo_array(matrices[name]).coords)
    np.save(folder / "valid_users.npy", split.valid.users)
    np.save(folder / "test_users.npy", whole.test.users)
    return whole


def fits(name: str, split: Split) -> bool:
    """Whether a peer can be fitted in 10 GB of memory and within the limit."""
    if name == "RecBole EASE":
        return split.n_items <= DENSE_ITEMS
    return name != "RecBole LightGCN" or split.train.nnz <= SPARSE_NNZ


def digest_of(split: Split) -> str:
    """A digest of training and test interactions and of who is tested."""
    found = hashlib.sha256()
    for part in (split.train, split.test.target):
        rows, columns = sp.coo_array(part).coords
        found.update(np.ascontiguousarray([rows, columns], np.int64).tobytes())
    found.update(np.asarray(split.test.users, np.int64).tobytes())
    return found.hexdigest()[:16]


def own_version() -> str:
    """The version of the package, with a digest of its code."""
    found, home = hashlib.sha256(), Path(itemfold.__file__).parent
    for path in sorted(home.rglob("*.py")):
        found.update(path.read_bytes())
    return f"itemfold=={itemfold.__version__}+{found.hexdigest()[:12]}"


def ndcg(lists: np.ndarray, split: Split) -> float:
    """NDCG@20 of lists, by the metric of the package."""
    target = sp.csr_matrix(split.test.target)
    rows = np.repeat(np.arange(len(lists)), lists.shape[1])
    hits = np.asarray(target[rows, lists.ravel()] > 0).reshape(lists.shape)
    count = np.diff(target.indptr)
    return float(METRICS["ndcg"](hits, count, K)[count > 0].mean())


# --- stored points -------------------------------------------------------------------------------


def stored(out: Path) -> dict[str, Any]:
    """What frontier.json has."""
    path = out / "frontier.json"
    return json.loads(path.read_text()) if path.exists() else {}


class Store:
    """The points of a data set in frontier.json; those of other data sets stay."""

    def __init__(self, out: Path, name: str, digest: str, options: Namespace) -> None:
        self.out, self.name, self.digest, self.options = out, name, digest, options
        row = stored(out).get(name, {})
        self.points: list[Point] = row["points"] if row.get("digest") == digest else []

    def point(self, system: str, made_by: dict[str, Any], settings: Any = None) -> Point:
        """The stored point of a system (and of given settings), or a new one in its place."""
        same = [p for p in self.points if p["system"] == system]
        same = [p for p in same if settings in (None, p["settings"])]
        if same and all(same[0][key] == value for key, value in made_by.items()):
            return same[0]
        new = {"system": system, **made_by, "runs": []}
        new |= {} if settings is None else {"settings": settings}
        self.points = [new if p in same else p for p in self.points] + ([] if same else [new])
        return new

    def repeat(self, point: Point, run: Callable[[], tuple[float, float]]) -> None:
        """Run as often as is still missing; the median of seconds and of NDCG@20 count."""
        while len(point["runs"]) < self.options.repeats:
            spent, value = run()
            point["runs"].append([round(spent, 2), value])
            seconds, quality = np.median(point["runs"], axis=0)
            point |= {"seconds": float(seconds), "ndcg@20": float(quality)}
            point["machine"] = hardware(self.options.threads)
            self.save()
        line = f"{point['seconds']:8.1f} s  NDCG@20 {100 * point['ndcg@20']:6.2f}"
        print(f"{point['system']:16} {line}  {point['settings']}", flush=True)

    def save(self) -> None:
        """Write the points that are known by now."""
        row = {self.name: {"digest": self.digest, "points": self.points}}
        write_text(
            self.out / "frontier.json", json.dumps({**stored(self.out), **row}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
