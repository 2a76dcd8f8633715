"""Models, one file per paper; MODELS is the table of models by name."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from itemrec.lazy import LazyTable, lazy_names

if TYPE_CHECKING:  # each name is imported when it is first used
    from itemrec.models.adap_tau import AdapTau
    from itemrec.models.base import Kind, Model
    from itemrec.models.cml import CML
    from itemrec.models.deepwalk import DeepWalk
    from itemrec.models.dgcf import DGCF
    from itemrec.models.ease import EASE
    from itemrec.models.embedding_model import EmbeddingModel
    from itemrec.models.enmf import ENMF
    from itemrec.models.gat import GAT
    from itemrec.models.gcn import GCN
    from itemrec.models.gf_cf import GFCF
    from itemrec.models.gin import GIN
    from itemrec.models.gnn import GNN, LinearGNN
    from itemrec.models.hybrid import Hybrid
    from itemrec.models.ials import IALS
    from itemrec.models.itemknn import ItemKNN
    from itemrec.models.lightgcn import LightGCN
    from itemrec.models.line import LINE
    from itemrec.models.lr_gccf import LRGCCF
    from itemrec.models.mf import MF
    from itemrec.models.mult_vae import MultVAE
    from itemrec.models.ngcf import NGCF
    from itemrec.models.nia_gcn import NIAGCN
    from itemrec.models.node2vec import Node2Vec
    from itemrec.models.popularity import Popularity
    from itemrec.models.rlae import RLAE
    from itemrec.models.sgl import SGL
    from itemrec.models.simgcl import SimGCL
    from itemrec.models.simplex import SimpleX
    from itemrec.models.slim import SLIM
    from itemrec.models.ultragcn import UltraGCN
    from itemrec.models.xsimgcl import XSimGCL
else:
    __getattr__, __dir__ = lazy_names(__name__)

MODELS: MutableMapping[str, type[Model]] = LazyTable(
    __name__,
    {
        "hybrid": "Hybrid",
        "lightgcn": "LightGCN",
        "gcn": "GCN",
        "gin": "GIN",
        "gat": "GAT",
        "ngcf": "NGCF",
        "lr-gccf": "LRGCCF",
        "nia-gcn": "NIAGCN",
        "dgcf": "DGCF",
        "sgl": "SGL",
        "simgcl": "SimGCL",
        "xsimgcl": "XSimGCL",
        "adap-tau": "AdapTau",
        "simplex": "SimpleX",
        "mf": "MF",
        "cml": "CML",
        "enmf": "ENMF",
        "deepwalk": "DeepWalk",
        "line": "LINE",
        "node2vec": "Node2Vec",
        "mult-vae": "MultVAE",
        "ultragcn": "UltraGCN",
        "ease": "EASE",
        "rlae": "RLAE",
        "slim": "SLIM",
        "itemknn": "ItemKNN",
        "ials": "IALS",
        "gf-cf": "GFCF",
        "popularity": "Popularity",
    },
)

__all__ = [
    "CML",
    "DGCF",
    "EASE",
    "ENMF",
    "GAT",
    "GCN",
    "GFCF",
    "GIN",
    "GNN",
    "IALS",
    "LINE",
    "LRGCCF",
    "MF",
    "MODELS",
    "NGCF",
    "NIAGCN",
    "RLAE",
    "SGL",
    "SLIM",
    "AdapTau",
    "DeepWalk",
    "EmbeddingModel",
    "Hybrid",
    "ItemKNN",
    "Kind",
    "LightGCN",
    "LinearGNN",
    "Model",
    "MultVAE",
    "Node2Vec",
    "Popularity",
    "SimGCL",
    "SimpleX",
    "UltraGCN",
    "XSimGCL",
]
