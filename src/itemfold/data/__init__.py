"""Interactions from any source, data sets by name, and splits with their leak guard."""
