"""Losses against closed forms, hand-written loops and the metrics they approximate."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from itemfold import losses
from itemfold.errors import ItemfoldError
from itemfold.losses import LOSSES, bindable
from itemfold.ops.neural_sort import neural_sort, sinkhorn

SMOOTH = ("item-ndcg", "item-ap", "item-recall", "neural-ndcg")
RANKED = (*SMOOTH[:3], "item-log")  # losses that use the sigmoid rank
KS = (1, 2, 4, 8, 16)
SCORED = tuple(name for name in LOSSES if name != "direct-au")  # which compares vectors


def complete(name: str) -> Any:
    """A loss that is called with scores and masks alone; further inputs are constants."""

    def loss(pos: Tensor, neg: Tensor, *masks: Tensor | None, **bound: Any) -> Tensor:
        given = {
            "log_expected": torch.full_like(neg, -0.375),
            "own": torch.full_like(pos[:, :1], 0.25),
            "own_mask": torch.ones_like(pos[:, :1], dtype=torch.bool),
            "popularity_logit": torch.full_like(pos, 0.5),
        }
        wanted = {key: given[key] for key in losses.extra_inputs(LOSSES[name])}
        return LOSSES[name](pos, neg, *masks, **{**wanted, **bound})

    return loss


def lists(
    users: int = 4, p: int = 3, n: int = 6, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random scores and masks; every user but the last keeps a positive, the last has none."""
    g = torch.Generator().manual_seed(seed)
    pos, neg = torch.randn(users, p, generator=g), torch.randn(users, n, generator=g)
    pos_mask = torch.rand(users, p, generator=g) < 0.7
    pos_mask[:, 0], pos_mask[-1] = True, False
    neg_mask = torch.rand(users, n, generator=g) < 0.8
    return pos.to(dtype), neg.to(dtype), pos_mask, neg_mask


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def naive_user(name: str, pos: list[float], neg: list[float], tau: float) -> float:
    """The loss of one user from its formula, by loops over plain numbers."""
    if name in RANKED:
        ranks, ranks_pos = [], []
        for i, s in enumerate(pos):
            above = sum(sigmoid((o - s) / tau) for j, o in enumerate(pos) if j != i)
            ranks_pos.append(1 + above)
            ranks.append(1 + above + sum(sigmoid((o - s) / tau) for o in neg))
        if name == "item-ndcg":
            ideal = sum(1 / math.log2(i + 2) for i in range(len(pos)))
            return 1 - sum(1 / math.log2(1 + r) for r in ranks) / ideal
        if name == "item-ap":
            return 1 - sum(a / r for a, r in zip(ranks_pos, ranks, strict=True)) / len(pos)
        if name == "item-log":
            counts = [r - a for r, a in zip(ranks, ranks_pos, strict=True)]
            return sum(math.log2(1 + n) for n in counts) / len(pos)
        at = [sum(sigmoid(k + 0.5 - r) for r in ranks) / min(len(pos), k) for k in KS]
        return 1 - sum(at) / len(KS)
    if name == "bpr":
        pairs = [math.log1p(math.exp(n - p)) for p, n in itertools.product(pos, neg)]
        return sum(pairs) / len(pairs) if pairs else 0.0
    total = sum(math.exp(n / tau) for n in neg)
    if name == "softmax":
        each = [-math.log(math.exp(p / tau) / (math.exp(p / tau) + total)) for p in pos]
    elif name == "bsl":
        each = [-math.log(math.exp(p / tau) / (total**1.1 if neg else 1)) for p in pos]
    elif name == "sampled-softmax":  # complete() gives every negative e^−⅜ expected draws
        each = [-math.log(math.exp(p / tau) / (math.exp(p / tau) + total * E38)) for p in pos]
    elif name in OTHERS:
        return OTHERS[name](pos, neg, tau)
    else:
        push = 5.0 * sum(max(0.0, n - 0.3) for n in neg) / max(len(neg), 1)
        each = [max(0.0, 1 - p) + push for p in pos]
    return sum(each) / len(each)


