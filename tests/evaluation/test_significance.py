"""Tests of differences against scipy, naive corrections and known distributions."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.errors import ItemfoldError
from itemfold.evaluation.intervals import Interval, bootstrap_interval
from itemfold.evaluation.significance import (
    PairedTest,
    compare_values,
    crossed_bound,
    crossed_test,
    holm,
    level_of,
    paired_test,
)


def sample(n: int = 200, shift: float = 0.05, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    b = rng.random(n)
    return b + rng.normal(shift, 0.2, n), b


# --- paired tests --------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.3])
def test_paired_test_agrees_with_scipy(shift: float) -> None:
    a, b = sample(shift=shift)
    test = paired_test(a, b)
    reference = scipy.stats.ttest_rel(a, b)
    assert test.t == pytest.approx(reference.statistic)
    assert test.p_t == pytest.approx(reference.pvalue, rel=1e-6)
    assert test.p_wilcoxon == pytest.approx(scipy.stats.wilcoxon(a, b).pvalue)
    assert test.difference == pytest.approx(np.mean(a) - np.mean(b))
    assert test.effect_size == pytest.approx(np.mean(a - b) / np.std(a - b, ddof=1))


def test_swapping_the_systems_only_flips_the_sign() -> None:
    a, b = sample()
    one, other = paired_test(a, b), paired_test(b, a)
    assert (one.difference, one.t, one.effect_size) == pytest.approx(
        (-other.difference, -other.t, -other.effect_size)
    )
    assert (one.p_t, one.p_wilcoxon) == pytest.approx((other.p_t, other.p_wilcoxon))


def test_users_without_a_value_in_both_are_left_out() -> None:
    a, b = sample()
    c, d = a.copy(), b.copy()
    c[3], d[7], d[9] = np.nan, np.nan, np.inf
    kept = np.delete(np.arange(len(a)), [3, 7, 9])
    assert paired_test(c, d) == paired_test(a[kept], b[kept])
    assert paired_test(c, d).n == len(a) - 3


@pytest.mark.parametrize(("a", "b"), [([0.5, 0.2, 0.9], [0.5, 0.2, 0.9]), ([0.7], [0.2])])
def test_without_evidence_nothing_is_claimed(a: list[float], b: list[float]) -> None:
    test = paired_test(a, b)
    assert (test.t, test.p_t, test.p_wilcoxon, test.effect_size) == (0.0, 1.0, 1.0, 0.0)
    assert test.difference == pytest.approx(np.mean(a) - np.mean(b))


def test_no_user_at_all() -> None:
    test = paired_test([np.nan], [1.0])
    assert test.n == 0
    assert math.isnan(test.difference)
    assert test.p_t == test.p_wilcoxon == 1.0


def test_the_same_difference_for_everyone_is_certain() -> None:
    b = np.array([0.1, 0.2, 0.3, 0.7])
    test = paired_test(b - 0.1, b)  # differs from −0.1 by rounding only
    assert test.t == test.effect_size == -math.inf
    assert test.p_t == 0.0
    assert test.p_wilcoxon == pytest.approx(0.125)  # 2 of the 16 sign patterns


def test_arrays_of_different_users_are_rejected() -> None:
    with pytest.raises(ItemfoldError, match="'b' must have as many users as 'a', 2, got 3"):
        paired_test([0.0, 1.0], [0.0, 1.0, 2.0])
    with pytest.raises(ItemfoldError, match=r"'a' must have one value per user, got shape \(1, 2"):
        paired_test([[0.0, 1.0]], [0.0, 1.0])


# --- Holm ----------------------------------------------------------------------------------------


def naive_holm(p: list[float]) -> list[float]:
    """Each p-value by the definition: the largest (m − rank + 1)·p over those not above it."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    out = [0.0] * len(p)
    for place, i in enumerate(order):
        out[i] = max(min(1.0, (len(p) - j) * p[order[j]]) for j in range(place + 1))
    return out


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_equals_its_definition(p: list[float]) -> None:
    adjusted = holm(p)
    assert adjusted.tolist() == pytest.approx(naive_holm(p))
    assert (adjusted >= np.array(p)).all()
    if p:
        assert (
            adjusted <= np.minimum(1, len(p) * np.array(p)) + 1e-12
        ).all()  # no worse than Bonferroni


