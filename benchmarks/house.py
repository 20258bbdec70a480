"""How readable the code is: sizes, annotations that say nothing, tests by name, calls between modules. Prints a table.

python benchmarks/house.py [ROOT ...] [--json FILE]     # a column for each checkout; default: the one this file is in

A reader follows code through modules and functions, trusts annotations, and looks for a test by its name. A checkout is
any that has one package below src, whatever its name; what an older one cannot do is told in the table. This counts:

Sizes       lines of all modules, and of each room; a function's body without its docstring, blank lines and comments
            included.
Any         annotated parameters (without self, cls, *args and **kwargs) and returns that are exactly `Any`, or a name
            that means `Any` in that module (`Array = Any`, also where it is imported from another module).
Tests       `a/b/_name.py` has a test of its name if there is a `test_name.py` anywhere below tests; a package needs
            `test_package.py`. Distinct names count `gaussian.py` of two packages once and leave packages out.
Journeys    calls of Python functions from one module into another, each in a fresh process. A call belongs to the
            nearest caller in the package, through other libraries too; code that Python generates belongs to the
            module of its class. Imports on the way count. Modules are those whose written code runs.
"""

import argparse
import ast
import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any

LONG = 40  # lines of a body
STEPS = 10  # of the shorter training
PACKAGE = os.environ.get("HOUSE_PACKAGE", "almoner")  # that the journeys go through

Row = dict[str, float | str]
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """The parsed modules of a checkout."""

    def __init__(self, root: Path) -> None:
        packages = [path.parent for path in (root / "src").glob("*/__init__.py")]
        if len(packages) != 1:
            raise SystemExit(f"{root / 'src'} has {len(packages)} packages, and must have one")
        (self.package,) = packages
        self.paths = sorted(self.package.rglob("*.py"))
        self.texts = [path.read_text(encoding="utf-8") for path in self.paths]
        self.parts = [self._parts(path) for path in self.paths]
        names = (".".join((self.package.name, *parts)) for parts in self.parts)
        self.trees = {name: ast.parse(text) for name, text in zip(names, self.texts, strict=True)}

    def _parts(self, path: Path) -> tuple[str, ...]:
        """A module's dotted name below the package; a package has its folder's."""
        parts = path.relative_to(self.package).with_suffix("").parts
        return parts[:-1] if parts[-1] == "__init__" else parts


def functions(tree: ast.Module) -> Iterator[Function]:
    """All functions of a module, nested ones and methods too."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def body_lines(function: Function) -> int:
    """Lines of a function's body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def sizes(source: Source) -> Row:
    """How long modules and functions are."""
    modules = [len(text.splitlines()) for text in source.texts]
    bodies = [body_lines(function) for tree in source.trees.values() for function in functions(tree)]
    return {
        "lines": sum(modules),
        **room_lines(source),
        "modules": len(modules),
        "lines of a module, median": median(modules),
        "lines of a module, most": max(modules),
        "lines of a function, median": median(bodies),
        "lines of a function, most": max(bodies),
        f"functions over {LONG} lines": sum(lines > LONG for lines in bodies),
    }


def room_lines(source: Source) -> Row:
    """The lines of each room that is a folder, and of the modules beside them."""
    lines: Counter[str] = Counter()
    for text, parts in zip(source.texts, source.parts, strict=True):
        room = parts[0] if parts and (source.package / parts[0]).is_dir() else "modules beside the rooms"
        lines[room] += len(text.splitlines())
    return {f"lines, {room}": count for room, count in sorted(lines.items())}


