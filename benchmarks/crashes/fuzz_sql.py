"""Fuzz SELECT statements: valid, mutated and hostile ones are refused with a message, or mean what DuckDB says.

python benchmarks/crashes/fuzz_sql.py [--statements 20000] [--seed 1] [--log statements.json]

The rows have a column and the ledger has tables that no statement may read: none of their names may be in the SQL that
is run. What a statement comes to, without noise, must be what DuckDB says of the same rows without that column; where
DuckDB refuses a statement because of a name, so must Almoner. HAVING, ORDER BY and LIMIT are about released values, so
such statements are only read. The first statement that breaks a rule stops the run and is printed. With --log the count
is kept every 500 statements, and a run that is started again goes on from there. The quick form is in
tests/queries/tables/test_statements.py. Prints one JSON object: how many of each kind were refused, compared or read.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

import duckdb
import pyarrow as pa

from almoner import filters
from almoner.errors import ArgumentError, Unsupported
from almoner.queries import Session, Table
from almoner.queries._ask import rows as shown
from almoner.queries._language import nodes
from almoner.queries._tables.statements import read_with
from statements import ROWS, asked_of, compare, hostile, mutated, nested, random_statement

FORBIDDEN = ("secret", "read_", "passwd", "accounts", "getenv", "pragma", "attach", "glob(", "information_schema")
NAMES = ("not found", "does not exist", "mbiguous", "Referenced")


class Target:
    """A session whose rows have more than a statement may read, and DuckDB with what it may."""

    def __init__(self, folder: Path) -> None:
        marked = ROWS.append_column("secret", pa.array([987_654_321.5] * len(ROWS)))
        view = "SELECT who, n, x, t, b, d FROM data"
        self.session = Session.open(
            Table(marked, view=view), person="who", budget=filters.Zcdp(rho=5e3), ledger=folder / "l", create=True
        )
        self.seen: Counter[str] = Counter()
        self.duckdb = duckdb.connect()
        self.duckdb.register("data", ROWS)
        parser = duckdb.connect(config={"autoload_known_extensions": False, "enable_external_access": False})

        def apart(sql: str, *parameters: object, refusal: str, **tables: object) -> list[tuple[Any, ...]]:
            """As the library's, in one connection: it opens one for each statement."""
            try:
                for name, table in tables.items():
                    parser.register(name, table)
                return parser.execute(sql, parameters).fetchall()
            except duckdb.Error:
                raise ArgumentError(refusal) from None

        for module in (nodes, shown):
            vars(module)["apart"] = apart

    def one(self, kind: str, text: str, keys: list[str]) -> None:
        """Read one statement; where it is understood, compare it."""
        wide = kind == "nested"
        try:
            told = read_with(asked_of(text, wide=wide).sql, self.session._asking._schema)
            if told.having or told.order or told.limit != (None, 0) or (kind in ("mutated", "hostile") and told.group):
                self.session.analyst("ann").quote(asked_of(text, wide=wide))
                self.seen[f"{kind}: only read"] += 1
                return
            compare(self.session, text, keys, wide=wide, say=self.says, refuse=FORBIDDEN)
            self.seen[f"{kind}: compared"] += 1
        except (ArgumentError, Unsupported) as error:
            if not str(error):
                raise RuntimeError("refused without a word") from error
            self.seen[f"{kind}: refused"] += 1
        except duckdb.Error as error:
            if any(word in str(error) for word in NAMES):
                raise RuntimeError("DuckDB knows no such name") from error
            self.seen[f"{kind}: understood, where DuckDB fails"] += 1

    def says(self, text: str) -> list[tuple[Any, ...]]:
        return self.duckdb.execute(text).fetchall()


def written(of: random.Random) -> tuple[str, str, list[str]]:
    """A kind of statement, one of it, and its keys."""
    text, keys = random_statement(of)
    make: dict[str, Callable[[], str]] = {
        "valid": lambda: text, "nested": lambda: nested(of, text), "mutated": lambda: mutated(of, text),
        "hostile": lambda: hostile(of),
    }  # fmt: skip
    kind = of.choice(list(make))
    return kind, make[kind](), keys if kind in ("valid", "nested") else []


def main() -> None:
    """Fuzz until the given number of statements was tried."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--statements", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    log, start = options.log, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        if log and log.exists():
            target.seen.update(json.loads(log.read_text()))
        for place in range(target.seen.total(), options.statements):
            kind, text, keys = written(random.Random(f"{options.seed} {place}"))
            try:
                target.one(kind, text, keys)
            except Exception:
                print(f"statement {place}, {kind}: {text}", flush=True)
                raise
            if log and place % 500 == 499:
                log.write_text(json.dumps(target.seen))
    result = {"statements": target.seen.total(), **dict(sorted(target.seen.items())), "rules broken": 0}
    print(json.dumps({**result, "seconds": round(time.perf_counter() - start)}, indent=1))


if __name__ == "__main__":
    main()
