"""Named data sets, and `load` for names and paths."""

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from itemfold.data.download import Remote, download
from itemfold.data.interactions import Interactions
from itemfold.data.sources import read, with_features
from itemfold.data.synthetic import synthetic
from itemfold.data.weights import Weighting, pair_weights
from itemfold.errors import ItemfoldError, ItemfoldWarning
from itemfold.validation import schema


@dataclass(frozen=True)
class Dataset:
    """A named data set, and the properties verified on load, before thresholds are applied.

    Copies may differ in their bytes (order of items, line ends), so a copy is verified by its
    counts and by the fingerprint of its interactions.
    """

    about: str
    home: str
    licence: str
    files: tuple[Remote, ...] = ()
    users: int = 0
    items: int = 0
    interactions: int = 0
    held_out: int = 0
    fingerprints: tuple[str, ...] = ()
    min_rating: float | None = None
    make: Callable[..., Interactions] | None = None  # generates the data instead of files


def _adjacency(
    *bases: str, train: str | None = None, test: str | None = None
) -> tuple[Remote, ...]:
    return (
        Remote("train.txt", tuple(f"{b}/train.txt" for b in bases), train),
        Remote("test.txt", tuple(f"{b}/test.txt" for b in bases), test),
    )


_GITHUB = "https://raw.githubusercontent.com"
_LIGHTGCN = f"{_GITHUB}/gusye1234/LightGCN-PyTorch/master/data"
_ULTRAGCN = f"{_GITHUB}/xue-pai/UltraGCN/HEAD/data"
_RECZOO = "https://huggingface.co/datasets/reczoo"

DATASETS: dict[str, Dataset] = {
    "synthetic": Dataset(
        about="generated film tastes, no file needed; "
        "sizes: synthetic:users=…,items=…,interactions=…,seed=…",
        home="itemfold.data.synthetic",
        licence="MIT, as itemfold",
        make=synthetic,
    ),
    "ml-latest-small": Dataset(
        about="MovieLens latest small, ratings of 3 and more, with titles and genres",
        home="https://grouplens.org/datasets/movielens/latest/",
        licence="GroupLens, research use, see its README.txt; Harper and Konstan 2015",
        files=(
            Remote(
                "ml-latest-small.zip",
                ("https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",),
                members=("ratings.csv", "movies.csv", "README.txt"),
            ),
        ),
        users=610,
        items=9724,
        interactions=100_836,
        # Users numbered from 1, as in the original, and from 1001, as in another published copy.
        fingerprints=("a830c54b631bbd9f", "69b50ce06a073c7e"),
        min_rating=3.0,
    ),
    "ml-1m": Dataset(
        about="MovieLens-1M, the train/test split of UltraGCN (from LCFN)",
        home="https://github.com/xue-pai/UltraGCN",
        licence="GroupLens, research use; Harper and Konstan 2015",
        files=_adjacency(f"{_ULTRAGCN}/Movielens1M_m1", f"{_ULTRAGCN}/ml-1m"),
        users=6022,
        items=3043,
        interactions=895_699,
        held_out=99_455,
        fingerprints=("51ed46e38c0f5753",),
    ),
    "yelp2018": Dataset(
        about="Yelp 2018, the train/test split of LightGCN (from NGCF)",
        home="https://github.com/gusye1234/LightGCN-PyTorch",
        licence="Yelp Open Dataset, academic use",
        files=_adjacency(
            f"{_LIGHTGCN}/yelp2018",
            f"{_RECZOO}/Yelp18_m1/resolve/main",
            train="1b8b5d22a227e01d6de002c53d32b4c4",
            test="0d57d7399862c32152b045ec5d2698e7",
        ),
        users=31_668,
        items=38_048,
        interactions=1_561_406,
        held_out=324_147,
        fingerprints=("f9b405a08c5d2c9f",),
    ),
    "amazon-book": Dataset(
        about="Amazon books, the train/test split of LightGCN (from NGCF)",
        home="https://github.com/gusye1234/LightGCN-PyTorch",
        licence="Amazon product data, research use; He and McAuley 2016",
        files=_adjacency(
            f"{_LIGHTGCN}/amazon-book",
            f"{_RECZOO}/AmazonBooks_m1/resolve/main",
            train="c916ecac04ca72300a016228258b41ed",
            test="30f8ccfea18d25007ba9fb9aba4e174d",
        ),
        users=52_643,
        items=91_599,
        interactions=2_984_108,
        held_out=603_378,
    ),
    "amazon-cds": Dataset(
        about="Amazon CDs and vinyl, the train/test split of UltraGCN (from BGCF)",
        home="https://github.com/xue-pai/UltraGCN",
        licence="Amazon product data, research use; He and McAuley 2016",
        files=_adjacency(
            f"{_RECZOO}/AmazonCDs_m1/resolve/main",
            f"{_ULTRAGCN}/AmazonCDs_m1",
            train="2df6a35cac4373cf3eef95f75568da0a",
            test="d29acb66d0fb74bc3bc0791cbbce5cf2",
        ),
        users=43_169,
        items=35_648,
        interactions=777_426,
        held_out=172_951,
        fingerprints=("2fd861f5ff557480",),
    ),
}


