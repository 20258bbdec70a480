"""Ask our audits and sensitivities what JAX-Privacy's tests of auditing and matrix factorisation ask theirs.

    python benchmarks/suites/jax_privacy_parts.py CHECKOUT

CHECKOUT is a clone of github.com/google-deepmind/jax_privacy, whose tests need JAX. Audits give lower bounds: of two
the larger is tighter, and none may be above the claim that its own test takes as the truth. A sensitivity is judged by
the largest sum of products of columns over all patterns of places and signs, where they are few, or patterns alone.
"""

import sys
from contextlib import suppress
from functools import wraps
from itertools import product
from math import isfinite, sqrt
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import TestSuite, TextTestRunner, defaultTestLoader

CHECKOUT = Path(sys.argv[1])
package = ModuleType("jax_privacy")
package.__path__ = [str(CHECKOUT / "jax_privacy")]
sys.modules["jax_privacy"] = package
sys.path[:0] = [str(CHECKOUT / "tests"), str(CHECKOUT / "tests" / "matrix_factorization")]

import optax  # noqa: E402

optax.ArrayTree = Any  # a name that the latest release does not have yet
import auditing_test  # noqa: E402 - of the suite
import banded_test  # noqa: E402
import numpy as np  # noqa: E402
import sensitivity_test  # noqa: E402
import toeplitz_test  # noqa: E402
from jax_privacy import auditing  # noqa: E402
from jax_privacy.matrix_factorization import banded, sensitivity, toeplitz  # noqa: E402
from tally import Tally, timed  # noqa: E402

from almoner.audit import ManyRuns, OneRun, many_runs  # noqa: E402
from almoner.audit._canaries import p_value  # noqa: E402
from almoner.curves import gaussian  # noqa: E402
from almoner.errors import AlmonerError  # noqa: E402
from almoner.training.correlated._factor import Factor, heaviest_places  # noqa: E402
from almoner.training.correlated._kinds import Toeplitz  # noqa: E402

MOST_SIGNS = 7  # columns up to which the judge tries all signs
MOST_PATTERNS = 12  # columns up to which it tries all patterns
ESTIMATES = "epsilon_raw_counts", "tpr_at_given_fpr", "attack_auroc", "max_accuracy"
GUESSES = 4000  # one-run questions of theirs that are asked, of those that raised the bound
asked: dict[str, dict[Any, tuple[Any, float, float]]] = {}


def logged(home: Any, name: str, key: Any) -> None:
    """Keep what is asked of a function, its answer and the seconds that it took."""
    method, kept = getattr(home, name), asked.setdefault(name, {})

    @wraps(method)
    def ask(*values: Any, **options: Any) -> Any:
        answer, seconds = timed(method, *values, **options)
        with suppress(TypeError):  # of a value that is traced, or many
            kept[key(*values, **options)] = (values, options), float(answer), seconds
        return answer

    setattr(home, name, ask)


def as_bytes(*values: Any, **options: Any) -> Any:
    """A key of arrays and numbers."""
    return tuple((np.asarray(each).shape, np.asarray(each).tobytes()) for each in (*values, *options.values()))


def of_scores(self: Any, *values: Any, **options: Any) -> Any:
    """A key of an auditor's scores and the rest."""
    return self._in_canary_scores.tobytes(), self._out_canary_scores.tobytes(), repr(values), repr(options)


