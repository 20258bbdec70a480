"""Filters whose boundary is a plain comparison of sums."""

from collections.abc import Sequence
from fractions import Fraction
from math import inf

import numpy as np
from numpy.typing import NDArray

from bursar import _check, mechanisms
from bursar._units import FAILURE, Units, budget, exact, to_float, up
from bursar.curves import approximate, gaussian, renyi, zcdp
from bursar.errors import ArgumentError
from bursar.filters._account import Filter, WithFailures, refuse_failures

__all__ = ["Approximate", "Basic", "Gaussian", "Pure", "RenyiCurve", "RenyiOrder", "Zcdp"]


class _Scalar(Filter):
    """One total."""

    @property
    def spent(self) -> float:
        """What was spent, in the filter's own measure, rounded up. Public."""
        return to_float(self._spent[0])

    @property
    def left(self) -> float:
        """What is left, in the filter's own measure, rounded down. Public."""
        return to_float(self._budget[0] - self._spent[0], down=True)

    def _shown(self, totals: tuple[Units, ...]) -> float:
        return to_float(totals[0])


def _either(name: str, value: float | None, epsilon: float | None, delta: float | None) -> None:
    """A budget is given as (epsilon, delta) or in the filter's own measure, not both."""
    if (value is None) == (epsilon is None and delta is None) or (epsilon is None) != (delta is None):
        raise ArgumentError(f"give either epsilon= and delta=, or {name}=")
    if value is None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
    else:
        _check.positive(**{name: value})


class Gaussian(_Scalar):
    """Gaussian mechanisms only, exactly: admit while the sum of mu squared, the next one included, fits mu squared.

    Args (keyword-only, public): epsilon and delta; or mu. The measure of ``spent`` and ``left`` is mu squared.

    Guarantee: the whole adaptive interaction is mu-GDP, hence (epsilon, delta)-DP; the bound is tight.
    Source: theory 4.3; Koskela, Tobaben & Honkela (2023), Thm 11; Smith & Thakurta (2022).
    """

    def __init__(self, *, epsilon: float | None = None, delta: float | None = None, mu: float | None = None) -> None:
        _either("mu", mu, epsilon, delta)
        if mu is None:
            self.mu = gaussian.mu(epsilon=epsilon, delta=delta)  # type: ignore[arg-type]
            square = Fraction(self.mu) ** 2
        else:
            self.mu = float(mu)
            square = exact(mu) ** 2
        super().__init__((budget(square),), epsilon=epsilon, delta=delta, mu=mu)

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        return self._composite(mechanism) or (up(gaussian.cost(mechanism)),)


class Zcdp(_Scalar):
    """Admit while the sum of rho, the next one included, fits.

    Args (keyword-only, public): epsilon and delta; or rho. The measure of ``spent`` and ``left`` is rho.

    Guarantee: the whole adaptive interaction is rho-zCDP, hence (epsilon, delta)-DP.
    Source: theory 4.2 and 3.2; Feldman & Zrnic (2021), Remark 4.4.
    """

    def __init__(self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None) -> None:
        _either("rho", rho, epsilon, delta)
        if rho is None:
            self.rho = zcdp.rho(epsilon=epsilon, delta=delta)  # type: ignore[arg-type]
            total = Fraction(self.rho)
        else:
            self.rho = float(rho)
            total = exact(rho)
        super().__init__((budget(total),), epsilon=epsilon, delta=delta, rho=rho)

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        refuse_failures(mechanism, renyi.failure(mechanism), "Zcdp")
        return self._composite(mechanism) or (up(zcdp.cost(mechanism)),)


class RenyiCurve(Filter):
    """Admit while the Rényi totals, the next one included, fit a target curve at *every* order.

    Args (keyword-only, public): orders, each > 1; values, the budget at each, nats.

    Guarantee: the whole adaptive interaction has at most this curve in both directions, hence is
    (curves.renyi.epsilon(values, orders, delta=delta), delta)-DP for every delta.
    Source: theory 4.2; Feldman & Zrnic (2021), Thm 4.3 at each order.
    """

    def __init__(self, *, orders: Sequence[float], values: Sequence[float]) -> None:
        curve = mechanisms.Renyi(tuple(orders), tuple(values))
        if inf in curve.values:
            raise ArgumentError(f"values={curve.values!r} must be finite")
        self.orders = curve.orders
        super().__init__(tuple(budget(value) for value in curve.values), orders=curve.orders, values=curve.values)

    @property
    def spent(self) -> NDArray[np.float64]:
        """(m,) the Rényi totals at each order, nats, rounded up. Public."""
        return self._shown(self._spent)

    @property
    def left(self) -> NDArray[np.float64]:
        """(m,) what is left at each order, nats, rounded down. Public."""
        return np.array([to_float(b - s, down=True) for b, s in zip(self._budget, self._spent, strict=True)])

    def _shown(self, totals: tuple[Units, ...]) -> NDArray[np.float64]:
        return np.array([to_float(total) for total in totals])

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        refuse_failures(mechanism, renyi.failure(mechanism), type(self).__name__)
        return self._composite(mechanism) or tuple(up(renyi.cost(mechanism, order)) for order in self.orders)