def test_holm_leaves_missing_values_alone() -> None:
    adjusted = holm([0.01, np.nan, 0.04])
    assert adjusted[[0, 2]].tolist() == pytest.approx([0.02, 0.04])
    assert math.isnan(adjusted[1])


def test_holm_rejects_invalid_probabilities() -> None:
    with pytest.raises(ItemfoldError, match="'p_values' must be between 0 and 1"):
        holm([0.1, 1.1])


# --- bootstrap -----------------------------------------------------------------------------------


def test_bootstrap_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    trials = 300
    inside = 0
    for trial in range(trials):
        interval = bootstrap_interval(rng.normal(1.0, 2.0, 60), trial)
        inside += interval.low <= 1.0 <= interval.high
    # binomial: three standard deviations are 4 %, and small samples are a little optimistic
    assert 0.9 <= inside / trials <= 0.985


def test_bootstrap_is_near_the_normal_interval() -> None:
    x = np.random.default_rng(0).random(4000)
    interval = bootstrap_interval(x)
    half = 1.96 * x.std() / math.sqrt(len(x))
    assert interval.mean == pytest.approx(x.mean())
    assert (interval.low, interval.high) == pytest.approx(
        (x.mean() - half, x.mean() + half), abs=half / 8
    )


def test_bootstrap_is_deterministic_given_its_seed() -> None:
    x = np.random.default_rng(0).random(50)
    assert bootstrap_interval(x, 1) == bootstrap_interval(x, np.random.default_rng(1))
    assert bootstrap_interval(x, 1) != bootstrap_interval(x, 2)


def test_bootstrap_of_tiny_samples() -> None:
    assert bootstrap_interval([0.3, np.nan]) == Interval(0.3, 0.3, 0.3)
    assert all(math.isnan(v) for v in vars(bootstrap_interval([])).values())


def test_bootstrap_equals_a_loop_over_resamples() -> None:
    x = np.random.default_rng(0).random(30)
    drawn = np.random.default_rng(7).integers(0, 30, (1000, 30), dtype=np.int32)
    means = [x[rows].mean() for rows in drawn]
    expected = (x.mean(), np.quantile(means, 0.025), np.quantile(means, 0.975))
    assert tuple(vars(bootstrap_interval(x, 7)).values()) == pytest.approx(expected)


def test_intervals_of_many_users_are_the_limit_of_resampling() -> None:
    rng = np.random.default_rng(3)
    for x in (rng.random(6000), np.where(rng.random(6000) < 0.01, rng.pareto(5.0, 6000), 0.0)):
        found = bootstrap_interval(x)
        drawn = scipy.stats.bootstrap(
            (x,), np.mean, n_resamples=20_000, method="percentile", batch=500, rng=1
        ).confidence_interval
        noise = (found.high - found.low) / 60
        assert (found.low, found.high) == pytest.approx((drawn.low, drawn.high), abs=noise)
        assert bootstrap_interval(x, 1) == found  # nothing is drawn


def test_intervals_of_many_equal_users_have_no_width() -> None:
    assert bootstrap_interval(np.full(6000, 0.25)) == Interval(0.25, 0.25, 0.25)


# --- tables --------------------------------------------------------------------------------------


def test_compare_corrects_over_the_whole_table() -> None:
    a, b = sample(shift=0.1)
    c, _ = sample(shift=0.03, seed=1)
    values = {
        "bpr": {"ndcg@20": b, "recall@20": b},
        "item": {"ndcg@20": a, "recall@20": c},
        "noise": {"ndcg@20": b, "other": a},
    }
    table = compare_values(values, "bpr")
    assert [(r.system, r.metric) for r in table.rows] == [
        ("item", "ndcg@20"),
        ("item", "recall@20"),
        ("noise", "ndcg@20"),
    ]
    raw = [paired_test(a, b), paired_test(c, b), paired_test(b, b)]
    assert [r.test for r in table.rows] == raw
    assert [r.p_t for r in table.rows] == pytest.approx(naive_holm([t.p_t for t in raw]))
    assert [r.p_wilcoxon for r in table.rows] == pytest.approx(
        naive_holm([t.p_wilcoxon for t in raw])
    )
    row = table.row("item", "ndcg@20")
    assert row.interval.mean == pytest.approx(a.mean())
    assert row.interval.low < row.interval.mean < row.interval.high
    assert row.baseline_mean == pytest.approx(b.mean())


