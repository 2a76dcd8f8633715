"""A self-contained HTML report of runs: metrics, tests, plots, chosen settings, examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from itemfold.cli.report import plots
from itemfold.cli.report.activity import activity_section
from itemfold.cli.report.answer import answer_section
from itemfold.cli.report.choices import choices_section, settings_section
from itemfold.cli.report.examples import examples_section
from itemfold.cli.report.metrics import metrics_section, parts_section, tests_section
from itemfold.cli.report.tradeoffs import tradeoff_section
from itemfold.errors import ItemfoldError
from itemfold.files import atomic, check_file
from itemfold.serving.recommender import Recommender
from itemfold.training.run import Run
from itemfold.training.run_folder import load_runs

LENGTH = 10  # of the lists in the popularity plot
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
        parts += [answer_section(group), examples_section(group)]
        sections = [metrics_section(group), tests_section(group)]
        sections += [parts_section(group), activity_section(group)]
        for heading, svg, note in _plots(group):
            caption = f'<figcaption class="note">{note}</figcaption>'
            sections.append(f"<h3>{heading}</h3><figure>{svg}{caption}</figure>")
        if curves:
            sections.append(tradeoff_section(group, progress=True))
        parts += [_folded(section) for section in (*sections, choices_section(group)) if section]
    parts.append(settings_section(runs))
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
