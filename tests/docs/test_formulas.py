"""Formulas on the pages are whole: delimiters match, tables keep their columns, and nothing became emphasis."""

import importlib
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("latex2mathml", reason="latex2mathml is not installed")
pytest.importorskip("markdown", reason="mkdocs is not installed")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
formulas = importlib.import_module("formulas")
sys.path.pop(0)

PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
FORMAL = [ROOT / "docs/theory.md", *sorted(ROOT.glob("docs/proofs/*.md"))]
FORMULA = re.compile(rf"^\$\$\n(.*?)\n\$\$$|{formulas.INLINE}", re.M | re.S)
EATEN = re.compile(r"[\w)\]}^]<em>|<em>[^<]*[\^][^<]*</em>|</em>[_^{]")
"""Emphasis that begins inside of a word or at a bracket, or that holds an exponent: it was a formula."""


def without_code(text):
    """A page without its blocks and spans of code."""
    text = re.sub(r"^(?:    .*\n)+", "\n", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return re.sub(r"`[^`]*`", "code", text)


def damage(text):
    """What is wrong with the formulas of a page."""
    text = without_code(text)
    wrong = []
    for found in FORMULA.finditer(text):
        latex = found[1] or found[2]
        bare = re.sub(r"\\[{}]", "", latex)
        if bare.count("{") != bare.count("}"):
            wrong.append(f"braces: {latex}")
        try:
            shown = "".join(formulas.mathml(latex, "inline").itertext())
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {latex}")
        else:
            wrong += [f"unknown command: {latex}"] if "\\" in shown else []
    rest = FORMULA.sub("formula", text)
    wrong += [f"a dollar sign alone: {line}" for line in rest.splitlines() if re.search(r"(?<!\\)\$", line)]
    return wrong + tables(text)


def tables(text):
    """Rows whose cells are not as many as those of the row of dashes above them."""
    wrong, columns = [], None
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line))
        if not line.startswith("|"):
            columns = None
        elif re.fullmatch(r"[|:\- ]+", line):
            columns = cells
        elif columns is not None and cells != columns:
            wrong.append(f"{cells - 1} cells, not {columns - 1}: {line}")
    return wrong


@pytest.mark.quick(76)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_formulas_are_whole(page):
    """Every formula of a page can be rendered, no dollar sign is left over, and tables keep their columns."""
    assert damage(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("$e^{x}$ and $x_i$, `$HOME`", 0),
        ("$$\n(1 - e^{e - l})_+\n$$\n", 0),
        ("$e^{x$", 1),
        ("$x + y", 1),
        (r"$\nosuchcommand{x}$", 1),
        ("| a | b |\n|---|---|\n| $|x|$ | y |", 1),
        (r"| a | b |" + "\n|---|---|\n" + r"| $\vert x \vert$ | y |", 0),
    ],
)
def test_damage_is_found(text, count):
    """Each kind of damage is found, and nothing else."""
    assert min(1, len(damage(text))) == count


@pytest.mark.parametrize("page", FORMAL, ids=lambda page: page.name)
def test_no_formula_is_left_bare(page):
    """In proofs and statements, exponents and indices stand between dollar signs, where Markdown leaves them alone."""
    text = FORMULA.sub("formula", without_code(page.read_text(encoding="utf-8")))
    text = re.sub(r"\]\([^)]*\)", "]", text)
    assert re.findall(r".*(?:\^\{|_\{|[)\]}]_|[)\]}]\^).*", text) == []


@pytest.mark.slow
def test_formulas_are_no_emphasis(site):
    """In the built site no part of a formula was taken for emphasis, and formulas are elements of MathML."""
    shown = 0
    for path in site.rglob("*.html"):
        text = re.sub(r"<(pre|script|code)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.S)
        shown += text.count("<math ")
        assert EATEN.findall(re.sub(r"<math .*?</math>", "", text, flags=re.S)) == [], path
    assert shown > 2000


def test_emphasis_in_a_formula_is_found():
    """What Markdown makes of a bare formula is recognised."""
    assert EATEN.search("(1 - e<sup>x</sup>)<em>+, because x -> (1 - e)</em>+")
    assert not EATEN.search("<em>Proof.</em> Let (<em>ours</em>) be")


def test_a_formula_is_mathml():
    """Powers, roots and Greek letters become elements, and the source is kept as a text for readers who hear it."""
    element = formulas.mathml(r"\sqrt{\delta} \le e^{-x}", "inline")
    tags = [each.tag for each in element.iter()]
    assert {"msqrt", "msup"} <= set(tags)
    assert "δ" in "".join(element.itertext())
    assert element.get("alttext") == r"\sqrt{\delta} \le e^{-x}"