def test_compare_reports_unknown_names() -> None:
    a, b = sample()
    with pytest.raises(ItemfoldError, match="'baseline' must be one of x, y, got 'z'"):
        compare_values({"x": {"m": a}, "y": {"m": b}}, "z")
    with pytest.raises(ItemfoldError, match="no row y/n: choose from y/m"):
        compare_values({"x": {"m": a}, "y": {"m": b}}, "x").row("y", "n")


def test_nothing_to_compare_is_an_empty_table() -> None:
    assert compare_values({"x": {"m": np.zeros(3)}}, "x").rows == ()


# --- users and seeds -----------------------------------------------------------------------------


def simulated(
    seeds: int, users: int, of_users: float, of_seeds: float, rng: np.random.Generator
) -> np.ndarray:
    """Differences between two equal systems, with a part of the user, of the seed, and a rest."""
    shared = rng.normal(0, of_users, users) + rng.normal(0, of_seeds, (seeds, 1))
    return np.asarray(shared + rng.normal(0, 0.2, (seeds, users)))


def from_summary(table: np.ndarray) -> PairedTest:
    """What is left of a table where only its means over seeds were tested."""
    return crossed_bound(paired_test(table.mean(0), np.zeros(table.shape[1])), table.mean(1))


@pytest.mark.parametrize(
    ("seeds", "users", "of_users", "of_seeds", "wrong"),
    [(3, 300, 0.2, 0.05, 0.3), (5, 300, 0.1, 0.02, 0.13), (3, 300, 0.2, 0.0, 0.0)],
)
def test_equal_systems_differ_as_rarely_as_claimed_when_seeds_vary(
    seeds: int, users: int, of_users: float, of_seeds: float, wrong: float
) -> None:
    """At the 5 % level; the test over users alone errs more often the more seeds vary."""
    rng = np.random.default_rng(0)
    tables = [simulated(seeds, users, of_users, of_seeds, rng) for _ in range(600)]
    both = np.mean([crossed_test(table).p_t < 0.05 for table in tables])
    bound = np.mean([from_summary(table).p_t < 0.05 for table in tables])
    alone = np.mean([scipy.stats.ttest_1samp(t.mean(0), 0).pvalue < 0.05 for t in tables])
    assert 0.005 < both < 0.075  # 5 % plus three standard errors; conservative with few seeds
    assert bound <= both
    assert alone > wrong


def test_a_real_difference_is_found_over_seeds() -> None:
    rng = np.random.default_rng(0)
    tables = [0.05 + simulated(3, 300, 0.2, 0.01, rng) for _ in range(200)]
    assert np.mean([crossed_test(table).p_t < 0.05 for table in tables]) > 0.6
    assert np.mean([from_summary(table).p_t < 0.05 for table in tables]) > 0.5


def test_the_variance_is_that_of_the_two_way_table() -> None:
    """(MS_users + MS_seeds − MS_rest)/(users · seeds), by the definition of these mean squares."""
    table = simulated(4, 50, 0.3, 0.1, np.random.default_rng(1))
    seeds, users = table.shape
    rows, columns, mean = table.mean(1), table.mean(0), table.mean()
    ms_seeds = users * ((rows - mean) ** 2).sum() / (seeds - 1)
    ms_users = seeds * ((columns - mean) ** 2).sum() / (users - 1)
    rest = table - rows[:, None] - columns + mean
    ms_rest = (rest**2).sum() / ((seeds - 1) * (users - 1))
    variance = (ms_users + ms_seeds - ms_rest) / (seeds * users)
    between = ms_seeds / (seeds * users)
    found = crossed_test(table)
    assert found.t == pytest.approx(mean / math.sqrt(variance))
    assert found.seeds == 4
    # Banerjee's interval at the level 1 − p ends at 0: each part with its own quantile
    of_seeds = scipy.stats.t.isf(found.p_t / 2, seeds - 1) ** 2 * between
    of_users = scipy.stats.t.isf(found.p_t / 2, users - 1) ** 2 * (variance - between)
    assert mean**2 == pytest.approx(of_seeds + of_users, rel=1e-6)
    swapped = crossed_test(-table)
    assert (swapped.t, swapped.p_t) == pytest.approx((-found.t, found.p_t))


