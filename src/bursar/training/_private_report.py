"""The data holder's view of a run: private, and kept apart from the model and its card."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bursar.individual import Losses
from bursar.mechanisms import Mechanism

__all__ = ["Counted", "HolderReport", "Watch"]

MARK = "private: for the data holder"

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
"""The quantiles of people's shares that are kept over time."""

CHECKPOINTS = 100


class HolderReport:
    """How much of each person's budget is used, and how many still take part. PRIVATE: for the data holder.

    Fields (all private):
        shares: (n,) the share of each person's budget that is used, in [0, 1], in the order of the people.
        steps: (m,) the steps after which somebody looked.
        active: (m,) how many people still had budget left after those steps.
        quantiles: (m, 6) quantiles of the shares after those steps, at the levels LEVELS.
    """

    def __init__(self, shares: Any, steps: Any, active: Any, quantiles: Any) -> None:
        self.shares: NDArray[np.float64] = np.asarray(shares, dtype=np.float64)
        self.steps: NDArray[np.int64] = np.asarray(steps, dtype=np.int64)
        self.active: NDArray[np.int64] = np.asarray(active, dtype=np.int64)
        self.quantiles: NDArray[np.float64] = np.asarray(quantiles, dtype=np.float64)

    def __repr__(self) -> str:
        return f"HolderReport({MARK})"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single shares, marked private. Not for publication."""
        return {
            "mark": MARK,
            "people": len(self.shares),
            "steps": self.steps.tolist(),
            "active": self.active.tolist(),
            "levels": list(LEVELS),
            "quantiles": self.quantiles.tolist(),
            "histogram": np.histogram(self.shares, bins=20, range=(0.0, 1.0))[0].tolist(),
        }


class Counted:
    """Accounts, and beside them the counts of everybody's steps from which epsilons are computed; private throughout.

    Args:
        accounts: whatever stands in for them.
        losses: the counts; who is left out of a step contributes nothing to it.
    """

    def __init__(self, accounts: Any, losses: Losses) -> None:
        self._accounts, self._losses = accounts, losses

    def allowance(self, step: Mechanism) -> Any:
        """(n,) that of the accounts."""
        return self._accounts.allowance(step)

    def charge(self, step: Any, norms: Any) -> Any:
        """(n,) bool: who pays, for what is counted."""
        active = self._accounts.charge(step, norms)
        self._losses.record(step, np.where(np.asarray(active), np.asarray(norms, dtype=np.float64), 0.0))
        return active


class Watch:
    """Looks at the accounts now and then during a run, and makes the report; private throughout.

    Args:
        spent: a function that gives what each person has spent, (n,), private, in the measure of the budget.
        budget: what each person may spend, public.
        steps: how many steps there will be, public.
    """

    def __init__(self, spent: Any, budget: float, steps: int) -> None:
        self._spent, self._budget, self._last = spent, budget, steps
        self._every = max(1, steps // CHECKPOINTS)
        self._rows: list[tuple[int, int, NDArray[np.float64]]] = []

    def look(self, step: int) -> None:
        """Note the quantiles, at every so many steps and at the end."""
        if step % self._every and step != self._last:
            return
        shares = self.shares()
        left = int(np.count_nonzero(shares < 1 - 1e-6))
        self._rows.append((step, left, np.quantile(shares, LEVELS)))

    def shares(self) -> NDArray[np.float64]:
        """(n,) the share of the budget that is used, private."""
        return np.clip(np.asarray(self._spent(), dtype=np.float64) / self._budget, 0.0, 1.0)

    def report(self) -> HolderReport:
        """The report so far."""
        steps, active, quantiles = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        return HolderReport(self.shares(), steps, active, quantiles)
