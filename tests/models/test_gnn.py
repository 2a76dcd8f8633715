"""Message passing against torch-geometric's layers, and folding in against dense matrices."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import dense_adjacency, random_matrix
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv
from torch_geometric.nn import LGConv as LightConv

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models import GAT, GCN, GIN, GNN, LightGCN

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
DIM = 8


def ready(model: GNN, train: sp.csr_array, inductive: bool = False) -> GNN:
    """Random weights everywhere, biases and ε too, so that nothing is hidden by a zero."""
    generator = torch.Generator().manual_seed(1)
    model.setup(train, inductive=inductive, generator=generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    model.eval()
    return model


def gcn_conv(model: GNN, depth: int) -> Callable[[Tensor, Tensor], Tensor]:
    conv = GCNConv(DIM, DIM)
    conv.lin.weight = nn.Parameter(model.weights[depth].detach().T)
    conv.bias = model.biases[depth]
    return conv


def gin_conv(model: GNN, depth: int) -> Callable[[Tensor, Tensor], Tensor]:
    network = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM))
    conv = GINConv(network, eps=model.epsilon[depth].item())  # reinitialises the network's weights
    weights = (model.first, model.first_bias, model.second, model.second_bias)
    first, first_bias, second, second_bias = (w[depth].detach() for w in weights)
    network[0].weight, network[0].bias = nn.Parameter(first.T), nn.Parameter(first_bias)
    network[2].weight, network[2].bias = nn.Parameter(second.T), nn.Parameter(second_bias)
    return conv


def gat_conv(model: GNN, depth: int) -> Callable[[Tensor, Tensor], Tensor]:
    conv = GATConv(DIM, DIM // model.heads, heads=model.heads)
    conv.lin.weight = nn.Parameter(model.weights[depth].detach().T)
    conv.att_src = nn.Parameter(model.to_source[depth].detach().unsqueeze(0))
    conv.att_dst = nn.Parameter(model.to_own[depth].detach().unsqueeze(0))
    conv.bias = model.biases[depth]
    return conv


def identity(x: Tensor) -> Tensor:
    return x


def leaky(x: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(x, 0.2)


@pytest.mark.parametrize(
    ("model", "reference", "between"),
    [
        (LightGCN(DIM, 2), lambda model, depth: LightConv(), identity),
        (GCN(DIM, 2), gcn_conv, leaky),
        (GIN(DIM, 2, normalise=False), gin_conv, identity),
        (GAT(DIM, 2, heads=1), gat_conv, leaky),
        (GAT(DIM, 2, heads=2), gat_conv, leaky),
    ],
    ids=["lightgcn", "gcn", "gin", "gat-1", "gat-2"],
)
def test_layers_and_their_gradients_equal_torch_geometrics(
    model: GNN, reference: Callable[..., Callable[[Tensor, Tensor], Tensor]], between: Callable
) -> None:
    train = random_matrix(14, 10, 0.35)  # the last user and the last item are isolated
    ready(model, train)
    graph = Graph.from_csr(train)
    index = torch.from_numpy(np.stack(np.nonzero(dense_adjacency(train))[::-1]).copy())
    # each model's layers start from the same h⁰; its first layer is activated, its last is not
    hidden, out = model.layers(graph)[1:]
    base = model.base(graph)
    theirs = between(reference(model, 0)(base, index))
    torch.testing.assert_close(hidden, theirs, **CLOSE)
    theirs = reference(model, 1)(theirs, index)
    torch.testing.assert_close(out, theirs, **CLOSE)
    toward = torch.randn(out.shape, generator=torch.Generator().manual_seed(5))
    ours = torch.autograd.grad((out * toward).sum(), model.item_embedding)
    expected = torch.autograd.grad((theirs * toward).sum(), model.item_embedding)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_gin_as_the_tables_use_it_divides_sums_by_the_degrees_of_both_ends() -> None:
    """Every table has ``normalise = true``, the default; plain sums are 4 to 8 points worse."""
    train = random_matrix(14, 10, 0.35)
    model = GIN(DIM, 1)
    assert model.normalise
    ready(model, train)
    graph = Graph.from_csr(train)
    base, out = (layer.detach().numpy().astype(np.float64) for layer in model.layers(graph))
    dense = dense_adjacency(train)
    degree = dense.sum(1)
    for node in range(24):
        near = np.flatnonzero(dense[node])
        expected = dense_layer(model, 0, base[near], degree[node], degree[near], [*base[node]])
        np.testing.assert_allclose(out[node], expected, atol=1e-5)


def test_the_rate_of_shared_weights_and_the_initial_scale_are_settings() -> None:
    for kind in (GCN, GIN, GAT):
        model = kind(dim=16, shared_lr=4.0, init_std=0.5)
        generator = torch.Generator().manual_seed(1)
        model.setup(random_matrix(300, 200, 0.05), inductive=False, generator=generator)
        assert 0.48 < float(model.item_embedding.detach().std()) < 0.52
        vectors, *shared = model.parameter_groups(0.01)
        assert vectors["lr"] == 0.01
        for group in shared:
            assert group["lr"] == pytest.approx(0.04 / group["params"][0].shape[-1])


def test_an_untrained_layer_that_starts_with_the_identity_only_sums_neighbours() -> None:
    train = random_matrix(9, 14, 0.3)
    near = dense_adjacency(train)
    own = near + np.eye(len(near))
    root, alone = np.diag(own.sum(1) ** -0.5), np.diag(np.maximum(near.sum(1), 1) ** -0.5)
    sums = {GCN: root @ own @ root, GIN: alone @ near @ alone + np.eye(len(near))}
    for kind, matrix in sums.items():
        model = kind(DIM, 1, start="identity")
        model.setup(train, inductive=False, generator=torch.Generator().manual_seed(1))
        base, out = (layer.detach().numpy() for layer in model.layers(Graph.from_csr(train)))
        expected = matrix @ base if kind is GCN else np.maximum(matrix @ base, 0)
        np.testing.assert_allclose(out, expected, atol=1e-5)
    with pytest.raises(ItemfoldError, match="'start' must be random or identity, got 'zero'"):
        GAT(DIM, start="zero")  # type: ignore[arg-type]


# --- folding in ----------------------------------------------------------------------------------


def dense_layer(
    model: GNN,
    depth: int,
    messages: np.ndarray,
    own_degree: float,
    degree: np.ndarray,
    h: list[float],
) -> np.ndarray:
    """The next vector of one target; ``messages`` are its neighbours' vectors [n, d]."""
    h = np.asarray(h)
    if isinstance(model, LightGCN):
        return (messages / np.sqrt(degree * own_degree)[:, None]).sum(0)
    if isinstance(model, GIN):
        scale = np.sqrt(degree * own_degree)[:, None] if model.normalise else 1.0
        mixed = (1 + model.epsilon[depth].item()) * h + (messages / scale).sum(0)
        weights = (model.first, model.first_bias, model.second, model.second_bias)
        first, first_bias, second, second_bias = (w[depth].detach().numpy() for w in weights)
        return np.maximum(mixed @ first + first_bias, 0) @ second + second_bias
    weight, bias = model.weights[depth].detach().numpy(), model.biases[depth].detach().numpy()
    everyone = np.vstack([messages, h]) @ weight  # neighbours and the node itself
    if isinstance(model, GCN):
        scale = 1 / np.sqrt((np.append(degree, own_degree) + 1) * (own_degree + 1))
        out = (everyone * scale[:, None]).sum(0) + bias
    else:
        parts = []
        for head, values in enumerate(np.split(everyone, model.heads, axis=1)):
            logit = values @ model.to_source[depth][head].detach().numpy()
            logit = logit + values[-1] @ model.to_own[depth][head].detach().numpy()
            alpha = np.exp(np.where(logit > 0, logit, 0.2 * logit))
            parts.append(alpha / alpha.sum() @ values)
        out = np.concatenate(parts) + bias
    return out if depth == model.depth - 1 else np.where(out > 0, out, 0.2 * out)


