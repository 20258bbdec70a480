"""Draws docs/training/step.svg from the code: the order of what a step does, as ``Run.take`` and the books do it.

A call that is in the code and not in the picture is refused, and a test compares the picture with the code.
"""

import ast
import importlib
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

Read = Callable[[str], str]

RUN, BOOKS, STREAM = (f"almoner.training.{name}" for name in ("_run.run", "_run.books", "_on_ledger"))
UPDATES = "almoner.ledger._consumer"
PLACES = {
    "Run.go": RUN,
    "Run.take": RUN,
    "Run.follow": RUN,
    "MemoryBook.release": BOOKS,
    "MemoryBook.open": BOOKS,
    "LedgerBook.release": BOOKS,
    "LedgerStream.release": STREAM,
    "Consumer.update": UPDATES,
    "Stream.update": "almoner.training._stream",
}
"""Where each function is."""

INSIDE = {"self.take": "Run.take", "run.take": "Run.take", "self.follow": "Run.follow", "self.open": "MemoryBook.open"}
"""Calls that are looked into, and the functions that they are of."""
LEDGER = {
    "self.book.release": "LedgerBook.release",
    "self._stream.release": "LedgerStream.release",
    "self._stream.update": "Consumer.update",
    "once": "Consumer.update.once",
    "Consumer.update.once: contribute": "LedgerStream.release.charged",
    "LedgerStream.release.charged: contribute": "LedgerBook.release.again",
    "with_people(charge)": "Consumer.update.once.charge",
    "release": "LedgerStream.release.drawn",
    "LedgerStream.release.drawn: publish": "LedgerBook.release.drawn",
    "keep": "LedgerBook.release.keep",
}
MEMORY = {"self.book.release": "MemoryBook.release"}

BOXES = {
    "turnouts": ("Source: who is there", "private", "run"),
    "self.check": ("Book: has the release a price?", "if not: an error, and nobody is charged", "book"),
    "self.folder.announce": ("Folder: announced in journal.jsonl", "from now on it counts as spent", "disk"),
    "with_people(left)": ("Ledger: what can each person still pay?", "read; nothing is written", "disk"),
    "contribute": ("Sampling: people pay; clipped sum", "charged in memory; who is not in the step pays 0", "sampling"),
    "transaction.admit": ("Ledger: the charges fit", "in one transaction, if nobody wrote meanwhile", "disk"),
    "self.record": ("Book: bounds and losses are told", "and the release is counted for the card", "book"),
    "publish": ("Noise is drawn: the audit's hook", "sees the exact sum; what leaves is public", "noise"),
    "self.folder.keep": ("Folder: update.npz, the noisy sum", "nothing of it is told yet", "disk"),
    "transaction.settle": ("Ledger: everybody is charged", "charges and record are one transaction", "disk"),
    "self.model.step": ("Model: one step", "along the noisy sum over the divisor", "model"),
    "self.sampling.released": ("Sampling: the step is counted", "here alone its own state changes", "sampling"),
    "after": ("Callbacks look at the run", "they see public things alone", "run"),
    "saves.after": ("Folder: state.npz, if it is time", "accounts, model, optimizer, sampling", "disk"),
    "run.save": ("Folder: state.npz", "bounds, model, optimizer, sampling", "disk"),
}
"""Calls that are drawn: the line, a note, and whose it is."""

SILENT = {
    "step", "list", "len", "isinstance", "join_new", "Everybody", "Opened", "self.folder.check_ids", "rows.part",
    "self.before", "self.current.update", "self.current.value.reason", "Unsupported", "ArgumentError",
    "self._process.check", "opened.refuse_unpaid",
}  # fmt: skip
"""Calls within the strict functions that the picture leaves out."""
STRICT = {"Run.take", "Run.follow", "MemoryBook.release", "MemoryBook.open", "LedgerBook.release"}
"""Functions in which every call must be known."""

COLOURS = {
    "run": "#f3f4f6",
    "book": "#dbeafe",
    "sampling": "#dcfce7",
    "noise": "#fde68a",
    "model": "#ede9fe",
    "disk": "#fee2e2",
}


def read(module: str) -> str:
    """The source of a module."""
    return Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8")


def function(name: str, source: Read) -> Any:
    """A function of a class, or one inside of it."""
    place = next(each for each in PLACES if name == each or name.startswith(f"{each}."))
    node: Any = ast.parse(source(PLACES[place]))
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef)
        node = next(each for each in ast.walk(node) if isinstance(each, kinds) and each.name == part)
    return node


def calls(node: ast.AST) -> Iterator[str]:
    """The calls below a node in the order in which they are made; functions inside are not looked into."""
    if isinstance(node, ast.Lambda | ast.FunctionDef):
        return
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Name):
        yield node.iter.id
    for child in ast.iter_child_nodes(node):
        yield from calls(child)
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        yield f"{name}({ast.unparse(node.args[-1])})" if name == "with_people" else name


def moments(first: str, inside: dict[str, str], source: Read = read) -> list[str]:
    """The calls that are drawn, in their order, from a function on.

    Raises:
        ValueError: a call that the picture does not know.
    """
    inside, found = INSIDE | inside, []
    for statement in function(first, source).body:
        for call in calls(statement):
            further = inside.get(f"{first}: {call}", inside.get(call))
            if further is not None:
                found += moments(further, inside, source)
            elif call in BOXES:
                found.append(call)
            elif first in STRICT and call not in SILENT:
                raise ValueError(f"{first} calls {call}: draw it in docs/step.py, or say there that it is left out")
    return found


def columns(source: Read = read) -> dict[str, list[str]]:
    """The two pictures: accounts of the run's own, and a stream on a ledger."""
    loop = moments("Run.go", MEMORY, source)
    return {
        "Accounts of its own": loop[loop.index("turnouts") : loop.index("saves.after") + 1],
        "A stream on a ledger": ["turnouts", *moments("Stream.update", LEDGER, source)],
    }


def svg(source: Read = read) -> str:
    """The picture."""
    width, height, gap, top, drawn = 350, 46, 14, 44, columns(source)
    tall = top + (height + gap) * max(map(len, drawn.values())) + 6
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * width + 60} {tall}" font-family="sans-serif">',
        "<title>How a step happens, from the source of people to the folder</title>",
        f'<rect width="{2 * width + 60}" height="{tall}" fill="white"/>',
    ]
    for column, (title, names) in enumerate(drawn.items()):
        x = 20 + column * (width + 20)
        lines.append(f'<text x="{x + width / 2:g}" y="28" text-anchor="middle" font-weight="bold">{title}</text>')
        for number, name in enumerate(names):
            (what, note, kind), y = BOXES[name], top + number * (height + gap)
            lines += [
                f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" '
                f'fill="{COLOURS[kind]}" stroke="#555"/>',
                f'<text x="{x + 12}" y="{y + 19}" font-size="15">{escape(what)}</text>',
                f'<text x="{x + 12}" y="{y + 37}" font-size="12" fill="#444">{escape(note)}</text>',
            ]
            if number:
                middle = x + width // 2
                lines.append(f'<path d="M{middle} {y - gap + 1}v{gap - 2}m-4-5l4 5l4-5" fill="none" stroke="#555"/>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    (Path(__file__).parent / "training" / "step.svg").write_text(svg(), encoding="utf-8")
