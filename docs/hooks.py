"""What the build of the site adds: the API reference, links to it and to cited statements, formulas, notebooks."""

import io
import re
import sys
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from fontTools.ttLib import TTFont
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

sys.path.insert(0, str(Path(__file__).parent))

import reference
from formulas import Formulas
from generate import MODULES
from notebooks import notebook

GROUPS = {
    "Statistics": ("queries", "ledger", "service"),
    "Models": ("training",),
    "Other libraries, pictures, checks": ("interop", "report", "audit", "certificates", "errors", "noise"),
}
"""The rooms of each part of the reference; all others are in the first part."""

BOOSTS = (
    ("proofs/", 0.1), ("experiments/", 0.1), ("papers/", 0.1), ("reference/almoner.curves", 0.1), ("theory.md", 0.1),
    ("api.md", 0.1), ("other-costs.md", 0.1), ("benchmarks.md", 0.1), ("reference/", 0.3), ("cli.md", 0.5), ("", 4.0),
)  # fmt: skip
"""Weights of pages in the search: that of the first beginning of a path which fits."""

STATEMENT = re.compile(r"theory ((?:\d+\.\d+(?:, | and | to | or )?)+)")
PROOF = re.compile(r"docs/((?:[a-z]+/)?[\w-]+)\.md")
PLACES: dict[str, tuple[str, str]] = {}


def address(module_name: str, anchor: str = "") -> str:
    """Where the site describes a public name."""
    return f"reference/{module_name}/" + (f"#{anchor}" if anchor else "")


def on_config(config: Any) -> Any:
    """Add the pages of the reference to the navigation, and formulas to Markdown."""
    config.markdown_extensions.append(Formulas())
    room = {name: group for group, rooms in GROUPS.items() for name in rooms}
    groups: dict[str, list[str]] = {group: [] for group in ("Accounting", *GROUPS)}
    for name in sorted(MODULES):
        groups[room.get(name.split(".")[1], "Accounting")].append(f"reference/{name}.md")
    config.nav.append({"API": [{f"{group} (API)": pages} for group, pages in groups.items()]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Make the pages of the reference, and a notebook of each tutorial."""
    PLACES.update(reference.places(MODULES))
    for name in MODULES:
        files.append(File.generated(config, f"reference/{name}.md", content=reference.page(name)))
    for page in files.documentation_pages():
        if page.src_uri.startswith("tutorials/"):
            name = Path(page.src_uri).stem
            made = notebook(page.content_string, name=name)
            files.append(File.generated(config, f"tutorials/{name}.ipynb", content=made))
    files.append(File.generated(config, "assets/math.woff2", content=math_font()))
    return files


def math_font() -> bytes:
    """STIX Two Math, under the SIL Open Font License, as browsers read it; only pages with formulas load it."""
    with resources("ziamath").joinpath("fonts/STIXTwoMath-Regular.ttf").open("rb") as file:
        font, packed = TTFont(file), io.BytesIO()
        font.flavor = "woff2"
        font.save(packed)
    return packed.getvalue()


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Colour examples with prompts as such; link notebooks, and the list of all names to the reference."""
    page.meta["search"] = {"boost": next(more for start, more in BOOSTS if page.file.src_uri.startswith(start))}
    if page.file.src_uri == "api.md":
        markdown = linked_index(markdown)
    if page.file.src_uri.startswith("tutorials/"):
        title, rest = markdown.split("\n", 1)
        markdown = f"{title}\n\n[This page as a notebook]({Path(page.file.src_uri).stem}.ipynb)\n{rest}"
    return re.sub(r"^```python\n(?=>>>)", "```pycon\n", markdown, flags=re.M)


def linked_index(markdown: str) -> str:
    """docs/api.md, with a link from each name."""
    module, lines = "", []
    for line in markdown.splitlines():
        if line.startswith("## "):
            module = line[3:]
            line = f"## [{module}](reference/{module}.md)"
        elif (found := re.match(r"- `(\w+)`", line)) and f"{module}.{found[1]}" in PLACES:
            line = f"- [`{found[1]}`](reference/{module}.md#{found[1]}){line[found.end() :]}"
        lines.append(line)
    return "\n".join(lines)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Link names in code to the reference, and cited statements to the page of statements."""
    if page.file.src_uri == "theory.md":
        html = re.sub(r"<p><strong>(\d+\.\d+) ", r'<p id="s\1"><strong>\1 ', html)
    known = {file.src_uri for file in files.documentation_pages()}
    own = page.file.src_uri.removeprefix("reference/").removesuffix(".md")
    parts = re.split(r"(<pre.*?</pre>|<a .*?</a>|<h\d.*?</h\d>)", html, flags=re.S)
    parts[::2] = [linked(part, page.url, own, known) for part in parts[::2]]
    return "".join(parts)


NAV = (
    r'aria-labelledby="(__nav_[\d_]+)_label"'
    r'( aria-expanded="\w+">\s*<label class="md-nav__title" for="\1">.*?</span>\s*)'
    r"([^<]+?)(?=\s*</label>)"
)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Names for screen readers, where the theme has none."""
    output = output.replace('"search" role="dialog"', '"search" role="dialog" aria-label="Search"')
    return re.sub(NAV, r'aria-label="Pages: \3"\2\3', output, flags=re.S)


def linked(html: str, here: str, own: str, known: set[str]) -> str:
    """HTML outside of links, headings and blocks of code, with links."""

    def name(found: re.Match[str]) -> str:
        place = PLACES.get(f"{own}.{found[1]}") or ("." in found[1] and PLACES.get(found[1]))
        if not place or (place[0] == own and not place[1]):
            return found[0]
        return f'<a class="name" href="{get_relative_url(address(*place), here)}">{found[0]}</a>'

    def statement(found: re.Match[str]) -> str:
        target = get_relative_url("theory/", here)
        return "theory " + re.sub(
            r"\d+\.\d+", lambda number: f'<a href="{target}#s{number[0]}">{number[0]}</a>', found[1]
        )

    def proof(found: re.Match[str]) -> str:
        if f"{found[1]}.md" not in known:
            return found[0]
        return f'<a href="{get_relative_url(f"{found[1]}/", here)}">{found[0]}</a>'

    html = re.sub(r"<code>([\w.]+)(?:\([^<]*\))?</code>", name, html)
    parts = re.split(r"(<code>.*?</code>|<a .*?</a>)", html, flags=re.S)
    parts[::2] = [PROOF.sub(proof, STATEMENT.sub(statement, part)) for part in parts[::2]]
    return "".join(parts)
