"""Friedman's test against scipy, and Nemenyi's critical difference against the published table."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.errors import ItemfoldError
from itemfold.evaluation.rank_tests import rank_test


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 7), st.integers(2, 8), st.integers(0, 10**6), st.booleans())
def test_the_statistic_is_scipys(systems: int, data: int, seed: int, tied: bool) -> None:
    values = np.random.default_rng(seed).random((data, systems))
    values = np.round(values, 1) if tied else values
    expected = scipy.stats.friedmanchisquare(*values.T)
    if np.isfinite(expected.statistic):
        found = rank_test(values)
        assert found.statistic == pytest.approx(expected.statistic, abs=1e-9)
        assert found.p == pytest.approx(expected.pvalue, abs=1e-9)


# Table 5a of Demšar (2006): q at the level .05 by the number of systems
PUBLISHED = {3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}


@pytest.mark.parametrize(("systems", "q"), PUBLISHED.items())
def test_the_critical_difference_is_that_of_the_published_table(systems: int, q: float) -> None:
    values = np.random.default_rng(0).random((14, systems))
    expected = q * math.sqrt(systems * (systems + 1) / (6 * 14))
    assert rank_test(values).critical_difference == pytest.approx(expected, rel=1e-3)


def test_ranks_are_one_for_the_best_and_shared_by_equals() -> None:
    found = rank_test([[0.9, 0.5, 0.5, 0.1], [0.8, 0.6, 0.4, 0.2]])
    assert found.ranks.tolist() == [1.0, 2.25, 2.75, 4.0]


def test_systems_that_are_always_alike_do_not_differ() -> None:
    found = rank_test(np.ones((4, 3)))
    assert (found.statistic, found.p) == (0.0, 1.0)


@pytest.mark.parametrize("bad", [[[1.0, 2.0]] * 3, [[1.0, 2.0, 3.0]], [[1.0, 2.0, math.nan]] * 2])
def test_too_little_to_compare_is_an_error(bad: list[list[float]]) -> None:
    with pytest.raises(ItemfoldError, match="'values' must have"):
        rank_test(bad)