WEIGHTING = ("weight", "half_life", "weight_transform", "duplicates")  # arguments of `read`


def load(
    data: str | Path,
    *,
    data_root: str | Path | None = None,
    min_rating: float | None = None,
    k_core: int | None = None,
    item_features: Any = None,
    **columns: Any,
) -> Interactions:
    """Load interactions by built-in name, or from a path that `read` accepts.

    A named data set is searched in the folder `data_root/NAME` (default root: `ITEMFOLD_DATA`),
    then in the user's cache, and otherwise downloaded into the cache. Its contents are verified.

    Args:
        data: A name that `itemfold datasets` lists, or a path. "synthetic:users=5000,seed=1" sets
            the generator's arguments.
        data_root: The folder that holds named data sets.
        min_rating: Keep ratings of at least this value; a named data set may have a default, and 0
            keeps everything.
        k_core: Keep users and items with at least this many interactions.
        item_features: A table of item features, as in `read`.
        columns: Further arguments of `read`: `weight`, `half_life`, `weight_transform` and
            `duplicates`; for paths also `user`, `item`, `rating`, `time`, `titles`, `name` and
            `skip_bad_rows`.

    Returns:
        The interactions.

    Raises:
        ItemfoldError: The name is unknown, the data cannot be found or downloaded, or its contents
            do not match the name.

    Examples:
        >>> import itemfold as ir
        >>> ir.load("synthetic:users=50,items=80,interactions=600").n_users
        50
        >>> ir.load("movielens")
        Traceback (most recent call last):
        itemfold.errors.ItemfoldError: unknown data 'movielens': neither ... ml-latest-small, ...
    """
    if not isinstance(data, str | Path):
        kind = type(data).__name__
        raise ItemfoldError(f"'data' must be a name or a path, got {kind}; pass frames to 'read'")
    name = str(data)
    short, colon, _ = name.partition(":")
    dataset = DATASETS.get(short)
    if dataset is None or (colon and dataset.make is None):
        if not Path(name).expanduser().exists() and not re.search(r"[/\\]|\.\w+$", name):
            raise ItemfoldError(
                f"unknown data '{name}': neither a file or folder nor one of {', '.join(DATASETS)}"
            )
        columns["item_features"] = item_features
        return read(data, min_rating=min_rating, k_core=k_core, **columns)
    weighting = {key: columns.pop(key) for key in WEIGHTING if key in columns}
    if columns:
        raise ItemfoldError(
            f"'{next(iter(columns))}' has no effect on '{name}', whose columns are known; remove it"
        )
    if dataset.make is not None:
        found = _with_recency(dataset.make(**_arguments(name, dataset.make)), name, **weighting)
        source = {**(found.source or {"data": name}), **weighting}
    else:
        found = _find(name, dataset, data_root, weighting)
        source = {"data": name, **{k: v for k, v in found.source.items() if k in WEIGHTING}}
        if data_root is not None:
            source["data_root"] = str(Path(data_root).expanduser().resolve())
        min_rating = dataset.min_rating if min_rating is None else min_rating
    if min_rating is not None:
        found, source["min_rating"] = found.at_least(min_rating), min_rating
    if k_core is not None:
        found, source["k_core"] = found.k_core(k_core), k_core
    found = replace(found, name=short, source=source)
    return found if item_features is None else with_features(found, item_features)


