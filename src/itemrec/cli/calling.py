"""How the command line was called, so that a printed command works when it is typed again."""

import shutil
import sys
from pathlib import Path


def program() -> str:
    """``itemrec`` if a shell finds this program by that name, else the path that was typed."""
    typed = Path(sys.argv[0])
    if typed.name != "itemrec":  # python -m itemrec, or a test
        return "itemrec"
    found = shutil.which("itemrec")
    is_found = found is not None and Path(found).resolve() == typed.resolve()
    return "itemrec" if is_found else str(typed)
