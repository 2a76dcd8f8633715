"""How results look on a terminal: one function for each table."""
