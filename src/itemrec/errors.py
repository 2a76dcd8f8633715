"""The two exceptions a user can meet; their message is one clear sentence."""


class ItemrecError(ValueError):
    """Bad input or settings: the command line prints the sentence and exits with code 2."""


class LeakError(ItemrecError):
    """A held-out interaction would have reached training, sampling or selection."""
