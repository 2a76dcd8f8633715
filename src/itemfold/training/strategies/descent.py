"""Gradient descent: select the epoch on validation, then train on all data."""

from __future__ import annotations

from itemfold.data.splitting.split import Split
from itemfold.settings.resolve import Settings
from itemfold.training.across_ranks import sharded
from itemfold.training.fitted import Context, FittedModel
from itemfold.training.loop import descend
from itemfold.training.state import DescentState


def fit(settings: Settings, split: Split, state: DescentState, context: Context) -> FittedModel:
    """Train a model, or continue an interrupted training from ``state``."""
    model, refits, selected = sharded(settings.make_model()), settings.refits(split), None
    if state.phase == "select":
        descend(model, settings, split, state, context, valid=split.valid)
        refits, selected = refits and not state.stopped, model
        state.begin_refit()
    if refits:
        model, whole = sharded(settings.make_model()), split.refit()
        descend(model, settings, whole, state, context, valid=None)
        if not state.stopped:
            split = whole
        elif selected is not None:  # better than a refit of only a few epochs
            model, refits = selected, False
        else:
            raise KeyboardInterrupt
    model.unshard()
    return FittedModel(
        model=model,
        settings=settings,
        train=split.train,
        refit=refits,
        seconds=state.seconds,
        best_epoch=state.best.epoch,
        epochs=state.selected_epochs,
        valid=state.best.metrics,
        history=state.history,
        complete=not state.stopped,
        notes=_notes(state),
    )


def _notes(state: DescentState) -> tuple[str, ...]:
    if not state.first_validation_best:
        return ()
    return (
        f"The first validation, after epoch {state.best.epoch}, was the best: validate earlier "
        "(train.eval_early) or lower train.lr, since a better epoch may have been missed.",
    )
