"""Versions of the tables: those of another version are refused."""

import pytest

from almoner.errors import LedgerError
from ledgers import opened


@pytest.mark.parametrize("version", [1, 99])
def test_a_file_of_another_version_is_refused(path, version):
    """This program does not touch tables that it does not know, older or newer."""
    import duckdb

    opened(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"UPDATE ledger_format SET version = {version}")
    with pytest.raises(LedgerError, match=f"version {version}, and this program reads version 4"):
        opened(path)
