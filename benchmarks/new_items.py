"""New items: whole items are held out and recommended by their features alone, on five splits.

Each user's held-out items are ranked among all held-out items. `content` is the same map from
features without a model: it knows only the features of a user's history. Tests are paired, over the
splits and over the users of all splits. With `--out`, a table and its figures are written there.
"""

from __future__ import annotations

import functools
import json
import re
import time
from pathlib import Path
from typing import Any

from common import Verdicts, hardware, parser

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.datasets import load
from itemfold.data.items.feature_matrix import FeatureEncoder
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import split_items
from itemfold.evaluation.evaluate import evaluate
from itemfold.evaluation.evaluator import Evaluator
from itemfold.evaluation.metrics import parse_metric
from itemfold.evaluation.significance import holm, paired_test
from itemfold.files import atomic, read_arrays, write_text
from itemfold.models.base import Model
from itemfold.models.feature_map import Ridge
from itemfold.models.hybrid import Hybrid
from itemfold.models.lightgcn import LightGCN
from itemfold.models.rlae import RLAE, TYPICAL
from itemfold.training.fit import map_settings, train
from itemfold.training.run import Run

DATA = "ml-latest-small,synthetic:users=3000,items=4000"
SEEDS = "10,11,12,13,14"  # the map was designed on others: docs/research/production.md
METRICS = ("ndcg@20", "recall@20")
OURS, BASELINES = ("linear", "item-log", "hybrid"), ("random", "popularity", "cosine", "content")
ABOUT = {
    "random": "a random order",
    "popularity": "popularity, predicted from the features: the same list for everybody",
    "cosine": "cosine of the item's features and those of the user's history",
    "content": "the map from features on histories alone, without a model",
    "linear": "a linear item–item model alone (`rlae`, typical settings), and the map",
    "item-log": "the network of the hybrid alone: LightGCN trained with item-log, and the map",
    "hybrid": "the default model, and the map",
}


class Fixed(Model):
    """Scores of new items that need no model: a row for each user, or one for all."""

    def __init__(self, n_known: int, scores: npt.NDArray[Any]) -> None:
        super().__init__()
        self.new = torch.from_numpy(scores.astype(np.float32))
        self.n_known = n_known

    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """−∞ for the known items."""
        new = self.new[torch.from_numpy(users)] if len(self.new) > 1 else self.new
        new = new.expand(len(users), -1)
        return torch.cat([torch.full((len(users), self.n_known), -torch.inf), new], dim=1)


