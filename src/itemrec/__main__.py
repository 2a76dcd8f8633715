"""The command line, as ``itemrec`` and as ``python -m itemrec``."""

from itemrec.cli.signals import guard


def main() -> None:
    """The entry point of ``itemrec``; signals are handled before anything else is imported."""

    def command() -> None:
        from itemrec.cli import app

        app.main()

    guard(command)


if __name__ == "__main__":
    main()
