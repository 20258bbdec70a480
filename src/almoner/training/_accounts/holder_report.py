"""The data holder's report on a run: private, and kept apart from the model and its card."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner._private import LEVELS, MARK

__all__ = ["HolderReport", "ShareHistory"]

LOOKS = 100  # a report shows people's shares at about this many moments of the run
USED_UP = 1 - 1e-6  # from this share on a budget counts as used up


class HolderReport:
    """The used part of each person's budget, and how many people still take part. PRIVATE: for the data holder.

    Fields (all private):
        shares: (n,) the share of each person's budget that is used, in [0, 1], in the order of the people.
        steps: (m,) the steps after which the accounts were looked at.
        active: (m,) how many people still had budget left after those steps.
        quantiles: (m, 6) quantiles of the shares after those steps, at the levels 5, 25, 50, 75, 95 and 100 %.
    """

    def __init__(self, shares: ArrayLike, steps: ArrayLike, active: ArrayLike, quantiles: ArrayLike) -> None:
        self.shares: NDArray[np.float64] = np.asarray(shares, dtype=np.float64)
        self.steps: NDArray[np.int64] = np.asarray(steps, dtype=np.int64)
        self.active: NDArray[np.int64] = np.asarray(active, dtype=np.int64)
        self.quantiles: NDArray[np.float64] = np.asarray(quantiles, dtype=np.float64)

    def __repr__(self) -> str:
        return f"HolderReport({MARK})"

    def to_dict(self) -> dict[str, Any]:
        """All fields but the shares of single people, marked private. Not for publication."""
        return {
            "mark": MARK,
            "people": len(self.shares),
            "steps": self.steps.tolist(),
            "active": self.active.tolist(),
            "levels": list(LEVELS),
            "quantiles": self.quantiles.tolist(),
            "histogram": np.histogram(self.shares, bins=20, range=(0.0, 1.0))[0].tolist(),
        }


class ShareHistory:
    """Shares of budgets that are used, over so many steps, from each person's, ``spent``, (n,); private."""

    def __init__(self, spent: Callable[[], ArrayLike], steps: int) -> None:
        self._spent, self._last_step = spent, steps
        self._every = max(1, steps // LOOKS)
        self._rows: list[tuple[int, int, NDArray[np.float64]]] = []

    def add(self, step: int) -> None:
        """Keep the quantiles after this step, if it is one of the moments that the report shows."""
        if step % self._every and step != self._last_step:
            return
        shares = self.shares()
        self._rows.append((step, int(np.count_nonzero(shares < USED_UP)), np.quantile(shares, LEVELS)))

    def shares(self) -> NDArray[np.float64]:
        """(n,) the share of each person's budget that is used, private."""
        return np.clip(np.asarray(self._spent(), dtype=np.float64), 0.0, 1.0)

    def report(self) -> HolderReport:
        steps, active, quantiles = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        return HolderReport(self.shares(), steps, active, quantiles)