def log_all() -> None:
    """Run the tests with loggers."""
    for name in ("_one_run_p_value", "_epsilon_one_run", "_epsilon_one_run_fdp"):
        logged(auditing, name, lambda *values: values)
    kind = auditing.CanaryScoreAuditor
    for name in ("epsilon_clopper_pearson", "epsilon_one_run", "epsilon_one_run_fdp", "epsilon_from_gdp"):
        logged(kind, name, of_scores)
    for name in ESTIMATES:
        logged(kind, name, of_scores)
    for name in (
        "single_participation_sensitivity", "minsep_true_max_participations", "max_participation_for_linear_fn",
        "get_sensitivity_banded", "get_min_sep_sensitivity_upper_bound", "fixed_epoch_sensitivity",
    ):  # fmt: skip
        logged(sensitivity, name, as_bytes)
    logged(toeplitz, "minsep_sensitivity_squared", as_bytes)
    logged(banded, "minsep_sensitivity_squared", lambda strategy, *more, **options: as_bytes(strategy.params, *more))
    suite = TestSuite(map(defaultTestLoader.loadTestsFromModule, (auditing_test, sensitivity_test)))
    defaultTestLoader.testNamePatterns = ["*sensitivity*"]
    suite.addTests(map(defaultTestLoader.loadTestsFromModule, (toeplitz_test, banded_test)))
    result = TextTestRunner(verbosity=0).run(suite)
    print(f"{result.testsRun} tests, {sum(map(len, asked.values()))} distinct questions", flush=True)


def p_values() -> None:
    """Chances of so many right guesses, beside the sum of the suite's own naive formula."""
    tally = Tally("JAX-Privacy, p-values of one run")
    for (values, _), theirs, slow in asked["_one_run_p_value"].values():
        m, guesses, correct, epsilon, delta = values
        ours, quick = timed(
            p_value, int(correct), guesses=int(guesses), canaries=int(m), epsilon=float(epsilon), delta=float(delta)
        )
        judge = auditing_test._one_run_p_value_naive(*values) if guesses <= 100 else -1.0
        tally.add(str(values), ours, theirs, floor=judge * (1 - 1e-9) - 1e-12, time=quick / slow)
    tally.show()


