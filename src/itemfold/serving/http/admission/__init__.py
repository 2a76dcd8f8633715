"""Which requests are answered when there are too many, and how fast the others are refused."""
