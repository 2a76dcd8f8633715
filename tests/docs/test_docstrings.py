"""Every public name is documented: its arguments by name, and an example that runs."""

import doctest
import inspect
import re
from dataclasses import fields

import pytest
from doc_blocks import ROOT

import itemfold as ir

RECORDS = (ir.Run, ir.Split, ir.Interactions, ir.Evaluation, ir.Recommender)


def exported() -> dict[str, object]:
    """Functions and classes under the names that users write."""
    found = {f"ir.{name}": getattr(ir, name) for name in ir.__all__}
    for module in (ir.losses, ir.models, ir.negatives):
        short = module.__name__.rpartition(".")[2]
        found |= {f"ir.{short}.{name}": getattr(module, name) for name in module.__all__}
    return {k: v for k, v in found.items() if inspect.isfunction(v) or inspect.isclass(v)}


def public_methods() -> dict[str, object]:
    """Methods and computed values of the classes that users hold."""
    return {
        f"{kind.__name__}.{name}": value
        for kind in RECORDS
        for name, value in vars(kind).items()
        if not name.startswith("_") and (callable(value) or hasattr(value, "__func__"))
    }


EXPORTED, METHODS = exported(), public_methods()
TABLES = (ir.models.MODELS, ir.negatives.NEGATIVES)
COMPONENTS = {kind.__name__: kind for table in TABLES for kind in table.values()}


def documented(text: str) -> list[str]:
    """The names under "Args:"."""
    section = text.partition("\nArgs:\n")[2].partition("\n\n")[0]
    return re.findall(r"^    \**(\w+):", section, flags=re.MULTILINE)


def arguments(thing: object) -> list[str]:
    return [name for name in inspect.signature(thing).parameters if name not in ("self", "cls")]


@pytest.mark.parametrize("name", EXPORTED)
def test_a_public_name_has_an_example_that_needs_nothing_around_it(name):
    text = inspect.cleandoc(EXPORTED[name].__doc__ or "")
    found = doctest.DocTestParser().get_doctest(text, {}, name, None, None)  # not even imports
    # models and samplers are all used alike: the base classes and a few of them show how
    assert found.examples or EXPORTED[name] in COMPONENTS.values(), f"{name} has no example"
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=told.append)
    assert not told, "".join(told)


@pytest.mark.parametrize(
    "name",
    [n for n, thing in (EXPORTED | METHODS).items() if not inspect.isclass(thing)],
)
def test_a_function_documents_its_arguments_and_its_result(name):
    thing = EXPORTED.get(name) or METHODS[name]
    thing = getattr(thing, "__func__", thing)
    text = inspect.cleandoc(thing.__doc__ or "")
    wanted, returned = arguments(thing), inspect.signature(thing).return_annotation
    if thing in ir.losses.LOSSES.values():  # inputs and result are described once for all losses
        wanted, returned = [a for a in wanted if a not in INPUTS], None
        assert "`Loss`" in text
    assert documented(text) == wanted
    if returned not in (None, "None"):
        assert "\nReturns:\n" in text


INPUTS = ("pos", "neg", "pos_mask", "neg_mask")


def test_the_inputs_of_all_losses_are_documented_at_their_interface():
    text = inspect.cleandoc(ir.losses.Loss.__doc__)
    # a list: a protocol has no constructor, whose arguments a section "Args:" would describe
    assert re.findall(r"^- `(\w+)`:", text, flags=re.MULTILINE) == list(INPUTS)
    assert "\nThe result is " in text


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_documents_its_settings(name):
    kind = COMPONENTS[name]
    assert documented(inspect.cleandoc(kind.__doc__)) == arguments(kind)


def test_help_of_train_lists_every_setting_with_its_default():
    for setting in fields(ir.TrainConfig):
        line = f"{setting.name} ({setting.type}, default {setting.default!r}): "
        assert line + setting.metadata["help"] in ir.train.__doc__
        assert line in ir.TrainConfig.__doc__


def test_every_public_name_is_on_a_page_of_the_reference():
    folder = ROOT / "docs" / "reference" / "api"
    pages = "\n".join(path.read_text() for path in folder.glob("*.md"))
    shown = set(re.findall(r"^::: itemfold\.([\w.]+)", pages, flags=re.MULTILINE))
    assert {name.removeprefix("ir.") for name in EXPORTED} <= shown
