"""Each person's epsilon by several accountings, side by side, and its picture (extra ``plots``); for the data holder.

All of it is private, and marked so. It is for noise, rates and norms fixed in advance (theory 7.3).
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check, _html, individual, mechanisms
from almoner._private import LEVELS, MARK
from almoner._units import shown
from almoner.curves import gaussian, renyi
from almoner.errors import ArgumentError
from almoner.report.figures import figure, private_title, save, styled, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["from_norms", "histogram", "means", "page", "quantiles", "side_by_side"]

Floats = NDArray[np.float64]

_LEFT, _WIDTH = 13.0, 81.0
"""Left edge of the columns and their width together, in percent of the picture."""

_TOP, _HEIGHT = 46, 154
"""Top edge of the columns and their height, in pixels."""

_BINS = 30


def from_norms(
    norms: ArrayLike,
    /,
    *,
    noise_multiplier: float,
    delta: float,
    sample_rate: float = 1.0,
    steps: int | None = None,
    dominating: bool = False,
) -> dict[str, Floats]:
    """Each person's epsilon by several accountings, from the norms of what each person added to the steps.

    Args:
        norms: (people, steps), or (people,) with ``steps``; private, in units of the clip. NaN, negative and infinite
            norms are unknown: that person's epsilon is infinite. Norms above the clip are charged for the clip.
        noise_multiplier: public, > 0: the noise of a step, divided by the clip.
        delta: public, in (0, 1).
        sample_rate: public, in (0, 1].
        steps: public, for norms that stay the same in so many steps.
        dominating: as in ``side_by_side``.

    Returns:
        Name of the accounting -> (people,) epsilons, private, upper bounds.

    Guarantee: that of ``side_by_side``; norms are rounded up to 256 buckets.
    Source: theory 7.1 to 7.4.
    """
    _check.positive(noise_multiplier=noise_multiplier)
    values = np.asarray(norms)
    if isinstance(norms, np.ma.MaskedArray):
        raise ArgumentError("norms must be no masked array: the masked norms would be used")
    if not np.issubdtype(values.dtype, np.number) or values.ndim not in (1, 2) or not values.size:
        raise ArgumentError("norms must be numbers of shape (people,) or (people, steps)")
    if (values.ndim == 1) == (steps is None):
        raise ArgumentError("steps must be given with norms of shape (people,), and only with those")
    repeats = 1
    if steps is not None:
        _check.whole(1, steps=steps)
        values, repeats = values[:, None], int(steps)
    recorded = individual.Losses(len(values), least=noise_multiplier, most=noise_multiplier * 1e4, buckets=256)
    step = mechanisms.SampledGaussian(noise_multiplier, 1.0, sample_rate)
    for column in values.T:
        recorded.record(step, column)
    counts = recorded.counts(sample_rate).astype(np.int64) * repeats
    unknown = ~((values >= 0) & (values < np.inf)).all(axis=1)
    epsilons = side_by_side(counts, recorded.noise, sample_rate=sample_rate, delta=delta, dominating=dominating)
    return {name: np.where(unknown, np.inf, column) for name, column in epsilons.items()}


def side_by_side(
    counts: NDArray[np.integer],
    noise: ArrayLike,
    /,
    *,
    sample_rate: float,
    delta: float,
    dominating: bool = False,
    points: int = 200,
) -> dict[str, Floats]:
    """Each person's epsilon by privacy loss distributions, by Rényi DP, and by the Gaussian that dominates.

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

    Guarantee: for rounds fixed in advance each is a bound on every person's epsilon; under adaptivity none.
    Source: theory 7.1 to 7.4, 3.2, 3.3; Koskela, Tobaben & Honkela (2023), figure 1.
    """
    table = np.asarray(counts)
    epsilons = {"privacy loss distributions": individual.losses(table, noise, sample_rate=sample_rate, delta=delta)}
    costs = renyi.sampled_gaussian(sample_rate, np.asarray(noise, np.float64), renyi.ORDERS)
    rdp = renyi.epsilon(table @ costs, renyi.ORDERS, delta=delta)
    epsilons["Rényi"] = np.where(table.any(axis=1), rdp, 0.0)
    if dominating:
        rows, which = np.unique(table, axis=0, return_inverse=True)
        slack = delta / 10
        mu = individual.dominating_mu(rows, noise, sample_rate=sample_rate, slack=slack, points=points)
        rest = (delta - slack) / (1 - slack) * (1 - 1e-12)
        finite = np.where(np.isfinite(mu), mu, 1.0)
        by_row = np.where(np.isfinite(mu), gaussian.epsilon(finite, delta=rest), np.inf)
        epsilons["Gaussian"] = by_row[which.ravel()]
    return epsilons


def quantiles(
    epsilons: Mapping[str, Floats], *, groups: ArrayLike | None = None, levels: Sequence[float] = LEVELS
) -> Iterator[tuple[str, str | None, Floats]]:
    """Quantiles over people of each accounting, for all people and then for each group; private.

    Args:
        epsilons: name of the accounting -> (people,) epsilons, private.
        groups: (people,) private; a label for each person.
        levels: public, in [0, 1].

    Returns:
        Rows of the accounting's name, the group (None: all people) and (len(levels),) quantiles, taken from above.
    """
    labels = None if groups is None else np.asarray(groups)
    for name, column in epsilons.items():
        yield name, None, np.quantile(column, levels, method="higher")
        for group in [] if labels is None else np.unique(labels):
            yield name, str(group), np.quantile(column[labels == group], levels, method="higher")


def means(
    epsilons: Mapping[str, Floats], *, groups: ArrayLike | None = None
) -> Iterator[tuple[str, str | None, float]]:
    """The mean epsilon over people of each accounting, for all people and then for each group; private.

    A mean shows which groups lose more privacy than others; it is no bound for any person.

    Args:
        epsilons: name of the accounting -> (people,) epsilons, private.
        groups: (people,) private; a label for each person.

    Returns:
        Rows of the accounting's name, the group (None: all people) and the mean; inf where one person has no bound.
    """
    labels = None if groups is None else np.asarray(groups)
    for name, column in epsilons.items():
        yield name, None, float(np.mean(column))
        for group in [] if labels is None else np.unique(labels):
            yield name, str(group), float(np.mean(column[labels == group]))


@styled()
def histogram(
    epsilons: Mapping[str, ArrayLike], path: str | Path, *, groups: ArrayLike | None = None, title: str = ""
) -> None:
    """Draw histograms of each person's epsilon, one panel for each way of accounting, on one scale.

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
    picture = figure(8, 1 + 2.2 * len(columns))
    axes = picture.subplots(len(columns), 1, sharex=True, squeeze=False)
    for panel, (name, values) in zip(axes[:, 0], columns.items(), strict=True):
        _panel(panel, values, labels, edges.tolist())
        infinite = int(np.sum(~np.isfinite(values)))
        panel.set_title(f"{name} ({infinite} without a bound)" if infinite else name)
        panel.set_ylabel("people")
        thousands(panel.yaxis)
    axes[-1, 0].set_xlabel("epsilon")
    private_title(picture, title)
    save(picture, path)


