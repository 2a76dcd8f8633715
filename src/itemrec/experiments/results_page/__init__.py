"""RESULTS.md, its pages and its plots, made from stored results."""
