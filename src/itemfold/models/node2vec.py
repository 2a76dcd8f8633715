"""Node2Vec: skip-gram on walks that prefer to return or to explore.

Grover & Leskovec, "node2vec: Scalable Feature Learning for Networks", KDD 2016. A walk that came
from t to v continues to x with weight 1/p if x = t, 1 if x is a neighbour of t, and 1/q otherwise;
in a bipartite graph the second case does not occur, see `random_walks`. The objective is that of
DeepWalk. Not inductive, for the same reason.
"""

from __future__ import annotations

from itemfold.models.random_walks import SkipGramModel
from itemfold.validation import positive


class Node2Vec(SkipGramModel):
    """Skip-gram on walks that prefer to return or to explore (KDD 2016).

    For known users only. It has its own objective and takes neither a loss nor a sampler.

    Args:
        dim: Length of a vector.
        length: Nodes of a walk.
        window: How far apart on a walk two nodes may be to count as a pair.
        negatives: Noise nodes per pair, K.
        shared: Noise nodes that the pairs of a walk share.
        power: Noise is drawn in proportion to degree^power; 0 keeps popularity in the scores.
        p: Return parameter: a step back has weight 1/p.
        q: In-out parameter: a step outwards has weight 1/q.
    """

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
