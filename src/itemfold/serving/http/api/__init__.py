"""The routes, their schemas and errors."""
