"""Personalised PageRank of every user: seconds, memory, error, and the ratio to plain scipy."""

from __future__ import annotations

import multiprocessing
import time

from common import Training, Verdicts, forget_peak, interleaved, parser, resident

import numpy as np
import scipy.sparse as sp
import torch

from itemfold.data.datasets import load
from itemfold.data.named.synthetic import synthetic
from itemfold.data.splitting.splitters import split_interactions
from itemfold.graph.ppr import PPRScores, personalised_pagerank
from itemfold.losses import item_ndcg
from itemfold.sampling import PPR
from itemfold.settings.schema import TrainConfig

RESTART, TOLERANCE = 0.15, 1e-3
SAMPLE = 100  # users whose error is measured


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--top", type=int, default=256, help="entries stored per user")
    arguments.add_argument("--memory", action="store_true", help="measure memory growth only")
    arguments.add_argument("--users", type=int, default=1_000_000, help="users for --memory")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory:
        growth(options.users)
        return
    data = load(options.data, data_root=options.data_root)
    train = split_interactions(data, valid=0.0).train
    print(f"{options.data}: {train.shape[0]} users, {train.shape[1]} items, {train.nnz} edges")
    if options.device != "cpu":
        on_device(train, options.device, options.top)
        return

    forget_peak()
    before, start = resident("VmRSS"), time.perf_counter()
    scores = personalised_pagerank(train, restart=RESTART, tolerance=TOLERANCE, top=options.top)
    ours = time.perf_counter() - start
    memory = (resident("VmHWM") - before) / 2**30
    print(f"all users in {ours:.1f} s on {options.threads} threads, {describe(scores)}")

    sample = np.sort(np.random.default_rng(0).choice(train.shape[0], SAMPLE, replace=False))
    truth = exact(train, sample)
    error = worst_error(train, sample, truth, "cpu")
    seconds, steps = plain_scipy(train, sample, truth)
    theirs = seconds * train.shape[0]
    print(
        f"plain scipy power iteration: {steps} steps for an error of {TOLERANCE} on these users, "
        f"{theirs:.0f} s for all users (timed on {len(sample)} and scaled)"
    )
    verdict("ppr_seconds", ours, None)
    verdicts = Verdicts()
    verdicts.also("ppr_memory_gb", memory, 2.0)
    verdicts.also("ppr_l1_error", error, TOLERANCE)
    rounds = 1 if options.quick else 20
    verdicts.also("ppr_draw_share_of_step", draw_share(train, rounds), 0.1)
    verdicts.last("ppr_speedup", theirs / ours, 3.0, at_least=True)


def draw_share(train: sp.csr_array, rounds: int) -> float:
    """Time to draw 2,048 × 200 negatives, as a share of the training step that uses them."""
    training = Training(train, item_ndcg(tau=1.5), TrainConfig(n_negatives=200), negatives=PPR())
    sampler, keys = training.sampler, training.keys()[0]
    generator = torch.Generator().manual_seed(0)
    tasks = {"step": lambda: training.step(keys), "draw": lambda: sampler(keys, 200, generator)}
    spent = interleaved(tasks, rounds=rounds, warm_up=3)
    print(f"drawing {1e3 * spent['draw']:.1f} ms, a step with it {1e3 * spent['step']:.1f} ms")
    return spent["draw"] / spent["step"]


def on_device(train: sp.csr_array, device: str, top: int) -> None:
    personalised_pagerank(train, np.arange(64), device=device)  # first use loads libraries
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    scores = personalised_pagerank(
        train, restart=RESTART, tolerance=TOLERANCE, top=top, device=device
    )
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"all users in {seconds:.2f} s on {device}, {peak:.2f} GB there, {describe(scores)}")
    sample = np.sort(np.random.default_rng(0).choice(train.shape[0], SAMPLE, replace=False))
    error = worst_error(train, sample, exact(train, sample), device)
    verdict("ppr_l1_error", error, TOLERANCE)
    verdict("ppr_gpu_seconds", seconds, 10.0)


