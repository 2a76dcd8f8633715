"""The lists of all users as a folder of parquet files, in shards and resumable.

Part p holds the users of the training rows from p · size on. Shard i of n writes the parts i,
i + n, i + 2n, …, so neither the name nor the contents of a part depend on the number of shards.
Each shard has a manifest that lists its complete parts.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from itemfold.errors import ItemfoldError
from itemfold.files import checksum, json_object, read_file, write_text
from itemfold.reranking.steering import check_steering
from itemfold.serving.recommendation_table import (
    MANIFESTS,
    RecommendationTable,
    check_parts_folder,
)
from itemfold.serving.recommender import Recommender
from itemfold.training.fingerprint import fingerprint
from itemfold.training.progress import track
from itemfold.validation import positive_integer, shown

USERS = 10_000  # users per part


@dataclass(frozen=True)
class PartsWritten:
    """The result of `write_parts`.

    Attributes:
        users: Users of this shard.
        parts: Parts of this shard.
        skipped: Number of parts that were complete before.
        unknown: Unknown ids in the filters.
    """

    users: int
    parts: int
    skipped: int
    unknown: tuple[Any, ...]


def write_parts(
    recommender: Recommender,
    folder: str | Path,
    k: int = 20,
    *,
    shard: tuple[int, int] = (0, 1),
    resume: bool = False,
    users_per_part: int = USERS,
    progress: bool = False,
    **options: Any,
) -> PartsWritten:
    """Write the lists of all users, or of one shard of them, one parquet file per part.

    Memory does not grow with the number of users. Several processes may write the shards of a
    folder at the same time.

    Args:
        recommender: The recommender.
        folder: The folder to write to.
        k: Number of items per user.
        shard: This shard, counted from 0, and the number of shards.
        resume: Skip parts that are complete.
        users_per_part: Number of users in a part.
        progress: Show a progress bar.
        **options: Further arguments of `Recommender.recommend_all`, such as `genre`.

    Returns:
        The number of users and parts.

    Raises:
        ItemfoldError: The folder has lists and `resume` is not set, or they are those of another
            run or of other arguments.

    Examples:
        >>> from pathlib import Path
        >>> import tempfile
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> recommender = ir.Recommender(ir.train(split, ir.models.EASE()))
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_parts(recommender, folder, shard=(0, 2), users_per_part=10).parts
        3
        >>> sorted(path.name for path in folder.iterdir())[1:]
        ['part-00000.parquet', 'part-00002.parquet', 'part-00004.parquet']
    """
    (index, n_shards), folder = shard, check_parts_folder(folder)
    manifest = folder / f"manifest-{index}-of-{n_shards}.json"
    size = positive_integer("users_per_part", users_per_part)
    facts = _facts(recommender, k, size, options)
    n_users = facts["users"]
    numbers = range(index, -(-n_users // size), n_shards)
    folder.mkdir(parents=True, exist_ok=True)
    known = _known_parts(manifest, facts, n_shards, resume)
    _remove_drafts(folder, numbers)
    done = {name: known[name] for name in map(_name, numbers) if _is_complete(folder, name, known)}
    skipped, users, unknown = len(done), 0, ()

    def write_manifest() -> None:
        complete = len(done) == len(numbers)
        record = {**facts, "shard": [index, n_shards], "complete": complete, "parts": done}
        write_text(manifest, json.dumps(record, indent=1) + "\n")

    write_manifest()
    for number in track(numbers, "recommending to all users", show=progress):
        start = number * size
        users += min(size, n_users - start)
        if _name(number) in done:
            continue
        table = _lists(recommender, start, size, k, options)
        path, unknown = folder / _name(number), table.unknown
        table.save(path)
        done[path.name] = {"users": len(table.users), "sha256": checksum(path)}
        write_manifest()
    return PartsWritten(users, len(numbers), skipped, unknown)


def all_lists(
    recommender: Recommender, k: int = 20, *, progress: bool = False, **options: Any
) -> Iterator[RecommendationTable]:
    """The lists of all users, one block of users at a time."""
    starts = range(0, max(recommender.interactions.shape[0], 1), USERS)
    for start in track(starts, "recommending to all users", show=progress):
        yield _lists(recommender, start, USERS, k, options)


def _lists(
    recommender: Recommender, start: int, size: int, k: int, options: dict[str, Any]
) -> RecommendationTable:
    ids = recommender.run.user_ids.ids[start : start + size]
    return recommender.recommend_all(k, users=ids, **options)


def _facts(recommender: Recommender, k: int, size: int, options: dict[str, Any]) -> dict[str, Any]:
    """The values that the parts depend on, as stored in manifests."""
    steering = check_steering(options.get("steering"))
    plain = {"exclude_seen": True, "steering": None, **dict.fromkeys(("only", "without", "genre"))}
    asked = {**plain, **options, "steering": None if steering.is_plain else asdict(steering)}
    given = {name: value for name, value in asked.items() if value != plain.get(name)}
    run = fingerprint(recommender.run, recommender.item_table, recommender.items.features)
    facts = {
        "run": run,
        "arguments": {"k": positive_integer("k", k)} | given,
        "users": recommender.interactions.shape[0],
        "users_per_part": size,
    }
    out: dict[str, Any] = json.loads(json.dumps(facts, default=str))
    return out


def _known_parts(
    manifest: Path, facts: dict[str, Any], n_shards: int, resume: bool
) -> dict[str, dict[str, Any]]:
    """The complete parts of all manifests; raise if a manifest is incompatible with this call."""
    out: dict[str, dict[str, Any]] = {}
    folder = manifest.parent
    for path in sorted(folder.glob(MANIFESTS)):
        stored = read_file(path, json_object)
        if why := _difference(stored, facts):
            raise ItemfoldError(f"'out' must be another folder: '{folder}' has lists with {why}")
        is_other_shard = path != manifest and path.match(f"*-of-{n_shards}.json")
        if not resume and not is_other_shard:
            raise ItemfoldError(
                f"'out' must be a new folder: '{folder}' has lists; --resume continues them"
            )
        out |= stored.get("parts", {})
    return out


def _difference(stored: dict[str, Any], facts: dict[str, Any]) -> str:
    """The first fact or argument that differs from those of stored parts, or ""."""
    before, now = ({**found, **found.get("arguments", {})} for found in (stored, facts))
    for name in (*facts["arguments"], *stored.get("arguments", {}), *facts):
        if before.get(name) != now.get(name):
            was, is_ = (
                shown(found[name]) if name in found else "not given" for found in (before, now)
            )
            return f"another '{name}': {was}, not {is_}"
    return ""


def _remove_drafts(folder: Path, numbers: range) -> None:
    """Remove unfinished files that a killed process left of these parts."""
    for draft in folder.glob(".part-*.tmp*"):
        if int(draft.name.split("-")[1].split(".")[0]) in numbers:
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)


def _is_complete(folder: Path, name: str, known: dict[str, dict[str, Any]]) -> bool:
    """Whether a part matches its manifest."""
    path = folder / name
    return name in known and path.is_file() and checksum(path) == known[name].get("sha256")


def _name(number: int) -> str:
    return f"part-{number:05}.parquet"
