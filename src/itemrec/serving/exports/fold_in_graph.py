"""An ONNX graph that scores a new user: a history goes in, the best items come out.

Inputs: ``history`` float32 [users, items], 1 where an item is in the history; ``k`` int64 [1].
Outputs: ``items`` int64 [users, k], rows of items, and ``scores`` float32 [users, k]. Items of the
history have the score −∞; for an empty history the most popular items come out, as in `recommend`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from itemrec.errors import ItemrecError
from itemrec.models import Hybrid, LinearGNN, MultVAE, Popularity, SimpleX
from itemrec.models.base import Model
from itemrec.serving.exports.score_parts import weights_of
from itemrec.training.run import Run

OPSET = 18
LARGEST = 2**31 - 2**20  # bytes that fit into one ONNX file


class Graph:
    """Nodes and constants of an ONNX graph under construction; values are known by name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.bytes = 0

    def constant(self, values: Any) -> str:
        """A constant array."""
        from onnx import numpy_helper

        array = np.ascontiguousarray(values)
        name = f"constant_{len(self.constants)}"
        self.bytes += array.nbytes
        if self.bytes > LARGEST:
            raise ItemrecError(
                f"an ONNX file holds at most 2 GiB, and {array.shape[0]:,} items need more: "
                "choose --to parquet"
            )
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        """A constant float."""
        return self.constant(np.array([value], dtype=np.float32))

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """A node; returns the name of its output."""
        from onnx import helper

        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def over_items(self, operator: str, value: str) -> str:
        """A sum or mean over the second axis, which stays."""
        return self.add(operator, value, self.constant(np.array([1])), keepdims=1)

    def divided_by_deviation(self, scores: str) -> str:
        """Scores ÷ their standard deviation over the catalogue."""
        away = self.add("Sub", scores, self.over_items("ReduceMean", scores))
        variance = self.over_items("ReduceMean", self.add("Mul", away, away))
        deviation = self.add("Max", self.add("Sqrt", variance), self.number(1e-12))
        return self.add("Div", scores, deviation)

    def weighted_sum(self, weights: sp.csr_array) -> str:
        """history · W: over the sources of each item where they are few, else a dense product."""
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
    """Write the graph of a run; refused for models whose fold-in it cannot hold."""
    import onnx
    from onnx import TensorProto, helper

    graph = Graph()
    with torch.no_grad():
        _choose_best(graph, _scores(graph, run.model), run.train)
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
    model = helper.make_model(made, opset_imports=opsets, ir_version=10, producer_name="itemrec")
    onnx.checker.check_model(model)
    onnx.save_model(model, str(path))


def _choose_best(graph: Graph, scores: str, train: sp.csr_array) -> None:
    """Popularity where nothing is known, −∞ for the history, then the best; ties: lower item."""
    counts = np.bincount(train.indices, minlength=train.shape[1]).astype(np.float32)
    length = graph.over_items("ReduceSum", "history")
    is_known = graph.add("Greater", length, graph.number(0))
    scores = graph.add("Where", is_known, scores, graph.constant(counts[None]))
    is_seen = graph.add("Greater", "history", graph.number(0))
    left = graph.add("Where", is_seen, graph.number(-np.inf), scores)
    from onnx import helper

    outputs = ["scores", "items"]
    graph.nodes.append(helper.make_node("TopK", [left, "k"], outputs, axis=1, largest=1, sorted=1))


def _scores(graph: Graph, model: Model) -> str:
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
        raise ItemrecError(
            f"an ONNX graph cannot fold a new user into {type(model).__name__}: it holds the "
            "hybrid, LightGCN and other linear networks, SimpleX, Mult-VAE, and item–item models; "
            "choose --to parquet"
        )
    return graph.weighted_sum(weights)


def _vectors(graph: Graph, model: Model) -> str:
    """Vectors of new users, a normalised sum over the history."""
    if isinstance(model, SimpleX):
        total = graph.add(
            "MatMul", "history", graph.constant(_numpy(model.items @ model.transform))
        )
        square = graph.over_items("ReduceSum", graph.add("Mul", total, total))
        length = graph.add("Max", graph.add("Sqrt", square), graph.number(1e-12))
        return graph.add("Div", total, length)
    if not isinstance(model, LinearGNN):
        raise ItemrecError(
            f"an ONNX graph cannot fold a new user into {type(model).__name__}: its message "
            "passing is not linear; choose --to parquet"
        )
    total = graph.add("MatMul", "history", graph.constant(_numpy(model.fold_table)))
    return graph.add("Div", total, _root_of_length(graph))


def _root_of_length(graph: Graph) -> str:
    length = graph.over_items("ReduceSum", "history")
    return graph.add("Sqrt", graph.add("Max", length, graph.number(1)))


def _hybrid(graph: Graph, model: Hybrid) -> str:
    """Network, prior and linear part, with the blend that belongs to the history's length."""
    vectors = _vectors(graph, model.gnn)
    network = graph.add("MatMul", vectors, _constant_t(graph, model.table))
    total = graph.divided_by_deviation(network)
    rows = np.asarray(model.blend, dtype=np.float32)  # [groups, 3]
    length = graph.over_items("ReduceSum", "history")
    starts = np.append(rows[1:, 0], np.float32(np.inf))  # never empty
    after = graph.add("GreaterOrEqual", length, graph.constant(starts[None]))
    group = graph.add("ReduceSum", graph.add("Cast", after, to=7), graph.constant(np.array([1])))
    prior = graph.add("Gather", graph.constant(rows[:, 1]), group, axis=0)  # [B, 1]
    weight = graph.add("Gather", graph.constant(rows[:, 2]), group, axis=0)
    popularity = graph.constant(_numpy(model.popularity)[None])
    total = graph.add("Add", total, graph.add("Mul", prior, popularity))
    weights = weights_of(model.linear)
    assert weights is not None
    linear = graph.divided_by_deviation(graph.weighted_sum(weights))
    return graph.add("Add", total, graph.add("Mul", weight, linear))


def _autoencoder(graph: Graph, model: MultVAE) -> str:
    """Two layers to the mean of the code, and two layers back."""
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


def _constant_t(graph: Graph, vectors: torch.Tensor) -> str:
    return graph.constant(_numpy(vectors).T)


def _numpy(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    out: npt.NDArray[np.float32] = tensor.detach().cpu().float().numpy()
    return out
