"""`prepare`: tables larger than memory become a folder of mapped arrays, in steps of DuckDB."""
