"""Which filter to take: a choice from public facts, made before the first charge.

Names and symbols
    plan      the mechanism that will be charged most often, or a Composed of several in their proportions
    parts     the plan's mechanisms, and how often each runs in one round of it: the least whole numbers
    rounds    how many rounds of the plan a filter admits, one after the other; candidates are compared by it
    square    b squared, what the residue filter has left

The choice depends on epsilon, delta and the plan alone. The filter is then charged for what is really run, so its
guarantee does not depend on how good the choice was.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import floor, gcd, inf

from almoner import _check, mechanisms
from almoner._notions import certain
from almoner._search import last_whole
from almoner._units import FAILURE, FINE, MEASURE, Units, budget, times, up
from almoner.curves import _residue, gaussian, renyi
from almoner.errors import ArgumentError, Unsupported
from almoner.filters._filter import Filter
from almoner.filters._filters import Basic, Gaussian, Planned, Renyi, Residue, Zcdp, one_plan

MARGIN = 0.99  # an earlier candidate is taken if it admits this part of what the best one admits
LEVELS = (1.0, 0.5, 0.2, 0.06, 0.02, 0.005)
"""Of b squared, as parts of the start: where the residue filter's prices are looked up; rounds below do not count."""

MOST = 2**40  # rounds; more are not counted

_ANY = "Residue: without a plan, the tightest for most mechanisms; sampled rounds with little noise need a plan."
_GAUSSIAN = "Gaussian: the plan is Gaussian noise, for which this filter is exact and being adaptive costs nothing."
_COUNTED = "Planned: the budget pays for every round of the plan, in any order; what it leaves buys other rounds."

