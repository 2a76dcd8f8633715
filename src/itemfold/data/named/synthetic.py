"""The built-in data set: a generator of film-like interactions.

How a user chooses items (vectorised, with memory linear in interactions):

- An item has 1–3 genres with weights and a popularity with a long tail (Zipf–Mandelbrot with
  log-normal noise). Some items form series of 2–5 ("… II").
- A community prefers some genres (Dirichlet) and, beyond genre, some items (log-normal), so a
  community is more than its genres. Communities overlap: they share genres and hits.
- A niche is a small set of items of similar genre: a director, a scene, a style. There are
  2·√items.
- A user mixes 1–4 communities with Dirichlet weights, has 1–4 favourite niches (those of items
  the communities suggest), an exponent a for how mainstream the taste is, and a log-normal number
  of items, so activity has a long tail as well.
- A taste draw picks one of the user's niches (every other draw) and an item of it with
  probability ∝ popularity^a, or one of the communities c and an item ∝ popularity^a ·
  affinity[c, item]. A few draws are noise, uniform over the catalogue, or follow the user's
  history: another part of a series already started.

Why niches: real taste has many small directions besides the broad ones. Take the sum of the first
hundred squared singular values of D^-1/2 A D^-1/2 after the trivial one: the share of it above the
sum for shuffled pairs with the same degrees is .30 on 1,000 users of MovieLens-1M. Communities
alone gave .16 at that shape, with niches it is .24 (docs/research/synthetic-data.md has other data
and the long tails).

This is neither a low-rank dot product (the exponent differs by user, and series depend on the
history) nor a walk on the graph of interactions, so no family of models has the generator's form.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Floats, Ints
from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.named.synthetic_titles import make_titles
from itemfold.errors import ItemfoldError
from itemfold.validation import positive_integers

GENRES = (
    "Drama", "Comedy", "Thriller", "Action", "Romance", "Crime", "Adventure", "Sci-Fi", "Horror",
    "Fantasy", "Mystery", "Animation", "Children", "Documentary", "War", "Musical", "Western",
    "Noir",
)  # fmt: skip
COMMUNITIES = 24
MAINSTREAM = (0.8, 1.0, 1.2)  # exponents on popularity: from collectors to followers of hits
SLOTS = 4  # maximum number of communities, and of niches, per user
NICHE = 0.5
NOISE = 0.03
SERIES = 0.06
CHUNK = 1_000_000  # draws at a time, so that temporaries stay small


@dataclass(frozen=True)
class _Catalogue:
    popularity: Floats  # [items]
    genre: npt.NDArray[np.float32]  # [items, genres], rows sum to 1
    series_start: Ints  # [items], first item of its series
    series_size: Ints  # [items]
    affinity: npt.NDArray[np.float32]  # [communities, items]
    niche: Ints  # [items]
    by_niche: Ints  # [items], the items in order of their niche
    niche_start: Ints  # [niches + 1], where each niche begins in by_niche


@dataclass(frozen=True)
class _Crowd:
    community: npt.NDArray[np.int8]  # [users, SLOTS]
    cumulative: npt.NDArray[np.float32]  # [users, SLOTS], the last is 1
    level: npt.NDArray[np.int8]  # [users], index into MAINSTREAM
    niche: npt.NDArray[np.int32]  # [users, SLOTS]
    niche_cumulative: npt.NDArray[np.float32]  # [users, SLOTS], the last is 1


def synthetic(
    users: int = 3000,
    items: int = 4000,
    interactions: int | None = None,
    seed: int = 0,
    drift: int = 0,
) -> Interactions:
    """Generate a data set; the same arguments give the same data.

    By default there are interactions for 1 % of all pairs (120,000), but at least twenty per user.
    Every user has at least one item, most have five or more. Items that no user chose are left out,
    so there may be fewer items than requested. With ``drift`` above 0 every niche has its season:
    users come about when the niches of their items are in season, the more so the higher it is, and
    what was popular fades.

    >>> data = synthetic(users=50, items=80, interactions=600)
    >>> data.n_users, len(data)
    (50, 600)
    """
    if interactions is None:
        interactions = min(max(users * items // 100, 20 * users), int(0.3 * users * items))
    positive_integers(users=users, items=items, interactions=interactions)
    for key, value in {"seed": seed, "drift": drift}.items():
        if value < 0:
            raise ItemfoldError(f"'{key}' must not be negative, got {value}")
    if not users <= interactions <= 0.3 * users * items:
        raise ItemfoldError(
            f"'interactions' must be between {users} (one per user) and {int(0.3 * users * items)} "
            f"(30 % of all pairs), got {interactions}"
        )
    rng = np.random.default_rng([seed, users, items, interactions])
    catalogue = _make_catalogue(items, rng)
    crowd = _make_crowd(catalogue, users, rng)
    degree = _degrees(users, items, interactions, rng)
    keys = _choose(catalogue, crowd, degree, rng)  # [n], sorted user · items + item
    row, column = keys // items, keys % items
    start = rng.integers(1_420_070_400, 1_704_067_200, users).astype(np.float64)  # 2015 … 2023
    if drift:
        start = _in_season(start, catalogue, row, column, drift, rng)
    span = np.minimum(rng.lognormal(np.log(40.0), 1.5, users), 700) * 86_400  # weeks to two years
    times = start[row] + np.floor(span[row] * rng.random(len(keys)))
    seen, compact = np.unique(column, return_inverse=True)
    titles = make_titles(catalogue.series_start, rng)
    genres = _genre_names(catalogue)
    default = (users, items, interactions, seed, drift) == (3000, 4000, 120_000, 0, 0)
    sized = f"synthetic:users={users},items={items},interactions={interactions},seed={seed}"
    sized += f",drift={drift}" if drift else ""
    return Interactions(
        users=row.astype(np.int32),
        items=compact.reshape(-1).astype(np.int32),
        user_ids=IdMap(np.arange(1, users + 1)),
        item_ids=IdMap(np.arange(1, items + 1)[seen]),
        times=times,
        titles=titles[seen],
        genres=genres[seen],
        name="synthetic",
        source={"data": "synthetic" if default else sized},
    )


def _in_season(
    start: Floats,
    catalogue: _Catalogue,
    row: Ints,
    column: Ints,
    drift: int,
    rng: np.random.Generator,
) -> Floats:
    """First times of users, [users], handed out in the order of the seasons of their items."""
    season = rng.random(len(catalogue.niche_start) - 1)[catalogue.niche]  # [items]
    mean = np.bincount(row, season[column]) / np.bincount(row)  # [users]
    place = drift * (mean - mean.mean()) / max(mean.std(), 1e-12) + rng.standard_normal(len(start))
    out = np.empty_like(start)
    out[np.argsort(place)] = np.sort(start)
    return out


def _make_catalogue(items: int, rng: np.random.Generator) -> _Catalogue:
    rank = rng.permutation(items)
    popularity = (rank + 0.03 * items + 2.0) ** -1.8 * rng.lognormal(0, 0.4, items)
    size = rng.choice([1, 2, 3, 4, 5], items, p=[0.72, 0.13, 0.09, 0.04, 0.02])
    first = np.cumsum(size) - size
    first = first[first < items]  # [series]
    size = np.diff(np.append(first, items))
    of_item = np.repeat(np.arange(len(first)), size)  # [items], series of each item
    # Parts of a series share genres, and mostly popularity.
    shared = np.exp(np.add.reduceat(np.log(popularity), first) / size)
    popularity = popularity**0.5 * shared[of_item] ** 0.5
    prior = 1.0 / np.arange(2, len(GENRES) + 2) ** 0.7
    noise = rng.gumbel(size=(len(first), len(GENRES))) + np.log(prior)
    top = np.argsort(-noise, axis=1)[:, :3]  # three genres without replacement
    count = rng.choice([1, 2, 3], len(first), p=[0.35, 0.42, 0.23])
    weight = np.array([1.0, 0.6, 0.35]) * (np.arange(3) < count[:, None])
    genre = np.zeros((len(first), len(GENRES)), dtype=np.float32)
    np.put_along_axis(genre, top, weight / weight.sum(axis=1, keepdims=True), axis=1)
    genre = genre[of_item]  # [items, genres]
    likes = rng.dirichlet(np.full(len(GENRES), 0.15), COMMUNITIES)  # [communities, genres]
    affinity = np.empty((COMMUNITIES, items), dtype=np.float32)
    for c in range(COMMUNITIES):
        appeal = rng.lognormal(0, 1.2, items)
        affinity[c] = (0.01 + genre @ likes[c]) * appeal
    niches = max(int(2 * items**0.5), 1)
    line = np.lexsort((rng.random(len(first)), top[:, 0]))  # series by genre, cut at random
    cuts = np.sort(rng.integers(0, len(first), niches - 1))
    niche = np.empty(len(first), dtype=np.int64)
    niche[line] = np.searchsorted(cuts, np.arange(len(first)), side="right")
    niche = niche[of_item]
    by_niche = np.argsort(niche, kind="stable")
    niche_start = np.searchsorted(niche[by_niche], np.arange(niches + 1))
    start, length = first[of_item], size[of_item]
    return _Catalogue(popularity, genre, start, length, affinity, niche, by_niche, niche_start)


def _make_crowd(catalogue: _Catalogue, users: int, rng: np.random.Generator) -> _Crowd:
    size = rng.choice([1, 2, 3, 4], users, p=[0.2, 0.35, 0.3, 0.15])
    community_share = rng.dirichlet(np.full(COMMUNITIES, 3.0))  # communities differ in size
    community = rng.choice(COMMUNITIES, (users, SLOTS), p=community_share).astype(np.int8)
    level = rng.integers(0, len(MAINSTREAM), users).astype(np.int8)
    none = np.zeros((users, SLOTS), dtype=np.int32)
    some = _weights(1 + rng.binomial(SLOTS - 1, 0.5, users), rng)
    crowd = _Crowd(community, _weights(size, rng), level, none, some)
    for slot in range(SLOTS):  # the niche of an item that a community suggests
        found = _from_communities(catalogue, crowd, np.arange(users), rng)
        crowd.niche[:, slot] = catalogue.niche[found]
    return crowd


def _weights(count: Ints, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Cumulative Dirichlet weights of the first `count` slots of each user."""
    weight = rng.standard_gamma(1.0, (len(count), SLOTS)) * (np.arange(SLOTS) < count[:, None])
    cumulative = np.cumsum(weight, axis=1) / weight.sum(axis=1, keepdims=True)
    cumulative[:, -1] = 1.0
    out: npt.NDArray[np.float32] = cumulative.astype(np.float32)
    return out