E38 = math.exp(0.375)


def naive_psl(pos: list[float], neg: list[float], tau: float) -> float:
    """log Σ (1 + tanh d)^{1/τ*} with d = (s_j − s_p)/2 and τ* = τ/2."""
    each = [
        math.log(sum((1 + math.tanh((n - p) / 2)) ** (1 / (tau / 2)) for n in neg)) if neg else 0.0
        for p in pos
    ]
    return sum(each) / len(each)


def naive_sl_at_k(pos: list[float], neg: list[float], tau: float, k: int = 3) -> float:
    highest = sorted([*neg, 0.25], reverse=True)  # complete() gives one training item of score 0.25
    beta = highest[min(k, len(highest)) - 1]
    each = [
        sigmoid((p - beta) / 1.5) * math.log(sum(math.exp((n - p) / tau) for n in neg))
        for p in pos
        if neg
    ]
    return sum(each) / len(pos)


def naive_adv_info_nce(pos: list[float], neg: list[float], tau: float) -> float:
    """The maximum over all corners of the box [−h, h]^N, one by one."""
    each = []
    for p in pos:
        worst = 0.0
        for g in itertools.product((-0.8, 0.8), repeat=len(neg)):
            powers = [math.exp(x) for x in g]
            terms = [
                len(neg) * w / sum(powers) * math.exp((n - p) / tau)
                for w, n in zip(powers, neg, strict=True)
            ]
            worst = max(worst, sum(terms))
        each.append(math.log(1 + 2.5 * worst))
    return sum(each) / len(each)


def naive_bc(pos: list[float], neg: list[float], tau: float) -> float:
    """The authors' cos(arccos(s) + 1 − σ(r)), with r = 0.5 and the angle at most π."""
    total, each = sum(math.exp(n / tau) for n in neg), []
    for p in pos:
        angle = math.acos(min(max(p, -1 + 1e-6), 1 - 1e-6)) + 1 - sigmoid(0.5)
        numerator = math.exp(math.cos(min(angle, math.pi)) / tau)
        each.append(-math.log(numerator / (numerator + total)))
    return sum(each) / len(each)


def naive_lambda(name: str, pos: list[float], neg: list[float], tau: float, k: int = 4) -> float:
    order = sorted(pos + neg, reverse=True)  # without ties
    ideal = sum(1 / math.log2(i + 2) for i in range(len(pos)))
    out = 0.0
    for p, n in itertools.product(pos, neg):
        one, two = order.index(p) + 1, order.index(n) + 1
        if name == "lambda-rank":
            weight = abs(1 / math.log2(1 + one) - 1 / math.log2(1 + two))
        else:
            weight = 1 / math.log2(1 + abs(one - two)) - 1 / math.log2(2 + abs(one - two))
            if max(one, two) > k:
                weight /= 1 - 1 / math.log2(1 + max(one, two))
        out += weight * math.log1p(math.exp((n - p) / tau))
    return out / ideal


def naive_llpauc(pos: list[float], neg: list[float], tau: float) -> float:
    best = sorted(pos, reverse=True)[: math.ceil(0.6 * len(pos))]
    worst = sorted(neg, reverse=True)[: math.ceil(0.4 * len(neg))]
    pairs = [(1 - (sigmoid(p) - sigmoid(n))) ** 2 for p, n in itertools.product(best, worst)]
    return sum(pairs) / len(pairs)


def naive_warp(pos: list[float], neg: list[float], tau: float) -> float:
    each = []
    for p in pos:
        short = [1.2 - p + n for n in neg if 1.2 - p + n > 0]
        weight = sum(1 / i for i in range(1, 2 * len(short) + 1))  # scale 2
        each.append(weight * sum(short) / len(short) if short else 0.0)
    return sum(each) / len(each)


