"""Whether a given test part is a random draw from its users' items.

If t_u of the n_u items of user u are test items, a random split puts each of them there with the
probability p_u = t_u / n_u. An item then has Σ p_u test interactions, with variance Σ p_u (1 − p_u)
over its users. The mean square of the standardised differences over items is near 1 for a random
draw, and larger if the test part prefers some items: later ones, rare ones, popular ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools
from itemfold.data.columns.time_units import moment_text
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.user_parts import UserPart

Rows = npt.NDArray[np.integer[Any]]

MIN_EXPECTED = 4.0  # test interactions of an item that counts
MIN_VARIANCE = 1.0
MIN_ITEMS = 20  # with fewer items nothing is said
LEAST = 1.5  # below this, the choice on random validation is hardly affected
HIDDEN = 2.0  # hidden items for each shown one from which a note asks if they are swapped
OLDER = 0.9  # share of a test part before the median of training; in a random draw a half
DEVIATIONS = 6.0  # above the mean of random draws; the largest of 20,000 simulated splits has 5.0


@dataclass(frozen=True)
class DrawComparison:
    """The comparison of a given test part with a random draw.

    Attributes:
        variance: Mean square of the standardised test counts of items; 1 for a random draw.
        deviation: Standard deviation of `variance` over random draws.
        items: Number of items with enough expected test interactions.
    """

    variance: float
    deviation: float
    items: int

    @property
    def is_random(self) -> bool:
        """Whether the test part may be a random draw, or is close to one."""
        return self.variance <= max(LEAST, 1 + DEVIATIONS * self.deviation)

    @property
    def note(self) -> str:
        """One sentence if the test part is not a random draw, or an empty string."""
        if self.is_random:
            return ""
        return (
            "The given test part is not a random draw of its users' items: test interactions per "
            f"item vary {self.variance:.1f} times as much as in a random split, so what is best on "
            "a random validation part may not be best on it."
        )


def compare_draw(users: Rows, items: Rows, held_out: Bools) -> DrawComparison | None:
    """Compare test pairs with a random draw of each user's pairs; None with too few items.

    Args:
        users: Row of each pair's user.
        items: Row of each pair's item.
        held_out: Which pairs are in the test part.

    Returns:
        The comparison, or None if fewer than 20 items have enough test interactions.
    """
    if not len(users):
        return None
    share = np.bincount(users, held_out) / np.maximum(np.bincount(users), 1)  # [users]
    p = share[users]
    spread = p * (1 - p)
    expected, variance = np.bincount(items, p), np.bincount(items, spread)
    enough = (expected >= MIN_EXPECTED) & (variance >= MIN_VARIANCE)
    count = int(enough.sum())
    if count < MIN_ITEMS:
        return None
    difference = (np.bincount(items, held_out) - expected)[enough]
    squares = np.square(difference) / variance[enough]
    # Var(z²) = 2 + excess kurtosis of a sum of independent Bernoulli variables.
    excess = np.bincount(items, spread * (1 - 6 * spread))[enough] / np.square(variance[enough])
    deviation = float(np.sqrt(np.maximum(2 + excess, 0).mean() / count))
    return DrawComparison(float(squares.mean()), deviation, count)


def compare_test_part(data: Interactions) -> DrawComparison | None:
    """Compare the test part that the data itself has with a random draw.

    Args:
        data: Interactions, as returned by `load` or `read`.

    Returns:
        The comparison, or None if the data has no test part, or one that is too small.

    Examples:
        >>> import numpy as np
        >>> from dataclasses import replace
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=300,items=100,interactions=9000")
        >>> rng = np.random.default_rng(0)
        >>> compare_test_part(replace(data, held_out=rng.random(len(data)) < 0.2)).is_random
        True
        >>> compare_test_part(replace(data, held_out=data.items % 5 == 0)).is_random
        False
    """
    if data.user_parts is not None:  # only the held-out users have both shown and hidden items
        of_test = data.user_parts >= UserPart.TEST_SHOWN
        hidden = data.user_parts[of_test] == UserPart.TEST_HIDDEN
        return compare_draw(data.users[of_test], data.items[of_test], hidden)
    if data.held_out is None:
        return None
    return compare_draw(data.users, data.items, data.held_out)


def mix_up_notes(data: Interactions) -> list[str]:
    """Notes on files of a given split that look swapped."""
    return [note for note in (_older_test_note(data), _swapped_note(data)) if note]


def _swapped_note(data: Interactions) -> str:
    """One sentence if far more items of test users are hidden than shown, or an empty string."""
    if data.user_parts is None:
        return ""
    shown, hidden = (
        int((data.user_parts == part).sum()) for part in (UserPart.TEST_SHOWN, UserPart.TEST_HIDDEN)
    )
    if hidden < HIDDEN * shown:
        return ""
    return (
        f"Of the items of test users, {shown:,} are shown and {hidden:,} hidden: have the two "
        "files been swapped?"
    )


def _older_test_note(data: Interactions) -> str:
    """One sentence if a given test part is older than the training part, or an empty string."""
    if data.times is None or data.held_out is None:
        return ""
    test, middle = data.times[data.held_out], float(np.median(data.times[~data.held_out]))
    share = float((test < middle).mean())
    if share < OLDER:
        return ""
    moment = moment_text(middle, float(np.ptp(data.times)))
    return (
        f"The given test part is older than the training part: {share:.0%} of it before {moment}, "
        "the median of training; have the two files been swapped?"
    )


def given_part_notes(data: Interactions, settings: Mapping[str, Any]) -> list[str]:
    """Notes on a given test part that is not a random draw, or on unused given users."""
    if settings.get("test") == "given":
        found = compare_test_part(data)
        return [*mix_up_notes(data), *([found.note] if found is not None and found.note else [])]
    if data.user_parts is not None and settings["strategy"] != "all":
        return [f"The split by users that {data.name!r} comes with is not used."]
    return []
