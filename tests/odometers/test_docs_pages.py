"""The table on the page about odometers is the program's."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_is_the_programs():
    """The table of docs/odometers/tightness.md is what benchmarks/tightness/odometers.py prints."""
    spec = importlib.util.spec_from_file_location("tightness", ROOT / "benchmarks" / "tightness" / "odometers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "odometers" / "tightness.md").read_text(encoding="utf-8").splitlines()
    for line in module.lines():
        assert line in page