def _degrees(users: int, items: int, interactions: int, rng: np.random.Generator) -> Ints:
    """Log-normal numbers of items per user, between a floor and 40 % of the catalogue."""
    mean = interactions / users
    floor, ceiling = max(1, min(5, int(mean / 2))), max(int(0.4 * items), 1)
    weight = rng.lognormal(0, 1.05, users)
    scale = mean / weight.mean()
    for _ in range(30):  # clipping changes the sum: iterate to find the scale
        degree = np.clip(weight * scale, floor, ceiling)
        scale *= interactions / degree.sum()
    out: Ints = np.floor(degree).astype(np.int64)
    while (short := interactions - int(out.sum())) != 0:  # correct the rounding
        free = np.flatnonzero(out < ceiling) if short > 0 else np.flatnonzero(out > floor)
        changed = rng.choice(free, min(abs(short), len(free)), replace=False)
        out[changed] += 1 if short > 0 else -1
    return out


def _choose(catalogue: _Catalogue, crowd: _Crowd, degree: Ints, rng: np.random.Generator) -> Ints:
    """Sorted unique pairs as user · items + item; duplicates are dropped and drawn again."""
    users, items = len(degree), len(catalogue.popularity)
    keys = np.empty(0, dtype=np.int64)
    follow = rng.binomial(degree, SERIES)  # draws that wait for a history
    for attempt in range(40):
        have = np.bincount(keys // items, minlength=users)
        missing = degree - have - (follow if attempt == 0 else 0)
        who = np.repeat(np.arange(users), missing)
        if len(who) == 0:
            break
        # A user who has chosen nearly all items of their taste draws from the whole catalogue.
        noise = NOISE if attempt < 20 else 0.5
        new = np.empty(len(who), dtype=np.int64)
        for at in range(0, len(who), CHUNK):
            part = who[at : at + CHUNK]
            if attempt == 1:
                chosen = _from_series(catalogue, keys, have, part, rng)
                rest = chosen < 0
                chosen[rest] = _from_taste(catalogue, crowd, part[rest], noise, rng)
            else:
                chosen = _from_taste(catalogue, crowd, part, noise, rng)
            new[at : at + CHUNK] = part * items + chosen
        new = np.unique(new)
        if len(keys):
            position = np.minimum(np.searchsorted(keys, new), len(keys) - 1)
            new = new[keys[position] != new]
        keys = np.sort(np.concatenate((keys, new)), kind="stable")  # two sorted runs: a merge
    return keys


def _from_series(
    catalogue: _Catalogue, keys: Ints, have: Ints, who: Ints, rng: np.random.Generator
) -> Ints:
    """Another part of a series in the user's history; -1 where the history offers none."""
    items = len(catalogue.popularity)
    offset = np.cumsum(have) - have
    out = np.full(len(who), -1, dtype=np.int64)
    for _ in range(3):  # up to three tries to find an item with other parts
        open_ = np.flatnonzero((out < 0) & (have[who] > 0))
        user = who[open_]
        seen = keys[offset[user] + rng.integers(0, have[user])] % items
        size, start = catalogue.series_size[seen], catalogue.series_start[seen]
        shift = 1 + rng.integers(0, np.maximum(size - 1, 1))
        out[open_] = np.where(size > 1, start + (seen - start + shift) % size, -1)
    return out


def _from_taste(
    catalogue: _Catalogue, crowd: _Crowd, who: Ints, noise: float, rng: np.random.Generator
) -> Ints:
    """One item per row of `who`: from a niche or a community of the user, or any item."""
    spin = rng.random(len(who))
    wild, deep = spin < noise, spin >= 1 - (1 - noise) * NICHE
    broad = ~(wild | deep)
    out = np.empty(len(who), dtype=np.int64)
    out[wild] = rng.integers(0, len(catalogue.popularity), np.count_nonzero(wild))
    out[deep] = _from_niches(catalogue, crowd, who[deep], rng)
    out[broad] = _from_communities(catalogue, crowd, who[broad], rng)
    return out


def _slot(cumulative: npt.NDArray[np.float32], who: Ints, rng: np.random.Generator) -> Ints:
    """A slot of each user in `who`, by weight."""
    spin = rng.random(len(who), dtype=np.float32)
    slot = np.zeros(len(who), dtype=np.int64)
    for j in range(SLOTS - 1):
        slot += spin > cumulative[who, j]
    return slot


def _from_niches(catalogue: _Catalogue, crowd: _Crowd, who: Ints, rng: np.random.Generator) -> Ints:
    """A niche of the user, then an item of that niche."""
    niche = crowd.niche[who, _slot(crowd.niche_cumulative, who, rng)]
    start, end = catalogue.niche_start[niche], catalogue.niche_start[niche + 1]
    place = np.empty(len(who), dtype=np.int64)
    for level, power in enumerate(MAINSTREAM):
        at = np.flatnonzero(crowd.level[who] == level)
        cumulative = np.append(0.0, np.cumsum(catalogue.popularity[catalogue.by_niche] ** power))
        low, high = cumulative[start[at]], cumulative[end[at]]
        dart = low + (high - low) * rng.random(len(at))
        place[at] = np.searchsorted(cumulative, dart, side="right") - 1
    return catalogue.by_niche[np.clip(place, start, end - 1)]  # rounding may step over a border


def _from_communities(
    catalogue: _Catalogue, crowd: _Crowd, who: Ints, rng: np.random.Generator
) -> Ints:
    """A community of the user, then an item of that community."""
    items = len(catalogue.popularity)
    slot = _slot(crowd.cumulative, who, rng)
    group = crowd.community[who, slot].astype(np.int16) * len(MAINSTREAM) + crowd.level[who]
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(COMMUNITIES * len(MAINSTREAM) + 1))
    powers = [catalogue.popularity**a for a in MAINSTREAM]
    out = np.empty(len(who), dtype=np.int64)
    for g in np.flatnonzero(np.diff(bounds)):
        community, level = divmod(int(g), len(MAINSTREAM))
        cumulative = np.cumsum(powers[level] * catalogue.affinity[community])
        dart = rng.random(bounds[g + 1] - bounds[g]) * cumulative[-1]
        dart.sort()  # sorted for sequential memory access, shuffled afterwards
        hit = np.minimum(np.searchsorted(cumulative, dart, side="right"), items - 1)
        out[order[bounds[g] : bounds[g + 1]]] = rng.permutation(hit)
    return out


def _genre_names(catalogue: _Catalogue) -> npt.NDArray[np.str_]:
    """Genres of each item in order of weight, joined by "|"."""
    order = np.argsort(-catalogue.genre, axis=1, kind="stable")[:, :3]
    weight = np.take_along_axis(catalogue.genre, order, axis=1)
    return np.array(
        [
            "|".join(GENRES[g] for g, w in zip(row, ws, strict=True) if w > 0)
            for row, ws in zip(order.tolist(), weight.tolist(), strict=True)
        ]
    )
