"""One paper, one file; MODELS is the one table of them."""

from itemrec.models.base import GNN, EmbeddingModel, Model
from itemrec.models.ease import EASE
from itemrec.models.gat import GAT
from itemrec.models.gcn import GCN
from itemrec.models.gin import GIN
from itemrec.models.lightgcn import LightGCN
from itemrec.models.mf import MF
from itemrec.models.popularity import Popularity

MODELS: dict[str, type[Model]] = {
    "lightgcn": LightGCN,
    "gcn": GCN,
    "gin": GIN,
    "gat": GAT,
    "mf": MF,
    "ease": EASE,
    "popularity": Popularity,
}

__all__ = ["GNN", "MODELS", "EmbeddingModel", "Model", *sorted(c.__name__ for c in MODELS.values())]
