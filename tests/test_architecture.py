"""Imports go downwards only: a layer may use the layers below it, never those above."""

import ast
from pathlib import Path

HOME = Path(__file__).parents[1] / "src" / "itemfold"  # read, not imported: it may not even import
GROUND = "ground"  # the modules at the top of the package: errors, validation, files, …
LAYERS = [
    *(GROUND, "data", "ops", "graph", "losses", "sampling", "models"),
    *("reranking", "evaluation", "settings", "training", "serving", "experiments", "cli"),
]
FACES = (
    "__init__.py",
    "__main__.py",
    "negatives.py",
    "splits.py",
    "estimator.py",  # `Model.fit` and `Model.recommend` call training and serving
    "client.py",
)  # public entry points may import from every layer


def layer_of(parts: tuple[str, ...]) -> str:
    return parts[0] if parts and parts[0] in LAYERS else GROUND


def imports_of(path: Path) -> list[tuple[int, tuple[str, ...]]]:
    """(line, path below itemfold) of everything that a module imports from the package."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
    return [(n, tuple(name.split(".")[1:])) for n, name in found if name.startswith("itemfold.")]


def test_imports_go_downwards_and_use_no_private_names() -> None:
    wrong = []
    for path in sorted(HOME.rglob("*.py")):
        place = path.relative_to(HOME)
        if str(place) in FACES:
            continue
        layer = layer_of(place.parts)
        for line, target in imports_of(path):
            other = layer_of(target)
            upwards = LAYERS.index(other) > LAYERS.index(layer)
            private = other != layer and any(part.startswith("_") for part in target)
            if upwards or private:
                wrong.append(f"{place}:{line} ({layer}) imports {'.'.join(target)} ({other})")
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_the_package_is_a_layer_with_a_docstring() -> None:
    folders = {path.name for path in HOME.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders == set(LAYERS) - {GROUND}
    for layer in folders:
        tree = ast.parse((HOME / layer / "__init__.py").read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), layer
    assert {path.name for path in Path(__file__).parent.iterdir() if path.is_dir()} >= folders
