"""A self-contained HTML report of runs: metrics, tests, plots, chosen settings, examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from itemfold.cli import plots
from itemfold.cli.html_activity import activity_section
from itemfold.cli.html_answer import answer_section
from itemfold.cli.html_parts import parts_section
from itemfold.cli.html_tradeoffs import tradeoff_section
from itemfold.cli.tables.details import taken_candidate
from itemfold.cli.tables.layout import html_table, interval_text, p_value, setting_value
from itemfold.cli.tables.summary import history_names, typical_users
from itemfold.errors import ItemfoldError
from itemfold.evaluation.compare import compare_runs
from itemfold.evaluation.intervals import bootstrap_intervals
from itemfold.evaluation.metrics import best_value, definitions
from itemfold.files import atomic, check_file
from itemfold.serving.recommendations import Recommendation
from itemfold.serving.recommender import Recommender
from itemfold.settings.toml_file import flat
from itemfold.training.run import Run
from itemfold.training.run_folder import load_runs

EXAMPLE_USERS = 2  # users whose lists are shown
LENGTH = 10  # of such a list
SHOWN_HISTORY = 8  # items of such a user
ACCURACY = (
    "recall is the fraction of a user's held-out items T that are in a list of k; capped_recall "
    "divides by min(|T|, k) instead of |T|, precision by k; hit is 1 if there is any. ndcg, ap and "
    "mrr also reward high ranks. From 0 to 1: more is better."
)
SAMPLE = 2000  # users whose lists are used for the popularity plot


def write_report(
    runs: Mapping[str, Run] | Sequence[str | Path], path: str | Path, *, curves: bool = False
) -> Path:
    """Write a report of run folders, or of loaded runs by name, into one file.

    With ``curves`` it shows what re-ranking costs in accuracy, which reads the data of the runs.
    """
    path = check_file(path, (".html", ".htm"))
    if not runs:
        raise ItemfoldError("'runs' must be at least one run")
    if not isinstance(runs, Mapping):
        runs = load_runs([str(folder) for folder in runs])
    groups = _groups(runs)
    parts = [_head(runs)]
    for title, group in groups.items():
        if len(groups) > 1:
            parts.append(f"<h2>{escape(title)}</h2>")
        parts += [answer_section(group), _examples(group)]
        sections = [_metrics(group), _tests(group), parts_section(group), activity_section(group)]
        for heading, svg, note in _plots(group):
            caption = f'<figcaption class="note">{note}</figcaption>'
            sections.append(f"<h3>{heading}</h3><figure>{svg}{caption}</figure>")
        if curves:
            sections.append(tradeoff_section(group, progress=True))
        parts += [_folded(section) for section in (*sections, _choices(group)) if section]
    parts.append(_settings(runs))
    with atomic(path) as draft:
        draft.write_text(PAGE.replace("{body}", "\n".join(parts)), encoding="utf-8")
    return path


def _folded(section: str) -> str:
    """A section that opens when its heading is clicked; one without a heading stays as it is."""
    heading, found, body = section.partition("</h3>")
    return f"<details><summary>{heading}</h3></summary>{body}</details>" if found else section


def _groups(runs: Mapping[str, Run]) -> dict[str, dict[str, Run]]:
    """Comparable runs by title: the same data and protocol."""
    out: dict[tuple[str, str], dict[str, Run]] = {}
    for name, run in runs.items():
        out.setdefault((run.dataset["fingerprint"], run.protocol), {})[name] = run
    titles = {"transductive": "Known users", "inductive": "Users never seen in training"}
    named: dict[str, dict[str, Run]] = {}
    for (print_, protocol), group in out.items():
        data = next(iter(group.values())).dataset["name"]
        title = f"{titles.get(protocol, protocol)}: {data}, {protocol}"
        named[f"{title} ({print_})" if title in named else title] = group
    return named


def _head(runs: Mapping[str, Run]) -> str:
    sets = {run.dataset["fingerprint"]: run.dataset for run in runs.values()}
    facts = " ".join(
        f"Data set <b>{escape(str(d['name']))}</b>: {d['users']:,} users, {d['items']:,} items, "
        f"{d['interactions']:,} interactions, fingerprint <code>{escape(d['fingerprint'])}</code>."
        for d in sets.values()
    )
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}."
    return f"<header><h1>itemfold report</h1><p>{facts} {count}</p></header>"


def _metrics(group: Mapping[str, Run]) -> str:
    metrics = list(dict.fromkeys(m for run in group.values() for m in run.metrics["test"]))
    tests = [run.metrics["test"] for run in group.values()]
    best = {m: best_value(m, [test[m] for test in tests if m in test]) for m in metrics}
    intervals = {
        name: bootstrap_intervals({m: run.per_user[m] for m in metrics if m in run.per_user})
        for name, run in group.items()
    }
    rows = []
    for metric in metrics:
        cells = [escape(metric)]
        for name, run in group.items():
            value = run.metrics["test"].get(metric)
            if value is None:
                cells.append("–")
                continue
            shown = f"{value:.4f}"
            if value == best[metric] and len(group) > 1:
                shown = f"<b>{shown}</b>"
            if metric in intervals[name]:
                found = intervals[name][metric]
                shown += f"<br><small>{interval_text(found.low, found.high)}</small>"
            cells.append(shown)
        rows.append(cells)
    seconds = (f"{run.metrics['seconds']['train']:.1f}" for run in group.values())
    epochs = (str(run.metrics["best_epoch"]) for run in group.values())
    rows += [["training, s", *seconds], ["epochs", *epochs]]
    n_users = next(iter(group.values())).metrics.get("users", {}).get("judged", 0)
    note = f"Means over {n_users:,} test users with bootstrap 95 % intervals; best in bold."
    return (
        "<h3>Test metrics</h3>"
        + html_table(["", *map(escape, group)], rows)
        + f'<p class="note">{note}</p><ul class="note">'
        + "".join(f"<li>{escape(line)}</li>" for line in (ACCURACY, *definitions(metrics)))
        + "</ul>"
    )


def _tests(group: Mapping[str, Run]) -> str:
    if len(group) < 2:
        return ""
    try:
        compared = compare_runs(group)
    except ItemfoldError as error:
        return f'<p class="note">No paired test: {escape(str(error))}.</p>'
    found, rows = compared.tests, []
    for row in found.rows:
        change = row.test.difference / row.baseline_mean if row.baseline_mean else 0.0
        cells = [escape(row.metric), escape(row.system), f"{row.test.difference:+.4f}"]
        cells += [f"{change:+.1%}", *(escape(p_value(p)) for p in (row.p_t, row.p_wilcoxon))]
        rows.append(cells)
    head = ["metric", "run", "difference", "change", "p, t-test", "p, Wilcoxon"]
    over = found.paired_over[0].upper() + found.paired_over[1:]
    note = f"{over} against {found.baseline}, Holm correction; {'; '.join(compared.notes)}."
    return (
        "<h3>Paired tests</h3>"
        + html_table(head, rows, text=2)
        + f'<p class="note">{escape(note)}</p>'
    )


def _plots(group: Mapping[str, Run]) -> list[tuple[str, str, str]]:
    """Title, SVG and caption of each plot for which this group has data."""
    out = []
    if any(len(run.history) > 1 for run in group.values()):
        caption = "Validation metric by epoch; a dot marks the selected epoch, a dashed line a "
        caption += "model with a closed form."
        if any(run.metrics.get("candidates") for run in group.values()):
            caption += " The curve of a hybrid is that of the sum of its parts; a dotted one is "
            caption += "that of a network that was tried and not taken."
        out.append(("Learning curves", plots.learning_curves(group), caption))
    if curves := plots.windows_of(group):
        caption = "Mean NDCG@20 of the test users of each time window, 95 % intervals; a model is "
        caption += "trained on all that came before the window."
        out.append(("By time window", plots.by_window(curves), caption))
    lists = {}
    for name, run in group.items():
        n_users = run.interactions.shape[0]
        rows = np.unique(np.linspace(0, n_users - 1, min(n_users, SAMPLE)).astype(np.int64))
        users = run.user_ids.external(rows)
        lists[name] = Recommender.from_run(run).recommend_all(LENGTH, users=users).rows
    caption = (
        "Share of recommended items in each tenth of the catalogue, from the most popular items "
        f"(left) to the least; top {LENGTH} of up to {SAMPLE:,} training users."
    )
    out.append(("Popularity of recommended items", plots.popularity(group, lists), caption))
    return out


def _choices(group: Mapping[str, Run]) -> str:
    """The section on the settings that runs chose themselves; empty if there are none."""
    parts = []
    for name, run in group.items():
        if any(tables := (_candidates(run), _trials(run), _chosen(run))):
            parts += [f"<h4>{escape(name)}</h4>" if len(group) > 1 else "", *tables]
    if not parts:
        return ""
    about = "Settings that were not given; every value is measured on validation, none on test."
    return f'<h3>What was tried and chosen</h3><p class="note">{about}</p>{"".join(parts)}'


def _candidates(run: Run) -> str:
    metric, rows = run.config["train"]["metric"], []
    for number, entry in enumerate(run.metrics.get("candidates", [])):
        epochs = f"{entry['best_epoch']} of {entry['epochs']}"
        cells = [escape(entry["name"]), epochs, f"{entry[metric]:.4f}"]
        rows.append(_marked(cells, taken=number == taken_candidate(run)))
    note = "Networks that were trained, each summed with the linear part."
    return _tried(note, ["network", "best epoch", metric, ""], rows, text=1)


def _trials(run: Run) -> str:
    entries, metric = run.metrics.get("trials", []), run.config["train"]["metric"]
    chosen = flat(run.metrics.get("chosen", {}))
    keys = [key for key in (entries[0] if entries else ()) if key not in (metric, "seconds")]
    rows = []
    for entry in entries:
        # of a model of its own, of a part, or of a part in a run of release 0.2
        places = ("model.", "model.linear.", "model.linear_")
        taken = any(all(chosen.get(f"{place}{k}") == entry[k] for k in keys) for place in places)
        cells = [*(setting_value(entry[key]) for key in keys), f"{entry[metric]:.4f}"]
        rows.append(_marked(cells, taken=taken))
    note = "Settings of the linear model, alone, on the most popular items."
    return _tried(note, [*map(escape, keys), metric, ""], rows, text=0)


def _chosen(run: Run) -> str:
    rows = [
        [f"<code>{escape(path)}</code>", escape(setting_value(value))]
        for path, value in flat(run.metrics.get("chosen", {})).items()
    ]
    note = "The chosen settings; <code>config.toml</code> of the run has them as well."
    return _tried(note, ["setting", "value"], rows, text=2)


def _marked(cells: list[str], *, taken: bool) -> list[str]:
    """The cells of a row and a mark; what was taken is in bold."""
    return [*(f"<b>{cell}</b>" for cell in cells), "✓ taken"] if taken else [*cells, ""]


def _tried(note: str, head: list[str], rows: list[list[str]], text: int) -> str:
    if not rows:
        return ""
    return f'<p class="note">{note}</p><div class="tried">{html_table(head, rows, text)}</div>'


def _examples(group: Mapping[str, Run]) -> str:
    """The same users' lists from every run, side by side."""
    first = next(iter(group.values()))
    typical = typical_users(first, EXAMPLE_USERS)
    parts = ["<h3>Examples</h3>"]
    for row, user in zip(typical, first.user_ids.external(typical).tolist(), strict=True):
        names, others = history_names(first, int(row), SHOWN_HISTORY)
        shown, more = map(escape, names), f" and {others} more" if others else ""
        columns = []
        for name, run in group.items():
            if int(run.user_ids.index([user])[0]) < 0:
                continue
            recommender = Recommender.from_run(run)
            found = recommender.recommend(user, k=LENGTH, explain=run.model.explains)
            lines = "".join(f"<li>{_line(pick)}</li>" for pick in found)
            columns.append(f"<div><h5>{escape(name)}</h5><ol>{lines}</ol></div>")
        lists = (
            f"<p class='note'>History: {'; '.join(shown)}{more}</p>"
            f'<div class="lists">{"".join(columns)}</div>'
        )
        title = f"<h4>User {escape(str(user))}</h4>"
        is_first = row == typical[0]
        folded = f"<details><summary>{title}</summary>{lists}</details>"
        parts.append(f"{title}{lists}" if is_first else folded)
    return "".join(parts)


