"""Short garbage collections: a full one over all that is imported stops requests for 0.2 s."""

import gc

THRESHOLDS = (10_000, 10, 20)  # of the collector; the usual (700, 10, 10) suit small programs


def exempt_loaded() -> None:
    """Exempt what is loaded from garbage collections, and let them be rarer.

    A run that is replaced later is freed nevertheless: nothing in it refers back to it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
