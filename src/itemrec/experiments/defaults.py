"""What is used where nothing is chosen; help shows it, so nothing here imports a component."""

DEFAULTS = {"model": "hybrid", "loss": "item-ndcg", "negatives": "uniform"}
STRATEGIES = {"transductive": "interactions", "inductive": "users"}  # of splits, by protocol
PROTOCOL = "transductive"
