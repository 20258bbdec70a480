"""Accounts that outgrow a database: generations of Parquet files in a folder beside the ledger's file.

DuckDB reads them here, for statements and checks, and writes who left or returned (into the record's own database, from
where the next generation takes it) and the shares of a new limit. Generations are made by an ``AccountWriter``.

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
the ledger is opened with a writer.
"""

import json
import secrets
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from almoner._disk import private_folder, sync_tree, whole_file
from almoner._workspace import text
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._accounts.tables import AccountReader, TableAccounts, none, summed
from almoner.ledger._names import Names, Person
from almoner.ledger.interfaces import AccountWriter, Consistency, Offer, Payment, PrivateNote, Share, Store, Verdicts

__all__ = ["ParquetAccounts", "folder_beside"]


_LISTED = "_files"
_SPECIAL = set("*?[]{}\\,:%")


@dataclass(frozen=True, slots=True)
class Generation:
    """Accounts in force, as an entry of the record names them: JSON in its private part."""

    accounts: str | None = None
    """The name of the generation; None before the first."""
    people: int = 0
    """Rows in it."""
    units: int = 0
    """The sum of all people's spends."""
    most: int = 0
    """The most that one person has spent."""
    shares: dict[str, str | None] = field(default_factory=dict)
    """{scope: name}, None while nothing was spent."""
    charges: dict[str, str] = field(default_factory=dict)
    """{question: name} of the question that made it; not of those before."""

    @property
    def note(self) -> str:
        """This value as JSON, for the private part of an entry."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def names(self) -> set[str]:
        """The names of the accounts and shares in force."""
        return {name for name in (self.accounts, *self.shares.values()) if name is not None}


class ParquetAccounts(AccountReader):
    """Accounts in Parquet files beside the ledger's file."""

    kind = "parquet"

    folder: Path

    def __init__(self, writer: AccountWriter | None = None) -> None:
        """Without a writer they are read, and people leave and return; nobody is charged."""
        self._writer = writer
        self._now = self._before = Generation()
        self._charges: dict[int, str] = {}
        self._proposed: Generation | None = None
        self._marks = TableAccounts()
        self._type = ""

    def open(self, store: Store, names: Names) -> None:
        """Open the folder beside the ledger's file; make it if there is none."""
        if store.path is None:
            raise ArgumentError("accounts in Parquet files need a ledger that is a file")
        self._store, self._type, self.names = store, names.kind, names
        self._marks.open(store, names)
        self.folder = folder_beside(store.path)
        ((opened,),) = store.run("SELECT hash FROM ledger.record WHERE number = 0")
        try:
            self._claim(opened)
            if self._writer is not None:
                for kind in ("accounts", "shares", "charges", "work"):
                    private_folder(self.folder / kind)
                self._writer.open(self.folder, names.kind)
        except OSError:
            raise LedgerError(f"{self.folder} cannot be made or read", reason="forbidden") from None

    def _claim(self, opened: str) -> None:
        private_folder(self.folder)
        owner = self.folder / "ledger"
        left_over = self.folder / "ledger.new"  # by a crash
        if not owner.exists() and set(self.folder.iterdir()) <= {left_over}:
            with whole_file(owner) as file:
                file.write(opened.encode())
        if not owner.exists() or owner.read_text(encoding="utf-8") != opened:
            raise LedgerError(f"{self.folder} holds the accounts of another ledger", reason="damaged")

    def follow(self, note: str) -> None:
        """Put in force what the record says."""
        generation = Generation(**json.loads(note))
        if generation != self._now:
            self._before, self._now = self._now, generation
            self._charges.update({int(question): name for question, name in generation.charges.items()})
        self._proposed = None

    def clean(self) -> None:
        """Remove what jobs that were killed left behind; refuse to go on without what is in force."""
        if self._writer is None:
            return
        now = self.now
        named = {"accounts": [now.accounts], "shares": now.shares.values(), "charges": self._charges.values()}
        for kind, names in named.items():
            if not all((self.folder / kind / name).is_dir() for name in names if name is not None):
                raise LedgerError(f"{self.folder} does not hold the accounts that the record names", reason="damaged")
        self.remove_old()
        self._keep(set(self._charges.values()), "charges")
        self.remove_work()

    def remove_old(self) -> None:
        """Remove all generations but the one in force and the one before it."""
        self._keep(self.now.names | self._before.names, "accounts", "shares")

    def remove_work(self) -> None:
        """Remove what a question computed on its way."""
        self._keep((), "work")

    def _keep(self, names: Collection[str], *kinds: str) -> None:
        for kind in kinds:
            for path in (self.folder / kind).iterdir():
                if path.name not in names:
                    shutil.rmtree(path, ignore_errors=True)

    def prepare(self, charges: object) -> Offer:
        """Have the writer work out what it can without the accounts."""
        if self._writer is None:
            raise ArgumentError("the accounts of this ledger are kept in Parquet files: ask about a Spark DataFrame")
        self.remove_work()
        return _FileOffer(self, self._writer, self._writer.prepare(charges))

    def mark(self, person: Person, *, gone: bool) -> PrivateNote:
        """In the record's own database, until the next generation."""
        return self._marks.mark(person, gone=gone)

    def marks(self) -> Path:
        """Write who left or returned since the last generation to a file."""
        private_folder(self.folder / "work" / "marks")
        path = self.folder / "work" / "marks" / f"{secrets.token_hex(12)}.parquet"
        self._store.run(f"COPY (SELECT person, gone FROM ledger.accounts) TO {text(str(path))}")
        return path

    def forget_marks(self) -> None:
        """A new generation has taken in who left or returned."""
        self._store.run("DELETE FROM ledger.accounts")

    def open_share(self, scope: str, questions: Collection[int]) -> PrivateNote:
        charged, name = self._charged(questions), None
        if not none(self._store.run, charged):
            name = secrets.token_hex(12)
            folder = self.folder / "shares" / name
            private_folder(folder)
            self._store.run(
                f"COPY (SELECT person, units AS spent FROM ({summed(charged)}) c) TO {text(f'{folder}/all.parquet')}"
            )
            seal(folder)
        return self.propose(shares={**self.now.shares, scope: name}, charges={})

    def propose(self, **changed: object) -> PrivateNote:
        """Propose the generation that is to be in force after the transaction."""
        self._proposed = Generation(**{**asdict(self._now), **changed})
        return {"accounts": self._proposed.note}

    @property
    def now(self) -> Generation:
        if self._proposed is not None:
            ((last,),) = self._store.run("SELECT private FROM ledger.record ORDER BY number DESC LIMIT 1")
            if json.loads(last).get("accounts") == self._proposed.note:
                self.follow(self._proposed.note)
        return self._now

    def whole(self, kind: str, name: str | None) -> Path | None:
        """The folder of this name, refused where files are missing, cut off or added since; None for no name."""
        if name is None:
            return None
        folder = self.folder / kind / name
        with suppress(OSError, ValueError):
            if json.loads((folder / _LISTED).read_text(encoding="utf-8")) == _sizes(folder):
                return folder
        raise LedgerError(f"{folder} does not hold the files that were written there", reason="damaged")

    def accounts_table(self) -> str:
        rows = self._files("accounts", [self.now.accounts], person=self._type, spent="BIGINT", gone="BOOLEAN")
        return f"({rows})"

    def charges_table(self) -> str:
        return f"({self.charged()})"

    def charged(self) -> str:
        _ = self.now
        return self._charged(self._charges)

    def consistent(self, budget: int, refunds: Mapping[int, int]) -> Consistency:
        """Also compare the accounts with what the record says of them."""
        (extent,) = self._store.run(
            f"SELECT count(*), coalesce(sum(spent), 0), coalesce(max(spent), 0) FROM {self.accounts_table()} a"
        )
        noted = extent == (self.now.people, self.now.units, self.now.most)
        sums, within = super().consistent(budget, refunds)
        return Consistency(noted and sums, within)

    def shares_hold(self, scopes: Mapping[str, Collection[int]]) -> bool:
        return set(self.now.shares) == set(scopes) and all(
            self.is_sum(self._share(scope), self._charged(questions)) for scope, questions in scopes.items()
        )

    def gone(self) -> set[Person]:
        rows = self._store.run(
            f"SELECT coalesce(m.person, a.person) FROM {self.accounts_table()} a FULL JOIN ledger.accounts m "
            "ON m.person = a.person WHERE coalesce(m.gone, a.gone)"
        )
        return {person for (person,) in rows}

    def _share(self, scope: str) -> str:
        return self._files("shares", [self.now.shares.get(scope)], person=self._type, spent="BIGINT")

    def _charged(self, questions: Collection[int]) -> str:
        names = [self._charges[question] for question in questions if question in self._charges]
        return self._files("charges", names, question="BIGINT", person=self._type, units="BIGINT")

    def _files(self, kind: str, names: Sequence[str | None], **columns: str) -> str:
        """SQL for the rows in the files of these names."""
        if not any(names):
            return (
                f"SELECT {', '.join(f'CAST(NULL AS {type_}) AS {name}' for name, type_ in columns.items())} WHERE FALSE"
            )
        folders = [self.whole(kind, name) for name in names if name]
        listed = ", ".join(text(f"{folder}/*.parquet") for folder in folders)
        return f"SELECT {', '.join(columns)} FROM read_parquet([{listed}], hive_partitioning = false)"


