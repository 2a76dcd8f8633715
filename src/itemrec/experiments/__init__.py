"""Experiments from configurations: building, searching, suites and the results page."""
