"""Charges every recorded question again, from the data, into a table of its own. For the data holder.

Beside the charges there is a running sum for each person, in all and for each scope that is ever limited: a question
looks at the sums alone, so that all questions together take time in proportion to their number.
"""

from collections.abc import Callable, Collection
from functools import partial

from almoner.errors import AlmonerError
from almoner.ledger import Answered, Entry, Finding, Ledger
from almoner.queries._ask.so_far import span_of
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.question import Question
from almoner.queries._sql.compiler import Compiled
from almoner.queries._tables.engine import Engine

ALL = ""  # the scope of the sums over everything


def replayed(ledger: Ledger, rows: Engine) -> Finding:
    """Charge every question again, and find whether the charges are the ledger's, to the unit.

    Taken from the ledger are those up to the last that were merged, since what single people had spent before is not
    known any more, those about data sets of other rows, and those of trainings and streams, whose trainers alone have
    the records.
    """
    what = "charging every question again from the data gives the same accounts"
    if merged := ledger.entries("merged"):
        what += ", but for questions up to the last one that was merged, whose charges are taken as they are"
    limited = {str(entry.public["scope"]) for entry in ledger.entries("limited")}
    through = max((int(entry.public["through"]) for entry in merged), default=-1)
    again, others = _Again(ledger, rows, limited, ledger.entries("erased")), _Others(ledger, rows)
    try:
        for entry in merged:
            again.take(entry)
        for answered in ledger.history():
            entry = answered.entry
            if entry.kind == "merged":  # taken above, once
                continue
            if entry.kind != "answered" or entry.number <= through or others.has(entry, partial(again.plan, entry)):
                again.take(entry)
            elif not again.charge(answered):
                return Finding(what, False)
        if others.told:
            told = " and ".join(sorted(others.told))
            what += f", but for questions about {told}, whose charges are taken as they are"
        return Finding(what, again.agrees())
    finally:
        again.close()


class _Others:
    """Which questions cannot be charged from the rows, because they were about other data sets; and their names."""

    def __init__(self, ledger: Ledger, rows: Engine) -> None:
        self._tables = set(rows.schema.people) if rows.schema.named else set()
        self._path = rows.schema.path
        self._person = {entry.number: entry.public["person"] for entry in ledger.entries("dataset")}
        self._now = {name: each.number for name, each in ledger.datasets.items()}
        self.told: set[str] = set()

    def has(self, entry: Entry, plans: Callable[[], object]) -> bool:
        """True if it is about other data sets, whose names are kept; ``plans`` raises where the rows lack columns."""
        if not self._now:
            return False
        name, declared = entry.public.get("dataset"), entry.public.get("declared", {})
        if name is None:
            self.told.add("tables that were no data sets yet")
            return True
        if name not in self._tables:
            self.told.add(name)
        elif any(self._person.get(declared.get(each)) != self._person[self._now[each]] for each in self._path(name)):
            self.told.add(f"{name} with another person column")
        elif beside := set(declared) - self._tables:
            try:
                plans()
                return False
            except AlmonerError:  # it uses columns of tables beside its own
                self.told |= beside
        else:
            return False
        return True


