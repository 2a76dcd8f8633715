"""The defining property of each message-passing model and of the models built on LightGCN."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.spatial
import scipy.special
import torch
import torch.nn.functional as F
from small import batch_of, board_split, dense_adjacency, random_matrix, ready, seeded
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.graph.noisy_propagation import noisy_passes
from itemfold.graph.propagation import propagate
from itemfold.models import GAT, GNN, MODELS, LightGCN
from itemfold.models.adap_tau import (
    AdapTau,
    inverse_general,
    lambert_w,
    personal_factor,
    temperatures,
)
from itemfold.models.dgcf import DGCF, centred_distances, distance_correlation, independence
from itemfold.models.info_nce import first_of, info_nce
from itemfold.models.lr_gccf import LRGCCF
from itemfold.models.ngcf import NGCF
from itemfold.models.nia_gcn import NIAGCN
from itemfold.models.sgl import SGL
from itemfold.models.simgcl import SimGCL
from itemfold.models.simplex import SimpleX
from itemfold.models.xsimgcl import XSimGCL
from itemfold.sampling.base import Batch, Encoded
from itemfold.training.fit import train

GNNS = ["ngcf", "lr-gccf", "nia-gcn", "dgcf", "sgl", "simgcl", "xsimgcl", "adap-tau"]


def neighbours(matrix: sp.csr_array) -> list[list[int]]:
    return [row.nonzero()[0].tolist() for row in dense_adjacency(matrix)]


# --- encoders ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GNNS)
def test_folding_in_gives_a_training_user_its_own_vector(name: str) -> None:
    """Users without parameters are computed from their items, in training and afterwards."""
    matrix = random_matrix(12, 9, 0.4)
    model = MODELS[name](dim=8, layers=3)
    assert isinstance(model, GNN)
    graph = ready(model, matrix, inductive=True)
    assert model.user_embedding is None
    model.cache_embeddings(graph)
    folded = model.fold_in(matrix)
    torch.testing.assert_close(folded, model.user_vectors, rtol=1e-4, atol=1e-6)


def test_ngcf_is_the_authors_layer_node_by_node() -> None:
    """Means with the node itself, two activations, biases; layers after the first have length 1."""
    matrix = random_matrix(7, 6, 0.5)
    model = NGCF(dim=4, layers=2)
    graph = ready(model, matrix)
    near = neighbours(matrix)
    h = model.base(graph).detach().double()
    parts = [h]
    for depth in range(2):
        weights = (model.plain, model.plain_bias, model.product, model.product_bias)
        plain, plain_bias, product, product_bias = (w[depth].detach().double() for w in weights)
        out = torch.zeros_like(h)
        for v, others in enumerate(near):
            mean = (h[v] + sum(h[j] for j in others)) / (len(others) + 1)
            for part in (mean @ plain + plain_bias[0], (h[v] * mean) @ product + product_bias[0]):
                out[v] += torch.where(part > 0, part, 0.2 * part)
        h = out
        parts.append(h / h.norm(dim=1, keepdim=True).clamp(min=1e-12))
    users, items = model.encode(graph)
    assert users.shape == (7, 12)
    expected = torch.cat(parts, 1).float()
    torch.testing.assert_close(torch.cat([users, items]), expected, rtol=1e-4, atol=1e-6)


def test_ngcf_drops_messages_in_training_only_and_keeps_their_mean() -> None:
    matrix = random_matrix(40, 30, 0.3)
    model = NGCF(dim=32, layers=1, dropout=0.4, node_dropout=0.0)
    graph = ready(model, matrix)
    full = model.layers(graph)[1]
    dropped = model.training_layers(graph, seeded(1))[1]
    gone = (dropped == 0) & (full != 0)
    assert 0.35 < float(gone.sum() / (full != 0).sum()) < 0.45
    torch.testing.assert_close(dropped[~gone], full[~gone] / 0.6)
    assert torch.equal(model.encode(graph)[0], model.encode(graph)[0])
    none = NGCF(dim=8, dropout=0.0, node_dropout=0.0)
    graph = ready(none, matrix)
    assert torch.equal(none.encode_step(graph, seeded()).users, none.encode(graph)[0])


def test_ngcf_trains_without_a_share_of_the_edges_that_changes_each_epoch() -> None:
    matrix = random_matrix(40, 30, 0.3)
    model = NGCF(dim=8, layers=1, dropout=0.0, node_dropout=0.3)
    graph = ready(model, matrix)
    generator, seen = seeded(), []
    for _ in range(2):
        model.begin_epoch(graph, generator)
        assert model.thinned is not None
        kept = model.thinned.interactions()
        assert kept.nnz == matrix.nnz - round(0.3 * matrix.nnz)
        alone = model.layer(0, Graph.from_csr(kept), model.base(graph), model.base(graph))
        torch.testing.assert_close(model.training_layers(graph, generator)[1], alone)
        seen.append(kept.toarray().tobytes())
    assert seen[0] != seen[1]
    torch.testing.assert_close(model.layers(graph)[1], NGCF.layers(model, graph)[1])  # all edges


@pytest.mark.parametrize("kind", [NGCF, DGCF])
def test_vectors_start_as_xaviers(kind: type[GNN]) -> None:
    """Uniform within ±√(6/(rows + columns)), so that more nodes start closer to zero."""
    for users in (50, 5000):
        model = kind(dim=8, layers=1)
        ready(model, random_matrix(users, 20, 0.1))
        assert model.user_embedding is not None
        bound = math.sqrt(6 / (users + 8))
        assert 0.95 * bound < float(model.user_embedding.detach().abs().max()) <= bound


def test_lr_gccf_is_powers_of_the_graph_with_self_loops() -> None:
    matrix = random_matrix(8, 6, 0.5)
    model = LRGCCF(dim=4, layers=3)
    graph = ready(model, matrix)
    looped = dense_adjacency(matrix).astype(np.float64) + np.eye(14)
    scale = np.diag(looped.sum(1) ** -0.5)
    step = scale @ looped @ scale
    base = model.base(graph).detach().numpy().astype(np.float64)
    expected = np.hstack([np.linalg.matrix_power(step, k) @ base for k in range(4)])
    np.testing.assert_allclose(torch.cat(model.encode(graph)).detach(), expected, atol=1e-5)


def test_nia_gcn_uses_every_pair_of_neighbours_once() -> None:
    matrix = random_matrix(7, 6, 0.6)
    model = NIAGCN(dim=4, layers=2)
    graph = ready(model, matrix)
    near = neighbours(matrix)
    h = model.base(graph).detach().double()
    layers = [h]
    for depth in range(2):
        out = torch.zeros_like(h)
        for v, others in enumerate(near):
            pairs = [h[i] * h[j] for i in others for j in others if i < j]
            common = torch.stack(pairs).mean(0) if pairs else torch.zeros(4).double()
            messages = [h[j] / math.sqrt(len(others) * len(near[j])) for j in others]
            convolved = torch.stack(messages).sum(0) if messages else torch.zeros(4).double()
            weights = (m[depth].double() for m in (model.convolved, model.paired, model.kept))
            terms = (convolved, common, h[v])
            mixed = [x @ w for x, w in zip(terms, weights, strict=True)]
            out[v] = torch.tanh(mixed[0] + mixed[1] + mixed[2])
        h = out
        layers.append(h)
    crossed = layers[0] * layers[1] + layers[0] * layers[2] + layers[1] * layers[2]
    expected = torch.cat([*layers, crossed], 1).float()
    torch.testing.assert_close(torch.cat(model.encode(graph)), expected, rtol=1e-4, atol=1e-6)


def test_dgcf_intents_sum_to_one_on_every_edge() -> None:
    matrix = random_matrix(12, 9, 0.4)
    model = DGCF(dim=8, layers=2, intents=4, iterations=3)
    graph = ready(model, matrix)
    _, degrees, logits = model.route(graph)
    share = torch.softmax(logits, 1)
    torch.testing.assert_close(share.sum(1), torch.ones(len(graph.col)))
    assert share.std(1).min() > 0  # and no edge is divided evenly any more
    torch.testing.assert_close(logits[graph.reverse], logits)  # the same in both directions
    for degree in degrees:  # so the intent degrees of a node sum to its degree
        torch.testing.assert_close(degree.sum(1), graph.degree)


def test_dgcf_is_its_iteration() -> None:
    matrix = random_matrix(6, 5, 0.6)
    model = DGCF(dim=6, layers=1, intents=2, iterations=2)
    graph = ready(model, matrix)
    dense = dense_adjacency(matrix).astype(np.float64)
    base = model.base(graph).detach().numpy().astype(np.float64)
    chunks = np.split(base, 2, axis=1)
    logits = np.zeros((2, 11, 11))

    def unit(x: np.ndarray) -> np.ndarray:
        return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)

    for _ in range(2):
        share = np.exp(logits) / np.exp(logits).sum(0) * dense
        outputs = []
        for k in range(2):
            scale = np.diag(1 / np.sqrt(np.maximum(share[k].sum(1), 1e-12)))
            outputs.append(scale @ share[k] @ scale @ chunks[k])
            change = np.zeros((11, 11))
            for u in range(6):
                for i in range(6, 11):
                    change[u, i] = change[i, u] = unit(outputs[k])[u] @ np.tanh(unit(chunks[k])[i])
            logits[k] += change
    expected = (base + np.hstack(outputs)) / 2
    np.testing.assert_allclose(torch.cat(model.encode(graph)).detach(), expected, atol=1e-5)


def test_dgcf_gradients_are_those_of_a_numerical_derivative() -> None:
    matrix = random_matrix(5, 4, 0.6)
    model = DGCF(dim=4, layers=2, intents=2, penalty=0.5)
    graph = ready(model, matrix)
    model.double()
    batch = batch_of(matrix)

    def value(items: Tensor) -> Tensor:
        users, vectors = torch.func.functional_call(model, {"item_embedding": items}, (graph,))
        extra = model.extra_loss(graph, batch, Encoded(users, vectors), seeded())
        return (users.square().sum() + vectors.pow(3).sum()) * 10 + extra

    model.forward = model.encode  # type: ignore[method-assign]
    items = model.item_embedding.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(value, (items,), atol=1e-4)


def naive_distance_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Székely's definition, by scipy's distances."""
    centred = []
    for values in (x, y):
        far = scipy.spatial.distance.cdist(values, values)
        centred.append(far - far.mean(0) - far.mean(1)[:, None] + far.mean())
    both, one, two = (
        math.sqrt((a * b).mean())
        for a, b in ((centred[0], centred[1]), (centred[0],) * 2, (centred[1],) * 2)
    )
    return both / math.sqrt(one * two)


