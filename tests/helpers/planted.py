"""Errors that audits must find in the doors of questions, on every engine: each is planted with monkeypatch."""

from dataclasses import replace

from bursar.ledger._accounts import postgres
from bursar.queries import Count, Sum, _question, _releases
from bursar.queries._engines import compiler, duckdb_engine, spark_engine


def asked(told=()):
    """Two questions that clip most people, made anew, so that they have the prices that are planted."""
    return [Count(clip=1, rho=0.05), Sum("a", 0, 40, clip=1, rho=0.05)]


def no_clipping(monkeypatch):
    monkeypatch.setattr(compiler, "_factor", lambda square, bound: "CAST(1 AS DOUBLE)")


def a_ninth_charged(monkeypatch):
    right, price = compiler.units_per_step, _question.price_of
    monkeypatch.setattr(compiler, "units_per_step", lambda noise: right(noise) / 9)
    monkeypatch.setattr(_question, "price_of", lambda clip_steps, noise: price(clip_steps, noise) // 9)


def rows_as_people(monkeypatch):
    """Each row is clipped and charged as a person of its own, on DuckDB or Spark."""
    duckdb, spark = duckdb_engine.duckdb_dialect, spark_engine.spark_dialect
    row = {"BIGINT": "rowid", "VARCHAR": 'd."who" || CAST(d."a" AS VARCHAR)'}
    numbered = {"BIGINT": "d.c0", "VARCHAR": "concat(d.c0, CAST(d.c1 AS STRING))"}
    monkeypatch.setattr(duckdb_engine, "duckdb_dialect", lambda columns: replace(duckdb(columns), person=row))
    monkeypatch.setattr(spark_engine, "spark_dialect", lambda columns: replace(spark(columns), person=numbered))


def a_third_of_the_noise(monkeypatch):
    right = _releases.noisy
    smaller = lambda mechanism: type(mechanism)(mechanism.sigma / 3, mechanism.sensitivity)  # noqa: E731
    monkeypatch.setattr(_releases, "noisy", lambda sums, mechanism: right(sums, smaller(mechanism)))


def a_quarter_sent(monkeypatch):
    """What is sent to the server's accounts is less than what the sums were clipped for."""
    right = postgres._SentOffer._blocks
    monkeypatch.setattr(
        postgres._SentOffer, "_blocks", lambda self, line: right(self, line.replace("units", "(units // 4)"))
    )


QUESTIONS = {
    no_clipping: "sensitivity",
    a_ninth_charged: "account",
    rows_as_people: "account",
    a_third_of_the_noise: "account",
}
"""Each error, and the rule that it breaks."""
