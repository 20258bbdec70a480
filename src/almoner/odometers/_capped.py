"""Make a filter from an odometer: stop at a target while keeping the running bound.

Source: theory 6.1 D; Lécuyer (2021), https://arxiv.org/abs/2103.01379, section 4 (early stopping)
"""

from dataclasses import dataclass
from threading import Lock
from typing import Any, Self

from almoner import _check, mechanisms
from almoner._search import last_whole
from almoner._uncopyable import Uncopyable
from almoner.curves import zcdp
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.odometers._odometer import Odometer
from almoner.odometers._renyi import Renyi


@dataclass(frozen=True, slots=True)
class Rounds:
    """Price of the running bound, in rounds of one mechanism. Every field is public."""

    capped: int  # rounds that the odometer with a cap admits, from the start
    tuned: int  # rounds that the same rule admits with its weights tuned to the target alone (``filters.Renyi``)


class Capped(Uncopyable):
    """Refuses like a filter, reads like an odometer.

    Promises: whenever and why ever one stops, the interaction is (epsilon, delta)-DP, with the delta of the odometer,
    and each of the two promises of the odometer holds, with the same delta.

    The price: an odometer's weights serve all times, a filter's serve the target. ``price`` says what that costs.

    Args:
        odometer: a fresh odometer with an ex-post promise; it belongs to this object from then on.
        epsilon: the target, > 0.

    >>> from almoner import odometers
    >>> account = Capped(odometers.Renyi(delta=1e-6), epsilon=1.0)
    >>> step = mechanisms.Gaussian(sigma=50.0)
    >>> while account.admits(step):
    ...     account.charge(step)
    >>> account.count, round(account.ex_post_epsilon(), 3)
    (96, 0.998)
    >>> account.price(step)
    Rounds(capped=96, tuned=120)

    Guarantee: the interaction is (epsilon, delta)-DP at every stopping time.
    Source: theory 6.1 D.
    """

    def __init__(self, odometer: Odometer, *, epsilon: float) -> None:
        if not isinstance(odometer, Odometer):
            raise ArgumentError(f"odometer={odometer!r} must be an odometer with an ex-post promise")
        if odometer.count:
            raise ArgumentError("odometer must be fresh: the cap is fixed before the first charge")
        if not odometer.notion.known_in_advance:
            why = "so that its bound is known before the first charge"
            raise ArgumentError(f"odometer: give Stitched its start=, {why}")
        _check.positive(epsilon=epsilon)
        self._odometer, self._epsilon, self._lock = odometer, epsilon, Lock()

    @property
    def target(self) -> float:
        """The epsilon that is never exceeded. Public."""
        return self._epsilon

    @property
    def delta(self) -> float:
        """The failure probability. Public."""
        return self._odometer.delta

    @property
    def count(self) -> int:
        """Number of rounds charged. Public."""
        return self._odometer.count

    def admits(self, mechanism: mechanisms.Mechanism) -> bool:
        """True if the bound would still be at most the target. Asking changes nothing."""
        return self._odometer.ex_post_epsilon(after=mechanism) <= self._epsilon

    def charge(self, mechanism: mechanisms.Mechanism) -> None:
        """Count a mechanism, before it is run.

        Raises:
            BudgetExceeded: the bound would exceed the target. Nothing is counted; something cheaper may still fit.
            Unsupported: no theorem gives this mechanism a cost here. Nothing is counted.
        """
        with self._lock:
            after = self._odometer.ex_post_epsilon(after=mechanism)
            if not after <= self._epsilon:
                spent = self.ex_post_epsilon()
                words = f"{mechanism!r} does not fit: the bound would be {after!r}, above epsilon={self._epsilon!r}"
                raise BudgetExceeded(words, asked=after, spent=spent, left=max(0.0, self._epsilon - spent))
            self._odometer.charge(mechanism)

    def epsilon(self, *, delta: float | None = None) -> float:
        """The pathwise bound now, as the odometer gives it; it may be above the target, which is an ex-post one."""
        return self._odometer.epsilon(delta=delta)

    def ex_post_epsilon(self, *, delta: float | None = None) -> float:
        """The ex-post bound now, as the odometer gives it; never above the target."""
        return self._odometer.ex_post_epsilon(delta=delta)

    def price(self, mechanism: mechanisms.Mechanism) -> Rounds:
        """Price the running bound in rounds admitted from the start, with the cap and with tuned weights."""
        plan, share = 2 * zcdp.rho(epsilon=self._epsilon, delta=self.delta), self._odometer.notion.sum_delta
        return Rounds(
            _most(self._odometer.fresh(), mechanism, self._epsilon),
            _most(Renyi(delta=self.delta, plan=plan, sum_delta=share), mechanism, self._epsilon),
        )

    def fresh(self) -> Self:
        """Return a cap with this target over a fresh odometer: another budget, for another interaction."""
        return type(self)(self._odometer.fresh(), epsilon=self._epsilon)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, as plain numbers and lists. Restore it once only."""
        return {"target": self._epsilon, "odometer": self._odometer.state()}

    @classmethod
    def from_state(cls, state: dict[str, Any], kind: type[Odometer] = Renyi) -> Self:
        """Restore an account that ``state()`` described, to the last unit; ``kind`` is the odometer's class."""
        account = cls(kind.from_state(state["odometer"]).fresh(), epsilon=state["target"])
        account._odometer = kind.from_state(state["odometer"])
        if not account.ex_post_epsilon() <= account.target:
            raise ArgumentError("state: what was spent must not be above the target")
        return account

    def __repr__(self) -> str:
        return f"Capped({self._odometer!r}, epsilon={self._epsilon!r})"


def _most(odometer: Odometer, mechanism: mechanisms.Mechanism, epsilon: float) -> int:
    """The largest number of rounds whose bound is at most epsilon."""

    def holds(count: int) -> bool:
        return odometer.ex_post_epsilon(after=mechanisms.Repeated(mechanism, count)) <= epsilon

    return last_whole(holds, 0, 2**40)