def test_distance_correlation_is_one_for_copies_and_small_for_independent_vectors() -> None:
    x, y = torch.randn(400, 3, generator=seeded()), torch.randn(400, 3, generator=seeded(1))
    turned = x @ torch.linalg.qr(torch.randn(3, 3, generator=seeded(2))).Q * 5 + 1
    found = distance_correlation(centred_distances(torch.stack([x, turned, y])))
    torch.testing.assert_close(found.diagonal(), torch.ones(3), rtol=1e-3, atol=0)
    assert found[0, 1] > 0.999
    assert found[0, 2] < 0.3
    assert float(found[1, 2]) == pytest.approx(
        naive_distance_correlation(turned.numpy(), y.numpy()), rel=1e-3
    )


def test_the_scale_of_dgcfs_penalty_is_that_of_the_authors_code() -> None:
    """Adjacent intents only, users and items in one sample, divided by K(K + 1)/2."""
    nodes = torch.randn(60, 8, generator=seeded())
    chunks = np.split(nodes.numpy().astype(np.float64), 4, axis=1)
    pairs = [naive_distance_correlation(chunks[k], chunks[k + 1]) for k in range(3)]
    assert float(independence(nodes, 4)) == pytest.approx(sum(pairs) / 10, rel=1e-3)
    same = torch.randn(60, 2, generator=seeded()).repeat(1, 4)  # four copies: the largest value
    assert float(independence(same, 4)) == pytest.approx(0.3, rel=1e-3)
    assert float(independence(nodes, 1)) == 0.0


