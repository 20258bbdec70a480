"""Who is in a step, what each person is charged, and what each contributes: everybody, or a Poisson sample of people.

Names and symbols
    step          what one step releases; public
    most          (n,) the largest norm that each person may still contribute; private
    bounds        (n,) what each person's contribution is clipped to if that person is sampled; private
    norms         (n,) L2 norm of each person's gradient; private

Source: theory 5.1 to 5.3 (all people), 5.6 (Poisson samples); docs/training/budgets-and-samplings.md
"""

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from math import floor
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from almoner import _audit_hook, _check
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import AccountsPerPerson
from almoner.mechanisms import Mechanism, Repeated, SampledGaussian

Array = NDArray[np.float64]
Sums = list[Any]
PLAIN = (bool, int, float, str, type(None))  # settings that the repr of a sampling shows
KEPT_TO = "accounts: a person who kept to the allowance was refused; nothing was released"


class Turnout(NamedTuple):
    """The people of one step, with their records. Private, but for the last four fields."""

    records: Any  # what a model computes gradients of; ``records.of(rows)`` are those of some people
    people: int  # how many there are, n
    ids: Sequence[Hashable] | None = None  # (n,) who each is; None: the accounts' own rows
    left: int = 1  # how many steps are left, this one counted
    divisor: float = 1.0  # the fixed number that the noisy sum is divided by
    rate: float | None = None  # the learning rate, where a model has none of its own
    key: str | None = None  # a name for the step, by which it is made once

    def __repr__(self) -> str:
        return f"Turnout(left={self.left}, divisor={self.divisor:g})"


class Clipped(NamedTuple):
    """The outcome of one pass over the records of n people. Private."""

    norms: Array  # (n,); NaN, and weight 0, for whoever has no records or a norm that is no number
    clipped: Array
    weights: Array
    sums: Sums  # of the gradients times the weights

    def __repr__(self) -> str:
        return "Clipped(private)"


class Model(Protocol):
    """Something that is trained: gives clipped sums of private records, and takes noisy sums."""

    def norms(self, records: Any) -> Array:
        """(n,) private: the norm of each person's gradient now; NaN where it is not a number. Changes nothing."""

    def clipped_sum(self, records: Any, clip: Array, most: Array | None) -> Clipped:
        """The sum of gradients clipped to ``clip``, (n,); who would still be above ``most``, (n,), has weight 0."""

    def of_those(self, records: Any, made: Clipped, active: NDArray[np.bool_]) -> Sums:
        """The sums that were made, of those who were admitted; refuses where others are in it already."""

    def step(self, noisy: Sums, divisor: float, rate: float | None, /) -> None:
        """One step along public sums."""

    def state(self) -> dict[str, Any]:
        """Parameters, and what the optimizer keeps, as plain values and arrays. Public."""

    def load(self, state: Mapping[str, Any], /) -> None:
        """Go on from a state."""


class Beginning(NamedTuple):
    """The facts that a sampling begins a run with. Private because of the records."""

    clip: float
    seed: int | None  # None: the operating system's
    records: Any = None  # of all people; None in a stream
    people: int = 0  # how many
    numbers: int = 0  # how many the noise has
    individual: bool = True  # whether each person is charged for their own contribution
    saving: bool = True  # whether what people do not spend is of use: to other steps, or other users of their accounts
    own_samples: bool = False  # whether bounds may follow people's own samples (theory 5.6)
    plan: Any = None  # of fixed batches


