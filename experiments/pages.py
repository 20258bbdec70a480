"""What experiments share: pages in docs/experiments, with a table and a picture made from saved numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from almoner.report import figures

DOCS = Path(__file__).parents[1] / "docs" / "experiments"
RESULTS = Path(__file__).parent / "results"
"""Recorded runs, as programs wrote them; the numbers that a page is made from are beside the page."""


def results(out: Path) -> Path:
    """The folder of the runs behind the pages in ``out``: RESULTS for those of the docs, else ``out`` itself."""
    return RESULTS if out == DOCS else out


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"


def marked(page: Path, name: str) -> bool:
    """Whether a page has a place for the table of that name."""
    return _marks(name)[0] in page.read_text(encoding="utf-8")


def insert(page: Path, text: str, name: str = "table") -> None:
    """Put a table between the marks of that name on a page that is there, or begin a page with it."""
    begin, end = _marks(name)
    before, after = (page.read_text(encoding="utf-8") if page.is_file() else begin + end + "\n").split(begin)
    page.write_text(before + begin + text + end + after.split(end, 1)[1], encoding="utf-8")


def half_width(values: Any) -> Any:
    """Half the width of the 95 % interval of the mean over the first axis, by Student's t; infinite for one value."""
    if len(values) < 2:
        return np.full(np.shape(values)[1:], np.inf)
    return stats.t.ppf(0.975, len(values) - 1) * np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


def interval(values: Any) -> str:
    """The mean of numbers, one for each seed, with its 95 % interval; one number alone; nothing for none."""
    if len(values) < 2:
        return "".join(f"{value:+.2f}" for value in values)
    mean, half = np.mean(values), half_width(values)
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def save(name: str, numbers: Any, table: str, picture: Any = None, out: Path = DOCS) -> None:
    """Write the numbers (NAME.json), the table into the page (NAME.md), and the picture (NAME.svg and NAME.png)."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
    insert(out / f"{name}.md", table)
    if picture is not None:
        save_picture(picture, name, out)


def save_picture(picture: Any, name: str, out: Path = DOCS) -> None:
    """Write a picture as NAME.svg and NAME.png."""
    for ending in ("svg", "png"):
        figures.save(picture, out / f"{name}.{ending}")
