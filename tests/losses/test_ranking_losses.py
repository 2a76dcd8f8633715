"""Defining properties of the losses that the study of ranking losses compares."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from itemfold import losses
from itemfold.errors import ItemfoldError
from itemfold.losses.lambda_losses import list_ranks
from itemfold.losses.weighted_softmax import hardest_log_weights, kth_highest

score = st.floats(-1, 1).map(lambda x: round(x, 3))
scores_of = st.tuples(
    st.lists(score, min_size=1, max_size=3), st.lists(score, min_size=1, max_size=6)
)


def rows(*lists: list[float]) -> list[Tensor]:
    return [torch.tensor([values], dtype=torch.float64) for values in lists]


# --- ApproxNDCG ----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 1.0, 10.0])
def test_item_ndcg_is_approx_ndcg_of_binary_relevance(alpha: float) -> None:
    """Qin et al. (2010): π̂ = 1 + Σ 1/(1 + e^{α(s_i − s_j)}), gains 2^rel − 1."""
    g = np.random.default_rng(0)
    values, relevance = g.normal(size=9), np.array([1] * 3 + [0] * 6)
    places = [
        1 + sum(1 / (1 + math.exp(alpha * (a - b))) for j, b in enumerate(values) if j != i)
        for i, a in enumerate(values)
    ]
    gains = (2.0**relevance - 1) / np.log2(1 + np.array(places))
    ideal = sum(1 / math.log2(i + 2) for i in range(3))
    pos, neg = rows(values[:3].tolist(), values[3:].tolist())
    found = float(losses.item_ndcg(pos, neg, tau=1 / alpha))
    assert found == pytest.approx(1 - gains.sum() / ideal, abs=1e-9)


# --- PSL -----------------------------------------------------------------------------------------

SURROGATES = {
    "tanh": lambda d: 1 + math.tanh(d),
    "atan": lambda d: 1 + math.atan(d),
    "relu": lambda d: max(0.0, 1 + d),
}


@pytest.mark.parametrize("activation", SURROGATES)
@settings(max_examples=40, deadline=None)
@given(scores_of, st.floats(0.1, 1))
def test_psl_is_its_formula_for_cosines(activation, lists, tau) -> None:  # type: ignore[no-untyped-def]
    pos, neg = lists
    terms = [sum(SURROGATES[activation]((n - p) / 2) ** (2 / tau) for n in neg) for p in pos]
    found = float(losses.psl(*rows(pos, neg), tau=tau, activation=activation))
    if min(terms) > 1e-12:
        assert found == pytest.approx(sum(map(math.log, terms)) / len(pos), abs=1e-6)


@pytest.mark.parametrize("activation", SURROGATES)
@settings(max_examples=40, deadline=None)
@given(scores_of, st.floats(0.1, 1))
def test_psl_lies_between_the_count_and_the_softmax(activation, lists, tau) -> None:  # type: ignore[no-untyped-def]
    """σ bounds the step function from above and e^d from below, term by term."""
    pos, neg = lists
    found = float(losses.psl(*rows(pos[:1], neg), tau=tau, activation=activation))
    assert found <= float(losses.bsl(*rows(pos[:1], neg), tau=tau)) + 1e-9
    above = sum(n >= pos[0] for n in neg)
    if above:
        assert found >= math.log(above) - 1e-9


def test_the_slope_of_psl_at_equal_scores_is_that_of_the_softmax_with_the_same_tau() -> None:
    for activation in SURROGATES:
        slopes = []
        for loss in (losses.psl(tau=0.3, activation=activation), losses.bsl(tau=0.3)):
            pos, neg = rows([0.2], [0.2, 0.2, 0.2])
            loss(pos.requires_grad_(), neg).backward()
            slopes.append(float(pos.grad))
        assert slopes[0] == pytest.approx(slopes[1], rel=1e-9)


def test_an_unknown_activation_is_rejected() -> None:
    with pytest.raises(ItemfoldError, match="'activation' must be tanh, atan or relu, got 'exp'"):
        losses.psl(activation="exp")


# --- SL@K ----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(score, min_size=1, max_size=6),
    st.lists(score, min_size=0, max_size=4),
    st.integers(1, 12),
)
def test_the_threshold_is_the_kth_highest_score(neg, own, k) -> None:  # type: ignore[no-untyped-def]
    padded = own + [9.0] * (4 - len(own))
    known = torch.arange(4)[None] < len(own)
    found = kth_highest(torch.tensor([neg]), None, torch.tensor([padded]), known, k)
    highest = sorted(neg + own, reverse=True)
    assert float(found) == pytest.approx(highest[min(k, len(highest)) - 1], abs=1e-6)


def test_sl_at_k_weighs_a_positive_within_the_first_places_more() -> None:
    pos = torch.tensor([[0.9, 0.1]], dtype=torch.float64, requires_grad=True)
    neg = torch.tensor([[0.5, 0.0]], dtype=torch.float64)
    known = torch.ones(1, 2, dtype=torch.bool)
    inputs = {"own": pos.detach(), "own_mask": known}
    losses.sl_at_k(pos, neg, **inputs, tau=1.0, tau_quantile=0.05, k=1).backward()
    inside, outside = pos.grad[0].abs().tolist()
    assert inside > 100 * outside > 0


# --- sampled softmax -----------------------------------------------------------------------------


def test_the_corrected_sum_is_unbiased_for_any_distribution() -> None:
    """The mean over all samples of Σ e^{s_j}/c_j is the sum over the catalogue."""
    s = np.array([0.3, -1.0, 1.2, 0.1])
    q = np.array([0.5, 0.25, 0.05, 0.2])
    pos, total = torch.tensor([[40.0]], dtype=torch.float64), 0.0  # log(1 + x) ≈ x for tiny x
    for drawn in itertools.product(range(4), repeat=2):
        chosen = list(drawn)
        value = losses.sampled_softmax(
            pos,
            torch.tensor(s[None, chosen]),
            log_expected=torch.tensor(np.log(2 * q[None, chosen])),
        )
        total += float(value) * q[chosen].prod()
    assert total == pytest.approx(np.exp(s - 40).sum(), rel=1e-9)


# --- AdvInfoNCE ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(score, min_size=1, max_size=6), st.floats(0, 2), st.integers(0, 10**6))
def test_no_weights_within_the_bounds_are_harder(neg, bound, seed) -> None:  # type: ignore[no-untyped-def]
    values = torch.tensor([neg], dtype=torch.float64)
    weights = hardest_log_weights(values, None, 0.5, bound).exp()[0]
    powers = (values[0] / 0.5).exp()
    assert float(weights.sum()) == pytest.approx(len(neg), rel=1e-9)
    assert float(weights.max() / weights.min()) <= math.exp(2 * bound) * (1 + 1e-9)
    g = torch.from_numpy(np.random.default_rng(seed).uniform(-bound, bound, (50, len(neg))))
    others = len(neg) * torch.softmax(g, -1)
    assert float((others @ powers).max()) <= float(weights @ powers) * (1 + 1e-9)


def test_without_hardness_it_is_the_softmax() -> None:
    pos, neg = rows([0.3, 0.1], [0.5, -0.2, 0.4])
    found = float(losses.adv_info_nce(pos, neg, tau=0.3, hardness=0.0))
    assert found == pytest.approx(float(losses.softmax(pos, neg, tau=0.3)), abs=1e-12)


# --- LambdaRank, LambdaLoss ----------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(scores_of)
def test_ranks_are_those_of_a_sort_with_negatives_first(lists) -> None:  # type: ignore[no-untyped-def]
    pos, neg = lists
    p, n = rows(pos, neg)
    found = torch.cat([x[0] for x in list_ranks(p, n, p > -9, n > -9)]).tolist()
    assert sorted(found) == list(range(1, len(pos + neg) + 1))
    for place, value in zip(found, pos + neg, strict=True):
        assert place > sum(other > value for other in pos + neg)
        assert place <= sum(other >= value for other in pos + neg)
    for p_rank, p_value in zip(found, pos, strict=False):
        ties = [r for r, v in zip(found[len(pos) :], neg, strict=True) if v == p_value]
        assert all(r < p_rank for r in ties)


def test_lambda_rank_moves_by_the_change_of_ndcg() -> None:
    """The slope of a pair is σ(s_j − s_p) times what NDCG gains if the two trade places."""
    pos, neg = rows([0.0], [1.0, -1.0])
    losses.lambda_rank(pos.requires_grad_(), neg).backward()
    gain_above = 1 - 1 / math.log2(3)  # from rank 2 to 1
    loss_below = 1 / math.log2(3) - 1 / math.log2(4)  # from rank 2 to 3
    expected = gain_above / (1 + math.exp(-1)) + loss_below / (1 + math.exp(1))
    assert -float(pos.grad) == pytest.approx(expected, rel=1e-9)


# --- LLPAUC --------------------------------------------------------------------------------------


def test_llpauc_of_everything_is_the_squared_auc_loss() -> None:
    pos, neg = rows([0.3, 1.0], [0.5, -0.2, 2.0])
    pairs = 1 - torch.sigmoid(pos)[0, :, None] + torch.sigmoid(neg)[0]
    found = float(losses.llpauc(pos, neg, alpha=1.0, beta=1.0))
    assert found == pytest.approx(float(pairs.square().mean()), rel=1e-12)


def test_llpauc_is_the_saddle_point_of_the_papers_problem() -> None:
    """min_{a,b} max_γ E[(x − a)² − 2(1 + γ)x] + E[(y − b)² + 2(1 + γ)y] − γ², plus 1."""
    pos, neg = rows([0.3, 1.0], [0.5, -0.2, 2.0, 0.1])
    x, y = torch.sigmoid(pos[0, 1:]).numpy(), torch.sigmoid(neg[0, [0, 2]]).numpy()  # tops
    a, b = x.mean(), y.mean()
    gamma = b - a
    inner = ((x - a) ** 2 - 2 * (1 + gamma) * x).mean() + (
        (y - b) ** 2 + 2 * (1 + gamma) * y
    ).mean()
    found = float(losses.llpauc(pos, neg, alpha=0.5, beta=0.5))
    assert found == pytest.approx(1 + inner - gamma**2, rel=1e-9)


@pytest.mark.parametrize("bad", [0, 1.5, "half"])
def test_llpauc_needs_shares(bad: object) -> None:
    with pytest.raises(ItemfoldError, match="'beta' must be a number above 0 and at most 1, got"):
        losses.llpauc(beta=bad)  # type: ignore[arg-type]


# --- BC ------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(scores_of, st.floats(-4, 4))
def test_a_margin_makes_every_interaction_harder(lists, logit) -> None:  # type: ignore[no-untyped-def]
    pos, neg = rows(*lists)
    found = losses.bc(pos, neg, popularity_logit=torch.full_like(pos, logit), tau=0.2)
    assert float(found) >= float(losses.softmax(pos, neg, tau=0.2)) - 1e-4  # cut at 1 − 1e-6


def test_the_less_popularity_explains_the_larger_the_margin() -> None:
    pos, neg = rows([0.4], [0.1, 0.3])
    values = [
        float(losses.bc(pos, neg, popularity_logit=torch.full_like(pos, r))) for r in (-3, 0, 3)
    ]
    assert values == sorted(values, reverse=True)


# --- DirectAU ------------------------------------------------------------------------------------


def naive_direct_au(users: np.ndarray, items: np.ndarray, mask: np.ndarray, gamma: float) -> float:
    """The authors' alignment and uniformity by loops over numpy rows."""

    def unit(x: np.ndarray) -> np.ndarray:
        return x / np.linalg.norm(x)

    kept = [u for u in range(len(users)) if mask[u].any()]
    alignment = np.mean(
        [
            np.mean(
                [((unit(users[u]) - unit(items[u, p])) ** 2).sum() for p in np.nonzero(mask[u])[0]]
            )
            for u in kept
        ]
    )

    def uniformity(x: list[np.ndarray]) -> float:
        pairs = [math.exp(-2 * ((a - b) ** 2).sum()) for a, b in itertools.combinations(x, 2)]
        return math.log(np.mean(pairs))

    firsts = [unit(items[u, np.nonzero(mask[u])[0][0]]) for u in kept]
    return float(
        alignment + gamma * (uniformity([unit(users[u]) for u in kept]) + uniformity(firsts)) / 2
    )


