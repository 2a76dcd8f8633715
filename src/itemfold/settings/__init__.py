"""Settings: what can be set, how a request is resolved, and how one table overrides another."""
