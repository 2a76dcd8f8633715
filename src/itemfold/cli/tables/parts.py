"""The parts of a hybrid compared with the sum on test data."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from itemfold.cli.tables.layout import add_row, new_table, p_phrase, p_value
from itemfold.training.run import Run

MIN_GAIN = 0.01  # relative gain above which a better part causes a warning
LEVEL = 0.05  # p-value below which a better part causes a warning


@dataclass(frozen=True)
class PartAlone:
    """The test metric of one part of a hybrid alone."""

    name: str
    value: float  # of the metric that selected the settings
    whole: float | None  # value of the hybrid; None if the run did not store it
    p: float  # of a paired t-test against the hybrid

    @property
    def change(self) -> float | None:
        """The relative difference from the hybrid."""
        return self.value / self.whole - 1 if self.whole else None

    @property
    def is_better(self) -> bool:
        """Whether the part is better than the hybrid, significantly or by more than 1 %."""
        if self.whole is None or self.value <= self.whole:
            return False
        return self.p < LEVEL or self.value > (1 + MIN_GAIN) * self.whole


def parts_alone(run: Run) -> list[PartAlone]:
    """The parts of a hybrid, best first; empty for other models."""
    metric = run.config["train"]["metric"]
    found = []
    for name, part in run.metrics.get("parts", {}).items():
        whole = run.metrics["test"].get(metric)
        if "difference" in part:  # the metric may have another cut-off than those of the test
            whole = part[metric] - part["difference"]
        found.append(PartAlone(name, part[metric], whole, part["p"]))
    return sorted(found, key=lambda part: -part.value)


def parts_table(run: Run) -> RenderableType:
    """A table of the sum and of each part alone on test data, with a warning if one is better."""
    parts = parts_alone(run)
    if not parts:
        return Group()
    numbers = (run.config["train"]["metric"], "change", "p (t)")
    table = new_table("on test", *numbers, numbers=numbers)
    if parts[0].whole is not None:
        add_row(table, "the sum of the parts", f"{parts[0].whole:.4f}")
    for part in parts:
        change = "" if part.change is None else f"{part.change:+.1%}"
        add_row(table, f"{part.name} alone", f"{part.value:.4f}", change, p_value(part.p))
    warning = part_warning(run)
    return Group(table, *([Text(f"warning: {warning}", style="bold yellow")] if warning else []))


def part_warning(run: Run) -> str:
    """A warning about the best part that is better than the sum on test, or ""."""
    better = next((part for part in parts_alone(run) if part.is_better), None)
    if better is None:
        return ""
    metric = run.config["train"]["metric"]
    return (
        f"on test, {better.name} alone has {metric} {better.value:.4f}, the sum of the parts "
        f"{better.whole:.4f} ({p_phrase(better.p)}): validation selected the sum, "
        "but the test part does not confirm it"
    )