class _Again:
    """The charges and sums so far, in the workspace, of limited scopes too; those of erased people come at once."""

    def __init__(self, ledger: Ledger, rows: Engine, limited: Collection[str], erased: Collection[Entry]) -> None:
        self._ledger, self._rows, self._limited = ledger, rows, limited
        self._workspace, kind = ledger.store.workspace, ledger.accounts.names.kind
        self._charges, self._new, self._sums = (self._workspace.fresh_name(name) for name in ("again", "new", "sums"))
        self._erased = {entry.private["person"]: entry.number for entry in erased}
        self._recorded = ledger.accounts.charged()
        self._workspace.run(f"CREATE TEMP TABLE {self._charges}(question BIGINT, person {kind}, units BIGINT)")
        self._workspace.run(f"CREATE TEMP TABLE {self._sums}(scope VARCHAR, person {kind}, spent BIGINT)")
        for entry in erased:
            self.take(entry, sorted(limited))

    def plan(self, entry: Entry) -> tuple[Question, Compiled]:
        """The question of an entry, with its statements; raises where the rows lack what it needs."""
        asked = question(entry.public["question"])
        return asked, self._rows.plan(asked, described(asked))

    def take(self, entry: Entry, limited: Collection[str] | None = None) -> None:
        """Take over what an entry charged, as the ledger has it; nothing, where it was merged into another."""
        self._workspace.run(
            f"CREATE OR REPLACE TEMP TABLE {self._new} AS SELECT person, units FROM ({self._recorded}) c "
            f"WHERE question = {entry.number:d}"
        )
        self._add(entry, limited)

    def _add(self, entry: Entry, limited: Collection[str] | None = None) -> None:
        """Add the new charges to those of all entries, and to the sums over everything and in its limited scopes."""
        if limited is None:
            asked = {f"{name}:{entry.public.get(name)}" for name in ("analyst", "purpose") if entry.public.get(name)}
            limited = sorted(asked & set(self._limited))
        self._workspace.run(f"INSERT INTO {self._charges} SELECT {entry.number:d}, * FROM {self._new}")
        self._workspace.run(
            f"CREATE OR REPLACE TEMP TABLE {self._sums} AS SELECT scope, person, CAST(sum(spent) AS BIGINT) AS spent "
            f"FROM (SELECT * FROM {self._sums} UNION ALL SELECT unnest(CAST(? AS VARCHAR[])), * FROM {self._new}) s "
            "GROUP BY scope, person",
            [[ALL, *limited]],
        )

    def agrees(self) -> bool:
        different = (
            f"SELECT 1 FROM {self._charges} a FULL JOIN ({self._recorded}) c "
            "ON a.question = c.question AND a.person = c.person "
            "WHERE coalesce(a.units, 0) <> coalesce(c.units, 0) LIMIT 1"
        )
        return not self._workspace.run(different).fetchall()

    def close(self) -> None:
        self._workspace.drop([self._charges, self._new, self._sums])

    def charge(self, answered: Answered) -> bool:
        """Charge one question again, by the sums so far; whether its price and periods are the recorded ones."""
        try:
            asked, plan = self.plan(answered.entry)
        except AlmonerError:  # a column is gone
            return False
        charges, workspace, joins, left = self._rows.charges(plan), self._workspace, "", []
        allowed = [(ALL, answered.allowance.most), *answered.allowance.shares]
        for place, (_, most) in enumerate(allowed):
            joins += f" LEFT JOIN {self._sums} s{place} ON s{place}.person = c.person AND s{place}.scope = ?"
            left.append(f"{most - asked.spare_units:d} - coalesce(s{place}.spent, 0)")
        pays = asked.payment.sql(f"least({', '.join(left)})", divide="//")
        names = self._ledger.accounts.names
        here = f"c.units > 0 AND NOT list_contains(CAST(? AS {names.kind}[]), c.person)"
        stored = f"SELECT * REPLACE ({names.sql('person')} AS person) FROM ({charges.sql}) q"
        gone = answered.gone | {person for person, entry in self._erased.items() if answered.entry.number < entry}
        workspace.make(charges.tables)
        workspace.run(
            f"CREATE OR REPLACE TEMP TABLE {self._new} AS SELECT c.person, {pays.units} AS units "
            f"FROM ({stored}) c{joins} WHERE {pays.taken} AND {here}",
            [*charges.parameters, *(scope for scope, _ in allowed), [names.listed(person) for person in gone]],
        )
        workspace.drop(table.name for table in charges.tables)
        public, periods = answered.entry.public, self._ledger.periods
        if asked.price != int(public["price"]):
            return False
        if (said := public.get("periods")) is not None:
            span = None if periods is None else span_of(asked, periods, self._rows.schema)
            if span is None or span[0] < said[0] or said[1] < span[1]:  # they must hold all rows it can be about
                return False
        self._add(answered.entry)
        return True
