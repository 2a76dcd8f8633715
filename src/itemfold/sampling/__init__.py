"""Training batches, and the samplers of their negatives.

NEGATIVES is the table of samplers by name; `itemfold.sampling.base` describes their interface.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from itemfold.lazy import LazyTable, lazy_names

if TYPE_CHECKING:  # each name is imported when it is first used
    from itemfold.sampling.base import Batch, DrawnNegatives, Encoded, Sampler, ScoredLists
    from itemfold.sampling.batches import Batches
    from itemfold.sampling.false_negatives import FalseNegatives
    from itemfold.sampling.full_catalogue import All
    from itemfold.sampling.hard import Dynamic, MixGCF
    from itemfold.sampling.in_batch import InBatch
    from itemfold.sampling.popularity import PopularityNegatives
    from itemfold.sampling.ppr import PPR
    from itemfold.sampling.uniform import Uniform
else:
    __getattr__, __dir__ = lazy_names(__name__)

NEGATIVES: MutableMapping[str, type[Sampler]] = LazyTable(
    __name__,
    {
        "uniform": "Uniform",
        "popularity": "PopularityNegatives",
        "ppr": "PPR",
        "in-batch": "InBatch",
        "dynamic": "Dynamic",
        "mixgcf": "MixGCF",
        "all": "All",
        "false-negatives": "FalseNegatives",
    },
)

__all__ = [
    "NEGATIVES",
    "PPR",
    "All",
    "Batch",
    "Batches",
    "DrawnNegatives",
    "Dynamic",
    "Encoded",
    "FalseNegatives",
    "InBatch",
    "MixGCF",
    "PopularityNegatives",
    "Sampler",
    "ScoredLists",
    "Uniform",
]
