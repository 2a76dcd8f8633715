import copy
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from small import board_split, checkerboard, random_matrix
from torch import Tensor, nn

import itemfold as ir
from itemfold.data.sources import read
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import keep_all, split_interactions
from itemfold.environment import pick_device
from itemfold.errors import ItemfoldError, LeakError
from itemfold.evaluation.evaluate import evaluate
from itemfold.evaluation.evaluator import Evaluator
from itemfold.graph.graph import Graph
from itemfold.losses import bpr, item_ndcg, softmax
from itemfold.models import EASE, MF, LightGCN, Popularity
from itemfold.models.base import Kind
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.enmf import ENMF
from itemfold.models.mult_vae import MultVAE
from itemfold.sampling import InBatch, Uniform
from itemfold.sampling import PopularityNegatives as ByPopularity
from itemfold.sampling.base import Batch, ScoredLists
from itemfold.serving.recommender import Recommender
from itemfold.settings.schema import TrainConfig
from itemfold.training.cuda_graph import _Snapshot
from itemfold.training.fit import train
from itemfold.training.objective import objective, penalty
from itemfold.training.run import Run
from itemfold.training.weight_average import WeightAverage

FEW: dict[str, Any] = {
    "epochs": 3,
    "eval_every": 1,
    "batch": 16,
    "n_negatives": 8,
    "lr": 0.02,
    "refit": False,
    "device": "cpu",
}


def weights(run: Run) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in run.model.named_parameters()}


