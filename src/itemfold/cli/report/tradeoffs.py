"""The section of the HTML report on re-ranking: accuracy against what a slider changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import NamedTuple

from itemfold.cli.report import plots
from itemfold.cli.report.table import html_table
from itemfold.errors import ItemfoldError
from itemfold.evaluation.metrics import DEFINITIONS
from itemfold.evaluation.tradeoff import Sweep, Sweeper, SweepPoint
from itemfold.experiments.stored import split_of
from itemfold.reranking.steering import BY_MODEL, Steering
from itemfold.training.progress import track
from itemfold.training.run import Run

SWEPT_USERS = 500  # test users on which a slider is measured
SLIDER_VALUES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
LOSS_LEVELS = (0.01, 0.02, 0.05)


class ReportSlider(NamedTuple):
    """A slider, the settings beside it, and the metrics that accuracy is plotted against."""

    title: str
    name: str
    beside: Steering
    against: tuple[str, ...]


REPORT_SLIDERS = (
    ReportSlider("diversity", "diversity", Steering(), ("diversity",)),
    ReportSlider(
        "diversity by genre",
        "diversity",
        Steering(diversity_by="genre"),
        ("genre_diversity", "miscalibration"),
    ),
    ReportSlider(
        "popularity discount", "popularity_discount", Steering(), ("popularity_bias", "gini")
    ),
    ReportSlider("long tail", "long_tail", Steering(), ("coverage",)),
)


def tradeoff_section(group: Mapping[str, Run], *, progress: bool = False) -> str:
    """Curves of every run whose data can be read, and what small losses of accuracy buy."""
    found: dict[str, dict[str, Sweep]] = {}
    notes = []
    for name, run in group.items():
        try:
            found[name] = _sweeps(run, f"re-ranking {name}", progress)
        except ItemfoldError as error:
            notes.append(f"{name} is left out: {error}.")
    if not found:
        why = escape(" ".join(notes))
        return f'<h3>The cost of re-ranking</h3><p class="note">Not measured. {why}</p>'
    users = max(sweep.users for sweeps in found.values() for sweep in sweeps.values())
    about = (
        f"NDCG@20 on test data against what a slider changes, on up to {users:,} users. A curve "
        "begins at the large dot, the list without re-ranking; numbers beside the curve of the "
        "first run are values of the slider. Losses of a quarter or more are cut off."
    )
    svg = plots.tradeoff_curves(
        found, [(s.title, metric) for s in REPORT_SLIDERS for metric in s.against]
    )
    texts = [about, *notes, *(DEFINITIONS[m] for s in REPORT_SLIDERS for m in s.against)]
    caption = escape(" ".join(texts))
    return (
        "<h3>The cost of re-ranking</h3>"
        f'<figure>{svg}<figcaption class="note">{caption}</figcaption></figure>'
        + "".join(_bought(name, sweeps, len(group) > 1) for name, sweeps in found.items())
    )


def _sweeps(run: Run, text: str, progress: bool) -> dict[str, Sweep]:
    """The sweep of each slider by its title; those by genre only if the run has genres."""
    sweeper = Sweeper(run, split_of(run), most_users=SWEPT_USERS)
    has_genres = sweeper.facts.has_genres
    sliders = [s for s in REPORT_SLIDERS if has_genres or s.beside.diversity_by == BY_MODEL]
    points: dict[str, list[SweepPoint]] = {slider.title: [] for slider in sliders}

    def steps() -> Iterator[None]:
        plain = next(sweeper.sweep(REPORT_SLIDERS[0].name, values=(0.0,)))
        for slider in sliders:
            points[slider.title].append(plain)
            for point in sweeper.sweep(slider.name, slider.beside, SLIDER_VALUES[1:]):
                points[slider.title].append(point)
                yield

    total = len(sliders) * (len(SLIDER_VALUES) - 1)
    for _ in track(steps(), text, show=progress, total=total):
        pass
    return {s.title: sweeper.gathered(s.title, points[s.title]) for s in sliders}


def _bought(name: str, sweeps: Mapping[str, Sweep], named: bool) -> str:
    """What each slider changes at a small loss of accuracy."""
    rows = []
    for slider in REPORT_SLIDERS:
        if slider.title not in sweeps:
            continue
        for metric in filter(sweeps[slider.title].measures, slider.against):
            cells = [slider.title, metric]
            for loss in LOSS_LEVELS:
                at = sweeps[slider.title].at_loss(loss, metric)
                cells.append(
                    "–" if at is None else f"{at[1]:+.1%}<br><small>at {at[0]:.2f}</small>"
                )
            rows.append(cells)
    head = ["slider", "changes", *(f"at a loss of {loss:.0%}" for loss in LOSS_LEVELS)]
    title = f"<h4>{escape(name)}</h4>" if named else ""
    return title + html_table(head, rows, text=2)