def pooled(model: GNN, layers: list[np.ndarray]) -> np.ndarray:
    if model.pool_by == "concat":
        return np.concatenate(layers)
    return np.sum(layers, axis=0) / (len(layers) if model.pool_by == "mean" else 1)


def naive_fold_in(model: GNN, graph: Graph, history: np.ndarray) -> np.ndarray:
    """Add the user to the graph and compute only its row: item rows are unchanged."""
    layers = [h.detach().numpy()[graph.n_users :].astype(np.float64) for h in model.layers(graph)]
    items = np.flatnonzero(history)
    degree = graph.item_degree.numpy()[items].astype(np.float64)
    own = [np.zeros(model.dim)]
    for depth in range(model.depth):
        messages = layers[depth][items]
        own.append(dense_layer(model, depth, messages, max(len(items), 1e-9), degree, own[-1]))
    return pooled(model, own)


ENCODERS = [
    lambda pooling: LightGCN(DIM, 3, pooling),
    lambda pooling: GCN(DIM, 3, pooling),
    lambda pooling: GIN(DIM, 2, pooling),
    lambda pooling: GIN(DIM, 2, pooling, normalise=False),
    lambda pooling: GAT(DIM, 3, pooling),
    lambda pooling: GAT(DIM, 2, pooling, heads=4),
]


