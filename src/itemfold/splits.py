"""Splits under their public names: ``ir.splits.by_time(data)``."""

from itemfold.data.splitting.split import HeldOut, Split
from itemfold.data.splitting.splitters import keep_all
from itemfold.data.splitting.splitters import split_interactions as interactions
from itemfold.data.splitting.splitters import split_items as items
from itemfold.data.splitting.splitters import split_users as users
from itemfold.data.splitting.thinning import cold_start
from itemfold.data.splitting.time_splits import leave_last_out
from itemfold.data.splitting.time_splits import split_by_time as by_time
from itemfold.data.splitting.time_splits import split_rolling as rolling
from itemfold.data.splitting.time_splits import split_window as window

__all__ = [
    "HeldOut",
    "Split",
    "by_time",
    "cold_start",
    "interactions",
    "items",
    "keep_all",
    "leave_last_out",
    "rolling",
    "users",
    "window",
]