def vectors() -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    users = torch.randn(5, 3, generator=g, dtype=torch.float64)
    items = torch.randn(5, 2, 3, generator=g, dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False], [False, True], [True, True], [False, False]])
    return users, items, mask


def test_direct_au_is_that_of_its_authors() -> None:
    users, items, mask = vectors()
    scores = torch.zeros(5, 2, dtype=torch.float64)
    found = losses.direct_au(
        scores, scores, mask, user_vectors=users, item_vectors=items, gamma=0.7
    )
    expected = naive_direct_au(users.numpy(), items.numpy(), mask.numpy(), 0.7)
    assert float(found) == pytest.approx(expected, abs=1e-9)


def test_gradients_of_direct_au_are_the_numerical_ones() -> None:
    users, items, mask = vectors()
    scores = torch.zeros(5, 2, dtype=torch.float64)

    def f(u: Tensor, i: Tensor) -> Tensor:
        return losses.direct_au(scores, scores, mask, user_vectors=u, item_vectors=i)

    assert torch.autograd.gradcheck(f, (users.requires_grad_(), items.requires_grad_()))


def test_direct_au_without_positives_is_a_differentiable_zero() -> None:
    users, items, mask = vectors()
    scores = torch.zeros(5, 2, dtype=torch.float64)
    found = losses.direct_au(
        scores,
        scores,
        torch.zeros_like(mask),
        user_vectors=users.requires_grad_(),
        item_vectors=items,
    )
    found.backward()
    assert float(found.detach()) == 0.0
    assert users.grad.isfinite().all()


def test_direct_au_reads_no_value_on_the_host() -> None:
    users, items, mask = (x.to("meta") for x in vectors())
    scores = torch.zeros(5, 2, device="meta")
    value = losses.direct_au(
        scores, scores, mask, user_vectors=users.requires_grad_(), item_vectors=items
    )
    value.backward()
    assert users.grad.shape == users.shape
