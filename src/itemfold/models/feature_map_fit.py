"""Selection of the settings of a feature map, on known items left out of the regression.

Some known items are treated as new: they are removed from the regression and from the histories.
The users' interactions with them determine the regularisation and the weight of each part, as in a
conditional logit model: the likelihood of a user's items among all that were left out. Each of many
folds leaves out few items, since a new item meets nearly all known items: its best predictors, such
as the other parts of a series, must not be left out with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.csr import take_entries
from itemfold.data.items.feature_matrix import FeatureMatrix
from itemfold.models.base import Model
from itemfold.models.feature_map import (
    Floats,
    MapSettings,
    Ridge,
    item_weights,
    scaled_history,
    similarities,
    smoother,
)

FOLDS = 20  # at most
SHARE, ITEMS = 0.03, (40, 800)  # fraction of the known items in a fold, and bounds of their number
PARTS = 5  # folds of a small catalogue
FEWEST, USERS = 20, 200  # users of a fold
ENTRIES = 2**26  # scores of all folds in memory, unless that leaves too few users
HALF = (0.0, 10.0, 30.0)
L2 = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
SIMILAR = (  # power and prior
    *((1.0, 3.0), (2.0, 3.0), (2.0, 1.0), (3.0, 0.3), (4.0, 0.1)),
    *((4.0, 0.03), (6.0, 0.03), (8.0, 0.01)),
)
NAMES = ("scores", "history", "similar_scores", "similar_history")  # of the weights
CHOOSING = "choosing the map of features"  # text of the progress bar
PENALTY = 1e-3  # on the squared weights, so that they are finite
STEPS, HALVINGS, ENOUGH = 12, 6, 1e-5  # of Newton's method: steps, tries, least gain


@dataclass(frozen=True)
class Fold:
    """Users, and the items that are left out."""

    scores: Floats  # [U, items] standardised
    history: Floats  # [U, items] without the items that are left out
    target: npt.NDArray[np.bool_]  # [U, out]
    kept: FeatureMatrix
    out: FeatureMatrix
    degree: npt.NDArray[np.int64]  # [kept]
    kept_items: npt.NDArray[np.int64]
    out_items: npt.NDArray[np.int64]


def choose_map(model: Model, train: sp.csr_array, known: FeatureMatrix) -> MapSettings:
    """Settings for the new items of a model; the defaults if there are too few known items.

    Uses the training interactions only, none that were held out.
    """
    folds = list(make_folds(model, train, known))
    if not folds:
        return MapSettings()
    best = MapSettings(similar_scores=0.0, similar_history=0.0)
    fit, z, parts = -np.inf, list[Floats](), list[list[Floats]]()
    options = [*(("half", half) for half in HALF), *(("l2", l2) for l2 in L2 if l2 != best.l2)]
    for name, option in model.watch(options, CHOOSING):
        tried = replace(best, **{name: option})
        found = [_regress(fold, tried, fold.out)[0] for fold in folds]
        value, weights = fit_weights(found, folds)
        if value > fit:
            fit, parts, z = value, found, _combined(found, weights)
            best = replace(tried, **_named(weights))
    if known.words.nnz:
        # residuals of the regression of scores and histories, for the kept items
        pairs = [zip(*_regress(fold, best, fold.kept), strict=True) for fold in folds]
        rests = [[target - found for found, target in pair] for pair in pairs]
        kept = [item_weights(fold.degree, best.half) for fold in folds]
        cosines = [similarities(fold.out.words, fold.kept.words) for fold in folds]
        for power, prior in model.watch(SIMILAR, CHOOSING):
            matrices = [
                smoother(matrix, weights, power, prior)
                for matrix, weights in zip(cosines, kept, strict=True)
            ]
            more = [
                [*own, *((matrix @ rest.T).T for rest in pair)]
                for own, matrix, pair in zip(parts, matrices, rests, strict=True)
            ]
            value, weights = fit_weights(more, folds)
            if value > fit:
                fit, z = value, _combined(more, weights)
                best = replace(best, power=power, prior=prior, **_named(weights))
    return _calibrated(best, folds, z)


def make_folds(model: Model, train: sp.csr_array, known: FeatureMatrix) -> Iterator[Fold]:
    """Folds of random items, with users who have items both inside and outside the fold."""
    rng = np.random.default_rng(0)
    n_items = int(train.shape[1])
    degree = np.bincount(train.indices, minlength=n_items)
    seen = np.flatnonzero(degree)
    size = min(len(seen) // PARTS, int(np.clip(SHARE * len(seen), *ITEMS)))
    folds = min(FOLDS, len(seen) // size) if size else 0
    most = min(max(ENTRIES // max(folds * len(seen), 1), FEWEST), USERS)
    left_out = rng.permutation(seen)[: folds * size].reshape(folds, size)
    for chosen in model.watch(left_out, "leaving items out"):
        is_out = np.zeros(n_items, dtype=np.bool_)
        is_out[chosen] = True
        hidden = is_out[train.indices]
        kept = take_entries(train, ~hidden)
        gone = take_entries(train, hidden)
        users = np.flatnonzero((np.diff(kept.indptr) > 0) & (np.diff(gone.indptr) > 0))
        users = np.sort(rng.permutation(users)[:most])
        if not len(users):
            continue
        out_items = np.flatnonzero(is_out)
        kept_items = seen[~is_out[seen]]
        history = sp.csr_array(kept[users])
        # by history alone, if the model can: a trained user vector has seen what is left out
        rows = np.full(len(users), -1) if model.inductive else users
        scores = model.scores(history, rows.astype(np.int64)).float().cpu().numpy()
        yield Fold(
            standardise(scores)[0],
            scaled_history(history),
            gone[users].toarray()[:, out_items] > 0,
            known.take(kept_items),
            known.take(out_items),
            degree[kept_items],
            kept_items,
            out_items,
        )


def standardise(scores: Floats) -> tuple[Floats, Floats, Floats]:
    """Scores with mean 0 and deviation 1 for each user, the means and the deviations."""
    mean = scores.mean(axis=1, keepdims=True)
    deviation = np.maximum(scores.std(axis=1, keepdims=True), 1e-12)
    return (scores - mean) / deviation, mean, deviation


def _regress(
    fold: Fold, settings: MapSettings, items: FeatureMatrix
) -> tuple[list[Floats], list[Floats]]:
    """Scores and histories of the kept items, regressed: predictions for items, and targets."""
    ridge = Ridge(fold.kept.regressors, item_weights(fold.degree, settings.half), settings.l2)
    targets = [fold.scores[:, fold.kept_items], fold.history[:, fold.kept_items]]
    return [ridge.predict(ridge.fit(target), items.regressors) for target in targets], targets


def _named(weights: npt.NDArray[np.float64]) -> dict[str, float]:
    return {name: float(value) for name, value in zip(NAMES, weights, strict=False)}


def _combined(parts: list[list[Floats]], weights: npt.NDArray[np.float64]) -> list[Floats]:
    return [np.tensordot(weights.astype(np.float32), np.stack(own), axes=1) for own in parts]


def fit_weights(
    parts: list[list[Floats]], folds: list[Fold]
) -> tuple[float, npt.NDArray[np.float64]]:
    """Log-likelihood and weights of a conditional logit model, by Newton's method."""
    spread = np.sqrt(np.mean([[part.var() for part in own] for own in parts], axis=0))
    spread = np.maximum(spread, 1e-9)
    stacked = [np.stack(own, axis=-1) / spread.astype(np.float32) for own in parts]  # [U, out, k]
    share = [fold.target / fold.target.sum(axis=1, keepdims=True) for fold in folds]
    weights = np.zeros(len(spread))
    value, slope, bend = likelihood(weights, stacked, share)
    for _ in range(STEPS):
        step = np.linalg.solve(bend, slope)
        for _ in range(HALVINGS):
            found = likelihood(weights + step, stacked, share)
            if found[0] > value:
                break
            step = step / 2
        else:
            break
        gain, weights = found[0] - value, weights + step
        value, slope, bend = found
        if gain < ENOUGH:
            break
    return value, weights / spread