OTHERS: dict[str, Callable[[list[float], list[float], float], float]] = {
    "psl": naive_psl,
    "sl-at-k": naive_sl_at_k,
    "adv-info-nce": naive_adv_info_nce,
    "bc": naive_bc,
    "lambda-rank": functools.partial(naive_lambda, "lambda-rank"),
    "lambda-loss": functools.partial(naive_lambda, "lambda-loss"),
    "llpauc": naive_llpauc,
    "warp": naive_warp,
}


def exact_metric(name: str, pos: list[float], neg: list[float]) -> float:
    """The metric of one list by sorting it; scores must not be tied."""
    order = sorted(pos + neg, reverse=True)
    ranks = sorted(order.index(s) + 1 for s in pos)
    if name.endswith("ndcg"):
        ideal = sum(1 / math.log2(i + 2) for i in range(len(pos)))
        return sum(1 / math.log2(1 + r) for r in ranks) / ideal
    if name == "item-ap":
        return sum((i + 1) / r for i, r in enumerate(ranks)) / len(ranks)
    return sum(sum(r <= k for r in ranks) / min(len(pos), k) for k in KS) / len(KS)


def settings_of(name: str, tau: float = 0.7) -> dict[str, Any]:
    own: dict[str, dict[str, Any]] = {
        "bpr": {},
        "ccl": {"margin": 0.3, "weight": 5.0},
        "bsl": {"tau": tau, "t2": 1.1},
        "item-recall": {"tau": tau, "tau_k": 1.0},
        "sl-at-k": {"tau": tau, "tau_quantile": 1.5, "k": 3},
        "adv-info-nce": {"tau": tau, "hardness": 0.8, "weight": 2.5},
        "lambda-loss": {"tau": tau, "k": 4},
        "llpauc": {"alpha": 0.6, "beta": 0.4},
        "warp": {"gap": 1.2, "scale": 2.0},
    }
    return own.get(name, {"tau": tau})


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [n for n in SCORED if n != "neural-ndcg"])
def test_equals_hand_written_loops(name: str, dtype: torch.dtype) -> None:
    pos, neg, pos_mask, neg_mask = lists(dtype=dtype)
    users = [
        naive_user(name, p[pm].tolist(), n[nm].tolist(), 0.7)
        for p, n, pm, nm in zip(pos, neg, pos_mask, neg_mask, strict=True)
        if pm.any()
    ]
    value = complete(name)(pos, neg, pos_mask, neg_mask, **settings_of(name))
    # half precision is widened: the loops see the same rounded scores
    assert float(value) == pytest.approx(
        sum(users) / len(users), abs=1e-12 if dtype == torch.float64 else 1e-5
    )


def test_one_pair_has_the_closed_forms() -> None:
    gap = 0.3
    pos, neg = torch.tensor([[0.5]]), torch.tensor([[0.5 + gap]])
    sigma = sigmoid(gap)
    assert float(losses.bpr(pos, neg)) == pytest.approx(-math.log(1 - sigma), rel=1e-6)
    assert float(losses.softmax(pos, neg)) == pytest.approx(-math.log(1 - sigma), rel=1e-6)
    assert float(losses.item_ndcg(pos, neg)) == pytest.approx(
        1 - 1 / math.log2(2 + sigma), rel=1e-5
    )
    assert float(losses.item_ap(pos, neg)) == pytest.approx(1 - 1 / (1 + sigma), rel=1e-5)
    assert float(losses.item_log(pos, neg)) == pytest.approx(math.log2(1 + sigma), rel=1e-5)
    # NeuralSort of two items is a softmax of ±(s₁ − s₂): already doubly stochastic
    assert float(losses.neural_ndcg(pos, neg)) == pytest.approx(
        sigma * (1 - 1 / math.log2(3)), rel=1e-5
    )


