"""The house: imports go down only, heavy libraries stay in their rooms, packages are few and documented."""

import ast
import importlib
import inspect
import re
import runpy
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "almoner"
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
    "_reading": 0,
    "_search": 0,
    "_spelling": 0,
    "_tokens": 0,
    "_units": 0,
    "_audit_hook": 0,
    "_uncopyable": 0,
    "_workspace": 0,
    "mechanisms": 1,
    "noise": 1,
    "curves": 2,
    "_notions": 3,
    "filters": 4,
    "odometers": 4,
    "accounting": 5,
    "individual": 6,
    "interop": 9,
    "ledger": 7,
    "queries": 8,
    "training": 8,
    "audit": 9,
    "client": 9,
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
    "_html": {"_private", "_units"},
    "_misfits": {"_private", "errors"},
    "_private": set(),
    "_reading": {"_check", "errors"},
    "_search": {"errors"},
    "_spelling": {"_check", "_workspace"},
    "_audit_hook": set(),
    "_tokens": set(),
    "errors": set(),
}
HEAVY = {
    "torch": {"interop", "training"},
    "sklearn": {"training"},
    "pyarrow": {"_csv", "queries", "training"},
    "matplotlib": {"queries", "report"},
    "dp_accounting": {"interop"},
    "opendp": {"interop", "queries"},
    "opacus": {"interop"},
    "lightning": {"interop"},
    "transformers": {"interop"},
    "duckdb": {"_workspace"},
    "psycopg": {"ledger"},
    "pyspark": {"queries"},
    "pandas": {"queries"},
    "pydantic": {"_reading"},
    "httpx2": {"client", "service"},
    "joserfc": {"service"},
    "itsdangerous": {"service"},
    "prometheus_client": {"service"},
    "starlette": {"service"},
    "uvicorn": {"service"},
    "jinja2": {"_html"},
    "typer": {"cli"},
    "rich": {"cli", "training"},
}
LINES = 600
"""A module may have so many, if it is one thing."""
THINGS = 20
"""A level has so many modules and packages. The ground floor, whose names have an underscore, is counted by itself."""
LEAST_LINES = 60
"""A module that one other module imports alone has so many, or a reason in ALONE."""
ALONE = {}
"""Modules that are small and imported by one other module, and why they are files of their own."""
PARAMETERS = 12
"""A function takes so many, or is in MANY."""
MANY: dict[str, int] = {}
"""Functions that take more parameters, and how many; these numbers may only fall."""
CHARGING = 3
"""Classes of training that have a method ``charge(self, step, ...)``."""
SIZES = {"": 57_999, "_templates": 777, "queries": 11_165, "ledger": 4_785, "service": 3_767, "training": 13_563}
"""Lines of all modules, of the templates of pages, and of some rooms; they may only fall."""
TRAINING_MODULES = 49
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
MODULES = sorted(SOURCE.rglob("*.py"))
each_module = pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(SOURCE)) for path in MODULES])


@cache
def parsed(path):
    """The tree of a file, read once."""
    return ast.parse(path.read_text(encoding="utf-8"))


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
    for name in imported(parsed(path)):
        parts = name.split(".")
        if parts[0] != "almoner" or len(parts) == 1 or parts[1] in (here, "__version__"):
            continue
        there = parts[1]
        assert FLOORS[there] < FLOORS[here] or there in GROUND.get(here, ()), f"{here} must not import {there}"


@each_module
def test_heavy_libraries_stay_in_their_rooms(path):
    """Optional libraries are imported only where they belong."""
    for name in imported(parsed(path)):
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
        "pydantic",
        "httpx2",
        "itsdangerous",
        "prometheus_client",
        "starlette",
        "uvicorn",
        "jinja2",
    }
    for code, more in (
        ("import almoner", {"numpy", "scipy", "typer", "rich"}),
        (
            "from almoner import filters, odometers, individual, accounting, curves; accounting.calibrate",
            {"typer", "rich"},
        ),
        ("import almoner.cli", {"numpy", "scipy", "rich"}),  # what prints a help
    ):
        script = f"import sys; {code}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert not (heavy | more) & set(run.stdout.split()), code


@each_module
def test_modules_are_small_and_honest(path):
    """At most 600 lines, a docstring, a sorted __all__ if public; no assert, no warning but one, print in cli alone."""
    text = path.read_text(encoding="utf-8")
    tree = parsed(path)
    assert len(text.splitlines()) <= LINES
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Assert)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            may_warn = path.name in ("wrappers.py", "_self_check.py")  # of what others do, and of what is slow
            assert called != "warn" or may_warn
            assert called != "print" or room(path) == "cli"
        if isinstance(node, FUNCTION):
            body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
            assert not body or body[-1].end_lineno - body[0].lineno < 40, f"{node.name} is too long"
    exported = [n for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__"]
    public = not any(part.startswith("_") for part in dotted(path).split("."))
    if public and any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in tree.body):
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
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(name):
    """The module that a dotted name lies in, or is."""
    while name not in NAMES:
        name = name.rpartition(".")[0]
    return name


