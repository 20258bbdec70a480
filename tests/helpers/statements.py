"""Random SELECT statements over one table: most are in the subset, few of the mutated ones are, and hostile ones.

What a statement comes to, without noise, is compared with what DuckDB says of the same rows.
"""

import datetime
import random

import duckdb
import pyarrow as pa
import pytest

from almoner.queries import Sql
from almoner.queries._ask.answer import answer
from almoner.queries._ask.rows import arranged
from almoner.queries._questions.kinds_of import described
from almoner.queries._tables.statements import read_with

SIZE = 60
COLUMNS = {"n": "whole", "x": "number", "t": "text", "b": "bool", "d": "date"}
DAYS = [datetime.date(2011, 12, 1), datetime.date(2012, 1, 9)]
RANDOM = random.Random(4)
ROWS = pa.table(
    {
        "who": [f"p{RANDOM.randrange(20)}" for _ in range(SIZE)],
        "n": pa.array([RANDOM.choice([None, 0, 1, 2, 3, 7, -4]) for _ in range(SIZE)], pa.int64()),
        "x": pa.array([RANDOM.choice([None, 0.5, -1.25, 3.0, 8.5, 2.0]) for _ in range(SIZE)], pa.float64()),
        "t": pa.array([RANDOM.choice([None, "a", "b", "it's", "A%", ""]) for _ in range(SIZE)], pa.string()),
        "b": pa.array([RANDOM.choice([None, True, False]) for _ in range(SIZE)], pa.bool_()),
        "d": pa.array(
            [RANDOM.choice([None, datetime.date(2011, 12, 1), datetime.date(2012, 1, 9)]) for _ in range(SIZE)]
        ),
    }
)
LITERALS = {
    "number": ["0", "1", "-3", "2.5", "1e1"],
    "text": ["'a'", "'b'", "'it''s'", "''"],
    "date": ["DATE '2011-12-01'", "'2012-01-01'"],
}


def number(of, depth):
    """A number for each row."""
    if depth <= 0:
        return of.choice(["n", "x", "data.n", '"x"', *LITERALS["number"]])
    a, b = number(of, depth - 1), number(of, depth - 1)
    return of.choice(
        [
            f"({a} + {b})", f"({a} - {b})", f"{a} * 2", f"-({a})", f"abs({a})",
            f"CASE WHEN {truth(of, depth - 1)} THEN {a} ELSE {b} END", f"CASE WHEN {truth(of, depth - 1)} THEN {a} END",
            f"coalesce({a}, {b})", f"greatest({a}, {b})", f"least({a}, {b}, 3)",
            f"CAST({a} AS DOUBLE)", "length(t)", "year(d)", "extract(month FROM d)", f"floor({a})", f"ifnull({a}, 0)",
        ]
    )  # fmt: skip


def truth(of, depth):
    """A condition on a row."""
    a, b = number(of, depth - 1), number(of, depth - 2)
    simple = [
        f"{a} {of.choice(['=', '<>', '!=', '<', '<=', '>', '>='])} {b}", f"t = {of.choice(LITERALS['text'])}",
        "b", "NOT b", f"t IN ({', '.join(of.sample(LITERALS['text'], 2))})", "n NOT IN (1, 2)",
        f"t LIKE {of.choice(['%', 'a%', '_', 'A%'])!r}", "t NOT LIKE '%s'", "x IS NULL", "x IS NOT NULL",
        f"{a} BETWEEN -1 AND 3", f"n NOT BETWEEN {b} AND 9",
        f"d {of.choice(['<', '>=', '='])} {of.choice(LITERALS['date'])}", "date_trunc('month', d) = '2011-12-01'",
    ]  # fmt: skip
    if depth <= 0:
        return of.choice(simple)
    inside = [
        f"({truth(of, depth - 1)} {of.choice(['AND', 'OR'])} {truth(of, depth - 1)})",
        f"NOT ({truth(of, depth - 1)})",
    ]
    return of.choice([*simple, *inside])


def aggregate(of):
    """An aggregate; bounds are in the expression, or those of n and x."""
    clamped = f"greatest(least({number(of, 1)}, 9), -5)"
    column = of.choice(["n", "x", clamped, "b", f"CASE WHEN {truth(of, 1)} THEN 1 ELSE 0 END"])
    numeric = of.choice(["n", "x", clamped])
    listed = ["count(*)", "count()", f"count({column})", "count(DISTINCT who)", f"sum({numeric})", f"avg({numeric})"]
    listed += [f"var_pop({numeric})", f"stddev_pop({numeric})", f"count_if({truth(of, 1)})"]
    listed += [f"count(*) FILTER (WHERE {truth(of, 1)})", f"sum({numeric}) FILTER (WHERE {truth(of, 0)})"]
    return of.choice(listed)


