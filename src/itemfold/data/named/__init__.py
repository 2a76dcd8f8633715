"""Data sets known by name: where they are found, downloaded or generated."""
