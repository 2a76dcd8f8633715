"""The start of a network from singular vectors: what it sets, what it leaves, what it is worth."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import board_split, normalised, random_matrix, ready, seeded

import itemfold as ir
from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models.hybrid import Hybrid
from itemfold.models.lightgcn import LightGCN
from itemfold.training.learner import Learner

FEW: dict[str, Any] = {"epochs": 3, "eval_every": 1, "device": "cpu"}


def started(
    train: sp.csr_array, *, inductive: bool = False, dim: int = 6, start: Any = "svd"
) -> LightGCN:
    model = LightGCN(dim=dim, start=start)
    graph = ready(model, train, inductive)
    model.initialise(graph, seeded(1))
    model.cache_embeddings(graph)
    return model


def exact(train: sp.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The dense SVD of D_U^-½ X D_I^-½."""
    users = train.shape[0]
    left, values, right = np.linalg.svd(normalised(train)[:users, users:], full_matrices=False)
    return left, values, right.T


@pytest.mark.parametrize("start", ["svd", "svd-flat"])
@pytest.mark.parametrize("inductive", [False, True])
def test_an_untrained_network_scores_by_the_low_rank_approximation(
    inductive: bool, start: str
) -> None:
    train = random_matrix(40, 30, 0.3)
    model = started(train, inductive=inductive, dim=29, start=start)  # all singular values but 0
    left, values, right = exact(train)
    # inductive: two layers, summed: users σ, items 1 + σ²
    # transductive: the mean of three layers and the start, on both sides
    filtered = values + values**3 if inductive else (1 + values + values**2 + values**3) ** 2
    filtered = filtered * values if start == "svd" else filtered
    expected = ((left * filtered) @ right.T)[:-1, :-1]  # the last nodes have no interactions
    scores = (model.user_vectors @ model.item_vectors.T)[:-1, :-1]
    factor = float((scores.double() * torch.from_numpy(expected)).sum() / (expected**2).sum())
    np.testing.assert_allclose(scores / factor, expected, atol=0.02 * np.abs(expected).max())


@pytest.mark.parametrize("start", ["svd", "svd-flat", "svd-even"])
@pytest.mark.parametrize("inductive", [False, True])
def test_vectors_have_the_deviation_of_random_ones(inductive: bool, start: str) -> None:
    train = random_matrix(60, 50, 0.2)
    model = started(train, inductive=inductive, start=start)
    assert (model.user_embedding is None) == inductive
    for table in model.parameters():
        deviation = table[:-1].square().mean().sqrt()  # the last node has no interactions
        torch.testing.assert_close(deviation, torch.tensor(model.init_std), rtol=1e-3, atol=0)


def test_an_even_start_divides_vectors_by_the_root_of_the_degree_and_thirty() -> None:
    train = random_matrix(60, 50, 0.2)
    even, plain = (started(train, start=start) for start in ("svd-even", "svd"))
    for name, axis in (("user_embedding", 1), ("item_embedding", 0)):
        vectors, expected = (model.get_parameter(name)[:-1] for model in (even, plain))
        degree = torch.from_numpy(train.sum(axis))[:-1]
        expected = expected / (degree + 30).sqrt().unsqueeze(1)
        factor = vectors.square().sum().sqrt() / expected.square().sum().sqrt()
        torch.testing.assert_close(vectors, expected * factor, check_dtype=False)


def test_what_has_no_singular_vector_stays_random() -> None:
    train = random_matrix(9, 7, 0.4)
    model, random = LightGCN(dim=20, start="svd"), LightGCN(dim=20)
    graph = ready(model, train)
    ready(random, train)
    model.initialise(graph, seeded(1))
    rank = int((exact(train)[1] > 1e-3).sum())
    for name, table in random.named_parameters():
        new = model.get_parameter(name)
        assert torch.equal(new[-1], table[-1])  # a node without interactions
        assert torch.equal(new[:, rank:], table[:, rank:])
        assert not torch.isclose(new[:-1, :rank], table[:-1, :rank]).any(1).all()
        assert new.isfinite().all()


