"""Titles of the generated data set, made of words."""

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Ints

ADJECTIVES = (
    "Silent", "Crimson", "Last", "Hidden", "Golden", "Broken", "Winter", "Electric", "Forgotten",
    "Burning", "Distant", "Wild", "Paper", "Restless", "Midnight", "Iron", "Gentle", "Secret",
    "Frozen", "Hollow", "Summer", "Velvet", "Lonely", "Savage", "Emerald", "Final", "Quiet",
    "Bitter", "Lucky", "Scarlet", "Endless", "Copper", "Wandering", "Perfect", "Sunken",
    "Northern", "Ordinary", "Stolen", "Blind", "Radiant", "Fallen", "Clever", "Amber",
    "Thirteenth", "Painted", "Sleeping", "Foreign", "Invisible", "Honest", "Stray",
)  # fmt: skip
NOUNS = (
    "Harbour", "Garden", "Orchard", "Train", "Detective", "Mirror", "River", "Kingdom", "Letter",
    "Astronaut", "Lighthouse", "Wolf", "Carnival", "Engine", "Daughter", "Island", "Witness",
    "Piano", "Frontier", "Clockmaker", "Summer", "Phantom", "Circus", "Compass", "Neighbour",
    "Storm", "Library", "Gambler", "Bridge", "Sparrow", "Machine", "Widow", "Valley", "Courier",
    "Empire", "Dancer", "Shadow", "Passenger", "Tower", "Fox", "Promise", "Butcher", "Horizon",
    "Violin", "Stranger", "Comet", "Baker", "Labyrinth", "Captain", "Moon",
)  # fmt: skip
PLACES = (
    "Lisbon", "Valparaíso", "Saturn", "Marrakesh", "the North", "Kyoto", "Elm Street South",
    "Havana", "Trieste", "Dakar", "the Desert", "Galway", "Odessa", "Tomorrow", "Montréal",
    "Cape Breton", "Bombay", "the Deep", "Salzburg", "Reno", "Samarkand", "Winterbourne",
    "Bergen", "the Stars", "Naples", "Buenos Aires", "Hollow Creek", "Zanzibar", "Tbilisi",
    "Mars", "Vermont", "the Marsh", "Porto", "Hanoi", "Old Mill Road", "Antwerp", "Yesterday",
    "Lagos", "Kraków", "Jericho", "Tasmania", "the Valley", "Seville", "Alaska", "Cairo",
    "Edinburgh", "Nowhere", "Santa Clara", "Riga", "the Moon",
)  # fmt: skip
ROMAN = ("", " II", " III", " IV", " V")


def _base_title(number: int) -> str:
    """The title with this number; different numbers give different titles."""
    a, n, p = len(ADJECTIVES), len(NOUNS), len(PLACES)
    if number < a * n:
        return f"The {ADJECTIVES[number // n]} {NOUNS[number % n]}"
    number -= a * n
    if number < n * p:
        return f"{NOUNS[number // p]} of {PLACES[number % p]}"
    number -= n * p
    if number < a * n:
        return f"{ADJECTIVES[number // n]} {NOUNS[number % n]}"
    number -= a * n
    volume, number = divmod(number, a * n * p)
    title = f"The {ADJECTIVES[number // (n * p)]} {NOUNS[number // p % n]} of {PLACES[number % p]}"
    return title if volume == 0 else f"{title}, Volume {volume + 1}"


def make_titles(series_start: Ints, rng: np.random.Generator) -> npt.NDArray[np.str_]:
    """Unique titles such as "The Silent Harbour II (1994)"; parts of a series are adjacent."""
    items = len(series_start)
    first = np.unique(series_start)
    short = 2 * len(ADJECTIVES) * len(NOUNS) + len(NOUNS) * len(PLACES)
    space = short if len(first) <= short // 2 else max(2 * len(first), short)
    number = dict(
        zip(first.tolist(), rng.choice(space, len(first), replace=False).tolist(), strict=True)
    )
    year = 2014 - np.minimum(rng.exponential(14, items), 75).astype(np.int64)
    part = np.arange(items) - series_start
    start = series_start.tolist()
    year = np.minimum(year[series_start] + 3 * part, 2014)
    return np.array(
        [
            f"{_base_title(number[s])}{ROMAN[k]} ({y})"
            for s, k, y in zip(start, part.tolist(), year.tolist(), strict=True)
        ]
    )