def equal(left: Run, right: Run) -> bool:
    pairs = zip(weights(left).values(), weights(right).values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# --- seeds, settings, choices --------------------------------------------------------------------


@pytest.mark.parametrize("by", ["users", "interactions"])
def test_the_same_seed_gives_the_same_weights_and_another_one_others(by: str) -> None:
    split = board_split()
    runs = [train(split, LightGCN(dim=8), **FEW, batch_by=by, seed=seed) for seed in (1, 1, 2)]
    assert equal(runs[0], runs[1])
    assert not equal(runs[0], runs[2])
    assert runs[0].metrics["test"] == runs[1].metrics["test"]


def test_training_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(board_split(), LightGCN(dim=8), **FEW)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "'epochs' must be a positive integer, got 0"),
        ({"batch": -1}, "'batch' must be a positive integer, got -1"),
        ({"lr": 0}, "'lr' must be a positive number, got 0.0"),
        ({"lr": float("nan")}, "'train.lr' must be a finite number, got nan"),
        ({"l2": -0.1}, "'l2' must be a number of at least 0, got -0.1"),
        ({"l2": float("nan")}, "'train.l2' must be a finite number, got nan"),
        ({"ema_decay": 1.0}, "'ema_decay' must be at least 0 and below 1, got 1.0"),
        ({"seed": -1}, "'seed' must be at least 0 and below 2.63, got -1"),
        ({"batch_by": "items"}, "'batch_by' must be users or interactions, got 'items'"),
        ({"similarity": "l2"}, "'similarity' must be dot or cosine, got 'l2'"),
        ({"metric": "auc"}, "'metric' must be one of"),
        (
            {"metric": "coverage@5"},
            "'metric' must be an accuracy metric, such as ndcg@20, got 'coverage@5'",
        ),
        ({"epochs": "many"}, "'train.epochs' must be a whole number, got 'many'"),
        ({"epoch": 3}, "'train' has no setting 'epoch'; its settings are: epochs, lr, batch"),
        ({"device": "abacus"}, "'device' must be cpu, cuda or auto, got 'abacus'"),
    ],
)
def test_bad_settings_are_rejected_before_anything_is_written(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ItemfoldError, match=message):
        train(board_split(), LightGCN(dim=8), **{**FEW, **change}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_bpr_has_the_training_defaults_of_its_paper() -> None:
    split = board_split()
    settings = {k: v for k, v in FEW.items() if k != "n_negatives"}
    assert (
        train(split, MF(dim=4), loss=bpr, **settings).config["train"]["batch_by"] == "interactions"
    )
    assert train(split, MF(dim=4), loss=bpr, **settings).config["train"]["n_negatives"] == 1
    bound = train(split, MF(dim=4), loss=bpr, **settings, batch_by="users")
    assert (bound.config["train"]["batch_by"], bound.config["train"]["n_negatives"]) == ("users", 1)
    ours = train(split, MF(dim=4), loss=item_ndcg, **settings)
    assert (ours.config["train"]["batch_by"], ours.config["train"]["n_negatives"]) == (
        "users",
        1000,
    )


@pytest.mark.parametrize("protocol", ["transductive", "inductive"])
def test_a_final_model_is_trained_on_everything_and_not_evaluated(
    protocol: Any, tmp_path: Path
) -> None:
    data = checkerboard()
    split = keep_all(data, protocol=protocol)
    with pytest.raises(ItemfoldError, match="'epochs' must be given if no data is held out"):
        train(split, LightGCN(dim=4))
    for model in (LightGCN(dim=4), EASE()):
        run = train(split, model, epochs=3, out=tmp_path / type(model).__name__)
        assert run.metrics["test"] == {}
        assert run.metrics["best_epoch"] in (0, 3)
        assert run.train.nnz == len(data)
        with pytest.raises(ItemfoldError, match="this split has no test part"):
            evaluate(run, split)
        recommender = Recommender.load(tmp_path / type(model).__name__)
        lists = recommender.recommend_all(30)
        assert len(lists.users) == data.n_users
        for row, user in zip(lists.rows, lists.users, strict=True):  # without the history
            own = data.items[data.users == data.user_ids.index([user])[0]]
            assert not set(row[row >= 0]) & set(own)
    other = split_interactions(data, seed=0)
    with pytest.raises(LeakError):
        evaluate(run, other)


def test_training_does_not_end_before_its_first_validation() -> None:
    with pytest.raises(
        ItemfoldError, match=r"'patience' must be at least 'eval_every' \(5\), got 3"
    ):
        train(board_split(), LightGCN(dim=4), patience=3, eval_every=5)
    run = train(board_split(), LightGCN(dim=4), epochs=300, eval_every=200, n_negatives=3)
    assert run.metrics["valid"]


def test_the_metric_may_be_in_upper_case() -> None:
    run = train(board_split(), LightGCN(dim=4), **FEW, metric="NDCG@20")
    assert run.config["train"]["metric"] == "ndcg@20"
    assert "ndcg@20" in run.metrics["valid"]


def test_users_who_have_every_item() -> None:
    """No negative can be drawn for them: if negatives are needed, training does not start."""
    matrix = np.zeros((12, 8), dtype=bool)
    matrix[:, :4] = True
    matrix[0] = True
    users, items = np.nonzero(matrix)
    frame = {"user_id": users, "item_id": items}
    data = replace(read(pd.DataFrame(frame)), held_out=(users > 0) & (items == 3))
    split = split_interactions(data, seed=0)
    assert split.train[[0]].nnz < 8  # one of the user's items is for validation
    with pytest.raises(ItemfoldError, match="the user in row 0 has every item"):
        train(split, LightGCN(dim=4), epochs=1)
    train(split, LightGCN(dim=4), epochs=1, refit=False)
    for model in (MultVAE(), ENMF(dim=4)):
        train(split, model, epochs=1)


def test_models_of_whole_users_are_not_trained_by_interactions() -> None:
    split = board_split()
    quick = {"epochs": 1, "eval_every": 1}
    for kind in (ENMF, MultVAE):  # a loss that they do not use does not affect their batches
        assert train(split, kind(), loss=bpr, **quick).config["train"]["batch_by"] == "users"
        with pytest.raises(ItemfoldError, match=f"'batch_by' must be users for {kind.__name__}"):
            train(split, kind(), **quick, batch_by="interactions")


def test_a_run_records_loss_and_negatives_with_their_settings() -> None:
    split = board_split()
    run = train(split, LightGCN(dim=4), loss=item_ndcg(tau=0.5), negatives=ByPopularity(0.5), **FEW)
    assert run.config["loss"] == {"name": "item-ndcg", "tau": 0.5}
    assert run.config["negatives"] == {"name": "popularity", "power": 0.5}
    assert (run.metrics["loss"], run.metrics["negatives"]) == ("item-ndcg", "popularity")
    assert run.config["train"]["lr"] == 0.02
    closed = train(split, EASE(), **FEW)
    assert closed.config["loss"] == closed.config["negatives"] == {"name": "none"}


def test_the_metrics_have_the_documented_keys() -> None:
    split = board_split()
    run = train(split, LightGCN(dim=4), **FEW)
    wanted = "dataset protocol model loss negatives seed best_epoch epochs seconds valid test"
    assert set(wanted.split()) <= run.metrics.keys()
    assert set(run.metrics["dataset"]) >= {
        "name", "fingerprint", "users", "items", "interactions",
    }  # fmt: skip
    assert {"recall@20", "capped_recall@20", "ndcg@20"} <= run.metrics["test"].keys()
    assert run.metrics["epochs"] == 3
    assert run.per_user["user"].tolist() == split.test.ids.tolist()
    assert run.metrics["test"]["ndcg@20"] == pytest.approx(run.per_user["ndcg@20"].mean())


def test_a_tampered_split_is_rejected() -> None:
    """Training checks the split: one leaked test item is enough."""
    split = board_split()
    leaked = split.train.tolil()
    leaked[split.test.users[0], split.test.target[[0]].indices[0]] = 1
    with pytest.raises(LeakError, match="is also in training"):
        train(replace(split, train=sp.csr_array(leaked.tocsr())), LightGCN(dim=4), **FEW)
    inductive = board_split("inductive")
    with pytest.raises(LeakError, match="is also a training user"):
        train(replace(inductive, test=split.test), LightGCN(dim=4), **FEW)


def test_the_graph_and_the_sampler_see_training_interactions_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split = board_split()
    seen: list[sp.csr_array] = []

    class Spy(Uniform):
        def prepare(self, train: sp.csr_array, device: Any, generator: Any = None) -> None:
            seen.append(train)
            super().prepare(train, device)

    real = Graph.from_csr
    monkeypatch.setattr(Graph, "from_csr", lambda *a: (seen.append(a[0]), real(*a))[1])
    train(split, LightGCN(dim=4), negatives=Spy(), **{**FEW, "refit": True})
    assert len(seen) == 4  # a graph and a sampler for selection, and again for the refit
    known = [split.train, split.refit().train]
    for number, matrix in enumerate(seen):
        np.testing.assert_array_equal(matrix.toarray(), known[number // 2].toarray())
        for held in split.test.users:
            row = split.test.target[[int(np.flatnonzero(split.test.users == held)[0])]]
            assert not matrix[[held]].multiply(row).nnz


# --- early stopping ------------------------------------------------------------------------------


def scripted(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> list[dict[str, Tensor]]:
    """Replace validation by these values; returns the weights at each validation."""
    shown: list[dict[str, Tensor]] = []
    script = itertools.chain(values, itertools.repeat(0.0))

    def metrics(self: Any, model: Any, metric: str) -> dict[str, float]:
        shown.append({k: v.detach().clone() for k, v in model.named_parameters()})
        return {metric: next(script)}

    monkeypatch.setattr(Evaluator, "metrics", metrics)
    return shown


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_early_stopping_restores_the_best_weights(
    monkeypatch: pytest.MonkeyPatch, average: float
) -> None:
    shown = scripted(monkeypatch, [0.1, 0.2, 0.6, 0.3, 0.6, 0.5, 0.4])
    settings = {**FEW, "epochs": 50, "patience": 4, "ema_decay": average}
    run = train(board_split(), LightGCN(dim=8), **settings)
    assert run.metrics["best_epoch"] == 3  # the first of equals
    assert run.metrics["epochs"] == len(shown) == 7  # four epochs without improvement
    assert [row["epoch"] for row in run.history] == [1, 2, 3, 4, 5, 6, 7]
    for name, value in weights(run).items():
        assert torch.equal(value, shown[2][name])
    assert run.metrics["valid"] == {"ndcg@20": 0.6}


def test_validation_comes_every_few_epochs_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, [0.1, 0.2, 0.3, 0.4])
    run = train(board_split(), LightGCN(dim=8), **{**FEW, "epochs": 8, "eval_every": 3})
    assert [row["epoch"] for row in run.history] == [3, 6, 8]


def test_scores_come_from_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored vectors belong to the restored weights, not to the last ones."""
    scripted(monkeypatch, [0.9, 0.1, 0.1])
    split = board_split()
    run = train(split, LightGCN(dim=8), **FEW)
    stored = run.model.item_vectors.clone()
    run.model.cache_embeddings(Graph.from_csr(split.train))
    assert torch.equal(run.model.item_vectors, stored)


def test_without_validation_it_trains_for_all_epochs() -> None:
    split = board_split().refit()
    run = train(split, LightGCN(dim=8), **{**FEW, "epochs": 6, "patience": 2})
    assert run.metrics["best_epoch"] == run.metrics["epochs"] == 6
    assert run.history == []


def test_refitting_trains_for_the_chosen_number_of_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, [0.1, 0.5, 0.3, 0.2])
    split = board_split()
    run = train(split, LightGCN(dim=8), **{**FEW, "epochs": 4, "refit": True})
    assert run.metrics["refit"]
    np.testing.assert_array_equal(run.train.toarray(), split.refit().train.toarray())
    direct = train(split.refit(), LightGCN(dim=8), **{**FEW, "epochs": 2})
    assert equal(run, direct)


@pytest.mark.parametrize("loss", [item_ndcg, softmax, bpr])
def test_a_nan_loss_stops_with_the_reason(loss: Any, tmp_path: Path) -> None:
    with pytest.raises(ItemfoldError, match=r"the loss became nan in epoch \d+: try a smaller 'l"):
        train(
            board_split(),
            LightGCN(dim=8),
            loss=loss,
            out=tmp_path / "run",
            **{**FEW, "lr": 1e30, "epochs": 9},
        )
    assert not (tmp_path / "run" / "metrics.json").exists()


# --- one step ------------------------------------------------------------------------------------


def gradient_descent(split: Split, steps: int, lr: float, seed: int) -> list[dict[str, Tensor]]:
    """MF with BPR written out, one batch of all interactions per step: the weights after each."""
    model = MF(dim=4)
    generator = torch.Generator().manual_seed(seed)
    model.setup(split.train, inductive=False, generator=generator)
    sampler = Uniform()
    sampler.prepare(split.train, "cpu")
    random = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    rows, cols = (torch.from_numpy(part.astype(np.int64)) for part in split.train.nonzero())
    out = []
    for _ in range(steps):
        order = torch.randperm(len(rows), generator=random)
        user, liked = rows[order], cols[order]
        drawn = sampler(user, 1, random)[:, 0]
        good = (model.users[user] * model.items[liked]).sum(1)
        bad = (model.users[user] * model.items[drawn]).sum(1)
        value = -torch.nn.functional.logsigmoid(good - bad).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        out.append({name: p.detach().clone() for name, p in model.named_parameters()})
    return out


def test_training_by_interactions_is_plain_bpr() -> None:
    """One batch of all interactions per step: the same as BPR written out in a few lines."""
    split = board_split().refit()
    by_hand = gradient_descent(split, 3, lr=0.05, seed=2)[-1]
    settings = {"epochs": 3, "batch": 10**6, "lr": 0.05, "l2": 0.0, "seed": 2, "device": "cpu"}
    run = train(split, MF(dim=4), loss=bpr, ema_decay=0.0, **settings)
    for name, value in weights(run).items():
        torch.testing.assert_close(value, by_hand[name], rtol=1e-4, atol=1e-5)


def test_the_running_mean_of_weights_is_its_closed_form() -> None:
    """(1 − d) Σ dᵗ⁻ˢ w_s ÷ (1 − dᵗ), without the initial weights."""
    split = board_split().refit()
    decay, steps = 0.7, 4
    each = gradient_descent(split, steps, lr=0.05, seed=2)
    settings = {"epochs": steps, "batch": 10**6, "lr": 0.05, "l2": 0.0, "seed": 2, "device": "cpu"}
    run = train(split, MF(dim=4), loss=bpr, ema_decay=decay, **settings)
    share = (1 - decay) * decay ** np.arange(steps)[::-1] / (1 - decay**steps)
    assert share.sum() == pytest.approx(1)
    for name, value in weights(run).items():
        mean = sum(float(s) * step[name] for s, step in zip(share, each, strict=True))
        torch.testing.assert_close(value, mean, rtol=1e-4, atol=1e-5)


def test_the_mean_is_applied_for_a_moment_and_kept_for_good() -> None:
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, 0.5)
    for value in (1.0, 4.0):
        nn.init.constant_(model.weight, value)
        average.update()
    with average.applied():
        assert model.weight.item() == pytest.approx(3.0)  # (0.25·1 + 0.5·4) ÷ 0.75
    assert model.weight.item() == 4.0
    other = WeightAverage(copy.deepcopy(model), 0.5)
    other.load([tensor.clone() for tensor in average.tensors])
    other.update()
    assert other.steps == 3
    average.keep()
    assert model.weight.item() == pytest.approx(3.0)
    untouched = nn.Linear(1, 1, bias=False)
    before = untouched.weight.item()
    WeightAverage(untouched, 0.5).keep()  # no step yet: nothing to keep
    assert untouched.weight.item() == before


class Fixed(EmbeddingModel):
    """Vectors that are given."""

    def __init__(self) -> None:
        super().__init__()

    def place(self, users: Tensor, items: Tensor) -> "Fixed":
        self.users, self.items = nn.Parameter(users), nn.Parameter(items)
        return self

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        return self.users, self.items

    def base_norms(self) -> tuple[Tensor, Tensor]:
        return self.users.square().sum(1), self.items.square().sum(1)


@pytest.fixture
def fixed() -> tuple[Fixed, sp.csr_array, Batch]:
    """Two users and a row of padding; the second user has one positive only."""
    generator = torch.Generator().manual_seed(0)
    model = Fixed().place(
        torch.randn(3, 4, generator=generator), torch.randn(6, 4, generator=generator)
    )
    matrix = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 1, 0, 1, 1, 0]], np.float32)
    batch = Batch(
        torch.tensor([0, 1, 0]),
        torch.tensor([[0, 1], [2, 2], [0, 1]]),
        torch.tensor([[True, True], [True, False], [False, False]]),
    )
    return model, sp.csr_array(matrix), batch


def capturing_loss(captured: dict[str, Any]) -> Any:
    def loss(pos: Tensor, neg: Tensor, pos_mask: Any = None, neg_mask: Any = None) -> Tensor:
        captured.update(pos=pos, neg=neg, pos_mask=pos_mask, neg_mask=neg_mask)
        return pos.sum() * 0

    return loss


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_the_loss_gets_the_scores_of_positives_and_sampled_negatives(
    fixed: tuple[Fixed, sp.csr_array, Batch], similarity: str
) -> None:
    model, matrix, batch = fixed
    sampler = Uniform()
    sampler.prepare(matrix, "cpu")
    config = TrainConfig(n_negatives=5, similarity=similarity)
    got: dict[str, Any] = {}
    graph = Graph.from_csr(matrix)
    loss, generator = capturing_loss(got), torch.Generator().manual_seed(3)
    objective(model, graph, batch, loss, sampler, config, generator)
    drawn = sampler(batch.users, 5, torch.Generator().manual_seed(3))
    users, items = model.users.detach().numpy(), model.items.detach().numpy()
    if similarity == "cosine":
        users = users / np.linalg.norm(users, axis=1, keepdims=True)
        items = items / np.linalg.norm(items, axis=1, keepdims=True)
    for row, user in enumerate(batch.users.tolist()):
        expected = [users[user] @ items[i] for i in batch.positives[row].tolist()]
        np.testing.assert_allclose(got["pos"][row].detach(), expected, rtol=1e-5)
        expected = [users[user] @ items[i] for i in drawn[row].tolist()]
        np.testing.assert_allclose(got["neg"][row].detach(), expected, rtol=1e-5)
        assert not set(drawn[row].tolist()) & set(matrix[[user]].indices.tolist())
    assert torch.equal(got["pos_mask"], batch.mask)


def test_in_batch_negatives_are_the_positives_of_other_users(
    fixed: tuple[Fixed, sp.csr_array, Batch],
) -> None:
    model, matrix, batch = fixed
    sampler = InBatch()
    sampler.prepare(matrix, "cpu")
    got: dict[str, Any] = {}
    loss = capturing_loss(got)
    graph = Graph.from_csr(matrix)
    objective(model, graph, batch, loss, sampler, TrainConfig(), torch.Generator())
    shared = batch.positives.reshape(-1).tolist()  # 0 1 | 2 2 | 0 1
    real = batch.mask.reshape(-1).tolist()
    for row, user in enumerate(batch.users.tolist()):
        own = set(matrix[[user]].indices.tolist())
        kept = [item not in own and there for item, there in zip(shared, real, strict=True)]
        assert got["neg_mask"][row].tolist() == kept
        scores = [(model.users[user] @ model.items[item]).item() for item in shared]
        np.testing.assert_allclose(got["neg"][row].detach(), scores, rtol=1e-5)
    assert got["neg_mask"][0].tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("sampler", [Uniform(), InBatch()])
def test_the_l2_term_is_the_mean_without_padding(
    fixed: tuple[Fixed, sp.csr_array, Batch], sampler: Any
) -> None:
    model, matrix, batch = fixed
    sampler.prepare(matrix, "cpu")
    graph, config = Graph.from_csr(matrix), TrainConfig(n_negatives=4, l2=0.3)
    got: dict[str, Any] = {}
    loss, generator = capturing_loss(got), torch.Generator().manual_seed(3)
    value = objective(model, graph, batch, loss, sampler, config, generator)
    users, items = model.users.detach().numpy(), model.items.detach().numpy()
    if isinstance(sampler, InBatch):
        drawn = [0, 1, 2]
    else:
        drawn = sampler(batch.users, 4, torch.Generator().manual_seed(3))[:2].reshape(-1).tolist()
    people = np.mean([users[u] @ users[u] for u in (0, 1)])
    liked = np.mean([items[i] @ items[i] for i in (0, 1, 2)])
    others = np.mean([items[i] @ items[i] for i in drawn])
    assert value.item() == pytest.approx(0.3 * 0.5 * (people + liked + others), rel=1e-5)
    value.backward()
    naive = 0.3 * users[1] / 2  # derivative of 0.3 · ½ · mean of two squares
    np.testing.assert_allclose(model.users.grad[1], naive, rtol=1e-5)
    assert (model.users.grad[2] == 0).all()  # was not in the batch


def test_an_l2_term_without_base_vectors_is_rejected_by_name() -> None:
    class Bare(EmbeddingModel):
        pass

    batch = Batch(torch.tensor([0]), torch.tensor([[0]]), torch.tensor([[True]]))
    with pytest.raises(ItemfoldError, match="Bare has no L2 term; set 'l2' to 0"):
        penalty(Bare(), batch, ScoredLists(torch.ones(1, 1), torch.ones(1, 1), torch.tensor([[1]])))


def test_a_models_own_loss_is_added_or_replaces_the_list_loss(
    fixed: tuple[Fixed, sp.csr_array, Batch],
) -> None:
    model, matrix, batch = fixed
    sampler = Uniform()
    sampler.prepare(matrix, "cpu")

    def value() -> float:
        generator = torch.Generator().manual_seed(0)
        args = (
            Graph.from_csr(matrix),
            batch,
            softmax,
            sampler,
            TrainConfig(n_negatives=3),
            generator,
        )
        return objective(model, *args).item()

    plain = value()
    model.extra_loss = lambda *args: model.users.sum() * 0 + 2.5
    assert value() == pytest.approx(plain + 2.5)
    model.own_loss = lambda *args: model.users.sum() * 0 + 2.5
    model.kind = Kind.OWN_OBJECTIVE
    assert value() == 2.5


def test_warming_up_for_a_recording_leaves_no_trace() -> None:
    """Steps taken to warm up are undone: weights, Adam's moments, random numbers, the mean."""

    def steps(count: int, warm: int) -> list[Tensor]:
        model = nn.Linear(3, 2)
        nn.init.constant_(model.weight, 0.3)
        nn.init.constant_(model.bias, 0.1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(0)
        average = WeightAverage(model, 0.9)

        def step() -> None:
            optimizer.zero_grad()
            model(torch.randn(5, 3, generator=generator)).square().sum().backward()
            optimizer.step()
            average.update()

        if warm:
            before = _Snapshot(optimizer, generator, average.tensors)
            for _ in range(warm):
                step()
            before.restore()
        for _ in range(count):
            step()
        return [*(p.detach() for p in model.parameters()), *average.tensors]

    for cold, warm in zip(steps(4, 0), steps(4, 3), strict=True):
        assert torch.equal(cold, warm)


def test_devices_by_name() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ItemfoldError, match="torch sees no GPU here"):
            pick_device("cuda")


def test_users_and_items_without_interactions_are_allowed() -> None:
    matrix = random_matrix(20, 12, 0.4)
    split = board_split()
    small = replace(
        split.refit(),
        train=matrix,
        test=replace(
            split.test,
            history=matrix,
            target=sp.csr_array((1 - matrix.toarray()).astype(np.float32)),
            users=np.arange(20),
            ids=split.user_ids.ids[:20],
        ),
        user_ids=split.user_ids.take(np.arange(20)),
        item_ids=split.item_ids.take(np.arange(12)),
    )
    for model in (LightGCN(dim=4), MF(dim=4), Popularity()):
        run = train(small, model, **FEW)
        assert all(np.isfinite(value) for value in run.metrics["test"].values())


def test_patience_is_at_least_400_steps_for_known_users():
    """With one step per epoch and no improvement, training still continues for 400 steps."""
    data = ir.load("synthetic:users=60,items=60,interactions=700")
    split = ir.split_interactions(data)
    still = {"lr": 1e-9, "batch_by": "users", "epochs": 500, "eval_every": 50, "refit": False}
    assert ir.train(split, MF(dim=2), **still).metrics["epochs"] >= 400
    assert ir.train(split, MF(dim=2), **still, patience=60).metrics["epochs"] < 200


# --- arguments of train --------------------------------------------------------------------------


def test_runs_of_one_model_keep_their_own_weights(tmp_path: Path) -> None:
    split, model = board_split(), LightGCN(dim=4)
    runs = [train(split, model, **FEW, seed=seed) for seed in range(3)]
    apart = [train(split, LightGCN(dim=4), **FEW, seed=seed) for seed in range(3)]
    assert all(equal(run, alone) for run, alone in zip(runs, apart, strict=True))
    assert [ir.evaluate(run, split).metrics for run in runs] == [r.metrics["test"] for r in runs]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("split", "synthetic"),
        ("model", "lightgcn"),
        ("model", LightGCN),
        ("loss", "bpr"),
        ("negatives", "ppr"),
        ("negatives", Uniform),
    ],
)
def test_names_are_rejected_where_instances_are_expected(name: str, value: Any) -> None:
    given: dict[str, Any] = {"split": board_split(), "model": LightGCN(dim=4), name: value}
    with pytest.raises(ItemfoldError, match=f"'{name}' must be a"):
        train(given.pop("split"), given.pop("model"), **given, **FEW)


def test_a_seed_that_no_generator_takes_is_rejected_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(ItemfoldError, match="'seed' must be at least 0 and below"):
        train(board_split(), LightGCN(dim=4), out=tmp_path / "run", **FEW, seed=10**20)
    assert not (tmp_path / "run").exists()


def test_a_run_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    def broken(*scores: Tensor) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(board_split(), LightGCN(dim=4), loss=broken, out=tmp_path / "run", **FEW)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("protocol", ["inductive", "transductive"])
@pytest.mark.parametrize("wanted", [True, False])
def test_only_a_second_training_is_called_a_refit(protocol: str, wanted: bool) -> None:
    settings = {**FEW, "refit": wanted}
    none = train(board_split(protocol, valid=0), LightGCN(dim=4), **settings)
    some = train(board_split(protocol), LightGCN(dim=4), **settings)
    assert none.metrics["refit"] is False
    assert some.metrics["refit"] is (wanted and protocol == "transductive")


def test_a_list_has_no_more_positives_than_the_longest_history() -> None:
    split = board_split()
    longest = int(np.diff(split.train.indptr).max())
    runs = [train(split, MF(dim=4), loss=item_ndcg, **FEW, positives=n) for n in (longest, 10**6)]
    assert equal(*runs)


class Headed(EmbeddingModel):
    """A layer made by the constructor, dropout in `encode`, and settings of any name."""

    def __init__(self, dim: int = 4, **more: float) -> None:
        super().__init__()
        self.dim, self.more, self.head = dim, more, nn.Linear(dim, dim)

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        super().setup(train, inductive=inductive, generator=generator)
        self.own = nn.Parameter(torch.ones(self.n_users, self.dim))
        self.items = nn.Parameter(torch.ones(self.n_items, self.dim))

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        return nn.functional.dropout(self.head(self.own), 0.5, self.training), self.items


def test_weights_made_by_a_constructor_are_kept() -> None:
    model = Headed()
    nn.init.eye_(model.head.weight)
    few = {**FEW, "lr": 1e-9, "ema_decay": 0}
    run = train(board_split(), model, loss=bpr, **few)
    assert isinstance(run.model, Headed)
    assert torch.allclose(run.model.head.weight, torch.eye(4), atol=1e-4)
    assert (run.model.user_vectors != 0).all()  # frozen without dropout
    assert not hasattr(model, "own")  # the given model is not trained itself


def test_settings_of_any_name_are_trained_again() -> None:
    split, model = board_split(), Headed(scale=3.0)
    runs = [train(split, model, loss=bpr, **FEW) for _ in range(2)]
    assert [run.model.settings for run in runs] == [{"dim": 4, "scale": 3.0}] * 2

    class Nameless(EmbeddingModel):
        def __init__(self, *sizes: int) -> None:
            super().__init__()

    with pytest.raises(ItemfoldError, match=r"Nameless: .*'\*sizes'"):
        Nameless(8, 4)


def test_a_finished_run_on_other_data_is_not_resumed(tmp_path: Path) -> None:
    train(board_split(seed=0), LightGCN(dim=4), out=tmp_path, **FEW)
    again = train(board_split(seed=0), LightGCN(dim=4), out=tmp_path, resume=True, **FEW)
    assert again.metrics["test"]
    other = replace(board_split(seed=0), dataset=board_split(seed=1).dataset)
    with pytest.raises(ItemfoldError, match="holds a run on other data"):
        train(other, LightGCN(dim=4), out=tmp_path, resume=True, **FEW)
