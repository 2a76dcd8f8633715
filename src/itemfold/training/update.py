"""Updates: add new interactions, users and items to a run without retraining it.

Known users and items keep their rows and start from their trained vectors; vectors of new ones are
predicted from their neighbours. Training continues for a few epochs with the settings of the run;
no setting is selected again. The linear part is corrected or refitted, whichever is faster.
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

from itemfold.data.array_types import Floats
from itemfold.data.csr import as_ones
from itemfold.data.interactions import Interactions
from itemfold.data.items.item_features import ItemFeatures
from itemfold.data.joining import ItemCatalogue, Joined, described, join, joined_times
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.data.weights import fades, is_weighted
from itemfold.environment import pick_device
from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models.base import Kind, Model
from itemfold.models.ease import EASE
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.growth import check_growth, grown_weights
from itemfold.models.hybrid import Hybrid
from itemfold.models.hybrid_settings import renewed
from itemfold.models.linear_update import update_linear
from itemfold.models.rlae import RLAE
from itemfold.settings.resolve import Request, Settings, resolve
from itemfold.settings.schema import TrainConfig
from itemfold.training.fit import check
from itemfold.training.fitted import Context
from itemfold.training.loop import descend
from itemfold.training.new_data import grown_features, read_new
from itemfold.training.progress import watch
from itemfold.training.run import Run
from itemfold.training.run_folder import RunFolder
from itemfold.training.state import Best, DescentState, load_weights
from itemfold.training.strategies.candidates import MAX_DENSE_ITEMS
from itemfold.training.strategies.closed_form import solve
from itemfold.training.update_recency import check_weights, times_of, unweighted
from itemfold.training.updated_run import SECTION, UpdatedModel, updated_run
from itemfold.validation import positive_integer, shown

EPOCH_FRACTION = 0.1  # default epochs of an update, as a fraction of those of the run


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
    """Add new interactions, users and items to a run without retraining it.

    Known users and items keep their rows and start from their vectors. New ones start from the
    vectors of their neighbours. Training continues for a few epochs with the settings of the run. A
    linear part is corrected or refitted, whichever is faster. `run` is not modified.

    An update is for deployment: it holds no data out, so it has no test metrics. New data may
    contain held-out interactions of the run; this is not checked.

    Args:
        run: A run, or its folder.
        new: New interactions: a path, a frame, a sparse matrix, or what `read` and `load` return.
            Feedback stored by `itemfold serve` also works, including "postgres". Interactions that
            the run already has are ignored.
        out: The new run folder; without it, the run is not saved.
        epochs: Epochs of training; default: a tenth of those that the run was trained for. With 0,
            vectors of new users and items are only predicted from their neighbours.
        device: "cpu", "cuda" or "auto"; default: as the run was trained.
        progress: Show progress bars.
        **reading: Arguments of `read`; default: those of the run's own data. The run keeps its item
            features; `item_features` adds features of more items.

    Returns:
        The updated run. `run.metrics["update"]` summarises the update.

    Raises:
        ItemfoldError: The model cannot be updated, the data cannot be read, or `out` holds a run.

    Examples:
        >>> import polars as pl
        >>> import itemfold as ir
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
        raise ItemfoldError(f"'run' must be a Run or its folder, got {shown(run)}")
    if epochs not in (None, 0):
        positive_integer("epochs", epochs)
    check_weights(run)
    network = run.model.gnn if isinstance(run.model, Hybrid) else run.model.network
    if run.model.kind is not Kind.CLOSED_FORM and network is not None:
        check_growth(network, run.config["model"]["name"])
    table, before = reading.pop("item_features", None), run.config.get("data", {})
    if out is None:
        data = read_new(before, new, reading)
        features = grown_features(run.features, data, table)
        return _update(run, data, features, epochs, device, progress)
    folder = RunFolder(out)
    with folder.locked():
        folder.check_free(SECTION)
        data = read_new(before, new, reading)
        features = grown_features(run.features, data, table)
        found = _update(run, data, features, epochs, device, progress)
        folder.save(found)
    return found


def _update(
    run: Run,
    data: Interactions | None,
    features: ItemFeatures | None,
    epochs: int | None,
    device: str | None,
    progress: bool,
) -> Run:
    """The updated run, not yet saved."""
    started = time.perf_counter()
    catalogue = ItemCatalogue(run.item_ids, run.titles, run.genres)
    joined = join(unweighted(run), run.user_ids, catalogue, data)
    if features is not None:
        joined = replace(joined, catalogue=described(joined.catalogue, features))
    settings = _fixed_settings(run, device)
    if epochs is None:
        epochs = max(1, round(EPOCH_FRACTION * run.metrics["best_epoch"]))
    if joined.new_interactions:
        update_model = UPDATERS.get(run.model.kind, _update_vectors)
        times = joined_times(joined, run.times, data)
        split = _split_without_test(run, joined, times)
        outcome = update_model(run.model, joined, split, settings, epochs, progress)
        joined = replace(joined, train=split.recent(run.model.half_life).train)
    else:
        outcome, times = UpdatedModel(copy.deepcopy(run.model)), run.times
        joined = replace(joined, train=run.interactions)
    outcome = replace(outcome, seconds=time.perf_counter() - started)
    return updated_run(run, data, joined, outcome, features, times)


