"""An ONNX graph from the histories of new users to their best items.

Inputs: ``history`` float32 [users, items], 1 where an item is in the history; ``k`` int64 [1].
Outputs: ``items`` int64 [users, k], rows of items, and ``scores`` float32 [users, k]. Items of the
history have the score −∞. An empty history gives the most popular items, as in `recommend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from itemfold.errors import ItemfoldError
from itemfold.models import Hybrid, LinearGNN, MultVAE, Popularity, SimpleX
from itemfold.models.base import Model
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.serving.exports.score_parts import linear_weights, weights_of
from itemfold.training.run import Run

OPSET = 18
MAX_BYTES = 2**31 - 2**20  # of constants in one ONNX file


class OnnxGraph:
    """Nodes and constants of an ONNX graph under construction; values are names."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.bytes = 0

    def constant(self, values: Any) -> str:
        """Add a constant array; return its name."""
        from onnx import numpy_helper

        array = np.ascontiguousarray(values)
        name = f"constant_{len(self.constants)}"
        self.bytes += array.nbytes
        if self.bytes > MAX_BYTES:
            raise ItemfoldError(
                f"{array.shape[0]:,} items need more than the 2 GiB of an ONNX file: "
                "choose --to parquet"
            )
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        """Add a constant float."""
        return self.constant(np.array([value], dtype=np.float32))

    def add(
        self, operator: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Add a node; return the name of its first output."""
        from onnx import helper

        names = list(outputs) or [f"value_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0]

    def over_items(self, operator: str, value: str) -> str:
        """Reduce the second axis to length 1, by sum or mean."""
        return self.add(operator, value, self.constant(np.array([1])), keepdims=1)

    def divided_by_deviation(self, scores: str) -> str:
        """Scores divided by their standard deviation over the catalogue."""
        away = self.add("Sub", scores, self.over_items("ReduceMean", scores))
        variance = self.over_items("ReduceMean", self.add("Mul", away, away))
        deviation = self.add("Max", self.add("Sqrt", variance), self.number(1e-12))
        return self.add("Div", scores, deviation)

    def weighted_sum(self, weights: sp.csr_array) -> str:
        """history · W: gathers the sources of each item if they are few, else a dense product."""
        by_target = sp.csc_array(weights)
        by_target.sort_indices()
        count = np.diff(by_target.indptr)
        widest = max(int(count.max(initial=0)), 1)
        n_items = weights.shape[0]
        if 4 * widest >= n_items:
            return self.add("MatMul", "history", self.constant(by_target.toarray()))
        place = np.arange(by_target.nnz) - np.repeat(by_target.indptr[:-1], count)
        target = np.repeat(np.arange(n_items), count)
        sources = np.zeros((widest, n_items), dtype=np.int32)
        values = np.zeros((widest, n_items), dtype=np.float32)
        sources[place, target], values[place, target] = by_target.indices, by_target.data
        found = self.add("Gather", "history", self.constant(sources), axis=1)  # [B, widest, items]
        products = self.add("Mul", found, self.constant(values))
        return self.add("ReduceSum", products, self.constant(np.array([1])), keepdims=0)


def write_graph(run: Run, path: Path) -> None:
    """Write the graph of a run; raise if it cannot express the fold-in of the model."""
    import onnx
    from onnx import TensorProto, helper

    graph = OnnxGraph()
    with torch.no_grad():
        _choose_best(graph, _scores(graph, run.model), run.interactions)
    n_items = len(run.item_ids)
    made = helper.make_graph(
        graph.nodes,
        "fold_in",
        [
            helper.make_tensor_value_info("history", TensorProto.FLOAT, ["users", n_items]),
            helper.make_tensor_value_info("k", TensorProto.INT64, [1]),
        ],
        [
            helper.make_tensor_value_info("items", TensorProto.INT64, ["users", "k"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["users", "k"]),
        ],
        graph.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=10, producer_name="itemfold")
    onnx.checker.check_model(model)
    onnx.save_model(model, str(path))


def _choose_best(graph: OnnxGraph, scores: str, train: sp.csr_array) -> None:
    """The k best items by popularity for an empty history, else by score; ties: lower item."""
    counts = np.bincount(train.indices, minlength=train.shape[1]).astype(np.float32)
    length = graph.over_items("ReduceSum", "history")
    is_known = graph.add("Greater", length, graph.number(0))
    scores = graph.add("Where", is_known, scores, graph.constant(counts[None]))
    is_seen = graph.add("Greater", "history", graph.number(0))
    left = graph.add("Where", is_seen, graph.number(-np.inf), scores)
    graph.add("TopK", left, "k", outputs=("scores", "items"), axis=1, largest=1, sorted=1)


def _scores(graph: OnnxGraph, model: Model) -> str:
    """The scores of all items for each history."""
    if isinstance(model, Hybrid):
        return _hybrid(graph, model)
    if isinstance(model, LinearGNN | SimpleX):
        return graph.add("MatMul", _vectors(graph, model), _constant_t(graph, model.item_vectors))
    if isinstance(model, MultVAE):
        return _autoencoder(graph, model)
    if isinstance(model, Popularity):
        zeros = graph.add("Mul", "history", graph.number(0))
        return graph.add("Add", zeros, graph.constant(_numpy(model.counts)[None]))
    weights = weights_of(model)
    if weights is None:
        advice = ": choose --to parquet" if isinstance(model, EmbeddingModel) else ""
        raise ItemfoldError(
            f"an ONNX graph cannot fold a new user into {type(model).__name__}; it supports the "
            "hybrid, LightGCN and other linear networks, SimpleX, Mult-VAE, and item–item models"
            f"{advice}"
        )
    return graph.weighted_sum(weights)


def _vectors(graph: OnnxGraph, model: Model) -> str:
    """Vectors of new users, normalised sums over the history."""
    if isinstance(model, SimpleX):
        total = graph.add(
            "MatMul", "history", graph.constant(_numpy(model.items @ model.transform))
        )
        square = graph.over_items("ReduceSum", graph.add("Mul", total, total))
        length = graph.add("Max", graph.add("Sqrt", square), graph.number(1e-12))
        return graph.add("Div", total, length)
    if not isinstance(model, LinearGNN):
        raise ItemfoldError(
            f"an ONNX graph cannot fold a new user into {type(model).__name__}: its message "
            "passing is not linear; choose --to parquet"
        )
    total = graph.add("MatMul", "history", graph.constant(_numpy(model.fold_table)))
    return graph.add("Div", total, _root_of_length(graph))


def _root_of_length(graph: OnnxGraph) -> str:
    length = graph.over_items("ReduceSum", "history")
    return graph.add("Sqrt", graph.add("Max", length, graph.number(1)))


def _hybrid(graph: OnnxGraph, model: Hybrid) -> str:
    """Network, prior and linear parts, blended by the length of the history."""
    linear = iter(linear_weights(model))
    blend = model.new_blend or model.blend or model.typical_blend()
    rows = np.asarray(blend, dtype=np.float32)  # [groups, 3 + n]
    liked = graph.add("Cast", graph.add("Greater", "history", graph.number(0)), to=1)
    length = graph.over_items("ReduceSum", liked)  # items, whatever their weights
    starts = np.append(rows[1:, 0], np.float32(np.inf))  # ∞: never empty
    after = graph.add("GreaterOrEqual", length, graph.constant(starts[None]))
    group = graph.add("ReduceSum", graph.add("Cast", after, to=7), graph.constant(np.array([1])))
    prior, recent, *weights = (
        graph.add("Gather", graph.constant(column), group, axis=0) for column in rows[:, 1:].T
    )  # [B, 1] each
    total = graph.add("Mul", prior, graph.constant(_numpy(model.popularity)[None]))
    if rows[:, 2].any():
        faded = graph.constant(_numpy(model.recent_popularity)[None])
        total = graph.add("Add", total, graph.add("Mul", recent, faded))
    for part, weight in zip(model.parts, weights, strict=True):
        if part is model.gnn:
            vectors = _vectors(graph, model.gnn)
            scores = graph.add("MatMul", vectors, _constant_t(graph, model.table))
        else:
            scores = graph.weighted_sum(next(linear))
        total = graph.add(
            "Add", total, graph.add("Mul", weight, graph.divided_by_deviation(scores))
        )
    return total


def _autoencoder(graph: OnnxGraph, model: MultVAE) -> str:
    """The encoder (two layers, to the mean of the latent code) and the decoder (two layers)."""
    w1, b1, w2, b2 = (_numpy(part) for part in model.encoder)
    w3, b3, w4, b4 = (_numpy(part) for part in model.decoder)
    value = graph.add("Div", "history", _root_of_length(graph))
    half = model.latent
    for weights, bias, is_last in (
        (w1, b1, False),
        (w2[:, :half], b2[:half], True),
        (w3, b3, False),
        (w4, b4, True),
    ):
        value = graph.add("MatMul", value, graph.constant(weights))
        value = graph.add("Add", value, graph.constant(bias))
        value = value if is_last else graph.add("Tanh", value)
    return value


def _constant_t(graph: OnnxGraph, vectors: torch.Tensor) -> str:
    return graph.constant(_numpy(vectors).T)


def _numpy(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    out: npt.NDArray[np.float32] = tensor.detach().cpu().float().numpy()
    return out