def test_dgcfs_penalty_compares_random_users_and_items() -> None:
    """Whichever batch it is, all nodes may be compared, and padding cannot matter."""
    matrix = random_matrix(12, 9, 0.4)
    model = DGCF(dim=8, intents=4, penalty=0.5)
    encoded = Encoded(*model.encode(ready(model, matrix)))
    graph, generator = Graph.from_csr(matrix), seeded(3)
    rows = [
        encoded.users[torch.randint(12, (12,), generator=generator)],
        encoded.items[torch.randint(9, (9,), generator=generator)],
    ]
    found = model.extra_loss(graph, batch_of(matrix, padding=30), encoded, seeded(3))
    torch.testing.assert_close(found, 0.5 * independence(torch.cat(rows), 4))
    found.backward()
    assert model.item_embedding.grad is not None
    assert model.item_embedding.grad.isfinite().all()


# --- training enhancements -----------------------------------------------------------------------


def test_first_of_is_unique_with_a_fixed_shape_and_info_nce_counts_nodes_once() -> None:
    index = torch.tensor([5, 2, 5, 9, 2, 7])
    real = torch.tensor([True, True, True, True, True, False])
    assert first_of(index, real).tolist() == [True, True, False, True, False, False]
    one, two = torch.randn(6, 4, generator=seeded()), torch.randn(6, 4, generator=seeded(1))
    one, two = one[[0, 1, 0, 2, 1, 3]], two[[0, 1, 0, 2, 1, 3]]  # the same node, the same vector
    total = 0.0
    for i in (0, 1, 3):
        cosines = [torch.cosine_similarity(one[i], two[j], 0) / 0.2 for j in (0, 1, 3)]
        own = torch.cosine_similarity(one[i], two[i], 0) / 0.2
        total -= math.log(math.exp(own) / sum(math.exp(c) for c in cosines)) / 3
    assert float(info_nce(one, two, 0.2, first_of(index, real))) == pytest.approx(total, rel=1e-5)


