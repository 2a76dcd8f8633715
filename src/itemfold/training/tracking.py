"""Export of a finished run to an experiment tracker: MLflow or TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from itemfold.environment import need_packages
from itemfold.training.run import Run
from itemfold.validation import one_of

EXPERIMENT = "itemfold"
PACKAGES = {"mlflow": ("mlflow",), "tensorboard": ("tensorboard",)}
MAX_CHARACTERS = 500  # of a setting
BATCH = 500  # metrics per request


class LoggedValue(NamedTuple):
    """One value of a metric."""

    name: str
    value: float
    step: int
    time: float  # seconds since 1970


def check_tracker(name: str) -> None:
    """Raise if a tracker is unknown or its package is not installed; called before training."""
    one_of("track", name, tuple(PACKAGES))
    need_packages(f"--track {name}", PACKAGES[name])


def track_run(run: Run, to: str, folder: str | Path) -> str:
    """Write the settings, curves and final metrics of a run; returns the location."""
    check_tracker(to)
    return TRACKERS[to](run, Path(folder))


def curve_values(run: Run, ended: float) -> Iterator[LoggedValue]:
    """Loss and validation metrics by epoch; each candidate network after the first has its own."""
    rows = run.history
    begun = ended - (rows[-1]["seconds"] if rows else 0.0)
    for row in rows:
        prefix = f"candidate {row['candidate']}/" if row.get("candidate") else ""
        for key, value in row.items():
            if key not in ("epoch", "seconds", "candidate"):
                part = "train" if key == "loss" else "valid"
                yield LoggedValue(
                    f"{prefix}{part}/{key}", value, row["epoch"], begun + row["seconds"]
                )


def final_values(run: Run, ended: float) -> Iterator[LoggedValue]:
    """Validation metrics of the selected epoch, test metrics and seconds."""
    step = int(run.metrics["best_epoch"])
    for part in ("valid", "test"):
        for key, value in run.metrics.get(part, {}).items():
            yield LoggedValue(f"final {part}/{key}", value, step, ended)
    for key, value in run.metrics["seconds"].items():
        yield LoggedValue(f"seconds/{key}", value, step, ended)


def flat_settings(run: Run) -> dict[str, str]:
    """The settings under names such as "model.dim"."""
    return {
        f"{section}.{key}": str(value)[:MAX_CHARACTERS]
        for section, settings in run.config.items()
        for key, value in settings.items()
    }


def _to_tensorboard(run: Run, folder: Path) -> str:
    from torch.utils.tensorboard import SummaryWriter

    target, ended = folder / "tensorboard", time.time()
    writer: Any = SummaryWriter(str(target))
    lines = [f"| {name} | {value} |" for name, value in flat_settings(run).items()]
    writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]))
    for entry in (*curve_values(run, ended), *final_values(run, ended)):
        writer.add_scalar(entry.name, entry.value, entry.step, entry.time)
    writer.close()
    return str(target)


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
        Metric(entry.name.replace("@", "_at_"), entry.value, _ms(entry.time), entry.step)
        for entry in (*curve_values(run, ended), *final_values(run, ended))
    ]
    params = [Param(key, value) for key, value in flat_settings(run).items()]
    data = {"data": run.dataset["name"], "fingerprint": run.dataset["fingerprint"]}
    tags = [RunTag(key, str(value)) for key, value in {**data, "run folder": folder}.items()]
    client.log_batch(name, params=params[:100], tags=tags)
    for start in range(0, len(metrics), BATCH):
        client.log_batch(name, metrics=metrics[start : start + BATCH])
    client.set_terminated(name, end_time=_ms(ended))
    return f"experiment {EXPERIMENT}, run {name}"


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


TRACKERS: dict[str, Callable[[Run, Path], str]] = {
    "mlflow": _to_mlflow,
    "tensorboard": _to_tensorboard,
}
