"""`prepare`: convert tables larger than memory to a folder of mapped arrays, with DuckDB."""
