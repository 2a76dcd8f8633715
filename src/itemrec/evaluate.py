"""All-ranking of the whole catalogue under a memory budget, and what it is worth to each user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.errors import ItemrecError
from itemrec.graph import Graph
from itemrec.held_out import Held, Split
from itemrec.metrics import (
    CATALOGUE_METRICS,
    FULL_METRICS,
    METRICS,
    Metric,
    coverage,
    novelty,
    parse_metric,
    parse_metrics,
)
from itemrec.models.base import GNN, EmbeddingModel, Model
from itemrec.stats import bootstrap_interval

if TYPE_CHECKING:
    from itemrec.checkpoint import Run

BUDGET = 256  # MB of scores held at a time
ROWS = 64  # users a block are a multiple of this, so that products round alike in any block
STRETCH = 64  # items whose largest score stands for them at first
DEFAULT = (*METRICS, *CATALOGUE_METRICS)


@dataclass(frozen=True)
class Evaluation:
    """Means over users, with the per-user values they are means of."""

    metrics: dict[str, float]
    per_user: dict[str, npt.NDArray[np.float64]]  # [users] each
    ids: npt.NDArray[Any]  # external ids of the users judged
    history: npt.NDArray[np.int64]  # how many items are known of each

    def interval(self, metric: str, seed: int = 0) -> tuple[float, float]:
        """Bootstrap 95 % interval of a metric's mean over users."""
        if metric not in self.per_user:
            raise ItemrecError(
                f"'metric' must be one of {', '.join(self.per_user)}, got {metric!r}"
            )
        found = bootstrap_interval(self.per_user[metric], seed=seed)
        return found.low, found.high

    def __str__(self) -> str:
        lines = [f"{len(self.ids)} users"]
        for name, value in self.metrics.items():
            text = f"{name:>18} {value:.4f}"
            if name in self.per_user:
                low, high = self.interval(name)
                text += f"  [{low:.4f}, {high:.4f}]"
            lines.append(text)
        return "\n".join(lines)


def evaluate(
    run: Run | Model,
    split: Split,
    k: int | Sequence[int] = 20,
    *,
    part: Literal["valid", "test"] = "test",
    metrics: Sequence[str] | None = None,
    fold_in: Literal["frozen", "joint"] = "frozen",
    budget: float = BUDGET,
) -> Evaluation:
    """Rank the whole catalogue for every held-out user and judge the lists.

    ``metrics`` such as "NDCG@10" or, for the whole list, "ap"; by default all at each ``k``.
    Items a user is known to have are never recommended. Users without targets do not count.
    ``fold_in="joint"`` lets unseen users' histories join the graph (for comparison only: it needs a
    model that encodes a graph). A run is only judged by what it was not trained on, or LeakError.
    """
    model = run if isinstance(run, Model) else run.model
    trained = split.train if isinstance(run, Model) else run.train
    if part not in ("valid", "test"):
        raise ItemrecError(f"'part' must be valid or test, got {part!r}")
    held = split.valid if part == "valid" else split.test
    if part == "valid" and not isinstance(run, Model) and run.metrics.get("refit"):
        raise ItemrecError(
            "'part' must be test for a refitted run: it was trained on the validation part"
        )
    if held is None or not len(held):
        raise ItemrecError(f"this split has no {part} part: nothing was held out for it")
    if fold_in not in ("frozen", "joint"):
        raise ItemrecError(f"'fold_in' must be frozen or joint, got {fold_in!r}")
    wanted = _defaults(k) if metrics is None else parse_metrics(metrics)
    if not isinstance(run, Model):
        _check_unseen(run, split, held)
    judge = Judge(held, model.device, budget=budget)
    held = judge.held
    if fold_in == "joint":
        own = replace(split, train=trained)
        model, judge.users = joined(model, own, held), np.arange(len(held))
    popularity = np.bincount(trained.indices, minlength=split.n_items)
    values, catalogue = judge.values(model, wanted, popularity)
    means = catalogue | {name: float(np.mean(v)) for name, v in values.items()}
    known = np.diff(held.history.indptr).astype(np.int64)
    return Evaluation({m.key: means[m.key] for m in wanted}, values, held.ids, known)


def _check_unseen(run: Run, split: Split, held: Held) -> None:
    """Nothing that is to be found was in the run's own training, whatever split it came from."""
    same = np.array_equal(run.item_ids.ids, split.item_ids.ids)
    if split.protocol == "transductive":  # users are known by their row
        same = same and np.array_equal(run.user_ids.ids, split.user_ids.ids)
    if not same:
        raise ItemrecError("'split' must have the users and items of the run, got those of others")
    replace(split, train=run.train, user_ids=run.user_ids, valid=None, test=held).check()