def test_sgl_contrasts_every_row_of_a_batch_with_all_users_and_all_items() -> None:
    """Nodes outside of the batch are negatives as well, and padding is no row."""
    matrix = random_matrix(12, 9, 0.4)
    model = SGL(dim=4, weight=0.7, temperature=0.2)
    graph = ready(model, matrix)
    model.begin_epoch(graph, seeded())
    batch = Batch(  # user 1 twice, users 5 to 11 not at all
        torch.tensor([1, 1, 4, 0]),
        torch.tensor([[2], [3], [2], [0]]),
        torch.tensor([[True], [True], [True], [False]]),
    )
    one, two = (model.encode(view) for view in model.dropped_graphs)
    total = 0.0
    for first, second, rows in ((one[0], two[0], [1, 1, 4]), (one[1], two[1], [2, 3, 2])):
        for row in rows:
            logits = [
                torch.cosine_similarity(first[row], other, 0).item() / 0.2 for other in second
            ]
            total += (scipy.special.logsumexp(logits) - logits[row]) / 3
    found = model.extra_loss(graph, batch, Encoded(*one), seeded())
    assert float(found) == pytest.approx(0.7 * total, rel=1e-4)


def test_sgl_redraws_its_graphs_each_epoch() -> None:
    matrix = random_matrix(40, 30, 0.3)
    model = SGL(dim=4, drop=0.3)
    graph = ready(model, matrix)
    generator = seeded()
    kept = []
    for _ in range(3):
        model.begin_epoch(graph, generator)
        assert len(model.dropped_graphs) == 2
        for view in model.dropped_graphs:
            rest = view.interactions().toarray()
            assert ((rest == 0) | (matrix.toarray() == 1)).all()  # no edge is added
            assert rest.sum() == matrix.nnz - round(0.3 * matrix.nnz)
            assert view.degree[:40].tolist() == rest.sum(1).tolist()  # its own degrees
            kept.append(rest.tobytes())
    assert len(set(kept)) == 6


