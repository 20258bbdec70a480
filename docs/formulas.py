"""Formulas between dollar signs become MathML when the site is built: no script, and nothing from other hosts."""

import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.inlinepatterns import InlineProcessor

INLINE = r"(?<![\\$\w])\$(?![\s$])((?:[^$\\]|\\.)+?)(?<!\s)\$(?![\d$])"
"""A dollar that a blank or another dollar follows begins no formula, and one that a digit follows ends none."""

DISPLAY = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.S)


def mathml(latex: str, display: str) -> ElementTree.Element:
    """A formula as an element of MathML, which also holds its source, for readers who copy it."""
    element = ElementTree.fromstring(convert(" ".join(latex.split()), display=display))
    for each in element.iter():
        each.tag = each.tag.split("}")[-1]
    element.set("xmlns", "http://www.w3.org/1998/Math/MathML")
    element.set("alttext", " ".join(latex.split()))
    return element


class Inline(InlineProcessor):
    """A formula in a line."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Any, int, int]:
        """The formula, before anything in it is taken for emphasis, in a box that scrolls where it is too wide."""
        box = ElementTree.Element("span", {"class": "formula"})
        box.append(mathml(m[1], "inline"))
        return self.md.htmlStash.store(text_of(box)), m.start(0), m.end(0)


class Display(BlockProcessor):
    """A formula in lines of its own, between lines of two dollar signs."""

    def test(self, parent: Any, block: str) -> bool:
        """Whether the block is one formula."""
        return DISPLAY.match(block.strip()) is not None

    def run(self, parent: Any, blocks: list[str]) -> None:
        """Put the formula in a box that scrolls where it is too wide."""
        latex = DISPLAY.match(blocks.pop(0).strip())[1]
        box = ElementTree.SubElement(parent, "div", {"class": "formula"})
        box.text = self.parser.md.htmlStash.store(text_of(mathml(latex, "block")))


def text_of(element: ElementTree.Element) -> str:
    """The element as HTML."""
    return ElementTree.tostring(element, encoding="unicode")


class Formulas(Extension):
    """Formulas of Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        """After code, before escapes and emphasis."""
        md.inlinePatterns.register(Inline(INLINE, md), "formula", 185)
        md.parser.blockprocessors.register(Display(md.parser), "formula", 95)


def makeExtension(**options: Any) -> Formulas:
    """What Markdown calls."""
    return Formulas(**options)
