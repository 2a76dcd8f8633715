"""How much each part of a hybrid counts: prior and weights, chosen on validation.

The numbers are chosen from short lists of values, one after the other, several times. With few
validation users the best value is a matter of luck, so of all values that are not worse than the
best by more than a standard error the one nearest to a typical value is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from torch import Tensor

from itemfold.data.split import HeldOut
from itemfold.evaluation.evaluator import Evaluator
from itemfold.models.hybrid import Hybrid, Rows
from itemfold.training.progress import track

PRIORS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.55, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0, 3.0)
WEIGHTS = (0.0, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0, 16.0)
ROUNDS = 3  # in which every weight is chosen; the prior is chosen between them
NEARBY = (0.5, 0.7, 1.0, 1.4, 2.0)  # factors that are tried for users of similar activity
GROUPS = 3  # of users, by the length of their history
UserValues = npt.NDArray[np.float64]
Blend = tuple[float, ...]  # prior, weight of each part after the first


class BlendSearch:
    """Compares blends of a hybrid whose parts are trained.

    ``has_prior`` says whether the typical prior is above 0: inner products contain popularity
    already.
    """

    def __init__(
        self, model: Hybrid, valid: HeldOut, metric: str, seed: int, *, has_prior: bool
    ) -> None:
        self.model, self.metric, self.has_prior = model, metric, has_prior
        self.evaluator = Evaluator(valid, model.device)
        self.held = self.evaluator.held
        self.generator = np.random.default_rng(seed)

    def run(self, *, progress: bool) -> tuple[Rows, UserValues]:
        """The rows of the setting ``blend``, and every user's metric with the best single one."""
        _, prior, *weights = self.model.typical_blend()[0]
        typical = (prior if self.has_prior else 0.0, *weights)
        blend, places = typical, range(1, len(typical))
        order = [place for _ in range(ROUNDS) for place in (*places, 0)][: -1 if places else 1]
        for place in track(order, "blending the parts", show=progress):
            choices = WEIGHTS if place else PRIORS
            options = [(*blend[:place], value, *blend[place + 1 :]) for value in choices]
            blend = options[self.best(options, choices.index(typical[place]))]
        return self.by_length(blend), self.values([blend])[0]

    def best(self, blends: Sequence[Blend], typical: int) -> int:
        """Position of a blend that is as good as the best, as near to the typical one as can be."""
        values = self.values(blends)
        behind = values[values.mean(1).argmax()] - values  # [blends, users]
        error = behind.std(1) / np.sqrt(behind.shape[1])
        good = np.flatnonzero(behind.mean(1) <= error)
        return int(good[np.abs(good - typical).argmin()])

    def by_length(self, blend: Blend) -> Rows:
        """Rows of (least length, prior, weights): one for all, or one for each group of users.

        Groups are used if what one half of the users chooses is better for the other half, too.
        """
        prior, *weights = blend
        length = np.diff(self.held.history.indptr)
        cuts = np.quantile(length, np.arange(1, GROUPS) / GROUPS, method="higher").astype(int)
        bounds = np.unique([0, *cuts[cuts > length.min()]])  # every group has users
        group = np.searchsorted(bounds, length, side="right") - 1
        nearby = [(prior * f, *(w * g for w in weights)) for f in NEARBY for g in NEARBY]
        options = [blend, *nearby]  # the first of equals is taken
        values = self.values(options)
        base = values[0]
        half = self.generator.permutation(len(length)) % 2
        gain = np.zeros(len(length))

        def best_for(users: npt.NDArray[np.bool_]) -> int:
            return int(values[:, users].sum(1).argmax())

        for side in (0, 1):
            for part in range(len(bounds)):
                chosen = best_for((group == part) & (half == side))
                there = (group == part) & (half != side)
                gain[there] = (values[chosen] - base)[there]
        error = gain.std() / np.sqrt(len(gain))
        if gain.mean() <= 2 * error:
            return ((0.0, *blend),)
        found = [options[best_for(group == part)] for part in range(len(bounds))]
        return tuple((float(least), *row) for least, row in zip(bounds, found, strict=True))

    def values(self, blends: Sequence[Blend]) -> UserValues:
        """The metric of every user for every blend, ``[blends, users]``; parts are scored once."""
        model = self.model

        def scores_per_blend(
            history: sp.csr_array, users: npt.NDArray[np.int64]
        ) -> Iterator[Tensor]:
            own, *rest = (s.div_(spread) for s, spread in model.part_scores(history, users))
            for prior, *weights in blends:
                total = own.add(model.popularity, alpha=prior)
                for weight, scores in zip(weights, rest, strict=True):
                    total.add_(scores, alpha=weight)
                yield total

        return self.evaluator.compare(scores_per_blend, self.metric)
