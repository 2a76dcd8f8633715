"""Negative samplers under their public names: ``ir.negatives.PPR()``."""

from itemfold.sampling import (
    NEGATIVES,
    PPR,
    All,
    DrawnNegatives,
    Dynamic,
    FalseNegatives,
    InBatch,
    MixGCF,
    Sampler,
    Uniform,
)
from itemfold.sampling import PopularityNegatives as Popularity

__all__ = [
    "NEGATIVES",
    "PPR",
    "All",
    "DrawnNegatives",
    "Dynamic",
    "FalseNegatives",
    "InBatch",
    "MixGCF",
    "Popularity",
    "Sampler",
    "Uniform",
]
