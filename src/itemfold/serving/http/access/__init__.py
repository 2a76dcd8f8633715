"""Who may ask: host names, API keys and rate limits."""
