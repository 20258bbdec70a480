"""Each person's epsilon by several accountings, side by side, and its picture (extra ``plots``); for the data holder.

All of it is private, and marked so. It is for noise, rates and norms fixed in advance (theory 7.3).
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check, _html, individual, mechanisms
from almoner._intervals import round_step
from almoner._private import LEVELS
from almoner._units import shown
from almoner.curves import gaussian, renyi
from almoner.errors import ArgumentError
from almoner.report.figures import figure, save_private, styled, thousands

__all__ = ["from_norms", "histogram", "means", "page", "quantiles", "side_by_side"]

Floats = NDArray[np.float64]

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
        counts, noise, sample_rate, delta: as of ``individual.losses``, one delta.
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
    epsilons["Rényi"] = np.where(table.any(axis=1), renyi.epsilon(table @ costs, renyi.ORDERS, delta=delta), 0.0)
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

    Epsilons are (people,), private, by the name of the accounting; groups (people,), private, a label for each person;
    levels public, in [0, 1]. Gives rows of the accounting's name, the group (None: all people) and (len(levels),)
    quantiles, taken from above.
    """
    for name, group, column in _by_group(epsilons, groups):
        yield name, group, np.quantile(column, levels, method="higher")


def means(
    epsilons: Mapping[str, Floats], *, groups: ArrayLike | None = None
) -> Iterator[tuple[str, str | None, float]]:
    """The mean epsilon over people of each accounting, for all people and then for each group; private.

    A mean shows which groups lose more privacy than others; it is no bound for any person. Arguments and rows are as of
    ``quantiles``, with the mean; inf where one person has no bound.
    """
    return ((name, group, float(np.mean(column))) for name, group, column in _by_group(epsilons, groups))


def _by_group(epsilons: Mapping[str, Floats], groups: ArrayLike | None) -> Iterator[tuple[str, str | None, Floats]]:
    """Each accounting's epsilons of all people, and then of each group."""
    labels = None if groups is None else np.asarray(groups)
    for name, column in epsilons.items():
        yield name, None, column
        for group in [] if labels is None else np.unique(labels):
            yield name, str(group), column[labels == group]


@styled()
def histogram(
    epsilons: Mapping[str, ArrayLike], path: str | Path, *, groups: ArrayLike | None = None, title: str = ""
) -> None:
    """Draw histograms of each person's epsilon, one panel for each way of accounting, on one scale.

    Epsilons and groups are private, as of ``quantiles``; infinite ones are counted in the panel's title, and each group
    has a colour. The ending of the path says the format (png, svg, pdf); the title, public, is above the picture.
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
        bounded = np.isfinite(values)
        if labels is None:
            panel.hist(values[bounded], bins=edges.tolist())
        else:
            each = {str(name): values[(labels == name) & bounded] for name in np.unique(labels)}
            panel.hist([*each.values()], bins=edges.tolist(), stacked=True, label=[*each])
            panel.legend()
        infinite = int(np.sum(~bounded))
        panel.set(title=f"{name} ({infinite} without a bound)" if infinite else name, ylabel="people")
        thousands(panel.yaxis)
    axes[-1, 0].set_xlabel("epsilon")
    save_private(picture, title, path)


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
    limit = None
    if noise_multiplier is not None and sample_rate is not None and steps is not None:
        (worst,) = individual.losses([[steps]], [noise_multiplier], sample_rate=sample_rate, delta=delta)
        limit = float(worst) if worst < np.inf else None
    name, values = next(iter(epsilons.items()))
    finite = values[np.isfinite(values)]
    averages = [mean for _, _, mean in means(epsilons, groups=groups)]
    told: dict[str, Any] = {"delta": delta, "name": name, "values": values, "finite": finite, "limit": limit}
    told["run"] = [(called, f"{each:,.10g}") for called, each in run.items() if each is not None]
    told["picture"] = _picture(finite, limit) if len(finite) else None
    told["levels"] = [f"{level:.0%} have at most" if level < 1 else "The largest" for level in LEVELS]
    told["quantiles"] = [
        (called, group, [shown(each, 4) if each < np.inf else "no\u00a0bound" for each in (*found, mean)])
        for (called, group, found), mean in zip(quantiles(epsilons, groups=groups), averages, strict=True)
    ]
    return _html.render("losses.html", **told)


def _picture(values: Floats, limit: float | None) -> dict[str, Any]:
    """The picture of how many people have which epsilon, in shares of its height and width. PRIVATE.

    Values (people,) are finite and >= 0; at the limit, public, a dashed line stands for the worst case.
    """
    most = max(float(values.max()), limit or 0.0)
    step = round_step(most / 6 or 1.0)
    end = step * max(1, ceil(most / step * (1 - 1e-12)))
    edges = np.linspace(0.0, end, _BINS + 1)
    counts = np.histogram(values, bins=edges)[0].tolist()
    each = round_step(max(counts) / 4) if max(counts) > 3 else 1
    top = each * ceil(max(counts) / each)
    between = zip(edges, edges[1:], counts, strict=False)
    return {
        "columns": [count / top for count in counts],
        "people": [(place * each / top, place * each) for place in range(round(top / each) + 1)],
        "epsilons": [(place * step / end, f"{place * step:.4g}") for place in range(round(end / step) + 1)],
        "limit": None if limit is None else limit / end,
        "numbers": [(f"{low:.4g} to {high:.4g}", f"{count:,}") for low, high, count in between if count],
    }