def one_runs() -> None:
    """Epsilons that guesses refute; the judge is the chance of as many at a claim a little larger."""
    for name, of_mu in (("_epsilon_one_run", False), ("_epsilon_one_run_fdp", True)):
        tally = Tally(f"JAX-Privacy, {name.strip('_')}")
        raised = [(each, theirs, slow) for (each, _), theirs, slow in asked[name].values() if theirs > each[0]]
        for (_, m, guesses, correct, significance, delta), theirs, slow in raised[:: 1 + len(raised) // GUESSES]:
            run = OneRun(int(correct), int(guesses), int(m), confidence=1 - significance)
            if of_mu:
                ours, quick = timed(lambda run=run, delta=delta: gaussian.epsilon(run.mu(), delta=delta))
            else:
                ours, quick = timed(run.epsilon, delta=delta)
            chance = 0.0 if of_mu else auditing._one_run_p_value(m, guesses, correct, ours * (1 - 1e-9), delta)
            floor = -ours if chance <= significance else 0.0
            tally.add(f"{correct} of {guesses}, {m}", -ours, -theirs, floor=floor, time=quick / slow)
        tally.show()


def truth(self: Any, delta: float) -> float:
    """The epsilon of normal scores, which the suite takes for the truth; inf where they are not normal."""
    ins, outs = self._in_canary_scores, self._out_canary_scores
    shift, spread = float(ins.mean() - outs.mean()), float(outs.std())
    normal = len(outs) > 99 and abs(spread - 1) < 0.05 and abs(outs.mean()) < 1e-6 and abs(ins.std() - 1) < 0.05
    return gaussian.epsilon(max(shift, 1e-9), delta=delta) if normal and 0 < delta < 1 else float("inf")


def audits() -> None:
    """Lower bounds from scores: ours by thresholds that are fixed before, theirs by each of their strategies."""
    for name in ("epsilon_clopper_pearson", "epsilon_from_gdp", "epsilon_one_run", "epsilon_one_run_fdp"):
        tally = Tally(f"JAX-Privacy, {name}")
        for (values, options), theirs, slow in asked[name].values():
            self, *given = values
            named = {"delta": 0.0} | dict(zip(("significance", "delta"), given, strict=False)) | options
            significance, delta, strategy = (
                named.get(each) for each in ("significance", "delta", "threshold_strategy")
            )
            ins, outs = self._in_canary_scores, self._out_canary_scores
            try:
                ours, quick = timed(audited, name, ins, outs, 1 - significance, float(delta), strategy)
            except AlmonerError as refused:
                tally.refuse(str(refused))
                continue
            floor = -truth(self, float(delta))
            question = f"{type(strategy).__name__}, {len(ins)} and {len(outs)} scores, {significance}, {delta}"
            tally.add(question, -ours, -theirs, floor=floor, time=quick / slow)
        tally.show()
    rest = {
        name: len(asked[name]) for name in ("epsilon_raw_counts", "tpr_at_given_fpr", "attack_auroc", "max_accuracy")
    }
    print(f"  not asked, estimates that are no bounds: {rest}")


def audited(name: str, ins: Any, outs: Any, confidence: float, delta: float, strategy: Any) -> float:
    """Our lower bound."""
    if name.startswith("epsilon_one_run"):
        scores, included = np.concatenate([ins, outs]), np.arange(len(ins) + len(outs)) < len(ins)
        run = best_half(scores, included, confidence)
        return gaussian.epsilon(run.mu(), delta=delta) if name.endswith("fdp") else run.epsilon(delta=delta)
    if name == "epsilon_from_gdp":
        return gaussian.epsilon(many_runs(ins, outs, confidence=confidence).mu(), delta=delta)
    if isinstance(strategy, auditing.Explicit):
        hits, alarms = (int((each >= strategy.threshold).sum()) for each in (ins, outs))
        return ManyRuns(hits, len(ins), alarms, len(outs), confidence).epsilon(delta=delta)
    return many_runs(ins, outs, confidence=confidence).epsilon(delta=delta)


def best_half(scores: Any, included: Any, confidence: float) -> OneRun:
    """Guesses about half of the canaries: a number that is fixed before."""
    half, order = len(scores) // 4, np.argsort(scores, kind="stable")
    correct = int(included[order[-half:]].sum() + (~included[order[:half]]).sum())
    return OneRun(correct, 2 * half, len(scores), confidence)


class Given(Factor):
    """A factor by its matrix."""

    vectors = 0

    def __init__(self, matrix: Any) -> None:
        self.matrix, self.steps = np.asarray(matrix, np.float64), len(matrix)

    def column(self, place: int) -> Any:
        return self.matrix[place:, place]

    def noise(self, draw: Any) -> Any:
        raise NotImplementedError


class GivenToeplitz(Toeplitz):
    """A Toeplitz factor by its first column."""

    def __init__(self, coefficients: Any, steps: int) -> None:
        super().__init__(steps, min(len(coefficients), steps))
        self.given = np.asarray(coefficients, np.float64)[:steps]

    @property
    def first_column(self) -> Any:
        return self.given

    def noise(self, draw: Any) -> Any:
        raise NotImplementedError


def least(matrix: Any, separation: int, participations: int) -> float:
    """What no sensitivity may be below: the largest, over patterns and signs that are tried, of a person's part."""
    products, steps = matrix.T @ matrix, len(matrix)
    best = sqrt(max(0.0, float(products.diagonal().max()))) if participations else 0.0
    if steps > MOST_PATTERNS:
        return best
    for signs in product((0, 1, -1) if steps <= MOST_SIGNS else (0, 1), repeat=steps):
        places = np.flatnonzero(signs)
        if 0 < len(places) <= participations and (np.diff(places) >= separation).all():
            best = max(best, sqrt(max(0.0, float(signs @ products @ signs))))
    return best


def sensitivities() -> None:
    """Sensitivities of factors: largest norms of a person's part."""
    tally = Tally("JAX-Privacy, sensitivities")
    for name in ("single_participation_sensitivity", "get_sensitivity_banded", "get_min_sep_sensitivity_upper_bound"):
        for (values, options), theirs, slow in asked[name].values():
            single = name.startswith("single")
            matrix = np.asarray(values[0], np.float64)
            given = dict(zip(("min_sep", "max_participations"), values[1:], strict=False)) | options
            separation = len(matrix) if single else given.get("min_sep", 1)
            most = 1 if single else given.get("max_participations") or len(matrix)
            question = f"{name}, {len(matrix)} steps, {given}"
            compared(tally, question, Given(matrix), separation, most, theirs, slow)
    for (values, options), theirs, slow in asked["fixed_epoch_sensitivity"].values():
        matrix, epochs = np.asarray(values[0], np.float64), options.get("epochs", (*values, 0)[1])
        factor, apart = Given(matrix), len(matrix) // epochs
        batches = [range(first, len(matrix), apart) for first in range(apart)]
        ours, quick = timed(lambda f=factor, b=batches: max(map(f.sensitivity_at, b)))
        judge = max(np.linalg.norm(matrix[:, list(places)].sum(axis=1)) for places in batches)
        tally.add(f"{len(matrix)} steps, {epochs} epochs", ours, theirs, floor=judge * (1 - 1e-9), time=quick / slow)
    for (values, options), theirs, slow in asked["minsep_sensitivity_squared"].values():
        if values and hasattr(values[0], "params"):
            given = dict(zip(("min_sep", "max_participations"), values[1:], strict=False)) | options
            factor: Factor = Given(values[0].materialize())
        else:
            given = dict(zip(("strategy_coef", "min_sep"), values, strict=False)) | options
            coefficients = np.abs(np.asarray(given["strategy_coef"], np.float64))
            falling = np.maximum.accumulate(coefficients[::-1])[::-1]  # as their answers suppose
            factor = GivenToeplitz(falling, options["n"])
        most = given.get("max_participations") or factor.steps
        question = f"minsep, {factor.steps} steps, {given.get('min_sep')}, {most}"
        compared(tally, question, factor, given["min_sep"], most, sqrt(theirs), slow)
    tally.show()


def compared(
    tally: Tally, question: str, factor: Factor, separation: int, most: int, theirs: float, slow: float
) -> None:
    """Count one sensitivity."""
    try:
        ours, quick = timed(factor.sensitivity, separation=int(separation), participations=int(most))
    except (AlmonerError, ValueError) as refused:
        tally.refuse(str(refused))
        return
    matrix = factor.columns(range(factor.steps))
    floor = least(matrix, int(separation), int(most)) * (1 - 1e-9)
    tally.add(question, ours, theirs * (1 + 1e-6) if isfinite(theirs) else theirs, floor=floor, time=quick / slow)


def patterns() -> None:
    """How often a person takes part, and the largest sums of weights at such places."""
    tally = Tally("JAX-Privacy, participations and largest sums")
    for name in ("minsep_true_max_participations", "max_participation_for_linear_fn"):
        for (values, options), theirs, slow in asked[name].values():
            linear = name.startswith("max")
            given = dict(zip(("x" if linear else "n", "min_sep", "max_participations"), values, strict=False)) | options
            weights = np.asarray(given["x"], np.float64) if linear else np.ones(int(given["n"]))
            if weights.min() < 0:  # ours are squares and absolute inner products
                tally.refuse("weights below 0")
                continue
            most = given.get("max_participations")
            most = len(weights) if most is None else int(most)
            ours, quick = timed(
                lambda w=weights, g=given, m=most: float(heaviest_places(w[None], int(g.get("min_sep", 1)), m)[0])
            )
            tally.add(f"{name} {given}"[:100], ours, theirs, floor=theirs * (1 - 1e-5), time=quick / slow)
    tally.show()


if __name__ == "__main__":
    log_all()
    p_values()
    one_runs()
    audits()
    sensitivities()
    patterns()
