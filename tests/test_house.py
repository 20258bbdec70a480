"""The house: imports go down only, heavy libraries stay in their rooms, rooms stay small and documented."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "almoner"
FLOORS = {
    "errors": 0,
    "_arrays": 0,
    "_calendar": 0,
    "_check": 0,
    "_csv": 0,
    "_disk": 0,
    "_extras": 0,
    "_html": 0,
    "_intervals": 0,
    "_misfits": 0,
    "_private": 0,
    "_search": 0,
    "_spelling": 0,
    "_units": 0,
    "_audit_hook": 0,
    "_uncopyable": 0,
    "_workspace": 0,
    "mechanisms": 1,
    "noise": 1,
    "curves": 2,
    "notions": 3,
    "filters": 4,
    "odometers": 4,
    "accounting": 5,
    "individual": 6,
    "interop": 7,
    "ledger": 7,
    "queries": 8,
    "training": 8,
    "audit": 9,
    "report": 9,
    "service": 10,
    "cli": 11,
    "__main__": 12,
}
# on the ground floor, who may use whom
GROUND = {
    "_workspace": {"_check", "_disk", "_extras", "errors"},
    "_arrays": set(),
    "_check": {"errors"},
    "_units": {"errors"},
    "_uncopyable": {"errors"},
    "_csv": {"_extras", "_private", "errors"},
    "_disk": {"errors"},
    "_extras": {"errors"},
    "_html": {"errors"},
    "_misfits": {"_private", "errors"},
    "_private": set(),
    "_search": {"errors"},
    "_spelling": {"_check", "_workspace"},
    "_audit_hook": set(),
    "errors": set(),
}
HEAVY = {
    "torch": {"interop", "training"},
    "sklearn": {"training"},
    "pyarrow": {"_csv", "queries", "training"},
    "matplotlib": {"queries", "report"},
    "PIL": {"training"},
    "dp_accounting": {"interop"},
    "opendp": {"interop", "queries"},
    "opacus": {"interop"},
    "lightning": {"interop"},
    "duckdb": {"_workspace"},
    "psycopg": {"ledger"},
    "pyspark": {"queries"},
    "pandas": {"queries"},
    "starlette": {"service"},
    "uvicorn": {"service"},
    "typer": {"cli"},
    "rich": {"cli", "training"},
}
MODULES = sorted(SOURCE.rglob("*.py"))
each_module = pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(SOURCE)) for path in MODULES])


def room(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree):
    """Every module that a file imports, at any depth of the code, as dotted names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "almoner")


@each_module
def test_imports_go_down_only(path):
    """A room imports itself and lower floors; the front door only names its rooms."""
    here = room(path)
    if here == "__init__":
        return
    assert here in FLOORS, f"{here} has no floor yet"
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        parts = name.split(".")
        if parts[0] != "almoner" or len(parts) == 1 or parts[1] in (here, "__version__"):
            continue
        there = parts[1]
        assert FLOORS[there] < FLOORS[here] or there in GROUND.get(here, ()), f"{here} must not import {there}"


@each_module
def test_heavy_libraries_stay_in_their_rooms(path):
    """Optional libraries are imported only where they belong."""
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        top = name.split(".")[0]
        assert room(path) in HEAVY.get(top, {room(path)}), f"{top} does not belong into {room(path)}"


def test_import_loads_nothing_heavy():
    """`import almoner` loads none of the heavy libraries; nor do the accounting rooms load the extras."""
    heavy = {
        "torch",
        "sklearn",
        "duckdb",
        "pandas",
        "matplotlib",
        "PIL",
        "dp_accounting",
        "opacus",
        "lightning",
        "opendp",
        "pyarrow",
        "pyspark",
        "psycopg",
        "starlette",
        "uvicorn",
    }
    for code, more in (
        ("import almoner", {"numpy", "scipy", "typer", "rich"}),
        (
            "from almoner import filters, odometers, individual, accounting, curves; accounting.calibrate",
            {"typer", "rich"},
        ),
        ("import almoner.cli", set()),
    ):
        script = f"import sys; {code}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert not (heavy | more) & set(run.stdout.split()), code


@each_module
def test_modules_are_small_and_honest(path):
    """At most 400 lines, a docstring, a sorted __all__, no assert, no warning (but one), no print but in commands."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 400
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Assert)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            assert called != "warn" or path.name == "wrappers.py"  # what others do around an estimator is no error
            assert called != "print" or room(path) == "cli"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
            assert not body or body[-1].end_lineno - body[0].lineno < 40, f"{node.name} is too long"
    exported = [n for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__"]
    if any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in tree.body):
        assert exported, "__all__ is missing"
    for node in exported:
        names = ast.literal_eval(node.value)
        assert names == sorted(
            names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name)
        ) or names == sorted(names)


def dotted(path):
    """The name under which a file is imported."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {dotted(path): path for path in MODULES}


def internal(name):
    """Whether a dotted name has a part with an underscore, as modules and folders of one room alone have."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def imported_names(path):
    """Every dotted name that a file imports, with what it takes from it: `from a import b` gives a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(name):
    """The module that a dotted name lies in, or is."""
    while name not in NAMES:
        name = name.rpartition(".")[0]
    return name