def reference_neural_ndcg(pos: list[float], neg: list[float], tau: float) -> float:
    """NeuralNDCG of one list as its authors' library computes it, by loops over plain numbers.

    Rows of the relaxed permutation are softmaxes; Sinkhorn divides columns, then rows, by their
    sums until all are within 1e-6, at most 50 times; the gains of the sorted list are discounted.
    """
    scores, gains = [*pos, *neg], [1.0] * len(pos) + [0.0] * len(neg)
    n = len(scores)
    apart = [sum(abs(a - b) for b in scores) for a in scores]
    matrix = []
    for i in range(1, n + 1):
        logits = [((n + 1 - 2 * i) * s - a) / tau for s, a in zip(scores, apart, strict=True)]
        powers = [math.exp(x - max(logits)) for x in logits]
        matrix.append([x / sum(powers) for x in powers])
    for _ in range(50):
        columns = [sum(row[j] for row in matrix) for j in range(n)]
        matrix = [[x / c for x, c in zip(row, columns, strict=True)] for row in matrix]
        matrix = [[x / sum(row) for x in row] for row in matrix]
        columns = [sum(row[j] for row in matrix) for j in range(n)]
        if max(abs(c - 1) for c in columns) < 1e-6:
            break
    dcg = sum(
        sum(p * g for p, g in zip(row, gains, strict=True)) / math.log2(2 + place)
        for place, row in enumerate(matrix)
    )
    return 1 - dcg / sum(1 / math.log2(2 + place) for place in range(len(pos)))


@pytest.mark.parametrize("tau", [0.3, 1.0, 3.0])
def test_neural_ndcg_is_that_of_its_authors_library(tau: float) -> None:
    """Also for lists of different lengths in one batch: padding is left out of the sort."""
    pos, neg, pos_mask, neg_mask = lists(users=5, p=3, n=6)
    users = [
        reference_neural_ndcg(p[pm].tolist(), n[nm].tolist(), tau)
        for p, n, pm, nm in zip(pos, neg, pos_mask, neg_mask, strict=True)
        if pm.any()
    ]
    found = float(losses.neural_ndcg(pos, neg, pos_mask, neg_mask, tau=tau))
    assert found == pytest.approx(sum(users) / len(users), abs=1e-5)


def test_tied_scores_give_the_middle_rank() -> None:
    pos, neg = torch.zeros(1, 2), torch.zeros(1, 5)
    rank, rank_pos, _ = losses.smooth_rank(pos, neg, tau=1e-6)
    assert rank.tolist() == [[4.0, 4.0]]  # 1 + 6 others, each counted half
    assert rank_pos.tolist() == [[1.5, 1.5]]


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("seed", range(3))
def test_small_tau_gives_the_metric_of_the_list(name: str, seed: int) -> None:
    pos, neg, pos_mask, neg_mask = lists(users=8, p=5, n=20, dtype=torch.float32, seed=seed)
    users = [
        exact_metric(name, p[pm].tolist(), n[nm].tolist())
        for p, n, pm, nm in zip(pos, neg, pos_mask, neg_mask, strict=True)
        if pm.any()
    ]
    extra = {"tau_k": 1e-2} if name == "item-recall" else {}
    value = complete(name)(pos, neg, pos_mask, neg_mask, tau=1e-5, **extra)
    assert 1 - float(value) == pytest.approx(sum(users) / len(users), abs=1e-5)


# --- edges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCORED)
def test_values_in_the_padding_never_matter(name: str) -> None:
    pos, neg, pos_mask, neg_mask = lists(dtype=torch.float32)
    values, grads = [], []
    for junk in (0.0, 1e30, math.inf, math.nan):
        p = pos.masked_fill(~pos_mask, junk).requires_grad_()
        n = neg.masked_fill(~neg_mask, junk).requires_grad_()
        value = complete(name)(p, n, pos_mask, neg_mask, **settings_of(name))
        value.backward()
        values.append(value.detach())
        grads.append(torch.cat([p.grad, n.grad], 1))
    for value, grad in zip(values, grads, strict=True):
        assert torch.equal(value, values[0])
        assert torch.equal(grad, grads[0])
    assert not grads[0][:, : pos.shape[1]][~pos_mask].any()
    assert not grads[0][:, pos.shape[1] :][~neg_mask].any()


