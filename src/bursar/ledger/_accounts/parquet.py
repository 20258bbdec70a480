"""Accounts that outgrow a database: generations of Parquet files in a folder beside the ledger's file.

::

    people.ledger                   the record; the names of what is in force are in the private part of its entries
    people.ledger.accounts/
        ledger                      whose folder this is: the hash of the record's first entry
        accounts/NAME/*.parquet     a generation: person, spent, gone
        shares/NAME/*.parquet       what each person has spent on an analyst or a purpose that is limited
        charges/NAME/*.parquet      what one question cost each person: question, person, units; never changed
        work/NAME/                  what a question computes on its way, removed afterwards

Each NAME has a file _files, which lists the others and their sizes: none of them can get lost unnoticed.

A name is drawn at random for each attempt, so nothing is ever written over. Files are complete and on the disk before
the record's transaction names them, and only that commit puts them in force; whatever is not named is removed when
somebody who can write opens the ledger.

This keeper reads, with DuckDB, for statements and checks; it writes tombstones (into the record's own database, from
where the next generation takes them) and the shares of a new limit. Charging is left to those who make generations.
"""

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from bursar._disk import private_folder, sync_tree, whole_file
from bursar.errors import ArgumentError, LedgerError
from bursar.ledger._accounts.tables import Accounts
from bursar.ledger._stores.store import Store
from bursar.ledger._workspace import text

__all__ = ["Generation", "Generations", "check_whole", "place", "seal"]

_LISTED = "_files"
_SPECIAL = set("*?[]{}\\,:%")


