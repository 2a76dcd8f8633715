"""``python -m itemrec`` is the command line."""

from itemrec.cli import main

main()
