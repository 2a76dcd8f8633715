"""`export`: write a verified folder of files for another system."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import itemfold
from itemfold.environment import need_packages
from itemfold.errors import ItemfoldError
from itemfold.files import atomic, check_folder, remove_drafts, write_text
from itemfold.serving.exports import checks, search
from itemfold.serving.exports.checks import best_of, draw_sample, without_history
from itemfold.serving.exports.score_parts import ScoreParts, score_parts
from itemfold.serving.exports.search import ItemRows
from itemfold.serving.recommender import Recommender
from itemfold.serving.served_items import ServedItems
from itemfold.training.progress import track
from itemfold.training.run import Run
from itemfold.validation import one_of, shown

PACKAGES: dict[str, tuple[str, ...]] = {
    "parquet": (),
    "usearch": ("usearch",),
    "faiss": ("faiss",),
    "onnx": ("onnx", "onnxruntime"),
}
INDICES: dict[str, tuple[Callable[..., None], Callable[..., ItemRows]]] = {
    "usearch": (search.write_usearch, search.search_usearch),
    "faiss": (search.write_faiss, search.search_faiss),
}


def export(
    run: Run | Recommender | str | Path, to: str, out: str | Path, *, progress: bool = False
) -> dict[str, Any]:
    """Export a run to another system, and verify it against the lists of `recommend`.

    New items, which are scored by their features, are skipped.

    Args:
        run: A run, a recommender, or a run folder.
        to: "parquet" (vectors and weights), "usearch" or "faiss" (these and an index), or "onnx"
            (a graph that folds new users in).
        out: The folder to write; it must be new or empty.
        progress: Show a progress bar.

    Returns:
        The contents of `export.json`. `exact` says whether the files hold the whole score,
        `same_items` is the fraction of the recommended items that they give.

    Raises:
        ItemfoldError: The model cannot be exported that way, a package is missing, or the lists
            differ.

    Examples:
        >>> from pathlib import Path
        >>> import tempfile
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> out = Path(tempfile.mkdtemp()) / "vectors"
        >>> facts = ir.export(ir.train(split, ir.models.EASE()), "parquet", out)
        >>> facts["exact"], sorted(path.name for path in out.iterdir())
        (True, ['export.json', 'items.parquet', 'users.parquet', 'weights.parquet'])
    """
    one_of("to", to, tuple(PACKAGES))
    need_packages(f"--to {to}", PACKAGES[to])
    folder = check_folder("out", out)
    if folder.exists() and any(folder.iterdir()):
        raise ItemfoldError(f"'out' must be a new or an empty folder, got '{folder}'")
    items = run.items if isinstance(run, Recommender) else ServedItems.of(_loaded(run))
    trained = items.run
    name = folder.resolve().name
    draft = folder.with_name(f".{name}.{os.getpid()}.tmp")
    remove_drafts(folder.parent, name)
    draft.mkdir(parents=True)
    try:
        facts = {
            "itemfold": itemfold.__version__,
            "to": to,
            "model": trained.config["model"]["name"],
            "data": trained.dataset,
            "users": int(np.count_nonzero(np.diff(trained.interactions.indptr))),
            "items": len(trained.item_ids),
            "new_items_left_out": len(items.new),
            **WRITERS[to](trained, draft, progress),
        }
        write_text(draft / "export.json", json.dumps(facts, indent=1) + "\n")
        if folder.exists():
            folder.rmdir()
        draft.replace(folder)
    except OSError as error:  # callers do not know the name of the draft
        file = Path(error.filename or "export.json").name
        raise OSError(error.errno, error.strerror, str(folder / file)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return facts


def _loaded(run: Any) -> Run:
    if isinstance(run, str | Path):
        return Run.load(run)
    if not isinstance(run, Run):
        raise ItemfoldError(f"'run' must be a Run, a Recommender or a folder, got {shown(run)}")
    return run


def _write_tables(run: Run, folder: Path, progress: bool) -> dict[str, Any]:
    """Write vectors and weights, and verify these arrays."""
    parts = score_parts(run, progress=progress)
    _write_parts(run, folder, parts, progress)
    sample = draw_sample(run, fold_in=False)
    found = best_of(parts.scores(sample.histories, sample.rows), sample)
    sample.check(found, "the export to parquet")
    return {"exact": True, "for": "known users"} | _compared(sample, found)


def _write_index(library: str, run: Run, folder: Path, progress: bool) -> dict[str, Any]:
    """Write vectors, weights and an index of the item vectors."""
    parts = score_parts(run, progress=progress)
    if parts.items is None or parts.users is None:
        raise ItemfoldError(
            f"{type(run.model).__name__} has item–item weights and no vectors to index: "
            "choose --to parquet or --to onnx"
        )
    build, ask = INDICES[library]
    _write_parts(run, folder, parts, progress)
    path = folder / f"items.{library}"
    with atomic(path) as file:
        build(parts.items, file, progress=progress)
    sample = draw_sample(run, fold_in=False)
    queries = parts.users[sample.rows]
    found = without_history(sample, lambda depth: ask(path, queries, depth))
    compared = _compared(sample, found)
    if library == "usearch":
        recall = search.recall_usearch(path, queries, min(checks.K, len(parts.items)))
        compared["approximate_recall"] = round(recall, 4)
    if not parts.sums:
        sample.check(found, f"the export to {library}")
        return {"exact": True, "for": "known users"} | compared
    depth = min(checks.CANDIDATES, len(parts.items))
    candidates = ask(path, queries, depth)
    scores = parts.scores(sample.histories, sample.rows)
    among = np.full_like(scores, -np.inf)
    np.put_along_axis(among, candidates, np.take_along_axis(scores, candidates, 1), 1)
    again = sample.agreement(best_of(among, sample))
    facts = {"exact": False, "for": "known users", "missing": "the linear part"}
    rescored = {"candidates": depth, "same_items_rescored": round(again, 4)}
    return facts | compared | rescored


def _write_onnx(run: Run, folder: Path, progress: bool) -> dict[str, Any]:
    import onnxruntime

    from itemfold.serving.exports.fold_in_graph import write_graph

    path = folder / "fold_in.onnx"
    with atomic(path) as file:
        write_graph(run, file)
    _write_items(run, folder, None)
    sample = draw_sample(run, fold_in=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    k = np.array([sample.best.shape[1]], dtype=np.int64)
    lists = []
    rows = range(len(sample.rows))
    for row in track(rows, "comparing with recommend", show=progress):  # one by one, as a service
        history = sample.histories[[row]].toarray().astype(np.float32)
        lists.append(session.run(["items"], {"history": history, "k": k})[0])
    found = np.concatenate(lists)
    sample.check(found, "the export to onnx")
    return {"exact": True, "for": "new users, given by a history"} | _compared(sample, found)


def _compared(sample: checks.Sample, found: ItemRows) -> dict[str, Any]:
    agreement = round(sample.agreement(found), 4)
    return {"checked_users": len(sample.rows), "k": checks.K, "same_items": agreement}


def _write_parts(run: Run, folder: Path, parts: ScoreParts, progress: bool) -> None:
    """Write the tables of items, users and, if there are any, weights."""
    writers = (_write_items, _write_users, _write_weights)
    for write in track(writers, "writing tables", show=progress):
        write(run, folder, parts)


def _write_items(run: Run, folder: Path, parts: ScoreParts | None) -> None:
    """Write ``items.parquet``: row, item_id, and title and vector if there are any."""
    columns: dict[str, Any] = {"row": np.arange(len(run.item_ids)), "item_id": run.item_ids.ids}
    if run.titles is not None:
        columns["title"] = [str(title) for title in run.titles]
    columns |= _vectors(parts and parts.items)
    _write_frame(pl.DataFrame(columns), folder / "items.parquet")


def _write_users(run: Run, folder: Path, parts: ScoreParts) -> None:
    """Write ``users.parquet``, for users with a history: user_id, vector, factor of the weights."""
    known = np.flatnonzero(np.diff(run.interactions.indptr))
    columns: dict[str, Any] = {"user_id": run.user_ids.external(known)}
    if parts.users is not None:
        columns |= _vectors(parts.users[known])
    for name, (factors, _) in zip(_numbered("factor", parts), parts.sums, strict=True):
        columns[name] = factors[known]
    _write_frame(pl.DataFrame(columns), folder / "users.parquet")


def _write_weights(run: Run, folder: Path, parts: ScoreParts) -> None:
    """Write ``weights.parquet`` of each linear part: history_id, item_id and weight, if not 0."""
    for name, (_, weights) in zip(_numbered("weights", parts), parts.sums, strict=True):
        coo = weights.tocoo()
        source, target = coo.coords
        columns = {
            "history_id": run.item_ids.external(source),
            "item_id": run.item_ids.external(target),
            "weight": coo.data,
        }
        kept = pl.DataFrame(columns).filter(pl.col("weight") != 0)
        _write_frame(kept, folder / f"{name}.parquet")


def _numbered(name: str, parts: ScoreParts) -> list[str]:
    """A name for each linear part: name, name_2, …"""
    return [name, *(f"{name}_{n}" for n in range(2, len(parts.sums) + 1))][: len(parts.sums)]


def _write_frame(frame: pl.DataFrame, path: Path) -> None:
    with atomic(path) as draft:
        frame.write_parquet(draft)


def _vectors(vectors: Any) -> dict[str, Any]:
    if vectors is None:
        return {}
    return {"vector": pl.Series(vectors, dtype=pl.Array(pl.Float32, vectors.shape[1]))}


WRITERS: dict[str, Callable[[Run, Path, bool], dict[str, Any]]] = {
    "parquet": _write_tables,
    "usearch": partial(_write_index, "usearch"),
    "faiss": partial(_write_index, "faiss"),
    "onnx": _write_onnx,
}
