"""The parts of a ledger: each kind of store and of accounts does what its interface says."""

import inspect
from pathlib import Path

import pytest

from almoner.ledger._accounts import postgres, tables
from almoner.ledger._stores.file import File
from almoner.ledger._stores.postgres import Postgres

STORE = ("abandon", "close", "create", "exists", "open", "run", "snapshot", "transact")
PARTS = [
    (tables.TableAccounts, postgres.PostgresAccounts),
    (tables.TableOffer, postgres._SentOffer),
]


@pytest.mark.parametrize(("interface", "part"), PARTS)
def test_parts_take_the_arguments_of_their_interface(interface, part):
    """Every method is there, with the same names of arguments in the same order."""
    for name, method in inspect.getmembers(interface, inspect.isfunction):
        if not name.startswith("_"):
            ours = inspect.signature(getattr(part, name)).parameters
            assert list(ours) == list(inspect.signature(method).parameters), name


@pytest.mark.parametrize("name", STORE)
def test_stores_take_the_same_arguments(name):
    """Whatever a ledger asks of a file it may ask of a server."""
    of_file, of_server = (list(inspect.signature(getattr(each, name)).parameters) for each in (File, Postgres))
    assert of_file == of_server
    assert isinstance(File.closed, property)
    assert isinstance(Postgres.closed, property)


def test_only_a_file_has_a_path(tmp_path):
    """Accounts in files need one; a server has none."""
    assert File(tmp_path / "l").path == tmp_path / "l"
    assert Postgres.path is None
    assert isinstance(File(Path("l")).path, Path)
