"""Recommendations from a run: in Python, as tables, over HTTP."""
