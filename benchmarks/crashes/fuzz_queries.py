"""Fuzz `where` texts, expressions, files of questions, keys, names and connection strings, guided by coverage.

pip install atheris
python benchmarks/crashes/fuzz_queries.py [--runs 20000] [--seed 0]

Each input must be parsed, refused with one of Almoner's errors, or answered. An expression, of types that fit, must
have the value that plain Python computes for each of the rows, whose entries are nasty. After each input, the rows must
be unchanged, only the people in them may have an account, and a question must be recorded under exactly its names.
After every thousand inputs the whole ledger is checked. The first input that breaks a rule stops the run and is
printed. Prints one JSON object: how many inputs of each kind were accepted or refused.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import atheris
except ModuleNotFoundError:
    sys.exit("this needs atheris: pip install atheris")

with atheris.instrument_imports(include=["almoner.queries", "almoner.ledger"]):
    from almoner.ledger import Transaction, check_export
    from almoner.ledger._stores.postgres import read
    from almoner.queries import Count, Session, Sum
    from almoner.queries._language.expressions import parse, parse_value
    from almoner.queries._questions.kinds_of import described
    from almoner.queries._sql.columns import FilterCompiler
    from almoner.queries._sql.dialects import duckdb_dialect
    from almoner.queries.plans import Plan

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

from almoner import filters
from almoner.errors import ArgumentError, BudgetExceeded, DataError
from expressions import KINDS, value, written
from expressions import grown as grown_expression
from joined_rows import PEOPLE, check_joined, given, joined

REFUSALS = (ArgumentError, BudgetExceeded, DataError)
WORDS = ["and", "or", "not", "in", "between", "is null", "is not null", "true", "n", "t", '\\"', "''", "--", ";", "<>"]
WORDS += ["homes.n", "codes.t", "rows.f", "homes", "."]
WORDS += [">=", "(", ")", "1e308", "-1", "0x", "'a'", "DROP TABLE", "union select", "ask", "count", "by", "where", "[["]
WORDS += [
    "questions",
    "key",
    "sigma",
    "rho",
    "edges",
    "levels",
    "clip",
    "\\x00",
    "\\xff",
    "postgresql://",
    "schema=",
    "%",
]
SEEDS = [
    b"\x00n = 1 and (t = 'a' or not t is null)",
    b"\x00n between -1 and 3.5 and t in ('a', 'it''s')",
    b'\x00"n" >= 2 or "t" < \'b\'',
    b'\x01data = "rows.parquet"\nperson = "who"\nledger = "l"\nrho = 1.0\nanalyst = "ann"\n[[questions]]\nkey = "a"\n'
    b'ask = "mean"\ncolumn = "n"\nlow = 0\nhigh = 3\nby = { t = ["a"] }\nclip = 2\nsigma = 10\nwhere = "n > 1"\n',
    b"\x02ann\x00monday: count\x00weekly",
    b"\x02'; DROP TABLE ledger.accounts; --\x00%s ? $1\x00{}",
    b'\x03{"number":0,"public":{"kind":"opened"},"private":"00","hash":"00"}',
    b"\x05abcdefgh",
    b"\x06\x07abcdefghijklmnop",
    b"\x07\x03\x05abcdefghijklmnopqrstuvwxyz",
    b"\x08case when n > 1 then lower(t) else substring(t, 1, 2) end",
    b"\x08round(f * n / 7) + number(t) - days(d, date(s))",
    b"\x09\x03\x05abcdefghijklmnopqrstuvwxyz0123456789",
    b"\x08homes.f * codes.n + rows.n",
    b"\x00codes.t = homes.t or rows.t is null and homes.n > 1",
    b"\x04postgresql://user:secret@host:5432/name?sslmode=require&schema=mine",
]


def _grown(choices: Iterator[int], depth: int) -> str:
    """A `where` text built from the choices in order; when they are used up, the shortest one."""
    choice = next(choices, 0)
    if depth and choice % 8 > 3:
        parts = [_grown(choices, depth - 1) for _ in range(2)]
        return (f"not ({parts[0]})", f"({' and '.join(parts)})", f"({' or '.join(parts)})", parts[0])[choice % 4]
    numbers, texts = (
        ("0", "-1", "2.5", "7", "1e308", "9223372036854775807"),
        ("'a'", "''", "'it''s'", "'\"; --'", "'\u202e'"),
    )
    column, values = (("n", numbers), ("t", texts), ('"who"', numbers))[choice % 3]
    first, second = (values[next(choices, 0) % len(values)] for _ in range(2))
    return (
        f"{column} {('=', '<>', '<', '<=', '>', '>=')[choice % 6]} {first}",
        f"{column} in ({first}, {second})",
        f"{column} between {first} and {second}",
        f"{column} is not null",
    )[next(choices, 0) % 4]


class Target:
    """A session, and what is done to it with an input."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder, self.runs = folder, runs
        self.seen: Counter[str] = Counter()
        self.works = (self.filter, self.file, self.words, self.export, self.place, self.tokens, self.grown)
        self.works += (self.expression, self.column, self.joined)
        options: dict[str, Any] = {"budget": filters.Zcdp(rho=9000.0), "create": True, **given()}
        self.session = Session.open(ledger=folder / "l", threads=1, **options)
        self.start = time.perf_counter()

    def filter(self, text: str) -> None:
        """A `where` text selects some of the people, or is refused."""
        parse(text)
        asked, rows, ledger = Count(clip=1, where=text, sigma=1000.0), self.session._rows, self.session.ledger
        plan = rows.plan(asked, described(asked))

        def work(turn: Transaction, offer: Any) -> tuple[list[int], list[int]]:
            admitted = turn.admit(offer, key="exact", price=asked.price, analyst="a").people.rows
            people = ledger.store.workspace.run(f"SELECT person FROM {admitted}").fetchall()
            return [who for (who,) in people], rows.sums(plan, admitted)

        people, sums = ledger.answer(rows.charges(plan), work)
        if not set(people) <= set(range(PEOPLE)) or sums != [len(people) * asked.steps]:
            raise RuntimeError("a question read another person's rows")

    def tokens(self, text: str) -> None:
        """A `where` text of whole tokens, each chosen by a character: more of these are accepted."""
        columns, signs = ("n", "t", '"n"', '"who"'), ("=", "<>", "<", ">=", "is null", "in (", "between", "not in (")
        others = (
            "and",
            "or",
            "not",
            "(",
            ")",
            ",",
            "1",
            "-2.5",
            "7",
            "'a'",
            "'it''s'",
            "'; DROP TABLE data; --'",
            "1e999",
        )
        listed = (*columns * 3, *signs * 2, *others * 2)
        self.filter(" ".join(listed[ord(letter) % len(listed)] for letter in text[:40]))

    def grown(self, text: str) -> None:
        """A `where` text that is built as a tree, each choice by a character: nearly all of these are accepted."""
        choices = iter([ord(letter) for letter in text])
        self.filter(_grown(choices, 3))

    def expression(self, text: str) -> None:
        """An expression that is built as a tree, each choice by a character, has the values that Python computes."""
        choices = iter([ord(letter) for letter in text])
        tree = grown_expression(list(KINDS.values())[next(choices, 0) % 6], lambda below: next(choices, 0) % below, 3)
        _, sql = FilterCompiler(KINDS, duckdb_dialect(KINDS)).value(parse_value(written(tree), name="column"))
        run = self.session.ledger.store.workspace.run
        entries = run(f"SELECT {sql.text} FROM data d ORDER BY d.who", sql.parameters).fetchall()
        columns = run(f"SELECT {', '.join(KINDS)} FROM data ORDER BY who").fetchall()
        wanted = [value(tree, dict(zip(KINDS, row, strict=True))) for row in columns]
        if [entry for (entry,) in entries] != wanted:
            raise RuntimeError(f"other values than Python's: {written(tree)}")

    def joined(self, text: str) -> None:
        """The same where some columns are those of other tables, found by the person or by a public key."""
        choices = iter([ord(letter) for letter in text])
        choose = lambda below: next(choices, 0) % below  # noqa: E731
        tree = grown_expression(list(KINDS.values())[choose(6)], choose, 3)
        check_joined(self.session, joined(tree, choose))

    def column(self, text: str) -> None:
        """A text in place of a column is an expression, or is refused."""
        for asked in (
            Sum(text[:1000], -1, 9, sigma=1000.0, clip=1),
            Count(by={text[:1000]: [(None, 1), (1, 2.5)]}, sigma=1000.0, clip=1),
        ):
            plan = self.session._rows.plan(asked, described(asked))
            charges = self.session._rows.charges(plan)
            workspace = self.session.ledger.store.workspace
            workspace.make(charges.tables)
            workspace.run(charges.sql, charges.parameters).fetchall()

    def file(self, text: str) -> None:
        """A file of questions is read and quoted, or refused."""
        path = self.folder / "plan.toml"
        path.write_bytes(text.encode(errors="surrogatepass"))
        plan = Plan.read(path)
        plan.budget  # noqa: B018
        plan.quote(self.session)

    def words(self, text: str) -> None:
        """Analyst, key and purpose are recorded to the last character."""
        name, key, purpose, *_ = [*text.split("\0"), "key", "purpose"]
        analyst = self.session.analyst(name, purpose=purpose)
        analyst.ask(Count(clip=1, sigma=1000.0), key=key)
        entry = self.session.ledger.find(key)
        if entry is None or [entry.public[each] for each in ("analyst", "key", "purpose")] != [name, key, purpose]:
            raise RuntimeError("other names were recorded")

    def export(self, text: str) -> None:
        """Lines of an export are checked, or refused."""
        check_export(text.splitlines())

    def place(self, text: str) -> None:
        """A connection string is parsed, or refused."""
        _, schema, shown = read("postgresql://" + text.removeprefix("postgresql://"))
        if not schema.isidentifier() or "secret" in shown.split("@")[0]:
            raise RuntimeError("an invalid schema was accepted, or a password is shown")

    def one(self, data: bytes) -> None:
        """Run one input: its first byte selects the kind."""
        work = self.works[(data[0] if data else 0) % len(self.works)]
        text = data[1:].decode("utf-8", "surrogateescape")
        try:
            work(text)
            self.seen[f"{work.__name__}: taken"] += 1
        except REFUSALS:
            self.seen[f"{work.__name__}: refused"] += 1
        run = self.session.ledger.store.workspace.run
        if run("SELECT count(*), sum(n), count(t) FROM data").fetchone() != (PEOPLE, 57, 15):
            raise RuntimeError("the rows were changed")
        if run(f"SELECT count(*) FROM ledger.accounts WHERE person NOT BETWEEN 0 AND {PEOPLE - 1}").fetchone() != (0,):
            raise RuntimeError("a person who is not in the rows has an account")
        count = self.seen.total()
        if count % 1000 == 0 and not all(finding.holds for finding in self.session.verify()):
            raise RuntimeError("the ledger's checks failed")
        if count == self.runs:
            seconds = round(time.perf_counter() - self.start, 1)
            result = {"inputs": count, **dict(sorted(self.seen.items())), "rules broken": 0, "seconds": seconds}
            print(json.dumps(result, indent=1), flush=True)
            self.session.close()
            os._exit(0)


def main() -> None:
    """Fuzz until the given number of inputs was tried."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="0: a new seed in each run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "corpus").mkdir()
        for number, seed in enumerate(SEEDS):
            (folder / "corpus" / str(number)).write_bytes(seed)
        (folder / "words").write_text("".join(f'"{word}"\n' for word in WORDS))
        options = [
            f"-artifact_prefix={folder}/",
            f"-seed={arguments.seed}",
            "-max_len=600",
            f"-dict={folder / 'words'}",
            "-verbosity=0",
        ]
        atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], Target(folder, arguments.runs).one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
