"""The built site: links lead somewhere, nothing comes from elsewhere, and every public name is described."""

import importlib
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Collect what a tag names."""
        named = dict(attrs)
        self.anchors |= {named.get("id"), named.get("name")} - {None}
        if tag == "a" and named.get("href"):
            self.links.append(named["href"])
        if tag in ("img", "script", "source", "iframe") and named.get("src"):
            self.loads.append(named["src"])
        if tag == "link" and named.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "modulepreload"):
            self.loads.append(named["href"])


def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_links_of_the_site_lead_somewhere(site):
    """Every link to a page of the site, made by hand or by the build, meets a file and an anchor."""
    found = pages(site)
    wrong, count = [], 0
    for path, page in found.items():
        for link in page.links:
            if re.match(r"[a-z]+:|//|/", link):
                continue
            count += 1
            target, _, anchor = link.partition("#")
            there = (path.parent / target).resolve() if target else path.resolve()
            there = there / "index.html" if there.is_dir() else there
            known = found.get(site.resolve() / there.relative_to(site.resolve()))
            if not there.exists() or (anchor and (known is None or anchor not in known.anchors)):
                wrong.append((str(path.relative_to(site)), link))
    assert count > 5000
    assert wrong == []


def test_nothing_comes_from_elsewhere(site):
    """No page loads a script, a style, a font or a picture from another host, or one that is not there."""
    found = pages(site)
    loads = [load for page in found.values() for load in page.loads]
    assert len(loads) > 100
    assert [load for load in loads if "//" in load] == []
    missing = [load for path, page in found.items() for load in page.loads if not (path.parent / load).exists()]
    assert [load for load in missing if not load.startswith("/")] == []  # but for those of the page for missing pages
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_every_public_name_can_be_found(site):
    """Each public name has a section of its own on the page of its module, and the search knows it."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        modules = importlib.import_module("generate").MODULES
    finally:
        sys.path.remove(str(ROOT / "docs"))
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {each["location"] for each in index["docs"]}
    for module_name in modules:
        page = Page((site / "reference" / module_name / "index.html").read_text(encoding="utf-8"))
        for name in importlib.import_module(module_name).__all__:
            assert name in page.anchors, f"{module_name}.{name}"
            assert f"reference/{module_name}/#{name}" in places


def test_arguments_are_listed(site):
    """No page of the reference has arguments as prose: each has a line of its own."""
    for page in site.glob("reference/*/index.html"):
        assert "<p>Args" not in page.read_text(encoding="utf-8"), page


def test_guides_link_names(site):
    """A name that a guide has in code is a link to its description, and a cited statement to the statement."""
    guide = (site / "filters" / "index.html").read_text(encoding="utf-8")
    assert 'href="../reference/almoner.filters/#Renyi"' in guide
    described = (site / "reference" / "almoner.filters" / "index.html").read_text(encoding="utf-8")
    assert re.search(r'theory <a href="../../theory/#s\d\.\d+">', described)