def growth(users: int) -> None:
    """Peak memory with a quarter of the users, items and edges, and with all of them.

    Stored data grows with users and edges, fourfold; a dense table would grow sixteenfold.
    """
    peaks = []
    for count in (users // 4, users):
        with multiprocessing.get_context("spawn").Pool(1) as fresh:  # starts without used memory
            peak, entries, seconds = fresh.apply(peak_of, (count,))
        dense = count * max(count // 20, 100) * 4 / 2**30
        peaks.append(peak)
        print(
            f"{count} users, {count // 20} items, {count * 10} edges: {entries} entries stored, "
            f"{peak / 2**30:.3f} GB peak memory above the data, {seconds:.0f} s "
            f"(a dense table: {dense:.1f} GB)"
        )
    verdict("ppr_memory_growth", peaks[1] / peaks[0], 5.0)


def peak_of(users: int) -> tuple[int, int, float]:
    """Peak bytes above the data, entries and seconds of a push on a synthetic graph."""
    train = synthetic(users=users, items=max(users // 20, 100), interactions=users * 10).csr()
    forget_peak()
    before, start = resident("VmRSS"), time.perf_counter()
    scores = personalised_pagerank(train, method="push", epsilon=3e-4, top=32)
    return resident("VmHWM") - before, len(scores.values), time.perf_counter() - start


def exact(train: sp.csr_array, users: np.ndarray) -> np.ndarray:
    """Item part of the PageRank in float64, the series summed up to a rest of 1e-7, [u, i]."""
    matrix = train.astype(np.float64)
    degree_u = np.maximum(np.diff(train.indptr), 1)[:, None]
    degree_i = np.maximum(np.bincount(train.indices, minlength=train.shape[1]), 1)[:, None]
    back = sp.csr_array(matrix.T)
    a = 1 - RESTART
    term = RESTART * a * (matrix[users].toarray() / degree_u[users]).T
    total = term.copy()
    for _ in range(int(np.log(1e-7) / np.log(a * a)) + 1):
        term = a * a * (back @ ((matrix @ (term / degree_i)) / degree_u))
        total += term
    return total.T


def worst_error(train: sp.csr_array, users: np.ndarray, truth: np.ndarray, device: str) -> float:
    """Largest L1 error before anything is cut off."""
    whole = personalised_pagerank(
        train, users, tolerance=TOLERANCE, top=train.shape[1], positives=True, device=device
    )
    return float(np.abs(whole.matrix().toarray() - truth).sum(1).max())


def plain_scipy(
    train: sp.csr_array, users: np.ndarray, truth: np.ndarray, block: int = 50
) -> tuple[float, int]:
    """Seconds per user, and steps, of p ← restart · e + (1 − restart) Pᵀ p on the whole graph."""
    n_users = train.shape[0]
    graph = sp.block_array([[None, train], [train.T, None]], format="csr", dtype=np.float32)
    degree = np.maximum(np.diff(graph.indptr), 1).astype(np.float32)
    step = sp.csr_array((1 - RESTART) * (graph @ sp.diags_array(1 / degree, dtype=np.float32)))
    most, spent = 0, 0.0
    for begin in range(0, len(users), block):
        chosen = users[begin : begin + block]
        start = np.zeros((step.shape[0], len(chosen)), np.float32)
        start[chosen, np.arange(len(chosen))] = 1
        p, steps, error = start.copy(), 0, np.inf
        while error > TOLERANCE:
            clock = time.perf_counter()
            p = step @ p
            p += RESTART * start
            spent += time.perf_counter() - clock
            steps += 1
            if steps >= 25:  # the comparison itself is not timed
                error = np.abs(p[n_users:].T - truth[begin : begin + block]).sum(1).max()
        most = max(most, steps)
    return spent / len(users), most


def describe(scores: PPRScores) -> str:
    return (
        f"{len(scores.values)} entries stored, {scores.dropped.mean():.3f} of the mass dropped, "
        f"proven L1 error {scores.error.max():.1e}"
    )


def verdict(name: str, value: float, bound: float | None, at_least: bool = False) -> None:
    if bound is None:
        print(f"{name} {value:.4g}")
        return
    good = value >= bound if at_least else value <= bound
    print(f"{name} {value:.4g} {bound} {'pass' if good else 'short'}")


if __name__ == "__main__":
    main()
