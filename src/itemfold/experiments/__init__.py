"""Experiments from configurations: building, searching and suites."""
