"""Recommendations from a run: in Python, as tables, and over HTTP."""
