"""RESULTS.md and the pages and plots under ``results/``, made from the stored results."""
