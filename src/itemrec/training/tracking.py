"""A finished run in an experiment tracker: the history that is always written, told once more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from itemrec.environment import need_packages
from itemrec.training.run import Run
from itemrec.validation import one_of

EXPERIMENT = "itemrec"
PACKAGES = {"mlflow": ("mlflow",), "tensorboard": ("tensorboard",)}
LONGEST = 500  # characters of a setting
AT_ONCE = 500  # metrics in one request


class Point(NamedTuple):
    """One value of a curve."""

    name: str
    value: float
    step: int
    time: float  # seconds since 1970


def check_tracker(name: str) -> None:
    """Raise if a tracker is unknown or its package is not installed, before training begins."""
    one_of("track", name, tuple(PACKAGES))
    need_packages(f"--track {name}", PACKAGES[name])


def track_run(run: Run, to: str, folder: str | Path) -> str:
    """Write the settings, curves and final metrics of a run; returns where they are."""
    check_tracker(to)
    return TRACKERS[to](run, Path(folder))


def curve_points(run: Run, ended: float) -> Iterator[Point]:
    """Loss and validation metrics by epoch; further candidates of a race have their own curves."""
    rows = run.history
    begun = ended - (rows[-1]["seconds"] if rows else 0.0)
    for row in rows:
        race = f"candidate {row['candidate']}/" if row.get("candidate") else ""
        for key, value in row.items():
            if key not in ("epoch", "seconds", "candidate"):
                part = "train" if key == "loss" else "valid"
                yield Point(f"{race}{part}/{key}", value, row["epoch"], begun + row["seconds"])


def final_points(run: Run, ended: float) -> Iterator[Point]:
    """The chosen validation metrics, the test metrics and the seconds, at the chosen epoch."""
    step = int(run.metrics["best_epoch"])
    for part in ("valid", "test"):
        for key, value in run.metrics.get(part, {}).items():
            yield Point(f"final {part}/{key}", value, step, ended)
    for key, value in run.metrics["seconds"].items():
        yield Point(f"seconds/{key}", value, step, ended)


def flat_settings(run: Run) -> dict[str, str]:
    """The settings by names such as "model.dim"."""
    return {
        f"{section}.{key}": str(value)[:LONGEST]
        for section, settings in run.config.items()
        for key, value in settings.items()
    }


def _to_tensorboard(run: Run, folder: Path) -> str:
    from torch.utils.tensorboard import SummaryWriter

    place, ended = folder / "tensorboard", time.time()
    writer: Any = SummaryWriter(str(place))
    lines = [f"| {name} | {value} |" for name, value in flat_settings(run).items()]
    writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]))
    for point in (*curve_points(run, ended), *final_points(run, ended)):
        writer.add_scalar(point.name, point.value, point.step, point.time)
    writer.close()
    return str(place)


def _to_mlflow(run: Run, folder: Path) -> str:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    client, ended = MlflowClient(), time.time()
    found = client.get_experiment_by_name(EXPERIMENT)
    experiment = found.experiment_id if found else client.create_experiment(EXPERIMENT)
    begun = ended - sum(run.metrics["seconds"].values())
    created = client.create_run(experiment, start_time=_ms(begun), run_name=folder.name)
    name = created.info.run_id
    metrics = [
        Metric(point.name.replace("@", "_at_"), point.value, _ms(point.time), point.step)
        for point in (*curve_points(run, ended), *final_points(run, ended))
    ]
    params = [Param(key, value) for key, value in flat_settings(run).items()]
    facts = {"data": run.dataset["name"], "fingerprint": run.dataset["fingerprint"]}
    tags = [RunTag(key, str(value)) for key, value in {**facts, "run folder": folder}.items()]
    client.log_batch(name, params=params[:100], tags=tags)
    for start in range(0, len(metrics), AT_ONCE):
        client.log_batch(name, metrics=metrics[start : start + AT_ONCE])
    client.set_terminated(name, end_time=_ms(ended))
    return f"experiment {EXPERIMENT}, run {name}"


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


TRACKERS: dict[str, Callable[[Run, Path], str]] = {
    "mlflow": _to_mlflow,
    "tensorboard": _to_tensorboard,
}
