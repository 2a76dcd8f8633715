"""Named data sets: search, download and generation."""