def _with_recency(
    found: Interactions, name: str, half_life: str | None = None, **others: Any
) -> Interactions:
    """Weight generated data by recency; it has times, but no weight column or repeated rows."""
    if others:
        raise ItemfoldError(
            f"'{next(iter(others))}' has no effect on '{name}', which is generated; remove it"
        )
    if half_life is None:
        return found
    weighting, pairs = Weighting(half_life=half_life), np.arange(len(found))
    weights = pair_weights(weighting, np.ones(len(found)), found.times, pairs)
    return replace(found, weights=weights, weighting=str(weighting))


def _arguments(name: str, make: Callable[..., Interactions]) -> dict[str, int]:
    """The arguments of ``make`` in a name such as "synthetic:users=…,items=…"."""
    known = tuple(schema(make))
    sizes: dict[str, int] = {}
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in known:
            raise ItemfoldError(
                f"'{name}': unknown setting '{key}', choose from {', '.join(known)}"
            )
        if not re.fullmatch(r"-?[0-9][0-9_]*", value):
            raise ItemfoldError(f"'{name}': '{key}' must be an integer, got '{value}'")
        sizes[key] = int(value)
    return sizes


# ------------------------------------------------------------------ finding and verifying


def cache_folder() -> Path:
    """The folder for downloads: `XDG_CACHE_HOME/itemfold`, else `~/.cache/itemfold`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "itemfold"


def data_variable() -> str | None:
    """The folder in `ITEMFOLD_DATA`; `ITEMREC_DATA`, its name before 0.3, is read with a note."""
    folder = os.environ.get("ITEMFOLD_DATA")
    if not folder and (folder := os.environ.get("ITEMREC_DATA")):
        text = "ITEMREC_DATA is now ITEMFOLD_DATA; the old name still works"
        warnings.warn(text, ItemfoldWarning, stacklevel=2)
    return folder or None


def _find(
    name: str, dataset: Dataset, data_root: str | Path | None, weighting: dict[str, Any]
) -> Interactions:
    root = data_root if data_root is not None else data_variable()
    if data_root is not None and not Path(data_root).expanduser().is_dir():
        raise ItemfoldError(f"'data_root' must be an existing folder, got '{data_root}'")
    needed = "ratings.csv" if dataset.files[0].members else "train.txt"
    for parent in [*([Path(root).expanduser()] if root else []), cache_folder()]:
        if (parent / name / needed).is_file():
            return _verified(name, dataset, weighting, parent / name)
    wanted = [member for file in dataset.files for member in (file.members or (file.name,))]
    place = cache_folder()
    advice = (
        f"put {' and '.join(wanted[:2])} from {dataset.home} into {place / name}, "
        f"or set ITEMFOLD_DATA to a folder that holds {name}/"
    )
    verified = partial(_verified, name, dataset, weighting)
    return download(name, dataset.files, place, verified, advice)


def _verified(name: str, dataset: Dataset, weighting: dict[str, Any], folder: Path) -> Interactions:
    """Read the data in `folder`; raise if it does not match its name."""
    data = read(folder, name=name, **weighting)
    held_out = 0 if data.held_out is None else int(data.held_out.sum())
    counts = {
        "users": (data.n_users, dataset.users),
        "items": (data.n_items, dataset.items),
        "interactions": (len(data), dataset.interactions),
        "held-out interactions": (held_out, dataset.held_out),
    }
    problems = [
        f"expected {expected:,} {what}, found {got:,}"
        for what, (got, expected) in counts.items()
        if got != expected
    ]
    if not problems and dataset.fingerprints and data.fingerprint not in dataset.fingerprints:
        problems.append(
            "the counts agree, but its interactions have the fingerprint "
            f"{data.fingerprint}, expected {dataset.fingerprints[0]}"
        )
    if problems:
        raise ItemfoldError(
            f"{folder} is not '{name}': {problems[0]}; to use it anyway, pass its path instead of "
            "the name"
        )
    return data
