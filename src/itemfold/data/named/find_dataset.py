"""Search for named data sets on disk, and verification of their contents."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from itemfold.data.interactions import Interactions
from itemfold.data.items.item_files import read_titles
from itemfold.data.merging import to_interactions
from itemfold.data.named.download import Remote, download
from itemfold.data.named.strong_generalisation import Recipe
from itemfold.data.readers.user_split import is_user_split
from itemfold.data.sources import read, with_titles
from itemfold.data.weights import Weighting
from itemfold.errors import ItemfoldError, ItemfoldWarning


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
    by_users: bool = False  # a published split by users, which is not downloaded
    recipe: Recipe | None = None  # makes that split from raw files

    @property
    def main_file(self) -> str:
        """The file by which a copy is found."""
        return "ratings.csv" if self.files[0].members else "train.txt"


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


def dataset_parents(data_root: str | Path | None = None) -> list[Path]:
    """The folders that may hold named data sets: the given or configured one, then the cache."""
    root = data_root if data_root is not None else data_variable()
    return [*([Path(root).expanduser()] if root else []), cache_folder()]


def find(
    name: str, dataset: Dataset, data_root: str | Path | None, weighting: dict[str, Any]
) -> Interactions:
    """Read a named data set from the first folder that has it, else download it."""
    if data_root is not None and not Path(data_root).expanduser().is_dir():
        raise ItemfoldError(f"'data_root' must be an existing folder, got '{data_root}'")
    parents = dataset_parents(data_root)
    if dataset.by_users:
        return _find_user_split(name, dataset, [parent / name for parent in parents], weighting)
    for parent in parents:
        if (parent / name / dataset.main_file).is_file():
            return _verified(name, dataset, weighting, parent / name)
    wanted = [member for file in dataset.files for member in (file.members or (file.name,))]
    place = cache_folder()
    advice = (
        f"put {' and '.join(wanted[:2])} from {dataset.home} into {place / name}, "
        f"or set ITEMFOLD_DATA to a folder that holds {name}/"
    )
    if not any(file.urls for file in dataset.files):
        raise ItemfoldError(
            f"'{name}' was not found and is not downloaded: write a line 'USER ITEM ITEM …' for "
            f"each user, and {advice}"
        )
    verified = partial(_verified, name, dataset, weighting)
    return download(name, dataset.files, place, verified, advice)


def _find_user_split(
    name: str, dataset: Dataset, folders: list[Path], weighting: dict[str, Any]
) -> Interactions:
    """A published split by users: as it is, in a folder pro_sg, or made from raw files."""
    for folder in folders:
        for place in (folder / "pro_sg", folder):
            if place.is_dir() and is_user_split(place):
                if dataset.fingerprints:
                    return _verified(name, dataset, weighting, place)
                return _counted(read(place, name=name, **weighting), dataset)
        if dataset.recipe is not None and dataset.recipe.raw_files(folder):
            if weighting:
                raise ItemfoldError(
                    f"'{next(iter(weighting))}' has no effect on '{name}', which has no weights "
                    "or times; remove it"
                )
            table = dataset.recipe.table(folder)
            found = to_interactions(table, None, name, {}, Weighting())
            if (titles := folder / "movies.csv").is_file():
                found = with_titles(found, str(titles), read_titles(titles))
            return _counted(found, dataset)
    files = "train.txt, valid_in.txt, valid.txt, test_in.txt and test.txt"
    if dataset.recipe is not None:
        files = f"{dataset.recipe.files} (or a folder pro_sg)"
    raise ItemfoldError(
        f"'{name}' was not found and is not downloaded: put {files} from {dataset.home} into "
        f"{folders[-1]}, or set ITEMFOLD_DATA to a folder that holds {name}/"
    )


def _counted(data: Interactions, dataset: Dataset) -> Interactions:
    """The data; warns if its counts are not the published ones."""
    found, published = (data.n_users, data.n_items), (dataset.users, dataset.items)
    if found != published:
        text = "'{}' has {:,} users and {:,} items, but the published split has {:,} and {:,}"
        warnings.warn(text.format(data.name, *found, *published), ItemfoldWarning, stacklevel=2)
    return data


def _verified(name: str, dataset: Dataset, weighting: dict[str, Any], folder: Path) -> Interactions:
    """Read the data in `folder`; raise if it does not match its name."""
    data = read(folder, name=name, **weighting)
    counts = {
        "users": (data.n_users, dataset.users),
        "items": (data.n_items, dataset.items),
        "interactions": (len(data), dataset.interactions),
        "held-out interactions": (data.n_held_out, dataset.held_out),
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