@pytest.mark.parametrize("name", SCORED)
def test_a_shorter_list_equals_a_padded_one(name: str) -> None:
    pos, neg, *_ = lists(dtype=torch.float64)
    pos_mask = torch.tensor([True, True, False]).expand_as(pos)
    neg_mask = (torch.arange(neg.shape[1]) < 4).expand_as(neg)
    bound = functools.partial(complete(name), **settings_of(name))
    assert float(bound(pos, neg, pos_mask, neg_mask)) == pytest.approx(
        float(bound(pos[:, :2], neg[:, :4])), abs=1e-12
    )


@pytest.mark.parametrize("tau", [1e-9, 0.1, 10.0])
@pytest.mark.parametrize("name", RANKED)
def test_extreme_scores_any_temperature(name: str, tau: float) -> None:
    extreme_scores_are_finite(name, {"tau": tau})


@pytest.mark.parametrize("name", [n for n in SCORED if n not in RANKED])
def test_extreme_scores(name: str) -> None:
    extreme_scores_are_finite(name, settings_of(name))


def extreme_scores_are_finite(name: str, bound: dict[str, float]) -> None:
    ends = torch.tensor([-1e30, 0.0, 1e30])
    pos = torch.cartesian_prod(ends, ends).requires_grad_()  # every pair of extremes, [9, 2]
    for row in itertools.product(ends.tolist(), repeat=3):
        neg = torch.tensor([row]).repeat(9, 1).requires_grad_()
        value = complete(name)(pos, neg, **bound)
        grads = torch.autograd.grad(value, [pos, neg])
        assert value.isfinite()
        assert all(grad.isfinite().all() for grad in grads)


def test_extremes_rank_as_they_should() -> None:
    best = losses.item_ndcg(torch.tensor([[1e30]]), torch.tensor([[-1e30, 0.0]]))
    worst = losses.item_ndcg(torch.tensor([[-1e30]]), torch.tensor([[1e30, 0.0]]))
    assert float(best) == 0.0
    assert float(worst) == pytest.approx(1 - 1 / math.log2(4))


@pytest.mark.parametrize("name", SMOOTH)
def test_a_lone_positive_is_ranked_first(name: str) -> None:
    pos = torch.randn(3, 1, requires_grad=True)
    extra = {"tau_k": 0.01} if name == "item-recall" else {}
    value = complete(name)(pos, torch.empty(3, 0), **extra)
    value.backward()
    assert float(value.detach()) == pytest.approx(0.0, abs=1e-6)
    assert not pos.grad.any()


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("shape", [(3, 2, 4), (3, 0, 4), (0, 2, 4), (3, 2, 0)])
def test_without_positives_a_differentiable_zero(name: str, shape: tuple[int, int, int]) -> None:
    b, p, n = shape
    pos, neg = torch.randn(b, p, requires_grad=True), torch.randn(b, n, requires_grad=True)
    value = complete(name)(pos, neg, torch.zeros(b, p, dtype=torch.bool))
    value.backward()
    assert float(value.detach()) == 0.0
    assert not pos.grad.any()
    assert neg.grad is None or not neg.grad.any()


@pytest.mark.parametrize("name", SCORED)
def test_users_without_positives_do_not_count(name: str) -> None:
    pos, neg, pos_mask, neg_mask = lists()
    bound = functools.partial(complete(name), **settings_of(name))
    assert float(bound(pos, neg, pos_mask, neg_mask)) == pytest.approx(
        float(bound(pos[:-1], neg[:-1], pos_mask[:-1], neg_mask[:-1])), abs=1e-12
    )


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("masked", [True, False])
def test_negatives_shared_by_all_users(name: str, masked: bool) -> None:
    pos, neg, pos_mask, neg_mask = lists()
    bound = functools.partial(complete(name), **settings_of(name))
    masks = (pos_mask, neg_mask) if masked else (None, None)
    shared = neg[:1]
    assert torch.equal(bound(pos, shared, *masks), bound(pos, shared.repeat(4, 1), *masks))


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCORED)
def test_gradients_are_the_numerical_ones(name: str) -> None:
    pos, neg, pos_mask, neg_mask = lists()
    bound = settings_of(name)
    if name == "neural-ndcg":
        bound["iterations"] = 5
    if name == "sl-at-k":  # the threshold has no gradient: here it does not move with the scores
        bound |= {"own": torch.full((4, 3), 9.0).double(), "own_mask": torch.ones(4, 3).bool()}

    def f(p: Tensor, n: Tensor) -> Tensor:
        return complete(name)(p, n, pos_mask, neg_mask, **bound)

    assert torch.autograd.gradcheck(f, (pos.requires_grad_(), neg.requires_grad_()))


