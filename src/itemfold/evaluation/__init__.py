"""Ranking of the whole catalogue, metrics, comparisons and paired tests."""
