"""Which half-lives are tried: only a later validation period can show what should be forgotten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from itemfold.data.datasets import load
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import split_interactions, split_users
from itemfold.data.splitting.time_splits import split_by_time, split_window
from itemfold.training.strategies.recency import (
    NEVER,
    OF_POPULARITY,
    half_lives,
    validates_later,
)

DATA = load("synthetic:users=300,items=80,interactions=4500")
LATER = {
    "by time": split_by_time(DATA),
    "a window": split_window(DATA, windows=2),
}
AT_RANDOM = {
    "interactions": split_interactions(DATA),
    "users": split_users(DATA),
    "by time, validated at random": split_by_time(DATA, valid_by="random"),
}


@pytest.mark.parametrize("split", LATER.values(), ids=LATER)
def test_a_later_period_tries_half_lives(split: Split) -> None:
    assert validates_later(split)
    tried = half_lives(split, None, OF_POPULARITY)
    assert tried[0] == NEVER
    assert len(tried) > 1


@pytest.mark.parametrize("takes_turns", [False, True])
def test_what_a_few_users_did_last_is_not_popularity(takes_turns: bool) -> None:
    """The users of a year come all the time, or one a day, each for all of their items."""
    day, rng = 86_400.0, np.random.default_rng(0)
    moment = DATA.users if takes_turns else rng.uniform(0, DATA.n_users, len(DATA))
    split = split_by_time(replace(DATA, times=1.5e9 + day * (moment + rng.random(len(DATA)))))
    tried = half_lives(split, None, OF_POPULARITY)
    assert ("30d" in tried, "7d" in tried) == (True, not takes_turns)


@pytest.mark.parametrize("split", AT_RANDOM.values(), ids=AT_RANDOM)
def test_a_random_part_tries_none(split: Split) -> None:
    assert split.times is not None
    assert half_lives(split, None, OF_POPULARITY) == [NEVER]


@pytest.mark.parametrize("split", AT_RANDOM.values(), ids=AT_RANDOM)
def test_a_given_half_life_is_used_with_any_split(split: Split) -> None:
    assert half_lives(split, "30d", OF_POPULARITY) == ["30d"]


def test_later_means_that_every_validation_target_follows_training() -> None:
    split = LATER["by time"]
    assert split.times is not None
    assert split.valid is not None
    newest = split.times.of(split.train, split.user_ids).max()
    oldest = split.times.of(split.valid.target, split.valid.ids).min()
    assert oldest > newest


def test_without_validation_nothing_is_tried() -> None:
    assert half_lives(LATER["by time"].refit(), None, OF_POPULARITY) == [NEVER]