def joined(model: Model, split: Split, held: Held) -> EmbeddingModel:
    """A scorer of the held-out users, encoded in a graph that their histories joined."""
    if not isinstance(model, GNN):
        raise ItemrecError(
            f"'fold_in' must be frozen for {type(model).__name__}: only message passing can join"
        )
    if split.protocol == "transductive":
        raise ItemrecError(
            "'fold_in' must be frozen in the transductive protocol: its users are in the graph"
        )
    graph = Graph.from_csr(split.train, model.device).with_users(held.history)
    with torch.no_grad():
        users, items = model.encode(graph)
    scorer = EmbeddingModel()
    scorer.store("user_vectors", users[split.n_users :])
    scorer.store("item_vectors", items)
    return scorer


def with_targets(held: Held) -> Held:
    """Only the users who have something to be found."""
    rows = np.flatnonzero(np.diff(held.target.indptr))
    if len(rows) == len(held):
        return held
    return Held(held.history[rows], held.target[rows], held.users[rows], held.ids[rows])


def _defaults(k: int | Sequence[int]) -> list[Metric]:
    if isinstance(k, str) or not isinstance(k, Integral | Sequence):
        raise ItemrecError(f"'k' must be a positive integer or several, got {k!r}")
    cuts = [k] if isinstance(k, Integral) else list(k)
    if not cuts:
        raise ItemrecError("'k' must be a positive integer or several, got none")
    return [parse_metric(f"{name}@{cut}") for cut in cuts for name in DEFAULT]