def test_sgl_keeps_its_graphs_in_the_same_memory() -> None:
    """A recorded step reads memory: tensors derived from a view must follow its edges."""
    model = SGL(dim=4, drop=0.3)
    graph = ready(model, random_matrix(40, 30, 0.3))
    model.begin_epoch(graph, seeded(1))
    view = model.dropped_graphs[0]
    held = {name: getattr(view, name) for name in ("order", "inverse_root", "edge_weight", "sides")}
    user_sources = held["sides"]["users"].col
    model.begin_epoch(graph, seeded(2))
    fresh = graph.drop_edges(0.3, seeded(2))
    assert model.dropped_graphs[0] is view
    assert torch.equal(view.col, fresh.col)
    for name in ("order", "inverse_root", "edge_weight"):
        assert torch.equal(held[name], getattr(fresh, name))
    assert torch.equal(user_sources, fresh.sides["users"].col)
    ready(model, random_matrix(20, 10, 0.3))
    assert not model.dropped_graphs  # graphs of other data are discarded


def test_simgcl_moves_each_node_by_exactly_epsilon_per_layer() -> None:
    matrix = random_matrix(12, 9, 0.4)
    model = SimGCL(dim=8, layers=3, epsilon=0.25)
    graph = ready(model, matrix)
    connected = graph.degree > 0
    generator = seeded(5)
    clean, *views = noisy_passes(graph, model.base(graph), 3, [0.0, 0.25, 0.25], generator)
    torch.testing.assert_close(clean, model.layers(graph))
    for view in views:
        assert torch.equal(view[0], model.base(graph))
        for depth in range(3):
            clean = model.layer(depth, graph, view[depth], view[depth])
            moved = view[depth + 1] - clean
            lengths = moved.norm(dim=1)[connected]
            torch.testing.assert_close(lengths, torch.full_like(lengths, 0.25))
            assert (moved * clean >= 0).all()  # the noise has the sign of the vector
    assert not torch.allclose(views[0][1], views[1][1])


@pytest.mark.parametrize("depth", [1, 3])
def test_the_gradient_of_noisy_passes_is_that_of_autograd(depth: int) -> None:
    """Compare with layers whose noise is added by differentiable operations."""
    graph = Graph.from_csr(random_matrix(12, 9, 0.4))
    x = torch.randn(21, 8, generator=seeded()).requires_grad_()
    mix = torch.randn(3 * (depth + 1), 21, 8, generator=seeded(1))
    noisy = noisy_passes(graph, x, depth, [0.25, 0.0, 0.5], seeded(3))
    ours = torch.stack([layer for layers in noisy for layer in layers])
    written, generator = [], seeded(3)
    for epsilon in (0.25, 0.0, 0.5):
        written.append(x)
        for _ in range(depth):
            clean = propagate(graph, written[-1])
            noise = torch.rand(clean.shape, generator=generator) if epsilon else clean
            length = noise.norm(dim=1, keepdim=True).clamp(min=1e-12)
            written.append(clean + epsilon * torch.sign(clean) * noise / length)
    theirs = torch.stack(written)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad((out * mix).sum(), x)[0] for out in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_xsimgcl_refuses_a_contrasted_layer_it_does_not_have() -> None:
    for protocol, depth in (("transductive", 3), ("inductive", 2)):
        train(board_split(protocol), XSimGCL(dim=4, contrasted=depth), epochs=1, eval_every=1)
        with pytest.raises(
            ItemfoldError, match=f"'contrasted' must be a layer, 1 to {depth}, got 9"
        ):
            train(board_split(protocol), XSimGCL(dim=4, contrasted=9), epochs=1, eval_every=1)