class _FileOffer:
    """Charges of a question to each person, as the writer prepared them."""

    def __init__(self, accounts: ParquetAccounts, writer: AccountWriter, prepared: object) -> None:
        self._accounts, self._writer, self._prepared = accounts, writer, prepared

    def admit(self, most: int, shares: Sequence[Share], payment: Payment) -> "_FileAdmitted":
        """Have the writer decide who can pay; the rows are read once, and all that follows is read from its files."""
        accounts = self._accounts
        accounts.remove_old()
        now = accounts.now
        spent = [(accounts.whole("shares", now.shares[scope]), left) for scope, left in shares]
        in_force = accounts.whole("accounts", now.accounts)
        verdicts = self._writer.judge(self._prepared, in_force, accounts.marks(), spent, most, payment)
        return _FileAdmitted(accounts, self._writer, verdicts)

    def refund(self, entry: int, of: int, scopes: Collection[str]) -> PrivateNote:  # noqa: ARG002 - Offer has them
        """Refuse: nothing can be reserved for a training here."""
        raise ArgumentError("ledger: accounts in Parquet files are charged by questions alone, not by trainings")

    def close(self) -> None:
        self._accounts.remove_work()


class _FileAdmitted:
    """The people who take part."""

    def __init__(self, accounts: ParquetAccounts, writer: AccountWriter, verdicts: Verdicts) -> None:
        self.rows = verdicts.admitted
        self._accounts, self._writer, self._verdicts = accounts, writer, verdicts

    def refused(self) -> int:
        return self._verdicts.refused()

    def missing_mass(self, price: int) -> int:
        return self._verdicts.missing_mass(price)

    def charge(self, question: int, scopes: Collection[str], budget: int) -> PrivateNote:
        """Write the next generation beside the one in force; refuses to go on where it does not add up."""
        extent = self._verdicts.extent()
        if not extent.people:
            return {"units": 0, "people": 0}
        try:
            note = self._written(question, scopes, budget, extent.units)
        except LedgerError:
            raise
        except Exception:  # full, or not to be written; the message may quote entries
            note = None
        if note is None:
            raise LedgerError(f"{self._accounts.folder} could not be written", reason="forbidden")
        return {"units": extent.units, "people": extent.people, **note}

    def _written(self, question: int, scopes: Iterable[str], budget: int, units: int) -> PrivateNote:
        accounts, writer, now, name = self._accounts, self._writer, self._accounts.now, secrets.token_hex(12)
        charges, after = accounts.folder / "charges" / name, accounts.folder / "accounts" / name
        writer.write_charges(self._verdicts, question, charges)
        seal(charges)
        extent = writer.write_accounts(charges, accounts.whole("accounts", now.accounts), accounts.marks(), after)
        seal(after)
        shares = dict(now.shares)
        for place, scope in enumerate(sorted(scopes)):
            share = accounts.folder / "shares" / f"{name}-{place:d}"
            writer.write_share(charges, accounts.whole("shares", now.shares[scope]), share)
            seal(share)
            shares[scope] = share.name
        if extent.units != now.units + units or extent.most > budget or extent.people < now.people:
            raise LedgerError("the accounts do not add up", reason="damaged")
        accounts.forget_marks()
        return accounts.propose(
            accounts=name,
            people=extent.people,
            units=extent.units,
            most=extent.most,
            shares=shares,
            charges={str(question): name},
        )


def folder_beside(ledger: Path | str) -> Path:
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


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.glob("*.parquet"))}
