"""Losses for lists of scores; LOSSES is the table of losses by name.

Each is a plain function of scores and masks; `Loss` describes their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from itemfold.lazy import LazyTable, lazy_names

if TYPE_CHECKING:  # each name is imported when it is first used
    from torch import Tensor

    from itemfold.losses.base import (
        LazyScores,
        Loss,
        Scores,
        bind,
        bindable,
        extra_inputs,
        unbind,
    )
    from itemfold.losses.lambda_losses import lambda_loss, lambda_rank
    from itemfold.losses.pairwise import bpr, ccl, warp
    from itemfold.losses.partial_auc import llpauc
    from itemfold.losses.smooth_ranking import (
        item_ap,
        item_log,
        item_ndcg,
        item_recall,
        neural_ndcg,
        smooth_rank,
    )
    from itemfold.losses.softmax_family import bsl, psl, sampled_softmax, softmax
    from itemfold.losses.vectors import direct_au
    from itemfold.losses.weighted_softmax import adv_info_nce, bc, sl_at_k
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
        "psl": "psl",
        "sl-at-k": "sl_at_k",
        "sampled-softmax": "sampled_softmax",
        "adv-info-nce": "adv_info_nce",
        "bc": "bc",
        "lambda-rank": "lambda_rank",
        "lambda-loss": "lambda_loss",
        "llpauc": "llpauc",
        "warp": "warp",
        "direct-au": "direct_au",
    },
)

# Training settings from the paper that introduced a loss, if they differ from lists of users.
DEFAULT_TRAINING: dict[str, dict[str, Any]] = {
    "bpr": {"batch_by": "interactions", "n_negatives": 1},
    "direct-au": {"batch_by": "interactions", "n_negatives": 1},
    **{name: {"similarity": "cosine"} for name in ("psl", "sl-at-k", "adv-info-nce", "bc")},
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
    "adv_info_nce",
    "bc",
    "bind",
    "bindable",
    "bpr",
    "bsl",
    "ccl",
    "default_training",
    "direct_au",
    "extra_inputs",
    "item_ap",
    "item_log",
    "item_ndcg",
    "item_recall",
    "lambda_loss",
    "lambda_rank",
    "llpauc",
    "neural_ndcg",
    "psl",
    "sampled_softmax",
    "sl_at_k",
    "smooth_rank",
    "softmax",
    "unbind",
    "warp",
]
