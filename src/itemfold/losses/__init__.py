"""Losses for lists of scores; LOSSES is the table of losses by name.

Each is a plain function of scores and masks; `Loss` describes their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from itemfold.lazy import LazyTable, lazy_names

if TYPE_CHECKING:  # each name is imported when it is first used
    from torch import Tensor

    from itemfold.losses.base import LazyScores, Loss, Scores, bind, bindable, unbind
    from itemfold.losses.pairwise import bpr, ccl
    from itemfold.losses.smooth_ranking import (
        item_ap,
        item_log,
        item_ndcg,
        item_recall,
        neural_ndcg,
        smooth_rank,
    )
    from itemfold.losses.softmax_family import bsl, softmax
else:
    __getattr__, __dir__ = lazy_names(__name__)

LOSSES: MutableMapping[str, Loss] = LazyTable(
    __name__,
    {
        "bpr": "bpr",
        "item-ndcg": "item_ndcg",
        "item-ap": "item_ap",
        "item-recall": "item_recall",
        "item-log": "item_log",
        "neural-ndcg": "neural_ndcg",
        "softmax": "softmax",
        "bsl": "bsl",
        "ccl": "ccl",
    },
)

# Training settings from the paper that introduced a loss, if they differ from lists of users.
DEFAULT_TRAINING: dict[str, dict[str, Any]] = {
    "bpr": {"batch_by": "interactions", "n_negatives": 1}
}


def default_training(loss: Callable[..., Tensor]) -> dict[str, Any]:
    """Default training settings of a loss.

    Args:
        loss: A loss, bound or not.

    Returns:
        Fields of `TrainConfig`; empty for a loss that is trained on lists of users.

    Examples:
        >>> from itemfold.losses import bpr, default_training, item_ndcg
        >>> default_training(bpr)
        {'batch_by': 'interactions', 'n_negatives': 1}
        >>> default_training(item_ndcg(tau=0.5))
        {}
    """
    from itemfold.losses.base import unbind

    function, _ = unbind(loss)
    names = [name for name, known in LOSSES.items() if known is function]
    return DEFAULT_TRAINING.get(names[0], {}) if names else {}


__all__ = [
    "DEFAULT_TRAINING",
    "LOSSES",
    "LazyScores",
    "Loss",
    "Scores",
    "bind",
    "bindable",
    "bpr",
    "bsl",
    "ccl",
    "default_training",
    "item_ap",
    "item_log",
    "item_ndcg",
    "item_recall",
    "neural_ndcg",
    "smooth_rank",
    "softmax",
    "unbind",
]