@pytest.mark.parametrize("kind", [SimGCL, XSimGCL])
def test_layer_zero_is_not_pooled(kind: type[LightGCN]) -> None:
    matrix = random_matrix(12, 9, 0.4)
    model = kind(dim=8, layers=2)
    graph = ready(model, matrix)
    layers = model.layers(graph)
    expected = (layers[1] + layers[2]) / 2
    torch.testing.assert_close(torch.cat(model.encode(graph)), expected)


def test_xsimgcl_contrasts_the_final_vectors_of_one_noisy_pass_with_a_layer_of_it() -> None:
    matrix = random_matrix(12, 9, 0.4)
    model = XSimGCL(dim=8, layers=3, contrasted=2, weight=0.7, temperature=0.3)
    graph = ready(model, matrix)
    batch = batch_of(matrix, per_user=1)
    encoded = model.encode_step(graph, seeded(3), layers=True)
    users, items, layers = encoded.users, encoded.items, encoded.item_layers
    (again,) = noisy_passes(graph, model.base(graph), 3, [model.epsilon], seeded(3))
    torch.testing.assert_close(torch.cat([users, items]), torch.stack(again[1:]).mean(0))
    assert torch.equal(layers[2], again[2][12:])
    value = model.extra_loss(graph, batch, encoded, seeded())
    everyone = first_of(batch.users, batch.mask.any(1))
    chosen = batch.positives[:, 0]
    expected = info_nce(users[batch.users], again[2][batch.users], 0.3, everyone)
    once = first_of(chosen, batch.mask.any(1))
    expected = expected + info_nce(items[chosen], again[2][12 + chosen], 0.3, once)
    torch.testing.assert_close(value, 0.7 * expected)
    assert not torch.allclose(model.encode(graph)[0], users)  # scoring has no noise


def test_adap_tau_general_temperature_is_that_of_the_mean_cosines() -> None:
    """At τ₀ half of the mass e^{c/τ₀} of the mean cosines falls on the interactions."""
    matrix = random_matrix(30, 40, 0.05)
    graph = Graph.from_csr(matrix)
    items = torch.nn.functional.normalize(torch.randn(40, 6, generator=seeded()), dim=1)
    sums = torch.from_numpy(matrix.toarray()) @ items + 0.01
    users = torch.nn.functional.normalize(sums, dim=1)
    cosines = (users @ items.T).numpy()
    positive = cosines[matrix.toarray() > 0].mean()
    inverse = float(inverse_general(graph, users, items))
    mass = matrix.nnz * math.exp(inverse * (positive - cosines.mean()))
    assert mass == pytest.approx(30 * 40 / 2, rel=1e-3)


def test_adap_tau_temperatures_surround_the_mean_and_minimise_their_objective() -> None:
    losses = torch.tensor([-3.0, 1.75, 2.0, 3.0, 6.25, 99.0], dtype=torch.float64)
    known = torch.tensor([True] * 5 + [False])
    mean = losses[:5].mean()  # 2: the third user's loss
    factor = personal_factor(losses, mean, 1.5, known)  # τ₀/τ_u
    assert factor[2] == 1.0  # a user of mean loss has the mean temperature
    assert factor[5] == 1.0  # and so does a user without a loss
    assert (factor[:5].diff() < 0).all()  # a higher loss gives a higher temperature
    assert float(factor.max()) == pytest.approx(math.e)  # at least τ₀/e
    grid = torch.logspace(-4, math.log10(math.e), 40_001, dtype=torch.float64)
    for loss, own in zip(losses[1:5], factor[1:5], strict=True):
        value = (loss - mean) * grid + 1.5 * grid.log().square() / 2
        assert float(own) == pytest.approx(float(grid[value.argmin()]), rel=1e-3)


