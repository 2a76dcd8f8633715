"""Readers of files and frames, one module for each family of formats."""
