"""Everybody's account on a server, while the rows are on the desk: charges go there, who takes part comes back.

People named by text are kept as the bytes of their names in UTF-8, so that no collation and no encoding of the server's
can take two people for one, or lose an account.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bursar.errors import LedgerError
from bursar.ledger._accounts.tables import Accounts, limited

if TYPE_CHECKING:
    from bursar.ledger._stores.postgres import Postgres
    from bursar.ledger._stores.store import Store

__all__ = ["Remote"]

_BLOCK = 50_000


class Remote(Accounts):
    """Accounts in tables of a PostgreSQL server."""

    _store: "Postgres"
    _order = " ORDER BY person"  # charges of a question lie together, and those of a person are found in its index

    def open(self, store: "Store") -> None:
        """The accounts of this ledger; and how people are named in it."""
        super().open(store)
        kind = store.run("SELECT pg_typeof((SELECT person FROM ledger.accounts LIMIT 1))::text").fetchone()
        self._words = kind == ("bytea",)

    def offer(self, charges: str, parameters: list[Any]) -> None:
        """Work everything out on the desk, number the rows, and send number, person and units to the server."""
        desk, run = self._store.desk, self._store.run
        desk.run(
            "CREATE OR REPLACE TEMP TABLE offered AS SELECT row_number() OVER () - 1 AS place, c.* "
            f"FROM ({charges}) c WHERE c.units > 0",
            parameters,
        )
        run("DROP TABLE IF EXISTS pg_temp.offered")
        run(f"CREATE TEMP TABLE offered(place BIGINT, person {'BYTEA' if self._words else 'BIGINT'}, units BIGINT)")
        person = r"'\\x' || hex(encode(person))" if self._words else "person"
        line = f"place || chr(9) || {person} || chr(9) || units || chr(10)"
        self._store.send("pg_temp.offered", self._blocks(line))
        run("ANALYZE pg_temp.offered")

    def admit(self, most: int, shares: Sequence[tuple[str, int]]) -> None:
        """Choose on the server, and make the table ``admitted`` on the desk of those chosen."""
        joins, tests, given = limited(shares)
        run = self._store.run
        run("DROP TABLE IF EXISTS pg_temp.admitted")
        run(
            "CREATE TEMP TABLE admitted AS SELECT c.place, c.person, c.units, a.person IS NULL AS fresh "
            f"FROM pg_temp.offered c LEFT JOIN ledger.accounts a ON a.person = c.person{joins} "
            f"WHERE c.units <= {most:d} - coalesce(a.spent, 0) AND NOT coalesce(a.gone, FALSE){tests}",
            given,
        )
        self._take_back()

    def refused(self) -> int:
        """How many of those who were offered, and have not left, were not admitted."""
        present = "SELECT count(*) FROM pg_temp.offered c LEFT JOIN ledger.accounts a ON a.person = c.person"
        admitted = "SELECT count(*) FROM pg_temp.admitted"
        return int(
            self._store.run(f"SELECT ({present} WHERE NOT coalesce(a.gone, FALSE)) - ({admitted})").fetchone()[0]
        )

    def _take_back(self) -> None:
        """Who takes part or, if they are fewer, who does not: as numbers of rows on the desk."""
        run, desk = self._store.run, self._store.desk
        sizes = "SELECT (SELECT count(*) FROM pg_temp.offered), (SELECT count(*) FROM pg_temp.admitted)"
        offered, admitted = run(sizes).fetchone()
        told, join = "SELECT place FROM pg_temp.admitted", "SEMI"
        if 2 * admitted > offered:
            told, join = f"SELECT place FROM pg_temp.offered WHERE place NOT IN ({told})", "ANTI"
        desk.run("CREATE OR REPLACE TEMP TABLE told(place BIGINT)")
        self._store.fetch(
            told,
            lambda lines: desk.run("INSERT INTO told SELECT CAST(unnest(string_split(?, chr(10))) AS BIGINT)", [lines]),
        )
        desk.run(f"CREATE OR REPLACE TEMP TABLE admitted AS SELECT o.* FROM offered o {join} JOIN told USING (place)")
        if desk.run("SELECT count(*) FROM admitted").fetchone() != (admitted,):
            raise LedgerError("who takes part got lost on the way")

    def charged(self) -> str:
        """Bring all charges to the desk."""
        desk = self._store.desk
        kept, kind, told = (
            ("encode(person, 'hex')", "VARCHAR", "decode(unhex(split_part(line, chr(9), 2)))")
            if self._words
            else ("person", "BIGINT", "CAST(split_part(line, chr(9), 2) AS BIGINT)")
        )
        desk.run(f"CREATE OR REPLACE TEMP TABLE charged(question BIGINT, person {kind}, units BIGINT)")
        self._store.fetch(
            f"SELECT question, {kept}, units FROM ledger.charges",
            lambda lines: desk.run(
                f"INSERT INTO charged SELECT CAST(split_part(line, chr(9), 1) AS BIGINT), {told}, "
                "CAST(split_part(line, chr(9), 3) AS BIGINT) FROM (SELECT unnest(string_split(?, chr(10))) AS line)",
                [lines],
            ),
        )
        return "SELECT question, person, units FROM charged"

    def _blocks(self, line: str) -> Iterator[str]:
        rows = self._store.desk.run(f"SELECT string_agg({line}, '') FROM offered GROUP BY place // {_BLOCK:d}")
        while row := rows.fetchone():
            yield row[0]

    def _kept(self, person: Any) -> Any:
        return person.encode() if self._words else person

    def _told(self, person: Any) -> Any:
        return person.decode() if self._words else person