def _panel(panel: "Axes", values: Floats, labels: NDArray[np.generic] | None, edges: list[float]) -> None:
    if labels is None:
        panel.hist(values[np.isfinite(values)], bins=edges)
        return
    names = np.unique(labels)
    each = [values[(labels == name) & np.isfinite(values)] for name in names]
    panel.hist(each, bins=edges, stacked=True, label=[str(name) for name in names])
    panel.legend()


def page(
    epsilons: Mapping[str, Floats],
    *,
    delta: float,
    groups: Sequence[str] | ArrayLike | None = None,
    noise_multiplier: float | None = None,
    sample_rate: float | None = None,
    steps: int | None = None,
) -> str:
    """People's epsilons as a page: how many people have at most how much. PRIVATE: for the data holder.

    Args:
        epsilons: name of the accounting -> (people,), private, as ``from_norms`` gives them.
        delta: public, at which they are stated.
        groups: (people,) a label for each person, private; None for no groups.
        noise_multiplier, sample_rate, steps: public, of the run that the norms are from, for its description. With all
            three the picture shows the epsilon of somebody who adds the whole clip to every step.

    Returns:
        HTML that stands alone. Numbers are rounded up.
    """
    run = {"Sigma: noise, in clips": noise_multiplier, "Sampling rate": sample_rate, "Steps": steps}
    told = [(name, f"{each:,.10g}") for name, each in run.items() if each is not None]
    limit = None
    if noise_multiplier is not None and sample_rate is not None and steps is not None:
        (limit,) = individual.losses([[steps]], [noise_multiplier], sample_rate=sample_rate, delta=delta)
    body = [
        _html.paragraph(f"Each person's epsilon at delta = {delta:g}, by what their own data added.", large=True),
        _html.heading("The run"),
        _html.tiles([("People", f"{len(next(iter(epsilons.values()))):,}"), *told, ("Delta", f"{delta:g}")]),
        *_picture(epsilons, limit),
        _html.heading("In numbers"),
        _levels(epsilons, groups),
        _html.heading("What this is"),
        _html.paragraph(
            "An epsilon says how well somebody who knows everything else can tell whether a person's data were used.",
            "The figures hold for noise, rates and norms that were fixed in advance.",
            "Where results decided what came next they are an approximation, and no guarantee.",
        ),
    ]
    return _html.page("Privacy losses of people", body, mark=f"{MARK[0].upper()}{MARK[1:]}. It names no person.")


