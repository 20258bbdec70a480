"""Private models that follow scikit-learn's conventions."""

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from bursar import _check, individual
from bursar._arrays import to_numpy
from bursar.errors import ArgumentError, DataError
from bursar.training._card import Card, build_card
from bursar.training._counters import rounded
from bursar.training._logistic import descent
from bursar.training._logistic.gradients import LogisticGradients, probabilities
from bursar.training._logistic.noise_plan import Plan, check_worst_case, plan
from bursar.training._private_report import ShareHistory

__all__ = ["LogisticRegression"]

Floats = NDArray[np.float64]
Features: TypeAlias = "ArrayLike | sparse.csr_matrix"
Accounts: TypeAlias = individual.Filter | descent.Everybody


class LogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression by private full-batch gradient descent, with a privacy account for every person.

    Two classes give the logistic loss, more give the softmax loss. Every step releases the sum of all people's clipped
    gradients plus Gaussian noise. With `individual=True` each person pays for what that person contributes;
    what is not used in a step can be contributed in later ones, also in `extra_steps` further steps.

    Each call of `fit` is a new release with a budget of its own: budgets of several calls add up.

    Parameters
    ----------
    epsilon, delta : the guarantee for each person. `epsilon=None` with a `noise_multiplier`: what the noise amounts to.
    max_grad_norm : the clip: the largest L2 norm of one person's gradient in one step.
    learning_rate : step size, on the mean gradient.
    steps : how many steps a person who contributes the whole clip can pay for.
    extra_steps : steps more than the noise is planned for; unused without individual accounting.
    pace : how evenly what a person has left is spread over the steps that are left. 1: nobody is out before the last
        step. 0: each person contributes up to the clip until nothing is left (Feldman & Zrnic, Algorithm 8); with
        `extra_steps` it can ruin a model, because the people who are left at the end are the ones it already fits.
    individual : one account for each person, or one worst case for all (Feldman & Zrnic, Algorithm 7).
    accounting : "gaussian" (exact) or "renyi" (zCDP).
    noise_multiplier : noise over clip; None: the smallest that the budget admits.
    average : share of the last iterates whose mean is the model; 0: the last iterate.
    classes : the labels, public. None: the labels found in `y` are declared public, and the card says so.
    n_people : the number of people that sums are divided by, public. None: a noisy count, paid for with 1 % of the
        budget, because the true number is private.
    fit_intercept : whether to add a constant 1 to every record.
    seed : None: noise from a generator seeded by the operating system. A number makes the run reproducible and
        therefore NOT private: for tests and experiments on public data; the card says so.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_ : the model, in scikit-learn's shapes; public.
    n_iter_ : steps taken; public.
    card_ : the guarantee (`bursar.training.Card`); public.
    holder_report_ : PRIVATE, for the data holder: each person's share of the budget spent, and how many are active over
        time. It is not in the repr, and left out when the model is pickled or copied.

    Guarantee: `coef_`, `intercept_` and every iterate are (epsilon, delta)-differentially private when one person, with
        all of that person's records, is added or removed; provided that parameters, features and labels were chosen
        without looking at the data, and that no seed was given.
    Source: theory 4.2, 4.3, 5.1, 5.3, 5.7; Feldman & Zrnic (2021), Theorem 4.5 and Algorithms 7 and 8; Koskela,
        Tobaben & Honkela (2023), Theorem 12.

    Examples
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

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        max_grad_norm: float = 1.0,
        learning_rate: float = 4.0,
        steps: int = 200,
        extra_steps: int = 0,
        pace: float = 1.0,
        individual: bool = True,
        accounting: str = "gaussian",
        noise_multiplier: float | None = None,
        average: float = 0.5,
        classes: Sequence[Any] | NDArray[Any] | None = None,
        n_people: int | None = None,
        fit_intercept: bool = True,
        seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.max_grad_norm = max_grad_norm
        self.learning_rate = learning_rate
        self.steps = steps
        self.extra_steps = extra_steps
        self.pace = pace
        self.individual = individual
        self.accounting = accounting
        self.noise_multiplier = noise_multiplier
        self.average = average
        self.classes = classes
        self.n_people = n_people
        self.fit_intercept = fit_intercept
        self.seed = seed

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        observe: Callable[[int, Floats], None] | None = None,
        shares: ArrayLike | None = None,
    ) -> Self:
        """Train.

        Args:
            X: (rows, features) array or CSR matrix, private, finite.
            y: (rows,) labels, private.
            groups: (rows,) whose row it is, private; None: every row is a person of its own.
            observe: called after each step with the step's number and the parameters, which are public.
            shares: (people,) private, in (0, 1]: the part of the budget that each person may spend, in the order of
                the rows, or of the sorted groups; see ``individual.Filter``. Only with individual=True.
        """
        planned = self._plan()
        X, y = _validated(self, X, y)
        check_classification_targets(y)
        self.classes_, codes = self._labels(y)
        people = None if groups is None else _people(column_or_1d(groups), len(codes))
        gradients = LogisticGradients(X, codes, len(self.classes_), intercept=self.fit_intercept, people=people)
        steps = self.steps + (self.extra_steps if self.individual else 0)
        accounts, history = self._accounts(planned, gradients.people, steps, shares)
        noise = np.random.default_rng(self.seed)
        divisor = self._divisor(planned, accounts, gradients.people, noise)

        def look(number: int, parameters: Floats) -> None:
            history.add(number)
            if observe is not None:
                observe(number, parameters)

        parameters = descent.descend(
            gradients,
            gradients.start,
            accounts,
            planned.step,
            steps=steps,
            learning_rate=self.learning_rate,
            divisor=divisor,
            noise=noise,
            average=self.average,
            pace=self.pace,
            observe=look,
        )
        self._set_model(parameters, planned, steps, divisor, groups is not None)
        self.holder_report_ = history.report()
        return self

    def decision_function(self, X: Features) -> Floats:
        """Scores: (rows,) for two classes, positive for the second; (rows, classes) otherwise."""
        check_is_fitted(self)
        X = _validated(self, X, reset=False)
        scores = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Features) -> Floats:
        """Probabilities of the classes: (rows, classes)."""
        scores = self.decision_function(X)
        return probabilities(scores[:, None] if scores.ndim == 1 else scores)

    def predict(self, X: Features) -> NDArray[Any]:
        """The most likely class of each row."""
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    def _plan(self) -> Plan:
        """The parameters checked, and the noise and budget that follow; before the data are looked at."""
        _check.whole(0, extra_steps=self.extra_steps)
        _check.positive(learning_rate=self.learning_rate)
        _check.within(0, 1, average=self.average, pace=self.pace)
        if self.n_people is not None:
            _check.whole(1, n_people=self.n_people)
        if self.seed is not None:
            _check.whole(0, seed=self.seed)
        planned = plan(
            self.accounting,
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            steps=self.steps,
            counted=self.n_people is None,
        )
        if not self.individual:
            check_worst_case(planned, self.steps)
        return planned

    def _labels(self, y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The classes, and the number of each row's class."""
        classes = np.unique(np.asarray(y if self.classes is None else self.classes))
        if len(classes) < 2:
            raise ArgumentError(f"classes must name at least two labels, not {len(classes)} class")
        if self.classes is not None and len(classes) != len(self.classes):
            raise ArgumentError("classes must name each label once")
        codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        if not np.array_equal(classes[codes], y):
            raise DataError(f"y must hold none but the {len(classes)} labels that classes names")
        return classes, codes

    def _accounts(
        self, planned: Plan, people: int, steps: int, shares: ArrayLike | None
    ) -> tuple[Accounts, ShareHistory]:
        """Fresh accounts, and the history of their shares for the data holder's report; private."""
        if self.individual:
            accounts = individual.Filter(people, planned.budget.fresh(), shares=shares)
            own = 1.0 if shares is None else np.asarray(shares, np.float64)
            return accounts, ShareHistory(lambda: to_numpy(accounts.spent()) / own, planned.total, steps)
        if shares is not None:
            raise ArgumentError("shares need individual=True")
        public = planned.budget.fresh()
        return descent.Everybody(people, public), ShareHistory(
            lambda: np.full(people, public.spent), planned.total, steps
        )

    def _divisor(self, planned: Plan, accounts: Accounts, people: int, noise: np.random.Generator) -> float:
        """The public number of people: given, or counted with noise that each person pays for."""
        if planned.count is None:
            return float(self.n_people)  # type: ignore[arg-type]
        counted = np.count_nonzero(np.asarray(accounts.charge(planned.count, np.ones(people))))
        noisy = counted + noise.normal(0.0, planned.count.sigma)
        return max(1.0, rounded(float(noisy), planned.count.sigma))

    def _set_model(self, parameters: Floats, planned: Plan, steps: int, divisor: float, grouped: bool) -> None:
        """The public attributes of the model."""
        weights = parameters[:-1] if self.fit_intercept else parameters
        self.coef_ = np.ascontiguousarray(weights.T)
        self.intercept_ = parameters[-1].copy() if self.fit_intercept else np.zeros(parameters.shape[1])
        self.n_iter_ = steps
        self.card_ = self._card(planned, divisor, grouped)

    def _card(self, planned: Plan, divisor: float, grouped: bool) -> Card:
        """The guarantee; public."""
        return build_card(
            planned.budget.fresh(),
            delta=planned.delta,
            why=planned.why,
            individual=self.individual,
            spend_remainder=self.individual,
            sample_rate=None,
            sigma=planned.step.sigma,
            noise_multiplier=planned.step.sigma / planned.step.sensitivity,
            max_grad_norm=self.max_grad_norm,
            steps=self.steps,
            extra_steps=self.extra_steps if self.individual else 0,
            pace=self.pace if self.individual else 0.0,
            learning_rate=self.learning_rate,
            average=self.average,
            divisor=divisor,
            count_sigma=None if planned.count is None else planned.count.sigma,
            people_from="group" if grouped else "record",
            classes_from="data" if self.classes is None else "caller",
            reproducible=self.seed is not None,
        )

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("holder_report_", None)  # private: it does not travel with the model
        return state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags


def _validated(model: Any, X: Any, *y: Any, reset: bool = True) -> Any:
    """scikit-learn's checks, without the two of its messages that quote records."""
    flat = isinstance(X, list | tuple) and bool(X) and not hasattr(X[0], "__len__")
    if flat or (not hasattr(X, "tocsr") and len(getattr(X, "shape", ())) == 1):
        raise ArgumentError("X: Expected 2D array, got 1D array instead. Reshape your data: a row for each record")
    try:
        return validate_data(model, X, *y, accept_sparse="csr", dtype=np.float64, reset=reset)
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
    raise DataError("X must hold numbers: make categories columns of 0 and 1, from a public list of them")


def _people(groups: NDArray[Any], rows: int) -> NDArray[np.intp]:
    """The number of the person to whom each row belongs; a row of nobody could not be charged to anybody."""
    if len(groups) != rows:
        raise ArgumentError("groups must have one entry for each row of X")
    if any(owner is None or owner != owner for owner in groups.tolist()):
        raise DataError("groups must say of every row whose it is: None and NaN are nobody")
    try:
        return np.unique(groups, return_inverse=True)[1]
    except TypeError as mixed:
        raise ArgumentError("groups must be all of one kind: all numbers, or all text") from mixed