ENGINES = {
    "curves._loss_grid": {"accounting"},
    "curves._residue": {"_notions", "filters", "odometers"},
    "curves._totals": {"accounting", "cli", "interop"},
    "curves.planned._anytime": {"odometers"},
    "curves.planned._prices": {"odometers"},
    "curves.planned._table": {"_notions", "individual"},
    "ledger._accounts.tables": {"queries"},
    "ledger._payment": {"queries"},
}
"""Modules that compute for the rooms above and that no user needs: they alone are used by other rooms, these."""


def test_rooms_do_not_reach_into_each_other():
    """What has an underscore is used in its own room alone, but for ENGINES; the ground floor serves all."""
    reached = {}
    for path in MODULES:
        for name in imported_names(path):
            parts = name.split(".")
            foreign = parts[0] == "almoner" and len(parts) > 2 and parts[1] != room(path)
            if foreign and internal(".".join(parts[2:])):
                reached.setdefault(module_of(name).removeprefix("almoner."), set()).add(room(path))
    assert reached == ENGINES


PLUGINS = ("almoner.queries.spark",)
"""Packages that use public names of the others alone, as one of another author would, and that nobody imports."""


@pytest.mark.parametrize("plugin", PLUGINS)
def test_plugins_use_public_names_alone(plugin):
    """They import no module with an underscore, and no name that is not in its module's __all__."""
    for name in (each for each in NAMES if each == plugin or each.startswith(f"{plugin}.")):
        for each in imported_names(NAMES[name]):
            if each.split(".")[0] == "almoner" and not each.startswith(f"{plugin}."):
                module = module_of(each)
                assert not internal(each), f"{name} imports {each}"
                assert each == module or each.removeprefix(f"{module}.") in importlib.import_module(module).__all__
    users = {name for name in NAMES if not name.startswith(plugin) and plugin in imported_modules(name)}
    assert users == set()


@cache
def imported_modules(name):
    """The modules of the project that a module imports."""
    return {module_of(each) for each in imported_names(NAMES[name]) if each.split(".")[0] == "almoner"} - {name}


def acyclic(graph):
    """Take away what is in no circle; what is left is empty, or goes round."""
    graph = {name: set(used) for name, used in graph.items()}
    while ends := [
        name for name, used in graph.items() if not used & graph.keys() or not any(name in u for u in graph.values())
    ]:
        for name in ends:
            del graph[name]
    return sorted(graph)


@cache
def levels():
    """Every package, and what each module or package directly in it imports of the others there."""
    found = {}
    for name in NAMES:
        parts = name.split(".")
        for depth in range(1, len(parts)):
            below = found.setdefault(".".join(parts[:depth]), {}).setdefault(parts[depth], set())
            for other in imported_modules(name):
                there = other.split(".")
                if there[:depth] == parts[:depth] and len(there) > depth and there[depth] != parts[depth]:
                    below.add(there[depth])
    return found