def test_count_keeps_one_tensor_for_the_backward_pass() -> None:
    pos, neg = torch.randn(2, 3, requires_grad=True), torch.randn(2, 50, requires_grad=True)
    kept: list[int] = []

    def pack(x: Tensor) -> Tensor:
        kept.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        losses.item_ndcg(pos, neg)
    assert [size for size in kept if size >= 2 * 3 * 50] == [2 * 3 * 50]


class OnDevice(TorchFunctionMode):
    """Fails if a tensor is made from host values, which no CUDA graph can record."""

    COPIES = (torch.tensor, torch.as_tensor, torch.from_numpy, Tensor.new_tensor)

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        assert func not in self.COPIES
        out = func(*args, **(kwargs or {}))
        assert not isinstance(out, Tensor) or out.device.type == "meta", func
        return out


def test_a_copy_from_the_host_is_noticed() -> None:
    scores = torch.zeros(2, device="meta")
    with pytest.raises(AssertionError), OnDevice():
        scores + scores.new_tensor(2.0)
    with pytest.raises(AssertionError), OnDevice():
        scores + torch.arange(2)


@pytest.mark.parametrize("name", SCORED)
def test_no_value_is_read_on_the_host_or_copied_from_it(name: str) -> None:
    """Meta tensors have no values: reading one, which would make a GPU wait, fails here."""
    pos, neg, pos_mask, neg_mask = (x.to("meta") for x in lists())
    loss = complete(name)
    with OnDevice():
        value = loss(pos.requires_grad_(), neg.requires_grad_(), pos_mask, neg_mask)
        value.backward()
    assert value.shape == ()
    assert pos.grad.shape == pos.shape
    assert neg.grad.shape == neg.shape


# --- properties ----------------------------------------------------------------------------------

score = st.floats(-5, 5).map(lambda x: round(x, 3))
list_of_scores = st.tuples(
    st.lists(score, min_size=1, max_size=4), st.lists(score, min_size=1, max_size=6)
)


def loss_of(name: str, pos: list[float], neg: list[float], **bound: float) -> float:
    p, n = torch.tensor([pos], dtype=torch.float64), torch.tensor([neg], dtype=torch.float64)
    return float(complete(name)(p, n, **bound))


