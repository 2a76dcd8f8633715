"""How much each part of a hybrid counts: prior and weight, chosen on validation.

Both numbers are chosen from short lists of values, one after the other, several times. With few
validation users the best value is a matter of luck, so of all values that are not worse than the
best by more than a standard error the one nearest to a typical value is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from torch import Tensor

from itemrec.data.split import HeldOut
from itemrec.evaluation.evaluator import Evaluator
from itemrec.models.hybrid import Hybrid, standardised
from itemrec.training.progress import track

TYPICAL = (0.4, 1.5)  # prior, weight; inner products contain popularity already: prior 0
PRIORS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.55, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0, 3.0)
WEIGHTS = (0.0, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0, 16.0)
NEARBY = (0.5, 0.7, 1.0, 1.4, 2.0)  # factors that are tried for users of similar activity
GROUPS = 3  # of users, by the length of their history
Values = npt.NDArray[np.float64]
History = sp.csr_array
Blend = tuple[float, float]  # prior, weight
Rows = tuple[tuple[float, ...], ...]  # least length of a history, prior, weight


class BlendSearch:
    """Compares blends of a hybrid whose parts are trained."""

    def __init__(self, model: Hybrid, valid: HeldOut, metric: str, seed: int) -> None:
        self.model, self.metric = model, metric
        self.evaluator = Evaluator(valid, model.table.device)
        self.held = self.evaluator.held
        self.generator = np.random.default_rng(seed)

    def run(self, *, progress: bool) -> tuple[Rows, Values]:
        """The rows of the setting ``blend``, and every user's metric with the best single one."""
        typical = TYPICAL[0] if self.model.temperature else 0.0
        prior, weight = typical, TYPICAL[1]
        stages = ("weight", "prior", "weight", "prior", "weight")
        for stage in track(stages, "blending the parts", show=progress):
            if stage == "prior":
                options = [(value, weight) for value in PRIORS]
                prior = PRIORS[self.best(options, PRIORS.index(typical))]
            else:
                options = [(prior, value) for value in WEIGHTS]
                weight = WEIGHTS[self.best(options, WEIGHTS.index(TYPICAL[1]))]
        return self.by_length(prior, weight), self.values([(prior, weight)])[0]

    def best(self, blends: Sequence[Blend], typical: int) -> int:
        """Position of a blend that is as good as the best, as near to the typical one as can be."""
        values = self.values(blends)
        behind = values[values.mean(1).argmax()] - values  # [blends, users]
        error = behind.std(1) / np.sqrt(behind.shape[1])
        good = np.flatnonzero(behind.mean(1) <= error)
        return int(good[np.abs(good - typical).argmin()])

    def by_length(self, prior: float, weight: float) -> Rows:
        """Rows of (least length, prior, weight): one for all, or one a group of users.

        Groups are used if what one half of the users chooses is better for the other half, too.
        """
        one = ((0.0, prior, weight),)
        length = np.diff(self.held.history.indptr)
        cuts = np.quantile(length, np.arange(1, GROUPS) / GROUPS, method="higher").astype(int)
        bounds = np.unique([0, *cuts[cuts > length.min()]])  # every group has users
        group = np.searchsorted(bounds, length, side="right") - 1
        nearby = [(prior * f, weight * g) for f in NEARBY for g in NEARBY]
        options = [(prior, weight), *nearby]  # the first of equals is taken
        values = self.values(options)
        base = values[0]
        half = self.generator.permutation(len(length)) % 2
        gain = np.zeros(len(length))
        for side in (0, 1):
            for part in range(len(bounds)):
                chosen = _best_of(values, (group == part) & (half == side))
                there = (group == part) & (half != side)
                gain[there] = (values[chosen] - base)[there]
        error = gain.std() / np.sqrt(len(gain))
        if gain.mean() <= 2 * error:
            return one
        found = [options[_best_of(values, group == part)] for part in range(len(bounds))]
        return tuple((float(least), *row) for least, row in zip(bounds, found, strict=True))

    def values(self, blends: Sequence[Blend]) -> Values:
        """The metric of every user for every blend, ``[blends, users]``."""
        return self.evaluator.compare(self._scorings(blends), self.metric)

    def _scorings(
        self, blends: Sequence[Blend]
    ) -> Callable[[History, npt.NDArray[np.int64]], Iterator[Tensor]]:
        """The blended scores of a block of users; the parts are computed once."""
        model = self.model

        def scorings(history: History, users: npt.NDArray[np.int64]) -> Iterator[Tensor]:
            vectors = model.gnn.vectors_of(history, users)
            linear = standardised(model.linear.scores(history, users))
            own = standardised(vectors @ model.table.T)
            for prior, weight in blends:
                yield own.add(model.popularity, alpha=prior).add_(linear, alpha=weight)

        return scorings


def _best_of(values: Values, users: npt.NDArray[np.bool_]) -> int:
    """The option with the highest sum over these users."""
    return int(values[:, users].sum(1).argmax())
