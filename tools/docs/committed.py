"""Generated parts of pages, committed so that the pages can be read on a code host.

``python tools/docs/committed.py`` writes them, and a test compares. A part stands between two
comments, of which the first says how it is made and what the site shows instead of it:

- ``<!-- made: commands -->``: a table of the program; the site shows it as well.
- ``<!-- api:`` and lines for mkdocstrings ``-->``: docstrings in Markdown; the site has the lines.
- ``<!-- picture: docs/img/x.svg | text -->``: a link; the site has the SVG itself, in its colours.
- ``<!-- code: docs/examples/x.py -->``: the file; the site shows it as well.

A part ends with ``<!-- end -->``.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PART = re.compile(r"<!-- (made|api|picture|code):(.*?)-->\n.*?<!-- end -->", re.DOTALL)
STUB = re.compile(r"^::: ([\w.]+)$((?:\n    .*)*)", re.MULTILINE)
INHERITED = re.compile(r"inherited_members: \[(.*)\]")
SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Settings|Examples):")
ENTRY = re.compile(r"(\*{0,2}[\w.]+)( \(.*?\))?: (.*)")  # of a list of arguments


def committed(page: Path, text: str, made: dict[str, Callable[[], str]]) -> str:
    """The text of a page with every part made again."""

    def again(found: re.Match[str]) -> str:
        kind, given = found[1], found[2]
        if kind == "made":
            new = made[given.strip()]()
        elif kind == "api":
            new = "\n".join(described(*stub) for stub in STUB.findall(given))
        elif kind == "picture":
            path, _, about = given.partition("|")
            link = os.path.relpath(ROOT / path.strip(), page.parent)
            new = f"![{about.strip()}]({Path(link).as_posix()})"
        else:
            code = (ROOT / given.strip()).read_text(encoding="utf-8").rstrip()
            new = f"```python\n{code}\n```"
        return f"<!-- {kind}:{given}-->\n\n{new.strip()}\n\n<!-- end -->"

    return PART.sub(again, text)


def for_site(text: str) -> str:
    """The text of a page as MkDocs gets it."""

    def shown(found: re.Match[str]) -> str:
        kind, given = found[1], found[2]
        if kind == "api":
            return given.strip("\n")
        if kind == "picture":
            return f'--8<-- "{given.partition("|")[0].strip()}"'
        return found[0].partition("-->")[2].removesuffix("<!-- end -->").strip("\n")

    return PART.sub(shown, text)


# --- docstrings in Markdown ----------------------------------------------------------------------


def described(name: str, options: str = "") -> str:
    """A function or a class with its signature and its docstring."""
    thing = resolve(name)
    lines = [f'<a id="{name}"></a>', "", f"### {name.rpartition('.')[2]}", ""]
    if signature := signature_of(thing):
        lines += ["```text", f"{name}{signature}", "```", ""]
    lines += markdown(inspect.getdoc(thing) or "")
    inherited = INHERITED.search(options)
    names = inherited[1].split(", ") if inherited else []
    if inspect.isclass(thing) and (methods := list(public_methods(thing, names))):
        lines += ["| method | |", "|---|---|"]
        lines += [f"| `{method}` | {about} |" for method, about in methods]
    return "\n".join(lines) + "\n"


def resolve(name: str) -> Any:
    """The object of a dotted name."""
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for part in parts[at:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


def signature_of(thing: Any) -> str:
    """Names and defaults of the parameters; types are in the code."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    text = str(found.replace(parameters=parameters, return_annotation=found.empty))
    return re.sub(r"<[^<>]*>", "…", text)


def public_methods(kind: type[Any], inherited: list[str]) -> Iterator[tuple[str, str]]:
    """Methods and properties of a class, its own and some others, with the first line of each."""
    others = {name: inspect.getattr_static(kind, name) for name in inherited}
    for name, member in {**others, **vars(kind)}.items():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if name.startswith("_") or not inspect.isfunction(inspect.unwrap(function)):
            continue
        if text := inspect.getdoc(function):
            yield name, text.partition("\n")[0].replace("|", "\\|")


def markdown(doc: str) -> list[str]:
    """A docstring of Google's style as Markdown."""
    out, section = list[str](), ""
    for line in doc.splitlines():
        if found := SECTION.fullmatch(line):
            close(out, section)
            section = found[1]
            out += ["```pycon"] if section == "Examples" else [f"**{section}**", ""]
        elif not section or section == "Examples":
            out.append(line.removeprefix("    ") if section else line)
        else:
            add_entry(out, line, listed=section not in ("Returns", "Yields"))
    close(out, section)
    return out


def add_entry(out: list[str], line: str, *, listed: bool) -> None:
    """Add a line of a section: it begins an entry of a list, or continues one."""
    text = line.strip()
    is_new = listed and line.startswith("    ") and not line.startswith("     ")
    found = ENTRY.match(text) if is_new else None
    out.append(
        f"- `{found[1]}`{found[2] or ''}: {found[3]}"
        if found
        else f"  {text}"
        if listed and text
        else text
    )


def close(out: list[str], section: str) -> None:
    """End a section: code needs its fence."""
    while out and not out[-1].strip():
        out.pop()
    if section == "Examples":
        out.append("```")
    out.append("")


def main() -> None:
    """Write the parts of all pages."""
    sys.path.insert(0, str(Path(__file__).parent))
    made = import_module("hooks").MADE
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (new := committed(page, text, made)) != text:
            page.write_text(new, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
