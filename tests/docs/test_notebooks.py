"""Tutorials are notebooks too: the same text, the same examples in the same order, and the same commands."""

import doctest
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
notebooks = importlib.import_module("notebooks")
sys.path.pop(0)

TUTORIALS = sorted(ROOT.glob("docs/tutorials/*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_notebook_runs_what_its_page_runs(page):
    """All examples and commands of the page, which a test runs, are the code of the notebook, in this order."""
    text = page.read_text(encoding="utf-8")
    cells = json.loads(notebooks.notebook(text, name=page.stem))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    examples = [each.source.rstrip("\n") for each in doctest.DocTestParser().get_examples(text)]
    assert "\n".join(each for each in code if each[0] not in "!#") == "\n".join(examples)
    assert [each[1:] for each in code if each[0] == "!"] == re.findall(r"^```\n\$ (.*)", text, re.M)
    for each in code:
        if each[0] not in "!#":
            compile(each, page.name, "exec")
    assert len({cell["id"] for cell in cells}) == len(cells) > 10
    told = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert ">>>" not in told
    assert "](../" not in told


def test_a_cell_ends_where_something_is_shown():
    """A notebook shows the last value of a cell, so each example with an output ends one."""
    made = notebooks.sources("python", ">>> x = 1\n>>> x\n1\n>>> for y in range(2):\n...     print(y)\n0\n1\n\n")
    assert made == ["x = 1\nx", "for y in range(2):\n    print(y)"]
    assert notebooks.sources("text", "if x: break\n") == []


def test_the_site_offers_notebooks(site):
    """Beside each tutorial the site has its notebook, and the page links it."""
    for page in TUTORIALS:
        shown = (site / "tutorials" / page.stem / "index.html").read_text(encoding="utf-8")
        assert f'href="../{page.stem}.ipynb"' in shown
        assert json.loads((site / "tutorials" / f"{page.stem}.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