class Nothing(Model):
    """A model whose scores are all zero."""

    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Zeros."""
        return torch.zeros(history.shape)


def baseline(name: str, split: Split, seed: int) -> dict[str, npt.NDArray[np.float64]]:
    """Values of single users of a system that needs no training."""
    assert split.features is not None
    assert split.new_items is not None
    known = split.refit().train
    if name == "content":
        model = Nothing()
        model.setup(known, inductive=False, generator=torch.Generator())
        return evaluate(model, split.refit(), metrics=METRICS).per_user
    encode = FeatureEncoder(split.features.of(split.item_ids))
    old, new = (encode(split.features.of(ids)) for ids in (split.item_ids, split.new_items))
    if name == "random":
        scores = np.random.default_rng(seed).random((split.n_users, len(split.new_items)))
    elif name == "popularity":
        ridge = Ridge(old.regressors, np.ones(split.n_items, np.float32), 10.0)
        counts = np.log1p(np.bincount(known.indices, minlength=split.n_items))[None]
        scores = ridge.predict(ridge.fit(counts.astype(np.float32)), new.regressors)
    else:
        rows, others = (sp.csr_array(sp.hstack([m.regressors, m.words])) for m in (old, new))
        length = np.sqrt(others.multiply(others).sum(axis=1))
        scores = np.asarray((known @ rows @ others.T).toarray()) / np.maximum(length, 1e-12)
    wanted = [parse_metric(key) for key in METRICS]
    return Evaluator(split.test, "cpu").values(Fixed(split.n_items, scores), wanted)[0]


@functools.lru_cache(maxsize=1)
def hybrid(data: str, data_root: str | None, seed: int, device: str, how: str) -> tuple[Run, Split]:
    """The default model trained on a split; both trained systems are parts of it."""
    split = split_items(load(data, data_root=data_root), seed=seed)
    settings: dict[str, Any] = {"device": device, "seed": seed}
    model = Hybrid()
    if how != "default":  # one network, and no trials of the linear part
        model, settings["similarity"] = Hybrid(linear=RLAE(**TYPICAL)), "cosine"
    if how == "quick":
        model = Hybrid(gnn=LightGCN(dim=16), linear=RLAE(**TYPICAL))  # which is kept
        settings |= {"epochs": 2, "eval_every": 1}
    return train(split, model, **settings), split


def trained(name: str, data: str, options: Any, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Values of single users of a trained model with the map, and its means among all items."""
    if name == "linear":
        split = split_items(load(data, data_root=options.data_root), seed=seed)
        run = train(split, RLAE(**TYPICAL), device=options.device)
    else:
        run, split = hybrid(data, options.data_root, seed, options.device, options.how)
    if name == "item-log":
        assert isinstance(run.model, Hybrid)
        assert split.features is not None
        if run.model.gnn is None:
            raise SystemExit(f"{data}: validation takes no network, so there is none to compare")
        run = Run(**{**vars(run), "model": run.model.gnn, "metrics": {"refit": True}})
        run.metrics["new_items"] = map_settings(run, split.features)
    among = evaluate(run, split.among_all_items(), metrics=METRICS).metrics
    found = dict(evaluate(run, split, metrics=METRICS).per_user)
    return {**found, **{f"all {key}": np.array(value) for key, value in among.items()}}


def stored(
    name: str, data: str, split: Split, options: Any, seed: int
) -> dict[str, npt.NDArray[Any]]:
    """Values of single users, and the means among all items; from `--values` if they are there."""
    place = re.sub(r"[^\w=-]+", "-", data)
    path = None if options.values is None else options.values / f"{place}-{seed}-{name}.npz"
    if path is not None and path.exists():
        return read_arrays(path)
    start = time.perf_counter()
    is_baseline = name in BASELINES
    found = dict(baseline(name, split, seed)) if is_baseline else trained(name, data, options, seed)
    spent, mean = time.perf_counter() - start, found[METRICS[0]].mean()
    print(f"{data} {seed} {name}: {mean:.4f}, {spent:.0f} s", flush=True)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as draft, draft.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **found)
    return found


def measure(data: str, options: Any) -> dict[str, Any]:
    """All systems on all splits of a data set."""
    systems = [name for name in (*BASELINES, *OURS) if name in options.systems]
    values: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
    interactions = load(data, data_root=options.data_root)
    for seed in options.seeds:
        split = split_items(interactions, seed=seed)
        for name in systems:
            values[name].append(stored(name, data, split, options, seed))
    keys = (*METRICS, *(f"all {key}" for key in METRICS))
    return {
        "data": data,
        "splits": list(options.seeds),
        "hybrid": options.how,
        "users": [len(one[METRICS[0]]) for one in values[systems[0]]],
        "rows": {
            name: {k: [float(one[k].mean()) for one in values[name] if k in one] for k in keys}
            for name in systems
        },
        "tests": tests(values),
    }


