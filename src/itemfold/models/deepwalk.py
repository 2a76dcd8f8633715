"""DeepWalk: skip-gram on uniform random walks.

Perozzi et al., "DeepWalk: Online Learning of Social Representations", KDD 2014, with the negative
sampling of word2vec. Over the windows of walks, with centre vectors c, context vectors x and K
nodes n drawn in proportion to degree^power:

    L = −Σ_(v,w) [log σ(c_v·x_w) + K·E_n log σ(−c_v·x_n)]

An epoch starts one walk at every user and as many per node at items. The score of an item is the
modelled quantity in both directions: ``c_u·x_i + x_u·c_i``. At the optimum it is log p(i | u) minus
``power`` times the log degree of i, so uniform noise (power 0) ranks by p(i | u) itself; word2vec's
0.75 removes popularity and recommends worse. Not inductive: a node that no walk visited in training
has no vector.
"""

from __future__ import annotations

from itemfold.models.random_walks import SkipGramModel


class DeepWalk(SkipGramModel):
    """Skip-gram on uniform random walks (KDD 2014).

    For known users only. It has its own objective and takes neither a loss nor a sampler.

    Args:
        dim: Length of a vector.
        length: Nodes of a walk.
        window: How far apart on a walk two nodes may be to count as a pair.
        negatives: Noise nodes per pair, K.
        shared: Noise nodes that the pairs of a walk share.
        power: Noise is drawn in proportion to degree^power; 0 keeps popularity in the scores.
    """

    paper = "DeepWalk: Online Learning of Social Representations"
    year = 2014
