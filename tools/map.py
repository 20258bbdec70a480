"""Draw the map of the house into CONTRIBUTING.md: each room on its floor, with the packages in it, one line each.

python tools/map.py

A line is the first one of the docstring of a package or module. Floors are those of tests/test_house.py, whose tests
keep imports to them.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "almoner"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- map: begin -->\n", "<!-- map: end -->"


def floors() -> dict[str, int]:
    """The floor of each room."""
    tree = ast.parse((ROOT / "tests" / "test_house.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FLOORS"
    )
    return ast.literal_eval(value)


def first_line(path: Path) -> str:
    """The first line of a module's docstring, or of a package's."""
    file = path / "__init__.py" if path.is_dir() else path
    text = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return text.replace("``", "`").replace(":mod:", "")


def packages(room: Path) -> Iterator[Path]:
    """The packages in a room, each before those in it."""
    return (
        file.parent for file in sorted(room.rglob("__init__.py"), key=lambda file: file.parent) if file.parent != room
    )


def lines() -> Iterator[str]:
    """The map, from the top floor down."""
    by_floor: dict[int, list[str]] = {}
    for room, floor in floors().items():
        by_floor.setdefault(floor, []).append(room)
    for floor in sorted(by_floor, reverse=True):
        for number, name in enumerate(sorted(by_floor[floor])):
            room = SOURCE / name if (SOURCE / name).is_dir() else SOURCE / f"{name}.py"
            yield f"{'' if number else floor:>2}  {name:<23} {first_line(room)}"
            for package in packages(room):
                depth = len(package.relative_to(room).parts)
                yield f"    {'  ' * depth + package.name:<23} {first_line(package)}"


def drawn(page: str) -> str:
    """The page with the map of today between its marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "```text\n" + "\n".join(lines()) + "\n```\n" + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
