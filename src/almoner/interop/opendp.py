"""Charge measurements of OpenDP to a filter of ours, each before it runs (extra ``opendp``).

What a measurement costs is what its own privacy map says at ``d_in``. A charge costs the same however many came before.

    output measure                          mechanism
    MaxDivergence                           Pure
    Approximate(MaxDivergence)              Approximate
    SmoothedMaxDivergence                   Approximate, read off the profile at a delta that you give
    ZeroConcentratedDivergence              Zcdp
    Approximate(ZeroConcentratedDivergence) Zcdp, and Approximate(0, delta) for what may fail
    RenyiDivergence                         Renyi, read off the curve at the orders that you give
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf, nextafter
from typing import Any

from almoner import _check, _extras, filters, mechanisms
from almoner._uncopyable import Uncopyable
from almoner.errors import ArgumentError, Unsupported

__all__ = ["Filtered", "mechanism"]

ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 128.0, 256.0)
"""Orders at which a Rényi curve is read where none are given."""
_KEPT = 1024


def mechanism(
    measurement: Any, d_in: Any, *, delta: float | None = None, orders: Sequence[float] = ORDERS
) -> mechanisms.Mechanism:
    """The mechanism that stands for what a measurement costs, by its own privacy map.

    Args:
        measurement: public, of OpenDP; not interactive.
        d_in: public. How far the data of neighbours are apart at most, in the measurement's input metric: for adding or
            removing one person, with all of that person's records.
        delta: public, in (0, 1): where a profile (SmoothedMaxDivergence) is read.
        orders: public, above 1, increasing: where a curve (RenyiDivergence) is read.

    Raises:
        Unsupported: the output measure has no mechanism here; the message names it.
        ArgumentError: the map gives what is no cost: NaN, infinite, or below zero.

    Guarantee: the measurement costs at most what the mechanism costs, if its privacy map is right.
    Source: the privacy maps of OpenDP; Bun & Steinke (2016), Definition 8.1, for approximate zCDP: with probability
        1 - delta the output is one of a rho-zCDP mechanism, so it is no worse than that and an independent failure.
    """
    _refuse_other(measurement)
    # by its type: a measure of the user's own may be called like another
    measure, cost = str(measurement.output_measure.type), measurement.map(d_in)
    if measure == "MaxDivergence":
        return mechanisms.Pure(_amount("epsilon", cost))
    if measure == "ZeroConcentratedDivergence":
        return mechanisms.Zcdp(_amount("rho", cost))
    if measure == "Approximate<MaxDivergence>":
        return _approximate(*cost)
    if measure == "Approximate<ZeroConcentratedDivergence>":
        rho, failure = _amount("rho", cost[0]), _amount("delta", cost[1])
        whole = mechanisms.Zcdp(rho)
        return mechanisms.Composed((whole, mechanisms.Approximate(0.0, failure))) if failure else whole
    if measure == "SmoothedMaxDivergence":
        if delta is None:
            raise Unsupported("SmoothedMaxDivergence is a profile: give delta=, where it is read")
        _check.between(0, 1, delta=delta)
        return _approximate(cost.epsilon(delta), delta)
    if measure == "RenyiDivergence":
        read = tuple(orders)
        return mechanisms.Renyi(read, tuple(_amount("value", cost(order)) for order in read))
    raise Unsupported(f"output measure {measure} has no mechanism in Almoner")


def _refuse_other(measurement: object) -> None:
    with _extras.need("opendp", extra="opendp"):
        from opendp.mod import Measurement
    if not isinstance(measurement, Measurement):
        raise ArgumentError(f"measurement must be a Measurement of OpenDP, not {type(measurement).__name__}")


def _approximate(epsilon: Any, delta: Any) -> mechanisms.Mechanism:
    epsilon, delta = _amount("epsilon", epsilon), _amount("delta", delta)
    return mechanisms.Pure(epsilon) if delta == 0 else mechanisms.Approximate(epsilon, delta)


def _amount(name: str, value: Any) -> float:
    """A cost as OpenDP gives it, which is rounded up already; rounded up again where it is no float."""
    number = float(value)
    if not 0 <= number < inf:
        raise ArgumentError(f"measurement: its map gives {name}={number!r}, which is no cost")
    return number if Fraction(number) >= Fraction(value) else nextafter(number, inf)


class Filtered(Uncopyable):
    """Data of which measurements of OpenDP are released, each charged to a filter before it runs.

    Args:
        budget: public. A fresh filter, or one in use; it is charged itself. ``filters.Basic``, ``Zcdp``, ``Renyi``,
            ``RenyiOrder``, ``Residue`` and ``Approximate`` take measurements of OpenDP; ``filters.Gaussian`` takes
            none, because no output measure of OpenDP says that noise is Gaussian.
        data: private, as the measurements take it.
        d_in: public. How far neighbours' data are apart at most, in the metric; see ``mechanism``.
        domain, metric: public, of OpenDP: of the data. A measurement with another domain or metric is refused, because
            d_in means something else there.
        delta, orders: public; see ``mechanism``.

    Guarantee: all that this object ever releases is together as private as the budget promises, however measurements
        are chosen from earlier results, if their privacy maps are right.
    Source: theory 4.1 to 4.8, of the filter; Rogers et al. (2016).
    """

    def __init__(
        self,
        budget: filters.Filter,
        data: Any,
        *,
        d_in: Any,
        domain: Any,
        metric: Any,
        delta: float | None = None,
        orders: Sequence[float] = ORDERS,
    ) -> None:
        with _extras.need("opendp", extra="opendp"):
            from opendp._convert import py_to_c
            from opendp._lib import AnyObjectPtr
            from opendp.core import measurement_invoke
            from opendp.mod import OdometerQueryable, Queryable
        if not isinstance(budget, filters.Filter):
            raise ArgumentError(f"budget={budget!r} must be a filter")
        self._queryable = (Queryable, OdometerQueryable)
        self._invoke: Callable[[Any, Any], Any] = measurement_invoke
        self._budget, self._d_in = budget, d_in
        self._space = (str(domain), str(metric))
        self._delta, self._orders = delta, tuple(orders)
        # converted once: a list of a million numbers costs more than its noise
        self._data = py_to_c(data, c_type=AnyObjectPtr, type_name=domain.carrier_type)
        self._prices: dict[int, tuple[Any, mechanisms.Mechanism]] = {}

    def __repr__(self) -> str:
        return f"opendp.Filtered({self._budget!r})"

    @property
    def budget(self) -> filters.Filter:
        """The filter that is charged. Public."""
        return self._budget

    def __call__(self, measurement: Any) -> Any:
        """Charge a measurement, then run it.

        Raises:
            BudgetExceeded: it does not fit. Nothing is spent, and nothing was run.
            Unsupported, ArgumentError: it has no cost here, another domain or metric, or is interactive.
        """
        self._budget.charge(self._price(measurement))
        answer = self._invoke(measurement, self._data)
        if self._interactive(answer):  # it would be asked again, without a charge
            raise Unsupported("measurement: interactive ones are not released; charge what they are made of")
        return answer

    def admits(self, measurement: Any) -> bool:
        """True if a measurement fits into what is left. Asking changes nothing."""
        return self._budget.admits(self._price(measurement))

    def _price(self, measurement: Any) -> mechanisms.Mechanism:
        """The mechanism of a measurement; read once for each object, which never changes."""
        known = self._prices.get(id(measurement))
        if known is not None and known[0] is measurement:
            return known[1]
        _refuse_other(measurement)
        space = (str(measurement.input_domain), str(measurement.input_metric))
        if space != self._space:
            raise ArgumentError(f"measurement: its domain and metric are {space}, those of the data are {self._space}")
        price = mechanism(measurement, self._d_in, delta=self._delta, orders=self._orders)
        if len(self._prices) >= _KEPT:
            self._prices.clear()
        self._prices[id(measurement)] = (measurement, price)
        return price

    def _interactive(self, answer: Any) -> bool:
        if isinstance(answer, list | tuple | dict):
            return any(map(self._interactive, answer.values() if isinstance(answer, dict) else answer))
        return isinstance(answer, self._queryable)