def likelihood(
    weights: npt.NDArray[np.float64], parts: list[Floats], share: list[npt.NDArray[np.float64]]
) -> tuple[float, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Penalised log-likelihood per user, its gradient, and its negative Hessian."""
    k, users = len(weights), sum(len(t) for t in share)
    value = -PENALTY * float(weights @ weights)
    slope, bend = -2 * PENALTY * weights, 2 * PENALTY * np.eye(k)
    for t, x in zip(share, parts, strict=True):  # [U, out] and [U, out, k]
        z = x @ weights.astype(np.float32)
        z -= z.max(axis=1, keepdims=True)
        p = np.exp(z)
        total = p.sum(axis=1, keepdims=True)
        p /= total
        value += float((t * (z - np.log(total))).sum()) / users
        flat = x.reshape(-1, k)
        mean = np.matmul(p[:, None, :], x)[:, 0]  # [U, k]
        slope = slope + (t.reshape(-1) @ flat - mean.sum(axis=0)) / users
        bend = bend + ((flat * p.reshape(-1, 1)).T @ flat - mean.T @ mean) / users
    return value, slope, bend


def _calibrated(settings: MapSettings, folds: list[Fold], z: list[Floats]) -> MapSettings:
    """Shift and scale z so that items left out have the mean and the spread of their real scores.

    A new item then ranks where a similar known item would.
    """
    real = np.concatenate([fold.scores[:, fold.out_items].ravel() for fold in folds])
    made = np.concatenate([part.ravel() for part in z])
    scale = float(real.std() / max(float(made.std()), 1e-12)) or 1.0
    return replace(settings, scale=scale, shift=float(real.mean() - scale * made.mean()))