def random_statement(of):
    """A SELECT: (text, the names of its keys)."""
    keys = of.sample(["t", "b", "n", "CASE WHEN n > 1 THEN 'more' ELSE 'less' END"], of.choice([0, 0, 1, 1, 2]))
    named = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    values = [f"{aggregate(of)} AS a{place}" for place in range(of.randrange(1, 4))]
    where = of.choice(["", f" WHERE {truth(of, 2)}", f" WHERE x IS NOT NULL AND {truth(of, 1)}"])
    group = f" GROUP BY {', '.join(of.choice([key, str(place + 1), f'k{place}']) for place, key in enumerate(keys))}"
    select = f"SELECT {', '.join([*named, *values])} FROM data{where}{group if keys else ''}"
    return select, [f"k{place}" for place in range(len(keys))]


def nested(of, text):
    """A statement over a SELECT in place of the table: of its rows, of a row for each person, or for each key."""
    inner = "who, {} FROM data WHERE " + truth(of, 1) + " GROUP BY who{}" + of.choice(["", " HAVING count(*) > 1"])
    clamped = f"greatest(least({number(of, 1)}, 30), -30)"
    steps = [
        f"{of.choice(['sum', 'min', 'max'])}({clamped}) AS n", f"avg({of.choice(['n', 'x'])}) AS x",
        f"{of.choice(['bool_or', 'bool_and'])}({truth(of, 1)}) AS b", "min(d) AS d",
    ]  # fmt: skip
    # DuckDB's count_if is NULL, not 0, where its condition is never known
    counted = of.choice(["count(*)", "count(x)", f"count(*) FILTER (WHERE {truth(of, 1)})", "count(DISTINCT t)"])
    steps[0] = of.choice([steps[0], f"{counted} AS n", f"sum(n) FILTER (WHERE {truth(of, 1)}) AS n"])
    inside = of.choice(
        [
            f"SELECT * FROM data WHERE {truth(of, 1)}",
            f"SELECT who, greatest(least({number(of, 1)}, 250), -250) AS n, x, t, b, d FROM data WHERE {truth(of, 1)}",
            "SELECT " + inner.format(", ".join([*steps, "max(t) AS t"]), ""),
            "SELECT t, " + inner.format(", ".join(steps), ", t").replace(" WHERE ", " WHERE t IS NOT NULL AND "),
        ]
    )
    if of.randrange(2):
        return f"WITH data AS ({inside}) {text}"
    return text.replace(" FROM data", f" FROM ({inside}) AS data", 1)


WORDS = [
    "DISTINCT", "OVER ()", "LIMIT 3", "OFFSET 1", "ORDER BY 1", "HAVING count(*) > 1", "UNION ALL SELECT 1",
    "WITH q AS (SELECT 1)", "TABLESAMPLE 10%", "QUALIFY 1", "(SELECT 1)", "*", "who", "min(n)", "$1", "?", ";", "--",
    "/*", "'", "\"", "NULL", "x[1]", "{'a': 1}", "lambda y: y", "random()", "now()", "read_csv('x')", "ILIKE 'a'",
    "SIMILAR TO 'a'", "::INTEGER", "::BLOB", "COLLATE NOCASE", "IS DISTINCT FROM 1", "= ANY (SELECT 1)",
    "EXISTS (SELECT 1)", "ORDER BY x", "ROLLUP (b)", "JOIN data d2 USING (who)", ", data e", "PIVOT", "data.data.n",
    "1e400", "99999999999999999999", "\u0000", "\u00e4", "FROM", "SELECT", "AS", "(", ")", ",",
]  # fmt: skip


def mutated(of, text):
    """A statement with a few words put in, left out or swapped."""
    words = text.split(" ")
    for _ in range(of.choice([1, 1, 1, 2, 3])):
        place = of.randrange(len(words))
        what = of.randrange(3)
        if what == 0:
            words.insert(place, of.choice(WORDS))
        elif what == 1 and len(words) > 1:
            del words[place]
        else:
            words[place] = of.choice([*WORDS, *words])
    return " ".join(words)


