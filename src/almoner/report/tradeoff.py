"""Draw trade-off functions and hockey-stick curves (extra ``plots``). Everything shown is public."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from almoner.curves.tradeoff import Curve
from almoner.errors import ArgumentError
from almoner.report.figures import INK, figure, save, styled

__all__ = ["draw"]


@styled()
def draw(curves: Mapping[str, Curve], path: str | Path, *, title: str = "") -> None:
    """Draw curves side by side: the error rates of the best attack, and delta against epsilon, and save the picture.

    Left, every attack lies on or above each line (the dashed line is guessing); right, (epsilon, delta)-DP holds on and
    above each line.

    Args:
        curves: public; name -> curve.
        path: where to save; the ending says the format (png, svg, pdf).
        title: public, above the picture.
    """
    if not curves:
        raise ArgumentError("curves must hold at least one curve")
    picture = figure(10, 4.5)
    left, right = picture.subplots(1, 2)
    alpha = np.linspace(0.0, 1.0, 400)
    end = max(curve.epsilons[-1] for curve in curves.values()) or 1.0
    epsilon = np.linspace(0.0, end, 400)
    for name, curve in curves.items():
        left.plot(alpha, curve.beta(alpha), label=name)
        delta = curve.delta(epsilon)
        right.plot(epsilon[delta > 0], delta[delta > 0], label=name)
    left.plot([0, 1], [1, 0], "--", color=INK, lw=0.8)
    left.set(xlabel="false positive rate", ylabel="false negative rate", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    right.set(xlabel="epsilon", ylabel="delta", yscale="log", ylim=(1e-10, 1))
    for panel in (left, right):
        panel.legend()
    picture.suptitle(title)
    save(picture, path)
