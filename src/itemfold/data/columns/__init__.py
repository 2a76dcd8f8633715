"""Columns of a table: detection of their roles, and parsing of ids, ratings and times."""
