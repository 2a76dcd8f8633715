"""Negative samplers under their public names: ``ir.negatives.PPR()``."""

from itemrec.sampling import (
    NEGATIVES,
    PPR,
    All,
    DrawnNegatives,
    Dynamic,
    InBatch,
    MixGCF,
    Sampler,
    Uniform,
)
from itemrec.sampling import PopularityNegatives as Popularity

__all__ = [
    "NEGATIVES",
    "PPR",
    "All",
    "DrawnNegatives",
    "Dynamic",
    "InBatch",
    "MixGCF",
    "Popularity",
    "Sampler",
    "Uniform",
]
