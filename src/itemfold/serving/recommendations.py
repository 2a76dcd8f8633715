"""The list of one user, and the reasons for each item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

NEGLIGIBLE = 1e-4  # of a score: a smaller contribution is none
NOTHING = "no item is left: every allowed item is in the history or excluded"


@dataclass(frozen=True)
class Reason:
    """The contribution of one history item to a score.

    Attributes:
        item: Its id.
        title: Its title, "" if there is none.
        share: Its share of the score.
    """

    item: Any
    title: str
    share: float


@dataclass(frozen=True)
class Likeness:
    """A known item that is similar to a new one.

    Attributes:
        item: Its id.
        title: Its title, "" if there is none.
        shared: Categories and words that both have.
    """

    item: Any
    title: str
    shared: tuple[str, ...]


@dataclass(frozen=True)
class Recommendation:
    """One recommended item.

    Attributes:
        item: Its id.
        title: Its title, "" if there is none.
        genres: Its genres, "" if there are none.
        score: The score by which items are ranked.
        reasons: With `explain`, the share of each history item in the score, largest first.
        own: With `explain`, the rest of the score: from a trained user's own vector, from the
            item's popularity in a hybrid, and from the features of a new item.
        others: The sum of the shares that are not listed in `reasons`.
        image: Its image URL, "" if there is none.
        is_new: Whether it has no interactions and is scored by its features.
        like: With `explain`, the known items most similar to a new item.

    Examples:
        >>> pick = Recommendation(item=12, title="Alien", genres="Horror", score=0.5)
        >>> pick
        Recommendation(12, 'Alien', score 0.5000)
        >>> pick.reasons
        ()
    """

    item: Any
    title: str
    genres: str
    score: float
    reasons: tuple[Reason, ...] = ()
    own: float | None = None
    others: float = 0.0
    image: str = ""
    is_new: bool = False
    like: tuple[Likeness, ...] = ()

    @property
    def main_reason(self) -> Reason | None:
        """The history item that adds most to the score, or None."""
        reason = max(self.reasons, key=lambda reason: reason.share, default=None)
        has_effect = reason is not None and reason.share > NEGLIGIBLE * abs(self.score)
        return reason if has_effect else None

    def __repr__(self) -> str:
        title = f", {self.title!r}" if self.title else ""
        reasons = f", {len(self.reasons):,} reasons" if self.reasons else ""
        return f"Recommendation({self.item!r}{title}, score {self.score:.4f}{reasons})"


@dataclass(frozen=True)
class Recommendations:
    """The list of one user, best first.

    Attributes:
        items: The recommended items.
        user: The id of the user, None if a history was given.
        unknown: Unknown ids in the history and the filters.
        fallback: A sentence, if the list is not personalised, else "".

    Examples:
        >>> picks = Recommendations((Recommendation(12, "Alien", "Horror", 0.5),), unknown=(99,))
        >>> len(picks), picks[0].title
        (1, 'Alien')
        >>> print(picks)
          1    0.5000  Alien
        not known: 99
    """

    items: tuple[Recommendation, ...]
    user: Any = None
    unknown: tuple[Any, ...] = ()
    fallback: str = ""

    def __iter__(self) -> Iterator[Recommendation]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> Recommendation:
        return self.items[place]

    def __repr__(self) -> str:
        """The list as text, one item per line."""
        if not self.items:
            return NOTHING
        lines = [f"{self.fallback}:"] if self.fallback else []
        for place, pick in enumerate(self.items, start=1):
            because = "; ".join(f"{r.title or r.item} {r.share:+.3f}" for r in pick.reasons[:3])
            text = f"{place:>3}  {pick.score:8.4f}  {pick.title or pick.item}"
            text = f"{text}  ← {because}" if because else text
            lines.append(f"{text}  (new, like {like})" if (like := like_text(pick)) else text)
        if self.unknown:
            lines.append(f"not known: {', '.join(map(str, self.unknown))}")
        return "\n".join(lines)


def like_text(pick: Recommendation) -> str:
    """The known items similar to a new item, with shared categories and words.

    >>> alien = Likeness(item=12, title="Alien", shared=("Horror",))
    >>> like_text(Recommendation(13, "Aliens", "", 0.5, is_new=True, like=(alien,)))
    'Alien: Horror'
    """
    return "; ".join(
        f"{one.title or one.item}{': ' if one.shared else ''}{', '.join(one.shared[:3])}"
        for one in pick.like
    )