def test_no_interactions_at_all_leave_everything_random() -> None:
    train = sp.csr_array((5, 4), dtype=np.float32)
    model, random = LightGCN(dim=3, start="svd"), LightGCN(dim=3)
    graph = ready(model, train)
    ready(random, train)
    model.initialise(graph, seeded(1))
    assert all(map(torch.equal, model.parameters(), random.parameters()))


def test_a_random_start_draws_nothing_more() -> None:
    train, generator = random_matrix(20, 20, 0.2), seeded(5)
    model = LightGCN(dim=4)
    model.setup(train, inductive=False, generator=generator)
    before, tables = generator.get_state(), [table.clone() for table in model.parameters()]
    model.initialise(Graph.from_csr(train), generator)
    assert torch.equal(generator.get_state(), before)
    assert all(map(torch.equal, model.parameters(), tables))
    # the tables are the next values of the generator, as they always were
    again = seeded(5)
    for table, rows in zip(tables, (20, 20), strict=True):
        assert torch.equal(table, torch.randn(rows, 4, generator=again) * 0.1)


@pytest.mark.parametrize("protocol", ["transductive", "inductive"])
def test_training_from_singular_vectors_is_reproducible_and_begins_higher(protocol: str) -> None:
    split = board_split(protocol)
    runs = {
        start: ir.train(split, LightGCN(dim=8, start=start), **FEW)  # type: ignore[arg-type]
        for start in ("svd", "random")
    }
    first = {start: run.history[0]["ndcg@20"] for start, run in runs.items()}
    assert first["svd"] > first["random"]
    again = ir.train(split, LightGCN(dim=8, start="svd"), **FEW)
    for name, tensor in runs["svd"].model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name


def test_an_interrupted_training_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**FEW, "epochs": 6, "save_seconds": 0, "batch": 16}

    def trained(folder: Path, **more: Any) -> ir.Run:
        model = LightGCN(dim=8, start="svd")
        return ir.train(board_split(), model, out=folder, **settings, **more)

    whole = trained(tmp_path / "whole")
    step, taken = Learner.step, iter(range(8))

    def interrupted(self: Learner, keys: torch.Tensor) -> torch.Tensor:
        if next(taken, None) is None:
            raise KeyboardInterrupt
        return step(self, keys)

    monkeypatch.setattr(Learner, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "part")
    monkeypatch.undo()
    assert (tmp_path / "part" / "state.pt").exists()
    resumed = trained(tmp_path / "part", resume=True)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name


def test_the_default_network_of_a_hybrid_starts_from_singular_vectors() -> None:
    run = ir.train(board_split(), Hybrid(gnn={"dim": 8}), **FEW)
    assert run.config["model"]["gnn"]["start"] == "svd-flat"  # the board is dense
    assert run.metrics["chosen"]["model"]["gnn"]["start"] == "svd-flat"


@pytest.mark.parametrize(
    "gnn",
    [
        LightGCN(dim=8),
        {"dim": 8, "start": "random"},
        {"name": "lightgcn", "dim": 8, "pooling": "auto"},  # as stored by release 0.2
    ],
)
def test_a_hybrid_may_start_at_random(gnn: Any) -> None:
    run = ir.train(board_split(), Hybrid(gnn=gnn), **FEW)
    assert run.config["model"]["gnn"]["start"] == "random"


def test_networks_without_a_spectral_start_keep_their_own() -> None:
    run = ir.train(board_split(), Hybrid(gnn={"name": "gcn", "dim": 8}), **FEW)
    assert run.config["model"]["gnn"]["start"] == "random"


def test_an_unknown_start_is_rejected() -> None:
    with pytest.raises(
        ItemfoldError, match="'start' must be random, svd, svd-flat or svd-even, got 'noise'"
    ):
        LightGCN(start="noise")  # type: ignore[arg-type]
