"""The selected blends, by history length and for new users, as settings of a hybrid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from itemfold.data.weights import NEVER, fades
from itemfold.models.hybrid_settings import Rows
from itemfold.training.strategies.blend import MIN_GROUP_USERS, Blend, BlendSearch
from itemfold.training.strategies.noise import is_clear

Groups = list[tuple[float, Blend]]  # blends by minimum history length


@dataclass(frozen=True)
class ChosenSum:
    """The selected weights of all parts.

    Attributes:
        names: The parts, in the order of the weights.
        known: Blends for users of the training data.
        new: Blends for other users; None: the same as for known users.
        half_life: The half-life of recent popularity.
    """

    names: tuple[str, ...]
    known: Groups
    new: Groups | None
    half_life: str

    def uses(self, name: str) -> bool:
        """Whether a part has a positive weight for any user."""
        if name not in self.names:
            return False
        part = self.names.index(name)
        return any(blend.weights[part] for _, blend in (*self.known, *(self.new or ())))

    def settings(self, order: list[str]) -> dict[str, Any]:
        """The settings of a hybrid with these parts, in this order."""
        new = {} if self.new is None else {"new_blend": self._rows(self.new, order)}
        rows = {"blend": self._rows(self.known, order), **new}
        return {**rows, "popularity_half_life": self.half_life}

    def _rows(self, groups: Groups, order: list[str]) -> Rows:
        """Rows (history length, prior, recent prior, weights); the first positive weight is 1."""
        parts = [self.names.index(name) for name in order]
        out = []
        for least, blend in groups:
            is_recent = fades(blend.half_life)
            priors = (0.0, blend.prior) if is_recent else (blend.prior, 0.0)
            row = (*priors, *(blend.weights[part] for part in parts))
            scale = next((weight for weight in row[2:] if weight), 1.0)
            out.append((least, *(float(f"{weight / scale:.4g}") for weight in row)))
        return tuple(out)


def choose_sum(search: BlendSearch, blend: Blend) -> ChosenSum:
    """Select the blends by history length, for new and known users separately if there are enough.

    A new user has no row in the training data; validation users may be of both kinds.
    """
    blend = search.padded(blend)
    is_new = search.held.users < 0
    kinds = [np.flatnonzero(~is_new), np.flatnonzero(is_new)]
    if min(map(len, kinds)) < MIN_GROUP_USERS:
        recent = blend.half_life if blend.prior else NEVER
        return ChosenSum(tuple(search.names), search.by_history_length(blend), None, recent)
    if blend.prior and fades(blend.half_life):
        search.keep_half_life(blend.half_life)
    chosen = []
    for users in kinds:
        found, values = search.run(users=users)
        gain = (search.values([blend])[0] - values)[users]
        if is_clear(gain):
            found = blend
        if found.prior and fades(found.half_life):  # a hybrid has one half-life for all users
            search.keep_half_life(found.half_life)
        chosen.append(search.by_history_length(found, users))
    priors = [each for groups in chosen for _, each in groups if each.prior]
    recent = next((each.half_life for each in priors if fades(each.half_life)), NEVER)
    known, new = chosen
    return ChosenSum(tuple(search.names), known, new if new != known else None, recent)
