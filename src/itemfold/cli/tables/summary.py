"""The summary of a trained run: a verdict, five metrics beside popularity, one user's list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from itemfold.cli.tables.formats import Cell, Figure, ResultTable, measured, on_terminal
from itemfold.cli.tables.layout import add_row, counted, new_table, p_phrase
from itemfold.cli.tables.parts import part_warning, parts_alone
from itemfold.cli.tables.recommendations import is_shown
from itemfold.errors import ItemfoldError
from itemfold.evaluation.activity import stored_activity
from itemfold.evaluation.compare import compare_runs
from itemfold.evaluation.intervals import bootstrap_intervals
from itemfold.evaluation.metrics import headline_metrics, parse_metric
from itemfold.serving.recommender import Recommender
from itemfold.training.run import Run

LEVEL = 0.05  # a difference with a larger p-value may be chance
MIN_USERS, MIN_ITEMS = 10, 100  # with fewer, the figures are unreliable
LENGTH = 20  # of the lists that are measured
LISTED = 5  # items of the example list
SHOWN_HISTORY = 4  # items of the example user's history
MEANING = {
    "ndcg": "ndcg: held-out items found, and how high in a list",
    "recall": "recall: share of them in a list",
    "hit": "hit: users with at least one",
    "coverage": "coverage: share of the catalogue in any list",
    "novelty": "novelty: rarity of what is listed, in bits",
}


def summary(run: Run, metrics: Sequence[str] | None = None) -> RenderableType:
    """The verdict, warnings, and the headline metrics or the requested ones."""
    if not run.metrics["test"]:
        valid = [(name, Figure.number(value)) for name, value in run.metrics["valid"].items()]
        shown = ResultTable(("metric", "validation"), tuple(valid))
        return on_terminal(shown) if valid else Group()
    return Group(
        Text(""),
        Text(verdict(run), style="bold"),
        *(Text(f"warning: {warning}", style="bold yellow") for warning in cautions(run)),
        on_terminal(headlines(run, metrics)),
    )


def cautions(run: Run) -> list[str]:
    """Warnings about the figures of a run."""
    found = [warning] if (warning := part_warning(run)) else []
    n_users, n_items = run.metrics.get("users", {}).get("judged", 0), run.interactions.shape[1]
    if 0 < n_users < MIN_USERS:
        found.append(
            f"{counted(n_users, 'test users')} are too few to tell a difference from chance"
        )
    if n_users and n_items < MIN_ITEMS:
        many = "all of them" if n_items <= LENGTH else "many by chance"
        found.append(
            f"with {n_items} items, a list of {LENGTH} contains {many}, so the figures are high"
        )
    return found


def shorter_lists(run: Run) -> int | None:
    """A length of lists that suits a catalogue of few items; None if it has more."""
    n_items = run.interactions.shape[1]
    return max(1, min(LISTED, n_items // 10)) if n_items < MIN_ITEMS else None


def how_trained(run: Run) -> str:
    """A line with the epochs, the training time and the number of test users of a run."""
    metrics, epochs, best = run.metrics, run.metrics["epochs"], run.metrics["best_epoch"]
    n_evaluated = metrics.get("users", {}).get("judged", 0)
    if not n_evaluated and not metrics["valid"]:
        length = f"{epochs} epochs" if epochs else "closed form"
        count = run.interactions.nnz
        return f"{length} on all {count:,} interactions; none are held out for evaluation"
    refit = f", refitted for {best}" if metrics.get("refit") and best else ""
    length = f"best epoch {best} of {epochs}{refit}" if epochs else "closed form"
    seconds = metrics["seconds"]["train"]
    users = f"{counted(n_evaluated, 'test users')}{known_and_new(run)}"
    return f"{length}; {seconds:.1f} s of training; {users}"


def known_and_new(run: Run) -> str:
    """The metrics of new and of known users; "" unless the run has both."""
    metric = run.config["train"]["metric"]
    found = [
        f"{group.users:,} {group.name} with {metric} {values[metric].mean:.4f}"
        for group, values in stored_activity(run.metrics, run.per_user).items()
        if group.name in ("new", "known") and metric in values
    ]
    return f": {', '.join(found)}" if len(found) == 2 else ""


def headlines(run: Run, metrics: Sequence[str] | None = None) -> ResultTable:
    """A table of metrics with intervals, beside popularity and the best part alone."""
    test, model = run.metrics["test"], run.metrics["model"]
    names = headline_metrics(test) or list(test) if metrics is None else list(metrics)
    intervals = bootstrap_intervals({n: run.per_user[n] for n in names if n in run.per_user})
    beside = references(run)
    rows = []
    for name in names:
        own: tuple[Cell, ...] = (Figure.number(test[name]) if name in test else "–", "")
        if name in intervals:
            own = measured(intervals[name])
        others = (Figure.number(r.values[name]) if name in r.values else "" for r in beside)
        rows.append((name, *own, *others))
    meaning = [MEANING[base] for n in names if (base := n.partition("@")[0]) in MEANING]
    notes = ("; ".join(dict.fromkeys(meaning)),) if meaning else ()
    columns = ("metric", model, "95 %", *(reference.name for reference in beside))
    return ResultTable(columns, tuple(rows), notes=notes)


def check_shown(metrics: Sequence[str] | None) -> list[str] | None:
    """The keys of requested metrics; raises before training if it does not compute one."""
    if metrics is None:
        return None
    parsed = [parse_metric(text) for text in metrics]
    for metric in parsed:
        if metric.k != LENGTH:
            raise ItemfoldError(
                f"'--metrics' must be metrics at {LENGTH}, such as ndcg@20, got {metric.key!r}; "
                "itemfold evaluate RUN --metrics computes others"
            )
    return [metric.key for metric in parsed]


@dataclass(frozen=True)
class Reference:
    """A reference that a run is compared with: popularity, or its best part."""

    name: str
    values: dict[str, float]  # metrics, and the paired test: difference, low, high and p


def references(run: Run) -> list[Reference]:
    """Popularity and the best part of a hybrid, if the run stored them."""
    parts: dict[str, dict[str, float]] = run.metrics.get("parts", {})
    popularity = run.metrics.get("popularity") or parts.get("popularity")
    out = [] if popularity is None else [Reference("popularity", popularity)]
    best = next((part for part in parts_alone(run) if part.name != "popularity"), None)
    if best is not None:
        out.append(Reference(f"{best.name} alone", parts[best.name]))
    return out


def verdict(run: Run) -> str:
    """Sentences that compare a run with popularity and its best part, with p-values."""
    metric, name = run.config["train"]["metric"], run.metrics["model"]
    found = references(run)
    if not found:
        value = run.metrics["test"].get(metric)
        return f"{name}: {metric} {value:.4f} on test." if value is not None else f"{name}."
    first, *rest = [_against(metric, reference) for reference in found]
    return " ".join([f"{name} is {first}.", *(f"It is {other}." for other in rest)])


def _against(metric: str, reference: Reference) -> str:
    """A phrase such as "better than popularity in ndcg@20: +9.0% (95 %: +7% to +11%, p <.001)"."""
    values = reference.values
    base = values[metric]
    if "difference" not in values:  # stored by an earlier release
        return f"beside {reference.name} with {metric} {base:.4f}"
    if values["difference"] == values.get("low") == values.get("high") == 0:
        return f"equal to {reference.name} in {metric}"
    own = base - values["difference"]
    change = f"{own / base - 1:+.1%}" if base else f"{own:+.4f}"
    evidence = p_phrase(values["p"])
    if base and "low" in values:  # the stored interval is of the reference against the model
        interval = f"{-values['high'] / base:+.1%} to {-values['low'] / base:+.1%}"
        evidence = f"95 %: {interval}, {evidence}"
    relation = "better than" if values["difference"] < 0 else "worse than"
    relation = relation if values["p"] < LEVEL else "within chance of"
    return f"{relation} {reference.name} in {metric}: {change} ({evidence})"


def compared_verdict(runs: Mapping[str, Run]) -> str:
    """A sentence: which run is best, and whether it is significantly better than the next."""
    metric = next(iter(runs.values())).config["train"]["metric"]
    known = {name: run for name, run in runs.items() if metric in run.metrics["test"]}
    ranked = sorted(known, key=lambda name: -float(known[name].metrics["test"][metric]))
    if len(ranked) < 2:
        return f"{len(runs)} runs were tested."
    best, second = ranked[:2]
    value = f"{best} has the best {metric}, {known[best].metrics['test'][metric]:.4f}"
    try:
        found = compare_runs({second: known[second], best: known[best]}, [metric]).tests
    except ItemfoldError:  # the runs cannot be paired; a note gives the reason
        return f"{value}."
    row = next((row for row in found.rows if row.system == best), None)
    if row is None or not np.isfinite(row.p_t):
        return f"{value}."
    relation = "which is better than" if row.p_t < LEVEL else "which is within chance of"
    change = f"{row.change:+.1%}, {p_phrase(row.p_t)}, paired over users"
    return f"{value}, {relation} {second}, the next one ({change})."


# --- one user's list -----------------------------------------------------------------------------


def typical_users(run: Run, count: int = 1) -> np.ndarray[Any, Any]:
    """Rows of training users with a history of about median length."""
    size = np.diff(run.interactions.indptr)
    return np.argsort(np.abs(size - np.median(size)), kind="stable")[:count]


def history_names(run: Run, row: int, most: int) -> tuple[list[str], int]:
    """Titles, or else ids, of the first history items, and the number of remaining ones."""
    names = run.titles if run.titles is not None else run.item_ids.ids
    items = run.interactions.indices[
        run.interactions.indptr[row] : run.interactions.indptr[row + 1]
    ]
    return [str(names[i]) or str(run.item_ids.ids[i]) for i in items[:most]], len(items[most:])


def example_list(run: Run) -> RenderableType:
    """The recommendations for one known user, with some items of the history."""
    if not run.interactions.nnz:
        return Group()
    rows = typical_users(run)
    (row,), (user,) = rows.tolist(), run.user_ids.external(rows).tolist()
    names, others = history_names(run, row, SHOWN_HISTORY)
    found = Recommender.from_run(run).recommend(user, k=LISTED, explain=run.model.explains)
    if not found:  # the user has all items
        return Group()
    explains = any(pick.main_reason for pick in found)
    more = f" and {others} more" if others else ""
    columns = ["title"] * (run.titles is not None) + ["mostly because of"] * explains
    table = new_table("", "item", *columns, numbers=("",))
    for column in table.columns[2:]:  # one line per item
        column.no_wrap, column.overflow = True, "ellipsis"
    for rank, pick in enumerate(found, start=1):
        reason = pick.main_reason
        because = "" if reason is None else str(reason.title or reason.item)
        cells = [pick.title] * (run.titles is not None) + [because] * explains
        add_row(table, str(rank), str(pick.item), *cells)
    head = f"The list of user {user}, who has {'; '.join(names)}{more}:"
    if not explains and any(is_shown(pick.own, pick) for pick in found):
        return Group(Text(""), Text(head), table, Text("popularity alone decides this list"))
    return Group(Text(""), Text(head), table)
