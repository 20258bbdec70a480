"""Everybody's epsilon by several accountings, side by side, and its picture (extra ``plots``); for the data holder.

All of it is private, and marked so. It is for noise, rates and norms fixed in advance (theory 7.3).
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bursar import individual
from bursar._private import MARK
from bursar.curves import gaussian, renyi
from bursar.errors import ArgumentError
from bursar.report.odometers import pyplot

__all__ = ["histogram", "side_by_side"]


def side_by_side(
    counts: NDArray[np.integer],
    noise: ArrayLike,
    /,
    *,
    sample_rate: float,
    delta: float,
    dominating: bool = False,
    points: int = 200,
) -> dict[str, NDArray[np.float64]]:
    """Everybody's epsilon by privacy loss distributions, by Rényi DP, and by the Gaussian that dominates.

    Args:
        counts: (n, j) whole numbers >= 0, private: steps of each person in each bucket.
        noise: (j,) public: the relative noise of each bucket.
        sample_rate: public, in (0, 1].
        delta: public, in (0, 1).
        dominating: with the Gaussian, which takes about a second for thirty people with different counts. A tenth of
            delta is its slack (see ``individual.dominating_mu``).
        points: public; how finely the Gaussian is fitted.

    Returns:
        Name of the accounting -> (n,) epsilons, private, upper bounds.

    Guarantee: for rounds fixed in advance each is a bound on everybody's epsilon; under adaptivity none.
    Source: theory 7.1 to 7.4, 3.2, 3.3; Koskela, Tobaben & Honkela (2023), figure 1.
    """
    table = np.asarray(counts)
    found = {"privacy loss distributions": individual.losses(table, noise, sample_rate=sample_rate, delta=delta)}
    costs = renyi.sampled_gaussian(sample_rate, np.asarray(noise, np.float64), renyi.ORDERS)
    rdp = renyi.epsilon(table @ costs, renyi.ORDERS, delta=delta)
    found["Rényi"] = np.where(table.any(axis=1), rdp, 0.0)
    if dominating:
        rows, which = np.unique(table, axis=0, return_inverse=True)
        slack = delta / 10
        mu = individual.dominating_mu(rows, noise, sample_rate=sample_rate, slack=slack, points=points)
        rest = (delta - slack) / (1 - slack) * (1 - 1e-12)
        finite = np.where(np.isfinite(mu), mu, 1.0)
        epsilon = np.where(np.isfinite(mu), gaussian.epsilon(finite, delta=rest), np.inf)
        found["Gaussian"] = epsilon[which.ravel()]
    return found


def histogram(
    epsilons: dict[str, ArrayLike], path: str | Path, *, groups: ArrayLike | None = None, title: str = ""
) -> None:
    """Draw histograms of everybody's epsilon, one panel for each way of accounting, on one scale.

    Args:
        epsilons: name of the accounting -> (n,) epsilons, private; infinite ones are counted in the panel's title.
        path: where to save; the ending says the format (png, svg, pdf).
        groups: (n,) private; a colour for each group.
        title: public, above the picture.
    """
    columns = {name: np.asarray(values, np.float64) for name, values in epsilons.items()}
    sizes = {values.shape for values in columns.values()}
    labels = None if groups is None else np.asarray(groups)
    if len(sizes | ({labels.shape} if labels is not None else set())) != 1 or len(next(iter(sizes))) != 1:
        raise ArgumentError("epsilons and groups must all have one entry for each person")
    finite = np.concatenate([values[np.isfinite(values)] for values in columns.values()])
    if not finite.size:
        raise ArgumentError("epsilons must hold at least one finite number")
    edges = np.linspace(0.0, float(finite.max()) * (1 + 1e-9) or 1.0, 41)
    plots = pyplot()
    figure, axes = plots.subplots(
        len(columns), 1, figsize=(8, 1 + 2.2 * len(columns)), sharex=True, squeeze=False, layout="constrained"
    )
    for panel, (name, values) in zip(axes[:, 0], columns.items(), strict=True):
        _panel(panel, values, labels, edges)
        lost = int(np.sum(~np.isfinite(values)))
        panel.set_title(name if not lost else f"{name} ({lost} without a bound)")
        panel.set_ylabel("people")
    axes[-1, 0].set_xlabel("epsilon")
    figure.suptitle(f"{title}\n{MARK}" if title else MARK)
    figure.savefig(path, dpi=130)
    plots.close(figure)


def _panel(panel: Any, values: Any, labels: Any, edges: Any) -> None:
    if labels is None:
        panel.hist(values[np.isfinite(values)], bins=edges)
        return
    names = np.unique(labels)
    each = [values[(labels == name) & np.isfinite(values)] for name in names]
    panel.hist(each, bins=edges, stacked=True, label=[str(name) for name in names])
    panel.legend(frameon=False)