@settings(max_examples=30, deadline=None)
@given(list_of_scores, st.sampled_from(sorted(SCORED)), st.randoms(use_true_random=False))
def test_order_within_the_list_changes_nothing(lists, name, random) -> None:  # type: ignore[no-untyped-def]
    pos, neg = lists
    before = loss_of(name, pos, neg)
    random.shuffle(pos)
    random.shuffle(neg)
    assert loss_of(name, pos, neg) == pytest.approx(before, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(st.permutations(range(12)), st.integers(1, 8), st.floats(0.2, 3))
def test_the_log_of_the_rank_bounds_ndcg_from_above_and_softmax_the_log(order, p, tau) -> None:  # type: ignore[no-untyped-def]
    pos, neg = [float(s) for s in order[:p]], [float(s) for s in order[p:]]
    bound = loss_of("item-log", pos, neg, tau=1e-3)
    assert -math.log2(exact_metric("item-ndcg", pos, neg)) <= bound + 1e-9
    assert (
        loss_of("item-log", pos, neg, tau=tau) * math.log(2)
        <= loss_of("softmax", pos, neg, tau=tau) + 1e-9
    )


@settings(max_examples=60, deadline=None)
@given(list_of_scores, st.floats(0.01, 5), st.floats(0.2, 3))
def test_raising_the_only_positive_never_hurts(lists, up, tau) -> None:  # type: ignore[no-untyped-def]
    pos, neg = lists
    for name in ("item-ndcg", "item-ap", "item-recall", "softmax", "bpr"):
        bound = {} if name == "bpr" else {"tau": tau}
        before = loss_of(name, pos[:1], neg, **bound)
        assert loss_of(name, [pos[0] + up], neg, **bound) <= before + 1e-12


@settings(max_examples=60, deadline=None)
@given(list_of_scores, st.floats(0.01, 5), st.floats(0.2, 3))
def test_raising_all_positives_never_hurts(lists, up, tau) -> None:  # type: ignore[no-untyped-def]
    pos, neg = lists
    for name in RANKED:
        higher = [s + up for s in pos]
        assert loss_of(name, higher, neg, tau=tau) <= loss_of(name, pos, neg, tau=tau) + 1e-12


@settings(max_examples=30, deadline=None)
@given(list_of_scores, st.floats(0.1, 10), st.floats(-3, 3), st.sampled_from(SMOOTH))
def test_only_score_differences_over_tau_matter(lists, scale, shift, name) -> None:  # type: ignore[no-untyped-def]
    pos, neg = lists
    moved = [[scale * s + shift for s in part] for part in (pos, neg)]
    assert loss_of(name, *moved, tau=0.8 * scale) == pytest.approx(
        loss_of(name, pos, neg, tau=0.8), abs=1e-7
    )


def test_raising_one_of_two_positives_may_cost_the_other_more() -> None:
    """The discount is convex: without negatives, two positives far apart are the best list."""
    assert loss_of("item-ndcg", [2.0, 1.0], []) > loss_of("item-ndcg", [2.0, 0.0], []) > 0


@settings(max_examples=60, deadline=None)
@given(list_of_scores, st.floats(0.05, 5))
def test_no_smooth_ranking_beats_the_ideal_one(lists, tau) -> None:  # type: ignore[no-untyped-def]
    for name in ("item-ndcg", "item-ap"):
        assert -1e-12 <= loss_of(name, *lists, tau=tau) < 1.0


# --- NeuralSort ----------------------------------------------------------------------------------


def permutation(scores: Tensor, mask: Tensor, tau: float, iterations: int) -> Tensor:
    order = neural_sort(scores, mask, tau)
    r, c = sinkhorn(order, iterations)
    return r[:, :, None] * order * c[:, None, :]


def test_sinkhorn_makes_neural_sort_doubly_stochastic() -> None:
    scores = torch.randn(5, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[0, 4:], mask[1] = False, False
    matrix = permutation(scores, mask, 1.0, 500)
    real = mask.double()
    ranks = (torch.arange(9) < mask.sum(1, keepdim=True)).double()
    assert torch.allclose(matrix.sum(1), real, atol=1e-5)  # every real item has one place
    assert torch.allclose(matrix.sum(2), ranks, atol=1e-5)  # every rank up to n has one item


def test_small_tau_makes_neural_sort_the_sort() -> None:
    scores = torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
    matrix = permutation(scores, torch.ones_like(scores, dtype=torch.bool), 1e-4, 50)
    sorted_scores = (matrix @ scores[:, :, None])[:, :, 0]
    assert torch.allclose(sorted_scores, scores.sort(descending=True).values, atol=1e-5)


def test_sinkhorn_of_a_user_does_not_depend_on_the_batch() -> None:
    scores = torch.randn(6, 12, generator=torch.Generator().manual_seed(1))
    scores *= torch.tensor([0.01, 0.1, 0.3, 1.0, 3.0, 10.0])[:, None]  # converge at different times
    order = neural_sort(scores, torch.ones_like(scores, dtype=torch.bool), 1.0)
    together = sinkhorn(order, tolerance=1e-2)
    for i in range(6):
        for batch, alone in zip(together, sinkhorn(order[i : i + 1], tolerance=1e-2), strict=True):
            assert torch.allclose(batch[i], alone[0], atol=1e-6)


# --- settings and lazy scores --------------------------------------------------------------------


def test_a_call_with_settings_only_binds_them() -> None:
    bound = losses.item_ndcg(tau=0.5)
    assert isinstance(bound, functools.partial)
    assert bound.func is losses.item_ndcg
    assert bound.keywords == {"tau": 0.5}
    pos, neg, *masks = lists()
    assert torch.equal(bound(pos, neg, *masks), losses.item_ndcg(pos, neg, *masks, tau=0.5))


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("item-ndcg", {"tau": 0}, "'tau' must be a positive number, got 0"),
        ("item-ap", {"tau": math.nan}, "'tau' must be a positive number, got nan"),
        ("item-recall", {"ks": []}, "'ks' must be a list of positive integers, got []"),
        ("item-recall", {"tau_k": -1.0}, "'tau_k' must be a positive number, got -1.0"),
        ("ccl", {"margin": 2}, "'margin' must be a number between -1 and 1, got 2"),
        ("softmax", {"tau": "1"}, "'tau' must be a positive number, got '1'"),
        ("softmax", {"temp": 1.0}, "'temp' is not a setting of softmax: choose from tau"),
        ("bpr", {"tau": 1.0}, "'tau' is not a setting of bpr: it has none"),
    ],
)
def test_bad_settings_are_named(name: str, bad: dict[str, object], message: str) -> None:
    pos, neg, *_ = lists()
    for call in (functools.partial(LOSSES[name]), functools.partial(LOSSES[name], pos, neg)):
        with pytest.raises(ItemfoldError) as error:
            call(**bad)
        assert str(error.value) == message


