"""The ledger: what was asked, what it cost everybody, and what was answered, in one durable file."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from bursar import _check
from bursar._units import MEASURE, RANGE, to_float
from bursar.errors import ArgumentError, BudgetExceeded, LedgerError
from bursar.filters import Zcdp
from bursar.ledger._chain import START, Entry, name, sealed
from bursar.ledger._reading import Reading, opening
from bursar.ledger._store import Store

__all__ = ["Ledger"]

KINDS = ("BIGINT", "VARCHAR")


class Ledger(Reading):
    """An open ledger, for the data holder: everything per person in it is private.

    ``Ledger.open`` makes it or opens it; one process at a time may have it open.
    """

    def __init__(self, store: Store, terms: dict[str, Any]) -> None:
        super().__init__(store, terms)
        self._limits: dict[str, int] = {}
        self._reserved: dict[str, int] = {}
        for (public,) in store.run(
            "SELECT public FROM ledger.record WHERE kind IN ('limited', 'reserved', 'released') ORDER BY number"
        ).fetchall():
            self._remember(json.loads(public))
        for scope, key in store.run(
            "SELECT 'reserved', json_extract_string(public, '$.reserved') FROM ledger.record WHERE kind = 'answered'"
        ).fetchall():
            if scope and key is not None:
                self._reserved.pop(key, None)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        budget: Zcdp | None = None,
        person: str | None = None,
        create: bool = True,
        memory_limit: str | None = None,
        threads: int | None = None,
    ) -> Self:
        """Open a ledger; make it if there is none.

        Args:
            path: the file.
            budget: what everybody may spend, public; None for what the ledger was made for.
            person: how people are named: BIGINT (whole numbers) or VARCHAR (text); None for what it was made for.
            create: whether a missing file is made. A ledger that got lost must not be replaced by an empty one: say
                False where it must be there.
            memory_limit, threads: what DuckDB may use, for example "4GB" and 2.
        """
        path = Path(path)
        _check_terms(budget, person)
        if not path.exists():
            if not create:
                raise LedgerError(f"{path} is not there, and create=False")
            if budget is None or person is None:
                raise LedgerError(f"{path} is not there, and cannot be made without a budget and a kind of names")
            Store.create(path, person=person, first=_opening(budget, person))
        store = Store(path, memory_limit=memory_limit, threads=threads)
        try:
            terms = opening(store)
            given = {"budget": None if budget is None else budget.person_budget()[0], "person": person}
            for field, value in given.items():
                if value is not None and terms[field] != value:
                    raise ArgumentError(f"{path} was made for {field}={terms[field]!r}, not {value!r}")
            return cls(store, terms)
        except BaseException as error:
            store.close()
            if isinstance(error, IndexError | ValueError | KeyError) and not isinstance(error, ArgumentError):
                raise LedgerError(f"{path} is damaged: its first entry does not say the terms") from None
            raise

    def limit(self, units: int, *, analyst: str | None = None, purpose: str | None = None) -> None:
        """The most that one analyst, or all questions for one purpose, may cost each person; within the budget for all.

        A limit counts what was asked before it, too. It does not widen anything: the budget holds for all together,
        whether or not analysts tell each other their answers.
        """
        scope = _scope(analyst, purpose)
        _check.whole(0, units=units)
        fresh = scope not in self._limits
        with self._store.writing():
            if fresh:
                self._store.run(
                    "INSERT INTO ledger.shares SELECT ?, c.person, sum(c.units)::BIGINT FROM ledger.charges c "
                    "JOIN ledger.record r ON r.number = c.question "
                    f"WHERE r.{'analyst' if analyst is not None else 'purpose'} = ? GROUP BY c.person",
                    [scope, analyst if analyst is not None else purpose],
                )
            self._append({"kind": "limited", "scope": scope, "units": units})
        self._limits[scope] = units

    def reserve(self, units: int, *, key: str) -> None:
        """Set a part of everybody's budget aside for a question to come; it counts as spent until used or released.

        Raises:
            BudgetExceeded: that much is not left beside what is reserved already.
        """
        name(key=key)
        _check.whole(1, units=units)
        with self._store.lock:
            if key in self._reserved:
                if self._reserved[key] == units:
                    return
                raise ArgumentError(f"key={key!r} reserves {to_float(self._reserved[key]):g} already")
            if self.find(key) is not None:
                raise ArgumentError(f"key={key!r} was used before")
            left = self._budget - sum(self._reserved.values())
            if units > left:
                raise _exceeded(units, self._budget, left)
            with self._store.writing():
                self._append({"kind": "reserved", "name": key, "units": units}, key=key)
            self._reserved[key] = units

    def release(self, key: str) -> None:
        """Give back what was reserved under a key."""
        if key not in self._reserved:
            raise ArgumentError(f"key={key!r} reserves nothing")
        with self._store.writing():
            self._append({"kind": "released", "name": key})
        del self._reserved[key]

    def admit(
        self,
        charges: str,
        parameters: list[Any] | None = None,
        *,
        price: int,
        spare: int = 0,
        analyst: str,
        purpose: str | None,
        reserved: str | None = None,
    ) -> None:
        """Choose who takes part: makes the table ``admitted``, in memory, out of everybody's charges.

        Args:
            charges: SQL that gives person (each once), units, and whatever else the engine wants to keep.
            parameters: of that SQL.
            price: the most that the question costs anybody, units, public.
            spare: what must be left to whoever takes part after paying, units, public.
            analyst, purpose: who asks, and what for.
            reserved: the key under which budget was set aside for this question.

        Raises:
            BudgetExceeded: by public facts alone, nobody could pay the full price.

        Guarantee: whoever is admitted can pay within the budget, and within every limit that applies; what is reserved
            for other questions is not touched.
        Source: theory 5.1; Feldman & Zrnic (2021), Thm 4.5.
        """
        if reserved is not None and reserved not in self._reserved:
            raise ArgumentError(f"reserved={reserved!r} reserves nothing")
        most = self._budget - sum(units for key, units in self._reserved.items() if key != reserved)
        scopes = [(scope, self._limits[scope]) for scope in _scopes(analyst, purpose) if scope in self._limits]
        least = min([most, *(units for _, units in scopes)])
        _check.whole(0, price=price, spare=spare)
        if price + spare > least:
            raise _exceeded(price + spare, self._budget, least)
        if reserved is not None and price > self._reserved[reserved]:
            raise _exceeded(price, self._reserved[reserved], self._reserved[reserved])
        joins, tests, given = "", "", []
        for place, (scope, units) in enumerate(scopes):
            joins += f" LEFT JOIN ledger.shares s{place} ON s{place}.person = c.person AND s{place}.scope = ?"
            tests += f" AND c.units <= {units - spare:d} - coalesce(s{place}.spent, 0)"
            given.append(scope)
        self._store.run(
            "CREATE OR REPLACE TEMP TABLE admitted AS SELECT c.*, a.person IS NULL AS fresh "
            f"FROM ({charges}) c LEFT JOIN ledger.accounts a ON a.person = c.person{joins} WHERE c.units > 0 "
            f"AND c.units <= {most - spare:d} - coalesce(a.spent, 0) AND NOT coalesce(a.gone, FALSE){tests}",
            [*(parameters or []), *given],
        )

    def settle(
        self, public: dict[str, Any], *, key: str, analyst: str, purpose: str | None, reserved: str | None = None
    ) -> Entry:
        """Charge everybody in ``admitted`` and store the finished answer, in one transaction.

        Args:
            public: the entry: question, price, answer.
            key, analyst, purpose, reserved: as asked.

        Guarantee: afterwards either the answer is stored and everybody in it is charged, or neither.
        """
        with self._store.writing():
            run = self._store.run
            before = self._total()
            number = self._next()[0]
            run(
                "UPDATE ledger.accounts SET spent = spent + c.units FROM admitted c "
                "WHERE c.person = accounts.person AND NOT c.fresh"
            )
            run("INSERT INTO ledger.accounts SELECT person, units, FALSE FROM admitted WHERE fresh")
            for scope in _scopes(analyst, purpose):
                if scope in self._limits:
                    self._charge_share(scope)
            run("INSERT INTO ledger.charges SELECT ?, person, units FROM admitted", [number])
            people, units = run("SELECT count(*), coalesce(sum(units), 0) FROM admitted").fetchone()
            if self._total() != before + units or not self._within_budget():
                raise LedgerError("the accounts do not add up")  # undone, and reported as a failed transaction
            entry = self._append(
                {
                    **public,
                    "kind": "answered",
                    "analyst": analyst,
                    "purpose": purpose,
                    "reserved": reserved,
                    "key": key,
                },
                {"units": int(units), "people": int(people)},
                key=key,
                analyst=analyst,
                purpose=purpose,
            )
        if reserved is not None:
            self._reserved.pop(reserved, None)
        return entry

    def retire(self, person: object) -> None:
        """Somebody leaves: left out of every later question. The account stays: nobody returns with a new one."""
        self._mark(person, gone=True)

    def restore(self, person: object) -> None:
        """Somebody returns, to the account as it was left."""
        self._mark(person, gone=False)

    def _charge_share(self, scope: str) -> None:
        self._store.run(
            "UPDATE ledger.shares SET spent = spent + c.units FROM admitted c "
            "WHERE c.person = shares.person AND shares.scope = ?",
            [scope],
        )
        self._store.run(
            "INSERT INTO ledger.shares SELECT ?, person, units FROM admitted c WHERE NOT EXISTS "
            "(SELECT 1 FROM ledger.shares s WHERE s.person = c.person AND s.scope = ?)",
            [scope, scope],
        )

    def _mark(self, person: object, *, gone: bool) -> None:
        known = self.person(person)
        with self._store.writing():
            self._store.run(
                "INSERT INTO ledger.accounts SELECT ?, 0, FALSE WHERE NOT EXISTS "
                "(SELECT 1 FROM ledger.accounts WHERE person = ?)",
                [known, known],
            )
            self._store.run("UPDATE ledger.accounts SET gone = ? WHERE person = ?", [gone, known])
            self._append({"kind": "retired" if gone else "returned"}, {"person": known})

    def _total(self) -> int:
        return int(self._store.run("SELECT coalesce(sum(spent), 0) FROM ledger.accounts").fetchone()[0])

    def _within_budget(self) -> bool:
        return int(self._store.run("SELECT coalesce(max(spent), 0) FROM ledger.accounts").fetchone()[0]) <= self._budget

    def _next(self) -> tuple[int, str]:
        row = self._store.run("SELECT number, hash FROM ledger.record ORDER BY number DESC LIMIT 1").fetchone()
        if row is None:
            raise LedgerError("the record is empty")
        return row[0] + 1, row[1]

    def _append(
        self,
        public: dict[str, Any],
        private: dict[str, Any] | None = None,
        *,
        key: str | None = None,
        analyst: str | None = None,
        purpose: str | None = None,
    ) -> Entry:
        number, before = self._next()
        row = sealed(number, before, public, private or {}, key=key, analyst=analyst, purpose=purpose)
        self._store.run("INSERT INTO ledger.record VALUES (?, ?, ?, ?, ?, ?, ?, ?)", list(row))
        return Entry(number, json.loads(row[5]), row[7])

    def _remember(self, public: dict[str, Any]) -> None:
        match public["kind"]:
            case "limited":
                self._limits[public["scope"]] = int(public["units"])
            case "reserved":
                self._reserved[public["name"]] = int(public["units"])
            case "released":
                self._reserved.pop(public["name"], None)


def _check_terms(budget: Zcdp | None, person: str | None) -> None:
    if person is not None:
        _check.one_of(KINDS, person=person)
    if budget is None:
        return
    if not isinstance(budget, Zcdp) or budget.count:
        raise ArgumentError(f"budget={budget!r} must be a fresh filters.Zcdp: queries are counted in zCDP")
    if budget.person_budget()[0] >= RANGE:
        raise ArgumentError(f"budget={budget!r} must be below {RANGE / MEASURE:g} of rho")


def _opening(budget: Zcdp, person: str) -> tuple[Any, ...]:
    terms = {
        "kind": "opened",
        "measure": "zCDP rho",
        "units": MEASURE,
        "budget": budget.person_budget()[0],
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "person": person,
    }
    return sealed(0, START, terms, {})


def _scope(analyst: str | None, purpose: str | None) -> str:
    if (analyst is None) == (purpose is None):
        raise ArgumentError("give either analyst= or purpose=")
    if analyst is not None:
        name(analyst=analyst)
        return f"analyst:{analyst}"
    name(purpose=purpose)
    return f"purpose:{purpose}"


def _scopes(analyst: str, purpose: str | None) -> Iterable[str]:
    yield f"analyst:{analyst}"
    if purpose is not None:
        yield f"purpose:{purpose}"


def _exceeded(asked: int, budget: int, left: int) -> BudgetExceeded:
    """From public numbers alone."""
    rho = {"asked": to_float(asked), "spent": to_float(budget - left), "left": to_float(left, down=True)}
    return BudgetExceeded(
        f"the question may cost rho = {rho['asked']:.6g}; nobody may have more than {rho['left']:.6g} for it",
        **rho,
    )
