"""The check of a sparse matrix that a model stores in its buffers, after loading."""

from __future__ import annotations

from collections.abc import Sequence

from itemfold.data.csr import check_csr
from itemfold.models.base import Model


def check_stored_csr(
    model: Model, names: Sequence[str], what: str, rows: str = "items", n_rows: int | None = None
) -> None:
    """Raise ValueError unless buffers are a CSR matrix with a column for each item.

    ``names`` are those of the buffers with the starts of the rows, the columns and the values;
    ``what`` and ``rows`` name the entries and the rows in the error.
    """
    if not all(name in model._buffers for name in names):
        raise ValueError(f"{what} are missing")
    starts, items, *values = (model.get_buffer(name).cpu().numpy() for name in names)
    n_rows = len(starts) - 1 if n_rows is None else n_rows
    if any(part.shape != items.shape for part in values):
        raise ValueError(f"{what} are not those of {n_rows} {rows}")
    check_csr(items, starts, (n_rows, model.n_items), what, rows)
