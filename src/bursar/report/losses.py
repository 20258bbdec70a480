"""Pictures of everybody's epsilon, for the data holder (extra ``plots``). They are private: see ``MARK``."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bursar.errors import ArgumentError
from bursar.report.odometers import pyplot

__all__ = ["histogram"]

MARK = "private: for the data holder"


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
