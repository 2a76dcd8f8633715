"""The command line, as ``itemfold`` and as ``python -m itemfold``."""

import gc
import sys

from itemfold.cli.signals import guard
from itemfold.threads import tune_threads

# New objects between two collections, instead of 700: importing torch makes a million objects
# that stay, and each collection looks at them again.
COLLECT_AFTER = 10_000


def main() -> None:
    """Run ``itemfold``; signals are handled before anything else is imported."""

    def command() -> None:
        tune_threads()  # before a command imports torch
        gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
        try:
            from itemfold.cli import app

            app.main()
        finally:
            if "duckdb" not in sys.modules:  # it prints objects that were not collected
                gc.freeze()  # at exit Python would search all of torch's objects for cycles

    guard(command)


if __name__ == "__main__":
    main()
