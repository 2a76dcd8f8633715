"""Exporters: vectors, weights, indices and ONNX graphs of a run, for other systems."""
