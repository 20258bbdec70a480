"""What experiments share: pages in docs/experiments, with a table and a picture made from saved numbers."""

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs" / "experiments"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"


def insert(page: Path, text: str) -> None:
    """Put a table between the marks of a page that is there, or begin a page with it."""
    before, after = (page.read_text(encoding="utf-8") if page.is_file() else BEGIN + END + "\n").split(BEGIN)
    page.write_text(before + BEGIN + text + END + after.split(END)[1], encoding="utf-8")


def save(name: str, numbers: Any, table: str, picture: Any = None, out: Path = DOCS) -> None:
    """Write the numbers (NAME.json), the table into the page (NAME.md), and the picture (NAME.svg and NAME.png)."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
    insert(out / f"{name}.md", table)
    if picture is not None:
        picture.savefig(out / f"{name}.svg", metadata={"Date": None})
        picture.savefig(out / f"{name}.png", dpi=120)
