"""Filters by notion: how a budget is written down, and what the filter promises."""

from collections.abc import Sequence
from fractions import Fraction
from math import inf
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from almoner import _check, _notions, mechanisms
from almoner._units import FAILURE, FINE, budget, exact, to_float
from almoner.curves import gaussian, renyi, zcdp
from almoner.errors import ArgumentError
from almoner.filters._filter import Filter


def _either(name: str, value: float | None, epsilon: float | None, delta: float | None) -> None:
    """Reject budgets given both as (epsilon, delta) and in the filter's own measure, or as neither."""
    if (value is None) == (epsilon is None and delta is None) or (epsilon is None) != (delta is None):
        raise ArgumentError(f"give either {name}=, or epsilon= and delta=; for example `epsilon=1.0, delta=1e-5`")
    if value is None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
    else:
        _check.positive(**{name: value})


def _decimal_below(value: float) -> float:
    """The largest float of which neither itself nor the decimal that it shows is above a budget that was computed."""
    return to_float(Fraction(value), per=1, down=True)


class Gaussian(Filter):
    """Gaussian mechanisms only, exactly: admit while the sum of mu squared, the next one included, fits mu squared.

    The measure of ``spent`` and ``left`` is mu squared.

    Args:
        epsilon, delta: public: > 0, and in (0, 1); or mu: public: > 0.

    Guarantee: the whole adaptive interaction is mu-GDP, hence (epsilon, delta)-DP; the bound is tight.
    Source: theory 4.3; Koskela, Tobaben & Honkela (2023), Thm 11; Smith & Thakurta (2022).
    """

    def __init__(self, *, epsilon: float | None = None, delta: float | None = None, mu: float | None = None) -> None:
        _either("mu", mu, epsilon, delta)
        self.mu = _decimal_below(gaussian.mu(epsilon=epsilon, delta=delta)) if mu is None else float(mu)  # type: ignore[arg-type]
        square = exact(self.mu if mu is None else mu) ** 2
        notion = _notions.Gaussian(limit=budget(square, per=FINE), epsilon=epsilon, delta=delta)
        super().__init__(notion, epsilon=epsilon, delta=delta, mu=mu)


class Zcdp(Filter):
    """Admit while the sum of rho, the next one included, fits.

    The measure of ``spent`` and ``left`` is rho.

    Args:
        epsilon, delta: public: > 0, and in (0, 1); or rho: public: > 0.

    Guarantee: the whole adaptive interaction is rho-zCDP, hence (epsilon, delta)-DP.
    Source: theory 4.2 and 3.2; Feldman & Zrnic (2021), Remark 4.4.
    """

    def __init__(self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None) -> None:
        _either("rho", rho, epsilon, delta)
        self.rho = _decimal_below(zcdp.rho(epsilon=epsilon, delta=delta)) if rho is None else float(rho)  # type: ignore[arg-type]
        notion = _notions.Zcdp(limit=budget(self.rho if rho is None else rho, per=FINE), epsilon=epsilon, delta=delta)
        super().__init__(notion, epsilon=epsilon, delta=delta, rho=rho)


