"""The sum that validation chose, by activity and for new users, as settings of a hybrid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from itemfold.data.weights import NEVER, fades
from itemfold.models.hybrid_settings import Rows
from itemfold.training.strategies.blend import FEWEST, Blend, BlendSearch
from itemfold.training.strategies.noise import is_clear

Groups = list[tuple[float, Blend]]  # by the least length of a history


@dataclass(frozen=True)
class ChosenSum:
    """How much each part counts.

    Attributes:
        names: The parts, in the order of the weights.
        known: For users of the training data.
        new: For others; None: the same.
        half_life: Of recent popularity.
    """

    names: tuple[str, ...]
    known: Groups
    new: Groups | None
    half_life: str

    def counts(self, name: str) -> bool:
        """Whether a part has a weight for anybody."""
        if name not in self.names:
            return False
        place = self.names.index(name)
        return any(blend.weights[place] for _, blend in (*self.known, *(self.new or ())))

    def settings(self, order: list[str]) -> dict[str, Any]:
        """The settings of a hybrid with these parts."""
        new = {} if self.new is None else {"new_blend": self._rows(self.new, order)}
        rows = {"blend": self._rows(self.known, order), **new}
        return {**rows, "popularity_half_life": self.half_life}

    def _rows(self, groups: Groups, order: list[str]) -> Rows:
        places = [self.names.index(name) for name in order]
        out = []
        for least, blend in groups:
            is_recent = fades(blend.half_life)
            priors = (0.0, blend.prior) if is_recent else (blend.prior, 0.0)
            row = (*priors, *(blend.weights[place] for place in places))
            scale = next((weight for weight in row[2:] if weight), 1.0)  # the first part counts 1
            out.append((least, *(float(f"{weight / scale:.4g}") for weight in row)))
        return tuple(out)


def choose_sum(search: BlendSearch, blend: Blend) -> ChosenSum:
    """Weights for all users, for new and known ones apart, and by activity, where that is better.

    New users are those without a row in training, of a validation part that has known ones, too.
    """
    blend = search.padded(blend)
    is_new = search.held.users < 0
    kinds = [np.flatnonzero(~is_new), np.flatnonzero(is_new)]
    if min(map(len, kinds)) < FEWEST:
        recent = blend.half_life if blend.prior else NEVER
        return ChosenSum(tuple(search.names), search.by_length(blend), None, recent)
    if blend.prior and fades(blend.half_life):
        search.keep_popularity(blend.half_life)
    chosen = []
    for users in kinds:
        found, values = search.run(users=users)
        gain = (search.values([blend])[0] - values)[users]
        if is_clear(gain):
            found = blend
        if found.prior and fades(found.half_life):
            search.keep_popularity(found.half_life)
        chosen.append(search.by_length(found, users))
    priors = [each for groups in chosen for _, each in groups if each.prior]
    recent = next((each.half_life for each in priors if fades(each.half_life)), NEVER)
    known, new = chosen
    return ChosenSum(tuple(search.names), known, new if new != known else None, recent)
