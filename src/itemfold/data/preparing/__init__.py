"""`prepare`: turn tables larger than memory into a folder of mapped arrays, with DuckDB."""