@each_module
def test_rooms_do_not_reach_into_each_other(path):
    """What has an underscore is used in its own room alone; the ground floor serves all."""
    for name in imported_names(path):
        parts = name.split(".")
        if parts[0] == "almoner" and len(parts) > 2 and parts[1] != room(path):
            assert not internal(".".join(parts[2:])), f"{dotted(path)} reaches for {name}"


def test_no_module_imports_itself_in_a_circle():
    """Inside a room too, imports form no circle, wherever in the code they stand."""
    graph = {
        name: {module_of(each) for each in imported_names(path) if each.split(".")[0] == "almoner"} - {name, "almoner"}
        for name, path in NAMES.items()
    }
    while leaves := [name for name, used in graph.items() if not used & graph.keys()]:
        for name in leaves:
            del graph[name]
    while ends := [name for name in graph if not any(name in used for used in graph.values())]:
        for name in ends:
            del graph[name]
    assert not graph, f"a circle goes through {sorted(graph)}"


def documented():
    """The modules of docs/api.md."""
    page = (SOURCE.parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    return set(re.findall(r"^## (\S+)$", page, re.MULTILINE))


def test_public_modules_are_the_documented_ones():
    """A module without an underscore that offers names is in docs/api.md, and the page lists no other."""
    modules = [importlib.import_module(n) for n in NAMES if not internal(n) and n not in ("almoner", "almoner.cli")]
    offering = {
        module.__name__
        for module in modules
        if any(not inspect.ismodule(getattr(module, name)) for name in getattr(module, "__all__", ()))
    }
    assert documented() == offering


def test_public_modules_have_a_test_file_of_their_name():
    """A public module a/b.py is tested in tests/a/test_b.py, and a package in the folder of its name too."""
    tests = SOURCE.parents[1] / "tests"
    for name in documented():
        *rooms, last = name.split(".")[1:]
        file, folder = tests.joinpath(*rooms) / f"test_{last}.py", tests.joinpath(*rooms, last)
        package = NAMES[name].name == "__init__.py"
        assert file.exists() or (package and any(folder.glob("test_*.py"))), f"{name} has no {file.name}"


def test_contributing_lists_the_rooms():
    """The table of rooms in CONTRIBUTING.md has every room on its floor."""
    page = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    listed = {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed == FLOORS
    assert set(FLOORS) == {room(path) for path in MODULES} - {"__init__"}


def public(module_name):
    module = importlib.import_module(module_name)
    for name in getattr(module, "__all__", ()):
        yield name, getattr(module, name)


BOUNDS = [
    "almoner.curves.zcdp",
    "almoner.curves.gaussian",
    "almoner.curves.renyi",
    "almoner.curves.approximate",
    "almoner.curves.tradeoff",
    "almoner.curves.tuning",
    "almoner.filters",
    "almoner.odometers",
    "almoner.individual",
    "almoner.training.stopping",
]


# values that are no bounds, and the classes that all filters and odometers share
RECORDS = {
    ("almoner.curves.zcdp", "Zcdp"),
    ("almoner.curves.zcdp", "best_order"),
    ("almoner.curves.gaussian", "Gaussian"),
    ("almoner.curves.renyi", "Renyi"),
    ("almoner.curves.approximate", "Approximate"),
    ("almoner.curves.tradeoff", "Curve"),
    ("almoner.curves.tuning", "MISSED"),
    ("almoner.filters", "Filter"),
    ("almoner.odometers", "Odometer"),
    ("almoner.odometers", "Rounds"),
    ("almoner.individual", "BudgetStatement"),
    ("almoner.individual", "LossStatement"),
    ("almoner.individual", "Statement"),
    ("almoner.training.stopping", "ActiveAnswer"),
    ("almoner.training.stopping", "DropoutCount"),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_says_its_guarantee_and_source(name):
    """Every public function and class that states a bound carries both lines."""
    for each, thing in public(name):
        if inspect.isfunction(thing) or inspect.isclass(thing):
            text = inspect.getdoc(thing) or ""
            assert text, f"{name}.{each} has no docstring"
            if (name, each) not in RECORDS:
                assert "Guarantee:" in text, f"{name}.{each}"
                assert "Source:" in text, f"{name}.{each}"


def test_one_place_says_where_data_sets_are():
    """Tests look for data sets by ``data_folders`` alone, which skips them, with the reason, where one is absent."""
    tests = Path(__file__).parent
    found = {
        path.relative_to(tests).as_posix()
        for path in tests.rglob("*.py")
        if re.search(r"environ(\.get\(|\[)\s*.ALMONER_DATA|getenv\(\s*.ALMONER_DATA", path.read_text(encoding="utf-8"))
    }
    assert found == {"helpers/data_folders.py"}


def test_the_front_door_names_rooms_that_exist():
    """Every name in almoner.__all__ is a module that loads; unknown names fail like on any module."""
    almoner = importlib.import_module("almoner")
    for name in almoner.__all__:
        assert inspect.ismodule(getattr(almoner, name))
    assert set(almoner.__all__) <= set(dir(almoner))
    with pytest.raises(AttributeError, match="nothing"):
        _ = almoner.nothing
