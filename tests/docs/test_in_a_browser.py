"""The built site in a browser: searches find the guide, pages are accessible and fit a phone, all comes from here."""

import functools
import http.server
import json
import os
import threading
import time
from urllib.parse import quote

import pytest

from browser import browser, chromium

pytestmark = [pytest.mark.browser, pytest.mark.skipif(chromium() is None, reason="there is no Chromium")]

FIRST = {
    "noise multiplier": "which-epsilon/",
    "noise multiplier for epsilon 3": "which-epsilon/",
    "how many steps": "which-epsilon/",
    "two runs together": "which-epsilon/",
    "which filter": "filters/",
    "odometer": "odometers/",
    "ledger in 20 lines": "own-ledger/",
    "user-level": "training/people-and-records/",
    "batch norm": "training/pytorch/",
    "checkpoint": "training/folders/",
    "resume": "training/folders/",
    "opacus": "training/from-opacus/",
    "hyperparameter tuning": "training/tuning/",
    "median": "queries/quantiles/",
    "join tables": "queries/tables/",
    "confidence interval": "queries/intervals/",
    "retire a person": "ledger/people/",
    "backup": "ledger/backups/",
    "postgresql": "ledger/postgresql/",
    "statement": "tutorials/statement/",
    "several analysts": "service/page/",
    "docker": "deploying/",
    "single sign-on": "service/sign-on/",
    "openid connect": "service/sign-on/",
}
"""What is searched for, and the page that must be found first."""

EVERY = int(os.environ.get("ALMONER_EVERY_PAGE", "24"))
"""Of the pages, one in so many is looked at, each at another width and scheme. ALMONER_EVERY_PAGE=1 looks at all."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and prints nothing."""

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture(scope="module")
def served(site):
    """The site's folder and its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield site, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def found(tab, address, words):
    """The pages that a search finds, best first."""
    tab.go(f"{address}?q={quote(words)}", width=1280)
    for _ in range(100):
        links = json.loads(
            tab.run("""JSON.stringify([...document.querySelectorAll(".md-search-result__link")].map(
            link => new URL(link.href).pathname.slice(1)))""")
        )
        if links:
            return links
        time.sleep(0.1)
    return []


def test_searches_find_the_guide(served, tmp_path):
    """What people type in finds the page that answers, first."""
    _, address = served
    with browser(tmp_path) as tab:
        wrong = {words: first for words, want in FIRST.items() if (first := found(tab, address, words)[:1]) != [want]}
    assert wrong == {}


def problems(tab, address, page, *, width, dark):
    """What is wrong with a page at a width: violations, what is wider than the screen, and what came from afar."""
    tab.go(address + page, width=width, dark=dark)
    time.sleep(1)  # scripts have run
    assert tab.run("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
    told = [(page, width, dark, *each) for each in tab.violations()]
    wide = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    told += [(page, width, dark, f"{wide} pixels too wide")] * (wide > 0)
    return told + [(page, url) for url in tab.requested if not url.startswith((address, "data:"))]


def test_pages_are_accessible_and_fit_the_screen(served, tmp_path):
    """No rule of axe is broken, no page is wider than a phone or a desk, in light and dark; no other host is asked."""
    site, address = served
    pages = sorted(path.parent.relative_to(site).as_posix() + "/" for path in site.rglob("index.html"))
    told = []
    with browser(tmp_path) as tab:
        for number, page in enumerate(pages[::EVERY]):
            width, dark = ((420, True), (1280, False), (420, False), (1280, True))[number % 4]
            told += problems(tab, address, page, width=width, dark=dark)
    assert told == []


def test_formulas_have_a_font_for_mathematics(served, tmp_path):
    """A page with formulas loads the font from here, and a page without any does not."""
    _, address = served
    with browser(tmp_path) as tab:
        told = {}
        for page in ("theory/", "start/"):
            tab.go(address + page, width=1280)
            time.sleep(1)
            told[page] = tab.run('[...document.fonts].find(each => each.family.includes("Site Math")).status')
    assert told == {"theory/": "loaded", "start/": "unloaded"}