@dataclass(frozen=True, slots=True)
class Generation:
    """What an entry of the record says of the accounts, as JSON in its private part."""

    accounts: str | None = None
    """The name of the generation; None before the first."""
    people: int = 0
    """Its rows,"""
    units: int = 0
    """what all have spent together,"""
    most: int = 0
    """and the most that anybody has."""
    shares: dict[str, str | None] = field(default_factory=dict)
    """{scope: name}, None while nobody has spent anything."""
    charges: dict[str, str] = field(default_factory=dict)
    """{question: name} of the question that made it; not of those before."""

    @property
    def note(self) -> str:
        """As the record keeps it."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def names(self) -> set[str]:
        """Everything in force but charges."""
        return {name for name in (self.accounts, *self.shares.values()) if name is not None}


class Generations:
    """Reads accounts in Parquet files; see above."""

    kind = "parquet"

    _store: Store
    folder: Path

    def __init__(self) -> None:
        self._now = self._before = Generation()
        self._charges: dict[int, str] = {}
        self._proposed: Generation | None = None
        self._marks = Accounts()
        self._type = ""

    def open(self, store: Store) -> None:
        """The folder beside the ledger's file; made if there is none."""
        path = getattr(store, "path", None)
        if path is None:
            raise ArgumentError("accounts in Parquet files need a ledger that is a file")
        self._store = store
        self._marks.open(store)
        self.folder = place(path)
        terms, opened = store.run("SELECT public, hash FROM ledger.record WHERE number = 0").fetchone()
        self._type = str(json.loads(terms)["person"])
        try:
            self._claim(opened)
        except OSError:
            raise LedgerError(f"{self.folder} cannot be made or read") from None

    def _claim(self, opened: str) -> None:
        private_folder(self.folder)
        owner = self.folder / "ledger"
        left_over = self.folder / "ledger.new"  # by a crash
        if not owner.exists() and set(self.folder.iterdir()) <= {left_over}:
            with whole_file(owner) as file:
                file.write(opened.encode())
        if not owner.exists() or owner.read_text(encoding="utf-8") != opened:
            raise LedgerError(f"{self.folder} holds the accounts of another ledger")

    def follow(self, note: str) -> None:
        """What the record says is in force."""
        told = Generation(**json.loads(note))
        if told != self._now:
            self._before, self._now = self._now, told
            self._charges.update({int(question): name for question, name in told.charges.items()})
        self._proposed = None

    def offer(self, charges: Any, parameters: list[Any]) -> None:
        """Refused: see above."""
        self._refuse()

    def admit(self, most: int, shares: Sequence[tuple[str, int]]) -> None:
        """Refused: see above."""
        self._refuse()

    def charge(self, question: int, scopes: Collection[str], budget: int) -> dict[str, Any]:
        """Refused: see above."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ArgumentError("the accounts of this ledger are kept in Parquet files: ask about a Spark DataFrame")

    def mark(self, person: int | str, *, gone: bool) -> dict[str, Any]:
        """In the record's own database, until the next generation."""
        return self._marks.mark(person, gone=gone)

    def open_share(self, scope: str, questions: Collection[int]) -> dict[str, Any]:
        """Sums of what was charged before."""
        charged, name = self._charged([number for number in questions if number in self._charges]), None
        if self._store.run(f"SELECT 1 FROM ({charged}) c LIMIT 1").fetchall():
            name = self.fresh()
            private_folder(self.folder / "shares" / name)
            self._store.run(
                "COPY (SELECT person, CAST(sum(units) AS BIGINT) AS spent "
                f"FROM ({charged}) c GROUP BY person) TO {text(str(self.folder / 'shares' / name / 'all.parquet'))}"
            )
            seal(self.folder / "shares" / name)
        return self.propose(shares={**self.now.shares, scope: name}, charges={})

    def propose(self, **changed: Any) -> dict[str, Any]:
        """What is to be in force after the transaction."""
        self._proposed = Generation(**{**asdict(self._now), **changed})
        return {"accounts": self._proposed.note}

    def fresh(self) -> str:
        """A name that nothing has."""
        return secrets.token_hex(12)

    @property
    def now(self) -> Generation:
        """What is in force."""
        if self._proposed is not None:
            last = self._store.run("SELECT private FROM ledger.record ORDER BY number DESC LIMIT 1").fetchone()
            if json.loads(last[0]).get("accounts") == self._proposed.note:
                self.follow(self._proposed.note)
        return self._now

    def spent(self, person: int | str) -> int:
        """Units that were charged to a person; 0 for somebody never charged."""
        row = self._store.run(f"SELECT spent FROM ({self._accounts()}) a WHERE person = ?", [person]).fetchone()
        return 0 if row is None else int(row[0])

    def charges(self, person: int | str) -> list[tuple[int, int]]:
        """(question, units) of all that charged a person, in order."""
        rows = self._store.run(
            f"SELECT question, units FROM ({self.charged()}) c WHERE person = ? ORDER BY question", [person]
        ).fetchall()
        return [(int(question), int(units)) for question, units in rows]

    def charged(self) -> str:
        """All charges."""
        _ = self.now
        return self._charged(self._charges)

    def totals(self) -> dict[int, tuple[int, int, int]]:
        """{question: (units in all, people, the most that anybody paid)}."""
        rows = self._store.run(
            f"SELECT question, sum(units), count(*), max(units) FROM ({self.charged()}) c GROUP BY question"
        ).fetchall()
        return {int(question): (int(units), int(people), int(most)) for question, units, people, most in rows}

    def consistent(self, budget: int) -> tuple[bool, bool]:
        """(Whether every account is the sum of its charges and all of it as sealed, whether none breaks the budget)."""
        accounts, charged = self._accounts(), self.charged()
        extent = self._store.run(
            f"SELECT count(*), coalesce(sum(spent), 0), coalesce(max(spent), 0) FROM ({accounts}) a"
        ).fetchone()
        sealed = extent == (self.now.people, self.now.units, self.now.most)
        twice = f"SELECT person FROM ({accounts}) a GROUP BY person HAVING count(*) > 1"
        different = (
            f"SELECT 1 FROM (SELECT person, sum(units) AS units FROM ({charged}) c GROUP BY person) c "
            f"FULL JOIN ({accounts}) a ON a.person = c.person WHERE coalesce(c.units, 0) <> coalesce(a.spent, -1)"
        )
        outside = f"SELECT 1 FROM ({accounts}) a WHERE spent > {budget:d} OR spent < 0"
        negative = f"SELECT 1 FROM ({charged}) c WHERE units <= 0"
        return (
            sealed and self._none(twice) and self._none(different),
            self._none(outside) and self._none(negative),
        )

    def shares_hold(self, scopes: Mapping[str, Collection[int]]) -> bool:
        """Whether the shares are those of these scopes, each the sum of its questions' charges."""
        _ = self.charged()
        return set(self.now.shares) == set(scopes) and all(
            self._none(
                "SELECT 1 FROM (SELECT person, sum(units) AS units "
                f"FROM ({self._charged([each for each in questions if each in self._charges])}) c GROUP BY person) c "
                f"FULL JOIN ({self._share(scope)}) s ON s.person = c.person "
                "WHERE coalesce(c.units, -1) <> coalesce(s.spent, -1)"
            )
            for scope, questions in scopes.items()
        )

    def gone(self) -> set[Any]:
        """Who has left."""
        rows = self._store.run(
            f"SELECT coalesce(m.person, a.person) FROM ({self._accounts()}) a FULL JOIN ledger.accounts m "
            "ON m.person = a.person WHERE coalesce(m.gone, a.gone)"
        ).fetchall()
        return {person for (person,) in rows}

    def _accounts(self) -> str:
        return self._files("accounts", [self.now.accounts], person=self._type, spent="BIGINT", gone="BOOLEAN")

    def _share(self, scope: str) -> str:
        return self._files("shares", [self.now.shares.get(scope)], person=self._type, spent="BIGINT")

    def _charged(self, questions: Collection[int]) -> str:
        names = [self._charges[question] for question in questions]
        return self._files("charges", names, question="BIGINT", person=self._type, units="BIGINT")

    def _files(self, kind: str, names: Sequence[str | None], **columns: str) -> str:
        """SQL for the rows in the files of these names."""
        if not any(names):
            return (
                f"SELECT {', '.join(f'CAST(NULL AS {type_}) AS {name}' for name, type_ in columns.items())} WHERE FALSE"
            )
        folders = [self.folder / kind / name for name in names if name]
        for folder in folders:
            check_whole(folder)
        listed = ", ".join(text(f"{folder}/*.parquet") for folder in folders)
        return f"SELECT {', '.join(columns)} FROM read_parquet([{listed}], hive_partitioning = false)"

    def _none(self, sql: str) -> bool:
        """Whether a search for contradictions finds none."""
        return not self._store.run(f"SELECT 1 FROM ({sql}) found LIMIT 1").fetchall()


def place(ledger: Path | str) -> Path:
    """The folder of a ledger's accounts; refuses names that programs which read the files take for patterns."""
    path = Path(ledger).resolve()
    folder = path.with_name(path.name + ".accounts")
    if _SPECIAL & set(str(folder)) or not str(folder).isprintable():
        raise ArgumentError(
            f"ledger: Spark keeps accounts beside a file, whose path must have none of {' '.join(sorted(_SPECIAL))}"
        )
    return folder


def seal(folder: Path) -> None:
    """List a folder's files in it, so that none can get lost unnoticed, and bring all to the disk."""
    (folder / _LISTED).write_text(json.dumps(_sizes(folder)), encoding="utf-8")
    sync_tree(folder)


def check_whole(folder: Path) -> None:
    """Refuse a folder in which files are missing, were cut off, or were added since it was sealed."""
    with suppress(OSError, ValueError):
        if json.loads((folder / _LISTED).read_text(encoding="utf-8")) == _sizes(folder):
            return
    raise LedgerError(f"{folder} does not hold the files that were written there")


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.glob("*.parquet"))}
