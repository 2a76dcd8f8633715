"""Re-ranking after scoring: diversity, popularity, long tail, freshness and caps."""
