"""Private classifiers that follow scikit-learn's conventions, and what regressions share with them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from almoner import _check, individual
from almoner.errors import ArgumentError, DataError
from almoner.individual import BudgetStatement, Statement
from almoner.mechanisms import Gaussian, Repeated
from almoner.training._accounts import DropoutCount, Everybody, ShareHistory, StoppingAccounts, rounded
from almoner.training._card import Boundary
from almoner.training._linear import descent as loop
from almoner.training._linear.descent import LogisticGradients, Plan
from almoner.training._linear.model_folder import PersonalAccounts
from almoner.training._linear.partial import Features, Floats, PartialFit
from almoner.training._linear.wrappers import Bounds as FeatureBounds
from almoner.training._linear.wrappers import Copied, floats_of, labels_of, numbers_of, validated
from almoner.training._on_ledger import LedgerRun, OnLedger, reserve_on_ledger
from almoner.training._run.books import Bounds, MemoryBook
from almoner.training._run.run import CurrentState, Interruptions, Run
from almoner.training._run.samplings import FullBatch, Turnout
from almoner.training._run.settings import fresh_odometer
from almoner.training.stopping import Dropouts

Counting = Callable[[individual.Filter], StoppingAccounts]


@dataclass(kw_only=True, eq=False, repr=False)
class Descent(BaseEstimator):  # type: ignore[misc]
    """Course of the steps of a `LogisticRegression`: its parameter `descent`. All of it is public.

    Parameters
    ----------
    average : share of the last iterates whose mean is the model; 0: the last iterate.
    momentum : Nesterov's momentum, in [0, 1): each step goes on by this share of the last; gradients are taken there.
    decay : over this share of the steps, the last ones, the learning rate falls to zero in a line.
    pace : how evenly what a person has left is spread over the steps that are left. 1: nobody is out before the last
        step. 0: each person contributes up to the clip until nothing is left (Feldman & Zrnic, Algorithm 8), which can
        ruin a model with `extra_steps`: those who are left are the ones it already fits.
    extra_steps : steps more than the noise is planned for; unused without individual accounting.
    stop_when_inactive : the share of the people, in (0, 1): after the planned steps, those who have used up their
        budgets are counted with noise, and training stops when the count is above this share of the divisor. All counts
        cost each person who is in them 1 % of the budget. Needs `extra_steps`, the most, and a `pace` below 1.

    Examples:
    --------
    >>> LogisticRegression(descent=Descent(momentum=0.9)).get_params()["descent__momentum"]
    0.9
    """

    average: float = 0.5
    momentum: float = 0.8
    decay: float = 0.0
    pace: float = 1.0
    extra_steps: int = 0
    stop_when_inactive: float | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateDescent(Copied, BaseEstimator):  # type: ignore[misc]
    """Linear models by private descent: their parameters, their training, and whose account is whose."""

    epsilon: float | None = 1.0
    delta: float = 1e-5
    max_grad_norm: float | None = None
    learning_rate: float | None = None
    steps: int = 200
    individual: bool = True
    noise_multiplier: float | None = None
    n_people: int | None = None
    fit_intercept: bool = True
    bounds_X: tuple[ArrayLike, ArrayLike] | None = None
    alpha: float = 0.0
    descent: Descent | None = None
    seed: int | None = None

    _loss: ClassVar[type[LogisticGradients]] = LogisticGradients
    _clips: ClassVar[tuple[float, float]] = (0.5, 1.0)  # the least that is chosen, and the most
    _room: ClassVar[float] = loop.NOISE  # noise of all steps, at the largest rate, up to which clips grow
    _settled: ClassVar[tuple[float, float]] = (loop.SETTLED, loop.MOST_RATE)  # and the largest rate for that

    @property
    def _clip(self) -> float:
        return self._clips[0] if self.max_grad_norm is None else self.max_grad_norm

    def _with_clip(self, planned: Plan, divisor: float, momentum: float) -> Plan:
        """The plan with the clip that is chosen where none is given; by the noise that it brings, which is public."""
        if self.max_grad_norm is not None:
            return planned
        longer = self._room / loop.noise_of(planned.step, self.steps, divisor, rate=self._most, momentum=momentum)
        clip = float(f"{min(max(self._clip, longer * self._clip), self._clips[1]):.3g}")
        sigma = planned.step.sigma * (clip / self._clip) * (1 + loop.TINY)
        return planned if clip == self._clip else replace(planned, step=Gaussian(sigma, clip))

    @property
    def _most(self) -> float:
        return loop.MOST_RATE

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as all estimators do; ``descent__average=0`` gives the model a ``Descent`` if it has none."""
        if self.descent is None and any(name.startswith("descent__") for name in params):
            self.descent = Descent()
        return cast(Self, super().set_params(**params))

    @property
    def _descent(self) -> Descent:
        chosen = Descent() if self.descent is None else self.descent
        if not isinstance(chosen, Descent):
            raise ArgumentError(f"descent={chosen!r} must be a Descent: descent=Descent(average=0.5)")
        return chosen

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        observe: Callable[[int, Floats], None] | None = None,
        sample_weight: ArrayLike | None = None,
        shares: ArrayLike | None = None,
        odometer: Boundary | None = None,
        counting: Counting | None = None,
        ledger: OnLedger | None = None,
    ) -> Self:
        """Train.

        Args:
            X: (rows, features) array or CSR matrix, private, finite.
            y: (rows,) labels, or targets of a regression, private.
            groups: (rows,) whose row it is, private; None: every row is a person of its own.
            sample_weight: (rows,) what the loss of each row is multiplied by, 0 or more, from that row alone: a weight
                by other rows, such as by how many there are of a class, would reveal them.
            observe: called after each step with the step's number and the parameters, which are public.
            shares: (people,) private, in (0, 1]: the part of the budget that each person may spend, in the order of
                the rows, or of the sorted groups; see ``individual.Filter``. Only with individual=True.
            odometer: public, fresh. Running bounds beside the budget, one for each person with individual accounting;
                see ``statement``. With epsilon=None the budget is what all steps cost at most, and nobody is left out.
            counting: public. How the people who are still active are counted after the planned steps, in place of
                what ``Descent.stop_when_inactive`` chooses: ``lambda people: Dropouts(people, Tree(...))``, which
                needs that share, or ``StillActive(...)``, which has its own number and a budget in zCDP.
            ledger: accounts that others charge too, where people are named as in ``groups``; see ``OnLedger``.
        """
        if ledger is not None:
            kinds = {"individual=False": not self.individual, "groups=None": groups is None}
            ledger.refuse(seed=self.seed, shares=shares, **kinds)
        self._stream, planned = None, self._plan(counting)
        X, y = validated(self, X, y)
        names, people = (None, None) if groups is None else numbers_of(groups, X.shape[0])
        gradients = self._gradients(X, y, people, sample_weight)
        self._tell_of_wrappers()
        on = reserve_on_ledger(ledger, names if ledger else None, planned.budget, gradients.people)
        with Interruptions(on), on or nullcontext():
            book = self._book(planned, gradients.people, shares=shares, odometer=odometer, held=on)
            self._train(gradients, book, planned, counting, names, observe)
            if on is not None:
                self.card_ = on.on_card(self.card_)
                on.settle(self.card_, [self.coef_, np.atleast_1d(self.intercept_)])
        return self

    def _book(
        self, planned: Plan, count: int, *, shares: ArrayLike | None, odometer: Boundary | None, held: LedgerRun | None
    ) -> MemoryBook:
        if shares is not None and not self.individual:
            raise ArgumentError("shares need individual=True")
        accounts: individual.Filter | Everybody = Everybody(count, planned.budget.fresh())
        if self.individual:
            accounts = held.accounts() if held else individual.Filter(count, planned.budget.fresh(), shares=shares)
        observers = [] if odometer is None else [Bounds(fresh_odometer(odometer), count if self.individual else None)]
        draw, current = loop.independent(np.random.default_rng(self.seed)), CurrentState.of_step(planned.step)
        return MemoryBook(accounts, current, draw, people=count, observers=observers)

    def _train(
        self,
        gradients: LogisticGradients,
        book: MemoryBook,
        planned: Plan,
        counting: Counting | None,
        names: list[Any] | None,
        observe: Callable[[int, Floats], None] | None,
    ) -> None:
        chosen, steps = self._descent, self.steps + self._extra_steps
        divisor = self._divisor_of(book, gradients, planned)
        planned = self._with_clip(planned, divisor, chosen.momentum)
        step = planned.step
        book.current.update(max_grad_norm=step.sensitivity)
        most = None if chosen.stop_when_inactive is None else chosen.stop_when_inactive * divisor
        rule = self._rule(book, counting, planned, most)
        self.learning_rate_ = self._rate(step, divisor, self._most, chosen.momentum, gradients.start.size)
        accounts, count = book.accounts, gradients.people
        all_alike = lambda rows: np.full(count, accounts.budget.spent / planned.budget.left)[rows]  # noqa: E731
        used = accounts.used if self.individual else all_alike
        history = ShareHistory(used, steps, count)

        def look(number: int, parameters: Floats) -> None:
            self.n_iter_ = number
            history.add(number)
            if observe is not None:
                observe(number, parameters)

        model = loop.LinearModel(
            gradients.start,
            self.learning_rate_,
            steps=steps,
            planned=None if rule is None else self.steps,
            average=chosen.average,
            momentum=chosen.momentum,
            decay=chosen.decay,
            penalty=self._penalty(gradients.start),
            noise=None if self.learning_rate is not None else step.sigma / divisor,
        )
        stop = None if rule is None else lambda _number: _says_stop(rule, most)
        run = Run(model, FullBatch(pace=chosen.pace), book, book.current)
        loop.take_steps(run, gradients, step, steps=steps, divisor=divisor, observe=look, stop=stop)
        self._set_model(model, planned, rule, divisor, names is not None)
        if rule is not None:
            rule.close()
        self.odometer_, self.holder_report_, self.accounts_ = book.odometer(), history.report(), None
        if self.individual:
            self.accounts_ = PersonalAccounts(book.accounts, planned.delta, self.odometer_, names)

    def _divisor_of(self, book: MemoryBook, gradients: LogisticGradients, planned: Plan) -> float:
        """The public number of people: given, or counted with noise that each person pays for."""
        count = planned.count
        if self.n_people is not None or count is None:
            return float(self.n_people or 1)

        def contribute(accounts: Any) -> list[Any]:
            return [float(np.count_nonzero(np.asarray(accounts.charge(count, np.ones(gradients.people)))))]

        (noisy,) = book.release(count, Turnout(gradients, gradients.people), contribute, gated=False)
        return max(1.0, rounded(float(noisy), count.sigma))

    def _rule(
        self, book: MemoryBook, counting: Counting | None, planned: Plan, most: float | None
    ) -> StoppingAccounts | None:
        """Accounts that are asked, after the planned steps, how many people are still active; None: nobody asks."""
        drops = planned.drops
        if counting is None and drops is not None:
            noise = None if self.seed is None else np.random.default_rng([self.seed, 2])
            counting = partial(Dropouts, counter=drops, noise=noise)
        if counting is None:
            return None

        def check(rule: StoppingAccounts) -> None:
            if rule.most is not None and rule.most < self._extra_steps:
                raise ArgumentError(f"counting: {rule.most} counts are fewer than extra_steps={self._extra_steps}")
            by_number = isinstance(rule.answer, DropoutCount)
            if by_number and most is None:
                raise ArgumentError("stop_when_inactive must be given where drops are counted: the share that ends it")
            if not by_number and most is not None:
                raise ArgumentError("stop_when_inactive: StillActive has its own number of people; leave the share out")

        rule = book.put_in_front(counting, "counting", check)
        rule.begin_after(self.steps)
        return rule

    def statement(self, person: object) -> BudgetStatement | Statement:
        """One person's statement, by the entry in ``groups`` or the number of the row. PRIVATE: for this person alone.

        With an odometer it is the person's own running bound; else the share of the person's budget that is used.
        """
        check_is_fitted(self)
        kept: PersonalAccounts | None = getattr(self, "accounts_", None)
        if kept is None:
            why = "individual=False" if not self.individual else "a copied, loaded or tuned model has no accounts"
            raise ArgumentError(f"statement: {why}; the card says what everybody was charged at most")
        return kept.statement(person)

    def _scores(self, X: Features) -> Floats:
        check_is_fitted(self)
        return np.asarray(validated(self, X, reset=False) @ np.atleast_2d(self.coef_).T + self.intercept_)

    def _gradients(
        self, X: Any, y: Any, people: NDArray[Any] | None, sample_weight: ArrayLike | None = None
    ) -> LogisticGradients:
        values, columns, weights = self._targets(y)
        if sample_weight is not None:
            own = floats_of(sample_weight)
            if own.shape != values.shape or not (np.isfinite(own).all() and (own >= 0).all()):
                raise DataError("sample_weight must have a finite number, 0 or more, for each row of X")
            weights = own if weights is None else weights * own
        return self._on_records(X, values, columns, people=people, weights=weights)

    def _on_records(self, X: Any, values: Any, columns: int, **others: Any) -> LogisticGradients:
        bounds, intercept = self._bounds(X.shape[1]), loop.INTERCEPT * bool(self.fit_intercept)
        return self._loss(X if bounds is None else bounds.scaled(X), values, columns, intercept=intercept, **others)

    def _bounds(self, features: int) -> Any:
        return None if self.bounds_X is None else FeatureBounds.of(self.bounds_X, features)

    def _rate(self, step: Gaussian, divisor: float, most: float, momentum: float = 0.0, numbers: float = inf) -> float:
        """The learning rate, public: what is given, or one at which the noise of all steps adds up to ``NOISE``.

        Or more, for few parameters (``numbers``): steps that have arrived lose a fourth of the rate times the square of
        one step's noise in all of them. Found by experiment: docs/experiments/defaults.md. Three digits are kept.
        """
        if self.learning_rate is not None:
            return self.learning_rate
        noise, (lost, farthest) = loop.noise_of(step, self.steps, divisor, momentum=momentum), self._settled
        arriving = min(farthest, lost / numbers * self.steps / (1 - momentum) / noise / noise)
        return float(f"{max(arriving, min(most, loop.NOISE / noise)):.3g}")

    def _penalty(self, start: Floats) -> Floats | float:
        """Pull of each parameter to zero: of all but the intercept."""
        penalty = np.full_like(start, self.alpha)
        penalty[len(start) - bool(self.fit_intercept) :] = 0.0
        return penalty if self.alpha else 0.0

    def _set_coefficients(self, found: Floats) -> None:
        """Coefficients (columns, features) and intercepts (columns,) for records as they are given; public."""
        weights = found[: self.n_features_in_]
        constants = loop.INTERCEPT * found[-1] if self.fit_intercept else np.zeros(found.shape[1])
        bounds = self._bounds(self.n_features_in_)
        if bounds is not None:
            weights, constants = bounds.unscaled(weights, constants)
        self.coef_: Any = np.ascontiguousarray(weights.T)
        self.intercept_: Any = np.array(constants)

    def _plan(self, counting: Counting | None) -> Plan:
        """The parameters checked, and the noise and budget that follow; before the data are looked at."""
        chosen = self._descent
        _check.whole(0, extra_steps=chosen.extra_steps)
        self._check_settings()
        loop.check_course(average=chosen.average, decay=chosen.decay, pace=chosen.pace, momentum=chosen.momentum)
        _check.given(_check.whole, 1, n_people=self.n_people)
        counts, by_number = self._drop_counts(counting), counting is None or chosen.stop_when_inactive is not None
        planned = loop.plan(
            "gaussian" if by_number else "zcdp",  # in which a yes or no has a price, as StillActive gives
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self._clip,
            steps=self.steps,
            counted=self.n_people is None,
            drop_counts=0 if counting is not None else counts,
        )
        if not self.individual:  # steps that all people pay in full must fit
            budget = planned.budget.fresh()
            if planned.count is not None:
                budget.charge(planned.count)
            budget.charge(Repeated(planned.step, self.steps))
        return planned

    def _check_settings(self) -> None:
        _check.given(_check.positive, learning_rate=self.learning_rate)
        _check.given(_check.whole, 0, seed=self.seed)
        _check.within(0, 1e100, alpha=self.alpha)

    def _drop_counts(self, counting: Counting | None) -> int:
        """The most answers to "how many people are still active?"; 0 where nobody asks."""
        chosen = self._descent
        if chosen.stop_when_inactive is None and counting is None:
            return 0
        _check.given(_check.between, 0, 1, stop_when_inactive=chosen.stop_when_inactive)
        if not self.individual:
            raise ArgumentError("stop_when_inactive and counting need individual=True")
        if chosen.extra_steps < 1 or chosen.pace >= 1:
            raise ArgumentError(
                f"stop_when_inactive and counting need extra_steps and a pace below 1: with extra_steps="
                f"{chosen.extra_steps} and pace={chosen.pace:g} nobody is out before the last step"
            )
        return chosen.extra_steps

    @property
    def _extra_steps(self) -> int:
        """Steps more than the noise is planned for; none where all are charged the worst case."""
        return self._descent.extra_steps if self.individual else 0

    def _set_model(
        self, model: loop.LinearModel, planned: Plan, rule: StoppingAccounts | None, divisor: float, grouped: bool
    ) -> None:
        self._set_coefficients(model.result)
        self.arrived_ = 0.0 if getattr(self, "class_weight", None) else model.arrived(planned.step.sigma / divisor)
        self.counting_ = None if rule is None else rule.answer
        chosen = self._descent
        self.card_ = planned.card(
            FullBatch(pace=chosen.pace),
            divisor=divisor,
            individual=self.individual,
            released={} if rule is None else {planned.step: self.n_iter_, rule.answer.price: 1},
            steps=self.steps,
            extra_steps=self.n_iter_ - self.steps,
            learning_rate=self.learning_rate_,
            average=model.share,
            momentum=chosen.momentum,
            decay=chosen.decay,
            people_from="group" if grouped else "record",
            classes_from="data" if getattr(self, "classes", "none") is None else "caller",
            reproducible=self.seed is not None or (rule is not None and rule.reproducible),
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.bounds_X is None
        tags.non_deterministic = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(PartialFit, ClassifierMixin, PrivateDescent):  # type: ignore[misc]
    """Logistic regression by private full-batch gradient descent, with a privacy account for every person.

    Two classes give the logistic loss, more give the softmax loss. Every step releases the sum of all people's clipped
    gradients plus Gaussian noise. With `individual=True` each person pays for what that person contributes;
    what is not used in a step can be contributed in later ones, also in further steps (`Descent.extra_steps`).

    Each call of `fit` is a new release with a budget of its own: budgets of several calls add up. The calls of
    `partial_fit` share one budget: each is an update of a stream, for which only the people in it pay.

    Parameters
    ----------
    epsilon, delta : the guarantee for each person. `epsilon=None` with a `noise_multiplier`: what the noise amounts to.
    max_grad_norm : the clip: the largest L2 norm of one person's gradient in one step. None: from 0.5 to 1, the more
        people and epsilon there are, the larger; 0.5 for ``partial_fit``.
    learning_rate : step size, on the mean gradient. None: as large as the noise allows: that of all steps adds up to a
        standard deviation of 2 in each parameter, or more if these are few; at most 16, and halved where steps swing.
    steps : how many steps a person who contributes the whole clip can pay for.
    individual : one account for each person, or one worst case for all (Feldman & Zrnic, Algorithm 7).
    noise_multiplier : noise over clip; None: the smallest that the budget admits.
    classes : the labels, public. None: the labels found in `y` are declared public, and the card says so.
    n_people : the number of people that sums are divided by, public. None: a noisy count, paid for with 1 % of the
        budget, because the true number is private.
    class_weight : {label: weight}, public: what the loss of a label's rows is multiplied by. None: 1.
    fit_intercept : whether to add a constant to every record: 1/4, which clips others less than a 1 does.
    bounds_X : (low, high) of the features, public, numbers or one for each: records are moved into them and scaled to
        norms of about 1; `coef_` is for records as they are. None: records are taken as they are.
    alpha : the penalty: half of it times the squared coefficients (of scaled features) is added to the mean loss.
    descent : averages, momentum, further steps and how budgets are spread over them; None: ``Descent()``.
    seed : None: noise from a generator seeded by the operating system. A number makes the run reproducible and
        therefore NOT private: for tests and experiments on public data; the card says so.

    Attributes:
    ----------
    coef_, intercept_, classes_, n_features_in_ : the model, in scikit-learn's shapes; public.
    n_iter_, learning_rate_, arrived_ : number of steps, learning rate, and share of the clip that is undone; public.
    counting_ : the last answer to how many people were still active, or None; public.
    card_ : the guarantee (`almoner.training.Card`); public.
    holder_report_ : PRIVATE, for the data holder: each person's share of the budget spent, and how many are active over
        time. It is not in the repr, and left out when the model is pickled or copied.
    accounts_ : PRIVATE, likewise: what `statement` reads, and `save(path)` keeps; None without individual accounting.
    odometer_ : PRIVATE with individual accounting, likewise: the running bounds, or None.

    Guarantee: `coef_`, `intercept_` and every iterate are (epsilon, delta)-differentially private when one person, with
        all of that person's records, is added or removed; provided that parameters, features and labels were chosen
        without looking at the data, and that no seed was given.
    Source: theory 4.2, 4.3, 5.1, 5.3, 5.7; Feldman & Zrnic (2021), Theorem 4.5 and Algorithms 7 and 8; Koskela,
        Tobaben & Honkela (2023), Theorem 12.

    Examples:
    --------
    >>> import numpy as np
    >>> x = np.repeat([[-1.0], [1.0]], 500, axis=0)
    >>> y = np.repeat([0, 1], 500)
    >>> model = LogisticRegression(epsilon=1.0, classes=[0, 1], n_people=1000, seed=1).fit(x, y)
    >>> model.predict([[-0.5], [0.5]])
    array([0, 1])
    >>> model.holder_report_
    HolderReport(private: for the data holder)
    """

    classes: Sequence[Any] | NDArray[Any] | None = None
    class_weight: Mapping[Any, float] | None = None

    def decision_function(self, X: Features) -> Floats:
        """Logs of the probabilities: (rows, classes); for two classes their difference: (rows,)."""
        logs = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return np.asarray(logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs)

    def predict(self, X: Features) -> NDArray[Any]:
        """The most likely class of each row."""
        scores = self._scores(X)  # whose order probabilities keep
        return cast(NDArray[Any], self.classes_[scores.argmax(1) if scores.shape[1] > 1 else (scores > 0).ravel() * 1])

    def predict_proba(self, X: Features) -> Floats:
        """Probabilities of the classes: (rows, classes); clipped gradients leave scores too sure, which is undone."""
        scores = self._scores(X)
        records = self._on_records(validated(self, X, reset=False), np.zeros(len(scores), np.int64), len(self.classes_))
        return loop.probabilities(scores, records.lengths / self.card_.max_grad_norm, self.arrived_)

    def _targets(self, y: Any) -> tuple[NDArray[Any], int, Floats | None]:
        if self.classes is None:
            check_classification_targets(y)
        self.classes_, codes = labels_of(y, self.classes)
        return codes, len(self.classes_), self._weights_of(self.classes_, codes)

    def _weights_of(self, classes: NDArray[Any], codes: NDArray[Any]) -> Floats | None:
        if self.class_weight is None:
            return None
        if not isinstance(self.class_weight, Mapping) or not set(self.class_weight) <= set(classes.tolist()):
            raise ArgumentError(
                f"class_weight={self.class_weight!r} must be {{label: weight}} of labels in {classes.tolist()}, from "
                "public knowledge: how many rows have a label is private; for example "
                f"`class_weight={{{classes.tolist()[0]!r}: 2.0}}`"
            )
        for label, weight in self.class_weight.items():
            _check.positive(**{f"class_weight[{label!r}]": weight})
        return np.asarray([float(self.class_weight.get(label, 1.0)) for label in classes.tolist()])[codes]  # type: ignore[no-any-return]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


def _says_stop(rule: StoppingAccounts, most_inactive: float | None) -> bool:
    """True if the latest answer ends the run. Public; never before the first count."""
    answer: Any = rule.answer
    return rule.begun and bool(not answer.still if most_inactive is None else answer.count > most_inactive)
