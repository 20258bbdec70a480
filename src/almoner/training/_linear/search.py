"""Choose settings by private runs and pay for the choice: the best of a random number of runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import product
from math import exp, sqrt
from random import Random, SystemRandom
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from almoner import _check, _search, mechanisms
from almoner._units import shown
from almoner.accounting import meaning
from almoner.curves import gaussian, tradeoff, tuning
from almoner.errors import ArgumentError
from almoner.noise import rounded_gaussian
from almoner.training._card import Card
from almoner.training._linear.estimator import PrivateDescent
from almoner.training._linear.partial import Features, Floats
from almoner.training._linear.wrappers import Copied, numbers_of, reads_data
from almoner.training._run.books import publish

OF_DESCENT = ("average", "decay", "extra_steps", "momentum", "pace")
TUNABLE = (*(f"descent__{name}" for name in OF_DESCENT), "learning_rate", "max_grad_norm", "steps")
SCORE_SHARE = 0.1
MOST_CANDIDATES = 10_000
PARTS = 2**20  # of one person, that the score of a regression counts

HeldOut = tuple[Features, ArrayLike] | tuple[Features, ArrayLike, ArrayLike]


@dataclass(frozen=True, slots=True)
class Plan:
    """The price of one run of the search, decided before anybody's data are touched. Every field is public."""

    best: mechanisms.BestOf
    training: mechanisms.Mechanism  # of one run: Gaussian, or so many steps of DP-SGD
    score: mechanisms.Gaussian  # a noisy count of the people whom a model gets right, or of how nearly


class Estimators:
    """Candidates that differ in the settings of an estimator, or of a pipeline that ends in one."""

    def __init__(self, estimator: Any) -> None:
        steps = estimator.steps if isinstance(estimator, Pipeline) else [("", estimator)]
        name, last = steps[-1]
        if not isinstance(last, PrivateDescent):
            raise ArgumentError(
                f"estimator={estimator!r} must be a LogisticRegression, LinearRegression or PoissonRegressor, whose "
                "budget has a price, a pipeline that ends in one, or a function that makes a Trainer for a budget"
            )
        if reading := [step for step, each in steps[:-1] if reads_data(each)]:
            raise ArgumentError(
                f"estimator: {', '.join(map(repr, reading))} would be fitted on people's data in each run, and nobody "
                "pays for that: make_pipeline(FrozenEstimator(step.fit(X_public)), model)"
            )
        if last.noise_multiplier is not None:
            raise ArgumentError("noise_multiplier must be None: each run's noise follows from the budget of the search")
        self._estimator, self._name = estimator, name
        self.parts = 1 if hasattr(last, "predict_proba") else PARTS
        self.scored = "the people whom a model gets right" if self.parts == 1 else "how nearly it is right, 0 to 1 each"

    def check_name(self, name: str) -> None:
        """Refuse a setting that changes what is promised; those of the steps before the estimator do not."""
        own = name.removeprefix(f"{self._name}__")
        if not self._name or own != name:
            _check.one_of(TUNABLE, grid=own)
        elif "__" not in name:
            raise ArgumentError(f"grid={name!r} must be a setting of a step: `{self._name}__learning_rate`")

    def sampled(self, _: Mapping[str, Any]) -> None:
        """All people are in every step."""

    def prepare(self, candidates: Sequence[Mapping[str, Any]], one_run: mechanisms.Mechanism, delta: float) -> None:
        """Make all candidates; those that break a rule are refused here."""
        budget = {"epsilon": _epsilon(1 / cast(mechanisms.Gaussian, one_run).sigma, delta), "delta": delta}
        self._models = [clone(self._estimator).set_params(**settings) for settings in candidates]
        for model in self._models:
            Estimators(model)  # a setting may be a step of the pipeline
            _last(model).set_params(**budget, seed=None)._plan(None)

    def check(self, *scored: Any) -> None:
        """Refuse held-out people who can't be scored, before anybody pays."""
        rows = {each.shape[0] if hasattr(each, "shape") else len(each) for each in scored if each is not None}
        if len(rows) != 1 or 0 in rows:
            raise ArgumentError("held_out must be X, y and groups of other people, of as many rows each, at least one")
        if (groups := scored[2]) is not None:
            numbers_of(groups, rows.pop())

    def train(self, place: int, seed: int | None, X: Any, y: Any, groups: Any) -> Any:
        """Train a candidate; the model."""
        model = clone(self._models[place])
        last = _last(model).set_params(seed=seed)
        last._copies = None  # the search pays for all runs together
        return model.fit(X, y, **{f"{self._name}__groups" if self._name else "groups": groups})

    def right(self, model: Any, X: Features, y: ArrayLike, groups: ArrayLike | None) -> int:
        """People whom a model gets right in half of their rows; else parts that are right. Private, ``parts`` each."""
        truth, predicted = column_or_1d(y), model.predict(X)
        owners = np.arange(len(truth)) if groups is None else numbers_of(groups, len(truth))[1]
        if self.parts == 1:
            right = np.asarray(predicted == truth, np.float64)
            return int(np.sum(2 * np.bincount(owners, right) >= np.bincount(owners)))
        low, high = _last(model)._limits
        near = np.nan_to_num(1 - ((np.clip(truth, low, high) - predicted) / (high - low)) ** 2, nan=0.0)
        return int(np.floor(np.clip(np.bincount(owners, near) / np.bincount(owners), 0, 1) * self.parts).sum())

    def released(self, model: Any, card: Callable[[Card], Card]) -> tuple[Any, Card]:
        """The model without what is private in it, and its card."""
        last = _last(model)
        last.card_ = card(last.card_)
        for private in ("accounts_", "holder_report_", "odometer_"):  # of one run: less than what everybody paid
            setattr(last, private, None)
        return model, last.card_


