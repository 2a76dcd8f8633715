"""Training batches, and the samplers of their negatives.

NEGATIVES is the table of samplers by name; `itemrec.sampling.base` describes their interface.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from itemrec.lazy import LazyTable, lazy_names

if TYPE_CHECKING:  # each name is imported when it is first used
    from itemrec.sampling.base import Batch, DrawnNegatives, Encoded, Sampler, ScoredLists
    from itemrec.sampling.batches import Batches
    from itemrec.sampling.full_catalogue import All
    from itemrec.sampling.hard import Dynamic, MixGCF
    from itemrec.sampling.in_batch import InBatch
    from itemrec.sampling.popularity import PopularityNegatives
    from itemrec.sampling.ppr import PPR
    from itemrec.sampling.uniform import Uniform
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
    "InBatch",
    "MixGCF",
    "PopularityNegatives",
    "Sampler",
    "ScoredLists",
    "Uniform",
]
