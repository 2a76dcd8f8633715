"""Re-ranking options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from itemfold.errors import ItemfoldError
from itemfold.validation import is_number, positive_integer, shown

BY_MODEL = "model"
SLIDERS = ("diversity", "popularity_discount", "long_tail", "freshness")


@dataclass(frozen=True)
class Steering:
    """Re-ranking options; by default lists stay as the model ranks them.

    The items of a list are chosen one at a time from a pool, the user's best 10 · `k` items.
    Relevance, popularity and age are scaled to 0 … 1 over the pool; popularity is the logarithm of
    the number of training interactions. The utility of an item is

        relevance − popularity_discount · popularity + freshness · (1 − age)

    The next item is the one with the largest

        (1 − diversity) · utility − diversity · mean similarity to the items taken so far

    among those that the caps and the share of the long tail permit. This is maximal marginal
    relevance (Carbonell and Goldstein 1998), with the mean similarity instead of the largest. The
    list is then sorted by utility.

    Args:
        diversity: 0 … 1; how much to avoid items similar to others of the list.
        popularity_discount: 0 … 1; how much to avoid popular items.
        long_tail: 0 … 1; minimum share of the list from the long tail, which is the catalogue
            without the most popular fifth of the items.
        freshness: 0 … 1; how much to prefer items that are newer than others of the pool. Age comes
            from a column year, date, time or timestamp of the item table, or from the year at the
            end of titles; items of unknown age count as the oldest.
        max_per: Maximum number of items with the same value in a column, such as `{"genre": 3}`. An
            item with several genres counts for each of them; items without a value are not counted.
        diversity_by: How similarity is measured: "model" for the cosine of the item vectors,
            centred at their mean over training interactions (or of the users of two items, if the
            model has no vectors), or a column such as "genre" for the cosine of its values.

    Raises:
        ItemfoldError: A value is not in its range.

    Examples:
        >>> import itemfold as ir
        >>> ir.Steering(diversity=0.3, max_per={"genre": 3}).is_plain
        False
        >>> ir.Steering(diversity=2)
        Traceback (most recent call last):
        itemfold.errors.ItemfoldError: 'diversity' must be a number from 0 to 1, got 2
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
                raise ItemfoldError(f"'{name}' must be a number from 0 to 1, got {shown(value)}")
        if not isinstance(self.max_per, Mapping):
            raise ItemfoldError(
                f"'max_per' must map columns to numbers, such as {{'genre': 3}}, "
                f"got {shown(self.max_per)}"
            )
        caps = {str(name): positive_integer("max_per", n) for name, n in self.max_per.items()}
        object.__setattr__(self, "max_per", caps)
        if not isinstance(self.diversity_by, str) or not self.diversity_by:
            raise ItemfoldError(
                f"'diversity_by' must be model or a column such as genre, got "
                f"{shown(self.diversity_by)}"
            )

    @property
    def is_plain(self) -> bool:
        """Whether lists stay as the model ranks them."""
        return not self.max_per and not any(getattr(self, name) for name in SLIDERS)


def check_steering(steering: Any) -> Steering:
    """Validate settings; None means the defaults."""
    if steering is None:
        return Steering()
    if not isinstance(steering, Steering):
        raise ItemfoldError(
            f"'steering' must be a Steering, such as ir.Steering(diversity=0.3), "
            f"got {shown(steering)}"
        )
    return steering
