"""Training from a plan to a tested run: select on validation, refit, evaluate the test users once.

The loop over epochs is `descent.descend`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from itemrec import ranks
from itemrec.data.interactions import IdMap
from itemrec.data.item_features import ItemFeatures
from itemrec.data.split import Split
from itemrec.errors import ItemrecError
from itemrec.evaluation.evaluate import evaluate
from itemrec.models import Hybrid
from itemrec.models.base import Kind, Model
from itemrec.models.with_new_items import WithNewItems
from itemrec.sampling import Sampler
from itemrec.training.across_ranks import join_ranks
from itemrec.training.closed_form import solve
from itemrec.training.config import list_settings, resolve_training
from itemrec.training.descent import descend
from itemrec.training.hybrid import fit_hybrid
from itemrec.training.part_metrics import part_metrics
from itemrec.training.plan import Plan, check_epochs_known, default_parts
from itemrec.training.progress import watch
from itemrec.training.run import Run
from itemrec.training.run_folder import RunFolder
from itemrec.training.state import TrainState
from itemrec.validation import shown

FITTING = {Kind.CLOSED_FORM: solve, Kind.HYBRID: fit_hybrid}  # all others: descend


@list_settings
def train(
    split: Split,
    model: Model | None = None,
    *,
    loss: Callable[..., Tensor] | None = None,
    negatives: Sampler | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Run:
    """Train a model on a split, select the epoch on validation, evaluate the test users once.

    With `out`, the run and its state during training are saved there, so that `resume=True`
    continues an interrupted run to the same weights. A model that is already trained is left
    unchanged: a new model with the same settings is trained.

    Args:
        split: A split, as returned by `split_interactions`, `split_users` and the others.
        model: A model, such as `ir.models.LightGCN()`; default: `ir.models.Hybrid()`, which chooses
            its own settings.
        loss: A loss, such as `ir.losses.item_ndcg(tau=0.5)`; default: the model's. A model with
            its own objective or a closed form does not use it.
        negatives: A sampler, such as `ir.negatives.PPR()`; default: the model's.
        out: The run folder; without it, the run is not saved.
        resume: Continue the run in `out`.
        progress: Show a progress bar.
        **settings: Fields of `TrainConfig`. Defaults come from the model, then from the loss, then
            from `TrainConfig`.

    Returns:
        The run: the trained model, its settings, and its metrics on validation and test.

    Raises:
        ItemrecError: A setting is unknown or invalid, the components do not fit together, `out`
            holds another run, or the loss became infinite.
        LeakError: A held-out interaction is part of the training data.

    Examples:
        >>> import itemrec as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> model = ir.models.LightGCN(dim=8, layers=2)
        >>> run = ir.train(ir.split_users(data), model, loss=ir.losses.item_ndcg(tau=0.5), epochs=2)
        >>> sorted(run.metrics["valid"])
        ['capped_recall@20', 'ndcg@20', 'recall@20']
    """
    model = Hybrid() if model is None else model
    _check_types(split, model, loss, negatives)
    named = [n for n, part in (("loss", loss), ("negatives", negatives)) if part is not None]
    of_model = default_parts(model)
    loss, sampler = loss or of_model[0], negatives or of_model[1]
    if "n_items" in vars(model):  # it was set up before
        model = type(model)(**(model.given or model.settings))
    config = resolve_training(model, loss, settings)
    check_epochs_known(split, model, settings)
    asked = {f"train.{key}" for key in settings} | {f"{name}.name" for name in named}
    plan = Plan(split, model, loss, sampler, config, frozenset(asked))
    return run_plan(plan, out=out, resume=resume, progress=progress)


def run_plan(
    plan: Plan, *, out: str | Path | None = None, resume: bool = False, progress: bool = False
) -> Run:
    """Train according to a plan; with several ranks, all of them together.

    Of these, the first one shows progress and writes the folder. If one fails and ``torchrun``
    starts them again, they continue from the last state.
    """
    join_ranks(plan.model, plan.sampler, plan.config.device)
    progress, resume = progress and ranks.is_first(), resume or ranks.is_restart()
    plan.check()
    if out is None:
        return _run_in(None, plan, resume=resume, progress=progress)
    folder = RunFolder(out)
    with folder.locked():
        return _run_in(folder, plan, resume=resume, progress=progress)


def _run_in(folder: RunFolder | None, plan: Plan, *, resume: bool, progress: bool) -> Run:
    """Select, refit, evaluate and save, from the state in the folder if there is one."""
    split, run = plan.split, Run.of(plan)
    state = TrainState(data=run.dataset["fingerprint"] + run.dataset.get("weights", ""))
    if folder is not None:
        state = folder.claim(run, state, resume)
        if resume and ranks.from_first(lambda: folder.is_finished):
            return folder.load()
    fit = FITTING.get(plan.model.kind, descend)
    if state.phase == "select":
        fit(plan, split, state, valid=split.valid, folder=folder, progress=progress)
        state.begin_refit()
    if plan.refits:
        split = split.refit()
        fit(plan, split, state, valid=None, folder=folder, progress=progress)
    plan.model.unshard()
    run.finish(split.train, state, refit=plan.refits)
    if split.features is not None:
        watch(run.model, show=progress)
        run.metrics["new_items"] = map_settings(run, split.features)
    if len(split.test):
        started = time.perf_counter()
        run.add_evaluation(evaluate(run, split), time.perf_counter() - started)
        if split.new_items is not None:
            run.metrics["among_all_items"] = evaluate(run, split.among_all_items()).metrics
        elif plan.model.kind is Kind.HYBRID:
            run.metrics["parts"] = part_metrics(run, split)
    if folder is not None:
        ranks.from_first(lambda: folder.save(run))
    return run


def map_settings(run: Run, features: ItemFeatures) -> dict[str, float]:
    """The settings of the map from features to scores, chosen on the training interactions."""
    none = IdMap(features.ids.ids[:0])
    found = WithNewItems.of(run.model, run.train, features, run.item_ids, none)
    return found.map.settings.record()


def _check_types(split: Any, model: Any, loss: Any, sampler: Any) -> None:
    """Reject names and classes, which belong in a configuration: instances are expected."""
    for name, value, right, kind in (
        ("split", split, isinstance(split, Split), "a Split, such as ir.split_users(data)"),
        ("model", model, isinstance(model, Model), "a model, such as ir.models.LightGCN()"),
        ("loss", loss, loss is None or callable(loss), "a function, such as ir.losses.bpr"),
        (
            "negatives",
            sampler,
            sampler is None or (isinstance(sampler, Sampler) and is_dataclass(sampler)),
            "a sampler, such as ir.negatives.PPR()",
        ),
    ):
        if not right:
            raise ItemrecError(f"'{name}' must be {kind}, got {shown(value)}")
