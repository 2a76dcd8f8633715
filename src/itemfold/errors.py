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


class UnknownIdError(ItemfoldError):
    """A user, an item or a run is not known; the HTTP service answers 404.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> recommender = ir.Recommender(ir.train(split, ir.models.EASE()))
        >>> try:
        ...     recommender.similar_items("nothing")
        ... except ir.UnknownIdError as error:
        ...     print(error)
        'item' must be an item of the training data, got 'nothing'
    """


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
