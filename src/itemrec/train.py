"""The training loop: settings, one step, and the whole of it on one screen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from itemrec.averaging import Average
from itemrec.batches import Batches
from itemrec.capture import captured
from itemrec.catalogue import All
from itemrec.checkpoint import Run, State
from itemrec.components import check_settings
from itemrec.devices import pick_device, tensor_cores
from itemrec.draws import refuse_full
from itemrec.errors import ItemrecError
from itemrec.evaluate import Judge, evaluate
from itemrec.files import check_folder
from itemrec.graph import Graph
from itemrec.held_out import Held, Split
from itemrec.interrupt import Interrupt
from itemrec.losses import customary, item_ndcg
from itemrec.metrics import CATALOGUE_METRICS, parse_metric
from itemrec.models.base import Model
from itemrec.negatives import InBatch, Sampler, Uniform
from itemrec.objective import objective
from itemrec.progress import EpochBar


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainConfig:
    """Settings of training; each is an option of the command line and a key of a config file."""

    epochs: int = _setting(1000, "at most this many passes over the training users")
    lr: float = _setting(0.01, "learning rate of Adam")
    batch: int = _setting(2048, "users (or interactions) a step")
    by: Literal["users", "interactions"] = _setting("users", "what a batch is made of")
    positives: int = _setting(5, "positives a user in a list")
    sampled: int = _setting(1000, "negatives in a list")
    similarity: Literal["dot", "cosine"] = _setting("dot", "score in training; ranking uses dot")
    average: float = _setting(0.99, "decay of the running mean of weights that is kept; 0: none")
    l2: float = _setting(0.0, "weight of the squared layer-0 vectors of a batch")
    every: int = _setting(5, "epochs between validations")
    patience: int | None = _setting(
        None, "epochs without a better validation before stopping; default 150"
    )
    metric: str = _setting("ndcg@20", "what validation chooses by")
    refit: bool = _setting(True, "transductive: train again on training + validation")
    seed: int = _setting(0, "seed of initial weights, batches and negatives")
    device: str = _setting("auto", "cpu, cuda or auto")
    precision: Literal["auto", "full"] = _setting(
        "auto", "of GPU training: auto reads neighbours as bfloat16, multiplies as TF32"
    )
    save_seconds: float = _setting(30.0, "least time between two resumable states")

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "positives", "sampled", "every", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ItemrecError(f"'{name}' must be a positive integer, got {value}")
        if not 0 <= self.seed < 2**63:
            raise ItemrecError(f"'seed' must be at least 0 and below 2^63, got {self.seed}")
        metric = parse_metric(self.metric)
        if metric.name in CATALOGUE_METRICS:
            raise ItemrecError(f"'metric' must be one of single users, got {self.metric!r}")
        object.__setattr__(self, "metric", metric.key)  # "NDCG@20" is called ndcg@20 in results
        if self.patience is not None and self.patience < self.every:
            raise ItemrecError(
                f"'patience' must be at least 'every' ({self.every}), got {self.patience}: "
                "training would end before a validation"
            )
        if not self.lr > 0:
            raise ItemrecError(f"'lr' must be positive, got {self.lr}")
        if not 0 <= self.average < 1:
            raise ItemrecError(f"'average' must be at least 0 and below 1, got {self.average}")
        if not self.l2 >= 0:
            raise ItemrecError(f"'l2' must be at least 0, got {self.l2}")
        for name, choices in (
            ("by", ("users", "interactions")),
            ("similarity", ("dot", "cosine")),
            ("precision", ("auto", "full")),
        ):
            if getattr(self, name) not in choices:
                raise ItemrecError(
                    f"'{name}' must be {' or '.join(choices)}, got {getattr(self, name)!r}"
                )


def resolve(model: Model, loss: Callable[..., Tensor], given: dict[str, Any]) -> TrainConfig:
    """What is given, else what is usual for the model, else for the loss, if the model has one."""
    of_loss = {} if model.own_objective else customary(loss)
    config = TrainConfig(**{**of_loss, **model.usual, **given})
    if model.whole_users and config.by != "users":
        raise ItemrecError(f"'by' must be users for {type(model).__name__}, got {config.by!r}")
    return config


def train(
    split: Split,
    model: Model,
    *,
    loss: Callable[..., Tensor] = item_ndcg,
    negatives: Sampler | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Run:
    """Train a model on a split, choose the epoch on validation, meet the test users once.

    ``settings`` are the fields of `TrainConfig`. With ``out`` the run is saved there, and its state
    as training goes, so that ``resume=True`` continues an interrupted run to the same weights.
    A model that is trained already stays as it is: its settings are trained anew.
    """
    sampler = negatives if negatives is not None else Uniform()
    _check_kinds(split, model, loss, sampler)
    if "n_items" in vars(model):  # it has been set up before
        model = type(model)(**model.settings)
    config = resolve(model, loss, check_settings(TrainConfig, "train", settings))
    blind = split.valid is None and not len(split.test)
    if blind and "epochs" not in settings and not model.closed_form:
        raise ItemrecError("'epochs' must be given where nothing is held out to choose it by")
    pick_device(config.device)  # whatever can be refused is refused before anything is written
    split.check()
    if split.protocol == "inductive":
        model.check_inductive()
    refit = config.refit and split.protocol == "transductive" and split.valid is not None
    if refit and not (
        model.closed_form or model.own_objective or isinstance(sampler, InBatch | All)
    ):
        refuse_full(split.n_items - np.diff(split.refit().train.indptr))  # now, not after selection
    run = Run.begin(split, model, loss, sampler, asdict(config))
    folder = None if out is None else check_folder("out", out)
    state = run.open(folder, resume)
    if folder and resume and (folder / "metrics.json").exists():
        return Run.load(folder)
    fit = _solve if model.closed_form else _descend
    try:
        if state.phase == "select":
            fit(run, split, loss, sampler, config, state, split.valid, folder, progress)
            state.chosen()
        if refit:
            split = split.refit()
            fit(run, split, loss, sampler, config, state, None, folder, progress)
    except Exception:
        run.abandon(folder)
        raise
    run.finish(split, state, refit)
    if len(split.test):
        started = time.perf_counter()
        run.judge(evaluate(run, split), time.perf_counter() - started)
    if folder:
        run.save(folder)
    return run


def _check_kinds(split: Any, model: Any, loss: Any, sampler: Any) -> None:
    """Names and classes are what a configuration holds; here stand the things themselves."""
    for name, value, right, kind in (
        ("split", split, isinstance(split, Split), "a Split, such as ir.split_users(data)"),
        ("model", model, isinstance(model, Model), "a model, such as ir.models.LightGCN()"),
        ("loss", loss, callable(loss), "a function, such as ir.losses.bpr"),
        (
            "negatives",
            sampler,
            is_dataclass(sampler) and not isinstance(sampler, type),
            "a sampler, such as ir.negatives.PPR()",
        ),
    ):
        if not right:
            raise ItemrecError(f"'{name}' must be {kind}, got {value!r}")


def _descend(
    run: Run,
    split: Split,
    loss: Callable[..., Tensor],
    sampler: Sampler,
    config: TrainConfig,
    state: State,
    valid: Held | None,
    folder: Path | None,
    progress: bool,
) -> None:
    """Epochs of gradient descent; the model ends with the weights that validation chose."""
    device = pick_device(config.device)
    model = run.model
    weights = torch.Generator().manual_seed(config.seed)
    model.setup(split.train, inductive=split.protocol == "inductive", generator=weights)
    model.to(device)
    graph = Graph.from_csr(split.train, device)
    coarse = device.type == "cuda" and config.precision == "auto"
    heard = replace(graph, half=True) if coarse else graph  # what a step passes messages over
    generator = torch.Generator(device).manual_seed(config.seed)
    if not model.own_objective:
        sampler.prepare(split.train, device)
    longest = max(int(graph.degree[: graph.n_users].max()), 1)  # no list has more positives
    batches = Batches(graph, config.by, config.batch, min(config.positives, longest))
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.Adam(model.groups(config.lr), fused=True, capturable=on_gpu)
    average = Average(model, config.average)
    state.restore(model, optimizer, generator, average)
    judge = Judge(valid, device) if valid is not None else None
    last = config.epochs if state.phase == "select" else max(state.best_epoch, 1)
    patience = _patience(config, split, batches) if judge else last  # else nothing to wait for

    def step(keys: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        batch = batches.draw(keys, generator)
        with tensor_cores(coarse):
            value = objective(model, heard, batch, loss, sampler, config, generator)
            value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        average.update()
        return value.detach()

    if on_gpu and model.capturable:
        keys = batches.epoch(torch.Generator(device))[0]  # any keys: only their shape is recorded
        step = captured(step, keys, optimizer, generator, average.tensors)  # type: ignore[assignment]

    with EpochBar(state.phase, last, config.metric, show=progress) as bar, Interrupt() as interrupt:
        while state.epoch < last and state.epoch - state.best_epoch < patience:
            started = time.perf_counter()
            model.train()
            model.begin_epoch(heard, generator)
            losses = [step(keys) for keys in batches.epoch(generator)]
            state.epoch += 1
            mean = float(torch.stack(losses).mean())
            state.seconds += time.perf_counter() - started
            if not math.isfinite(mean):
                raise ItemrecError(
                    f"the loss became {mean} in epoch {state.epoch}: "
                    f"try a smaller 'lr' (now {config.lr}) or a larger temperature"
                )
            if judge and (state.epoch % config.every == 0 or state.epoch == last):
                with average.applied():
                    model.eval()
                    model.freeze(graph)
                    state.record(mean, judge.metrics(model, config.metric), config.metric, model)
            bar.update(state, mean)
            pause = 0.0 if interrupt.asked else config.save_seconds
            state.save(folder, model, optimizer, generator, average, pause)
            interrupt.obey()
    if judge:
        state.restore_best(model)
    else:
        state.best_epoch = state.epoch
        average.keep()
    model.eval()
    model.freeze(graph)


def _patience(config: TrainConfig, split: Split, batches: Batches) -> int:
    """Epochs to wait: as told, or 150, and for known users at least 400 steps.

    Free user vectors sit on a plateau for some hundred steps before validation moves (LOG.md).
    """
    if config.patience is not None:
        return config.patience
    steps = len(batches.epoch(torch.Generator(batches.graph.col.device)))
    least = math.ceil(400 / steps) if split.protocol == "transductive" else 0
    return max(150, least, config.every)


def _solve(
    run: Run,
    split: Split,
    loss: Callable[..., Tensor],
    sampler: Sampler,
    config: TrainConfig,
    state: State,
    valid: Held | None,
    folder: Path | None,
    progress: bool,
) -> None:
    """Closed forms: one fit, and a look at validation."""
    started = time.perf_counter()
    model = run.model
    generator = torch.Generator().manual_seed(config.seed)
    model.setup(split.train, inductive=split.protocol == "inductive", generator=generator)
    model.to(pick_device(config.device))  # now that there are tensors to move
    model.fit(split.train)
    model.eval()
    state.seconds += time.perf_counter() - started
    if valid is not None:
        state.record(0.0, Judge(valid, model.device).metrics(model, config.metric), config.metric)
