"""Write RESULTS.md, the pages and plots of the results, and the figures of `itemfold models`.

``python tools/make_results.py [RESULTS_FOLDER] [RESULTS.md] [MEASURED.json]``; `make results` calls
it in the root of the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path

import measured
from results_page import pages

from itemfold.errors import ItemfoldError
from itemfold.files import write_text


def main(arguments: list[str]) -> None:
    """Write all files and print their paths."""
    defaults = [Path("results"), Path(pages.SUMMARY), measured.FILE]
    given = [Path(argument) for argument in arguments[:3]]
    results, summary, figures = [*given, *defaults[len(given) :]]
    for path in pages.write(results, summary):
        print(path)
    write_text(figures, measured.to_text(measured.collect(results)))
    print(figures)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ItemfoldError as error:
        sys.exit(f"itemfold: {error}")
