"""Every kind of system judged on the future: known and new users, in several windows of time.

The interactions before a window are the training data, and the latest of them, as many as in the
window, the validation period. The default model is trained twice: everything chosen on the
validation period, and everything chosen on a random tenth of each user's interactions. All systems
are tested on the same window; users whose first interaction is in it are folded in with the earlier
half. Data without times has one window: its own test part.

What is finished is kept in `--values`, so the same command continues. With `--out`, a page and its
figures are written there; those of other files that are there already stay.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Verdicts, hardware, parser

import numpy as np
import torch

from itemfold.data.array_types import Bools, Floats
from itemfold.data.datasets import load
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import split_interactions
from itemfold.data.splitting.time_splits import split_window
from itemfold.evaluation.evaluate import evaluate
from itemfold.evaluation.significance import paired_test
from itemfold.experiments.suites.suite import row_settings
from itemfold.files import atomic, read_arrays, write_text
from itemfold.models.base import Model
from itemfold.models.ease import EASE
from itemfold.models.hybrid import Hybrid
from itemfold.models.itemknn import ItemKNN
from itemfold.models.popularity import Popularity
from itemfold.models.rlae import RLAE
from itemfold.settings.resolve import Request, resolve
from itemfold.training.fit import fit_and_test, train
from itemfold.training.run import Run
from itemfold.training.strategies.candidates import DENSE
from itemfold.training.strategies.parts import parts_alone
from itemfold.training.strategies.recency import OF_POPULARITY, half_lives

METRIC = "ndcg@20"
START = 0.5  # share of the interactions before the first window
FILES = ("ml-100k/ml-100k.inter", "ml-latest-small/ratings.csv", "checkins/checkins.csv")
FILES += ("news/clicks.csv", "food-temporal", "synthetic:users=4000,items=2000,drift=3")
CHOSEN, RANDOM = "default, chosen in time", "default, chosen at random"
PARTS = {"linear": "its linear part", "network and prior": "its network and prior"}
PARTS["ItemKNN"] = "its neighbours"
NETWORK = {"epochs": 300, "eval_every": 10, "patience": 50}  # on two cores
PLATEAU = {"epochs": 600, "patience": 150}  # epochs of one step, the first without progress
ABOUT = {
    "popularity": "of all times",
    "recent popularity": "half-life chosen on the validation period, of nine, never included",
    "best popularity": "the half-life that is best on the test windows, which nobody can know",
    "itemknn": "cosine, 200 neighbours, shrinkage 50",
    "ease": "λ 200",
    "rlae": "the best of twelve settings on the validation period",
    "bpr": "LightGCN with BPR, settings of the page of systems, d = 64, at most 300 epochs",
    "item": "LightGCN with ITEM's loss and PageRank negatives, d = 64, at most 600 epochs",
    "item-log": "LightGCN with item-log, inner products as on the page of windows, on sparse data "
    "cosines as on that of unseen users, d = 64, at most 300 epochs",
    RANDOM: "as trained without times: everything chosen on a random tenth of each history",
    CHOSEN: "what `itemfold train FILE` trains",
    PARTS["linear"]: "alone, in the same run",
    PARTS["network and prior"]: "alone, in the same run",
    PARTS["ItemKNN"]: "alone, in the same run, where validation gave it a weight",
}


@dataclass(frozen=True)
class Window:
    """The same test users with two validation parts."""

    in_time: Split
    at_random: Split

    @property
    def future(self) -> Split:
        """What is known when the window begins."""
        return self.in_time.refit()


Values = dict[str, Floats]  # by system, of every test user


def main() -> None:
    """Print a table for each file and the verdict: the default against the best of its parts."""
    options = parser(__doc__)
    options.add_argument("files", nargs="*", default=list(FILES), help="names, files or folders")
    options.add_argument("--data-root", default=".", help="folder of the files")
    options.add_argument("--windows", type=int, default=5)
    options.add_argument("--systems", default=",".join(SYSTEMS), help="separated by commas")
    options.add_argument("--values", type=Path, help="folder of values that are kept")
    options.add_argument("--out", type=Path, help="folder for future.json and future.md")
    given = options.parse_args()
    if unknown := [name for name in given.systems.split(",") if name not in SYSTEMS]:
        options.error(f"--systems must be of {', '.join(SYSTEMS)}, got {unknown[0]!r}")
    torch.set_num_threads(given.threads)
    print(hardware(given.threads), flush=True)
    found = [measure(file, given) for file in given.files]
    if given.out is None:
        print(page(found))
    else:
        given.out.mkdir(parents=True, exist_ok=True)
        store = given.out / "future.json"
        kept = json.loads(store.read_text("utf-8")) if store.exists() else []
        every = {one["data"]: one for one in [*kept, *found]}
        write_text(store, json.dumps(list(every.values()), indent=1) + "\n")
        text = page(list(every.values()))
        write_text(given.out / "future.md", text)
        print(text)
    shares = [one["over_best_part"] for one in found if "over_best_part" in one]
    Verdicts().last("future_over_best_part", min(shares, default=0.0), 1.0, at_least=True)


def measure(file: str, options: Any) -> dict[str, Any]:
    """All systems on all windows of a file, and paired tests against the default."""
    path = Path(options.data_root) / file
    data = load(str(path) if path.exists() else file)
    name = file.partition("/")[0]
    count = 2 if options.quick else options.windows if data.times is not None else 1
    rows: dict[str, list[Floats]] = {}
    new: list[Bools] = []
    seconds: dict[str, list[float]] = {}
    for number in range(1, count + 1):
        window = cut(data, count, number)
        new.append(window.future.is_new("test"))
        for system in options.systems.split(","):
            values, spent = kept(system, window, options, f"{name}-{count}-{number}-{system}")
            for row, each in values.items():
                rows.setdefault(row, []).append(each)
            seconds.setdefault(system, []).append(spent)
            shown = ", ".join(f"{row} {each.mean():.4f}" for row, each in values.items())
            print(f"{name}, window {number}: {shown} ({spent:.0f} s)", flush=True)
    systems = "" if options.systems == ",".join(SYSTEMS) else f" --systems {options.systems}"
    about = {
        "data": name,
        "fingerprint": data.fingerprint,
        "machine": hardware(options.threads),
        "command": f"python benchmarks/future.py {file}{systems} --data-root DATA --out results",
    }
    return {**about, **summary(rows, new, seconds)}


def cut(data: Interactions, count: int, number: int) -> Window:
    """A window; its validation period has as many interactions."""
    if data.times is None:
        split = split_interactions(data)
        return Window(split, split)
    share = (1 - START) / count
    fixed: dict[str, Any] = {"windows": count, "window": number, "start": START}
    valid = share / (START + share * (number - 1))
    return Window(
        split_window(data, **fixed, valid=valid),
        split_window(data, **fixed, valid=0.1, valid_by="random"),
    )


def kept(system: str, window: Window, options: Any, key: str) -> tuple[Values, float]:
    """The values of a system, computed once, and the seconds that it took."""
    path = None if options.values is None else options.values / f"{key}.npz".replace("/", "-")
    if path is not None and path.exists():
        arrays = read_arrays(path)
        spent = float(arrays.pop("seconds"))
        return arrays, spent
    started = time.perf_counter()
    values = SYSTEMS[system](window, {"epochs": 2} if options.quick else {})
    spent = time.perf_counter() - started
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as draft, draft.open("wb") as file:
            np.savez(file, seconds=spent, **values)
    return values, spent


# --- systems -------------------------------------------------------------------------------------


def closed(name: str, make: Callable[[], Model]) -> Callable[[Window, dict[str, Any]], Values]:
    """A model without epochs."""
    return lambda window, few: {name: own_values(train(window.in_time, make()))}


def network(
    name: str, row: str, limits: dict[str, int], sparse: str | None = None
) -> Callable[[Window, dict[str, Any]], Values]:
    """A network with the settings of a row of a suite, or those of another row on sparse data."""

    def values(window: Window, few: dict[str, Any]) -> Values:
        train = window.in_time.train
        is_sparse = train.nnz < DENSE * train.shape[0] * train.shape[1]
        if sparse is not None and is_sparse:
            found, own = row_settings(sparse, "yelp2018", "transductive"), {}
        else:
            found, own = row_settings(row, "ml-latest-small", "transductive"), limits
        model = {**found["model"], "dim": 64}
        own = {**found.get("train", {}), **own, **few}
        asked = {**{k: found[k] for k in ("loss", "negatives") if k in found}, "train": own}
        settings = resolve(Request({"model": model, **asked}))
        return {name: own_values(fit_and_test(settings.of_split(window.in_time), window.in_time))}

    return values


def default_in_time(window: Window, few: dict[str, Any]) -> Values:
    """The default model and its parts."""
    run = train(window.in_time, **few)
    assert isinstance(run.model, Hybrid)
    parts = parts_alone(run.model, window.future)
    del parts["popularity"]
    return {
        CHOSEN: own_values(run),
        **{PARTS[name]: value(part, window.future) for name, part in parts.items()},
    }


def default_at_random(window: Window, few: dict[str, Any]) -> Values:
    """The default model, chosen on random interactions."""
    return {RANDOM: own_values(train(window.at_random, **few))}


def popularity(window: Window, few: dict[str, Any]) -> Values:
    """Popularity of all times, with the half-life that validation chose, and with the best one."""
    out = {"popularity": own_values(train(window.in_time, Popularity()))}
    if window.in_time.times is None:
        return out
    out["recent popularity"] = own_values(
        train(window.in_time, Hybrid(gnn=None, linear=None, others=[]))
    )
    tried = []
    for half_life in half_lives(window.in_time, None, OF_POPULARITY):
        model = Popularity()
        model.n_users, model.n_items = window.future.train.shape
        model.solve(window.future.recent(half_life).train)
        tried.append(value(model, window.future))
    return {**out, "best popularity": max(tried, key=lambda values: float(values.mean()))}


SYSTEMS: dict[str, Callable[[Window, dict[str, Any]], Values]] = {
    "popularity": popularity,
    "itemknn": closed("itemknn", lambda: ItemKNN(neighbours=200, shrink=50.0)),
    "ease": closed("ease", lambda: EASE(l2=200.0)),
    "rlae": closed("rlae", RLAE),
    "random": default_at_random,
    "time": default_in_time,
    "bpr": network("bpr", "inductive/lightgcn", NETWORK),
    "item": network("item", "inductive/item", NETWORK | PLATEAU),
    "item-log": network("item-log", "rolling/item-log-1", NETWORK, sparse="inductive/item-log"),
}


def own_values(run: Run) -> Floats:
    """The metric of every test user, as the run was tested."""
    return run.per_user[METRIC]


def value(model: Model, split: Split) -> Floats:
    """The metric of every test user."""
    return evaluate(model, split, metrics=[METRIC]).per_user[METRIC]


# --- tables --------------------------------------------------------------------------------------


def summary(
    rows: dict[str, list[Floats]], new: list[Bools], seconds: dict[str, list[float]]
) -> dict[str, Any]:
    """Means over windows, and paired tests over the users of all windows."""
    # a part that some window left out has no row
    order = [name for name in ABOUT if len(rows.get(name, [])) == len(new)]
    own, is_new = rows.get(CHOSEN), np.concatenate(new)
    out: dict[str, Any] = {"windows": len(new), "users": len(is_new), "new": int(is_new.sum())}
    out["rows"] = {}
    for name in order:
        found = rows[name]
        every = np.concatenate(found)
        row = {"windows": [float(each.mean()) for each in found], "all": float(every.mean())}
        row |= {"known": mean(every[~is_new]), "new": mean(every[is_new])}
        if own is not None and name != CHOSEN:
            test = paired_test(np.concatenate(own), every)
            row |= {"p": test.p_t, "difference": test.difference}
        out["rows"][name] = row
    out["seconds"] = {name: round(float(np.mean(each)), 1) for name, each in seconds.items()}
    simple = [*PARTS.values(), "rlae", "popularity", "recent popularity"]
    parts = [out["rows"][name]["all"] for name in simple if name in order]
    if own is not None and parts:
        out["over_best_part"] = out["rows"][CHOSEN]["all"] / max(*parts, 1e-12)
    return out


def mean(values: Floats) -> float | None:
    """None if there are none."""
    return float(values.mean()) if len(values) else None


def page(found: list[dict[str, Any]]) -> str:
    """The page of all files."""
    lines = [
        "# The future\n\n[All results](../RESULTS.md)\n",
        "NDCG@20 × 100 on interactions that came later. The first half of a file, in the order of "
        "time, is followed by windows of equal numbers of interactions; a system knows all that "
        "came before a window, and chooses on the latest part of that, as long as the window. "
        "*New* users have their first interaction in the window and are folded in with the earlier "
        "half of theirs. Means over all users of all windows; *p* is that of the paired t-test "
        f"against *{CHOSEN}* over the same users. Seed 0.\n",
        "Finished parts are kept with `--values FOLDER`.\n",
    ]
    for one in found:
        lines.append(f"## {one['data']}\n")
        about = (
            f"{one['windows']} windows, {one['users']:,} test users, {one['new']:,} of them new"
            if one["windows"] > 1
            else f"Its own test part, {one['users']:,} test users; no times"
        )
        remark = f"; {one['note']}" if "note" in one else ""
        mark = f"fingerprint `{one['fingerprint'][:12]}`"
        lines.append(f"{about}; {mark}; {one['machine']}{remark}. Command: `{one['command']}`\n")
        numbers = [f"window {number + 1}" for number in range(one["windows"])]
        several = numbers if len(numbers) > 1 else []
        lines.append(f"| {' | '.join(['', 'all', 'known', 'new', 'p', *several])} |")
        lines.append(f"|:--|{'--:|' * (4 + len(several))}")
        best = max(row["all"] for row in one["rows"].values())
        for name, row in one["rows"].items():
            p = f"{row['p']:.2g}" if "p" in row else ""
            mark = "**" if row["all"] == best else ""
            whole = f"{mark}{shown(row['all'])}{mark}"
            cells = [whole, *(shown(row[kind]) for kind in ("known", "new")), p]
            cells += [shown(each) for each in row["windows"]] if several else []
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    shown_rows = {name for one in found for name in one["rows"]}
    lines += [f"- *{name}*: {text}." for name, text in ABOUT.items() if name in shown_rows]
    return "\n".join(lines) + "\n"


def shown(share: float | None) -> str:
    """A figure × 100."""
    return "–" if share is None else f"{100 * share:.2f}"


if __name__ == "__main__":
    main()
