"""Columns of a table: which is which, and their values as ids, ratings and times."""