_Parts = Mapping[mechanisms.Mechanism, int]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A filter, and why it was chosen. Every field is public.

    Attributes:
        budget: a fresh filter.
        why: one sentence.

    Guarantee: the filter's own, which does not depend on the choice.
    Source: the filter's own.
    """

    budget: Filter
    why: str


def recommend(
    *,
    epsilon: float,
    delta: float,
    plan: mechanisms.Mechanism | Sequence[tuple[mechanisms.Mechanism, int]] | None = None,
) -> Recommendation:
    """The filter to take for a budget.

    With a plan, it is the one that admits the most rounds of the plan, or a simpler one that admits 99 % of them. Other
    mechanisms may be charged too, whatever the plan: only ``Gaussian``, ``Zcdp`` and ``Basic`` refuse some kinds.
    Without a plan, it is ``Residue``, which admits at least 97 % of what any other filter without a plan admits of
    randomised response, pure, Laplace and Gaussian mechanisms, and of the sampled Gaussian with a noise multiplier of
    at least two; with less noise it may admit nothing: give a plan.

    Args:
        epsilon, delta: public: nats, > 0, and in [0, 1), 0 for pure DP.
        plan: public; the mechanism that will be charged most often, or a Composed of several in their proportions. Or
            [(mechanism, count), ...]: ``Planned`` with exactly these rounds, or ``Gaussian`` where all are.

    Raises:
        ArgumentError: an argument breaks a rule, or a plan with counts does not fit.
        Unsupported: delta is 0, and the plan is not of pure mechanisms; or a plan with counts is not of ``Planned``'s.

    Guarantee: that of the filter, whatever the plan was and whatever is charged.
    Source: the filter's own.

    >>> recommend(epsilon=1.0, delta=1e-6).budget
    Residue(epsilon=1.0, delta=1e-06)
    >>> step = mechanisms.SampledGaussian(sigma=0.8, sample_rate=0.01)
    >>> print(recommend(epsilon=2.0, delta=1e-5, plan=step).why)  # doctest: +NORMALIZE_WHITESPACE
    Planned: the budget pays for 287 rounds of the plan, whatever results decide; other rounds may take their place.
    """
    _check.positive(epsilon=epsilon)
    _check.within(0, 1, delta=delta)
    counted = None if plan is None or isinstance(plan, mechanisms.Mechanism) else plan
    plan = plan if plan is None else one_plan(plan)
    parts = _parts(plan) if plan is not None else {}
    if delta == 0:
        account = Basic(epsilon=epsilon)
        for leaf in parts:
            account.admits(leaf)
        return Recommendation(account, "Basic: with delta 0, epsilons add up, and nothing is tighter.")
    if plan is None:
        return Recommendation(Residue(epsilon=epsilon, delta=delta), _ANY)
    if not parts:
        raise ArgumentError(f"plan={plan!r} must have at least one round")
    if all(map(gaussian.is_gaussian, parts)):
        exactly = Gaussian(epsilon=epsilon, delta=delta)
        if counted is not None and not exactly.admits(plan):
            raise ArgumentError(f"plan={counted!r} does not fit: {exactly.notion.refusal((0,), plan)}")
        return Recommendation(exactly, _GAUSSIAN)
    if counted is not None:
        return Recommendation(Planned(counted, epsilon=epsilon, delta=delta), _COUNTED)
    return _best(parts, epsilon, delta)


def _parts(plan: mechanisms.Mechanism) -> dict[mechanisms.Mechanism, int]:
    counts = mechanisms.leaves(plan)
    return {leaf: count // gcd(*counts.values()) for leaf, count in counts.items()}


def _best(parts: _Parts, epsilon: float, delta: float) -> Recommendation:
    basic = Basic(epsilon=epsilon, delta=delta)
    added_up = _basic_rounds(parts, basic)
    planned, known = _planned(parts, epsilon, delta) if added_up < MOST else (None, True)
    most = planned.left if planned is not None else 0
    candidates: list[tuple[float, Filter, str]] = []
    residue_rounds = _residue_rounds(parts, epsilon, delta, enough=MARGIN * most)
    if residue_rounds is not None:
        why = "as many as with any filter here or nearly so; rounds that are not planned cost no more"
        candidates.append((residue_rounds, Residue(epsilon=epsilon, delta=delta), why))
    if planned is not None:
        why = "whatever results decide; other rounds may take their place"
        candidates.append((most, planned, why))
    elif not known:
        candidates += _by_curves(parts, epsilon, delta)
    candidates.append((added_up, basic, "as many as epsilons and deltas that add up allow"))
    best = max(rounds for rounds, _, _ in candidates)
    rounds, account, why = next(each for each in candidates if each[0] >= MARGIN * best)
    name = type(account).__name__
    if rounds < 1:
        none = f"{name}: no filter here admits a round of the plan; this one admits cheaper rounds."
        return Recommendation(account, none)
    about = "" if account is planned or account is basic else "about "
    return Recommendation(account, f"{name}: the budget pays for {about}{floor(rounds):,} rounds of the plan, {why}.")


def _planned(parts: _Parts, epsilon: float, delta: float) -> tuple[Planned | None, bool]:
    """None where the plan does not fit; and whether its losses are known."""
    rounds = tuple(mechanisms.Repeated(leaf, count) if count > 1 else leaf for leaf, count in parts.items())
    plan = rounds[0] if len(rounds) == 1 else mechanisms.Composed(rounds)
    try:
        return Planned(plan, epsilon=epsilon, delta=delta), True
    except Unsupported:
        return None, False
    except ArgumentError:
        return None, True


def _by_curves(parts: _Parts, epsilon: float, delta: float) -> list[tuple[float, Filter, str]]:
    """Filters for mechanisms of which no more is known than rho or a Rényi curve."""
    one = mechanisms.Composed(tuple(mechanisms.Repeated(leaf, count) for leaf, count in parts.items()))
    candidates: list[tuple[float, Filter, str]] = []
    added = "as many as with any filter here or nearly so; costs are one number that adds up"
    accounts: dict[str, Filter] = {added: Zcdp(epsilon=epsilon, delta=delta)}
    accounts["by their Rényi curves, with weights that suit the plan"] = Renyi(epsilon=epsilon, delta=delta, plan=one)
    for why, account in accounts.items():
        with suppress(Unsupported):
            candidates.append((_admitted(account, one), account, why))
    return candidates


def _admitted(account: Filter, one: mechanisms.Mechanism) -> int:
    """Rounds that a filter admits whose prices add up: a few questions."""
    return last_whole(lambda count: account.admits(mechanisms.Repeated(one, count)), 0, MOST, relative=1e-3)


def _certain(leaf: mechanisms.Mechanism) -> tuple[Units, Units]:
    """Epsilon and delta that a round adds by basic composition, in fine units."""
    return up(certain(leaf), per=FINE), up(renyi.failure(leaf), per=FAILURE)


def _basic_rounds(parts: _Parts, account: Basic) -> float:
    limits, rounds = (budget(account.left[0], per=FINE), budget(account.left[1], per=FAILURE)), float(MOST)
    for limit, place in zip(limits, (0, 1), strict=True):
        price = sum(times(count, _certain(leaf)[place]) for leaf, count in parts.items())
        rounds = min(rounds, limit // price if price else MOST)
    return rounds


def _residue_rounds(parts: _Parts, epsilon: float, delta: float, *, enough: float) -> float | None:
    """About how many rounds the residue filter admits, hardly more; fewer where not enough; None: it cannot say."""
    if any(_certain(leaf)[1] for leaf in parts):  # half of delta would be set aside
        return None
    start, slack = budget(Residue(epsilon=epsilon, delta=delta).left), floor(delta / 100 * FAILURE)
    rounds, certain = 0.0, sum(times(count, _certain(leaf)[0]) for leaf, count in parts.items())
    basic = budget(epsilon, per=FINE) // certain if certain else MOST
    if start <= 0:
        return basic
    try:
        for high, low in pairwise(LEVELS):
            square = floor(low * start)
            price = sum(times(count, _residue_price(leaf, start, square, slack)) for leaf, count in parts.items())
            if price == inf or rounds + high * start / max(price, 1) < enough:
                break
            rounds += (high - low) * start / max(price, 1)
    except Unsupported:
        return None
    return min(max(rounds, basic), MOST)


def _residue_price(leaf: mechanisms.Mechanism, start: int, square: int, slack: int) -> Units:
    exactly = _residue.needs_no_slack(leaf)
    if exactly is not None:
        return exactly
    share = min(1.0, _residue.size(leaf) * MEASURE / start)
    return _residue.cost(leaf, square=square, slack=_residue.ladder(floor(share * slack)))
