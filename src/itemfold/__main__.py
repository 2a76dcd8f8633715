"""The command line, as ``itemfold`` and as ``python -m itemfold``."""

from itemfold.cli.signals import guard
from itemfold.threads import tune_threads


def main() -> None:
    """Run ``itemfold``; signals are handled before anything else is imported."""

    def command() -> None:
        tune_threads()  # before a command imports torch
        from itemfold.cli import app

        app.main()

    guard(command)


if __name__ == "__main__":
    main()
