"""What a list should be like besides accurate: one object, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from itemrec.errors import ItemrecError
from itemrec.validation import is_number, positive_integer, shown

BY_MODEL = "model"
SLIDERS = ("diversity", "popularity_discount", "long_tail", "freshness")


@dataclass(frozen=True)
class Steering:
    """How lists are re-ranked after scoring; without a setting they stay as they are.

    The items of a list are taken one after another from a pool: the ten times `k` best items of
    the user. Relevance, popularity and age of an item are scaled to 0 … 1 over the pool; popularity
    is the logarithm of the number of training interactions. The utility of an item is

        relevance − popularity_discount · popularity + freshness · (1 − age)

    The next item is the one with the largest

        (1 − diversity) · utility − diversity · mean similarity to the items taken so far

    among those that the caps and the share of the long tail permit. This is maximal marginal
    relevance (Carbonell and Goldstein 1998), with the mean similarity instead of the largest. The
    list is then sorted by utility: its variety does not depend on the order.

    Args:
        diversity: 0 … 1; how much items that are like others of the list are avoided.
        popularity_discount: 0 … 1; how much popular items are avoided.
        long_tail: 0 … 1; the least share of the list that comes from the long tail, which is the
            catalogue without the most popular fifth of the items.
        freshness: 0 … 1; how much items that are newer than others of the user's pool are
            preferred. Their age comes from a column year, date, time or timestamp of the item
            table, or from the year at the end of their titles; an unknown age is the oldest.
        max_per: The most items of a list with the same value in a column, such as
            `{"genre": 3}`. An item with several genres counts for each of them. Items without a
            value are not counted.
        diversity_by: What makes items alike: "model", the cosine of the item vectors, centred at
            their mean over training interactions (of the users of two items, if a model has no
            vectors), or a column such as "genre", the cosine of its values.

    Raises:
        ItemrecError: A value is not in its range.

    Examples:
        >>> import itemrec as ir
        >>> ir.Steering(diversity=0.3, max_per={"genre": 3}).is_plain
        False
        >>> ir.Steering(diversity=2)
        Traceback (most recent call last):
        itemrec.errors.ItemrecError: 'diversity' must be a number from 0 to 1, got 2
    """

    diversity: float = 0.0
    popularity_discount: float = 0.0
    long_tail: float = 0.0
    freshness: float = 0.0
    max_per: Mapping[str, int] = field(default_factory=dict)
    diversity_by: str = BY_MODEL

    def __post_init__(self) -> None:
        for name in SLIDERS:
            value = getattr(self, name)
            if not (is_number(value) and 0 <= value <= 1):
                raise ItemrecError(f"'{name}' must be a number from 0 to 1, got {shown(value)}")
        if not isinstance(self.max_per, Mapping):
            raise ItemrecError(
                f"'max_per' must map columns to numbers, such as {{'genre': 3}}, "
                f"got {shown(self.max_per)}"
            )
        caps = {str(name): positive_integer("max_per", n) for name, n in self.max_per.items()}
        object.__setattr__(self, "max_per", caps)
        if not isinstance(self.diversity_by, str) or not self.diversity_by:
            raise ItemrecError(
                f"'diversity_by' must be model or a column such as genre, got "
                f"{shown(self.diversity_by)}"
            )

    @property
    def is_plain(self) -> bool:
        """Whether lists stay as the model ranks them.

        Examples:
            >>> import itemrec as ir
            >>> ir.Steering().is_plain
            True
        """
        return not self.max_per and not any(getattr(self, name) for name in SLIDERS)


def check_steering(steering: Any) -> Steering:
    """The settings, those of a plain list if there are none."""
    if steering is None:
        return Steering()
    if not isinstance(steering, Steering):
        raise ItemrecError(
            f"'steering' must be a Steering, such as ir.Steering(diversity=0.3), "
            f"got {shown(steering)}"
        )
    return steering
