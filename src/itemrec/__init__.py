"""Top-k recommendation with message-passing GNNs trained on smooth ranking metrics."""
