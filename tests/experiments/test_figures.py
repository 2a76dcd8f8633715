"""A regression guard: every system has its figure on one small real data set."""

import pytest
from figures import WIDTH, committed, measure, systems


def test_figures_are_of_systems_that_exist() -> None:
    assert set(committed()) <= set(systems())
    assert all(0 < value < 1 for value in committed().values())


@pytest.mark.slow
def test_every_system_has_a_figure() -> None:
    missing = sorted(set(systems()) - set(committed()))
    assert not missing, f"measure with tests/figures.py: {', '.join(missing)}"


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("system", sorted(committed()))
def test_a_system_has_the_figure_that_it_had(system: str) -> None:
    """A defect such as a penalty of the wrong scale moves it by more than the band."""
    before, now = committed()[system], measure(system)
    assert before * (1 - WIDTH) <= now <= before * (1 + WIDTH), f"{now:.4f}, was {before:.4f}"
