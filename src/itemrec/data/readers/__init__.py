"""Files and frames to columns: one file a family of formats; errors name file and line."""
