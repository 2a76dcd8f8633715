"""Named data sets, and `load` for names and paths."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from itemfold.data.feedback.store import is_postgres
from itemfold.data.interactions import Interactions
from itemfold.data.named.download import Remote
from itemfold.data.named.find_dataset import Dataset, find
from itemfold.data.named.strong_generalisation import ML_20M, MSD, NETFLIX
from itemfold.data.named.synthetic import synthetic
from itemfold.data.preparing.prepared import is_prepared
from itemfold.data.readers.user_split import is_user_split
from itemfold.data.sources import read, with_features
from itemfold.data.weights import Weighting, pair_weights
from itemfold.errors import ItemfoldError
from itemfold.validation import schema


def _adjacency(
    *bases: str, train: str | None = None, test: str | None = None
) -> tuple[Remote, ...]:
    return (
        Remote("train.txt", tuple(f"{b}/train.txt" for b in bases), train),
        Remote("test.txt", tuple(f"{b}/test.txt" for b in bases), test),
    )


# of the data sets that are published in another format only: a line of items for each user
_LINES = _adjacency()

_GITHUB = "https://raw.githubusercontent.com"
_LIGHTGCN = f"{_GITHUB}/gusye1234/LightGCN-PyTorch/master/data"
_ULTRAGCN = f"{_GITHUB}/xue-pai/UltraGCN/HEAD/data"
_RECZOO = "https://huggingface.co/datasets/reczoo"

DATASETS: dict[str, Dataset] = {
    "synthetic": Dataset(
        about="generated film tastes, no file needed; "
        "sizes: synthetic:users=…,items=…,interactions=…,seed=…",
        home="itemfold.data.named.synthetic",
        licence="MIT, as itemfold",
        make=synthetic,
    ),
    "ml-latest-small": Dataset(
        about="MovieLens latest small with titles and genres; "
        "ratings of 3 and more, which 609 of its users gave",
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
    "electronic": Dataset(
        about="Amazon electronics, the train/test split of the PSL and SL@K papers",
        home="https://github.com/Tiny-Snow/IR-Benchmark",
        licence="Amazon product data, research use; He and McAuley 2016",
        files=_LINES,
        users=13_455,
        items=8360,
        interactions=234_521,
        held_out=52_123,
        fingerprints=("754d75f9783ed0d0",),
    ),
    "food": Dataset(
        about="recipes of Food.com, the train/test split of the SL@K paper",
        home="https://github.com/Tiny-Snow/IR-Benchmark",
        licence="Food.com recipes and interactions, research use; Majumder et al. 2019",
        files=_LINES,
        users=5875,
        items=9852,
        interactions=233_038,
        held_out=48_932,
        fingerprints=("a9fee6c1f86b916a",),
    ),
    "yelp2018-strong": Dataset(
        about="Yelp 2018, split by users as in the RLAE paper",
        home="https://github.com/jaewan7599/RDLAE_SIGIR2023",
        licence="Yelp Open Dataset, academic use",
        users=31_668,
        items=38_048,
        interactions=1_561_406,
        held_out=28_675,
        fingerprints=("f244253ea17aa326",),
        by_users=True,
    ),
    "ml-20m": Dataset(
        about="MovieLens-20M, ratings above 3.5, split by users as in the Mult-VAE paper",
        home="https://grouplens.org/datasets/movielens/20m/",
        licence="GroupLens, research use; Harper and Konstan 2015",
        users=136_677,
        items=20_108,
        by_users=True,
        recipe=ML_20M,
    ),
    "netflix": Dataset(
        about="Netflix Prize, ratings of 4 and more, split by users as in the Mult-VAE paper",
        home="https://www.kaggle.com/datasets/netflix-inc/netflix-prize-data",
        licence="Netflix Prize rules, research use",
        users=463_435,
        items=17_769,
        by_users=True,
        recipe=NETFLIX,
    ),
    "msd": Dataset(
        about="Million Song Dataset, Taste Profile, split by users as in the Mult-VAE paper",
        home="http://millionsongdataset.com/tasteprofile/",
        licence="Echo Nest Taste Profile, research use; Bertin-Mahieux et al. 2011",
        users=571_355,
        items=41_140,
        by_users=True,
        recipe=MSD,
    ),
}


def is_named(data: Interactions) -> bool:
    """Whether data is a named data set, whose columns are known."""
    return str(data.source.get("data", "")).partition(":")[0] in DATASETS


def is_split_by_users(data: Any) -> bool:
    """Whether a name or a path, as `load` accepts it, is data that comes split by users."""
    if not isinstance(data, str | Path):
        return False
    if str(data) in DATASETS:
        return DATASETS[str(data)].by_users
    folder = Path(data).expanduser()
    return folder.is_dir() and not is_prepared(folder) and is_user_split(folder)


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
            `duplicates`; for paths also `user`, `item`, `rating`, `time`, `titles`, `title`,
            `title_id`, `name`, `header` and `skip_bad_rows`.

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
    if not name.strip():
        raise ItemfoldError("'data' must be a name or a path, got an empty text")
    short, colon, _ = name.partition(":")
    dataset = DATASETS.get(short)
    if dataset is None or (colon and dataset.make is None):
        is_path = Path(name).expanduser().exists() or re.search(r"[/\\]|\.\w+$", name)
        if not is_path and not is_postgres(name):
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
        found = find(name, dataset, data_root, weighting)
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
    """Weight generated data by recency; it has times, but neither weights nor repeated rows."""
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
        if key in sizes:
            raise ItemfoldError(f"'{name}': '{key}' must be given once, got it twice")
        if not re.fullmatch(r"-?[0-9][0-9_]*", value):
            raise ItemfoldError(f"'{name}': '{key}' must be an integer, got '{value}'")
        sizes[key] = int(value)
    return sizes
