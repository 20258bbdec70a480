"""Errors that audits must find: in the doors of questions, on every engine, planted with monkeypatch; and noise that is
used again in releases of few numbers."""

from dataclasses import replace
from itertools import count

import numpy as np

from almoner import audit
from almoner.ledger._accounts import postgres
from almoner.mechanisms import DiscreteGaussian, Gaussian, Laplace
from almoner.queries import Count, Sum
from almoner.queries import spark as spark_plugin
from almoner.queries._ask import ask as released_sums
from almoner.queries._questions import question
from almoner.queries._sql import compiler
from almoner.queries._tables import engine as duckdb_engine


def asked(told=()):
    """Two questions that clip most people, made anew, so that they have the prices that are planted."""
    return [Count(clip=1, rho=0.05), Sum("a", 0, 40, clip=1, rho=0.05)]


def no_clipping(monkeypatch):
    monkeypatch.setattr(compiler, "_shrinking", lambda *_: "CAST(1 AS DOUBLE)")


def a_ninth_charged(monkeypatch):
    right, price = compiler.units_per_step, question.price_of
    monkeypatch.setattr(compiler, "units_per_step", lambda noise, **pure: right(noise, **pure) / 9)
    monkeypatch.setattr(question, "price_of", lambda clip_steps, noise, **pure: price(clip_steps, noise, **pure) // 9)


def rows_as_people(monkeypatch):
    """Each row is clipped and charged as a person of its own, on DuckDB or Spark."""
    duckdb, spark = duckdb_engine.duckdb_dialect, spark_plugin.spark_dialect
    row = {"BIGINT": "rowid", "VARCHAR": 'd."who" || CAST(d."a" AS VARCHAR)'}
    numbered = {"BIGINT": "d.c0", "VARCHAR": "concat(d.c0, CAST(d.c1 AS STRING))"}
    monkeypatch.setattr(duckdb_engine, "duckdb_dialect", lambda columns: replace(duckdb(columns), person=row))
    monkeypatch.setattr(spark_plugin, "spark_dialect", lambda columns: replace(spark(columns), person=numbered))


def a_third_of_the_noise(monkeypatch):
    right = released_sums.noisy
    smaller = lambda mechanism: type(mechanism)(mechanism.sigma / 3, mechanism.sensitivity)  # noqa: E731
    monkeypatch.setattr(released_sums, "noisy", lambda sums, mechanism: right(sums, smaller(mechanism)))


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


SIGMA = 6.0
REUSED = [
    *[
        (size, lag, 3, 1.0)
        for size, lag in ((1, 1), (1, 2), (1, 7), (1, 50), (2, 1), (2, 13), (3, 50), (5, 4), (7, 29))
    ],
    *[(size, lag, 1, 1.0) for size, lag in ((1, 50), (2, 3), (3, 1), (4, 17), (7, 50))],
    *[(size, lag, 3, -1.0) for size, lag in ((1, 6), (3, 2))],
    *[(size, lag, 4, 0.731) for size, lag in ((1, 9), (2, 31), (4, 1), (7, 8))],
]
"""Twenty plants: numbers a release, after how many releases their noise comes again, how often, and times what."""


def reused(size, lag, times, factor, seed=None):
    """A pipeline whose noise comes again, after so many releases, multiplied by a factor."""

    def pipeline(data):
        rng, drawn, out = np.random.default_rng(seed), [], []
        step = Gaussian(sigma=SIGMA, sensitivity=1.0)
        for release in range(lag + times):
            fresh = rng.normal(0, SIGMA, size)
            drawn.append(drawn[release - lag] * factor if release >= lag else fresh)
            exact = np.arange(size) + 10.0 * release
            noise = drawn[-1]
            out.append(audit.released(lambda exact=exact, noise=noise: exact + noise, exact=exact, mechanism=step))
        return audit.Outcome(out)

    return pipeline


def clean(kind, rng):
    """A pipeline of 2 to 60 releases with 1 to 7 numbers and fresh noise, of a kind of ``KINDS``."""
    sizes = rng.integers(1, 8, rng.integers(2, 60))
    sizes = sizes if rng.random() < 0.5 else np.full_like(sizes, sizes[0])
    scale, people = float(np.exp(rng.uniform(0.7, 9))), int(rng.integers(3, 3_000_000))
    width = float(np.exp(rng.uniform(-3, 12)))
    sums = [np.floor(rng.random(size) * width) for size in sizes]
    mechanism, noisy = KINDS[kind](scale, people, rng)

    def pipeline(data):
        out = []
        for each in sums:
            exact, released = noisy(each)
            out.append(audit.released(lambda told=released: told, exact=exact, mechanism=mechanism))
        return audit.Outcome(out)

    return pipeline


def _real(scale, people, rng):
    return Gaussian(scale), lambda exact: (exact / 7, exact / 7 + rng.normal(0, scale, exact.size))


def _single(scale, people, rng):
    def noisy(exact):
        exact = (exact / 7).astype(np.float32)
        return exact, exact + rng.normal(0, scale, exact.size).astype(np.float32)

    return Gaussian(scale), noisy


def _whole(scale, people, rng):
    return DiscreteGaussian(scale), lambda exact: (
        exact.astype(np.int64),
        exact.astype(np.int64) + np.rint(rng.normal(0, scale, exact.size)).astype(np.int64),
    )


def _whole_mean(scale, people, rng):
    return Gaussian(scale / people), lambda exact: (
        exact / people,
        (exact + np.rint(rng.normal(0, scale, exact.size))) / people,
    )


def _cents(scale, people, rng):
    return Laplace(scale), lambda exact: (exact, np.round(exact + rng.laplace(0, scale, exact.size), 2))


def _stepped(scale, people, rng):
    step = scale * float(np.exp(rng.uniform(-9, 0)))
    return Gaussian(scale), lambda exact: (exact, exact + step * np.rint(rng.normal(0, scale / step, exact.size)))


def _binary(scale, people, rng):
    step = 2.0 ** (np.floor(np.log2(scale)) - rng.integers(3, 24))
    return Gaussian(scale), lambda exact: (exact, exact + step * np.rint(rng.normal(0, scale / step, exact.size)))


def _some_whole(scale, people, rng):
    numbers = count()

    def noisy(exact):
        noise = rng.normal(0, scale, exact.size)
        return exact, exact + (np.rint(noise) if next(numbers) % 2 else noise)

    return Gaussian(scale), noisy


KINDS = {
    "real": _real,
    "single precision": _single,
    "whole": _whole,
    "mean of whole": _whole_mean,
    "cents": _cents,
    "steps": _stepped,
    "binary": _binary,
    "some whole": _some_whole,
}
"""Noise that is fresh: its law and what it is rounded to."""
