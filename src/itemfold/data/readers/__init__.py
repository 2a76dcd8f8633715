"""Readers from files and frames to columns, one module for each family of formats."""
