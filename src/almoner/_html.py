"""Pages of HTML that stand alone: no script, nothing from elsewhere; for screens in light and dark, and for paper.

Every text that is given is escaped here; only what these functions return is taken as HTML.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from urllib.parse import urlencode

from almoner.errors import ArgumentError

__all__ = [
    "STYLE_HASH",
    "anchor",
    "bar",
    "choice",
    "details",
    "drawing",
    "exact",
    "facts",
    "field",
    "form",
    "heading",
    "interval",
    "link",
    "notice",
    "page",
    "paragraph",
    "percent",
    "points",
    "question",
    "table",
    "text",
    "tiles",
    "when",
]

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Characters that cannot be seen and could change what a reader sees, or that no file can hold."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --line: #767676; --soft: #eef1f4; --used: #0b5cad;
  --mark: #7a1f00; --warm: #fff1e8; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --paper: #14171a; --line: #8c959e; --soft: #252b31;
  --used: #6db3f2; --mark: #ffc2a1; --warm: #3a2013; } }
@media print { :root { color-scheme: light; --ink: #000000; --paper: #ffffff; --soft: #ffffff; --warm: #ffffff;
  --used: #0b5cad; --mark: #7a1f00; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0.8rem 0; } h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
p, li { max-width: 42rem; margin: 0.5rem 0; } ul { padding-left: 1.2rem; } .large { font-size: 1.2rem; }
.mark p { max-width: none; margin: 0; border: 2px solid var(--mark); background: var(--warm); color: var(--mark);
  padding: 0.5rem 0.8rem; font-weight: 600; overflow-wrap: anywhere; }
.bar { display: block; width: 100%; height: 1.6rem; margin: 0.6rem 0; }
.bar .all { fill: var(--soft); stroke: var(--line); vector-effect: non-scaling-stroke; }
.bar .used { fill: var(--used); } .bar .tick { fill: var(--ink); }
.chart { display: block; width: 100%; height: auto; margin: 0.6rem 0; } .chart text { font: 13px system-ui, sans-serif;
  fill: var(--ink); }
.chart .truth { fill: none; stroke: var(--line); stroke-width: 1.5; } .chart .used { fill: var(--used); }
.chart .stop { fill: var(--warm); } a { color: var(--used); }
.columns { display: block; width: 100%; height: 250px; margin: 0.6rem 0; } .columns .used { fill: var(--used); }
.columns text { font: 13px system-ui, sans-serif; fill: var(--ink); } .columns line { stroke: var(--line); }
.columns .limit { stroke: var(--mark); stroke-width: 2; stroke-dasharray: 6 4; } .columns .named { fill: var(--mark); }
.said { display: block; min-width: 11rem; overflow-wrap: anywhere; } .name { font-weight: 600; }
details { margin: 0.2rem 0; } summary { cursor: pointer; color: var(--used); }
.exact { font: 0.9em/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.8rem; margin: 1rem 0; }
.tiles div { border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.6rem 0.8rem; background: var(--soft);
  display: flex; flex-direction: column-reverse; justify-content: flex-end; break-inside: avoid; }
.tiles dt { font-weight: 400; } .tiles dd { font-size: 1.5rem; font-weight: 600; margin: 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
caption { text-align: left; padding: 0.3rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 0.7rem 0.35rem 0; }
td { overflow-wrap: break-word; font-variant-numeric: tabular-nums; } th, td { border-bottom: 1px solid var(--line); }
thead th { border-bottom-width: 2px; }
@media screen and (max-width: 36rem) { table, caption, tbody, tr, td { display: block; } thead { display: none; }
  tr { border-bottom: 1px solid var(--line); padding: 0.5rem 0; } td { border: none; padding: 0.1rem 0; }
  td { overflow-wrap: anywhere; }
  td::before { content: attr(data-label) ": "; font-weight: 600; } }
form { margin: 0.8rem 0; } .fields { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr));
  gap: 0.9rem 1.2rem; margin: 0.8rem 0; } label { display: block; font-weight: 600; }
.hint { display: block; font-size: 0.9rem; }
input, select { display: block; width: 100%; margin: 0.2rem 0; } input, select, button { font: inherit; color: inherit;
  background: var(--paper); border: 1px solid var(--line); border-radius: 0.3rem; padding: 0.4rem 0.6rem;
  min-height: 2.6rem; }
button { background: var(--soft); font-weight: 600; cursor: pointer; margin: 0 0.6rem 0.6rem 0; }
:focus-visible { outline: 3px solid var(--used); outline-offset: 2px; }
.notice { max-width: none; border: 2px solid var(--line); background: var(--soft); padding: 0.5rem 0.8rem; }
.span { display: block; width: 100%; min-width: 8rem; height: 1.4rem; }
.span .reach { stroke: var(--used); stroke-width: 3; }
.span .value { fill: var(--ink); }
dl { display: grid; grid-template-columns: minmax(8rem, 14rem) 1fr; gap: 0.35rem 1rem; margin: 0.5rem 0; }
dt { font-weight: 600; } dd { grid-column: 2; margin: 0; overflow-wrap: anywhere; }
@media screen and (max-width: 36rem) { dl:not(.tiles) { grid-template-columns: 1fr; gap: 0; }
  dl:not(.tiles) > dd { grid-column: 1; margin-bottom: 0.7rem; } }
@media print { html { font-size: 10pt; } main { max-width: none; padding: 0; } p, li { max-width: none; }
  section, tr, svg, dd { break-inside: avoid; } h2, dt, caption, thead { break-after: avoid; }
  main:has(> .mark) { display: table; width: 100%; table-layout: fixed; }
  .mark { display: table-header-group; break-inside: avoid; } .wide { overflow: visible; }
  .mark p { max-height: 7rem; overflow: hidden; margin-bottom: 1rem; }
  .short { display: inline-block; max-width: 8.5rem; overflow-wrap: break-word; } .said { min-width: 9rem; }
  .aside { display: none; } details, summary { display: inline; } summary { color: inherit; }
  summary::after { content: ": "; } details::details-content { display: inline; content-visibility: visible; } }
@supports not selector(::details-content) { @media print { details { display: none; } } }
""".strip()