class Renyi(Filter):
    """Any mechanism: admit while a mixture over all orders, with weights fixed in advance, still allows it.

    "Go on while *some* order has budget left" is wrong: which order that is depends on the results, and an adversary
    reaches almost twice the delta. The mixture is right, and costs little for Gaussian noise: the default weights admit
    92 to 100 % of what the best single order in hindsight would. For small sample rates the best orders are much lower,
    and the default weights may admit nothing: give a plan.

    Orders and weights are fixed before the first charge. Any mechanism may be charged, whatever the plan. ``spent`` and
    ``left`` are (m + 1,) arrays in nats: at each order, and last the plain sum of the epsilons of pure mechanisms.

    Args:
        epsilon, delta: public: > 0, and in (0, 1).
        orders: public: each > 1; with ``weights``, in place of ``plan``.
        weights: public: each > 0; they are scaled to add up to 1.
        plan: public: the mechanism that will be charged most often, on whose best order the weights are centred; the
            best order for Gaussian noise, if it is not given.
        sum_delta: public: the part of delta for mechanisms that may fail; half if the first mechanism charged may fail,
            else a thousandth, fixed by the first charge, if it is not given.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP.
    Source: theory 4.4 (corrected); docs/proofs/whole-curve-filter.md.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        orders: Sequence[float] | None = None,
        weights: Sequence[float] | None = None,
        plan: mechanisms.Mechanism | None = None,
        sum_delta: float | None = None,
    ) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        if plan is not None:
            if orders is not None or weights is not None:
                raise ArgumentError("give either plan= or orders= and weights=")
            grid, shares = _notions.default_weights(_best_order(plan, epsilon, delta) - 1, share=0.9)
            orders, weights = tuple(map(float, grid)), tuple(map(float, shares))
        grid, shares = _chosen(epsilon, delta, orders, weights)
        self.orders: tuple[float, ...] = tuple(map(float, grid))
        notion = _notions.OrderMixture(
            epsilon=epsilon, delta=delta, sum_delta=sum_delta, orders=self.orders, weights=tuple(map(float, shares))
        )
        super().__init__(notion, epsilon=epsilon, delta=delta, orders=orders, weights=weights, sum_delta=sum_delta)

    def allowed_delta(self) -> float:
        """The delta, rounded up, that what was charged so far may use at epsilon: at most ``delta``. Public.

        Guarantee: if nothing more is charged whatever happens, the interaction is (epsilon, this)-DP.
        Source: theory 4.4.
        """
        return cast(_notions.OrderMixture, self._notion).delta_used(self._totals)


class RenyiOrder(Filter):
    """Admit while the Rényi total at one order fixed in advance, the next one included, fits.

    The measure of ``spent`` and ``left`` is the Rényi divergence at that order.

    Args:
        alpha: public: the order, > 1.
        rho: public: the budget at that order, nats, > 0; or give ``epsilon`` and ``delta``.
        epsilon, delta: public: > 0, and in (0, 1); the largest budget follows from them (theory 3.2).

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
            self.rho = _decimal_below(total)
        else:
            self.rho = float(rho)
        limit = budget(self.rho if rho is None else rho, per=FINE)
        notion = _notions.RenyiOrder(limit=limit, alpha=self.alpha, epsilon=epsilon, delta=delta)
        super().__init__(notion, alpha=alpha, rho=rho, epsilon=epsilon, delta=delta)


class RenyiCurve(Filter):
    """Admit while the Rényi totals, the next one included, fit a target curve at *every* order.

    Args:
        orders: public: each > 1.
        values: public: the budget at each order, nats.

    Guarantee: the whole adaptive interaction has at most this curve in both directions, hence is
    (curves.renyi.epsilon(values, orders, delta=delta), delta)-DP for every delta.
    Source: theory 4.2; Feldman & Zrnic (2021), Thm 4.3 at each order.
    """

    def __init__(self, *, orders: Sequence[float], values: Sequence[float]) -> None:
        curve = mechanisms.Renyi(tuple(orders), tuple(values))
        if inf in curve.values:
            raise ArgumentError(f"values={curve.values!r} must be finite")
        self.orders = curve.orders
        limits = tuple(budget(value, per=FINE) for value in curve.values)
        notion = _notions.RenyiCurve(orders=curve.orders, values=limits)
        super().__init__(notion, orders=curve.orders, values=curve.values)


class Residue(Filter):
    """Pure, approximate, Laplace, bounded-range and sampled Gaussian mechanisms, of which none need be planned.

    The account holds b squared, as the Gaussian filter does. A Gaussian mechanism takes mu squared. Any other round
    takes the least c for which the round and then a Gaussian with b squared - c left are proven to be no easier to
    tell apart than a Gaussian with b squared, at every epsilon. That is close to the variance of its privacy loss
    while its losses are small beside b, and grows as b falls: large rounds are refused where b is small.

    Where a round does not fit but all epsilons so far add up to at most epsilon, it is admitted by basic composition,
    and from then on basic composition is all there is.

    A hundredth of the rest of delta pays for slack. The measure of ``spent`` and ``left`` is b squared; ``spent`` is
    inf once only basic composition is left.

    Args:
        epsilon, delta: public: > 0, and in (0, 1).
        sum_delta: public: as of ``Renyi``.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP. While ``spent`` is finite it is also
    (e, H(e; b_0) + the slack and failures charged)-DP for every other e, where H belongs to the b_0 of the start.
    Source: theory 4.8; docs/proofs/residue-filter.md.

    >>> account = Residue(epsilon=1.0, delta=1e-6)
    >>> account.charge(mechanisms.Repeated(mechanisms.RandomizedResponse(epsilon=0.01), 550))
    >>> account.admits(mechanisms.RandomizedResponse(epsilon=0.01))
    True
    """

    def __init__(self, *, epsilon: float, delta: float, sum_delta: float | None = None) -> None:
        notion = _notions.Residue(epsilon=epsilon, delta=delta, sum_delta=sum_delta)
        super().__init__(notion, epsilon=epsilon, delta=delta, sum_delta=sum_delta)


