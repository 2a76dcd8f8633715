"""The command line, as ``itemrec`` and as ``python -m itemrec``."""

from itemrec.cli.signals import guard
from itemrec.threads import tune_threads


def main() -> None:
    """Run ``itemrec``; signals are handled before anything else is imported."""

    def command() -> None:
        tune_threads()  # before a command imports torch
        from itemrec.cli import app

        app.main()

    guard(command)


if __name__ == "__main__":
    main()
