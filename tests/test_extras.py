"""Optional libraries: a missing one is named together with the extra that brings it."""

import subprocess
import sys

import pytest

from almoner import _extras
from almoner.errors import MissingExtra

HIDDEN = {
    "duckdb": ("from almoner._workspace import Workspace; Workspace(None)", "queries"),
    "matplotlib": ("from almoner.report.figures import figure; figure(1, 1)", "plots"),
    "torch": ("from almoner.training import Trainer", "torch"),
    "sklearn": ("from almoner.training import LogisticRegression", "sklearn"),
    "itsdangerous": ("import almoner.service", "service"),
    "prometheus_client": ("import almoner.service", "service"),
    "starlette": ("import almoner.service", "service"),
    "uvicorn": ("import almoner.service", "service"),
    "opacus": ("import almoner.interop.opacus", "opacus"),
    "lightning": ("import almoner.interop.lightning", "lightning"),
    "transformers": ("import almoner.interop.transformers", "transformers"),
    "opendp": ("from almoner.interop.opendp import mechanism; mechanism(None, 1)", "opendp"),
}


def test_a_missing_library_names_its_extra(monkeypatch):
    """A library that is not installed raises MissingExtra, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtra) as refused, _extras.need("duckdb", extra="queries"):
        import duckdb  # noqa: F401
    assert str(refused.value) == "duckdb is not installed: `pip install '.[queries]'` in your checkout of Almoner"
    assert isinstance(refused.value, ImportError)


def test_the_missing_one_of_several_is_named(monkeypatch):
    """Where a block imports several libraries, the message names the one that is missing."""
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(MissingExtra, match="opacus is not installed"), _extras.need("torch", "opacus", extra="opacus"):
        import opacus.optimizers  # noqa: F401


def test_all_that_is_missing_is_one_message(monkeypatch):
    """Both libraries of a block, with one line to write."""
    for library in ("torch", "opacus"):
        monkeypatch.setitem(sys.modules, library, None)
    told = r"opacus and torch are not installed: `pip install '\.\[opacus\]'` in your checkout of Almoner"
    with pytest.raises(MissingExtra, match=told), _extras.need("opacus", "torch", extra="opacus"):
        import opacus  # noqa: F401


def test_a_library_that_does_not_load_is_not_installed():
    """A driver without its binary part raises ImportError without a name; the extra brings both parts."""
    with pytest.raises(MissingExtra, match="psycopg is not installed"), _extras.need("psycopg", extra="postgres"):
        raise ImportError("no pq wrapper available")


def test_another_missing_library_is_not_blamed_on_the_extra():
    """A module that is missing for other reasons raises Python's own error."""
    with pytest.raises(ModuleNotFoundError) as refused, _extras.need("duckdb", extra="queries"):
        import no_such_library  # noqa: F401
    assert not isinstance(refused.value, MissingExtra)


def test_what_is_installed_is_simply_imported():
    """A library that is there is imported, and errors of the block itself pass unchanged."""
    with _extras.need("json", extra="none"):
        import json
    assert json.dumps(1) == "1"
    with pytest.raises(KeyError), _extras.need("json", extra="none"):
        raise KeyError("x")


@pytest.mark.slow
@pytest.mark.parametrize("library", HIDDEN)
def test_every_room_names_the_extra(library):
    """Rooms that need an optional library say which extra brings it, at its first use."""
    code, extra = HIDDEN[library]
    script = f"import sys; sys.modules[{library!r}] = None\n{code}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    last = run.stderr.splitlines()[-1]
    cure = f"`pip install '.[{extra}]'` in your checkout of Almoner"
    assert last == f"almoner.errors.MissingExtra: {library} is not installed: {cure}"
