"""A question as SQL: each person's contribution in whole steps, its price, and the sums of those admitted.

The rows are those of one table of people, with what is joined to them. ``charges`` is a query that gives each person's
price; ``sums`` adds up the rows of it that the ledger admits. Contributions stand beside the prices while there are few
coordinates (wide), and in a table ``cells`` of their own when there are many (long), or where an engine elsewhere adds
up each person's rows: only that is in its dialect, and whatever follows is done by DuckDB, where the accounts are.

Nothing here can fail on an entry of the data: casts that do not fit are missing, and contributions are cut off at 2^50
steps. They are whole numbers in doubles, exact for people with fewer than 2^31 rows; sums over people are exact.
Nothing depends on the order in which an engine adds up: every engine finds the same units and sums, every time.

Reports: who cannot pay for a clipped contribution and its report keeps a smaller share in the answer, and has the rest
in the report; below the share at which that is cheapest, both shrink. See docs/proofs/truth-intervals.md, Lemma 1.

Values of a column: each person keeps at most so many, in the order of a hash of the person and the value: which ones
depends on that person's rows alone, and people with the same values keep different ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import nextafter
from typing import Any

from almoner._workspace import HANDED
from almoner.queries._language.expressions import checked_each, checked_steps
from almoner.queries._language.keys import LONGEST_KEY, are_ranges
from almoner.queries._questions.kinds.counts import Extremes, Lengths
from almoner.queries._questions.noise import STEPS, units_per_step
from almoner.queries._questions.question import Question
from almoner.queries._questions.row_contributions import AnyRow, Bins, CountRows, KeyCells, Values
from almoner.queries._sql.columns import CELLS, Keys, cast, key_kind, keys_of
from almoner.queries._sql.contributions import binned_rows, coordinates_of, number_of, place_between
from almoner.queries._sql.dialects import Dialect, double
from almoner.queries._sql.rows import Joined, People, Relation, Schema, one_row_each

_ONE = double(1)
_ABOVE = double(1 + 1e-8)  # factor above every rounding of a longer sum


def beyond(factor: str, question: Question) -> str:
    """The length of the report on what a clip, of this factor, takes away from a person, in whole steps, rounded up."""
    clip, scale = double(question.clip_steps), double(question.report_scale * (1 + 1e-12))
    length = "square" if question.pure else "sqrt(square)"
    return (
        f"CASE WHEN {factor} < 1 THEN least({double(question.report_steps)}, "
        f"greatest(0, {length} * {_ABOVE} - {clip}) * {scale}) ELSE 0 END"
    )


def scale_of(factor: str, question: Question) -> str:
    """Size in the report of one step that is taken away from a person: less for a person longer than ``at_most``.

    Guarantee: times (1 - factor) times the length of the contribution, it is at most ``beyond``.
    """
    length = "square" if question.pure else "sqrt(square)"
    scale = double(question.report_scale)
    return f"CASE WHEN {factor} < 1 THEN least({scale}, beyond / ((1 - {factor}) * {length})) ELSE {scale} END"


def told(question: Question) -> str:
    """The people who take part; with a report also ``kept``, the share in the answer, and ``told``, that in the report.

    Guarantee: each person's contribution times both costs at most what was paid, as ``factor`` times the contribution
        and its full report would.
    Source: docs/proofs/truth-intervals.md, Lemma 1.
    """
    if not question.report_scale:
        return "{admitted}"
    people = "SELECT *, factor / clipped AS part FROM {admitted}"
    if question.pure:
        turn = f"least({_ONE}, scale)"
        cheapest = f"{turn} * (2 - {turn})"
        cost = "part * (clipped + scale * (1 - clipped))"
        rest, less = "(1 - greatest(cost, cheapest)) / (1 - scale)", "cost / cheapest"
    else:
        turn = cheapest = "scale * scale / (1 + scale * scale)"
        cost = "part * part * (clipped * clipped + scale * scale * (1 - clipped) * (1 - clipped))"
        root = f"greatest({double(0)}, greatest(cost, cheapest) * (1 + scale * scale) - scale * scale)"
        rest, less = f"(1 - sqrt({root})) / (1 + scale * scale)", "sqrt(cost / cheapest)"
    costs = f"SELECT *, {turn} AS turn, {cheapest} AS cheapest, {cost} AS cost FROM ({people})"
    moves = "part < 1 AND clipped > turn"
    shares = (
        f"SELECT *, CASE WHEN {moves} THEN {rest} ELSE 1 - clipped END AS rest, "
        f"CASE WHEN NOT ({moves}) THEN part WHEN cost >= cheapest THEN {_ONE} ELSE {less} END AS less FROM ({costs})"
    )
    kept = f"CASE WHEN {moves} THEN less * (1 - rest) ELSE factor END"
    return f"(SELECT *, {kept} AS kept, less * scale * rest AS told FROM ({shares}))"


def value_of(values: Values, relation: Relation) -> str:
    """The value in a row, NULL where it is missing or no key: a text too long, a date that is told like another one."""
    kind, sql = key_kind(values.column, relation), relation.dialect
    if kind != "text":
        value = cast(values.column, kind, sql)
        return sql.functions["dated"].format(value) if (kind, values.people) == ("date", True) else value
    value = sql.person["VARCHAR"].format(sql.columns[values.column])  # missing where its bytes are no text
    return sql.letters.format(f"(CASE WHEN length({value}) <= {LONGEST_KEY:d} THEN {value} END)")


def _kept(values: Values, rows: str) -> str:
    """The rows of the table of cells: person, cell, value, as ``rows`` gives them; of each person at most ``most``."""
    order = "md5(CAST(person AS VARCHAR) || ':' || CAST(cell AS VARCHAR) || ':' || CAST(value AS VARCHAR)), cell, value"
    place = f"row_number() OVER (PARTITION BY person ORDER BY {order}) AS place"
    placed = f"SELECT person, cell, value, {place} FROM {rows}"
    return f"SELECT person, cell, value FROM ({placed}) WHERE place <= {values.most:d}"


def _value_charges(question: Question, values: Values) -> str:
    """Each person's price, for the values that were kept.

    Guarantee: units >= (the L2 norm of how far the person can move the exact results)**2 / (2 sigma**2), in units of
        rho; for pure budgets, units >= (the L1 norm) / scale, in units of epsilon.
    Source: theory 2.9, 5.1 and 5.2; docs/proofs/unknown-keys.md, Lemmas 1 and 2.
    """
    kept = f"SELECT person, CAST(count(*) AS DOUBLE) AS n FROM {CELLS} GROUP BY person"
    if not values.people:
        kept += ", cell"
    length = "n" if question.pure or values.people else "n * n"  # whole numbers below 2^53
    steps = STEPS if question.pure else STEPS**2
    per_step = units_per_step(question.noise, pure=question.pure)
    squares = f"SELECT person, sum({length}) * {double(steps)} AS square FROM ({kept}) GROUP BY person"
    units = f"least({question.price:d}, CAST(ceil(square * {double(per_step)}) AS BIGINT))"
    return f"SELECT person, CAST({units} AS BIGINT) AS units, {double(1)} AS factor FROM ({squares})"


_TOTAL = "sum(CAST({0} AS BIGINT))"  # in 128 bits
_ALMOST = 1 - 1e-8  # factor that keeps a shrunk contribution, rounded, no longer than the clip
_WIDE = 8
_EXACT = 2.0**53  # sums of whole doubles below are exact
_EXACT_SQL = double(_EXACT)
_LIMB = 2**20  # sums of squares of parts below, over a million cells and their coordinates, stay below 2^63
_HIGH, _MIDDLE = double(_LIMB**2), double(_LIMB)
_PLANS = 16  # so many compiled questions are kept


@dataclass(frozen=True, slots=True)
class Compiled:
    """The statements of a question. Every field is public."""

    keys: tuple[Keys, ...]  # for each column to group by
    cells: str | None
    """Gives the rows of the table ``cells``, which ``charges`` and ``sums`` read; None where there is none. It reads
    the table ``HANDED`` where ``rows`` is given."""
    charges: str  # gives person, units, factor, and in the wide form the contribution
    parameters: tuple[object, ...]  # of ``rows``, else of ``cells``, else of ``charges``: of the first that is there
    sums: str
    """Gives (cell, sum, ...) for cells in which a person takes part, each cell once; {admitted} is who takes part."""
    size: int  # numbers in the answer
    reports: int = 0
    """Numbers in the report on what was taken away, which follow: in the long form the last ones of each cell."""
    rows: str | None = None
    """In the dialect of an engine elsewhere: gives each person's contributions by cell; None for DuckDB's own rows."""

    def added(self, rows: Iterable[tuple[Any, ...]]) -> list[int]:
        """All sums in order, from the rows that ``sums`` gives: 0 in a cell in which no person takes part."""
        sums = [0] * (self.size + self.reports)
        for cell, *values in rows:
            numbers = [int(value or 0) for value in values]
            if self.reports and self.cells is not None:
                half = len(numbers) // 2
                sums[self.size + cell * half : self.size + (cell + 1) * half] = numbers[half:]
                numbers = numbers[:half]
            place = cell * len(numbers)
            sums[place : place + len(numbers)] = numbers
        return sums


class Compiler:
    """Compiles questions over the tables of a session, each once.

    ``handed``: of rows that an engine elsewhere hands over, SQL of the workspace for whose a row is; None in DuckDB.
    """

    def __init__(self, schema: Schema, dialect: Dialect, handed: str | None = None) -> None:
        self.schema, self._dialect, self._handed = schema, dialect, handed
        self._plans: dict[str, Compiled] = {}

    def plan(self, question: Question, described: Mapping[str, object]) -> Compiled:
        """The statements of a question that can be asked of these columns, by their names and types.

        They are found by its plain values: to Python, not to SQL, 1 and True are the same.
        """
        key = repr(described)
        plan = self._plans.get(key)
        if plan is None:
            plan = _compiled(question, self.schema, self._dialect, self._handed)
            if len(self._plans) >= _PLANS:
                self._plans.pop(next(iter(self._plans.copy())), None)  # another thread may add one meanwhile
            self._plans[key] = plan
        return plan


def _compiled(question: Question, schema: Schema, sql: Dialect, handed: str | None) -> Compiled:
    if isinstance(question, Lengths):
        return _compiled_lengths(question, schema, sql, handed)
    if isinstance(question, Extremes):
        return _compiled_extremes(question, schema, sql, handed)
    keys, rows, totals, parameters = _rows(question, schema, sql)
    values = question.values()
    if values is not None:
        both = f"{CELLS} JOIN {{admitted}} USING (person)"
        sums = f"SELECT value, count(*) FROM {both} GROUP BY value"
        if not values.people:  # the number of different values, in steps
            sums = f"SELECT cell, CAST(count(DISTINCT value) * {STEPS:d} AS BIGINT) FROM {both} GROUP BY cell"
        made = f"SELECT DISTINCT person, cell, value FROM ({rows}) WHERE value IS NOT NULL"
        distinct, read = _handed(made, handed, "SELECT DISTINCT person, cell, value FROM {}")
        cells, charges = _kept(values, distinct), _value_charges(question, values)
        return Compiled(keys, cells, charges, parameters, sums, question.groups, rows=read)
    number = question.groups * (1 if question.bins() is None else question.coordinates)
    size = question.groups * question.coordinates
    if handed is None and number * len(totals) <= _WIDE:
        charges, sums = _wide(question, rows, totals, number)
        return Compiled(keys, None, charges, parameters, sums, size, question.reports)
    read, made, charges, sums = _long(question, rows, totals, handed)
    return Compiled(keys, made, charges, parameters, sums, size, question.reports, read)


def _compiled_lengths(question: Lengths, schema: Schema, sql: Dialect, handed: str | None) -> Compiled:
    """One full row for each person with a contribution to the other question, in the bucket of its length."""
    keys, rows, totals, parameters = _rows(question.of, schema, sql)
    read, table, _, _ = _long(question.of, rows, totals, handed)
    lengths = _lengths_long([f"x{place}" for place in range(len(totals))], question.of)
    edges = [edge * STEPS if question.pure else (edge * STEPS) ** 2 for edge in question.bins().edges]
    one = double(STEPS if question.pure else STEPS**2)
    each = (
        f"SELECT person, CAST({place_between('square', edges)} AS INTEGER) AS bucket, {double(STEPS)} AS x0, "
        f"{one} AS square FROM ({lengths}) l WHERE square > 0"
    )
    sums = f"SELECT bucket, {_added(['x0'])} FROM {{admitted}} GROUP BY bucket"
    return Compiled(keys, table, _charges(each, question), parameters, sums, question.coordinates, rows=read)


def _compiled_extremes(question: Extremes, schema: Schema, sql: Dialect, handed: str | None) -> Compiled:
    """A half in the bucket of each person's largest entry, and one in that of the smallest."""
    relation = _relation(question, schema, sql)
    who, where = relation.who, relation.condition(question.where)
    bins, value = question.bins(), number_of(question.column, relation)
    tests = f"{who} IS NOT NULL AND {where.text} AND {sql.present.format(value)}"
    each = (
        f"SELECT {who} AS person, max({value}) AS largest, min({value}) AS smallest FROM {relation.source.text} d "
        f"WHERE {tests} GROUP BY {who}"
    )
    cells = [
        f"SELECT person, CAST({offset:d} + {place_between(name, bins.edges)} AS INTEGER) AS cell, "
        f"{double(question.steps)} AS x0 FROM extremes"
        for offset, name in ((0, "largest"), (bins.cells // 2, "smallest"))
    ]
    merged = "SELECT person, max(largest) AS largest, min(smallest) AS smallest FROM {} GROUP BY person"
    extremes, read = _handed(each, handed, merged)
    table = f"WITH extremes AS (FROM {extremes}) {' UNION ALL '.join(cells)}"
    both = f"{CELLS} JOIN {{admitted}} USING (person)"
    sums = f"SELECT cell, {_added(['x0'])} FROM {both} GROUP BY cell"
    charges, parameters = _charges(_lengths_long(["x0"], question), question), relation.source.parameters
    return Compiled((), table, charges, (*parameters, *where.parameters), sums, question.coordinates, rows=read)


def _handed(rows: str, handed: str | None, merged: str) -> tuple[str, str | None]:
    """(Rows for a statement here, what an engine elsewhere runs); parts of people are ``merged`` before charges."""
    if handed is None:
        return f"({rows})", None
    return f"({merged.format(f'(SELECT * REPLACE ({handed} AS person) FROM {HANDED})')})", rows


def _relation(question: Question, schema: Schema, sql: Dialect) -> Relation:
    """The rows that a question reads: those of its table, or one for each person."""
    people: People | Joined = Joined(schema, schema.name(question.table), sql)
    if question.beside is not None and isinstance(people, Joined):
        own = Joined(schema, people.name, sql)
        people.add(one_row_each(own, checked_steps(question.beside, "beside"), sql))
    for key, steps in () if question.each is None else checked_each(question.each):
        people = one_row_each(people, steps, sql, key)
    if question.each_person is not None:
        people = one_row_each(people, checked_steps(question.each_person), sql)
    return Relation(people, sql)


def _rows(
    question: Question, schema: Schema, sql: Dialect
) -> tuple[tuple[Keys, ...], str, list[str], tuple[object, ...]]:
    """(Tables of keys, SQL of rows that gives person, cell, ..., totals, parameters) of what is read."""
    relation = _relation(question, schema, sql)
    units, totals, conditions, parameters = coordinates_of(question, relation)
    who, where = relation.who, relation.condition(question.where)
    keys, joins, cell, tests = _grouping(question, relation)
    values = question.values()
    value = "" if values is None else f", {value_of(values, relation)} AS value"
    data = relation.source  # with all that was looked up
    tests = [f"{who} IS NOT NULL", where.text, *conditions, *tests]
    source = f"FROM {data.text} d {joins} WHERE {' AND '.join(tests)}"
    bins = question.bins()
    if isinstance(bins, Bins):
        rows = binned_rows(bins, who, cell, source, number_of(bins.column, relation), sql)
    else:
        listed = "".join(f", {unit} AS u{place}" for place, unit in enumerate(units))
        rows = f"SELECT {who} AS person, CAST({cell} AS INTEGER) AS cell{listed}{value} {source}"
    return keys, rows, totals, (*parameters, *data.parameters, *where.parameters)


def _long(question: Question, rows: str, totals: list[str], handed: str | None) -> tuple[str | None, str, str, str]:
    """(What an engine elsewhere runs, the rows of the table of cells, charges, sums): a row for a person and cell."""
    names = [f"x{place}" for place in range(len(totals))]
    listed = ", ".join(f"{total.format(only='')} AS {name}" for total, name in zip(totals, names, strict=True))
    parts = ", ".join(f"sum({name}) AS {name}" for name in names)
    merged = f"SELECT person, cell, {parts} FROM {{}} GROUP BY person, cell"
    long, read = _handed(f"SELECT person, cell, {listed} FROM ({rows}) GROUP BY person, cell", handed, merged)
    both = f"{CELLS} JOIN {told(question)} USING (person)"
    sums = f"SELECT cell, {_summed(names, question)} FROM {both} GROUP BY cell"
    return read, _bounded_long(long, names, question), _charges(_lengths_long(names, question), question), sums


def _wide(question: Question, rows: str, totals: list[str], cells: int) -> tuple[str, str]:
    """(Charges, sums) with all of a person's cells in one row."""
    grid = [[f"x{place}_{name}" for name in range(len(totals))] for place in range(cells)]
    listed = ", ".join(
        f"{total.format(only=f' FILTER (WHERE cell = {place:d})' if cells > 1 else '')} AS {name}"
        for place, row in enumerate(grid)
        for total, name in zip(totals, row, strict=True)
    )
    wide = f"SELECT person, {listed} FROM ({rows}) GROUP BY person"
    flat = [name for row in grid for name in row]
    width = 1 if question.bins() is None else question.coordinates
    groups = [[name for row in grid[start : start + width] for name in row] for start in range(0, cells, width)]
    bounded = _bounded_wide(wide, groups, question)
    by_weight = question.choice is not None or question.bin_factor() is not None
    measured = [f"({_length(names, pure=True)})" for names in groups] if by_weight else flat
    lengths = f"SELECT *, {_firm(_length(measured, pure=question.pure))} AS square FROM ({bounded})"
    return _charges(lengths, question), f"SELECT 0, {_summed(flat, question)} FROM {told(question)}"


def _grouping(question: Question, relation: Relation) -> tuple[tuple[Keys, ...], str, str, list[str]]:
    """(tables of keys, joins, the number of a row's group, or of its cell where cells are keys, conditions on rows)."""
    by: list[tuple[str, tuple[object, ...]]] = list(question.keys)
    bins = question.bins()
    if isinstance(bins, KeyCells):
        by.append((bins.column, bins.keys))
    tables, joins, entries, tests = [], [], [], []
    for place, (column, keys) in enumerate(by):
        if are_ranges(keys):
            entry = relation.place(column, keys)
            tests.append(f"{entry} IS NOT NULL")
        else:
            table, join = keys_of(f"keys{place}", column, keys, relation, relation.dialect)
            entry = f"keys{place}_k.place"
            tables.append(table)
            joins.append(join)
        entries.append(entry)
    cells, first = list[str](), 0
    for each in question.tables:
        size, terms = 1, [f"{first:d}"] * bool(first)
        for place in reversed((*each, *range(len(question.keys), len(by)))):
            terms.insert(0, f"{entries[place]} * {size:d}")
            size *= len(by[place][1])
        cells.append(" + ".join(terms) or "0")
        first += size
    if len(cells) > 1:  # a row stands in each table
        joins.append(f"CROSS JOIN ({' UNION ALL '.join(f'SELECT {nth:d} AS nth' for nth in range(len(cells)))}) parts")
        cases = " ".join(f"WHEN {nth:d} THEN {cell}" for nth, cell in enumerate(cells))
        cells = [f"CASE parts.nth {cases} END"]
    return tuple(tables), " ".join(joins), cells[0], tests


def _length(names: list[str], *, pure: bool) -> str:
    """The square of the L2 norm of whole numbers; for pure budgets their L1 norm. Both are called *square* in SQL."""
    return " + ".join(f"abs({name})" if pure else f"{name} * {name}" for name in names)


def _firm(square: str) -> str:
    """A sum of whole numbers, as squares are, that is not below the true one: exact if short, else rounded up."""
    return f"CASE WHEN {square} < {_EXACT_SQL} THEN {square} ELSE ({square}) * {_ABOVE} END"


def _limbs(names: list[str], question: Question) -> str:
    """Squares, or sizes, in parts that are whole numbers of 64 bits and are added up exactly in any order."""
    whole = (f"CAST(abs({name}) AS BIGINT)" for name in names)
    halves = [{"h": f"({each} >> {_LIMB.bit_length() - 1:d})", "l": f"({each} & {_LIMB - 1:d})"} for each in whole]
    limbs = ("{h}", "{l}") if question.pure else ("{h} * {h}", "2 * {h} * {l}", "{l} * {l}")
    sums = [" + ".join(limb.format(**each) for each in halves) for limb in limbs[: len(_worth(question))]]
    return ", ".join(f"{sum_} AS q{place}" for place, sum_ in enumerate(sums))


def _worth(question: Question) -> list[str]:
    """Worth of each part, as SQL; those below the first are 0 where every number counts whole rows."""
    worth = [_MIDDLE, _ONE] if question.pure else [_HIGH, _MIDDLE, _ONE]
    counts = all(isinstance(each, CountRows | AnyRow) for each in question.row()) and question.steps % _LIMB == 0
    whole = counts and question.per_group is None and getattr(question.bins(), "per", "") != "person"
    return worth[:1] if whole else worth


def _joined(question: Question, over: str = "") -> str:
    """The sum of squares, or of sizes, that the limbs add up to."""
    terms = [f"CAST(sum(q{limb}){over} AS DOUBLE) * {unit}" for limb, unit in enumerate(_worth(question))]
    return _firm(f"({' + '.join(terms)})")


def _lengths_long(names: list[str], question: Question) -> str:
    cells = CELLS
    if question.choice is not None or question.bin_factor() is not None:  # of the sums over the bins of each group
        listed = ", ".join(f"sum(abs({name})) AS {name}" for name in names)
        cells = f"(SELECT person, {listed} FROM {cells} GROUP BY person, cell // {question.coordinates:d})"
    limbs = f"SELECT person, {_limbs(names, question)} FROM {cells}"
    return f"SELECT person, {_joined(question)} AS square FROM ({limbs}) GROUP BY person"


def _shrunk(name: str, factor: str = "factor") -> str:
    """A whole number times a factor of at most 1, rounded towards zero."""
    return f"CASE WHEN {factor} = 1 THEN {name} ELSE trunc(({name} * {factor})) END"


def _shrinking(question: Question, square: str, bound: int) -> str:
    """1 within the bound, else what shrinks a contribution to it, and a little more."""
    most = bound if question.pure else bound**2
    within = double(nextafter(float(most), 0) if most > _EXACT and not question.pure else most)
    size = square if question.pure else f"sqrt({square})"
    return f"CASE WHEN {square} <= {within} THEN {_ONE} ELSE {double(bound * _ALMOST)} / {size} END"


def _bounded_long(rows: str, names: list[str], question: Question) -> str:
    """Cells within the bound for each group, of all its coordinates together."""
    if question.per_group is None:
        return f"FROM {rows}"
    square = f"SELECT *, {_firm(_length(names, pure=question.pure))} AS square FROM {rows}"
    if question.bins() is not None:  # a group's coordinates are in several cells
        over = f" OVER (PARTITION BY person, cell // {question.coordinates:d})"
        limbs = f"SELECT *, {_limbs(names, question)} FROM {rows}"
        square = f"SELECT *, {_joined(question, over)} AS square FROM ({limbs})"
    bound = int(question.per_group * STEPS)
    factors = f"SELECT *, {_shrinking(question, 'square', bound)} AS factor FROM ({square})"
    return f"SELECT person, cell, {', '.join(f'{_shrunk(name)} AS {name}' for name in names)} FROM ({factors})"


def _bounded_wide(rows: str, groups: list[list[str]], question: Question) -> str:
    """Bounded contributions where all coordinates stand in one row."""
    if question.per_group is None:
        return rows
    bound = int(question.per_group * STEPS)
    lengths = [_firm(_length(names, pure=question.pure)) for names in groups]
    squares = ", ".join(f"{length} AS s{place}" for place, length in enumerate(lengths))
    factors = ", ".join(f"{_shrinking(question, f's{place}', bound)} AS f{place}" for place in range(len(groups)))
    shrunk = ", ".join(f"{_shrunk(name, f'f{at}')} AS {name}" for at, names in enumerate(groups) for name in names)
    return f"SELECT person, {shrunk} FROM (SELECT *, {factors} FROM (SELECT *, {squares} FROM ({rows})))"


def _charges(squares: str, question: Question) -> str:
    """Each person's price and factor; for a report also ``clipped``, the same factor, and the report's ``scale``.

    Guarantee: units >= (L2 norm of what the person contributes after clipping, and to the report)**2 / (2 sigma**2), in
        units of rho, where for mixed bins the norm is that of each group's sum over its bins; for pure budgets,
        units >= (its L1 norm) / scale, in units of epsilon.
    Source: theory 2.9 and 5.1; docs/proofs: noise.md, Theorem 3; truth-intervals.md; running-counts.md, Theorem 1.
    """
    factor = _shrinking(question, "square", question.clip_steps)
    per_step = double(units_per_step(question.noise, pure=question.pure))
    paid, extra, without = f"{question.price:d}", "", "square"
    if question.report_scale:
        clip = double(question.clip_steps) if question.pure else double(question.clip_steps**2 * (1 + 1e-15))
        both = f"{clip} + beyond" if question.pure else f"{clip} + beyond * beyond"
        paid = f"least({question.price:d}, CAST(ceil(({both}) * {_ABOVE} * {per_step}) AS BIGINT))"
        extra = f", {factor} AS clipped, {scale_of(factor, question)} AS scale"
        squares, without = f"SELECT *, {beyond(factor, question)} AS beyond FROM ({squares})", "square, beyond"
    units = (
        f"CASE WHEN {factor} < 1 THEN {paid} ELSE least({question.price:d}, "
        f"CAST(ceil(square * {per_step}) AS BIGINT)) END"
    )
    return (
        f"SELECT * EXCLUDE ({without}), CAST({units} AS BIGINT) AS units, {factor} AS factor{extra} "
        f"FROM ({squares}) WHERE square > 0"
    )


def _summed(names: list[str], question: Question) -> str:
    """Sums over people; with a report also of what is taken away from these, at its scale; exact."""
    if not question.report_scale:
        return _added(names)
    return ", ".join([_added(names, "kept"), *(_TOTAL.format(f"trunc(({name} * told))") for name in names)])


def _added(names: list[str], factor: str = "factor") -> str:
    return ", ".join(_TOTAL.format(_shrunk(name, factor)) for name in names)
