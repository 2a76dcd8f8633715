"""One paper, one file; MODELS is the one table of them."""

from itemrec.models.adap_tau import AdapTau
from itemrec.models.base import GNN, EmbeddingModel, Model
from itemrec.models.dgcf import DGCF
from itemrec.models.ease import EASE
from itemrec.models.gat import GAT
from itemrec.models.gcn import GCN
from itemrec.models.gin import GIN
from itemrec.models.lightgcn import LightGCN
from itemrec.models.lr_gccf import LRGCCF
from itemrec.models.mf import MF
from itemrec.models.ngcf import NGCF
from itemrec.models.nia_gcn import NIAGCN
from itemrec.models.popularity import Popularity
from itemrec.models.sgl import SGL
from itemrec.models.simgcl import SimGCL
from itemrec.models.simplex import SimpleX
from itemrec.models.xsimgcl import XSimGCL

MODELS: dict[str, type[Model]] = {
    "lightgcn": LightGCN,
    "gcn": GCN,
    "gin": GIN,
    "gat": GAT,
    "ngcf": NGCF,
    "lr-gccf": LRGCCF,
    "nia-gcn": NIAGCN,
    "dgcf": DGCF,
    "sgl": SGL,
    "simgcl": SimGCL,
    "xsimgcl": XSimGCL,
    "adap-tau": AdapTau,
    "simplex": SimpleX,
    "mf": MF,
    "ease": EASE,
    "popularity": Popularity,
}

__all__ = ["GNN", "MODELS", "EmbeddingModel", "Model", *sorted(c.__name__ for c in MODELS.values())]