class Sampling:
    """Who is in a step, and what they are charged. Subclass it, with ``contribute``, for a scheme of your own.

    Its numbers, texts and switches, of names without an underscore, are public: the model's card has them.

    Guarantee: with ``contribute`` as it is described there, each person pays for all that this person contributes.
    Source: theory 5.1, 5.2.
    """

    extra_steps: int = 0
    """Steps more than the noise was planned for."""
    rate: float | None = None
    """The probability with which each person is sampled in a step; None: the step says who is in it."""
    slots: int = 0
    """So many places people have in a public order; ``people`` says whose each record is by place, and some may be
    empty. 0: there is no such order."""
    own_samples: bool = False
    """True if bounds may follow people's own sampled gradients."""
    noise: Any = None
    """The rows of correlated noise for the steps, SECRET; None: independent noise."""

    def begin(self, run: Beginning) -> Self:  # noqa: ARG002 - those that need the people's number or a seed use it
        """A sampling of this kind for one run, with a state of its own: what changes in place is made anew here."""
        return copy(self)

    def contribute(self, model: Model, turnout: Turnout, accounts: AccountsPerPerson, step: Mechanism) -> Sums:
        """Charge the people of this step, and give their private sum, to which noise is added.

        ``accounts.allowance(step)`` is the largest norm that each may still contribute, ``model.clipped_sum`` clips,
        and ``accounts.charge(step, norms)`` charges everybody, 0 for those who are not in the step.

        It may be called again before the step is released: a state of its own changes in ``released`` alone.

        Guarantee wanted: each person's part depends on the person's own data, account and place in a public order, and
            on past outputs; it has at most the norm that is charged, and a person who was refused contributes nothing.
        """
        raise NotImplementedError

    def released(self) -> None:
        """The step is released: count it."""

    def described(self) -> dict[str, Any]:
        """The settings that a resumed run must share. Public."""
        return {"sampling": repr(self)}

    def state(self) -> dict[str, Any]:
        """State that a resumed run goes on from, besides the accounts. PRIVATE."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""

    def write_off(self, unseen: Sequence[Any], book: Any) -> None:
        """Have everybody pay for what may have been released since: the most that it can have cost, or all."""
        for announced in unseen:
            book.write_off(announced.mechanism, announced.people)

    def __repr__(self) -> str:
        plain = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        shown = [f"{name}={value!r}" for name, value in plain.items() if isinstance(value, PLAIN)]
        return f"{type(self).__name__}({', '.join(shown)})"


class FullBatch(Sampling):
    """Every person contributes to every step.

    Args:
        pace: public, in [0, 1]. How evenly each person's budget is spread over the steps that are left: with 1 nobody
            is out before the last step; with 0 each person contributes up to the clip until nothing is left, as in
            Algorithm 8, which can ruin a model: docs/training/budgets-and-samplings.md. With ``spend_remainder``.
        spend_remainder: public. Clip a gradient to what its person can still pay (FZ Alg. 8); False: a person who
            cannot pay for the gradient clipped to the sensitivity is left out (Alg. 3).
        spread: public, >= 1, in a stream. Keep enough for so many contributions of the same size, this one counted: a
            person's contributions shrink before the budget is spent. 1: each is up to the clip while anything is left.
        extra_steps: public. So many steps more than the noise was planned for. Only with individual accounts.

    Guarantee: each person's contribution is a function of that person's data, past outputs and own account; it has at
        most the norm that is charged; a person who was not admitted contributes nothing.
    Source: theory 5.1 to 5.3.
    """

    def __init__(
        self, *, pace: float = 1.0, spend_remainder: bool = True, spread: int = 1, extra_steps: int = 0
    ) -> None:
        _check.within(0, 1, pace=pace)
        _check.whole(1, spread=spread)
        _check.whole(0, extra_steps=extra_steps)
        self.pace, self.spend_remainder, self.spread = float(pace), spend_remainder, int(spread)
        self.extra_steps = extra_steps
        self.were_clipped: Array | None = None  # (n,) private: 1 where the last gradient was longer than the clip

    def __repr__(self) -> str:
        shown = {"pace": self.pace, "spend_remainder": self.spend_remainder, "spread": self.spread}
        usual = {"pace": 1.0, "spend_remainder": True, "spread": 1}
        changed = ", ".join(f"{name}={value!r}" for name, value in shown.items() if value != usual[name])
        return f"{type(self).__name__}({changed})"

    def contribute(self, model: Model, turnout: Turnout, accounts: AccountsPerPerson, step: Mechanism) -> Sums:
        """Charge each person for this step, and give the private sum of their clipped gradients."""
        clip: float = step.sensitivity  # type: ignore[attr-defined]
        most = paced_allowance(accounts, step, turnout.left, self.pace if self.spend_remainder else 0.0)
        made = model.clipped_sum(turnout.records, most if self.spend_remainder else np.full(len(most), clip), most)
        active = np.asarray(accounts.charge(step, made.clipped), dtype=bool)
        self.were_clipped = np.where(np.isnan(made.norms), made.norms, made.norms > clip)
        return model.of_those(turnout.records, made, active)


class Poisson(Sampling):
    """Each person is sampled independently in each step, and pays in every step, sampled or not (DP-SGD).

    Each person's bound is that person's gradient norm when it was last computed, times ``slack``, at most the
    sensitivity; before, it is the sensitivity. All people's bounds are refreshed together, every ``refresh_every``
    steps, unless less than a third of that is left.

    Args:
        rate: public, in (0, 1]. The probability with which each person is sampled in a step.
        refresh_every: public. For how many steps bounds are kept; None: an epoch's, about 1 / rate, and with less than
            two epochs left none is made, where nothing else could spend what it saves: no extra steps, no shares, no
            ``watch=``, and no accounts of the caller's or of a ledger. Give it where callbacks ask paid questions.
        slack: public, > 0. A bound is this much larger than the norm was.
        extra_steps: public. So many steps more than the noise was planned for. Only with individual accounts.

    Guarantee: a person's bound is a function of that person's own data and past outputs and, for budgets of one order,
        all orders or zCDP, of that person's own past samples; it is fixed before the step's coin is tossed; the
        person's contribution has at most that norm, and the person is charged for it at every step.
    Source: theory 5.6.
    """

    def __init__(
        self, rate: float, *, refresh_every: int | None = None, slack: float = 1.1, extra_steps: int = 0
    ) -> None:
        _check.positive(rate=rate, slack=slack)
        _check.within(0, 1, rate=rate)
        self.rate, self.slack, self._usual = float(rate), float(slack), refresh_every is None
        self.refresh_every = max(1, round(1 / rate)) if refresh_every is None else refresh_every
        _check.whole(1, refresh_every=self.refresh_every)
        _check.whole(0, extra_steps=extra_steps)
        self.extra_steps = extra_steps

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rate!r}, refresh_every={self.refresh_every}, slack={self.slack!r})"

    def described(self) -> dict[str, Any]:
        """The rate, which the card states; bounds may be refreshed at other times by a resumed run."""
        return {"sampling": f"{type(self).__name__}({self.rate!r})"}

    def begin(self, run: Beginning) -> Self:
        """A sampling with coins of its own, and no bounds yet."""
        begun = copy(self)
        begun._individual, begun.own_samples = run.individual, run.own_samples
        begun._pays = 2 * self.refresh_every if self._usual and not run.saving else 0
        begun._coins = np.random.default_rng(run.seed)
        begun._steps, begun._known = 0, (None, None)
        begun._next, begun._cut = (*begun._known, None, None), (None, 0.0, np.zeros(0))
        return begun

    _individual: bool
    _pays: int  # bounds are refreshed if so many steps are left
    _coins: np.random.Generator
    _steps: int
    _known: tuple[Array | None, Array | None]  # (n,) bounds, and norms of own samples since, NaN for none; private
    _next: tuple[Array | None, Array | None, Any, Any]  # the same after this step; who was sampled, and their norms
    _cut: tuple[Array | None, float, Array]  # bounds, a clip, and both together: not written to, so accounts know them

    def contribute(self, model: Model, turnout: Turnout, accounts: Any, step: Mechanism) -> Sums:
        """Charge each person for this step, sample people, and give the private sum of their clipped gradients."""
        clip: float = step.sensitivity  # type: ignore[attr-defined]
        known, seen = self._bounds(model, turnout, clip)
        if self._cut[0] is not known or self._cut[1] != clip:  # the clip may have changed since; NaN stays NaN
            cut = np.full(turnout.people, clip) if known is None else np.minimum(known, clip)
            cut.flags.writeable = False
            self._cut = known, clip, cut
        bounds = self._cut[2]
        coins = _audit_hook.coins(lambda: self._coins.random(turnout.people))
        people = np.flatnonzero(coins < (step.sample_rate if isinstance(step, SampledGaussian) else 1.0))
        active = np.asarray(accounts.charge(step, bounds, sample=people), dtype=bool)
        people = people[active & (bounds[people] > 0)]
        made = model.clipped_sum(turnout.records.of(people), bounds[people], None)
        self._next = known, seen, people, made.norms
        return made.sums

    def released(self) -> None:
        """Keep the bounds of this step, and the norms of those who were sampled."""
        bounds, seen, people, norms = self._next
        if seen is not None:
            seen[people] = np.where(np.isnan(norms), seen[people], norms)
        self._known, self._steps = (bounds, seen), self._steps + 1

    def _bounds(self, model: Model, turnout: Turnout, clip: float) -> tuple[Array | None, Array | None]:
        """(n,) each person's bound, and the norms of own samples; None where none are kept."""
        bounds, seen = self._known
        few = 3 * turnout.left < self.refresh_every  # a pass over all people is worth more than it would save them
        keep = bounds is not None and (few or self._steps % self.refresh_every)
        if not self._individual or keep or turnout.left < self._pays:
            return bounds, seen
        norms = np.full(turnout.people, np.nan) if seen is None else seen.copy()
        missing = np.flatnonzero(np.isnan(norms))
        computed = model.norms(turnout.records.of(missing))
        norms[missing] = np.pad(computed, (0, len(missing) - len(computed)))  # no record: a norm of zero
        fresh = np.full(turnout.people, np.nan) if self.own_samples else None
        return np.minimum(norms * self.slack, clip), fresh  # NaN: out until the next refresh