def test_adap_tau_keeps_its_temperatures_in_place_and_out_of_the_weights() -> None:
    matrix = random_matrix(30, 40, 0.2)
    model = AdapTau(dim=8)
    graph = ready(model, matrix)
    before = model.personal
    model.begin_epoch(graph, seeded())
    assert model.personal is before  # a recorded step reads this very tensor
    assert model.personal.std() > 0
    users, items = (torch.nn.functional.normalize(x, dim=1) for x in model.encode(graph))
    general, personal = temperatures(graph, users, items, 1.5, seeded())
    torch.testing.assert_close(model.personal, personal.detach())
    assert torch.equal(model.general, general.detach())
    assert set(model.state_dict()) == {"user_embedding", "item_embedding"}


def test_adap_tau_loss_is_its_formula() -> None:
    matrix = random_matrix(9, 8, 0.4)
    model = AdapTau(dim=8, layers=2, l2=0.3, dropout=0.0)
    graph = ready(model, matrix)
    model.begin_epoch(graph, seeded())
    batch = batch_of(matrix, per_user=2, padding=2)
    users, items = model.encode(graph)
    dense = matrix.toarray()
    listed = batch.positives[batch.mask].tolist()
    terms, norms = [], []
    layers = model.layers(graph)
    for row, user in enumerate(batch.users.tolist()):
        for item in batch.positives[row][batch.mask[row]].tolist():
            others = [j for j in listed if not dense[user, j]]
            cosine = torch.cosine_similarity(users[user].unsqueeze(0), items)
            logits = torch.stack([cosine[j] * model.personal[user] for j in others])
            terms.append(logits.logsumexp(0) - cosine[item] * model.general)
            norms.append(sum(x[user].square().sum() + x[9 + item].square().sum() for x in layers))
    expected = torch.stack(terms).mean() + 0.3 * torch.stack(norms).mean() / 2
    torch.testing.assert_close(model.own_loss(graph, batch, seeded()), expected)


def test_adap_tau_drops_messages_of_every_layer_in_training_only() -> None:
    matrix = random_matrix(40, 30, 0.3)
    model = AdapTau(dim=32, layers=2, dropout=0.2)
    graph = ready(model, matrix)
    base, first, second = model.training_layers(graph, seeded(1))
    assert torch.equal(base, model.base(graph))
    full = propagate(graph, base)
    gone = (first == 0) & (full != 0)
    assert 0.17 < float(gone.sum() / (full != 0).sum()) < 0.23
    torch.testing.assert_close(first[~gone], full[~gone] / 0.8)
    full = propagate(graph, first)  # the next layer passes on what is left
    kept = second != 0
    torch.testing.assert_close(second[kept], full[kept] / 0.8)
    one, two = (model.own_loss(graph, batch_of(matrix), seeded(n)) for n in (1, 2))
    assert one != two
    assert torch.equal(model.encode(graph)[0], model.encode(graph)[0])


def test_simplex_is_its_formula_and_a_new_user_is_its_history() -> None:
    matrix = random_matrix(9, 8, 0.4)
    model = SimpleX(dim=4, g=0.3)
    graph = ready(model, matrix)
    model.transform.data = torch.randn(4, 4, generator=seeded(1))
    users, items = model.encode(graph)
    torch.testing.assert_close(items.norm(dim=1), torch.ones(8))
    assert model.users is not None
    for user in range(8):
        history = matrix.toarray()[user].nonzero()[0]
        mean = model.items[history].mean(0) @ model.transform
        vector = 0.3 * model.users[user] + 0.7 * mean
        torch.testing.assert_close(users[user], vector / vector.norm())
        torch.testing.assert_close(model.fold_in(matrix[[user]])[0], mean / mean.norm())
    inductive = SimpleX(dim=4, g=1.0)
    graph = ready(inductive, matrix, inductive=True)
    inductive.cache_embeddings(graph)
    torch.testing.assert_close(inductive.fold_in(matrix), inductive.user_vectors)


