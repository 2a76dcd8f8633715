"""Tables of the HTML report."""

from __future__ import annotations

from collections.abc import Sequence


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1) -> str:
    """A table of HTML cells; the first ``text`` columns are words, the others numbers."""

    def line(cells: Sequence[str], tag: str) -> str:
        classes = ("" if i < text else ' class="n"' for i in range(len(cells)))
        return "".join(f"<{tag}{c}>{cell}</{tag}>" for c, cell in zip(classes, cells, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{line(head, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
