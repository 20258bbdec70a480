"""The pages about odometers: their examples run, and their table is the program's."""

import doctest
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["odometers.md", "sharp-edges.md"])
def test_examples_run(page):
    """Every example of the page prints what the page says."""
    failed, tried = doctest.testfile(str(ROOT / "docs" / page), module_relative=False, encoding="utf-8")
    assert tried > 10
    assert failed == 0


def test_the_table_is_the_programs():
    """The table of docs/odometers.md is what benchmarks/tightness.py prints."""
    spec = importlib.util.spec_from_file_location("tightness", ROOT / "benchmarks" / "tightness.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "odometers.md").read_text(encoding="utf-8").splitlines()
    for line in module.lines():
        assert line in page