def meaning_any(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The names that mean Any in each module; repeated until no import adds one."""
    names = {module: {"Any", "typing.Any"} for module in trees}
    before = -1
    while before != sum(map(len, names.values())):
        before = sum(map(len, names.values()))
        for module, tree in trees.items():
            names[module] |= assigned(tree, names[module]) | imported(tree, names)
    return names


def assigned(tree: ast.Module, names: set[str]) -> set[str]:
    """The names that a module gives to Any."""
    nodes = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    aliases = [node for node in nodes if node.value is not None and ast.unparse(node.value) in names]
    targets = [target for node in aliases for target in getattr(node, "targets", [getattr(node, "target", None)])]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def imported(tree: ast.Module, names: dict[str, set[str]]) -> set[str]:
    """The names for Any that a module takes from others, alone or as `module.name`."""
    local_names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                here = alias.asname or alias.name
                local_names |= {here} if alias.name in names.get(node.module, ()) else set()
                local_names |= {
                    f"{here}.{name}" for name in names.get(f"{node.module}.{alias.name}", ()) if "." not in name
                }
    return local_names


def annotations(function: Function) -> list[str]:
    """The annotations of a function's parameters and return, as text."""
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    nodes = [parameter.annotation for parameter in parameters if parameter.arg not in ("self", "cls")]
    return [ast.unparse(node).strip("'") for node in (*nodes, function.returns) if node is not None]


def bare_any(source: Source) -> Row:
    """The share of annotations that say nothing, in all and by room."""
    names = meaning_any(source.trees)
    bare, every = Counter(), Counter()
    for (module, tree), parts in zip(source.trees.items(), source.parts, strict=True):
        texts = [each for function in functions(tree) for each in annotations(function)]
        hits = sum(each in names[module] for each in texts)
        for room in ("all", *parts[:1]):
            bare[room] += hits
            every[room] += len(texts)
    rooms = ["all", *sorted(room for room in every if (source.package / room).is_dir())]
    return {f"bare Any, {room}": f"{bare[room] / every[room]:.1%} ({bare[room]} of {every[room]})" for room in rooms}


def tests_by_name(source: Source, root: Path) -> Row:
    """How many modules have a test file of their name."""
    tested = {path.stem.removeprefix("test_") for path in (root / "tests").rglob("test_*.py")}
    pairs = list(zip(source.paths, source.parts, strict=True))
    files = [parts for path, parts in pairs if path.stem != "__init__"]
    kinds = {
        "modules and packages": [parts or (source.package.name,) for _, parts in pairs],
        "modules": files,
        "public modules": [parts for parts in files if not any(part.startswith("_") for part in parts)],
        "distinct names": {(parts[-1].lstrip("_"),) for parts in files},
    }
    counts = {kind: sum(parts[-1].lstrip("_") in tested for parts in each) for kind, each in kinds.items()}
    return {f"test of its name, {kind}": f"{counts[kind]} of {len(each)}" for kind, each in kinds.items()}


class Calls:
    """Counts calls of functions of the package while it is open."""

    def __init__(self) -> None:
        self.between: Counter[tuple[str, str]] = Counter()
        self.frames: Counter[str] = Counter()

    def __enter__(self) -> "Calls":
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        callee = module_of(frame)
        if event != "call" or callee is None:
            return
        self.frames[callee] += is_written(frame.f_code)
        above = frame.f_back
        while above is not None and module_of(above) is None:
            above = above.f_back
        if above is not None and module_of(above) != callee:
            self.between[module_of(above), callee] += 1

    def minus(self, other: "Calls") -> "Calls":
        """What happened here and not in the other."""
        rest = Calls()
        rest.between, rest.frames = self.between - other.between, self.frames - other.frames
        return rest

    def row(self, name: str) -> Row:
        """Calls and modules, as rows of the table."""
        modules = sum(count > 0 for count in self.frames.values())
        return {f"{name}, calls": self.between.total(), f"{name}, modules": modules}


def module_of(frame: FrameType) -> str | None:
    """The module of the package that a frame belongs to."""
    name = frame.f_globals.get("__name__") or ""
    return name if name == PACKAGE or name.startswith(f"{PACKAGE}.") else None


def is_written(code: CodeType) -> bool:
    """Whether this code was written by hand, and not generated by Python for a dataclass."""
    return not code.co_filename.startswith("<")


def room(name: str) -> Any:
    """A room of the package."""
    return importlib.import_module(f"{PACKAGE}.{name}")


def norms_into_accounts() -> Row:
    """Norms of three people into a filter per person, for a cheap budget and for a Rényi budget."""
    import numpy as np

    filters, individual, mechanisms = room("filters"), room("individual"), room("mechanisms")
    step, norms, row = mechanisms.Gaussian(10.0, sensitivity=2.0), np.array([2.0, 0.5, 0.0]), {}
    for kind in (filters.Gaussian, filters.Renyi):
        people = individual.Filter(3, kind(epsilon=1.0, delta=1e-6))
        for when in ("first", "second"):
            with Calls() as calls:
                people.charge(step, norms)
            row |= calls.row(f"charge, {kind.__name__}, {when} step")
    return row


def a_question() -> Row:
    """The first question about a table of 400 people, and one more of its kind."""
    import pyarrow as pa

    filters, queries = room("filters"), room("queries")
    visits = pa.table({"patient": [k % 400 for k in range(3000)], "hours": [k % 50 / 2 for k in range(3000)]})
    budget, row = filters.Zcdp(epsilon=2.0, delta=1e-6), {}
    with (
        tempfile.TemporaryDirectory() as folder,
        queries.Session.open(
            visits, person="patient", budget=budget, ledger=f"{folder}/ledger", create=True
        ) as session,
    ):
        ann = session.analyst("ann")
        mean = queries.Mean("hours", per="row", low=0, high=24, clip=8, sigma=60.0)
        for when in ("first", "second"):
            with Calls() as calls:
                ann.ask(mean, key=when)
            row |= calls.row(f"ask, {when} question")
            row[f"ask, {when} question, queries and ledger"] = crossings(calls, {"queries", "ledger"})
    return row


def crossings(calls: Calls, rooms: set[str]) -> int:
    """Calls from one of two rooms into the other, in both directions."""
    pairs = ((count, {name.split(".")[1] for name in pair if "." in name}) for pair, count in calls.between.items())
    return sum(count for count, crossed in pairs if crossed == rooms)


def a_step_of_training() -> Row:
    """One step more of a training that runs, and all that is outside of its steps."""
    trained(1)  # fills the caches
    shorter, longer = trained(STEPS), trained(STEPS + 1)
    step = longer.minus(shorter)
    outside = shorter.between.total() - STEPS * step.between.total()
    return {**step.row("fit, one step"), "fit, outside of steps, calls": outside}


def trained(steps: int) -> Calls:
    """The calls of a training of one linear layer, with everybody in every step."""
    import torch

    filters, trainer_class = room("filters"), room("training").Trainer
    records = torch.randn(400, 10, generator=torch.Generator().manual_seed(0))
    module = torch.nn.Linear(10, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    budget = filters.Gaussian(epsilon=1.0, delta=1e-6)
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    trainer = trainer_class(module, loss, optimizer, budget, max_grad_norm=1.0, divisor=400, steps=steps)
    with Calls() as calls:
        trainer.fit(records, (records[:, 0] > 0).long())
    return calls


def the_command() -> Row:
    """The command `epsilon`, by the first spelling of its noise that it takes."""
    app, _ = room("cli").app, room("mechanisms")  # loading is not the journey
    for noise in ("--noise-multiplier", "--sigma"):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), Calls() as calls:
            try:
                app(["epsilon", noise, "20", "--steps", "100"])
            except SystemExit as end:
                if not end.code:
                    return calls.row("epsilon")
    raise SystemExit(said.getvalue().strip())


JOURNEYS: dict[str, Callable[[], Row]] = {
    "charge": norms_into_accounts,
    "ask": a_question,
    "fit": a_step_of_training,
    "epsilon": the_command,
}


def journey(name: str) -> Row:
    """The rows of one journey, or why this checkout cannot be measured on it."""
    try:
        return JOURNEYS[name]()
    except (Exception, SystemExit) as error:  # an older checkout: other names, other parameters
        return {f"{name}, not measured": f"{type(error).__name__}: {error}".splitlines()[0]}


def journeys(source: Source) -> Row:
    """The rows of all journeys, each from a process of its own."""
    here = {"PYTHONPATH": str(source.package.parent), "HOUSE_PACKAGE": source.package.name}
    row, environment = {}, {**os.environ, **here}
    for name in JOURNEYS:
        command = [sys.executable, "-P", __file__, "--journey", name]  # -P: files beside this one are no modules
        run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        row |= json.loads(run.stdout)
    return row


def measured(root: Path) -> Row:
    """All rows of a checkout."""
    source = Source(root)
    return sizes(source) | bare_any(source) | tests_by_name(source, root) | journeys(source)


def cell(value: float | str) -> str:
    """A value as the table shows it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def show(columns: dict[str, Row]) -> None:
    """Print a table in Markdown, with a dash for what a checkout does not have."""
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = ([name, *(cell(each.get(name, "-")) for each in columns.values())] for name in names)
    table = [["", *columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    table.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    for first, *others in table:
        cells = [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True))]
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Measure each checkout, print, and save where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", nargs="*", type=Path, default=[Path(__file__).resolve().parents[1]], metavar="ROOT")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--journey", choices=JOURNEYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.journey:
        print(json.dumps(journey(options.journey)))
        return
    columns = {str(root): measured(root.resolve()) for root in options.roots}
    show(columns)
    if options.json:
        options.json.write_text(json.dumps(columns, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