@pytest.mark.parametrize("inductive", [False, True], ids=["transductive", "inductive"])
@pytest.mark.parametrize("pooling", ["mean", "sum", "concat"])
@pytest.mark.parametrize("make", ENCODERS, ids=["lightgcn", "gcn", "gin", "gin-sum", "gat", "gat4"])
def test_folding_in_equals_full_propagation_with_frozen_items(
    make: Callable[[str], GNN], pooling: str, inductive: bool
) -> None:
    train = random_matrix(14, 10, 0.4)
    if inductive and pooling == "concat" and isinstance(make(pooling), LightGCN):
        return  # refused: all scores would be 0
    model = ready(make(pooling), train, inductive)
    graph = Graph.from_csr(train)
    model.cache_embeddings(graph)
    history = sp.csr_array(random_matrix(6, 10, 0.5, seed=3).toarray()[:5])
    vectors = model.fold_in(history)
    expected = [naive_fold_in(model, graph, row) for row in history.toarray()]
    np.testing.assert_allclose(vectors, np.array(expected), **CLOSE)
    scores = model.scores(history, np.full(5, -1))
    items = model.encode(graph)[1].detach().numpy()
    np.testing.assert_allclose(scores, np.array(expected) @ items.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", ENCODERS, ids=["lightgcn", "gcn", "gin", "gin-sum", "gat", "gat4"])
def test_an_inductive_training_user_is_folded_in_to_its_own_vector(
    make: Callable[[str], GNN],
) -> None:
    """Without user parameters a known user is its history: the same vector either way."""
    train = random_matrix(14, 10, 0.4)
    model = ready(make("sum"), train, inductive=True)
    model.cache_embeddings(Graph.from_csr(train))
    torch.testing.assert_close(model.fold_in(train), model.user_vectors, **CLOSE)


@pytest.mark.parametrize("make", ENCODERS, ids=["lightgcn", "gcn", "gin", "gin-sum", "gat", "gat4"])
def test_a_user_without_history_is_folded_in_to_something_finite(
    make: Callable[[str], GNN],
) -> None:
    train = random_matrix(14, 10, 0.4)
    model = ready(make("mean"), train, inductive=True)
    model.cache_embeddings(Graph.from_csr(train))
    empty = model.fold_in(sp.csr_array((2, 10), dtype=np.float32))
    assert empty.isfinite().all()
    torch.testing.assert_close(
        empty[0], model.user_vectors[13]
    )  # the last user has no items either


def test_gat_stays_finite_at_extreme_attention() -> None:
    train = random_matrix(14, 10, 0.4)
    model = ready(GAT(DIM, 2), train)
    with torch.no_grad():
        for vector in (*model.to_own, *model.to_source):
            vector.mul_(1e4)
    out = model.layers(Graph.from_csr(train))[-1]
    assert out.isfinite().all()
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("dim", [8, 64])
@pytest.mark.parametrize("kind", [GCN, GIN, GAT])
def test_a_step_of_shared_weights_moves_a_product_no_more_than_one_of_the_vectors(
    kind: type[GNN], dim: int
) -> None:
    model = kind(dim, 2)
    model.setup(random_matrix(20, 12, 0.3), inductive=False, generator=torch.Generator())
    lr = 0.01
    groups = model.parameter_groups(lr)
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)  # all nodes agree: the largest change
    torch.optim.Adam(groups).step()
    for name, parameter in model.named_parameters():
        moved = (parameter.detach() - before[name]).abs()
        if name.endswith("_embedding"):
            torch.testing.assert_close(moved, torch.full_like(moved, lr))
        elif moved.ndim == 2:
            product = torch.ones(len(moved)) @ moved  # of a vector of ones
            assert product.max() <= lr * 1.001
