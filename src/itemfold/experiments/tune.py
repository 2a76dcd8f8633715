"""Hyper-parameter search: trials are evaluated on validation only and survive interruptions.

The folder of a search holds ``tune.toml``, the configuration and search space; ``trials.jsonl``,
one line per finished trial; ``best.toml``, the configuration of the best trial, for
``itemfold train --config``; and ``running``, the state of the current trial.
"""

from __future__ import annotations

import gc
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from itemfold.data.interactions import Interactions
from itemfold.data.splitting.split import Split
from itemfold.environment import need_extra, out_of_memory, pick_device
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import make_data, make_split, report_assumptions
from itemfold.experiments.search_folder import (
    Trial,
    best_trial,
    stored_count,
    stored_fingerprint,
    stored_trials,
    with_absolute_paths,
)
from itemfold.experiments.search_progress import TrialBar
from itemfold.experiments.search_space import (
    SearchRange,
    default_search_space,
    merged,
    parse_search_space,
    without_refit,
)
from itemfold.files import check_folder, locked, read_file, write_text
from itemfold.models.base import Kind
from itemfold.settings.resolve import resolve
from itemfold.settings.schema import Config
from itemfold.settings.toml_file import dump_config, flat
from itemfold.training.fit import fit_and_test
from itemfold.training.interrupt import raise_if_stopped
from itemfold.training.run import Run
from itemfold.validation import positive_integers

TRIALS = 20  # of a search, unless a number is given


@dataclass(frozen=True)
class Tuned:
    """The trials of a search, and the configuration of the best trial."""

    trials: tuple[Trial, ...]
    config: Config
    metric: str

    @property
    def best(self) -> Trial:
        """The first of the trials with the highest value."""
        return best_trial(self.trials)


@dataclass(frozen=True)
class _Search:
    config: Config  # as given
    space: dict[str, SearchRange]
    split: Split  # without a test part
    folder: Path
    metric: str
    seed: int

    def config_of(self, trial: Trial) -> Config:
        """The configuration of a trial, to train with."""
        config = merged(self.config, trial.settings if trial.number else {})
        return {**config, "data": dict(self.split.source) or config["data"]}

    def identity(self, trial: Trial) -> str:
        """A key that is equal for trials with the same training."""
        return dump_config(resolve(without_refit(self.config_of(trial))).comparable())


def tune(
    config: Config,
    out: str | Path,
    *,
    search: Sequence[str] = (),
    trials: int | None = None,
    time_limit: float | None = None,
    resume: bool = False,
    data: Interactions | None = None,
    progress: bool = False,
    report: Callable[[str], None] | None = None,
) -> Tuned:
    """Search for the settings with the best validation value of ``train.metric``.

    ``search`` holds texts such as "lr=0.0001..0.03" or "loss.name=bpr,item-ndcg"; the default is
    `default_search_space`. ``trials`` counts finished trials, including those of earlier calls; its
    default is that of the search in the folder, or `TRIALS`. No trial starts after ``time_limit``
    seconds. The first trial is the given configuration. ``resume=True`` leads to the same trials as
    a search without interruption. ``report`` is called with what was assumed about a file, before
    the first trial.
    """
    started = time.monotonic()
    need_extra("tune")
    if trials is not None:
        positive_integers(trials=trials)
    if time_limit is not None and not time_limit > 0:
        raise ItemfoldError(f"'time_limit' must be a positive number of seconds, got {time_limit}")
    folder, config = check_folder("out", out), with_absolute_paths(config)
    space = parse_search_space(config, search) if search else default_search_space(config)
    full = resolve(config).train
    pick_device(str(config.get("train", {}).get("device", "auto")))
    request = {**config, "search": {"settings": [str(one) for one in space.values()]}}
    known = stored_fingerprint(folder, request, resume)
    if data is None:
        data = make_data(config)
    if known not in ("", data.fingerprint):
        raise ItemfoldError(f"{folder} holds a search on other data; it cannot be resumed")
    split = make_split(config, data, resolve(config).make_model())
    if report is not None:
        report_assumptions(data, split, report)
    task = _Search(config, space, split.without_test(), folder, full.metric, full.seed)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=False):
        is_new = not stored_fingerprint(folder, request, resume)  # again, now that it is locked
        requested, trials = trials, trials or stored_count(folder) or TRIALS
        if is_new or requested is not None:  # a search that is killed continues to the same number
            facts = {"name": data.name, "fingerprint": data.fingerprint}
            space_and_count = {**request["search"], "trials": trials}
            content = {**request, "search": space_and_count, "dataset": facts}
            write_text(folder / "tune.toml", dump_config(content))
        for draft in folder.glob(".*.tmp"):  # left by a killed process
            draft.unlink()
        done = _search(task, trials, time_limit and started + time_limit, progress)
    return Tuned(tuple(done), task.config_of(best_trial(done)), task.metric)


