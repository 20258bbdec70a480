"""Accounts on a server, while the rows are in the workspace: charges go there, who takes part comes back.

People named by text are kept as the bytes of their names in UTF-8, so that no collation and no encoding of the server's
can take two people for one, or lose an account.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from almoner._workspace import Query
from almoner.errors import LedgerError
from almoner.ledger._accounts import tables
from almoner.ledger._names import Names, Person
from almoner.ledger._payment import Payment, PrivateNote, Share
from almoner.ledger._stores.postgres import Postgres

_BLOCK = 50_000
_TOO_LONG = "octet_length(encode(CAST(account AS VARCHAR))) > 1800"  # for a server's index, beside any scope
_BY_PERSON = " ORDER BY person"  # how a question's charges are stored; the index finds those of a person


class PostgresAccounts(tables.TableAccounts):
    """Accounts in tables of a PostgreSQL server."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    def prepare(self, charges: Query) -> tables.TableOffer:
        """Work everything out in the workspace, number the rows, and send number, person and units to the server."""
        return _SentOffer(self._server, charges, self.names)

    def charged(self) -> str:
        person = "person" if self.names.kind == "BIGINT" else "encode(person, 'hex')"
        kinds = {"question": "BIGINT", "person": self.names.kind, "units": "BIGINT"}
        self._server.bring(f"SELECT question, {person}, units FROM ledger.charges", "charged", kinds)
        return "SELECT question, person, units FROM charged"

    def stored(self, person: Person) -> object:
        stored = super().stored(person)
        return stored.encode() if isinstance(stored, str) else stored

    def named(self, stored: Any) -> Person:
        return super().named(stored.decode() if self.names.kind == "VARCHAR" else stored)


class _SentOffer(tables.TableOffer):
    """Charges of a question to each person: worked out in the workspace, and sent to the server."""

    def __init__(self, server: Postgres, charges: Query, names: Names) -> None:
        self._server = server
        self._offered = server.workspace.fresh_name("offered")  # in the workspace and on the server
        self._tables = [table.name for table in charges.tables]
        workspace, kind = server.workspace, "BIGINT" if names.kind == "BIGINT" else "BYTEA"
        try:
            with tables.about_the_data(server):
                workspace.make(charges.tables)
                workspace.run(
                    f"CREATE OR REPLACE TEMP TABLE {self._offered} AS SELECT row_number() OVER () - 1 AS place, c.* "
                    f"FROM ({tables.accounts_of(server, charges.sql, names)}) c WHERE c.units > 0 "
                    f"AND CASE WHEN {_TOO_LONG} THEN error('') ELSE TRUE END",
                    charges.parameters,
                )
                tables.keep_hashes(server, self._offered, names)
                server.run(f"CREATE TEMP TABLE {self._offered}(place BIGINT, person {kind}, units BIGINT)")
                account = "account" if kind == "BIGINT" else r"'\\x' || hex(account)"  # of texts: their bytes in UTF-8
                line = f"place || chr(9) || {account} || chr(9) || units || chr(10)"
                server.send(f"pg_temp.{self._offered}", self._blocks(line))
                server.run(f"ANALYZE pg_temp.{self._offered}")
        except BaseException:
            with suppress(LedgerError):
                self.close()
            raise

    def _blocks(self, line: str) -> Iterator[str]:
        sql = f"SELECT string_agg({line}, '') FROM {self._offered} GROUP BY place // {_BLOCK:d}"
        rows = self._server.workspace.run(sql)
        while row := rows.fetchone():
            yield row[0]

    def admit(self, most: int, shares: Sequence[Share], payment: Payment) -> tables.TableAdmitted:
        """Choose on the server, and bring to the workspace who was chosen."""
        offered, admitted = f"pg_temp.{self._offered}", self._offered.replace("offered", "admitted")
        joins, left, scopes = tables.left_of(most, shares, "c.person")
        pays = payment.sql(left, divide="/")
        with tables.about_the_data(self._server):
            self._server.run(
                f"CREATE TEMP TABLE {admitted} ON COMMIT DROP AS "
                f"SELECT c.place, c.person AS account, {pays.units} AS units, a.person IS NULL AS fresh, "
                f"{pays.taken} AND NOT coalesce(a.gone, FALSE) AS taken, {pays.units} <> c.units + {payment.fixed:d} "
                "AS shrunk, CASE WHEN NOT coalesce(a.gone, FALSE) THEN c.units END AS wanted "
                f"FROM {offered} c LEFT JOIN ledger.accounts a ON a.person = c.person{joins}",
                scopes,
            )
            self._take_back(admitted, payment)
        return tables.TableAdmitted(self._server, admitted, f"pg_temp.{admitted}", payment, order=_BY_PERSON)

    def refund(self, entry: int, of: int, scopes: Collection[str]) -> PrivateNote:
        return tables.refunded(self._server, f"pg_temp.{self._offered}", entry, of, scopes)

    def _take_back(self, admitted: str, payment: Payment) -> None:
        """Make the table of those admitted, with their pay, in the workspace, by their rows' numbers or all others'."""
        workspace = self._server.workspace
        sizes = f"SELECT count(*), count(*) FILTER (WHERE taken) FROM pg_temp.{admitted}"
        ((all_people, admitted_people),) = self._server.run(sizes)
        others = 2 * admitted_people > all_people  # those left out are fewer
        places, join = f"SELECT place FROM pg_temp.{admitted} WHERE taken <> {others}", "ANTI" if others else "SEMI"
        self._server.bring(places, f"places_of_{admitted}", {"place": "BIGINT"})
        shrunk = f"shrunk_of_{admitted}"
        paid_by = f"SELECT place, units FROM pg_temp.{admitted} WHERE taken AND shrunk"
        self._server.bring(paid_by, shrunk, {"place": "BIGINT", "units": "BIGINT"})
        units = f"coalesce(s.units - {payment.fixed:d}, o.units)"
        paid = f"{units} + {payment.fixed:d} AS units"
        if payment.pace is not None:
            paid += f", {payment.factor_sql(units, 'o')} AS factor"
        workspace.run(
            f"CREATE OR REPLACE TEMP TABLE {admitted} AS SELECT o.* REPLACE ({paid}) "
            f"FROM {self._offered} o LEFT JOIN {shrunk} s ON s.place = o.place "
            f"{join} JOIN places_of_{admitted} p ON p.place = o.place"
        )
        if workspace.run(f"SELECT count(*) FROM {admitted}").fetchall() != [(admitted_people,)]:
            raise LedgerError("who takes part got lost on the way")

    def close(self) -> None:
        admitted = self._offered.replace("offered", "admitted")
        beside = (admitted, f"places_of_{admitted}", f"shrunk_of_{admitted}")
        self._server.workspace.drop([self._offered, *beside, *self._tables])
        if not self._server.closed:
            self._server.run(f"DROP TABLE IF EXISTS pg_temp.{self._offered}")
