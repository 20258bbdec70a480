"""Histograms for pages: people by epsilon, as inline SVG whose letters keep their size on narrow screens."""

from math import ceil, floor, log10

import numpy as np
from numpy.typing import NDArray

from almoner import _html

__all__ = ["columns"]

_LEFT, _WIDTH = 13.0, 81.0
"""Left edge of the columns and their width together, in percent of the picture."""

_TOP, _HEIGHT = 46, 154
"""Top edge of the columns and their height, in pixels."""

_BINS = 30


def columns(values: NDArray[np.float64], limit: float | None, label: str) -> tuple[str, list[tuple[str, str]]]:
    """A picture of how many people have which epsilon. PRIVATE.

    Args:
        values: (people,) private, at least one of them, finite and >= 0.
        limit: public: where a dashed line stands for the worst case; None: nowhere.
        label: for those who do not see the picture.

    Returns:
        The picture as HTML; and its numbers: from where to where, as text, and how many people.
    """
    most = max(float(values.max()), limit or 0.0)
    step = _round_step(most / 6 or 1.0)
    end = step * max(1, ceil(most / step * (1 - 1e-12)))
    edges = np.linspace(0.0, end, _BINS + 1)
    counts = np.histogram(values, bins=edges)[0]
    tall = int(counts.max())
    each = _round_step(tall / 4) if tall > 3 else 1
    top = each * ceil(tall / each)
    inner = [*_grid(each, top), *_bars(counts, top), *_scale(step, end)]
    if limit is not None:
        inner.append(_limit(limit, end))
    told = [
        (f"{low:.4g} to {high:.4g}", f"{count:,}")
        for low, high, count in zip(edges, edges[1:], counts.tolist(), strict=False)
        if count
    ]
    return _html.drawing("columns", label, inner), told


def _round_step(about: float) -> float:
    """The number of 1, 2 and 5 times a power of ten that is the next above."""
    power = 10.0 ** floor(log10(about))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= about * (1 - 1e-9))


def _bars(counts: NDArray[np.int64], top: float) -> list[str]:
    wide, lines = _WIDTH / len(counts), []
    for place, count in enumerate(counts.tolist()):
        high = max(count * _HEIGHT / top, 1.5) if count else 0.0
        across = f'x="{_LEFT + place * wide:.3f}%" width="{0.88 * wide:.3f}%"'
        lines.append(f'<rect class="used" {across} y="{_TOP + _HEIGHT - high:.2f}" height="{high:.2f}"/>')
    return lines


def _grid(each: float, top: float) -> list[str]:
    """Level lines with numbers of people."""
    lines = ['<text x="0" y="14">people</text>']
    for place in range(round(top / each) + 1):
        y = _TOP + _HEIGHT * (1 - place * each / top)
        lines.append(f'<line x1="{_LEFT}%" x2="{_LEFT + _WIDTH}%" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{_LEFT - 1}%" y="{y + 4:.1f}" text-anchor="end">{_short(place * each)}</text>')
    return lines


def _short(people: float) -> str:
    """A number of people that fits left of the columns."""
    return f"{people:,.0f}" if people < 100_000 else f"{people / 1000:,.0f} k"


def _scale(step: float, end: float) -> list[str]:
    """Epsilons below the columns."""
    below = _TOP + _HEIGHT
    lines = [f'<text x="{_LEFT + _WIDTH / 2}%" y="{below + 44}" text-anchor="middle">epsilon of a person</text>']
    for place in range(round(end / step) + 1):
        x = _LEFT + _WIDTH * place * step / end
        lines.append(f'<text x="{x:.2f}%" y="{below + 20}" text-anchor="middle">{place * step:.4g}</text>')
    return lines


def _limit(limit: float, end: float) -> str:
    x, side = _LEFT + _WIDTH * limit / end, "end" if limit > end / 2 else "start"
    line = f'<line class="limit" x1="{x:.2f}%" x2="{x:.2f}%" y1="{_TOP - 6}" y2="{_TOP + _HEIGHT}"/>'
    return f'{line}<text class="named" x="{x:.2f}%" y="34" text-anchor="{side}">the whole clip in every step</text>'
