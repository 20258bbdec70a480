"""Random SELECT statements over one table, of which most are in the subset, and mutations of which few are."""

import datetime
import random

import pyarrow as pa

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
    for _ in range(of.randrange(1, 4)):
        place = of.randrange(len(words))
        what = of.randrange(3)
        if what == 0:
            words.insert(place, of.choice(WORDS))
        elif what == 1 and len(words) > 1:
            del words[place]
        else:
            words[place] = of.choice([*WORDS, *words])
    return " ".join(words)
