"""What is known about items: titles, genres and features."""
