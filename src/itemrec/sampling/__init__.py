"""Training batches, and the samplers of their negatives.

NEGATIVES is the table of samplers by name; `itemrec.sampling.base` describes their interface.
"""

from itemrec.sampling.base import DrawnNegatives, Encoded, Sampler, ScoredLists
from itemrec.sampling.batch import Batch
from itemrec.sampling.batches import Batches
from itemrec.sampling.full_catalogue import All
from itemrec.sampling.hard import Dynamic, MixGCF
from itemrec.sampling.in_batch import InBatch
from itemrec.sampling.popularity import PopularityNegatives
from itemrec.sampling.ppr import PPR
from itemrec.sampling.uniform import Uniform

NEGATIVES: dict[str, type[Sampler]] = {
    "uniform": Uniform,
    "popularity": PopularityNegatives,
    "ppr": PPR,
    "in-batch": InBatch,
    "dynamic": Dynamic,
    "mixgcf": MixGCF,
    "all": All,
}

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