def tests(values: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Paired tests of ours against each baseline, Holm-corrected over all of them."""
    out, key = [], METRICS[0]
    for ours in (name for name in OURS if name in values):
        for other in (name for name in BASELINES if name in values):
            means = [[one[key].mean() for one in values[name]] for name in (ours, other)]
            users = [np.concatenate([one[key] for one in values[name]]) for name in (ours, other)]
            over_splits, over_users = paired_test(*means), paired_test(*users)
            facts = {"ours": ours, "other": other, "difference": over_splits.difference}
            out.append({**facts, "p_splits": over_splits.p_t, "p_users": over_users.p_t})
    for name in ("p_splits", "p_users"):
        for row, p in zip(out, holm([row[name] for row in out]), strict=True):
            row[name] = float(p)
    return out


def page(found: list[dict[str, Any]], how: str) -> str:
    """The table as Markdown; `how` are the options that affect the figures."""
    lines = [
        "# New items\n",
        "A tenth of the items is held out with all interactions and recommended by features alone "
        "(genres, titles, years). Each user's held-out items are ranked among all held-out items; "
        "the last column ranks them among all items. Mean ± standard deviation over the splits; "
        "p-values of paired t-tests over the splits and over the users of all splits, with "
        f"Holm's correction. Made by `python benchmarks/new_items.py {how}`.\n",
    ]
    for one in found:
        lines.append(f"## {one['data']}\n")
        if one["hybrid"] != "default" and "hybrid" in one["rows"]:
            lines.append("The hybrid has typical settings instead of choosing its own.\n")
        lines.append("| | NDCG@20 | recall@20 | NDCG@20 among all items | |\n|---|---|---|---|---|")
        for name, row in one["rows"].items():
            cells = [_spread(row[key]) for key in (*METRICS, f"all {METRICS[0]}")]
            lines.append(f"| {name} | {' | '.join(cells)} | {ABOUT[name]} |")
        lines.append(
            "\n| | against | NDCG@20 | p over splits | p over users |\n|---|---|---|---|---|"
        )
        for test in one["tests"]:
            ps = f"{test['p_splits']:.2g} | {test['p_users']:.2g}"
            lines.append(f"| {test['ours']} | {test['other']} | {test['difference']:+.4f} | {ps} |")
        lines.append("")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.4f}"


def main() -> None:
    arguments = parser(__doc__, DATA)
    arguments.add_argument("--device", default="cpu", help="cpu or cuda")
    arguments.add_argument(
        "--typical", action="store_true", help="a hybrid with typical settings, which chooses none"
    )
    arguments.add_argument("--seeds", default=SEEDS, help="of the splits")
    every = ",".join((*BASELINES, *OURS))
    arguments.add_argument("--systems", default=every, help=f"some of {every}")
    arguments.add_argument("--values", type=Path, help="folder of values that are kept")
    arguments.add_argument("--out", type=Path, help="folder for new-items.json and new-items.md")
    options = arguments.parse_args()
    options.seeds = [int(seed) for seed in ("0,1" if options.quick else options.seeds).split(",")]
    options.systems = options.systems.split(",")
    options.how = "quick" if options.quick else "typical" if options.typical else "default"
    torch.set_num_threads(options.threads)
    print(hardware(options.threads, options.device != "cpu"))
    named = [
        part if ":" in part or "=" not in part else f",{part}" for part in options.data.split(",")
    ]
    found = [measure(data, options) for data in "\n".join(named).replace("\n,", ",").split("\n")]
    how = [f"--systems {','.join(options.systems)}"] if ",".join(options.systems) != every else []
    if not options.quick and options.seeds != [int(seed) for seed in SEEDS.split(",")]:
        how.append(f"--seeds {','.join(map(str, options.seeds))}")
    text = page(
        found, " ".join([*how, *(["--typical"] if options.typical else []), "--out results"])
    )
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_text(options.out / "new-items.json", json.dumps(found, indent=1) + "\n")
        write_text(options.out / "new-items.md", text)
    ours = [test for one in found for test in one["tests"] if test["ours"] == options.systems[-1]]
    if not ours:
        return
    worst, ahead = max(t["p_splits"] for t in ours), min(t["difference"] for t in ours)
    verdicts = Verdicts()
    verdicts.also("least_difference", ahead, 0.0, at_least=True)
    verdicts.last("new_items_p", worst, 0.05)


if __name__ == "__main__":
    main()