def _picture(epsilons: Mapping[str, Floats], limit: float | None) -> list[str]:
    """A picture and a table of how many people have which epsilon, by the first accounting."""
    name, values = next(iter(epsilons.items()))
    finite = values[np.isfinite(values)]
    words, missing = [f"By {name}."], len(values) - len(finite)
    if limit is not None and limit < np.inf:
        words.append(f"Somebody who adds the whole clip to every step has epsilon {shown(limit, 4)}.")
    if missing:
        words.append(f"{_people(missing)} no bound and {'is' if missing == 1 else 'are'} not in the picture.")
    body = [_html.heading("How many people have which epsilon"), _html.paragraph(*words)]
    if not len(finite):
        return body
    label = f"histogram of the epsilons of {len(finite):,} people, from {finite.min():.4g} to {finite.max():.4g}"
    drawn, numbers = _columns(finite, limit if limit is not None and limit < np.inf else None, label)
    cells = [tuple(map(_html.text, row)) for row in numbers]
    table = _html.table(f"By {name}", ("Epsilon", "People"), cells)
    return [*body, drawn, _html.details("the numbers of the picture", table, aside=True)]


def _people(number: int) -> str:
    return "1 person has" if number == 1 else f"{number:,} people have"


def _levels(epsilons: Mapping[str, Floats], groups: Sequence[str] | ArrayLike | None) -> str:
    """The table of quantiles and means."""
    levels = [f"{level:.0%} have at most" if level < 1 else "The largest" for level in LEVELS]
    averages = [mean for _, _, mean in means(epsilons, groups=groups)]
    rows = [
        (
            _html.text(name),
            _html.text("all" if group is None else group, short=True),
            *(shown(each, 4) if each < np.inf else "no\u00a0bound" for each in (*found, mean)),
        )
        for (name, group, found), mean in zip(quantiles(epsilons, groups=groups), averages, strict=True)
    ]
    return _html.table("Epsilons of people", ("Accounting", "Group", *levels, "Mean"), rows)


def _columns(values: Floats, limit: float | None, label: str) -> tuple[str, list[tuple[str, str]]]:
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