def _update_closed_form(
    old: Model, joined: Joined, split: Split, settings: Settings, epochs: int, progress: bool
) -> UpdatedModel:
    """Update EASE and RLAE the fastest way, and other closed forms by a refit."""
    model, how = _update_closed_form_model(
        old.fresh(), old, joined, split, settings.train, progress
    )
    return UpdatedModel(model, linear=how)


def _update_closed_form_model(
    model: Model,
    old: Model,
    joined: Joined,
    split: Split,
    config: TrainConfig,
    progress: bool,
) -> tuple[Model, str]:
    """A closed form for all interactions, and how it was computed from the old one."""
    is_exact = isinstance(model, EASE | RLAE) and type(model) is type(old)
    if not is_exact or is_weighted(split.train):  # recency changes every weight
        return solve(model, split, config, Context(progress=progress)), "refitted"
    assert isinstance(model, EASE | RLAE)
    assert isinstance(old, EASE | RLAE)
    generator = torch.Generator().manual_seed(config.seed)
    model.setup(joined.train, inductive=split.protocol == "inductive", generator=generator)
    model.to(pick_device(config.device))
    watch(model, show=progress)
    how = str(update_linear(model, old, joined.before, joined.train))
    return model.eval(), how


def _update_vectors(
    old: Model, joined: Joined, split: Split, settings: Settings, epochs: int, progress: bool
) -> UpdatedModel:
    """Add rows for new users and items to the vectors, and train for a few epochs."""
    assert isinstance(old, EmbeddingModel)
    model = old.fresh()
    check(settings, model, split)
    generator = torch.Generator().manual_seed(settings.train.seed)
    start = grown_weights(old, split.train, generator)
    if epochs:
        state = DescentState(phase="refit", best=Best(epoch=epochs))
        context = Context(progress=progress)
        descend(model, settings, split, state, context, valid=None, start=start)
        return UpdatedModel(model, epochs)
    model.setup(
        split.train,
        inductive=split.protocol == "inductive",
        generator=torch.Generator().manual_seed(0),
    )
    model.to(pick_device(settings.train.device))
    load_weights(model, start)
    model.eval()
    model.cache_embeddings(Graph.from_csr(split.train, model.device))
    return UpdatedModel(model, epochs)


def _update_hybrid(
    old: Model, joined: Joined, split: Split, settings: Settings, epochs: int, progress: bool
) -> UpdatedModel:
    """Update the linear part, then the network; the blend and the half-lives stay."""
    assert isinstance(old, Hybrid)
    whole, split = split, split.recent(old.half_life)
    check(settings, old.fresh(), split)
    further = [part for part in old.parts if part not in (old.gnn, old.linear)]
    for part in further:
        if part.kind is not Kind.CLOSED_FORM:
            raise ItemfoldError(
                f"a hybrid with {type(part).__name__} cannot be updated: train a new run"
            )
    how, linear, gnn = "", old.linear, old.gnn
    if linear is not None:
        fresh = _with_room_for_new_items(linear, old.n_items, split, settings.train)
        linear, how = _update_closed_form_model(
            fresh, linear, joined, split, settings.train, progress
        )
    others = [
        _update_closed_form_model(part.fresh(), part, joined, split, settings.train, progress)[0]
        for part in further
    ]
    if gnn is not None:
        found = _update_vectors(gnn, joined, split, settings, epochs, progress).model
        assert isinstance(found, EmbeddingModel)
        gnn = found
    model = Hybrid(**{**old.settings, "gnn": gnn, "linear": linear, "others": others or None})
    recent = old.popularity_half_life
    model.count(whole.train, whole.recent(recent).train if fades(recent) else None)
    model.restore(split.train)
    return UpdatedModel(model.eval(), 0 if gnn is None else epochs, how)


UPDATERS: dict[Kind, Callable[..., UpdatedModel]] = {  # all others: `_update_vectors`
    Kind.CLOSED_FORM: _update_closed_form,
    Kind.HYBRID: _update_hybrid,
}


def _with_room_for_new_items(
    linear: Model, before: int, split: Split, config: TrainConfig
) -> Model:
    """A new linear part; if the old one covered all items, it also covers the new ones.

    The number of items is limited by the device.
    """
    items = linear.settings.get("items")
    if items is None or items < before:
        return renewed(linear)
    most = MAX_DENSE_ITEMS["cuda" if pick_device(config.device).type == "cuda" else "cpu"]
    return renewed(linear, items=min(max(most, items), split.n_items))


def _fixed_settings(run: Run, device: str | None) -> Settings:
    """The settings of the run, none of which is left open."""
    train = dict(run.config["train"])
    if device is not None:
        train["device"] = device
    pick_device(train.get("device", "auto"))
    lists = {name: run.config[name] for name in ("loss", "negatives")}
    lists = lists if run.model.kind.has_lists else {}
    return resolve(Request({"model": run.model, **lists, "train": train}))


def _split_without_test(run: Run, joined: Joined, times: Floats | None) -> Split:
    """A split with all interactions as training data."""
    known = None if times is None else times_of(joined.train, joined.user_ids, times)
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
        dataset={"name": run.dataset["name"]},
        settings={},
        times=known,
    )