def _line(pick: Recommendation) -> str:
    text = escape(pick.title or str(pick.item))
    if pick.genres:
        text += f" <small>{escape(pick.genres.replace('|', ', '))}</small>"
    if (reason := pick.main_reason) is not None:
        text += (
            f"<br><small>mainly because of {escape(reason.title or str(reason.item))} "
            f"({reason.share:+.3f} of {pick.score:.3f})</small>"
        )
    return text


def _settings(runs: Mapping[str, Run]) -> str:
    """Every setting; those that differ between runs are in bold."""
    names = list(
        dict.fromkeys(
            (s, k) for run in runs.values() for s, section in run.config.items() for k in section
        )
    )
    rows = []
    for section, key in names:
        values = [str(run.config.get(section, {}).get(key, "–")) for run in runs.values()]
        mark = "<b>{}</b>" if len(set(values)) > 1 else "{}"
        rows.append([f"{section}.{key}", *(mark.format(escape(value)) for value in values)])
    shown = html_table(["", *map(escape, runs)], rows, text=len(runs) + 1)
    return f"<details><summary><h3>Settings of every run</h3></summary>{shown}</details>"


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>itemfold report</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
:root { --ink: #1c2430; --dim: #5d6878; --line: #d9dee6; --paper: #fff; --soft: #f4f6f9;
  --c0: #3465a4; --c1: #d1622b; --c2: #3c8d5a; --c3: #8a56ac; --c4: #b0413e; --c5: #6b7280; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --dim: #9aa5b5; --line: #39424f; --paper: #161b22; --soft: #1f2630;
    --c0: #7aa7e8; --c1: #f0945f; --c2: #74c893; --c3: #c39be0; --c4: #e58a86; --c5: #a3acb9; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin: 0; }
h2 { margin-top: 2.6rem; border-bottom: 2px solid var(--line); }
h3 { margin: 1.8rem 0 .4rem; } h4 { margin: 1.2rem 0 0; } h5 { margin: 0; font-size: 1rem; }
.note, small { color: var(--dim); } .note { font-size: .88rem; margin: .3rem 0; }
ul.note { padding-left: 1.2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
.n { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: .4rem 0; } figure svg { width: 100%; max-width: 46rem; height: auto; }
.lists { display: flex; flex-wrap: wrap; gap: 1.2rem; } .lists > div { flex: 1 1 18rem;
  background: var(--soft); padding: .7rem 1rem; border-radius: .5rem; }
ol { margin: .3rem 0; padding-left: 1.4rem; } li { margin-bottom: .25rem; }
.tried { margin-bottom: 1.2rem; }
.warning { border-left: 4px solid var(--c1); background: var(--soft); padding: .5rem .9rem; }
.verdict { font-size: 1.2rem; font-weight: 600; margin: 1rem 0; }
details { border-top: 1px solid var(--line); padding: .2rem 0 .6rem; }
summary { cursor: pointer; margin: .2rem 0; }
summary h3, summary h4 { display: inline-block; margin: .4rem 0; }
summary:hover h3, summary:hover h4 { text-decoration: underline; }
@media print { details > * { display: block; } }
</style></head><body>
{body}
</body></html>
"""
