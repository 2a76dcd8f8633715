"""Fresh data: new interactions, users and items join a run without training it anew.

Known users and items keep their rows and go on from their trained vectors; new ones are predicted
from their neighbours. A few epochs follow, with the settings of the run: nothing is chosen again.
The linear part is corrected or refitted, whichever is less work.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from itemrec.data.csr import as_ones
from itemrec.data.interactions import Interactions
from itemrec.data.item_features import ItemFeatures
from itemrec.data.joining import ItemCatalogue, Joined, described, join
from itemrec.data.split import HeldOut, Split
from itemrec.data.weights import is_weighted
from itemrec.environment import pick_device
from itemrec.errors import ItemrecError
from itemrec.graph.graph import Graph
from itemrec.losses import LOSSES, bind
from itemrec.models.base import Kind, Model
from itemrec.models.ease import EASE
from itemrec.models.embedding_model import EmbeddingModel
from itemrec.models.growth import check_growth, grown_weights
from itemrec.models.hybrid import Hybrid
from itemrec.models.linear_update import update_linear
from itemrec.models.rlae import RLAE
from itemrec.sampling import NEGATIVES
from itemrec.training.closed_form import fit
from itemrec.training.config import TrainConfig
from itemrec.training.descent import descend
from itemrec.training.hybrid import COVERED, set_up, train_network
from itemrec.training.new_data import grown_features, read_new
from itemrec.training.plan import Plan, default_parts
from itemrec.training.progress import watch
from itemrec.training.run import Run
from itemrec.training.run_folder import RunFolder
from itemrec.training.state import TrainState, put_weights
from itemrec.training.updated_run import SECTION, Outcome, updated_run
from itemrec.validation import check_settings, lookup, positive_integer, shown

SHARE = 0.1  # of the epochs that the run was trained for


def update(
    run: Run | str | Path,
    new: Any,
    *,
    out: str | Path | None = None,
    epochs: int | None = None,
    device: str | None = None,
    progress: bool = False,
    **reading: Any,
) -> Run:
    """Add new interactions, users and items to a run without training it anew.

    Known users and items keep their rows and their vectors as a start, new ones start from the
    vectors of their neighbours, and training goes on for a few epochs with the settings of the run.
    A linear part is corrected or fitted again, whichever is less work. The given run is unchanged.

    An update is for deployment: it holds nothing out, so it has no test metrics. New data may
    contain what the run had held out; nothing guards against that.

    Args:
        run: A run, or its folder.
        new: New interactions: a path, a frame, a sparse matrix, or what `read` and `load` return. A
            file of feedback that `itemrec serve` wrote is read, too. Pairs that the run knows are
            ignored.
        out: The new run folder; without it, the run is not saved.
        epochs: Epochs of training; default: a tenth of those that the run was trained for. With 0
            vectors are only predicted from neighbours.
        device: "cpu", "cuda" or "auto"; default: as the run was trained.
        progress: Show progress bars.
        **reading: Arguments of `read`; default: those that the run's data was read with. The
            features of the run stay; `item_features` adds those of further items.

    Returns:
        The updated run. `run.metrics["update"]` tells what was done.

    Raises:
        ItemrecError: The model cannot be updated, the data cannot be read, or `out` holds a run.

    Examples:
        >>> import polars as pl
        >>> import itemrec as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> run = ir.train(ir.split_interactions(data), ir.models.EASE())
        >>> fresh = pl.DataFrame({"user": ["eve", "eve"], "item": [3, "new"]}, strict=False)
        >>> newer = ir.update(run, fresh)
        >>> newer.metrics["update"]["new_users"], newer.item_ids.ids[-1].item()
        (1, 'new')
        >>> len(ir.Recommender(newer).recommend("eve", k=5))
        5
    """
    if isinstance(run, str | Path):
        run = Run.load(run)
    if not isinstance(run, Run):
        raise ItemrecError(f"'run' must be a Run or its folder, got {shown(run)}")
    if epochs not in (None, 0):
        positive_integer("epochs", epochs)
    if is_weighted(run.train):
        raise ItemrecError("a run with weighted interactions cannot be updated: train it anew")
    if run.model.kind is not Kind.CLOSED_FORM:
        network = run.model.gnn if isinstance(run.model, Hybrid) else run.model
        check_growth(network, run.config["model"]["name"])
    table, before = reading.pop("item_features", None), run.config.get("data", {})
    if out is None:
        data = read_new(before, new, reading)
        features = grown_features(run.features, data, table)
        return _updated(run, data, features, epochs, device, progress)
    folder = RunFolder(out)
    with folder.locked():
        folder.check_free(SECTION)
        data = read_new(before, new, reading)
        features = grown_features(run.features, data, table)
        found = _updated(run, data, features, epochs, device, progress)
        folder.save(found)
    return found


def _updated(
    run: Run,
    data: Interactions | None,
    features: ItemFeatures | None,
    epochs: int | None,
    device: str | None,
    progress: bool,
) -> Run:
    """The new run in memory."""
    started = time.perf_counter()
    catalogue = ItemCatalogue(run.item_ids, run.titles, run.genres)
    joined = join(run.train, run.user_ids, catalogue, data)
    if features is not None:
        joined = replace(joined, catalogue=described(joined.catalogue, features))
    config = _train_config(run, device)
    if epochs is None:
        epochs = max(1, round(SHARE * run.metrics["best_epoch"]))
    if joined.new_interactions:
        split = _split(run, joined)
        outcome = WAYS.get(run.model.kind, _descended)(run, joined, split, config, epochs, progress)
    else:
        outcome = Outcome(copy.deepcopy(run.model))
    outcome = replace(outcome, seconds=time.perf_counter() - started)
    return updated_run(run, data, joined, outcome, features)


def _closed_form(
    run: Run, joined: Joined, split: Split, config: TrainConfig, epochs: int, progress: bool
) -> Outcome:
    """EASE and RLAE by the cheapest way, other closed forms by a refit."""
    model = _fresh(run.model)
    generator = torch.Generator().manual_seed(config.seed)
    model.setup(joined.train, inductive=split.protocol == "inductive", generator=generator)
    model.to(pick_device(config.device))
    return Outcome(model, linear=_linear(model, run.model, joined, progress))


def _linear(model: Model, old: Model, joined: Joined, progress: bool) -> str:
    """Fit a closed form that is set up; returns how."""
    if isinstance(model, EASE | RLAE) and type(model) is type(old):
        assert isinstance(old, EASE | RLAE)
        watch(model, show=progress)
        how = str(update_linear(model, old, joined.before, joined.train))
        model.eval()
        return how
    fit(model, joined.train, progress)
    return "refitted"


def _descended(
    run: Run, joined: Joined, split: Split, config: TrainConfig, epochs: int, progress: bool
) -> Outcome:
    """Vectors that grow and a few epochs."""
    assert isinstance(run.model, EmbeddingModel)
    plan = _plan(run, split, _fresh(run.model), config)
    plan.check()
    state = _start(run.model, joined, config, epochs)
    if epochs:
        descend(plan, split, state, valid=None, folder=None, progress=progress)
    else:
        _without_epochs(plan.model, split, state, config)
    return Outcome(plan.model, epochs)


def _hybrid(
    run: Run, joined: Joined, split: Split, config: TrainConfig, epochs: int, progress: bool
) -> Outcome:
    """The linear part, then the network, with the blend that the run had chosen."""
    old = run.model
    assert isinstance(old, Hybrid)
    model = _fresh(old)
    assert isinstance(model, Hybrid)
    device = pick_device(config.device)
    _cover_new_items(model, old, split, device)
    plan = _plan(run, split, model, config)
    plan.check()
    set_up(model, split, device)
    how = _linear(model.linear, old.linear, joined, progress)
    state = _start(old.gnn, joined, config, epochs)
    if epochs:
        train_network(plan, split, state, valid=None, folder=None, progress=progress)
    else:
        _without_epochs(model.gnn, split, state, config)
    model.restore(split.train)
    return Outcome(model.eval(), epochs, how)


WAYS: dict[Kind, Callable[..., Outcome]] = {  # all others: `_descended`
    Kind.CLOSED_FORM: _closed_form,
    Kind.HYBRID: _hybrid,
}


def _start(old: EmbeddingModel, joined: Joined, config: TrainConfig, epochs: int) -> TrainState:
    """A state whose training starts from grown vectors and ends after some epochs."""
    generator = torch.Generator().manual_seed(config.seed)
    state = TrainState(phase="refit", best_epoch=epochs)
    state.start = grown_weights(old, joined.train, generator)
    return state


def _without_epochs(model: Model, split: Split, state: TrainState, config: TrainConfig) -> None:
    """A model with the vectors that its training would start from."""
    generator, inductive = torch.Generator().manual_seed(0), split.protocol == "inductive"
    model.setup(split.train, inductive=inductive, generator=generator)
    model.to(pick_device(config.device))
    put_weights(model, state.start)
    model.eval()
    model.cache_embeddings(Graph.from_csr(split.train, model.device))


def _cover_new_items(model: Hybrid, old: Hybrid, split: Split, device: torch.device) -> None:
    """A linear part that covered all items covers the new ones as well, as far as allowed."""
    if old.linear_items is not None and old.linear_items >= old.n_items:
        most = COVERED["cuda" if device.type == "cuda" else "cpu"]
        model.take({"linear_items": min(max(most, old.linear_items), split.n_items)})


def _fresh(model: Model) -> Model:
    """A model of the same settings, not yet set up."""
    return type(model)(**model.settings)


def _plan(run: Run, split: Split, model: Model, config: TrainConfig) -> Plan:
    """The components of the run with another model; what a hybrid chose is part of its settings."""
    loss, sampler = default_parts(model)
    if model.kind.has_lists:
        of_loss, of_sampler = dict(run.config["loss"]), dict(run.config["negatives"])
        loss = bind(lookup(LOSSES, "loss", of_loss.pop("name")), of_loss)
        sampler = lookup(NEGATIVES, "negatives", of_sampler.pop("name"))(**of_sampler)
    return Plan(split, model, loss, sampler, config)


def _train_config(run: Run, device: str | None) -> TrainConfig:
    settings = dict(run.config["train"])
    if device is not None:
        settings["device"] = device
    pick_device(settings.get("device", "auto"))
    return TrainConfig(**check_settings(TrainConfig, "train", settings))


def _split(run: Run, joined: Joined) -> Split:
    """All interactions as training data; nothing is held out."""
    empty = as_ones(sp.csr_array((0, joined.train.shape[1]), dtype=np.float32))
    return Split(
        protocol="inductive" if run.protocol == "inductive" else "transductive",
        train=joined.train,
        valid=None,
        test=HeldOut(empty, empty, np.empty(0, np.int64), joined.user_ids.ids[:0]),
        user_ids=joined.user_ids,
        item_ids=joined.catalogue.item_ids,
        titles=joined.catalogue.titles,
        genres=joined.catalogue.genres,
        dataset={},
        settings={},
    )
