"""Pictures of commands and reports for the documentation, written to docs/img.

``python tools/docs/screens.py`` trains two small models, so it takes about a minute; Chromium
draws the reports. Look at the pictures before committing them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/img"
DATA = "synthetic:users=600,items=400"
COLUMNS = 92
SCREENS = {  # picture → commands; those without a picture prepare others
    "": [f"train {DATA} --model ease --out ease"],
    "screen-train.svg": [f"train {DATA} --budget 20s --out hybrid"],
    "screen-recommend.svg": ["recommend hybrid --history 1,2 -k 5 --explain"],
    "screen-compare.svg": ["compare ease hybrid"],
    "screen-models.svg": ["models"],
}
REMOTE_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
CURSOR = re.compile(r"\x1b\[\?25[lh]")  # hidden and shown
ERASED = re.compile(r"[^\n]*\r|[^\n]*\n\r?\x1b\[1A\x1b\[2K|\x1b\[(2K|1A)")  # frames of bars


def output_of(command: str, folder: Path) -> str:
    """What a command prints on a terminal, in colours."""
    env = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(
        [sys.executable, "-m", "itemfold", *command.split()],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
    )
    return done.stdout.decode()  # with the carriage returns of progress bars


def draw(commands: list[str], folder: Path, target: Path) -> None:
    """Write the output of commands as an SVG without remote fonts."""
    screen = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for command in commands:
        screen.print(Text(f"$ itemfold {command}", "bold"))
        text = CURSOR.sub("", output_of(command, folder))
        while (shown := ERASED.sub("", text, count=1)) != text:
            text = shown
        screen.print(Text.from_ansi(text.rstrip()))
    svg = screen.export_svg(title="itemfold")
    target.write_text(REMOTE_FONT.sub("", svg), encoding="utf-8")


def photograph(page: Path, target: Path, width: int, height: int, script: str = "") -> None:
    """Write a picture of a report after running a script in it."""
    from browser import Browser  # of the tests

    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile), width, height) as tab:
        tab.call("Page.navigate", url=page.as_uri())
        tab.wait("document.readyState === 'complete'")
        if script:
            tab.run(script)
        tab.screenshot(target)


def main() -> None:
    """Write all pictures."""
    sys.path.insert(0, str(ROOT / "tests"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for picture, commands in SCREENS.items():
            if picture:
                draw(commands, folder, IMAGES / picture)
            else:
                for command in commands:
                    output_of(command, folder)
        output_of("report hybrid ease --out report.html", folder)
        page = folder / "report.html"
        photograph(page, IMAGES / "report.png", 1100, 1000)
        photograph(page, IMAGES / "report-phone.png", 390, 844)
        folded = "document.querySelector('details').scrollIntoView()"
        photograph(page, IMAGES / "report-folded.png", 1100, 700, folded)


if __name__ == "__main__":
    main()
