"""EASE, RLAE and RDLAE for unseen users against the formulas in double precision.

With interactions X of m users and λ_j of each item, L = diag λ:

    P = (XᵀX + L)⁻¹ = L⁻¹ − L⁻¹Xᵀ(I + XL⁻¹Xᵀ)⁻¹XL⁻¹

LAPACK inverts the m × m matrix; columns of P are verified by their residuals. The metrics that
follow are compared with those of a run: one that `itemfold reproduce strong` stored in `--results`,
or else one that is trained here. yelp2018-strong takes 9 GB, and on one core about 20 minutes
for each model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common import Verdicts, hardware, parser

import numpy as np
import scipy.sparse as sp
import torch

from itemfold.data.array_types import Floats
from itemfold.data.datasets import load
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import split_users
from itemfold.evaluation.evaluate import evaluate
from itemfold.experiments.suites.store import read_store
from itemfold.models import EASE, RLAE
from itemfold.training.fit import train

METRICS = ("recall@20", "capped_recall@20", "capped_recall@50", "ndcg@20", "ndcg@100")
ITEMS = 512  # columns of P at a time
VERIFIED = 3  # columns of P in each block


@dataclass(frozen=True)
class System:
    """Published settings, and the row of the suite that has them."""

    row: str
    l2: float
    dropout: float = 0.0
    relax: float | None = None  # None: EASE

    def model(self) -> EASE | RLAE:
        """The model of the package."""
        if self.relax is None:
            return EASE(l2=self.l2)
        return RLAE(l2=self.l2, dropout=self.dropout, relax=self.relax)


SYSTEMS = {
    "ease": System("ease", 300.0),
    "rlae": System("rlae-published", 400.0, relax=0.4),
    "rdlae": System("rdlae-published", 200.0, 0.6, 0.3),
}


def main() -> None:
    """Print the metrics of both and the largest difference."""
    options = parser(__doc__, "yelp2018-strong")
    options.add_argument("--models", default=",".join(SYSTEMS), help="separated by commas")
    options.add_argument("--results", type=Path, help="folder of results with the suite 'strong'")
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    print(hardware(given.threads), flush=True)
    split, worst, verdicts = (
        split_users(load(given.data, data_root=given.data_root)),
        0.0,
        Verdicts(),
    )
    for name in given.models.split(","):
        system = SYSTEMS[name]
        ours, kept = of_package(system, split, given.results, given.data)
        scores, residual = exact_scores(system, split, kept)
        verdicts.also(f"{name}_residual", residual, 1e-9)
        expected = figures(scores[-1], split)
        for metric in METRICS:
            print(f"{name} {metric}: {ours[metric]:.7f}, exact {expected[metric]:.7f}", flush=True)
        if len(scores) > 1:
            whole = figures(scores[0], split)
            listed = ", ".join(f"{metric} {whole[metric]:.7f}" for metric in METRICS)
            print(f"{name} with all weights instead of {kept:,} of each item: {listed}")
        worst = max(worst, *(abs(ours[metric] - expected[metric]) for metric in METRICS))
    verdicts.last("strong_difference", worst, 1e-6)


def of_package(
    system: System, split: Split, results: Path | None, data: str
) -> tuple[dict[str, float], int | None]:
    """The metrics of a run, and how many weights of each item it stores if not all."""
    model, n = system.model(), split.n_items
    stored = model._stored(n) if isinstance(model, RLAE) else n
    kept = stored if stored < n else None
    if results is None:
        return evaluate(train(split, model), split, metrics=list(METRICS)).metrics, kept
    row = read_store(results).result("strong", (f"{data}/inductive", system.row, 0))
    if row is None:
        raise SystemExit(f"{results} has no row {system.row} of {data}")
    return row["test"], kept


def exact_scores(system: System, split: Split, kept: int | None) -> tuple[list[Floats], float]:
    """Scores of the test users, with all and with the largest weights, and the largest residual."""
    x = sp.csr_array(split.train, dtype=np.float64)
    by_item, n = sp.csr_array(x.T), split.n_items
    degree = np.asarray(x.multiply(x).sum(0)).ravel()
    ridge = system.l2 + system.dropout / (1 - system.dropout) * degree
    middle = inverse_of_users(x, ridge)
    shown = sp.csr_array(split.test.history, dtype=np.float64)
    out = [np.empty((len(split.test), n)) for _ in range(1 if kept is None else 2)]
    residual = 0.0
    for start in range(0, n, ITEMS):
        part = slice(start, min(start + ITEMS, n))
        inner = np.ascontiguousarray((by_item[part] @ middle).T)  # [m, b]
        p = by_item @ inner
        p /= -ridge[:, None]
        own = np.arange(part.stop - start)
        p[own + start, own] += 1
        p /= ridge[part]  # P [n, b]
        some = own[:: max(len(own) // VERIFIED, 1)]
        product = by_item @ (x @ p[:, some]) + ridge[:, None] * p[:, some]
        product[some + start, np.arange(len(some))] -= 1
        residual = max(residual, float(np.abs(product).max()))
        diagonal = p[own + start, own]
        scale = 1 / diagonal
        if system.relax is not None:
            scale = np.maximum(ridge[part], (1 - system.relax) * scale)
        p *= -scale
        p[own + start, own] = 0
        out[0][:, part] = shown @ p
        if kept is not None:
            smallest = np.argpartition(np.abs(p), n - kept, axis=0)[: n - kept]
            np.put_along_axis(p, smallest, 0, axis=0)
            out[1][:, part] = shown @ p
    return out, residual


def inverse_of_users(x: sp.csr_array, ridge: Floats) -> Floats:
    """``(I + XL⁻¹Xᵀ)⁻¹``, in one array."""
    m = x.shape[0]
    scaled = sp.csr_array(x @ sp.diags_array(1 / ridge))
    out = np.empty((m, m), order="F")
    for start in range(0, m, ITEMS):
        part = slice(start, min(start + ITEMS, m))
        out[:, part] = (scaled[part] @ x.T).toarray().T
    out[np.diag_indices(m)] += 1
    matrix, wrong = torch.from_numpy(out), torch.empty((), dtype=torch.int32)  # shares the memory
    torch.linalg.cholesky_ex(matrix, out=(matrix, wrong))  # LAPACK's potrf and potri
    if wrong:
        raise SystemExit("the matrix of the users cannot be inverted")
    torch.cholesky_inverse(matrix, out=matrix)
    return out


def figures(scores: Floats, split: Split) -> dict[str, float]:
    """The metrics of a ranking by scores, items of the history left out."""
    shown, hidden = (m.toarray() > 0 for m in (split.test.history, split.test.target))
    scores = np.where(shown, -np.inf, scores)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :100]
    hits = np.take_along_axis(hidden, order, 1)
    total, gain = hidden.sum(1), 1 / np.log2(np.arange(2, 102))
    out = {"recall@20": (hits[:, :20].sum(1) / total).mean()}
    for k in (20, 50):
        out[f"capped_recall@{k}"] = (hits[:, :k].sum(1) / np.minimum(total, k)).mean()
    for k in (20, 100):
        ideal = np.cumsum(gain[:k])[np.minimum(total, k) - 1]
        out[f"ndcg@{k}"] = (hits[:, :k] @ gain[:k][: hits.shape[1]] / ideal).mean()
    return {metric: float(value) for metric, value in out.items()}


if __name__ == "__main__":
    main()