class Judge:
    """A held-out part laid out on a device, ready to be judged many times."""

    def __init__(self, held: Held, device: torch.device | str, budget: float = BUDGET) -> None:
        if budget <= 0:
            raise ItemrecError(f"'budget' must be a positive number of MB, got {budget}")
        held = with_targets(held)
        if not len(held):
            raise ItemrecError("nobody can be judged: no held-out user has a target")
        self.held, self.users, self.device, self.budget = held, held.users, device, budget
        self.n_items = held.target.shape[1]
        rows = np.repeat(np.arange(len(held)), np.diff(held.target.indptr))
        keys = np.append(rows * self.n_items + held.target.indices, np.iinfo(np.int64).max)
        self.targets = torch.from_numpy(np.sort(keys)).to(device)  # row · items + item
        self.n_target = np.diff(held.target.indptr).astype(np.int64)

    def metrics(self, model: Model, metric: str) -> dict[str, float]:
        """Validation figures: the one to choose by, and the usual three."""
        asked = parse_metric(metric)
        k = asked.k or 20
        wanted = [Metric(name, k) for name in ("recall", "capped_recall", "ndcg")]
        values, _ = self.values(model, [*wanted, *([] if asked in wanted else [asked])])
        return {name: float(np.mean(v)) for name, v in values.items()}

    def values(
        self, model: Model, wanted: list[Metric], popularity: npt.NDArray[Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[np.float64]], dict[str, float]]:
        """Each metric for each user, and those of the catalogue as a whole."""
        depth = min(max((m.k for m in wanted if m.k), default=1), self.n_items)
        full = any(m.k is None for m in wanted)
        tops, hits, ranks = [], [], []
        for start, scores in self._blocks(model):
            top = top_items(scores, depth)  # [b, depth], −1 where nothing is left
            rows = torch.arange(start, start + len(top), device=top.device).unsqueeze(1)
            wanted_keys = rows * self.n_items + top
            found = self.targets[torch.searchsorted(self.targets, wanted_keys)] == wanted_keys
            hits.append(found & (top >= 0))
            tops.append(top)
            if full:
                ranks.append(self._ranks(scores, start))
        seen = np.concatenate([h.cpu().numpy() for h in hits])
        listed = np.concatenate([t.cpu().numpy() for t in tops])
        out: dict[str, npt.NDArray[np.float64]] = {}
        catalogue: dict[str, float] = {}
        where = np.repeat(np.arange(len(self.held)), self.n_target)
        for metric in wanted:
            if metric.k is None:
                all_ranks = np.concatenate(ranks)
                out[metric.key] = FULL_METRICS[metric.name](all_ranks, where, len(self.held))
            elif metric.name == "coverage":
                catalogue[metric.key] = coverage(listed, self.n_items, metric.k)
            elif metric.name == "novelty":
                assert popularity is not None
                catalogue[metric.key] = float(np.mean(novelty(listed, popularity, metric.k)))
            else:
                k = min(metric.k, self.n_items)
                out[metric.key] = METRICS[metric.name](seen, self.n_target, k)
        return out, catalogue

    @torch.no_grad()
    def _blocks(self, model: Model) -> Iterator[tuple[int, Tensor]]:
        """Scores of users, a block at a time, with what they already have at −∞."""
        size = int(self.budget * 2**20 / 4 / self.n_items)
        size = max(ROWS, size // ROWS * ROWS)
        history, users = self.held.history, self.users
        for start in range(0, len(users), size):
            part = slice(start, start + size)
            rows = history[part]
            count = rows.shape[0]
            yield start, mask_history(block_scores(model, rows, users[part]), rows)[:count]

    def _ranks(self, scores: Tensor, start: int) -> npt.NDArray[np.int64]:
        """1-based rank of every target in the whole list; ties go to the lower item."""
        part = self.held.target[start : start + len(scores)]
        place = torch.argsort(scores, dim=1, descending=True, stable=True)
        rank = torch.empty_like(place)
        order = torch.arange(1, scores.shape[1] + 1, device=scores.device)
        rank.scatter_(1, place, order.expand_as(place))
        rows = np.repeat(np.arange(part.shape[0], dtype=np.int64), np.diff(part.indptr))
        flat = torch.from_numpy(rows * scores.shape[1] + part.indices).to(rank.device)
        out: npt.NDArray[np.int64] = rank.view(-1)[flat].cpu().numpy()
        return out


def block_scores(model: Model, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
    """Scores of a block padded to a multiple of `ROWS` users: a product rounds by its shape."""
    missing = -history.shape[0] % ROWS
    if missing:
        empty = np.full(missing, history.indptr[-1], dtype=history.indptr.dtype)
        parts = (history.data, history.indices, np.concatenate([history.indptr, empty]))
        history = sp.csr_array(parts, shape=(history.shape[0] + missing, history.shape[1]))
        users = np.concatenate([users, np.full(missing, users[0], dtype=users.dtype)])
    return own_scores(model, history, users)


def own_scores(model: Model, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
    """Scores that may be written into: a model may have answered with a part of itself."""
    scores = model.scores(history, users)
    held = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    shared = scores.untyped_storage().data_ptr() in held
    return scores.clone(memory_format=torch.contiguous_format) if shared else scores.contiguous()


def mask_history(scores: Tensor, history: sp.csr_array) -> Tensor:
    """−∞ at the items of each user's history, in place."""
    rows = np.repeat(np.arange(history.shape[0], dtype=np.int64), np.diff(history.indptr))
    flat = torch.from_numpy(rows * scores.shape[1] + history.indices).to(scores.device)
    scores.view(-1)[flat] = -torch.inf
    return scores


def top_items(scores: Tensor, k: int) -> Tensor:
    """The k best items a row, best first, −1 where scores are −∞; ties to the lower item; [B, k].

    ``topk`` leaves the order of equal scores open. One extra place shows whether a tie crosses the
    cut; only such rows are sorted in full.
    """
    depth = min(k + 1, scores.shape[1])
    value, item = _largest(scores, depth)
    order = torch.argsort(
        item, dim=1
    )  # by item first, then stably by score: ties to the lower item
    value, item = value.gather(1, order), item.gather(1, order)
    order = torch.argsort(value, dim=1, descending=True, stable=True)
    value, item = value.gather(1, order), item.gather(1, order)
    if depth > k:
        crossing = (value[:, k - 1] == value[:, k]) & (value[:, k] > -torch.inf)
        tied = torch.nonzero(crossing).squeeze(1)
        for row in torch.split(tied, 256):
            full = torch.sort(scores[row], dim=1, descending=True, stable=True)
            value[row, :k], item[row, :k] = full.values[:, :k], full.indices[:, :k]
    return item[:, :k].masked_fill(value[:, :k] == -torch.inf, -1)


def _largest(scores: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """The largest scores a row and their items, each ``[B, depth]``; a faster ``topk`` on a CPU.

    They lie in the ``depth`` stretches with the largest maxima: a stretch left out has ``depth``
    others whose maxima are at least its own. Finding maxima is one vectorised pass.
    """
    stretches = scores.shape[1] // STRETCH
    if scores.is_cuda or stretches < 4 * depth:
        found = torch.topk(scores, depth, dim=1)
        return found.values, found.indices
    covered = stretches * STRETCH
    best = scores[:, :covered].view(len(scores), stretches, STRETCH).amax(2)
    chosen = torch.topk(best, depth, dim=1, sorted=False).indices.unsqueeze(2) * STRETCH
    inside = (chosen + torch.arange(STRETCH)).flatten(1)  # [B, depth · STRETCH]
    rest = torch.arange(covered, scores.shape[1]).expand(len(scores), -1)
    item = torch.cat([inside, rest], dim=1)
    value, at = torch.topk(scores.gather(1, item), depth, dim=1)
    return value, item.gather(1, at)
