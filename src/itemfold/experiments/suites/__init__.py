"""Suites: tables of rows × data sets × seeds, run and stored."""

from pathlib import Path

FOLDER = Path(__file__).parent / "tables"  # the suites that are shipped