class Planned(Filter):
    """A plan's rounds are counted down, whatever results decide; every other round is bought at a certified price.

    The account holds planned rounds. A planned round costs one of them, whatever happened before: being adaptive costs
    nothing while the plan is kept. Any other round (other noise, another rate, another mechanism) is bought with
    planned rounds, and what is given too much comes back as change, which pays for the next ones. More noise than
    planned is cheap and less is dear: plan for the least noise that will be used.

    By the proof as many planned rounds fit as if they were fixed in advance. They are counted on a grid of losses,
    whose errors are paid from delta: at least 99 % of them in every plan measured, down to a delta of 1e-14; none below
    1e-20, where it refuses.

    Args:
        plan: public; the mechanism that will be charged most often, or a Composed of several (an epoch): as often as it
            fits. Or [(mechanism, count), ...]: exactly these rounds, in any order, and all that they leave of the
            budget is change, which buys other rounds. Rounds: Gaussian, SampledGaussian, DiscreteGaussian, Laplace,
            Pure, PDP, RandomizedResponse, Approximate, RandomAllocation, SampledRecords, TruncatedGaussian,
            ReplacedGaussian, MixtureOfGaussians, Shuffled, DominatingPair.
        epsilon, delta: public.
        reserve: public, in [0, 1); the share of the planned rounds that is turned into change at the start, for rounds
            that are not planned. They are bought without it too.
        sum_delta: public, in [0, delta); the part of delta for rounds outside the plan that may fail; by default a
            thousandth, out of what pays for slack: planned rounds lose nothing by it.

    The measure of ``spent`` and ``left`` is planned rounds, whole numbers; of a plan with counts, those of all kinds.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP.
    Source: theory 4.11 and 4.12; docs/proofs/planned-filter.md.

    Raises:
        ArgumentError: the plan does not fit once (of one with counts the message says how much does), or reserve or
            sum_delta is out of its range.
        Unsupported: a mechanism of the plan (Zcdp, Renyi, Exponential, BestOf) has no such pair here.

    >>> step = mechanisms.SampledGaussian(sigma=1.0, sample_rate=0.01)
    >>> account = Planned(step, epsilon=2.0, delta=1e-5)
    >>> account.left
    1199
    >>> account.charge(mechanisms.SampledGaussian(sigma=2.0, sample_rate=0.01))
    >>> account.left
    1198
    """

    _OTHER_UNITS = "its change is counted in other units"

    def __init__(
        self,
        plan: mechanisms.Mechanism | Sequence[tuple[mechanisms.Mechanism, int]],
        *,
        epsilon: float,
        delta: float,
        reserve: float = 0.0,
        sum_delta: float | None = None,
    ) -> None:
        once = not isinstance(plan, mechanisms.Mechanism)
        given: Any = {"epsilon": epsilon, "delta": delta, "reserve": reserve, "sum_delta": sum_delta}
        notion = _notions.Planned(plan=one_plan(plan), once=once, **given)
        notion.prices  # noqa: B018  # a plan that does not fit is refused here
        kept = plan if isinstance(plan, mechanisms.Mechanism) else [tuple(part) for part in plan]
        super().__init__(notion, plan=kept, **given)

    def _units(self, _: object) -> dict[str, float]:
        return cast(_notions.Planned, self._notion).prices.units()