def test_simplex_drops_values_of_users_and_its_biases_of_items_rank() -> None:
    matrix = random_matrix(40, 30, 0.3)
    model = SimpleX(dim=16, g=1.0, dropout=0.4, bias=True)
    graph = ready(model, matrix)
    for bias in (model.item_bias, model.user_bias, model.general_bias):
        bias.data.normal_(generator=seeded(len(bias)))
    assert model.users is not None
    cosines = F.normalize(model.users) @ F.normalize(model.items).T
    model.cache_embeddings(graph)
    ranked = model.scores(matrix, np.arange(40))
    torch.testing.assert_close(ranked, cosines.detach() + model.item_bias.detach().T)
    step = model.encode_step(graph, seeded())
    users = step.users[:, :17]  # [u ; 1], of which 40 % are gone
    gone = users == 0
    assert 0.35 < float(gone.float().mean()) < 0.45
    whole = torch.cat([F.normalize(model.users), torch.ones(40, 1)], 1)
    torch.testing.assert_close(users[~gone], whole[~gone] / 0.6)
    kept = users @ step.items[:, :17].T
    offset = model.user_bias + model.general_bias  # in training only
    torch.testing.assert_close(step.users @ step.items.T, kept + offset)


def test_simplex_penalises_all_vectors_not_those_of_a_batch() -> None:
    matrix = random_matrix(9, 8, 0.4)
    model = SimpleX(dim=4, l2=0.2)
    graph = ready(model, matrix)
    encoded = model.encode_step(graph, seeded())
    found = model.extra_loss(graph, batch_of(matrix[[0]]), encoded, seeded())
    assert found is not None
    assert model.users is not None
    squares = sum(float((p.detach().double() ** 2).sum()) for p in (model.users, model.items))
    assert float(found) == pytest.approx(0.1 * squares, rel=1e-5)
    assert SimpleX(dim=4).extra_loss(graph, batch_of(matrix), encoded, seeded()) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: NGCF(node_dropout=-0.1),
            "'node_dropout' must be at least 0 and below 1, got -0.1",
        ),
        (lambda: SimpleX(dropout=1.0), "'dropout' must be at least 0 and below 1, got 1.0"),
        (lambda: AdapTau(dropout=1.0), "'dropout' must be at least 0 and below 1, got 1.0"),
        (lambda: GAT(shared_lr=0.0), "'shared_lr' must be a positive number, got 0.0"),
        (lambda: NGCF(dropout=1.0), "'dropout' must be at least 0 and below 1, got 1.0"),
        (lambda: DGCF(dim=6, intents=4), "'intents' must divide 'dim' .6., got 4"),
        (lambda: DGCF(iterations=0), "'iterations' must be a positive integer, got 0"),
        (lambda: SGL(drop=0.0), "'drop' must be above 0 and below 1, got 0.0"),
        (lambda: SimGCL(epsilon=0.0), "'epsilon' must be a positive number, got 0.0"),
        (lambda: XSimGCL(layers=2, contrasted=3), "'contrasted' must be a layer, 1 or more, got 3"),
        (lambda: AdapTau(beta=0.0), "'beta' must be a positive number, got 0.0"),
        (lambda: SimpleX(g=1.5), "'g' must be between 0 and 1, got 1.5"),
    ],
)
def test_bad_settings_name_the_parameter_the_rule_and_the_value(make: Any, message: str) -> None:
    with pytest.raises(ItemfoldError, match=message):
        make()


def test_lambert_w_agrees_with_scipy() -> None:
    x = np.concatenate([[0.0], -1 / math.e + np.logspace(-12, 1, 200), np.logspace(-6, 6, 200)])
    expected = scipy.special.lambertw(x).real
    np.testing.assert_allclose(lambert_w(torch.from_numpy(x)), expected, rtol=1e-6, atol=1e-7)
    w = lambert_w(torch.from_numpy(x))
    np.testing.assert_allclose(w * torch.exp(w), x, rtol=1e-12, atol=1e-14)
    assert lambert_w(torch.tensor([-1 / math.e, -5.0], dtype=torch.float64)).tolist() == [-1, -1]
