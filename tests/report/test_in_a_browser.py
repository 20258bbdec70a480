"""The four reports in a real headless Chromium: at a desk, on a phone, with the keyboard's tree, and on paper."""

import dataclasses
import io

import numpy as np
import pyarrow as pa
import pypdf
import pytest

import training_cards
from almoner import filters, queries
from almoner.ledger import Ledger
from almoner.report import pages
from almoner.report.losses import from_norms
from almoner.report.losses import page as losses_page
from browser import browser, chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="chromium is not installed: apt-get install chromium"),
]

LONG = "x" * 100
HOSTILE = f"</bdi><script>document.title = 'taken'</script><img src=http://elsewhere.example/{LONG}>"

PERSON = f"p3 {HOSTILE}"
MARKS = {
    "statement": f"Private. This page is for the person {PERSON}, and for the holder of the data. "
    "Show it to nobody else.",
    "ledger": "Private: for the data holder. It names no person.",
    "losses": "Private: for the data holder. It names no person.",
}


def asked(folder):
    """A statement and a ledger's page of 25 questions, one with names that no line holds."""
    rows = pa.table(
        {"who": [f"p{k % 30}" for k in range(600)], "day": [k // 30 for k in range(600)], "place": ["a"] * 600}
    )
    place = folder / "people.ledger"
    with queries.Session.open(rows, person="who", budget=filters.Zcdp(rho=1.0), ledger=place, create=True) as session:
        analyst = session.analyst("ann", purpose="weekly report")
        for day in range(24):
            analyst.ask(queries.People(where=f"day >= {day % 20} and day < 30", sigma=20.0), key=f"day {day}: visitors")
        written = f"day < 3 or place = '{HOSTILE.replace(chr(39), 2 * chr(39))}'"
        session.analyst(LONG, purpose=HOSTILE).ask(queries.People(where=written, sigma=20.0), key=HOSTILE)
    with Ledger.open(place) as book:
        return {
            "statement": pages.statement(queries.statement(book, "p3"), person=PERSON),
            "ledger": pages.ledger(book),
        }


def lost():
    """The page of losses of 500 people in two groups, two of them without a bound."""
    norms = np.clip(np.random.default_rng(0).gamma(2.0, 0.25, 500), 0, 1)
    norms[:2] = np.nan
    run = {"noise_multiplier": 1.1, "sample_rate": 0.01, "delta": 1e-5, "steps": 2000}
    return losses_page(from_norms(norms, **run), groups=np.where(norms > 0.5, "high", HOSTILE), **run)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The four reports as files, by name."""
    folder = tmp_path_factory.mktemp("reports")
    card = dataclasses.replace(training_cards.cards()[5][1], record=HOSTILE, reproducible=True)
    made = {**asked(folder), "losses": lost(), "card": card.to_html()}
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    """One browser for all tests."""
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def papers(tab, reports):
    """The four reports as they are printed."""
    found = {}
    for name, path in reports.items():
        tab.open(path, width=1280)
        found[name] = pypdf.PdfReader(io.BytesIO(tab.printed())).pages
    return found


each_report = pytest.mark.parametrize("name", ["statement", "ledger", "losses", "card"])

# everything that is shown and reaches over the edge, except what lies in a region that scrolls by itself
OVER = """[...document.querySelectorAll("main *")].filter(each => each.checkVisibility({contentVisibilityAuto: true})
  && !each.closest(".wide") && each.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map(each => each.outerHTML.slice(0, 80))"""


@each_report
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (420, True)])
def test_a_report_fits_and_asks_for_nothing(tab, reports, name, width, dark):
    """Nothing reaches over the edge of a desk's or a phone's screen, and the browser asks for the one file alone."""
    tab.open(reports[name], width=width, dark=dark)
    tab.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run(f"({OVER}).join('; ')") == ""
    assert tab.requested == [reports[name].as_uri()]
    assert tab.complaints == []
    assert tab.run("document.title") != "taken"
    assert tab.run("document.querySelectorAll('script, img').length") == 0


@each_report
def test_no_word_of_a_picture_is_cut_off(tab, reports, name):
    """On a phone all letters of each picture are inside it, and no two of them overlap."""
    tab.open(reports[name], width=420)
    boxes = tab.run(
        """[...document.querySelectorAll("svg")].map(svg => [svg, ...svg.querySelectorAll("text")].map(each => {
        const box = each.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]}))"""
    )
    assert name == "ledger" or any(len(each) > 1 for each in boxes) == (name == "losses")
    for (left, top, right, bottom), *words in boxes:
        for place, word in enumerate(words):
            assert word[0] >= left - 0.5
            assert word[1] >= top - 0.5
            assert word[2] <= right + 0.5
            assert word[3] <= bottom + 0.5
            for other in words[:place]:
                assert word[0] > other[2] or word[2] < other[0] or word[1] > other[3] - 4 or word[3] - 4 < other[1]


@each_report
def test_a_report_can_be_read_aloud(tab, reports, name):
    """A screen reader finds one title, a name for each picture and table, and everything that can be opened."""
    tab.open(reports[name], width=1280)
    headings = tab.named("heading")
    assert len(headings) > 3
    assert all(headings)
    assert tab.run("document.querySelectorAll('h1').length") == 1
    pictures = tab.named("image")
    assert len(pictures) == tab.run("document.querySelectorAll('svg').length") > 0
    assert all(len(each) > 20 for each in pictures)
    assert all(tab.named("table"))
    closed = tab.run("document.querySelectorAll('summary').length")
    assert (closed > 0) == (name in ("statement", "losses"))
    assert len(tab.named("DisclosureTriangle")) == closed


@each_report
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (420, True)])
def test_a_report_is_accessible(tab, reports, name, width, dark):
    """axe finds nothing wrong: contrast in both colour schemes, names, order of headings, tables."""
    tab.open(reports[name], width=width, dark=dark)
    tab.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert tab.violations() == []


def test_the_checker_of_accessibility_finds_mistakes(tab, tmp_path):
    """A page with pale text, a picture without a name and a field without a label is found out."""
    bad = "<html lang=en><title>bad</title><main><h1 style='color: #ccc'>pale</h1><img src='data:,'><input></main>"
    (tmp_path / "bad.html").write_text(f"<!DOCTYPE html>{bad}", encoding="utf-8")
    tab.open(tmp_path / "bad.html", width=1280)
    assert {"color-contrast", "image-alt", "label"} <= {rule for rule, _ in tab.violations()}


def lines(page):
    """The lines of a printed page, from above."""
    found = {}

    def note(text, matrix, transform, font, size):
        if text.strip():
            height = round(matrix[1] * transform[4] + matrix[3] * transform[5] + matrix[5])
            found[height] = found.get(height, "") + text

    page.extract_text(visitor_text=note)
    return [found[height] for height in sorted(found, reverse=True)]


@pytest.mark.parametrize("name", MARKS)
def test_each_printed_page_begins_with_the_mark(papers, name):
    """On paper every page of a private report begins with its mark, and nothing stands above it or behind it."""
    assert len(papers[name]) > 2 or name == "losses"
    for page in papers[name]:
        above, mark = "", "".join(MARKS[name].split())
        for text in lines(page):
            above += "".join(text.split())
            if len(above) >= len(mark):
                break
        assert above == mark


def test_a_public_card_has_no_mark_on_paper(papers):
    """The card of a model is public, and its pages say nothing else."""
    assert len(papers["card"]) > 0
    assert not any("Private" in page.extract_text() for page in papers["card"])


@pytest.mark.parametrize("name", ["statement", "ledger"])
def test_long_names_are_whole_on_paper(papers, name):
    """A name without a blank is broken into lines, and no column is cut off at the edge of the paper."""
    texts = [page.extract_text() for page in papers[name]]
    whole = "".join("".join(texts).split())
    assert whole.count("".join(HOSTILE.split())) >= 3 - (name == "ledger")
    assert LONG in whole
    assert all({"statement": "What for", "ledger": "Purpose"}[name] in text for text in texts[1:-1])


def test_conditions_are_hidden_on_the_screen_and_shown_on_paper(tab, reports, papers):
    """A person reads no condition unless they open it; on paper each is there, after its question."""
    tab.open(reports["statement"], width=1280)
    shown = tab.run("document.body.innerText")
    assert "day 7: visitors" in shown
    assert "a number of people" in shown
    assert "day >= 7" not in shown
    assert not tab.run("document.querySelector('.exact').checkVisibility()")
    tab.run("document.querySelector('summary').click()")
    assert tab.run("document.querySelector('.exact').checkVisibility()")
    printed = " ".join(" ".join(page.extract_text() for page in papers["statement"]).split())
    assert "exact question: where day >= 7 and day < 30" in printed
    assert "the numbers of the picture" not in " ".join(page.extract_text() for page in papers["losses"])
