"""Settings: the schema, the resolution of a request, and overrides."""