def test_a_mask_of_numbers_is_refused() -> None:
    pos, neg, pos_mask, _ = lists()
    with pytest.raises(
        ItemfoldError, match=r"'pos_mask' must be a boolean tensor, got torch\.int64"
    ):
        losses.item_ndcg(pos, neg, pos_mask.long())


class Streamed:
    """Negatives that are counted one at a time."""

    def __init__(self, neg: Tensor) -> None:
        self.neg = neg

    def count_above(self, pos: Tensor, tau: float) -> Tensor:
        return sum(torch.sigmoid((column[:, None] - pos) / tau) for column in self.neg.T)  # type: ignore[return-value]


@pytest.mark.parametrize("name", RANKED)
def test_negatives_that_are_streamed_give_the_same(name: str) -> None:
    pos, neg, pos_mask, _ = lists()
    results = []
    for lazy in (False, True):
        p, n = pos.clone().requires_grad_(), neg.clone().requires_grad_()
        value = LOSSES[name](p, Streamed(n) if lazy else n, pos_mask, tau=0.7)
        results.append([value, *torch.autograd.grad(value, [p, n])])
    for plain, streamed in zip(*results, strict=True):
        assert torch.allclose(plain, streamed, atol=1e-12)


def test_a_new_setting_of_a_bindable_loss_is_checked_by_the_type_of_its_default() -> None:
    @bindable
    def own(pos: Any, neg: Any, pos_mask: Any = None, neg_mask: Any = None, *, slope: float = 2.0):  # type: ignore[no-untyped-def]
        return slope * (neg.mean() - pos.mean())

    pos, neg = torch.ones(1, 1), torch.zeros(1, 2)
    assert float(own(slope=3)(pos, neg)) == -3
    with pytest.raises(ItemfoldError, match="'slope' must be a number, got 'steep'"):
        own(slope="steep")
    with pytest.raises(ItemfoldError, match="'tau' is not a setting of own: choose from slope"):
        own(tau=1.0)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_called_without_arguments_says_what_it_needs(name: str) -> None:
    with pytest.raises(ItemfoldError, match="needs the scores of positives and negatives"):
        LOSSES[name]()
