"""The interaction graph, message passing over it, and personalised PageRank."""
