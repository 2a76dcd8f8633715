"""Data about items: titles, genres and features."""