def called(name, tree, within=""):
    """The functions of a file that use a function of a module, or import it."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, FUNCTION) else within
        module, _, function = name.rpartition(".")
        by_name = isinstance(node, ast.Attribute) and node.attr == function and ast.unparse(node.value).endswith(module)
        taken = isinstance(node, ast.ImportFrom) and str(node.module).endswith(module)
        if by_name or (taken and any(each.name == function for each in node.names)):
            yield inside
        yield from called(name, node, inside)


@pytest.mark.parametrize(
    ("function", "place"), [("released", ("_run/books.py", "publish")), ("coins", ("_run/samplings.py", "contribute"))]
)
def test_training_calls_the_hook_of_audits_in_one_place(function, place):
    """Whatever a training releases passes ``publish``, and whoever is sampled is drawn in ``Poisson.contribute``."""
    training = SOURCE / "training"
    found = [
        (path.relative_to(training).as_posix(), each)
        for path in sorted(training.rglob("*.py"))
        for each in called(f"_audit_hook.{function}", parsed(path))
    ]
    assert found == [place]


def test_no_package_imports_in_a_circle():
    """At each level, what is imported between modules and packages goes one way."""
    circles = {package: acyclic(graph) for package, graph in levels().items()}
    assert not {package: circle for package, circle in circles.items() if circle}


def test_no_module_imports_the_package_that_it_is_in():
    """What a package offers is imported by others; its own modules take it from where it is."""
    reached = {(name, each) for name in NAMES for each in imported_modules(name) if name.startswith(f"{each}.")}
    assert {(name, each) for name, each in reached if each != "almoner"} == set()


def test_levels_are_small():
    """At most 20 modules and packages stand beside each other."""
    sizes = {package: len(below) for package, below in levels().items() if package != "almoner"}
    rooms = [name for name in levels()["almoner"] if name.startswith("__") or not name.startswith("_")]
    assert len(rooms) <= THINGS
    assert {package: size for package, size in sizes.items() if size > THINGS} == {}


def test_small_modules_for_one_other_have_a_reason():
    """What one other module uses alone is part of it, unless it is large or ALONE says why."""
    users = Counter(each for name in NAMES for each in imported_modules(name))
    found = {
        name.removeprefix("almoner.")
        for name, path in NAMES.items()
        if users[name] == 1 and path.name != "__init__.py"
        if len(path.read_text(encoding="utf-8").splitlines()) < LEAST_LINES
    }
    assert found == ALONE.keys()


def test_training_has_one_of_each():
    """Three samplings alone are charged for as a step, one function fills a card, and books alone release anything."""
    charging, cards, released = set(), [], set()
    for path in sorted((SOURCE / "training").rglob("*.py")):
        name = str(path.relative_to(SOURCE / "training").with_suffix(""))
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                defined = {each.name: each for each in node.body if isinstance(each, FUNCTION)}
                if "charge" in defined and [each.arg for each in defined["charge"].args.args][1:2] == ["step"]:
                    charging.add(node.name)
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).split(".")[-1]
                cards += [name] if called == "build_card" else []
                released |= {name} if ast.unparse(node.func) == "_audit_hook.released" else set()
    assert (len(charging) <= CHARGING, cards, released) == (True, ["_run/settings"], {"_run/books"})


@pytest.mark.parametrize("room", SIZES)
def test_rooms_stay_small(room):
    """Lines of all modules, of what pages are made of, and of some rooms with both; these numbers may only fall."""
    kinds = {".py", ".html", ".css", ".sql"} if room else {".py"}
    paths = [path for path in (SOURCE / room).rglob("*") if path.suffix in kinds]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths) <= SIZES[room]


def test_training_has_few_modules():
    """Modules of the room, with its images; the number may only fall."""
    assert len(list((SOURCE / "training").rglob("*.py"))) <= TRAINING_MODULES


def test_functions_take_few_parameters():
    """At most 12, without self and cls; the exceptions are listed with how many they take."""
    found = {}
    for name, path in NAMES.items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, FUNCTION):
                every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(each.arg not in ("self", "cls") for each in every)
                if count > PARAMETERS:
                    found[f"{name.removeprefix('almoner.')}.{node.name}"] = count
    assert found == MANY


@each_module
def test_docstrings_begin_with_a_verb_or_a_noun(path):
    """The first word is none that hangs on a sentence before: never what, whether, how, the same, those, that."""
    tree = parsed(path)
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]  # of functions, classes and fields
    texts = [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    assert [text for text in texts if re.match(r"\s*(What|Whether|How|The same|Those|That)\b", text)] == []


def test_slow_tests_are_there():
    """Tests that the quick suite leaves out by name are there, so that nothing new hides behind an old name."""
    tool = runpy.run_path(str(SOURCE.parents[1] / "tools" / "slow_tests.py"))
    assert [test for test in sorted(tool["listed"]()) if tool["gone"](test)] == []


def test_every_test_has_a_sentence():
    """Each test says in a docstring what it shows."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, FUNCTION) and node.name.startswith("test_"):
                assert ast.get_docstring(node), f"{path.relative_to(TESTS)}::{node.name}"


def test_tests_mirror_the_packages():
    """A test file with the name of a module lies where the module lies; folders without underscores."""
    places = {}
    for name in NAMES:
        *folders, last = (part.lstrip("_") for part in name.split(".")[1:] or [""])
        places.setdefault(last, set()).add("/".join(folders))
    astray = set()
    for path in sorted(TESTS.rglob("test_*.py")):
        folder = path.parent.relative_to(TESTS).as_posix().removeprefix(".")
        there = {
            place
            for place in places.get(path.stem.removeprefix("test_"), ())
            if place.split("/")[0] == folder.split("/")[0]
        }
        if there and folder not in there:
            astray.add(path.relative_to(TESTS).as_posix())
    assert astray == set()


def test_no_module_imports_itself_in_a_circle():
    """Inside a room too, imports form no circle, wherever in the code they stand."""
    circle = acyclic({name: imported_modules(name) - {"almoner"} for name in NAMES})
    assert not circle, f"a circle goes through {circle}"


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


def test_the_map_is_up_to_date():
    """Every room has a floor, and CONTRIBUTING.md shows the house as it is (`python tools/map.py` draws it)."""
    assert set(FLOORS) == {room(path) for path in MODULES} - {"__init__"}
    page = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(SOURCE.parents[1] / "tools" / "map.py"))["drawn"](page) == page


PUBLIC_NAMES = 430
"""Names in ``__all__`` of modules without an underscore; this number may only fall."""


def test_public_names_are_few():
    """At most so many names of all rooms are for users."""
    names = [
        ast.literal_eval(node.value)
        for name, path in NAMES.items()
        if not internal(name)
        for node in parsed(path).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    assert sum(map(len, names)) <= PUBLIC_NAMES


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
