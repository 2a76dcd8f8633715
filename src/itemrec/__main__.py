"""``python -m itemrec`` is the command line."""

from itemrec.cli.app import main

main()
