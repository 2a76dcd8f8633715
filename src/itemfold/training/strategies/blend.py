"""How much each part of a hybrid counts, chosen on validation.

The search begins with the best part alone and adds a part, or changes a weight, as long as that is
a gain. Of the sums on this way that are within a standard error of the best, one with the fewest
parts is taken. So the sum is not below one of its parts on validation, every part alone can be
chosen, and no part is taken whose gain is within noise of zero. Of weights that are as good, the
linear part gets the smallest, and without times popularity the largest: under drift that is better
(docs/research).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold import ranks
from itemfold.data.splitting.split import HeldOut
from itemfold.evaluation.evaluator import Evaluator
from itemfold.evaluation.metrics import METRICS, parse_metric
from itemfold.evaluation.ranking import largest, mask_history, top_items
from itemfold.models.base import Model
from itemfold.models.hybrid import standardise_, typical_weights
from itemfold.training.strategies.noise import UserValues, has_few, is_clear, standard_error

WEIGHTS = (0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0, 6.0)  # relative to the largest
FACTORS = (0.0, 0.5, 0.7, 1.4, 2.0)  # by which a weight is changed
COARSE = (0.2, 0.45, 1.0, 2.5)  # weights of the prior with which half-lives are compared
NEARBY = (0.5, 0.7, 1.0, 1.4, 2.0)  # factors that are tried for users of similar activity
GROUPS = 3  # of users, by the length of their history
FEWEST = 50  # users of a group, at least
POOL = 5  # times the length of a list: the best items of each part, among which sums are ranked
LEAST = 0.0005  # relative gain of a step of the search
CLIMBERS = 2500  # users on which a step is chosen, at most
COST = 0.003  # most of the metric that a smaller linear weight may cost, relative
COST_OF_POPULARITY = 0.005  # the same for more popularity
STEPS = 12  # of the search, at most
BLOCK = 256  # users scored at a time
Users = npt.NDArray[np.int64] | slice  # positions of validation users
ALL = slice(None)


@dataclass(frozen=True)
class Blend:
    """A sum of parts.

    Attributes:
        half_life: Which popularity the prior uses.
        prior: Its weight.
        weights: The weight of each part.
    """

    half_life: str
    prior: float
    weights: tuple[float, ...]

    def with_weight(self, place: int, weight: float) -> Blend:
        """The blend with another weight of one part."""
        return replace(self, weights=(*self.weights[:place], weight, *self.weights[place + 1 :]))

    @property
    def size(self) -> int:
        """How many parts count, the prior among them."""
        return sum(weight > 0 for weight in (self.prior, *self.weights))


class BlendSearch:
    """Compares sums of parts for validation users; the scores of each part are computed once.

    Sums are ranked among the best items of each part, which hold the best of the sum but for rare
    exceptions. With several ranks, each scores its own users.

    Args:
        valid: Validation users.
        popularity: Standardised log popularity by half-life, the longest first, `[items]` each.
        metric: The metric that selects.
        device: Where scores are computed.
        seed: Of the halves into which users are divided.
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
        self.rows = np.arange(self.evaluator.own.start, self.evaluator.own.stop)
        self.popularity, self.device, self.seed = dict(popularity), device, seed
        self.metric = parse_metric(metric)
        self.names: list[str] = []
        self.whole: list[Tensor] = []  # standardised scores of each part, [own users, items]
        self.best: list[Tensor] = []  # the best items of each part, [own users, size]
        n_items = self.evaluator.n_items
        self.size = n_items if self.metric.k is None else min(POOL * self.metric.k, n_items)
        self._pool: dict[str, Any] = {}
        self._some: tuple[Users, dict[str, Any], dict[str, Any]] | None = None

    # --- parts -----------------------------------------------------------------------------------

    @torch.no_grad()
    def add(self, name: str, model: Model) -> None:
        """Score a further part; a part of that name is replaced."""
        held = self.held.take(self.rows)
        if name not in self.names:
            self.names.append(name)
            self.whole.append(torch.empty(held.history.shape, device=self.device))
            self.best.append(torch.empty(0))
        place, best = self.names.index(name), list[Tensor]()
        for start in range(0, len(held), BLOCK):
            part = slice(start, start + BLOCK)
            scores = model.scores(held.history[part], held.users[part])
            finite = torch.isfinite(scores)
            if not bool(finite.all()):  # items without a score come last
                scores = torch.where(finite, scores, scores[finite].min())
            self.whole[place][part] = standardise_(scores)
            if not held.repeats:
                scores = mask_history(scores, held.history[part])
            best.append(largest(scores, self.size)[1])
        empty = torch.empty((0, self.size), dtype=torch.int64, device=self.device)
        self.best[place] = torch.cat(best or [empty])  # a rank may have no users
        self._pool = {}

    def alone(self, name: str) -> Blend:
        """A part by itself."""
        return Blend(self.longest, 0.0, tuple(float(each == name) for each in self.names))

    def of_popularity(self, half_life: str) -> Blend:
        """Popularity by itself."""
        return Blend(half_life, 1.0, (0.0,) * len(self.names))

    def padded(self, blend: Blend) -> Blend:
        """A blend from before further parts were added, which do not count in it."""
        missing = len(self.names) - len(blend.weights)
        return replace(blend, weights=(*blend.weights, *(0.0 for _ in range(missing))))

    @property
    def longest(self) -> str:
        """The half-life of the popularity that fades least."""
        return next(iter(self.popularity))

    # --- search ----------------------------------------------------------------------------------

    def run(self, start: Blend | None = None, users: Users = ALL) -> tuple[Blend, UserValues]:
        """The blend that is chosen for some users, and the metric of every user with it."""
        best = self.simplest_best(users) if start is None else self.padded(start)
        way, climbers = [best], self._climbers(users)
        value = float(self.values(way, climbers).mean())
        for _ in range(STEPS):
            options = self._options(best)
            means = self.values(options, climbers).mean(1)
            at = int(means.argmax())
            if means[at] <= value * (1 + LEAST):
                break
            best, value = options[at], float(means[at])
            way.append(best)
        values = self.values(way)
        means = values[:, users].mean(1)
        behind = (values[means.argmax()] - values)[:, users]
        good = [i for i, row in enumerate(behind) if row.mean() <= standard_error(row)]
        fewest = min(way[i].size for i in good)
        chosen = max((i for i in good if way[i].size == fewest), key=lambda i: float(means[i]))
        found = self._conservative(way[chosen], values[chosen], users)
        if not self.is_small or not self.names:
            return found
        typical = self.typical()
        value = self.values([typical])[0]
        return found if is_clear((found[1] - value)[users]) else (typical, value)

    def _climbers(self, users: Users) -> npt.NDArray[np.int64]:
        """Some of the users, evenly."""
        rows = np.arange(len(self.held))[users]
        return rows[np.linspace(0, len(rows) - 1, min(len(rows), CLIMBERS)).astype(np.int64)]

    def simplest_best(self, users: Users = ALL) -> Blend:
        """The best single part, or a simpler one that is as good: simpler ones come first."""
        singles = [self.of_popularity(half_life) for half_life in self.popularity]
        singles += [self.alone(name) for name in self.names]
        values = self.values(singles)[:, users]
        behind = values[values.mean(1).argmax()] - values
        good = [i for i, row in enumerate(behind) if row.mean() <= standard_error(row)]
        return singles[good[0]]

    @property
    def is_small(self) -> bool:
        """Whether there are few users, all of them new, and no times."""
        return len(self.popularity) == 1 and has_few(self.held)

    def typical(self) -> Blend:
        """The blend that is used where nothing can be chosen."""
        prior, weights = typical_weights(self.names)
        return Blend(self.longest, prior, weights)

    def keep_popularity(self, half_life: str) -> None:
        """From now on the prior is popularity of all times, or with this half-life."""
        kept = (self.longest, half_life)
        self.popularity = {name: self.popularity[name] for name in self.popularity if name in kept}

    def _options(self, blend: Blend) -> list[Blend]:
        """Blends with one part more, one part less, or another weight."""
        level = max(blend.prior, *blend.weights, 0.0)
        out = []
        for half_life in self.popularity:
            if blend.prior and half_life == blend.half_life:
                changed = [blend.prior * factor for factor in FACTORS]
            else:
                several = WEIGHTS if len(self.popularity) == 1 else COARSE
                changed = [level * weight for weight in several]
            out += [replace(blend, half_life=half_life, prior=prior) for prior in changed]
        for place, weight in enumerate(blend.weights):
            choices = FACTORS if weight else WEIGHTS
            out += [blend.with_weight(place, (weight or level) * choice) for choice in choices]
        return [each for each in out if each.size]

    def _conservative(
        self, blend: Blend, value: UserValues, users: Users
    ) -> tuple[Blend, UserValues]:
        """Of blends that are as good, one with more popularity and the least linear weight.

        Popularity gets more only without times: a validation period shows how much it should count.
        """
        more = (2.0, 1.4, 1.0) if blend.prior and len(self.popularity) == 1 else (1.0,)
        place = self.names.index("linear") if "linear" in self.names else None
        less = (0.5, 0.7, 0.85, 1.0) if place is not None and blend.weights[place] else (1.0,)
        if blend.size < 2:
            return blend, value
        options = [replace(blend, prior=blend.prior * factor) for factor in more]
        if place is not None:
            weight = blend.weights[place]
            options = [each.with_weight(place, weight * f) for each in options for f in less]
        for option, found in zip(options, self.values(options), strict=True):
            behind = (value - found)[users]
            cost = COST if option.prior == blend.prior else COST_OF_POPULARITY
            if behind.mean() <= min(standard_error(behind), cost * float(value[users].mean())):
                return option, found
        return blend, value

    def by_length(self, blend: Blend, users: Users = ALL) -> list[tuple[float, Blend]]:
        """Blends by least length of a history: one for all, or one for each group of users.

        Groups are used if what one half of the users chooses is better for the other half, too.
        """
        length = np.diff(self.held.history.indptr)[users]
        cuts = np.quantile(length, np.arange(1, GROUPS) / GROUPS, method="higher").astype(int)
        bounds = np.unique([0, *cuts[cuts > length.min()]])  # every group has users
        group = np.searchsorted(bounds, length, side="right") - 1
        options = [blend] + [
            replace(blend, prior=blend.prior * f, weights=self._scaled_linear(blend, g))
            for f in NEARBY
            for g in NEARBY
        ]
        values = self.values(options)[:, users]
        half = np.random.default_rng(self.seed).permutation(len(length)) % 2
        gain = np.zeros(len(length))

        def best_for(users: npt.NDArray[np.bool_]) -> int:
            return int(values[:, users].sum(1).argmax())  # the first of equals

        for side in (0, 1):
            for part in range(len(bounds)):
                chosen = best_for((group == part) & (half == side))
                there = (group == part) & (half != side)
                gain[there] = (values[chosen] - values[0])[there]
        few = len(length) < GROUPS * FEWEST
        if few or blend.size < 2 or gain.mean() <= 2 * standard_error(gain):
            return [(0.0, blend)]
        found = [options[best_for(group == part)] for part in range(len(bounds))]
        return [(float(least), row) for least, row in zip(bounds, found, strict=True)]

    def _scaled_linear(self, blend: Blend, factor: float) -> tuple[float, ...]:
        """The weights with the first one kept and the others scaled."""
        counted = [place for place, weight in enumerate(blend.weights) if weight]
        kept = counted[0] if len(counted) > 1 else None
        return tuple(
            weight if place == kept else weight * factor
            for place, weight in enumerate(blend.weights)
        )

    # --- values ----------------------------------------------------------------------------------

    @torch.no_grad()
    def values(self, blends: Sequence[Blend], users: Users = ALL) -> UserValues:
        """The metric of some users for every blend, ``[blends, users]``."""
        pool, n_target = self._pool or self._make_pool(), self.n_target
        if users is not ALL and ranks.size() == 1:
            pool, n_target = self._only(pool, users), n_target[users]
        depth = min(self.metric.k or self.evaluator.n_items, self.evaluator.n_items)
        out = []
        for blend in blends:
            total = pool[blend.half_life] * blend.prior + pool["masked"]
            for weight, scores in zip(blend.weights, pool["parts"], strict=True):
                if weight:
                    total.add_(scores, alpha=weight)
            top = top_items(total, depth)
            hits = pool["hits"].gather(1, top.clamp(min=0)) & (top >= 0)
            out.append(METRICS[self.metric.name](hits.cpu().numpy(), n_target, depth))
        found = np.ascontiguousarray(ranks.gather_rows(np.stack(out, axis=1)).T)  # [blends, users]
        return found if ranks.size() == 1 else found[:, users]

    def _only(self, pool: dict[str, Any], users: Users) -> dict[str, Any]:
        """The pool of some users; kept until others are asked for."""
        if self._some is None or self._some[0] is not users or self._some[1] is not pool:
            rows = torch.from_numpy(np.arange(len(self.held))[users]).to(self.device)
            some = {
                name: [each[rows] for each in value] if name == "parts" else value[rows]
                for name, value in pool.items()
            }
            self._some = users, pool, some
        return self._some[2]

    @property
    def n_target(self) -> npt.NDArray[np.int64]:
        """Number of targets of each of this rank's users."""
        return self.evaluator.n_target[self.rows]

    def _make_pool(self) -> dict[str, Any]:
        """The best items of each part for each user, their scores, and which are targets."""
        n_items, size, held = self.evaluator.n_items, self.size, self.held.take(self.rows)
        longest = int(np.diff(self.held.history.indptr).max(initial=0))  # of all ranks
        popular = [torch.topk(p, min(size + min(longest, size), n_items)).indices
                   for p in self.popularity.values()]  # fmt: skip
        shared = torch.unique(torch.cat(popular)).expand(len(held), -1)
        items = torch.cat([shared, *self.best], dim=1).sort(dim=1).values  # [own users, pool]
        masked = torch.zeros(items.shape, device=self.device)
        masked[:, 1:][items[:, 1:] == items[:, :-1]] = -torch.inf
        rows = torch.from_numpy(self.rows).to(self.device).unsqueeze(1)
        keys = rows * n_items + items
        targets = self.evaluator.targets
        hits = targets[torch.searchsorted(targets, keys)] == keys
        for matrix in (None if held.repeats else held.history, held.excluded):
            if matrix is not None:
                masked[_holds(matrix, items)] = -torch.inf
        parts = [scores.gather(1, items) for scores in self.whole]
        of_popularity = {name: p[items] for name, p in self.popularity.items()}
        pool = {"items": items, "masked": masked, "hits": hits, "parts": parts, **of_popularity}
        self._pool = pool
        return pool


def _holds(matrix: sp.csr_array, items: Tensor) -> Tensor:
    """Whether each row of a matrix has an entry at each of these items, ``[users, pool]``."""
    n_items = matrix.shape[1]
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    known = np.append(np.sort(rows * n_items + matrix.indices), np.iinfo(np.int64).max)
    table = torch.from_numpy(known).to(items.device)
    keys = torch.arange(len(items), device=items.device).unsqueeze(1) * n_items + items
    found: Tensor = table[torch.searchsorted(table, keys)] == keys
    return found
