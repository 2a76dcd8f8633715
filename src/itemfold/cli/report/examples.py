"""The section of the HTML report with lists of the same users from every run."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from itemfold.cli.tables.summary import history_names, typical_users
from itemfold.serving.recommendations import Recommendation
from itemfold.serving.recommender import Recommender
from itemfold.training.run import Run

USERS = 2  # users whose lists are shown
LENGTH = 10  # of such a list
HISTORY = 8  # items of such a user


def examples_section(group: Mapping[str, Run]) -> str:
    """The same users' lists from every run, side by side."""
    first = next(iter(group.values()))
    typical = typical_users(first, USERS)
    parts = ["<h3>Examples</h3>"]
    for row, user in zip(typical, first.user_ids.external(typical).tolist(), strict=True):
        names, others = history_names(first, int(row), HISTORY)
        shown, more = map(escape, names), f" and {others} more" if others else ""
        columns = []
        for name, run in group.items():
            if int(run.user_ids.index([user])[0]) < 0:
                continue
            recommender = Recommender.from_run(run)
            found = recommender.recommend(user, k=LENGTH, explain=run.model.explains)
            lines = "".join(f"<li>{_line(pick)}</li>" for pick in found)
            columns.append(f"<div><h5>{escape(name)}</h5><ol>{lines}</ol></div>")
        lists = (
            f"<p class='note'>History: {'; '.join(shown)}{more}</p>"
            f'<div class="lists">{"".join(columns)}</div>'
        )
        title = f"<h4>User {escape(str(user))}</h4>"
        is_first = row == typical[0]
        folded = f"<details><summary>{title}</summary>{lists}</details>"
        parts.append(f"{title}{lists}" if is_first else folded)
    return "".join(parts)


def _line(pick: Recommendation) -> str:
    text = escape(pick.title or str(pick.item))
    if pick.genres:
        text += f" <small>{escape(pick.genres.replace('|', ', '))}</small>"
    if (reason := pick.main_reason) is not None:
        text += (
            f"<br><small>mainly because of {escape(reason.title or str(reason.item))} "
            f"({reason.share:+.3f} of {pick.score:.3f})</small>"
        )
    return text
