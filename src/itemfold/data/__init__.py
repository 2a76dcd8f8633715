"""Interactions from any source, named data sets, and splits with a leak guard."""
