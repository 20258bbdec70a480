"""Release: what leaves a question is its sums with noise, and the keys whose numbers of people reach a threshold."""

from datetime import date
from typing import Any

from almoner import _audit_hook
from almoner.ledger import Watch
from almoner.mechanisms import Gaussian
from almoner.queries._engines.engine import Engine
from almoner.queries._questions.bin_factor import noisy_mixed
from almoner.queries._questions.kinds.values import Keys
from almoner.queries._questions.noise import laplace, noisy
from almoner.queries._questions.prices import STEPS
from almoner.queries._questions.question import Key, Question
from almoner.queries._sql.compiler import Compiled

__all__ = ["released", "told_keys", "watch_noise"]


def released(rows: Engine, plan: Compiled, admitted: object, asked: Question) -> dict[str, object]:
    """The public part of an answer: noisy sums, and the keys that they belong to where the question lists none."""
    if not isinstance(asked, Keys):
        sums, factor, mechanism = rows.sums(plan, admitted), asked.bin_factor(), asked.mechanism
        if factor is None or not isinstance(mechanism, Gaussian):
            return {"released": noisy(sums, mechanism)}
        return {"released": noisy_mixed(sums, factor, mechanism)}
    people = {_plain(value): count for value, count in rows.people_by_value(plan, admitted)}
    counts = told_keys(people, asked)
    return {"released": [count for _, count in counts], "keys": [key for key, _ in counts]}


def told_keys(people: dict[Key, int], asked: Keys) -> list[tuple[Key, int]]:
    """The keys whose noisy numbers of people reach the threshold, with these numbers in whole steps.

    Args:
        people: the people who take part, by key, private; a key is in it only if at least one of them has it.
        asked: the question, public.

    Returns:
        Largest first, then by key. The order of the rows, or of the keys, changes nothing.

    Guarantee: for a person with n of the keys, n <= ``asked.most``, it is (sqrt(n) / sigma)-GDP, and so
        n / (2 sigma**2)-zCDP, but for a probability of at most ``asked.delta``.
    Source: docs/proofs/unknown-keys.md, Theorem 1.
    """
    keys = sorted(key for key, count in people.items() if count >= 1)
    exact = {key: people[key] * STEPS for key in keys}
    mechanism = Gaussian(sigma=asked.noise * STEPS, sensitivity=float(asked.clip_steps))

    def release() -> list[tuple[Key, int]]:
        counts = noisy(list(exact.values()), mechanism)
        frequent = [(key, count) for key, count in zip(keys, counts, strict=True) if count >= asked.threshold_steps]
        frequent.sort(key=lambda pair: -pair[1])
        return frequent[: asked.top]

    return _audit_hook.released(release, exact=exact, mechanism=mechanism)


def _plain(value: Any) -> Key:
    """A key as the record holds it."""
    key: Key = value.isoformat() if isinstance(value, date) else value
    return key


def watch_noise(watch: Watch) -> int:
    """The noise on the number of missing people."""
    return laplace(watch.scales[1])
