"""Makes a notebook from a tutorial: text, examples without their prompts, and commands as a shell would run them."""

import doctest
import json
import re
from typing import Any

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n?", re.M | re.S)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
"""A link to another page, which a notebook elsewhere does not have beside it."""


def notebook(markdown: str, *, name: str) -> str:
    """A page as a notebook of version 4.5; the output of the examples is left to whoever runs them."""
    cells: list[dict[str, Any]] = []
    end = 0
    for found in BLOCK.finditer(markdown):
        made = sources(*found.groups())
        if made:
            _text(cells, markdown[end : found.start()])
            for code in made:
                _add(cells, "code", code)
            end = found.end()
    _text(cells, markdown[end:])
    for number, cell in enumerate(cells):
        cell["id"] = f"{name}-{number}"
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": spec, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def sources(language: str, block: str) -> list[str]:
    """What a block would run, a cell for each output: examples, or a command; nothing for a block that only shows."""
    if block.startswith("$ "):
        return ["!" + block.splitlines()[0][2:]]
    if not language and block.startswith("pip install"):
        return ["# " + block.strip()]
    cells = [""]
    for example in doctest.DocTestParser().get_examples(block):
        cells[-1] += example.source
        if example.want:
            cells.append("")
    return [cell.rstrip("\n") for cell in cells if cell]


def _text(cells: list[dict[str, Any]], text: str) -> None:
    if text.strip():
        _add(cells, "markdown", LINK.sub(r"\1", text.strip()))


def _add(cells: list[dict[str, Any]], kind: str, text: str) -> None:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    cells.append(cell)
