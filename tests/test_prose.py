"""Pages for users: short sentences, blocks that can be pasted, and one way to install."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from almoner.cli import app

ROOT = Path(__file__).parent.parent
FIRST_PAGES = [
    ROOT / "README.md",
    *(ROOT / f"docs/{name}.md" for name in ("index", "start", "explanation", "sharp-edges")),
    *sorted(ROOT.glob("docs/tutorials/*.md")),
]
GUIDES = sorted(
    {*ROOT.glob("docs/*.md"), *ROOT.glob("docs/training/*.md")}
    - {*FIRST_PAGES}
    - {ROOT / f"docs/{name}.md" for name in ("api", "benchmarks", "cli", "theory")}
)
PASTED = re.compile(r"^```python\n((?!>>>)(?:.*\n)*?)```\n\n```text\n((?:.*\n)*?)```$", re.M)
"""A block of code without prompts, and what it prints."""


def sentences(text):
    """The sentences of a page: no code, no formulas' insides, each cell of a table for itself."""
    text = re.sub(r"^```.*?^```", "\n\n", text, flags=re.M | re.S)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "Code", text)  # which may begin a sentence
    text = re.sub(r"^(#.*|\s*\|?-+\|[-|]*)$", "\n", text, flags=re.M)
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", text, flags=re.M)
    text = re.sub(r"^\|(.*)\|$", lambda row: "\n\n" + row[1].replace("|", "\n\n") + "\n\n", text, flags=re.M)
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.?!])[*)\"']*\s+(?=[A-Z`*\"(])", " ".join(paragraph.split()))


def too_long(text, most=35):
    """The sentences of more than `most` words."""
    return [each for each in sentences(text) if len(re.findall(r"\w\S*", each)) > most]


@pytest.mark.parametrize("page", [*FIRST_PAGES, *GUIDES], ids=lambda page: page.name)
def test_sentences_are_short(page):
    """No sentence of README, the first pages, the tutorials and the guides has more than 35 words."""
    assert too_long(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("word " * 36 + ".", 1),
        ("word " * 20 + ". " + "Word " * 20 + ".", 0),
        ("```\n" + "word " * 40 + "\n```", 0),
        ("| " + "word " * 20 + " | " + "word " * 20 + " |", 0),
        ("- " + "word " * 20 + "\n- " + "word " * 20, 0),
        ("word " * 20 + "\n" + "word " * 20, 1),
    ],
)
def test_long_sentences_are_found(text, count):
    """Sentences end at full stops, cells and items, and not at the ends of lines."""
    assert len(too_long(text)) == count


def test_the_readme_is_short():
    """The README has at most 850 words beside its code, with a table that compares nine libraries."""
    text = re.sub(r"^```.*?^```", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M | re.S)
    assert 200 < len(text.split()) <= 850


def test_blocks_of_the_readme_can_be_pasted(tmp_path, monkeypatch):
    """The README's programs have no prompts, run as they are, and print what stands below them."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = PASTED.findall(text)
    assert len(blocks) == text.count("```python") == 1
    for program, output in blocks:
        printed, names = io.StringIO(), {"__name__": "__main__"}
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "README.md", "exec"), names)
        assert doctest.OutputChecker().check_output(output, printed.getvalue(), doctest.ELLIPSIS), printed.getvalue()
    names["session"].close()
    (command,) = re.findall(r"`almoner (statement .*)`", text)
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    assert "week 14" in result.output


def test_one_way_to_install():
    """As long as nothing is on PyPI, every page installs from a checkout, with quotes around the extras."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for what in re.findall(r"pip install (\S+)", page.read_text(encoding="utf-8")):
            assert re.match(r"'\.(\[[a-z,]+\])?'", what), f"{page.name}: {what}"
