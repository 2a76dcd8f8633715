"""Models, one file per paper; MODELS is the table of models by name."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from itemfold.lazy import LazyTable, lazy_names

if TYPE_CHECKING:  # each name is imported when it is first used
    from itemfold.models.adap_tau import AdapTau
    from itemfold.models.base import Kind, Model
    from itemfold.models.chebycf import ChebyCF
    from itemfold.models.cml import CML
    from itemfold.models.deepwalk import DeepWalk
    from itemfold.models.dgcf import DGCF
    from itemfold.models.ease import EASE
    from itemfold.models.egcf import EGCF
    from itemfold.models.embedding_model import EmbeddingModel
    from itemfold.models.enmf import ENMF
    from itemfold.models.gat import GAT
    from itemfold.models.gcn import GCN
    from itemfold.models.gf_cf import GFCF
    from itemfold.models.gin import GIN
    from itemfold.models.gnn import GNN
    from itemfold.models.hybrid import Hybrid
    from itemfold.models.ials import IALS
    from itemfold.models.itemknn import ItemKNN
    from itemfold.models.lightgcn import LightGCN
    from itemfold.models.lightgcnpp import LightGCNPP
    from itemfold.models.line import LINE
    from itemfold.models.linear_gnn import LinearGNN
    from itemfold.models.lr_gccf import LRGCCF
    from itemfold.models.mf import MF
    from itemfold.models.mult_vae import MultVAE
    from itemfold.models.ngcf import NGCF
    from itemfold.models.nia_gcn import NIAGCN
    from itemfold.models.node2vec import Node2Vec
    from itemfold.models.popularity import Popularity
    from itemfold.models.recvae import RecVAE
    from itemfold.models.rlae import RLAE
    from itemfold.models.rp3beta import RP3Beta
    from itemfold.models.sansa import SANSA
    from itemfold.models.sgl import SGL
    from itemfold.models.simgcl import SimGCL
    from itemfold.models.simplex import SimpleX
    from itemfold.models.slim import SLIM
    from itemfold.models.ultragcn import UltraGCN
    from itemfold.models.userknn import UserKNN
    from itemfold.models.xsimgcl import XSimGCL
else:
    __getattr__, __dir__ = lazy_names(__name__)

MODELS: MutableMapping[str, type[Model]] = LazyTable(
    __name__,
    {
        "hybrid": "Hybrid",
        "lightgcn": "LightGCN",
        "lightgcn-pp": "LightGCNPP",
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
        "egcf": "EGCF",
        "adap-tau": "AdapTau",
        "simplex": "SimpleX",
        "mf": "MF",
        "cml": "CML",
        "enmf": "ENMF",
        "deepwalk": "DeepWalk",
        "line": "LINE",
        "node2vec": "Node2Vec",
        "mult-vae": "MultVAE",
        "recvae": "RecVAE",
        "ultragcn": "UltraGCN",
        "ease": "EASE",
        "rlae": "RLAE",
        "slim": "SLIM",
        "sansa": "SANSA",
        "itemknn": "ItemKNN",
        "userknn": "UserKNN",
        "rp3beta": "RP3Beta",
        "ials": "IALS",
        "gf-cf": "GFCF",
        "chebycf": "ChebyCF",
        "popularity": "Popularity",
    },
)

__all__ = [
    "CML",
    "DGCF",
    "EASE",
    "EGCF",
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
    "SANSA",
    "SGL",
    "SLIM",
    "AdapTau",
    "ChebyCF",
    "DeepWalk",
    "EmbeddingModel",
    "Hybrid",
    "ItemKNN",
    "Kind",
    "LightGCN",
    "LightGCNPP",
    "LinearGNN",
    "Model",
    "MultVAE",
    "Node2Vec",
    "Popularity",
    "RP3Beta",
    "RecVAE",
    "SimGCL",
    "SimpleX",
    "UltraGCN",
    "UserKNN",
    "XSimGCL",
]
