"""Top-k recommendation with message-passing GNNs trained on smooth ranking metrics.

The public names; `README.md` shows them at work.
"""

from itemrec.environment import prepare_torch

prepare_torch()  # before anything imports torch

from itemrec import losses, models, negatives
from itemrec.checkpoint import Run
from itemrec.data import Interactions, read
from itemrec.datasets import load
from itemrec.errors import ItemrecError, LeakError
from itemrec.evaluate import Evaluation, evaluate
from itemrec.held_out import Split
from itemrec.recommend import Recommender
from itemrec.split import (
    cold_start,
    keep_all,
    leave_last_out,
    split_by_time,
    split_interactions,
    split_users,
)
from itemrec.train import TrainConfig, train

__version__ = "0.1.0"

__all__ = [
    "Evaluation",
    "Interactions",
    "ItemrecError",
    "LeakError",
    "Recommender",
    "Run",
    "Split",
    "TrainConfig",
    "cold_start",
    "evaluate",
    "keep_all",
    "leave_last_out",
    "load",
    "losses",
    "models",
    "negatives",
    "read",
    "split_by_time",
    "split_interactions",
    "split_users",
    "train",
]