def hostile(of):
    """A statement that wants what no analyst may have, or to break the reader."""
    many = of.choice([3, 39, 41, 200, 2000])
    what = of.choice(
        [
            "read_csv('/etc/passwd')", "read_parquet('*')", "read_text('/etc/passwd')", "glob('*')", "'data.csv'",
            "ledger.accounts", "ledger.record", "information_schema.tables", "duckdb_settings()", "duckdb_tables()",
            "sqlite_master", "data.data", "range(9)", "unnest([1])", "pragma_table_info('data')", "other", "given0",
        ]
    )  # fmt: skip
    value = of.choice(
        [
            "secret", "data.secret", '"secret"', "getenv('HOME')", "current_setting('home_directory')", "rowid",
            "query('SELECT 1')", "nextval('s')", "(SELECT max(secret) FROM data)", "COLUMNS(*)", "columns('s.*')",
            "data", "struct_pack(a := n)", "(n).x", "n::secret", "hash(n)", "random()", "error('x')", "$1", "?1",
            "U&'\\0041'", "E'\\x41'", "x'41'", "1e400", "9" * many, "-" + "9" * 19, "'" + "ä‮" * many + "'",
            "(" * many + "n" + ")" * many, "NOT " * many + "b", "n" + " + 1" * many, "abs(" * many + "n" + ")" * many,
            "CASE WHEN b THEN 1 ELSE " * many + "n" + " END" * many, f"n IN ({', '.join(map(str, range(many)))})",
        ]
    )  # fmt: skip
    inner = "data"
    for place in range(many if many < 100 else 5):
        inner = f"(SELECT * FROM {inner}) q{place}"
    return of.choice(
        [
            f"SELECT count(*) FROM {what}", f"SELECT count(*) FROM data JOIN {what} USING (who)",
            f"WITH data AS (SELECT * FROM {what}) SELECT count(*) FROM data", f"SELECT sum({value}) FROM data",
            f"SELECT count(*) FROM data WHERE {value}", f"SELECT count(*) FROM data WHERE {value} > 3",
            f"SELECT count({value}) AS c FROM data", f"SELECT {value} AS k, count(*) FROM data GROUP BY k",
            f"SELECT count(*) AS c FROM data HAVING c > {value}", f"SELECT count(*) FROM data ORDER BY {value}",
            f"SELECT count(*) FROM data LIMIT {value}", f"SELECT count(*) FROM {inner}",
            f"SELECT count(*) /* {what} */ FROM data -- {value}", f"SELECT count(*) FROM data; SELECT {value}",
            f"PRAGMA {value}", f"COPY data TO {what}", "ATTACH 'x.db'", f"SET home = {value}", "INSTALL httpfs",
            f"CREATE TABLE x AS SELECT {value}", f"EXPLAIN SELECT {value}", f"FROM {what}", "DESCRIBE data", "CALL x()",
            f"SELECT count(*) FROM (SELECT who, sum({value}) AS s FROM data GROUP BY who) WHERE s > 3",
        ]
    )  # fmt: skip


BY = {"t": ["a", "b", "it's", "A%", "", "nowhere"], "b": [True, False], "n": [0, 1, 2, 3, 7, -4, 99]}
GIVEN = {"clip": 60, "sigma": 300.0, "bounds": {"n": (-4, 7), "x": (-2, 9)}}
WIDE = {**GIVEN, "bounds": {"n": (-250, 250), "x": (-250, 250)}}


def of_everybody(session, asked):
    """Sums in whole steps over all people, with no noise; and the SQL of the question."""
    plan, workspace = session._rows.plan(asked, described(asked)), session.ledger.store.workspace
    charges = session._rows.charges(plan)
    workspace.make(charges.tables)
    workspace.run(
        f"CREATE OR REPLACE TEMP TABLE everybody AS SELECT * FROM ({charges.sql}) WHERE units > 0", charges.parameters
    )
    sums = session._rows.sums(plan, "everybody")
    workspace.drop(table.name for table in charges.tables)
    return sums, f"{charges.sql} {plan.sums}"


def without_noise(session, asked, *, refuse=()):
    """The rows of a statement, with no noise; none of the words to ``refuse`` may be in the SQL that is run."""
    meant = session.analyst("ann").filled(asked)
    sums, sql = of_everybody(session, meant)
    assert not any(word in sql.casefold() for word in refuse), asked.sql
    return arranged(read_with(asked.sql, session._asking._schema), answer(meant, sums, "key"))


def duckdb_says(text):
    """DuckDB's own answer over the same rows."""
    with duckdb.connect() as connection:
        connection.register("data", ROWS)
        return connection.execute(text).fetchall()


def asked_of(text, *, wide=False):
    """The question of a statement, with public keys of the columns that it names."""
    return Sql(text, by={name: BY[name] for name in BY if name in text}, **(WIDE if wide else GIVEN))


def compare(session, text, keys, *, wide=False, say=duckdb_says, refuse=()):
    """Each group as DuckDB has it; groups that it does not have are empty."""
    rows = without_noise(session, asked_of(text, wide=wide), refuse=refuse)
    places = [place for place, name in enumerate(rows.columns) if not name.endswith(("_low", "_high"))]
    wanted = {tuple(row[: len(keys)]): row[len(keys) :] for row in say(text)}
    step = 0.02 if not wide else 0.5 if "_pop(" in text else 0.1  # wide bounds have coarse steps
    for row in rows.rows:
        shown = [row[place] for place in places]
        theirs = wanted.get(tuple(shown[: len(keys)]), [None] * len(shown[len(keys) :]))
        for ours, one in zip(shown[len(keys) :], theirs, strict=True):
            near = ours is None if one is None else ours == pytest.approx(float(one), abs=step, rel=1e-3)
            assert near or (one is None and ours == 0), text
