"""Parts that need more than the core: what each of them needs, told where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from itemrec.errors import ItemrecError

EXTRAS = {"serve": ("fastapi", "uvicorn", "prometheus-client"), "tune": ("optuna",)}


def missing(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [name for name in EXTRAS[extra] if find_spec(name.replace("-", "_")) is None]


def need(extra: str) -> None:
    """Refuse to go on without them."""
    if absent := missing(extra):
        raise ItemrecError(
            f"'itemrec {extra}' needs {' and '.join(absent)}: pip install {' '.join(absent)}"
        )