def test_the_bound_adds_the_variances_of_users_and_of_seeds() -> None:
    table = 0.05 + simulated(3, 80, 0.3, 0.1, np.random.default_rng(4))
    found = from_summary(table)
    users, between = table.mean(0).var(ddof=1) / 80, table.mean(1).var(ddof=1) / 3
    assert found.t == pytest.approx(table.mean() / math.sqrt(users + between))
    radius = scipy.stats.t.isf(found.p_t / 2, 2) ** 2 * between
    radius += scipy.stats.t.isf(found.p_t / 2, 79) ** 2 * users
    assert table.mean() ** 2 == pytest.approx(radius, rel=1e-6)
    assert (found.seeds, found.n) == (3, 80)
    over_users = paired_test(table[0], np.zeros(80))
    assert crossed_bound(over_users, [over_users.difference]) == over_users  # one seed
    assert crossed_bound(paired_test([0.0] * 3, [0.0] * 3), [0.0, 0.0]).p_t == 1.0


def test_seeds_without_common_users_are_a_t_test_over_their_means() -> None:
    rng = np.random.default_rng(2)
    table = np.full((4, 40), np.nan)
    for seed in range(4):
        table[seed, seed * 10 : seed * 10 + 10] = rng.normal(0.1, 0.1, 10)
    expected = scipy.stats.ttest_1samp(np.nanmean(table, 1), 0)
    found = crossed_test(table)
    assert (found.t, found.p_t) == pytest.approx((expected.statistic, expected.pvalue))
    assert found.n == 40


def test_one_seed_is_the_test_over_users_and_no_value_is_no_evidence() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(0.1, 0.2, 30)
    assert crossed_test(values[None]) == paired_test(values, np.zeros(30))
    padded = np.vstack([values, np.full(30, np.nan)])  # a seed that only one of them has
    assert crossed_test(padded) == paired_test(values, np.zeros(30))
    assert crossed_test(np.full((2, 3), np.nan)).p_t == 1.0
    assert crossed_test(np.zeros((3, 5))).p_t == 1.0
    with pytest.raises(ItemfoldError, match=r"'differences' must be \[seeds, users\]"):
        crossed_test([0.1, 0.2])


def levels(seeds: int, repeats: int, parts: tuple[float, float, float], seed: int) -> list[float]:
    """p-values of equal systems whose users, seeds and residuals have these standard deviations."""
    rng, (of_users, of_seeds, rest) = np.random.default_rng(seed), parts
    out = []
    for _ in range(repeats):
        table = rng.normal(0, of_users, (1, 200)) + rng.normal(0, of_seeds, (seeds, 1))
        out.append(crossed_test(table + rng.normal(0, rest, (seeds, 200))).p_t)
    return out


# users, seeds and residual: one part dominates, or two are alike
PARTS = [(0.2, 0.0, 0.1), (0.2, 0.02, 0.1), (0.1, 0.05, 0.1), (0.0, 0.01, 0.2), (0.05, 0.0, 0.2)]


def assert_level(found: list[float], nominal: float) -> None:
    """The share of rejections is at most the nominal one, up to four standard errors."""
    slack = 4 * math.sqrt(nominal * (1 - nominal) / len(found))
    assert np.mean(np.array(found) < nominal) <= nominal + slack


@pytest.mark.parametrize("seeds", [2, 3])
def test_few_seeds_keep_the_level(seeds: int) -> None:
    """Degrees of freedom estimated from two seeds would reject 13 % in the first of these cases."""
    for parts in [(0.1, 0.05, 0.1), (0.05, 0.0, 0.2)]:
        found = levels(seeds, 300, parts, seed=1)
        assert_level(found, 0.05)
        assert_level(found, 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_level_in_4000_null_comparisons(seeds: int, parts: tuple[float, float, float]) -> None:
    found = levels(seeds, 4000, parts, seed=2)
    assert_level(found, 0.05)
    assert_level(found, 0.01)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 5), st.floats(0, 3), st.floats(0, 3), st.integers(1, 6), st.integers(5, 300))
def test_the_level_lies_between_those_of_the_t_tests_with_either_freedom(
    mean: float, one: float, two: float, few: int, many: int
) -> None:
    found = level_of(mean, (one, few), (two, many))
    if one + two > 1e-9:
        t = mean / math.sqrt(one + two)
        ends = sorted(2 * scipy.stats.t.sf(t, freedom) for freedom in (few, many))
        assert ends[0] * (1 - 1e-6) <= found <= ends[1] * (1 + 1e-6)
