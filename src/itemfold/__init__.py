"""Top-k recommendation with message-passing GNNs trained on smooth ranking metrics.

This module lists the public names; `README.md` shows how to use them.
"""

from typing import TYPE_CHECKING

from itemfold.lazy import lazy_names

if TYPE_CHECKING:  # each name is imported when it is first used
    from itemfold import losses, models, negatives, splits
    from itemfold.data.datasets import load
    from itemfold.data.interactions import Interactions
    from itemfold.data.preparing.prepare import prepare
    from itemfold.data.readers.user_split_tables import read_user_split
    from itemfold.data.sources import read
    from itemfold.data.splitting.split import Split
    from itemfold.data.splitting.splitters import (
        keep_all,
        split_interactions,
        split_items,
        split_users,
    )
    from itemfold.data.splitting.thinning import cold_start
    from itemfold.data.splitting.time_splits import (
        leave_last_out,
        split_by_time,
        split_rolling,
        split_window,
    )
    from itemfold.errors import ItemfoldError, LeakError, UnknownIdError
    from itemfold.evaluation.compare import compare
    from itemfold.evaluation.evaluate import evaluate
    from itemfold.evaluation.evaluation import Evaluation
    from itemfold.reranking.steering import Steering
    from itemfold.serving.exports.write import export
    from itemfold.serving.fit import fit
    from itemfold.serving.recommender import Recommender
    from itemfold.settings.schema import TrainConfig
    from itemfold.threads import tune_threads
    from itemfold.training.fit import train
    from itemfold.training.run import Run
    from itemfold.training.update import update
else:
    __getattr__, __dir__ = lazy_names(__name__)

__version__ = "0.3.0.dev0"

__all__ = [
    "Evaluation",
    "Interactions",
    "ItemfoldError",
    "LeakError",
    "Recommender",
    "Run",
    "Split",
    "Steering",
    "TrainConfig",
    "UnknownIdError",
    "cold_start",
    "compare",
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
    "read_user_split",
    "split_by_time",
    "split_interactions",
    "split_items",
    "split_rolling",
    "split_users",
    "split_window",
    "splits",
    "train",
    "tune_threads",
    "update",
]
