"""Suites: tables of rows × data sets × seeds, run and stored."""
