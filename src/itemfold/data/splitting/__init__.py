"""Splits: training, validation and test parts, and the guard against leaks."""