def paced_allowance(accounts: AccountsPerPerson, step: Mechanism, steps_left: int, pace: float) -> Array:
    """(n,) private: the largest norm that each person may contribute to this step, at pace 0 the accounts' allowance.

    A person may contribute at most what could be contributed again in each of 1 + pace (r - 1) steps, rounded down, for
    r steps that are left, this one counted. With Gaussian accounts and pace 1 that is min(clip, sigma sqrt(b / r)):
    what is not used in a step is shared by all later ones, and nobody is out before the last step.

    Guarantee: at most the accounts' allowance for this step alone; a function of own account and public numbers.
    Source: theory 5.1 to 5.3.
    """
    shared = 1 + floor(pace * (steps_left - 1))
    return np.asarray(accounts.allowance(Repeated(step, shared) if shared > 1 else step), dtype=np.float64)


def refuse_others(weights: Array, active: NDArray[np.bool_]) -> None:
    """Raise Unsupported where somebody with a weight was not admitted; nothing may be released."""
    if np.any((weights > 0) & ~active):
        raise Unsupported(KEPT_TO)


def checked_sampling(sampling: object) -> None:
    if not isinstance(sampling, Sampling):
        raise ArgumentError(f"sampling={sampling!r} must be training.FullBatch(), Poisson(rate) or FixedBatches(size)")
