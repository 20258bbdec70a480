"""Docstrings become pages: signatures, lists of arguments and errors, boxes, and examples."""

import importlib
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import almoner

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
reference = importlib.import_module("reference")
generate = importlib.import_module("generate")
sys.path.pop(0)


@dataclass(frozen=True)
class Pair:
    """Two numbers."""

    first: float
    second: "float | None" = None

    def total(self, /, *more: int, scale: float = 1.0, **named: str) -> float:
        """Their sum."""
        return scale * (self.first + (self.second or 0.0)) + sum(more) + len(named)


def test_signatures_are_those_of_the_source():
    """Defaults, keywords and annotations stand as they are written."""
    assert reference.signature("Pair", Pair) == "Pair(first: float, second: float | None = None)"
    shown = reference.signature("total", Pair.total, method=True)
    assert shown == "total(/, *more: int, scale: float = 1.0, **named: str) -> float"


def test_sections_of_a_docstring():
    """Arguments and errors are lists, the guarantee and the source are boxes, an example is code."""
    text = reference.markdown(
        "First line.\n\nArgs:\n    size: how many,\n        on two lines.\n    sum_delta: *private*.\n\n"
        "Raises:\n    ArgumentError: size < 0.\n\n"
        "Guarantee: it holds,\n    always.\nSource: theory 4.3.\n\n>>> 1 + 1\n2\n"
    )
    assert "- `size`: how many, on two lines.\n- `sum_delta`: \\*private\\*." in text
    assert "- `ArgumentError`: size &lt; 0." in text
    assert '!!! success "Guarantee"\n\n    it holds, always.' in text
    assert '!!! quote "Source"\n\n    theory 4.3.' in text
    assert reference.markdown("a   one_two\nbb  three") == "- `a`: one\\_two\n- `bb`: three"
    assert text.endswith("```pycon\n>>> 1 + 1\n2\n```")


@pytest.mark.parametrize("module_name", generate.MODULES)
def test_every_module_says_how_stable_it_is(module_name):
    """One mark for each room, in the package's docstring, is shown at the head of each of its pages."""
    assert reference.stability(module_name) in ("Stable.", "May change in any release.", "Experimental.")
    assert f"\n*{reference.stability(module_name)}*\n" in reference.page(module_name).partition("\n## ")[0]


def test_stable_modules_are_few_and_named_once():
    """Each room of the package has one mark."""
    marked = re.findall(r"(?m)^(?:stable|may change|experimental) +(.+)$", inspect.getdoc(almoner))
    assert sorted(", ".join(marked).split(", ")) == sorted(almoner.__all__)


@pytest.mark.quick(22)
@pytest.mark.parametrize("module_name", generate.MODULES)
def test_nothing_of_a_docstring_is_lost(module_name):
    """Each public function and class has its signature, its guarantee in a box, and every name of its arguments."""
    module, page = importlib.import_module(module_name), reference.page(module_name)
    for name in module.__all__:
        thing = getattr(module, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        section = page.split(f"\n## {name} {{")[1].split("\n## ")[0]
        assert f"```python\n{name}(" in section or f"```python\nclass {name}(Protocol)" in section, name
        own = section.split("\n### ")[0]
        doc = inspect.getdoc(thing) or ""
        for title in ("Guarantee", "Source"):
            if f"\n{title}:" in doc:
                assert f' "{title}"\n' in own, f"{name}: {title}"
        assert own.count(">>>") == doc.count(">>>"), name


def test_a_protocol_is_shown_as_one():
    """What is implemented, and never called, has no arguments."""
    ledger = importlib.import_module("almoner.individual").AccountsPerPerson
    assert reference.signature("AccountsPerPerson", ledger) == "class AccountsPerPerson(Protocol)"


def test_a_first_paragraph_is_one_line_of_text():
    """A role of a docstring is no text."""
    assert generate.plain("Units spent,\nin :mod:`almoner`.\n\nMore.") == "Units spent, in `almoner`."