class Approximate(Filter):
    """Pure and approximate mechanisms at the rate of advanced composition, without its constants.

    Admit while sqrt(2 log(1/d) V) + V/2 <= epsilon and the deltas add up to at most sum_delta, where V is the sum of
    epsilon squared (of 2 rho for Gaussian and other zCDP mechanisms), the next one included, and d = delta - sum_delta.

    The measure of ``spent`` and ``left`` is V.

    Args:
        epsilon, delta: public: > 0, and in (0, 1).
        sum_delta: public: as of ``Renyi``.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP.
    Source: theory 4.6; Whitehouse, Ramdas, Rogers & Wu (2023), Thm 1. ``Zcdp`` admits more where nothing fails.
    """

    def __init__(self, *, epsilon: float, delta: float, sum_delta: float | None = None) -> None:
        notion = _notions.Approximate(epsilon=epsilon, delta=delta, sum_delta=sum_delta)
        super().__init__(notion, epsilon=epsilon, delta=delta, sum_delta=sum_delta)


class Basic(Filter):
    """Basic composition: epsilons add up, and deltas add up.

    ``spent`` and ``left`` are pairs (epsilon, delta).

    Args:
        epsilon, delta: public: > 0, and in [0, 1); 0 for pure DP.

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
        limit, failures = budget(epsilon, per=FINE), budget(delta, per=FAILURE)
        notion = _notions.Basic(limit=limit, failures=failures, epsilon=epsilon, delta=delta)
        super().__init__(notion, epsilon=epsilon, delta=delta)


def one_plan(plan: object) -> mechanisms.Mechanism:
    """A plan as one mechanism, whatever its form."""
    if isinstance(plan, mechanisms.Mechanism):
        return plan
    parts = [tuple(part) for part in plan if isinstance(part, list | tuple)] if isinstance(plan, list | tuple) else []
    if not parts or len(parts) < len(cast(Sequence[object], plan)) or any(len(part) != 2 for part in parts):
        raise ArgumentError(f"plan={plan!r} must be a mechanism, or a list like [(mechanism, 20), (another, 13)]")
    for part, count in parts:
        if not isinstance(part, mechanisms.Mechanism):
            raise ArgumentError(f"plan: {part!r} must be a mechanism")
        _check.whole(1, count=count)
    return mechanisms.Composed(tuple(mechanisms.Repeated(part, count) for part, count in parts))


def _best_order(plan: mechanisms.Mechanism, epsilon: float, delta: float) -> float:
    """The order that alone admits the most rounds of a plan: searched for in ever smaller steps."""
    lam = np.geomspace(0.3, 3000, 80)
    orders = 1 + np.where(lam > 15, np.round(lam), lam)
    known: dict[int, float] = {}
    best, step = 0, 8
    places = range(0, 80, step)
    while step:
        fresh = [place for place in places if 0 <= place < 80 and place not in known]
        prices = np.maximum(renyi.values(plan, orders[fresh]), 1e-300) if fresh else ()
        for place, price in zip(fresh, prices, strict=True):
            known[place] = renyi.budget(float(orders[place]), epsilon=epsilon, delta=delta) / float(price)
        best, step = max(known, key=lambda place: known[place]), step // 2
        places = range(best - step, best + step + 1, max(step, 1))
    return float(orders[best])


def _chosen(
    epsilon: float, delta: float, orders: Sequence[float] | None, weights: Sequence[float] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if (orders is None) != (weights is None):
        raise ArgumentError("give both orders= and weights=, or neither")
    if orders is None or weights is None:
        return _notions.default_weights(zcdp.best_order(zcdp.rho(epsilon=epsilon, delta=delta), delta=delta) - 1)
    grid, shares = _check.floats(orders=orders), _check.floats(weights=weights)
    if grid.ndim != 1 or grid.shape != shares.shape or not grid.size:
        raise ArgumentError(f"orders={orders!r} and weights={weights!r} must be equally long lists")
    if not np.all((grid > 1) & (grid < inf)) or not np.all((shares > 0) & (shares < inf)):
        raise ArgumentError(f"orders={orders!r} must be finite and > 1, weights={weights!r} finite and > 0")
    return grid, shares / shares.sum() * (1 - 1e-15)
