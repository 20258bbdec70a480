"""Pages of HTML that stand alone: no script, nothing from elsewhere; for screens in light and dark, and for paper.

Pages are templates in the folder ``_templates``: ``base.html`` is around each, ``parts.html`` has what several use, and
``style.css`` is the style of all. Every value is escaped; only what a template says itself is taken as HTML.
"""

import re
from base64 import b64encode
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from almoner._private import MARK
from almoner._units import shown

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)  # characters that cannot be seen and could change what a reader sees, or that no file can hold


def render(template: str, **values: object) -> str:
    """The HTML of a template; one that names a value that is not given raises ``jinja2.UndefinedError``."""
    return _environment().get_template(template).render(values)


def style_hash() -> str:
    """Hash of the style of every page, for a Content-Security-Policy that allows no other."""
    return "sha256-" + b64encode(sha256(f"\n{_style()}".encode()).digest()).decode()


@cache
def _style() -> str:
    return Path(__file__).with_name("_templates").joinpath("style.css").read_text(encoding="utf-8")


@cache
def _environment() -> "Environment":
    """Templates and what they may use; made for the first page, since most processes write none."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def plain(value: object) -> "Markup":
        """A value as text and nothing else; what was made by a template is HTML already."""
        return value if isinstance(value, Markup) else Markup(escape(_UNSEEN.sub("\ufffd", str(value)), quote=True))

    made = Environment(
        loader=PackageLoader("almoner", "_templates"), autoescape=True, undefined=StrictUndefined, finalize=plain,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,  # the style's hash was told before
    )  # fmt: skip
    made.filters |= {"moment": _moment, "number": format, "shown": shown}
    made.globals |= {"style": Markup(_style()), "private": f"{MARK[0].upper()}{MARK[1:]}.", "zip": zip}
    return made


def _moment(told: str) -> str | None:
    """A moment in ISO form, as a date and a time of day that a person reads; None: it is no such moment."""
    try:
        known = datetime.fromisoformat(told).astimezone(UTC)
    except ValueError:
        return None
    return f"{known.day} {known:%B %Y, %H:%M} UTC"