class RenyiOrder(_Scalar):
    """Admit while the Rényi total at one order fixed in advance, the next one included, fits.

    Args (keyword-only, public): alpha, the order, > 1; and rho, the budget at that order in nats; or epsilon and
    delta, from which the largest budget follows (theory 3.2). The measure of ``spent`` and ``left`` is the Rényi
    divergence at that order.

    Guarantee: the whole adaptive interaction is (alpha, rho)-RDP in both directions, hence
    (curves.renyi.epsilon([rho], [alpha], delta=delta), delta)-DP for every delta.
    Source: theory 4.1; Feldman & Zrnic (2021), Thm 4.3; Lécuyer (2021), Thm 1.
    """

    def __init__(
        self, *, alpha: float, rho: float | None = None, epsilon: float | None = None, delta: float | None = None
    ) -> None:
        _check.between(1, inf, alpha=alpha)
        _either("rho", rho, epsilon, delta)
        self.alpha = float(alpha)
        if rho is None:
            total = renyi.budget(self.alpha, epsilon=epsilon, delta=delta)  # type: ignore[arg-type]
            if total <= 0:
                raise ArgumentError(f"alpha={alpha!r} leaves no budget at epsilon={epsilon!r}, delta={delta!r}")
            self.rho = total
            units = budget(Fraction(total))
        else:
            self.rho = float(rho)
            units = budget(rho)
        super().__init__((units,), alpha=alpha, rho=rho, epsilon=epsilon, delta=delta)

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        refuse_failures(mechanism, renyi.failure(mechanism), "RenyiOrder")
        return self._composite(mechanism) or (up(renyi.cost(mechanism, self.alpha)),)


class Approximate(WithFailures):
    """Pure and approximate mechanisms at the rate of advanced composition, without its constants.

    Admit while sqrt(2 log(1/d) V) + V/2 <= epsilon and the deltas add up to at most sum_delta, where V is the sum of
    epsilon squared (of 2 rho for Gaussian and other zCDP mechanisms), the next one included, and d = delta - sum_delta.

    Args (keyword-only, public): epsilon; delta; sum_delta, the part of delta for mechanisms that may fail (default:
    half if the first mechanism charged may fail, otherwise nothing; fixed from the first charge on). The measure of
    ``spent`` and ``left`` is V.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP.
    Source: theory 4.6; Whitehouse, Ramdas, Rogers & Wu (2023), Thm 1. ``Zcdp`` admits more where nothing fails.
    """

    def __init__(self, *, epsilon: float, delta: float, sum_delta: float | None = None) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        super().__init__((0, 0), epsilon=epsilon, delta=delta, sum_delta=sum_delta)

    @property
    def spent(self) -> float:
        """V, the sum of epsilon squared, rounded up. Public."""
        return to_float(self._spent[0])

    @property
    def left(self) -> float:
        """What is left of V, rounded down. Public."""
        share = exact(self._parameters["delta"]) - self._set_aside(self._spent)
        return to_float(max(0, self._most(share) - self._spent[0]), down=True)

    def _shown(self, totals: tuple[Units, ...]) -> float:
        return to_float(totals[0])

    def _most(self, delta: Fraction) -> int:
        """Units of the largest V admitted: 2 (sqrt(ell + epsilon) - sqrt(ell))**2, rounded down."""
        below = to_float(delta, per=1, down=True)
        return budget(2 * Fraction(zcdp.mironov(epsilon=self._parameters["epsilon"], delta=below)))

    def _holds(self, totals: tuple[Units, ...], delta: Fraction) -> bool:
        return totals[0] <= self._most(delta)

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        composite = self._composite(mechanism)
        if composite:
            return composite
        failure = renyi.failure(mechanism)
        rest = mechanisms.Pure(mechanism.epsilon) if isinstance(mechanism, mechanisms.Approximate) else mechanism
        return up(2 * zcdp.cost(rest)), up(failure, per=FAILURE)


class Pure(_Scalar):
    """Pure mechanisms only, by Feldman & Zrnic's theorem as printed: half the sum of epsilon squared fits rho.

    Args (keyword-only, public): epsilon; delta. The measure of ``spent`` and ``left`` is rho = epsilon squared / 2.
    ``Zcdp`` admits more of the same mechanisms; this one is for comparison with the paper.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP.
    Source: theory 4.7; Feldman & Zrnic (2021), Thm 4.7.
    """

    def __init__(self, *, epsilon: float, delta: float) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        super().__init__((budget(Fraction(zcdp.mironov(epsilon=epsilon, delta=delta))),), epsilon=epsilon, delta=delta)

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        refuse_failures(mechanism, renyi.failure(mechanism), "Pure")
        return self._composite(mechanism) or (up(approximate.cost(mechanism)[0] ** 2 / 2),)


class Basic(Filter):
    """Basic composition: epsilons add up, and deltas add up.

    Args (keyword-only, public): epsilon; delta, 0 for pure DP. ``spent`` and ``left`` are pairs (epsilon, delta).

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP.
    Source: Rogers, Roth, Ullman & Vadhan (2016), section 3; theory 4.5.

    >>> budget = Basic(epsilon=1.0)
    >>> for _ in range(10):
    ...     budget.charge(mechanisms.Pure(0.1))
    >>> budget.left
    (0.0, 0.0)
    """

    def __init__(self, *, epsilon: float, delta: float = 0.0) -> None:
        _check.positive(epsilon=epsilon)
        _check.within(0, 1, delta=delta)
        super().__init__((budget(epsilon), budget(delta, per=FAILURE)), epsilon=epsilon, delta=delta)

    @property
    def spent(self) -> tuple[float, float]:
        """(epsilon, delta) spent, rounded up. Public."""
        return self._shown(self._spent)

    @property
    def left(self) -> tuple[float, float]:
        """(epsilon, delta) left, rounded down. Public."""
        epsilon, delta = (most - spent for most, spent in zip(self._budget, self._spent, strict=True))
        return to_float(epsilon, down=True), to_float(delta, per=FAILURE, down=True)

    def _shown(self, totals: tuple[Units, ...]) -> tuple[float, float]:
        return to_float(totals[0]), to_float(totals[1], per=FAILURE)

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        composite = self._composite(mechanism)
        if composite:
            return composite
        epsilon, delta = approximate.cost(mechanism)
        return up(epsilon), up(delta, per=FAILURE)
