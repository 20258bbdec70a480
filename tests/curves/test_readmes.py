"""The pages beside the closed packages stay true: their tables list every tuning constant as it is, and real tests."""

import ast
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

from almoner import curves

CURVES = Path(curves.__file__).parent
TESTS = Path(__file__).parents[1]
PAGES = {
    "planned": ["planned"],
    "losses": ["losses", "_grid", "_loss_grid.py"],
    "_residue": ["_residue"],
}
"""Each page, and the packages and modules whose constants it lists."""
ROW = re.compile(r"^\| `([\w.]+)` \| `([^`]+)` \| ([^|]+) \| ([^|]+) \| (?:`([^`]+)`|none) \|$", re.MULTILINE)
each_page = pytest.mark.parametrize("page", PAGES)


def rows(page):
    """(module, constant, value, test) of each line of a page's table."""
    text = (CURVES / page / "README.md").read_text(encoding="utf-8")
    for name, value, _, _, test in ROW.findall(text.partition("## Tuning constants")[2]):
        module, constant = name.rsplit(".", 1)
        yield f"{page}.{module}" if (CURVES / page / f"{module}.py").exists() else module, constant, value, test


def modules(page):
    """Dotted names below ``curves`` of the modules that a page is about."""
    for name in PAGES[page]:
        for path in sorted((CURVES / name).glob("*.py")) or [CURVES / name]:
            if path.stem != "__init__" or "\ndef " in path.read_text(encoding="utf-8"):
                yield ".".join(path.relative_to(CURVES).with_suffix("").parts).removesuffix(".__init__")


def assigned(module):
    """Names in capitals that a module gives a value."""
    tree = ast.parse(Path(importlib.import_module(f"almoner.curves.{module}").__file__).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name) and name.id.isupper())


def is_number(value):
    """True for numbers, and for tuples and arrays of them."""
    if isinstance(value, tuple):
        return all(map(is_number, value))
    return isinstance(value, int | float | np.number | np.ndarray)


def numbers(module):
    """The constants of a module that are numbers, by name."""
    known = vars(importlib.import_module(f"almoner.curves.{module}"))
    return {name: known[name] for name in assigned(module) if is_number(known[name])}


@each_page
def test_tables_list_every_constant(page):
    """Each numeric constant of the package stands in the table once, and nothing else does."""
    there = sorted((module, name) for module in modules(page) for name in numbers(module))
    assert sorted((module, constant) for module, constant, _, _ in rows(page)) == there


@each_page
def test_tables_say_the_present_values(page):
    """A value is read with the names of its module, and is the constant's."""
    for module, constant, value, _ in rows(page):
        known = vars(importlib.import_module(f"almoner.curves.{module}"))
        assert np.array_equal(eval(value, {**known, "np": np}), known[constant]), (module, constant)


@each_page
def test_tables_name_real_tests(page):
    """Every test that a table names is there."""
    for module, constant, _, test in rows(page):
        if test:
            path, name = test.split("::")
            assert f"\ndef {name}(" in (TESTS / path).read_text(encoding="utf-8"), (module, constant)


@each_page
def test_pages_name_every_module(page):
    """The map of a page names each module of its package, in one numbered list."""
    text = (CURVES / page / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\d+\. `([\w./]+)\.py`", text, re.MULTILINE)
    here = {(CURVES / page / f"{name}.py").resolve().relative_to(CURVES).with_suffix("") for name in named}
    assert {module.replace(".", "/") for module in modules(page)} <= {
        path.as_posix().removesuffix("/__init__") for path in here
    }
