"""Questions about the values of a column, as SQL: how many differ, or how many people have each.

Each person keeps at most so many values, in the order of a hash of the person and the value: which ones depends on that
person's rows alone, and people with the same values keep different ones.
"""

from collections.abc import Mapping

from almoner.queries._questions.prices import STEPS, pure_units_per_step, units_per_step
from almoner.queries._questions.question import LONGEST_KEY, Question
from almoner.queries._questions.row_contributions import Values
from almoner.queries._sql.columns import cast
from almoner.queries._sql.dialects import Dialect, double
from almoner.queries._sql.keys import CELLS, key_kind

__all__ = ["value_of", "values_form"]


def value_of(values: Values, kinds: Mapping[str, str], sql: Dialect) -> str:
    """The value in a row, NULL where it is missing or a text too long for a key."""
    kind = key_kind(values.column, kinds)
    if kind != "text":
        return cast(values.column, kind, sql)
    value = sql.person["VARCHAR"].format(sql.columns[values.column])  # missing where its bytes are no text
    return sql.letters.format(f"(CASE WHEN length({value}) <= {LONGEST_KEY:d} THEN {value} END)")


def values_form(
    question: Question, values: Values, rows: str, parameters: tuple[object, ...], sql: Dialect
) -> tuple[str, str, tuple[object, ...], str]:
    """(The rows of the table of cells, charges, parameters, sums); ``rows`` gives person, cell, value."""
    cells = sql.table.format(CELLS)
    return _kept(values, rows, sql), _charges(question, values, cells), parameters, _sums(values, cells)


def _kept(values: Values, rows: str, sql: Dialect) -> str:
    """The rows of the table of cells: person, cell, value; of each person at most ``most``.

    Args:
        values: what is asked for.
        rows: SQL that gives person, cell, value.
        sql: of the engine.
    """
    text = sql.types["text"]
    order = f"md5(CAST(person AS {text}) || ':' || CAST(cell AS {text}) || ':' || CAST(value AS {text})), cell, value"
    placed = (
        f"SELECT person, cell, value, row_number() OVER (PARTITION BY person ORDER BY {order}) AS place "
        f"FROM (SELECT DISTINCT person, cell, value FROM ({rows}) WHERE value IS NOT NULL)"
    )
    return f"SELECT person, cell, value FROM ({placed}) WHERE place <= {values.most:d}"


def _charges(question: Question, values: Values, cells: str) -> str:
    """Each person's price, for the values that were kept; ``cells`` is the table of cells.

    A person moves a number of people by at most 1, and a number of different values of a cell by at most the number of
    values kept there.

    Guarantee: units >= (the L2 norm of how far the person can move the exact results)**2 / (2 sigma**2), in units of
        rho; for pure budgets, units >= (the L1 norm) / scale, in units of epsilon.
    Source: theory 2.9, 5.1 and 5.2; docs/proofs/unknown-keys.md, Lemmas 1 and 2.
    """
    kept = f"SELECT person, CAST(count(*) AS DOUBLE) AS n FROM {cells} GROUP BY person"
    if not values.people:
        kept += ", cell"
    length = "n" if question.pure or values.people else "n * n"  # whole numbers below 2^53
    steps = STEPS if question.pure else STEPS**2
    per_step = (pure_units_per_step if question.pure else units_per_step)(question.noise)
    squares = f"SELECT person, sum({length}) * {double(steps)} AS square FROM ({kept}) GROUP BY person"
    units = f"least({question.price:d}, CAST(ceil(square * {double(per_step)}) AS BIGINT))"
    return f"SELECT person, CAST({units} AS BIGINT) AS units, {double(1)} AS factor FROM ({squares})"


def _sums(values: Values, cells: str) -> str:
    """(value, people) for each value that a person who takes part has; else (cell, different values in steps)."""
    both = f"{cells} JOIN {{admitted}} USING (person)"
    if values.people:
        return f"SELECT value, count(*) FROM {both} GROUP BY value"
    return f"SELECT cell, CAST(count(DISTINCT value) * {STEPS:d} AS BIGINT) FROM {both} GROUP BY cell"
