"""Private regressions that follow scikit-learn's conventions, by the descent that classifiers take."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from almoner import _check
from almoner.errors import ArgumentError, DataError
from almoner.training._linear.descent import LogisticGradients, PoissonGradients, SquaredGradients
from almoner.training._linear.estimator import PrivateDescent
from almoner.training._linear.partial import Features, Floats
from almoner.training._linear.wrappers import floats_of


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(RegressorMixin, PrivateDescent):  # type: ignore[misc]
    """Linear (with ``alpha``: ridge) regression by private full-batch gradient descent, an account for every person.

    Parameters
    ----------
    bounds_y : (low, high), public: targets are moved into them, and so are predictions. They must be given.
    bounds_X, alpha, and all others : as of ``LogisticRegression``. ``alpha`` is for scaled features and targets.
        Without bounds_X records should have norms of about 1. None: a rate of at most 4; a clip from 0.25 to 1.

    Attributes:
    ----------
    coef_, intercept_, n_features_in_ : the model, (features,) and a number, as records and targets are; public.
    card_, holder_report_, accounts_, odometer_, n_iter_, learning_rate_ : as of ``LogisticRegression``.

    Guarantee: as of ``LogisticRegression``; bounds_y, too, must be chosen without looking at the data.
    Source: theory 4.2, 4.3, 5.1, 5.3.

    Examples:
    --------
    >>> import numpy as np
    >>> x = np.linspace(0, 10, 2000)[:, None]
    >>> model = LinearRegression(epsilon=1.0, bounds_X=(0, 10), bounds_y=(0, 30), n_people=2000, seed=1)
    >>> bool(abs(model.fit(x, 3 * x.ravel()).predict([[5.0]])[0] - 15) < 1)
    True
    """

    bounds_y: tuple[float, float] | None = None

    _loss: ClassVar[type[LogisticGradients]] = SquaredGradients
    _clips, _room, _settled = (0.25, 1.0), 0.02, (0.004, 4.0)  # of targets in [-1, 1]
    _curved = 4.0  # the largest rate for records of norm 1: no slope of the loss changes faster

    @property
    def _most(self) -> float:
        """The largest rate for many parameters, by the largest norm of a record: 2 within bounds_X, else about 1."""
        return self._curved if self.bounds_X is None else self._curved / 4

    def predict(self, X: Features) -> Floats:
        """Predictions (rows,), within bounds_y."""
        return np.asarray(np.clip(self._means(self._scores(X).ravel()), *self._limits))

    def _means(self, scores: Floats) -> Floats:
        return scores

    @property
    def _limits(self) -> tuple[float, float]:
        try:
            low, high = map(float, self.bounds_y)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ArgumentError(f"bounds_y={self.bounds_y!r} must be public bounds: bounds_y=(0, 100)") from None
        _check.each(_check.within, -1e100, 1e100, bounds_y=(low, high))
        if not low < high:
            raise ArgumentError(f"bounds_y={self.bounds_y!r}: the low must be below the high")
        return low, high

    def _check_settings(self) -> None:
        super()._check_settings()
        self._limits  # noqa: B018 - refused before the data are looked at

    def _targets(self, y: Any) -> tuple[Floats, int, Floats | None]:
        given = floats_of(y)
        if not np.isfinite(given).all():
            raise DataError("y must hold finite numbers")
        return self._inside(np.clip(given, *self._limits)), 2, None

    def _inside(self, y: Floats) -> Floats:
        low, high = self._limits
        return (y - (high / 2 + low / 2)) / (high / 2 - low / 2)

    def _set_coefficients(self, found: Floats) -> None:
        super()._set_coefficients(found)
        low, high = self._limits
        half = high / 2 - low / 2
        self.coef_, self.intercept_ = self.coef_[0] * half, float(self.intercept_[0] * half + (high / 2 + low / 2))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PoissonRegressor(LinearRegression):
    """Poisson regression (log link) by private full-batch gradient descent, with an account for every person.

    Parameters
    ----------
    bounds_y : (0, high), public: the largest count that is believed; larger ones are cut to it. It must be given.
    others : as of ``LinearRegression``.

    Attributes:
    ----------
    coef_, intercept_ : the logarithm of the mean is ``X @ coef_ + intercept_``; public.
    card_ and others : as of ``LinearRegression``.

    Guarantee: as of ``LinearRegression``.
    Source: theory 4.2, 4.3, 5.1, 5.3.

    Examples:
    --------
    >>> import numpy as np
    >>> x = np.repeat([[0.0], [1.0]], 10_000, axis=0)
    >>> model = PoissonRegressor(epsilon=1.0, bounds_X=(0, 1), bounds_y=(0, 10), n_people=20_000, seed=1)
    >>> model.fit(x, np.repeat([1, 4], 10_000)).predict([[0.0], [1.0]]).round()
    array([1., 4.])
    """

    _loss: ClassVar[type[LogisticGradients]] = PoissonGradients
    _clips = (0.5, 1.0)

    def _means(self, scores: Floats) -> Floats:
        return np.asarray(np.exp(np.minimum(scores, 700.0)))

    def _check_settings(self) -> None:
        super()._check_settings()
        if self._limits[0] != 0:
            raise ArgumentError(f"bounds_y={self.bounds_y!r} must begin at 0, as counts do: bounds_y=(0, 100)")

    def _inside(self, y: Floats) -> Floats:
        return y / self._limits[1]

    def _set_coefficients(self, found: Floats) -> None:
        super(LinearRegression, self)._set_coefficients(found)
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0] + np.log(self._limits[1]))
