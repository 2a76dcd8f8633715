"""The exceptions and warnings of the package; each message is one sentence."""


class ItemfoldError(ValueError):
    """Invalid input or settings; the command line prints the message and exits with code 2.

    Examples:
        >>> import itemfold as ir
        >>> try:
        ...     ir.models.LightGCN(dim=0)
        ... except ir.ItemfoldError as error:
        ...     print(error)
        'dim' must be a positive integer, got 0
    """


class NoRowsError(ItemfoldError):
    """A source has no interactions; `update` then has nothing to do."""


class ItemfoldWarning(UserWarning):
    """A warning to the user; the command line prints the message as a note."""


class LeakError(ItemfoldError):
    """A held-out interaction would have reached training, sampling or selection.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> run = ir.train(ir.split_interactions(data, seed=0), ir.models.Popularity())
        >>> try:
        ...     ir.evaluate(run, ir.split_interactions(data, seed=1))
        ... except ir.LeakError:
        ...     print("another seed holds out what this run was trained on")
        another seed holds out what this run was trained on
    """
