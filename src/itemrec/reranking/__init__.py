"""Lists one can steer: diversity, popularity, freshness and caps, after a model has scored."""