STYLE_HASH = "sha256-" + b64encode(sha256(f"\n{_STYLE}\n".encode()).digest()).decode()
"""Hash of the style of every page, for a Content-Security-Policy that allows no other."""


def text(value: object, *, short: bool = False) -> str:
    """A value as text and nothing else; a text that runs from right to left changes nothing around it.

    What is short by its nature, as a name is, takes a narrow column on paper however long it is.
    """
    kind = ' class="short"' if short else ""
    return f"<bdi{kind}>{_plain(value)}</bdi>"


def page(title: str, body: Sequence[str], *, mark: str | None = None) -> str:
    """A whole page.

    Args:
        title: shown, and the name of the page.
        body: HTML, from the functions of this module.
        mark: for whom the page is private, which stands above everything; None: the page is public.
    """
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # a page that asks for nothing cannot tell anybody that it is read
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="robots" content="noindex">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{_plain(title)}</title>",
        f"<style>\n{_STYLE}\n</style>",
    ]
    above = [] if mark is None else [f'<div class="mark"><p>{_plain(mark)}</p></div>']
    inner = ["<main>", *above, f"<h1>{_plain(title)}</h1>", *body, "</main>"]
    lines = ["<!DOCTYPE html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *inner, "</body>", "</html>"]
    return "\n".join(lines) + "\n"


def heading(title: str) -> str:
    """The heading of a part of a page."""
    return f"<h2>{_plain(title)}</h2>"


def paragraph(*sentences: str, large: bool = False) -> str:
    """Sentences that follow each other."""
    opened = '<p class="large">' if large else "<p>"
    return f"{opened}{_plain(' '.join(sentences))}</p>"


def bar(share: float, label: str, *, tick: float | None = None) -> str:
    """A bar that is filled by a share in [0, 1], with a label for those who do not see it, and a mark at ``tick``."""
    width = 100 * min(max(share, 0.0), 1.0)
    mark = "" if tick is None else f'<rect class="tick" x="{100 * tick - 0.2:.3f}" y="0" width="0.4" height="8"/>'
    return (
        f'<svg class="bar" role="img" aria-label="{_plain(label)}" viewBox="0 0 100 8" preserveAspectRatio="none">'
        f'<rect class="all" x="0" y="0" width="100" height="8"/>'
        f'<rect class="used" x="0" y="0" width="{width:.3f}" height="8"/>{mark}</svg>'
    )


def drawing(kind: str, label: str, inner: Iterable[str]) -> str:
    """A picture of SVG elements, which are HTML, with a label for those who do not see it."""
    return f'<svg class="{kind}" role="img" aria-label="{_plain(label)}">{"".join(inner)}</svg>'


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a caption and headers; the cells are HTML."""
    header = "".join(f'<th role="columnheader" scope="col">{_plain(column)}</th>' for column in columns)
    lines = []
    for row in rows:
        labelled = zip(map(_plain, columns), row, strict=True)  # on narrow screens each cell stands under its own name
        cells = "".join(f'<td role="cell" data-label="{label}">{cell}</td>' for label, cell in labelled)
        lines.append(f'<tr role="row">{cells}</tr>')
    return "\n".join(
        [
            f'<div class="wide" role="region" tabindex="0" aria-label="{_plain(caption)}">',
            f'<table role="table"><caption>{_plain(caption)}</caption>',
            f'<thead role="rowgroup"><tr role="row">{header}</tr></thead>',
            '<tbody role="rowgroup">',
            *lines,
            "</tbody></table></div>",
        ]
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they are; the second of each pair is HTML. The same name again is not written again."""
    lines, before = [], None
    for name, said in pairs:
        lines.append(f"<dd>{said}</dd>" if name == before else f"<dt>{_plain(name)}</dt><dd>{said}</dd>")
        before = name
    return "\n".join(["<dl>", *lines, "</dl>"])


def points(words: Iterable[str]) -> str:
    """Sentences one below the other."""
    return "\n".join(["<ul>", *(f"<li>{_plain(each)}</li>" for each in words), "</ul>"])


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and their values, the values in large type."""
    lines = [f"<div><dt>{_plain(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs]
    return "\n".join(['<dl class="tiles">', *lines, "</dl>"])


def details(summary: str, inner: str, *, aside: bool = False) -> str:
    """HTML that a reader opens with a click; on paper it is open, or, where it repeats something, left out."""
    kind = ' class="aside"' if aside else ""
    return f"<details{kind}><summary>{_plain(summary)}</summary>{inner}</details>"


def exact(value: object) -> str:
    """A text in the letters of a program."""
    return f'<code class="exact">{text(value)}</code>'


def question(name: str, words: str, *more: str) -> str:
    """A question that was asked: its name, what that is in words, and HTML below; the name may be empty."""
    titled = [f'<span class="said name">{text(name)}</span>'] if name else []
    return "".join([*titled, f'<span class="said">{_plain(words)}</span>', *more])


def link(name: str, words: str) -> str:
    """A link to a file beside this one, by its plain name."""
    if not re.fullmatch(r"[\w-]+\.html", name):
        raise ArgumentError(f"name={name!r} must be the name of an .html file, without a folder")
    return f'<p><a href="{name}">{_plain(words)}</a></p>'


def anchor(path: str, words: str, **query: str) -> str:
    """A link to a page of the same server, with parameters."""
    if not re.fullmatch(r"/[\w-]*", path):
        raise ArgumentError(f"path={path!r} must be / and a plain name")
    where = f"{path}?{urlencode(query, errors='replace')}" if query else path
    return f'<a href="{_plain(where)}">{text(words)}</a>'


def notice(words: str, *, alert: bool = False) -> str:
    """A sentence that stands out; as an alert it is read aloud at once."""
    role = "alert" if alert else "status"
    return f'<p class="notice" role="{role}">{_plain(words)}</p>'


def form(action: str, rows: Iterable[str], buttons: Sequence[tuple[str, str, str]], hidden: Mapping[str, str]) -> str:
    """A form that is sent to a page of the same server.

    Args:
        action: the path of the page.
        rows: what ``field`` and ``choice`` give.
        buttons: name, value and words of each.
        hidden: fields that nobody sees.
    """
    inner = "\n".join(rows)
    lines = [f'<input type="hidden" name="{_plain(name)}" value="{_plain(value)}">' for name, value in hidden.items()]
    if inner:
        lines.append(f'<div class="fields">{inner}</div>')
    for name, value, words in buttons:
        named = f' name="{_plain(name)}" value="{_plain(value)}"' if name else ""
        lines.append(f'<button type="submit"{named}>{_plain(words)}</button>')
    return f'<form method="post" action="{_plain(action)}">' + "\n".join(lines) + "</form>"


def field(
    name: str,
    label: str,
    *,
    kind: str = "text",
    value: str = "",
    hint: str = "",
    required: bool = False,
    step: str | None = None,
) -> str:
    """A field of a form with its label, and a hint below it."""
    more = f' value="{_plain(value)}"' if value else ""
    more += " required" if required else ""
    more += f' step="{_plain(step)}"' if step is not None else ""
    more += _described(name, hint)
    place = f'<input type="{_plain(kind)}" id="field-{name}" name="{name}" autocomplete="off"{more}>'
    return f'<div><label for="field-{name}">{_plain(label)}</label>{place}{_hint(name, hint)}</div>'


def choice(name: str, label: str, options: Iterable[tuple[str, str]], *, chosen: str = "", hint: str = "") -> str:
    """A choice of a form with its label: the value and the words of each option, and a hint below it."""
    listed = "".join(
        f'<option value="{_plain(value)}"{" selected" if value == chosen else ""}>{_plain(words)}</option>'
        for value, words in options
    )
    place = f'<select id="field-{name}" name="{name}"{_described(name, hint)}>{listed}</select>'
    return f'<div><label for="field-{name}">{_plain(label)}</label>{place}{_hint(name, hint)}</div>'


def _described(name: str, hint: str) -> str:
    return f' aria-describedby="hint-{name}"' if hint else ""


def _hint(name: str, hint: str) -> str:
    return f'<span class="hint" id="hint-{name}">{_plain(hint)}</span>' if hint else ""


def interval(low: float, value: float | None, high: float, between: tuple[float, float], label: str) -> str:
    """A line from low to high with a mark at the value, on a scale; with a label for those who do not see it."""
    least, most = between
    width = most / 2 - least / 2 or 1.0  # halves: the difference of huge numbers is not finite

    def place(number: float) -> str:
        share = (number / 2 - least / 2) / width
        return f"{2 + 96 * min(max(share, 0.0), 1.0) if share == share else 2:.2f}"

    mark = "" if value is None else f'<circle class="value" cx="{place(value)}%" cy="50%" r="4"/>'
    return (
        f'<svg class="span" role="img" aria-label="{_plain(label)}">'
        f'<line class="reach" x1="{place(low)}%" x2="{place(high)}%" y1="50%" y2="50%"/>{mark}</svg>'
    )


def when(moment: str) -> str:
    """A moment in ISO form, as a date and a time of day that a person reads."""
    try:
        known = datetime.fromisoformat(moment).astimezone(UTC)
    except ValueError:
        return text(moment)
    return f'<time datetime="{_plain(moment)}">{known.day} {known:%B %Y, %H:%M} UTC</time>'


def percent(share: str) -> str:
    """A number of percent that was rounded before."""
    return f"{_plain(share)}&nbsp;%"


def _plain(value: object) -> str:
    return escape(_UNSEEN.sub("\ufffd", str(value)), quote=True)