def _search(task: _Search, trials: int, end: float | None, progress: bool) -> list[Trial]:
    """Run trials until the requested number is reached; returns all, including earlier ones."""
    done = read_file(task.folder / "trials.jsonl", lambda path: stored_trials(path, task.space))
    trained = {task.identity(trial): trial for trial in done}
    _save(task, done)
    with TrialBar(len(done), trials, task.metric, show=progress) as bar:
        while len(done) < trials and not (end is not None and time.monotonic() >= end):
            done.append(_next_trial(task, done, trained))
            trained.setdefault(task.identity(done[-1]), done[-1])
            _save(task, done)
            bar.update(done)
    return done


# --- trials --------------------------------------------------------------------------------------


def _next_trial(search: _Search, done: Sequence[Trial], known: Mapping[str, Trial]) -> Trial:
    """The next trial; settings that were trained before get the earlier result."""
    number, given = len(done), flat(resolve(search.config).comparable())
    settings = {key: given.get(key) for key in search.space}
    if number:
        settings = _suggest(search.space, done, (search.seed + number) % 2**32)
    trial = Trial(number, settings, None, 0, 0, 0.0)
    if earlier := known.get(search.identity(trial)):
        return replace(earlier, number=number, settings=settings, seconds=0.0)
    config, started = without_refit(search.config_of(trial)), time.perf_counter()
    try:
        run = _train(search, config, search.folder / "running" / str(number))
        found = raise_if_stopped(run).metrics
        value, seconds = found["valid"][search.metric], found["seconds"]["train"]
        return Trial(number, settings, value, found["best_epoch"], found["epochs"], seconds)
    except ItemfoldError as error:
        problem = str(error)
    except (MemoryError, RuntimeError) as error:
        if not (problem := out_of_memory(error)):
            raise  # a bug
    finally:
        if torch.cuda.is_available():
            gc.collect()  # a recorded step refers to itself
            torch.cuda.empty_cache()
    return replace(trial, seconds=round(time.perf_counter() - started, 3), error=problem)


def _train(search: _Search, config: Config, folder: Path) -> Run:
    """Train, or resume an interrupted trial.

    No trial is stopped for being worse than others: these losses stay on a plateau before they
    improve (docs/research/training.md), so the best trial might be stopped first. Patience ends a
    trial.
    """
    settings = resolve(config)
    # a closed form has no state to keep
    out = None if settings.model_class.kind is Kind.CLOSED_FORM else folder
    train = partial(fit_and_test, settings, search.split, out=out, resume=True, metrics=())
    if folder.exists():
        try:
            return train()
        except ItemfoldError:  # from another version, or damaged: start again
            shutil.rmtree(folder, ignore_errors=True)
    return train()


def _suggest(space: Mapping[str, SearchRange], done: Sequence[Trial], seed: int) -> dict[str, Any]:
    """Settings suggested by TPE, which depend on the finished trials and the seed only."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds: dict[str, Any] = {}
    for key, one in space.items():
        if one.choices:
            kinds[key] = CategoricalDistribution(range(len(one.choices)))
        elif one.whole:
            kinds[key] = IntDistribution(int(one.low), int(one.high))
        else:
            kinds[key] = FloatDistribution(one.low, one.high, log=one.log)
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in done:
        params = {key: _encode(one, trial.settings[key]) for key, one in space.items()}
        params = {key: param for key, param in params.items() if param is not None}
        value = -1.0 if trial.value is None else trial.value  # a failure is worse than any value
        limits = {key: kinds[key] for key in params}
        study.add_trial(optuna.trial.create_trial(value=value, params=params, distributions=limits))
    drawn = study.ask(kinds).params
    return {key: _decode(one, drawn[key]) for key, one in space.items()}


def _encode(space: SearchRange, value: Any) -> Any:
    """A value as optuna stores it; None for a given setting outside the range."""
    if space.choices:
        return space.choices.index(value) if value in space.choices else None
    return value if isinstance(value, int | float) and space.low <= value <= space.high else None


def _decode(space: SearchRange, drawn: Any) -> Any:
    """A value drawn by optuna as a setting."""
    if space.choices or space.whole:
        return space.choices[drawn] if space.choices else drawn
    return min(max(float(f"{drawn:.4g}"), space.low), space.high)  # four digits are enough


# --- files ---------------------------------------------------------------------------------------


def _save(search: _Search, done: Sequence[Trial]) -> None:
    """Write the finished trials and the best configuration; remove the folders of these trials."""
    texts = {"trials.jsonl": "".join(json.dumps(asdict(trial)) + "\n" for trial in done)}
    if any(trial.value is not None for trial in done):
        texts["best.toml"] = dump_config(search.config_of(best_trial(done)))
    for name, text in texts.items():
        path = search.folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
    running = search.folder / "running"
    for left in running.glob("*"):
        if left.name != str(len(done)):  # the next trial may have begun already
            shutil.rmtree(left, ignore_errors=True)
    with suppress(OSError):  # missing, or not empty
        running.rmdir()
