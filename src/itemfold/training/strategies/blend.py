"""The weight of each part of a hybrid, selected on validation.

The search starts from the best single part. Each step adds a part or changes a weight, as long as
the metric improves. Among the sums on this path that are within one standard error of the best, the
search takes the one with the fewest parts. So on validation the sum is not below any of its parts,
every single part can be selected, and a part whose gain is within noise is left out.

Among equally good weights, the linear part gets the smallest one and, without times, popularity the
largest: both do better when the data drifts (docs/research).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from itemfold import ranks
from itemfold.data.splitting.split import HeldOut
from itemfold.evaluation.evaluator import Evaluator
from itemfold.evaluation.metrics import METRICS, parse_metric
from itemfold.evaluation.ranking import largest, mask_history
from itemfold.models.base import Model
from itemfold.models.hybrid import typical_weights
from itemfold.models.score_deviation import standardise_
from itemfold.ops.thread_map import map_of
from itemfold.training.strategies.noise import (
    UserValues,
    has_few_users,
    is_clear,
    standard_error,
)
from itemfold.training.strategies.pool import Pool

# Weights that a step of the search tries.
NEW_WEIGHTS = (0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0, 6.0)  # of a new part, × the largest weight
NEW_PRIORS = (0.2, 0.45, 1.0, 2.5)  # the same for the prior, if there are several half-lives
FACTORS = (0.0, 0.5, 0.7, 1.4, 2.0)  # × the weight of a part of the sum; 0 removes the part
MIN_GAIN = 0.0005  # relative gain of a step
MAX_STEPS = 12
MAX_STEP_USERS = 2500  # users on whom steps are compared

# Weights that count as equally good: the relative loss of the metric that is accepted.
LINEAR_TOLERANCE = 0.003  # for a smaller weight of the linear part
PRIOR_TOLERANCE = 0.005  # for a larger weight of popularity

# Groups of users by history length.
N_GROUPS = 3
MIN_GROUP_USERS = 50
GROUP_FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)  # × the weights of the sum for all users

POOL_FACTOR = 5  # sums are ranked among the best POOL_FACTOR × k items of each part
USER_BATCH = 256  # users scored at a time
Users = npt.NDArray[np.int64] | slice  # positions of validation users
ALL_USERS = slice(None)


@dataclass(frozen=True)
class Blend:
    """A weighted sum of popularity and other parts.

    Attributes:
        half_life: The half-life of the popularity prior.
        prior: The weight of the popularity prior.
        weights: The weight of each part.
    """

    half_life: str
    prior: float
    weights: tuple[float, ...]

    def with_weight(self, part: int, weight: float) -> Blend:
        """The blend with another weight of one part."""
        return replace(self, weights=(*self.weights[:part], weight, *self.weights[part + 1 :]))

    @property
    def n_parts(self) -> int:
        """Number of parts with a positive weight, including the prior."""
        return sum(weight > 0 for weight in (self.prior, *self.weights))


class BlendSearch:
    """Compares blends on validation users; the scores of each part are computed once.

    A blend is ranked among the best items of each part only, which with rare exceptions contain the
    best items of the sum. With several ranks, each rank scores its own users.

    Args:
        valid: Validation users.
        popularity: Standardised log popularity by half-life, the longest first, `[items]` each.
        metric: The metric to maximise.
        device: Where scores are computed.
        seed: Seed of the division of users into halves.
    """

    def __init__(
        self,
        valid: HeldOut,
        popularity: Mapping[str, Tensor],
        metric: str,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        self.evaluator = Evaluator(valid, device)
        self.held = self.evaluator.held
        self.own_rows = np.arange(self.evaluator.own.start, self.evaluator.own.stop)
        self.popularity, self.device, self.seed = dict(popularity), device, seed
        self.metric = parse_metric(metric)
        self.names: list[str] = []
        self.part_scores: list[Tensor] = []  # standardised, [own users, items] for each part
        self.part_items: list[Tensor] = []  # the best items, [own users, pool_size] for each part
        n_items, k = self.evaluator.n_items, self.metric.k
        self.pool_size = n_items if k is None else min(POOL_FACTOR * k, n_items)
        self._pool: Pool | None = None
        self._subset: tuple[Users, Pool, Pool] | None = None

    # --- parts -----------------------------------------------------------------------------------

    @torch.no_grad()
    def add(self, name: str, model: Model) -> None:
        """Add the scores of a part; a part of the same name is replaced."""
        held = self.held.take(self.own_rows)
        if name not in self.names:
            self.names.append(name)
            self.part_scores.append(torch.empty(held.history.shape, device=self.device))
            self.part_items.append(torch.empty(0))
        part, best = self.names.index(name), list[Tensor]()
        for start in range(0, len(held), USER_BATCH):
            batch = slice(start, start + USER_BATCH)
            scores = model.scores(held.history[batch], held.users[batch])
            finite = torch.isfinite(scores)
            if not bool(finite.all()):  # items without a score come last
                scores = torch.where(finite, scores, scores[finite].min())
            self.part_scores[part][batch] = standardise_(scores)
            if not held.repeats:
                scores = mask_history(scores, held.history[batch])
            best.append(largest(scores, self.pool_size)[1])
        empty = torch.empty((0, self.pool_size), dtype=torch.int64, device=self.device)
        self.part_items[part] = torch.cat(best or [empty])  # a rank may have no users
        self._pool = None

    def single_part(self, name: str) -> Blend:
        """The blend of one part alone."""
        weights = tuple(float(each == name) for each in self.names)
        return Blend(self.longest_half_life, 0.0, weights)

    def popularity_alone(self, half_life: str) -> Blend:
        """The blend of popularity alone."""
        return Blend(half_life, 1.0, (0.0,) * len(self.names))

    def padded(self, blend: Blend) -> Blend:
        """An earlier blend, with weight 0 for each part added since."""
        missing = len(self.names) - len(blend.weights)
        return replace(blend, weights=(*blend.weights, *(0.0 for _ in range(missing))))

    @property
    def longest_half_life(self) -> str:
        """The half-life of the popularity that decays least."""
        return next(iter(self.popularity))

    # --- search ----------------------------------------------------------------------------------

    def run(self, start: Blend | None = None, users: Users = ALL_USERS) -> tuple[Blend, UserValues]:
        """The best blend for some users, and its metric for every user."""
        best = self.simplest_best(users) if start is None else self.padded(start)
        found = self._safest_weights(*self._climb(best, users), users)
        if not self.prefers_typical or not self.names:
            return found
        typical = self.typical()
        value = self.values([typical])[0]
        return found if is_clear((found[1] - value)[users]) else (typical, value)

    def _climb(self, start: Blend, users: Users) -> tuple[Blend, UserValues]:
        """Improve a blend step by step; the simplest blend on the path that is as good as the best.

        Steps are compared on a sample of the users, the blends on the path on all of them.
        """
        best, path, sample = start, [start], self._sample(users)
        value = float(self.values(path, sample).mean())
        for _ in range(MAX_STEPS):
            steps = self._steps(best)
            means = self.values(steps, sample).mean(1)
            at = int(means.argmax())
            if means[at] <= value * (1 + MIN_GAIN):
                break
            best, value = steps[at], float(means[at])
            path.append(best)
        values = self.values(path)
        means = values[:, users].mean(1)
        good = _as_good_as_best(values[:, users])
        fewest = min(path[i].n_parts for i in good)
        chosen = max((i for i in good if path[i].n_parts == fewest), key=lambda i: float(means[i]))
        return path[chosen], values[chosen]

    def _sample(self, users: Users) -> npt.NDArray[np.int64]:
        """Positions of at most `MAX_STEP_USERS` of the users, evenly spaced."""
        rows = np.arange(len(self.held))[users]
        n_sample = min(len(rows), MAX_STEP_USERS)
        return rows[np.linspace(0, len(rows) - 1, n_sample).astype(np.int64)]

    def simplest_best(self, users: Users = ALL_USERS) -> Blend:
        """The best single part, or a simpler one that is as good: simpler ones come first."""
        singles = [self.popularity_alone(half_life) for half_life in self.popularity]
        singles += [self.single_part(name) for name in self.names]
        return singles[_as_good_as_best(self.values(singles)[:, users])[0]]

    @property
    def prefers_typical(self) -> bool:
        """Whether typical weights stay unless others are clearly better.

        True if only few users validate, all of them new, and the data has no times.
        """
        return len(self.popularity) == 1 and has_few_users(self.held)

    def typical(self) -> Blend:
        """The blend to use if none can be selected."""
        prior, weights = typical_weights(self.names)
        return Blend(self.longest_half_life, prior, weights)

    def keep_half_life(self, half_life: str) -> None:
        """Restrict the prior to popularity with this half-life or the longest one."""
        kept = (self.longest_half_life, half_life)
        self.popularity = {name: self.popularity[name] for name in self.popularity if name in kept}

    def _steps(self, blend: Blend) -> list[Blend]:
        """All blends with one part more, one part less, or one weight changed."""
        largest_weight = max(blend.prior, *blend.weights, 0.0)
        out = []
        for half_life in self.popularity:
            if blend.prior and half_life == blend.half_life:
                priors = [blend.prior * factor for factor in FACTORS]
            else:
                relative = NEW_WEIGHTS if len(self.popularity) == 1 else NEW_PRIORS
                priors = [largest_weight * weight for weight in relative]
            out += [replace(blend, half_life=half_life, prior=prior) for prior in priors]
        for part, weight in enumerate(blend.weights):
            base, factors = (weight, FACTORS) if weight else (largest_weight, NEW_WEIGHTS)
            out += [blend.with_weight(part, base * factor) for factor in factors]
        return [each for each in out if each.n_parts]

    def _safest_weights(
        self, blend: Blend, value: UserValues, users: Users
    ) -> tuple[Blend, UserValues]:
        """Among equally good blends, one with more popularity and the least linear weight.

        With times, the weight of popularity stays: a validation period shows how large it should
        be.
        """
        more = (2.0, 1.4, 1.0) if blend.prior and len(self.popularity) == 1 else (1.0,)
        linear = self.names.index("linear") if "linear" in self.names else None
        less = (0.5, 0.7, 0.85, 1.0) if linear is not None and blend.weights[linear] else (1.0,)
        if blend.n_parts < 2:
            return blend, value
        options = [replace(blend, prior=blend.prior * factor) for factor in more]
        if linear is not None:
            weight = blend.weights[linear]
            options = [each.with_weight(linear, weight * f) for each in options for f in less]
        for option, found in zip(options, self.values(options), strict=True):
            behind = (value - found)[users]
            tolerance = LINEAR_TOLERANCE if option.prior == blend.prior else PRIOR_TOLERANCE
            accepted = min(standard_error(behind), tolerance * float(value[users].mean()))
            if behind.mean() <= accepted:
                return option, found
        return blend, value

    def by_history_length(
        self, blend: Blend, users: Users = ALL_USERS
    ) -> list[tuple[float, Blend]]:
        """Blends by minimum history length: one for all users, or one for each group.

        Groups are used only if blends selected on one half of the users are better for the other
        half.
        """
        length = np.diff(self.held.history.indptr)[users]
        cuts = np.quantile(length, np.arange(1, N_GROUPS) / N_GROUPS, method="higher").astype(int)
        bounds = np.unique([0, *cuts[cuts > length.min()]])  # every group has users
        group = np.searchsorted(bounds, length, side="right") - 1
        options = [blend] + [
            replace(blend, prior=blend.prior * f, weights=_scale_all_but_first(blend.weights, g))
            for f in GROUP_FACTORS
            for g in GROUP_FACTORS
        ]
        values = self.values(options)[:, users]
        half = np.random.default_rng(self.seed).permutation(len(length)) % 2
        gain = np.zeros(len(length))

        def best_for(users: npt.NDArray[np.bool_]) -> int:
            return int(values[:, users].sum(1).argmax())  # the first of equals

        for side in (0, 1):
            for number in range(len(bounds)):
                chosen = best_for((group == number) & (half == side))
                others = (group == number) & (half != side)
                gain[others] = (values[chosen] - values[0])[others]
        few = len(length) < N_GROUPS * MIN_GROUP_USERS
        if few or blend.n_parts < 2 or gain.mean() <= 2 * standard_error(gain):
            return [(0.0, blend)]
        found = [options[best_for(group == number)] for number in range(len(bounds))]
        return [(float(least), row) for least, row in zip(bounds, found, strict=True)]

    # --- values ----------------------------------------------------------------------------------

    @torch.no_grad()
    def values(self, blends: Sequence[Blend], users: Users = ALL_USERS) -> UserValues:
        """The metric of every blend for some users, ``[blends, users]``."""
        self._pool = pool = self._pool or self._build_pool()
        n_target = self.n_target
        if users is not ALL_USERS and ranks.size() == 1:
            pool, n_target = self._pool_of(pool, users), n_target[users]
        depth = min(self.metric.k or self.evaluator.n_items, self.evaluator.n_items)

        def of_users(blend: Blend) -> UserValues:
            hits = pool.hits(blend.half_life, blend.prior, blend.weights, depth).cpu().numpy()
            return METRICS[self.metric.name](hits, n_target, depth)

        with map_of(self.device) as each:
            out = list(each(of_users, blends))
        found = np.ascontiguousarray(ranks.gather_rows(np.stack(out, axis=1)).T)  # [blends, users]
        return found if ranks.size() == 1 else found[:, users]

    def _pool_of(self, pool: Pool, users: Users) -> Pool:
        """The rows of some users of the pool; cached, since a search asks for the same users."""
        if self._subset is None or self._subset[0] is not users or self._subset[1] is not pool:
            rows = torch.from_numpy(np.arange(len(self.held))[users]).to(self.device)
            self._subset = users, pool, pool.take(rows)
        return self._subset[2]

    @property
    def n_target(self) -> npt.NDArray[np.int64]:
        """Number of targets of each of this rank's users."""
        return self.evaluator.n_target[self.own_rows]

    def _build_pool(self) -> Pool:
        """The best items of all parts for each of this rank's users."""
        n_items, size = self.evaluator.n_items, self.pool_size
        longest = int(np.diff(self.held.history.indptr).max(initial=0))  # of all ranks
        most = min(size + min(longest, size), n_items)
        popular = [torch.topk(each, most).indices for each in self.popularity.values()]
        shared = torch.unique(torch.cat(popular)).expand(len(self.own_rows), -1)
        items = torch.cat([shared, *self.part_items], dim=1)
        held = self.held.take(self.own_rows)
        return Pool.of(items, held, self.part_scores, self.popularity)


def _as_good_as_best(values: UserValues) -> list[int]:
    """Rows of ``[blends, users]`` whose mean is within one standard error of the best mean."""
    behind = values[values.mean(1).argmax()] - values
    return [i for i, row in enumerate(behind) if row.mean() <= standard_error(row)]


def _scale_all_but_first(weights: tuple[float, ...], factor: float) -> tuple[float, ...]:
    """Multiply the weights by a factor, except the first positive one if there are several."""
    positive = [part for part, weight in enumerate(weights) if weight]
    kept = positive[0] if len(positive) > 1 else None
    return tuple(weight if part == kept else weight * factor for part, weight in enumerate(weights))
