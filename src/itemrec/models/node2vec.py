"""Node2Vec: skip-gram on walks that prefer to return or to explore.

Grover & Leskovec, "node2vec: Scalable Feature Learning for Networks", KDD 2016. A walk that came
from t to v goes on to x with weight 1/p where x = t, 1 where x is a neighbour of t, 1/q elsewhere;
in a bipartite graph the middle case is empty, see `random_walks`. The objective is DeepWalk's. Not
inductive, for the same reason.
"""

from __future__ import annotations

from itemrec.models.random_walks import SkipGramModel
from itemrec.validation import positive


class Node2Vec(SkipGramModel):
    """Skip-gram on biased walks (KDD 2016)."""

    paper = "node2vec: Scalable Feature Learning for Networks"
    year = 2016

    def __init__(
        self,
        dim: int = 64,
        length: int = 20,
        window: int = 5,
        negatives: int = 5,
        shared: int = 50,
        power: float = 0.0,
        p: float = 4.0,
        q: float = 1.0,
    ) -> None:
        super().__init__(dim, length, window, negatives, shared, power)
        positive(p=p, q=q)
        self.p, self.q = p, q