def _last(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model


def _predicts(search: "PrivateSearch") -> bool:
    return hasattr(search.estimator, "predict")


def _classifies(search: "PrivateSearch") -> bool:
    return hasattr(_last(search.estimator), "predict_proba")


@dataclass(eq=False, repr=False)
class PrivateSearch(Copied, BaseEstimator):  # type: ignore[misc]
    """The best of a random number of private trainings, each with settings drawn at random from a public grid.

    Only the best model is released, with its settings and its noisy score; the number of runs stays secret. All runs,
    all scores and the choice together cost each person (epsilon, delta), so that each run has a smaller budget.

    Parameters
    ----------
    estimator : a `LogisticRegression` or a regression with the settings that are not tuned, or a pipeline that ends in
        one and whose other steps read no data; its epsilon, delta and seed are replaced. Or a function, public, of a
        budget and the settings: it makes a `Trainer` with this budget, of a new module and without a seed.
    grid : {setting: values}, public: all combinations are candidates, each as likely as the others. Settings of the
        descent, and of steps of a pipeline, are named as in scikit-learn: `descent__momentum`.
    epsilon, delta : the guarantee for each person.
    runs : how many runs are expected, above 1, at most 1,000.
    shape : of the law of the number of runs, in [-0.9, 1000]: 1 geometric, 0 logarithmic. Smaller shapes leave each run
        a larger budget, and vary more: of ten expected runs, one is made in a tenth of searches at 1, a fourth at 0.
    seed : None: noise and draws by the operating system. A number makes the search reproducible, and so NOT private.
    scoring : public. For trainers: a number in [0, 1] for each record, of its own output and target alone; None: 1
        where the largest output is at the target.

    Attributes:
    ----------
    best_estimator_, best_params_, best_score_ : the model, its settings, and the noisy number of people whom it gets
        right; public. The model has the card of the search, and no accounts: its run alone is less than what was paid.
        Of a regression: everybody's 1 - (error / width of bounds_y)^2 on average over own rows, added up. Of trainers:
        the trained module, and the sum of everybody's mean of the scoring.
    card_ : the guarantee of the search; public.
    classes_, n_features_in_ : as in the estimator.

    Guarantee: `best_estimator_` with its settings and its score is (epsilon, delta)-differentially private when one
        person, with all of that person's records, is added or removed: for people in `X`, and for people in
        `held_out`; provided that estimator, grid, features and labels were chosen without looking at the data, that no
        seed was given, and that nobody who gets the model learns how many runs there were (or how long they took).
    Source: theory 8.2; docs/proofs/tuning.md; Papernot & Steinke (2022).

    Examples:
    --------
    >>> import numpy as np
    >>> from almoner.training import LogisticRegression
    >>> x, y = np.repeat([[-1.0], [1.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> one = LogisticRegression(steps=20, classes=[0, 1], n_people=1000)
    >>> search = PrivateSearch(one, {"learning_rate": [0.01, 4.0]}, epsilon=1.0, runs=5, seed=1).fit(x, y)
    >>> search.predict([[-0.5], [0.5]]), search.card_.epsilon
    (array([0, 1]), 1.0)
    """

    estimator: Any
    grid: Mapping[str, Sequence[Any]]
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    runs: float = 10.0
    shape: float = 1.0
    seed: int | None = None
    scoring: Callable[..., Any] | None = None

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None, *, held_out: HeldOut | None = None) -> Self:
        """Search.

        Args:
            X: (rows, features) array or CSR matrix, private, finite; for trainers, inputs as of `Trainer.fit`.
            y: (rows,) labels, private.
            groups: (rows,) whose row it is, private; None: every row is a person of its own.
            held_out: private: X, y and groups of other people, on whom models are scored in place of those in X. None
                of them may be in X. They pay for the noisy scores, with the whole budget; the people in X then pay for
                the trainings alone. Without them the people in X pay for both, a tenth of a run's budget for its score.

        Raises:
            ArgumentError: a setting or a budget breaks a rule; before anybody's data are touched.
        """
        door = self._door()
        candidates = self._candidates(door)
        planned = self._plan(held_out is not None, door.sampled(candidates[0]))
        door.prepare(candidates, planned.training, self.delta)
        self._tell_of_wrappers()
        scored = (X, y, groups) if held_out is None else (*held_out, *([None] * (3 - len(held_out))))
        if held_out is not None:
            door.check(*scored)
        best = max(self._runs(door, len(candidates), planned, (X, y, groups), scored), key=lambda run: run[0])
        self.best_score_, place, model = best
        self.best_params_ = candidates[place]
        card = partial(self._card, len(candidates), planned, held_out is not None, door.scored)
        self.best_estimator_, self.card_ = door.released(model, card)
        for name in filter(partial(hasattr, model), ("classes_", "n_features_in_")):
            setattr(self, name, getattr(model, name))
        return self

    def _door(self) -> Any:
        """The kind of candidates."""
        if hasattr(self.estimator, "fit") or not callable(self.estimator):
            if self.scoring is not None:
                raise ArgumentError("scoring must be None: estimators are scored by the people whom they get right")
            return Estimators(self.estimator)
        from almoner.training._networks import Trainers

        return Trainers(self.estimator, self.scoring, reproducible=self.seed is not None)

    def _runs(
        self, door: Any, candidates: int, planned: Plan, data: Sequence[Any], scored: Sequence[Any]
    ) -> Iterator[tuple[float, int, Any]]:
        """(Noisy score, number of the candidate, trained model) of each run, one at a time; how many is secret."""
        chance: Random = SystemRandom() if self.seed is None else Random(self.seed)
        for number in range(tuning.draw_runs(planned.best, seed=self.seed)):
            place = chance.randrange(candidates)
            model = door.train(place, None if self.seed is None else 1_000_003 * self.seed + number, *data)
            yield self._noisy(door.right(model, *scored), planned.score, number, door.parts), place, model

    def _card(self, candidates: int, planned: Plan, held_out: bool, scored: str, one: Card) -> Card:
        law = "logarithmic" if self.shape == 0 else "geometric" if self.shape == 1 else f"shape {self.shape:g}"
        settings = ", ".join(f"{name}={value!r}" for name, value in self.best_params_.items())
        payers = "other people pay for the scores, as much" if held_out else "the same people pay for the scores"
        return replace(
            one,
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            theorem=f"{one.theorem}; theory 8.2 for the choice",
            reproducible=one.reproducible or self.seed is not None,
            guess=meaning.of(tradeoff.of(planned.best)).guess(),
            why="",
            tuned=f"the best of a random number of runs ({shown(self.runs, 4)} expected, {law}), each with one of "
            f"{candidates} public settings ({settings}), by noisy counts (standard deviation "
            f"{shown(planned.score.sigma, 4, down=True)}) of {scored}; {payers}",
        )

    def _candidates(self, door: Any) -> list[dict[str, Any]]:
        if not isinstance(self.grid, Mapping) or not self.grid:
            raise ArgumentError(f"grid={self.grid!r} must map settings to lists of values")
        for name, values in self.grid.items():
            door.check_name(name)
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
                raise ArgumentError(f"grid[{name!r}]={values!r} must be a list of values, at least one")
        found = [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]
        if len(found) > MOST_CANDIDATES:
            raise ArgumentError(f"grid has {len(found)} candidates, and {MOST_CANDIDATES} are allowed")
        return found

    def _plan(self, held_out: bool, sampled: tuple[float, int] | None = None) -> Plan:
        """The budget of one run, so that the best costs what was promised; ``sampled``: rate and steps of DP-SGD."""
        _check.positive(epsilon=self.epsilon)
        _check.between(0, 1, delta=self.delta)
        _check.given(_check.whole, 0, seed=self.seed)
        if self.shape == float("inf"):
            raise ArgumentError("shape=inf may give no run at all: take a finite one")
        sigma = self._least(mechanisms.Gaussian, 1.5 / gaussian.mu(epsilon=self.epsilon, delta=self.delta))
        share = 0.0 if held_out else SCORE_SHARE
        score = mechanisms.Gaussian(sigma / sqrt(share or 1.0) * (1 + 1e-12))
        if sampled is None:
            alone = mechanisms.Gaussian(sigma / sqrt(1 - share) * (1 + 1e-12))
            return Plan(self._best(mechanisms.Gaussian(sigma)), alone, score)
        rate, steps = sampled

        def dp_sgd(noise: float) -> mechanisms.Mechanism:
            return mechanisms.Repeated(mechanisms.SampledGaussian(noise, 1.0, rate), steps)

        def one_run(noise: float) -> mechanisms.Mechanism:
            return dp_sgd(noise) if held_out else mechanisms.Composed((dp_sgd(noise), score))

        noise = self._least(one_run, 1.0)
        return Plan(self._best(one_run(noise)), dp_sgd(noise), score)

    def _best(self, one_run: mechanisms.Mechanism) -> mechanisms.BestOf:
        return mechanisms.BestOf(one_run, self.runs, self.shape)

    def _least(self, one_run: Callable[[float], mechanisms.Mechanism], near: float) -> float:
        """The least noise with which the best of such runs costs no more than was promised."""
        left = self.delta - tuning.MISSED * (1 + exp(min(self.epsilon, 700.0)))
        if not left > 0:
            raise ArgumentError(f"delta={self.delta!r} must exceed {self.delta - left:.3g} at epsilon={self.epsilon!r}")

        def fits(noise: float) -> bool:
            return tuning.epsilon(self._best(one_run(noise)), delta=left) <= self.epsilon

        noise = _search.least(fits, near=near, tolerance=1e-3)
        if not noise < float("inf"):
            raise ArgumentError(f"epsilon={self.epsilon!r} leaves {self.runs!r} runs no budget")
        return noise

    def _noisy(self, right: int, score: mechanisms.Gaussian, number: int, parts: int) -> float:
        """A count with noise, or of parts of people: these have a sensitivity of as many parts as make one person."""
        of_parts = mechanisms.Gaussian(score.sigma * parts, parts)
        noisy: int = publish(lambda: right + self._noise(of_parts.sigma, number), exact=right, mechanism=of_parts)
        return noisy / parts

    def _noise(self, sigma: float, number: int) -> int:
        if self.seed is None:
            return int(rounded_gaussian(sigma, size=1)[0])
        return round(float(np.random.default_rng([self.seed, number, 3]).normal(0.0, sigma)))

    def __sklearn_tags__(self) -> Tags:
        return get_tags(self.estimator) if _predicts(self) else cast(Tags, super().__sklearn_tags__())

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Features) -> Floats:
        """Scores of the best model; see ``LogisticRegression``."""
        return np.asarray(self._model.decision_function(X))

    @available_if(_predicts)  # type: ignore[untyped-decorator]
    def predict(self, X: Features) -> Any:
        """Predictions of the best model, (rows,)."""
        return self._model.predict(X)

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Features) -> Floats:
        """Probabilities of the classes by the best model, (rows, classes)."""
        return np.asarray(self._model.predict_proba(X))

    @available_if(_predicts)  # type: ignore[untyped-decorator]
    def score(self, X: Features, y: ArrayLike) -> float:
        """The quality of the best model, as of the estimator. Private where the rows are."""
        return float(self._model.score(X, y))

    @property
    def _model(self) -> Any:
        check_is_fitted(self)
        return self.best_estimator_


def _epsilon(mu: float, delta: float) -> float:
    """An epsilon whose budget is at most this mu."""
    epsilon = float(gaussian.epsilon(mu, delta=delta))
    while epsilon > 0 and not gaussian.mu(epsilon=epsilon, delta=delta) <= mu:
        epsilon *= 1 - 1e-9
    if not epsilon > 0:
        raise ArgumentError(f"delta={delta!r} alone covers what one run may cost: take a smaller delta")
    return epsilon
