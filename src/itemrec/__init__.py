"""Top-k recommendation with message-passing GNNs trained on smooth ranking metrics.

This module lists the public names; `README.md` shows how to use them.
"""

from typing import TYPE_CHECKING

from itemrec.lazy import lazy_names

if TYPE_CHECKING:  # each name is imported when it is first used
    from itemrec import losses, models, negatives
    from itemrec.data.datasets import load
    from itemrec.data.interactions import Interactions
    from itemrec.data.preparing.prepare import prepare
    from itemrec.data.sources import read
    from itemrec.data.split import Split
    from itemrec.data.splitters import (
        cold_start,
        keep_all,
        split_interactions,
        split_items,
        split_users,
    )
    from itemrec.data.time_splits import leave_last_out, split_by_time, split_rolling, split_window
    from itemrec.errors import ItemrecError, LeakError
    from itemrec.evaluation.evaluate import Evaluation, evaluate
    from itemrec.reranking.steering import Steering
    from itemrec.serving.exports.write import export
    from itemrec.serving.fit import fit
    from itemrec.serving.recommender import Recommender
    from itemrec.settings.schema import TrainConfig
    from itemrec.threads import tune_threads
    from itemrec.training.fit import train
    from itemrec.training.run import Run
    from itemrec.training.update import update
else:
    __getattr__, __dir__ = lazy_names(__name__)

__version__ = "0.2.0"

__all__ = [
    "Evaluation",
    "Interactions",
    "ItemrecError",
    "LeakError",
    "Recommender",
    "Run",
    "Split",
    "Steering",
    "TrainConfig",
    "cold_start",
    "evaluate",
    "export",
    "fit",
    "keep_all",
    "leave_last_out",
    "load",
    "losses",
    "models",
    "negatives",
    "prepare",
    "read",
    "split_by_time",
    "split_interactions",
    "split_items",
    "split_rolling",
    "split_users",
    "split_window",
    "train",
    "tune_threads",
    "update",
]
