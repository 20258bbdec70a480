"""Accounts of a training: of all people by one worst case, or by ids, and such that people leave; the holder's report.

Accounts that people leave for good when they cannot pay have running counts of those who left, with noise of a known
law: by a binary tree, or by the square root of the running sums. Both are a product A = L R of triangular matrices,
with A x the running sums of x. Released is A x + L z, with z independent noise; what a person who moves one entry of x
by one unit pays is the longest column of R. All is private, but for the worst case, the counts and their noise.

Names and symbols
    steps     T   how many counts there are; public
    sigma         standard deviation of each entry of z; public

Source: theory 4.1 to 4.3 and 5.8; docs/proofs/dropouts.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor, fsum, log2, sqrt
from threading import Lock
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check, filters, individual, mechanisms
from almoner._arrays import Array, Library, Mask
from almoner._private import LEVELS, MARK
from almoner._uncopyable import OwnProcess, Uncopyable
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import Filter
from almoner.mechanisms import Gaussian, Mechanism, SampledGaussian, repeated
from almoner.training.correlated._kinds import square_root_series

Floats = NDArray[np.float64]


class Everybody:
    """Accounts without individual accounting: a step costs its worst case, charged to one public filter.

    Args:
        people: how many there are.
        public: the filter; None: nobody is charged and nobody refused, because something else counts.

    Guarantee: each person is charged the full sensitivity of every step, so the filter's guarantee holds for all.
    Source: theory.md statements 4.1 to 4.3; Feldman & Zrnic (2021), Algorithm 7.
    """

    def __init__(self, people: int, public: filters.Filter | None) -> None:
        self._people, self.budget = people, public

    def admits(self, step: Mechanism) -> bool:
        """True if the public filter has room; asking changes nothing."""
        return self.budget is None or self.budget.admits(step)

    def check(self, step: Mechanism) -> None:
        """Raise Unsupported where a step has no price; nothing is charged."""
        if self.budget is not None:
            self.budget.admits(step)
        elif not isinstance(step, Gaussian | SampledGaussian):
            raise Unsupported(f"{step!r} can't be counted beside Gaussian steps; nothing was released")

    def state(self) -> dict[str, Any] | None:
        """The state of the public filter; None without one."""
        return None if self.budget is None else self.budget.state()

    def allowance(self, step: Mechanism) -> Floats:
        """(n,) the sensitivity of the step, for each person; it is the same for several steps."""
        return np.full(self._people, repeated(step)[0].sensitivity)  # type: ignore[attr-defined]

    def charge(self, step: Gaussian | SampledGaussian, norms: Floats) -> NDArray[np.bool_]:
        """Charge the worst case once, or raise BudgetExceeded; (n,) private: who keeps to the sensitivity."""
        if self.budget is not None:
            self.budget.charge(step)
        return np.asarray((norms >= 0) & (norms <= step.sensitivity))


def ids_and_rows(people: object, records: int) -> tuple[list[Hashable], list[int]]:
    """(m,) ids in the order of appearance, and (records,) their numbers; ArgumentError where an id is missing."""
    listed: Any = people.tolist() if hasattr(people, "tolist") else people  # whole numbers as Python's own
    if isinstance(listed, str | bytes) or not isinstance(listed, Sequence):
        raise ArgumentError(f"people must be a list of ids, one for each record, not {type(people).__name__}")
    if len(listed) != records:
        raise ArgumentError("people must have an id for each record")
    listed = [_plain(each) for each in listed]
    rows: dict[Hashable, int] = {}
    for person in listed:
        if not isinstance(person, Hashable) or isinstance(person, float | bool) or person is None or person != person:
            raise ArgumentError("people must be whole numbers, texts or other hashable ids; none may be missing")
        rows.setdefault(person, len(rows))
    return list(rows), [rows[person] for person in listed]


def _plain(person: Any) -> Any:
    """Numbers of NumPy and PyTorch as Python's own: tensors of one number are different to Python."""
    if not hasattr(person, "item") or not hasattr(person, "shape"):
        return person
    return None if person.shape else person.item()  # several numbers are no id


def join_new(accounts: Filter, ids: Sequence[Hashable]) -> None:
    new = accounts.missing(ids)
    if new and accounts.has_shares:
        raise Unsupported("people: accounts with shares are opened by join(), with the share of each person who joins")
    accounts.join(new)


LOOKS = 100  # a report shows people's shares at about this many moments of the run
LOOKED_AT = 1024  # of about so many people, evenly spaced, where there are more than twice as many
USED_UP = 1 - 1e-6  # from this share on a budget counts as used up


class HolderReport:
    """The used part of each person's budget, and how many people still take part. PRIVATE: for the data holder.

    Fields (all private):
        shares: (n,) the share of each person's budget that is used, in [0, 1], in the order of the people.
        steps: (m,) the steps after which the accounts were looked at.
        active: (m,) how many people still had budget left after those steps.
        quantiles: (m, 6) quantiles of the shares after those steps, at the levels 5, 25, 50, 75, 95 and 100 %.

    Of thousands of people, ``active`` and ``quantiles`` are estimates from about 1,024 of them, evenly spaced.
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
    """Shares of budgets that are used, over so many steps, from those of some rows, ``used(rows)``; private."""

    def __init__(self, used: Callable[[slice], ArrayLike], steps: int, people: int) -> None:
        self._used, self._last_step, self._people = used, steps, people
        self._every, self._looked_at = max(1, steps // LOOKS), slice(0, None, max(1, people // LOOKED_AT))
        self._rows: list[tuple[int, int, NDArray[np.float64]]] = []

    def add(self, step: int) -> None:
        """Keep the quantiles after this step, if it is one of the moments that the report shows."""
        if step % self._every and step != self._last_step:
            return
        shares = self.shares(self._looked_at)
        active = round(float(np.mean(shares < USED_UP)) * self._people)
        self._rows.append((step, active, np.quantile(shares, LEVELS)))

    def shares(self, rows: slice = slice(None)) -> NDArray[np.float64]:
        """(n,) the share of each person's budget that is used, private; or of some rows."""
        return np.clip(np.asarray(self._used(rows), dtype=np.float64), 0.0, 1.0)

    def report(self) -> HolderReport:
        steps, active, quantiles = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        return HolderReport(self.shares(), steps, active, quantiles)


@dataclass(frozen=True)
class _Counter:
    steps: int
    sigma: float

    def __post_init__(self) -> None:
        _check.whole(1, steps=self.steps)
        _check.noise(sigma=self.sigma)


class Tree(_Counter):
    """A running count by a binary tree: each noisy node sums a block of steps, each count a few nodes.

    Args:
        steps: public, T >= 1.
        sigma: public, > 0. The standard deviation of each node's noise.

    Guarantee: all counts together cost a person who drops once at most what ``mechanism`` costs, the Gaussian
        mechanism of mu squared = (floor(log2 T) + 1) / sigma^2; a person who does not drop pays nothing.
    Source: theory 5.8; Chan, Shi & Song (2011); Dwork, Naor, Pitassi & Rothblum (2010), section 4.
    """

    @property
    def mechanism(self) -> mechanisms.Gaussian:
        """The price of a person's drop at most: all nodes that it can be in, floor(log2 T) + 1, as one mechanism."""
        return mechanisms.Gaussian(sigma=self.sigma, sensitivity=_root_above(int(self.steps).bit_length()))

    def standard_error(self, step: int) -> float:
        """Sigma times the root of the number of nodes: of the ones in the step's binary digits."""
        _check.within(1, self.steps, step=step)
        return self.sigma * sqrt(int(step).bit_count())

    def errors(self, noise: np.random.Generator) -> Iterator[float]:
        """One draw per step, for the node that ends there; a count is the sum of at most log2 T + 1 nodes."""
        nodes = [0.0] * int(self.steps).bit_length()
        for step in range(1, self.steps + 1):
            nodes[(step & -step).bit_length() - 1] = noise.normal(0.0, self.sigma)
            yield fsum(node for level, node in enumerate(nodes) if step >> level & 1)


class SquareRoot(_Counter):
    """A running count by the square root of the matrix of running sums: less noise than a tree at the same price.

    Args:
        steps: public, T >= 1.
        sigma: public, > 0. The standard deviation of the noise before it is correlated.

    Guarantee: all counts together cost a person who drops once at most what ``mechanism`` costs, the Gaussian
        mechanism of mu squared = (c_0^2 + ... + c_{T-1}^2) / sigma^2, c_k = binomial(2k, k) / 4^k: 2.5 / sigma^2 at
        100 steps, 4.7 / sigma^2 at 100,000; a person who does not drop pays nothing.
    Source: theory 5.8; Fichtenberger, Henzinger & Upadhyay (2023), https://arxiv.org/abs/2202.11205; for adaptive
        inputs Denisov et al. (2022), https://arxiv.org/abs/2202.08312, Thm 2.1.
    """

    @cached_property
    def _coefficients(self) -> NDArray[np.float64]:
        """c_0, ..., c_{T-1}: the first column of the square root."""
        return square_root_series(self.steps)

    @cached_property
    def _squares(self) -> NDArray[np.float64]:
        return np.cumsum(self._coefficients**2)

    @property
    def mechanism(self) -> mechanisms.Gaussian:
        """The price of a person's drop at most: the longest column of the square root, the first; rounded up."""
        # each coefficient is off by at most two units in the last place, its square by five
        square = fsum(self._coefficients**2) * (1 + 8 * 2.0**-53)
        return mechanisms.Gaussian(sigma=self.sigma, sensitivity=_root_above(square))

    def standard_error(self, step: int) -> float:
        """Sigma times the length of a row of the square root."""
        _check.within(1, self.steps, step=step)
        return self.sigma * sqrt(self._squares[step - 1])

    def errors(self, noise: np.random.Generator) -> Iterator[float]:
        """Each is a sum over all draws so far, which are stored."""
        draws = np.zeros(self.steps)
        for step in range(self.steps):
            draws[step] = noise.normal(0.0, self.sigma)
            yield float(draws[: step + 1] @ self._coefficients[step::-1])


def rounded(value: float, sigma: float) -> float:
    """A noisy number to about a millionth of the noise: the last digits of a sum may reveal the exact value."""
    grid = 2.0 ** (floor(log2(sigma)) - 20)
    return round(value / grid) * grid


def _root_above(square: float) -> float:
    """A float whose square, in exact arithmetic, is not below the number."""
    root = sqrt(square)
    while Fraction(root) ** 2 < Fraction(square):
        root = float(np.nextafter(root, np.inf))
    return root


@dataclass(frozen=True, slots=True)
class DropoutCount:
    """A noisy count of the people who have dropped out so far. Every field is public."""

    count: float
    standard_error: float
    price: mechanisms.Mechanism  # the price that was booked in each account for all counts


@dataclass(frozen=True, slots=True)
class ActiveAnswer:
    """The answer to "are at least so many people still active?". Every field is public."""

    still: bool
    price: mechanisms.Mechanism  # the price that was booked in each account for all answers


class StoppingAccounts(Uncopyable, ABC):
    """Accounts that people leave for good; the price of asking about them is booked in advance."""

    own_samples: bool  # true if drops may depend on a person's own past samples, as they do where bounds depend on them

    def __init__(
        self,
        people: individual.Filter,
        price: mechanisms.Mechanism,
        norm: float | bool,
        noise: np.random.Generator | None,
        least: float,
    ) -> None:
        if not isinstance(people, individual.Filter):
            raise ArgumentError(f"people={people!r} must be an individual.Filter")
        _check.between(0, 1, least=least)
        if not people.budget.admits(price):
            raise ArgumentError(f"people: {price!r} costs more than the whole budget {people.budget!r}")
        self._people, self._price, self._least = people, price, least
        self._noise, self.reproducible = np.random.default_rng() if noise is None else noise, noise is not None
        spent = people.spent()
        self._xp: Library = array_api_compat.array_namespace(spent)
        self._device = array_api_compat.device(spent)
        dtype = self._xp.bool if norm is True else self._xp.float64
        norms = self._xp.full((spent.shape[0],), norm, dtype=dtype, device=self._device)
        # a person who cannot pay is not counted, and never takes part; all others have paid before the first release
        self._inside: Mask = people.charge(price, norms)
        self._before_first = 0
        self._all_gather: Callable[[Any], list[Any]] = lambda value: [value]
        self._process = OwnProcess()
        self._lock = Lock()  # one step after another: a drop is counted once

    def __repr__(self) -> str:
        return f"training.stopping.{type(self).__name__}(price={self._price!r}, budget={self._people.budget!r})"

    @property
    def people(self) -> individual.Filter:
        """The accounts that are charged. PRIVATE."""
        return self._people

    @property
    def most(self) -> int | None:
        """The number of steps that the price is for; None: any number. Public."""
        return None

    @property
    def price(self) -> mechanisms.Mechanism:
        """The price that was booked in each account. Public."""
        return self._price

    @property
    @abstractmethod
    def answer(self) -> DropoutCount | ActiveAnswer:
        """The latest answer, as a frozen value. Public."""

    def close(self) -> individual.Filter:
        """The accounts, for other uses."""
        return self._people

    def begin_after(self, steps: int) -> None:
        """Charge so many steps to the accounts directly first; a person who is out after them is in the first count."""
        self._before_first = -1 if self.begun else steps

    @property
    def begun(self) -> bool:
        """True if a step was counted. Public."""
        return self._before_first < 0

    def undo(self) -> None:
        """Give back what was booked, before the first charge: nothing was asked, and nothing will be."""
        with self._lock:
            if self.begun:
                raise ArgumentError("an answer was released, and stays paid for: close() ends the counting")
            if self._people.refundable(self._price):
                self._people.refund(self._price, self._inside)
            self._inside = self._xp.zeros_like(self._inside)

    def among(self, gathered: Callable[[Any], list[Any]]) -> None:
        """Count the people of several processes, each of which holds the accounts of its own people; before any charge.

        ``Trainer.fit`` calls it; in a loop of your own, in every process. ``gathered`` gives every process's value,
        private, in one order, e.g. by ``torch.distributed.all_gather_object``. The first process's noise counts.
        """
        if len(set(gathered(self._terms()))) > 1:
            raise ArgumentError("group: the processes do not ask the same question; nothing was counted")
        self._all_gather = gathered

    def allowance(self, step: mechanisms.Mechanism) -> Array:
        """(n,) private: the most each may still contribute, without the booked price; of several steps, to each."""
        if self._before_first > 0:
            return self._people.allowance(step)
        one = mechanisms.repeated(step)[0]
        sensitivity, room = _sensitivity(one), self._people.allowance(one)
        staying = self._staying(sensitivity, room)
        allowance = room if step is one else self._people.allowance(step)
        return self._xp.where(staying, allowance, self._xp.zeros_like(allowance))

    def check(self, step: mechanisms.Mechanism) -> None:
        """Raise what ``charge`` would raise for a step, whoever is in it; nobody is charged."""
        if self._before_first <= 0:
            self._refuse_more()
            _sensitivity(step)
        self._people.check(step)

    def charge(self, step: mechanisms.Mechanism, norms: Array) -> Mask:
        """(n,) bool, private: charge each who is still in and can pay, see who drops out, and answer the question anew.

        A person who was refused, or could contribute less than the share ``least`` of the step's sensitivity, has
        dropped out for good. Norms are (n,) private, as for ``individual.Filter.charge``.

        Guarantee: no account exceeds its budget; if and when a person drops out follows from own data and past outputs.
        Source: theory 5.1, 5.2 and 5.8.
        """
        self._process.check(f"this {type(self).__name__}")
        with self._lock:
            if self._before_first > 0:
                active = self._people.charge(step, norms)
                self._before_first -= 1
                return active
            self._before_first = -1
            return self._charge(step, norms)

    def _charge(self, step: mechanisms.Mechanism, norms: Array) -> Mask:
        self._refuse_more()
        sensitivity = _sensitivity(step)
        staying = self._staying(sensitivity, self._people.allowance(step))
        norms = self._xp.asarray(norms, dtype=self._xp.float64, device=self._device)
        if tuple(norms.shape) != tuple(self._inside.shape):
            raise ArgumentError("norms must have one entry for each person who had an account when the counting began")
        norms = self._xp.where(staying, norms, self._xp.asarray(float("nan"), device=self._device))
        active: Mask = self._people.charge(step, norms)
        known = (norms >= 0) & (norms <= sensitivity)
        inside = staying & (active | ~known)  # NaN and the like: out of this step, but their budget is all there
        before, self._inside = self._inside, inside
        counts = int(self._xp.count_nonzero(before & ~inside)), int(self._xp.count_nonzero(inside))
        dropped, still_active = (sum(part) for part in zip(*self._all_gather(counts), strict=True))
        self._release(self._all_gather(self._noisy_answer(dropped, still_active))[0])
        return active

    def _staying(self, sensitivity: float, room: Array) -> Mask:
        if tuple(room.shape) != tuple(self._inside.shape):
            raise ArgumentError("people: nobody may join while drops are counted")
        return self._inside & (room >= self._least * sensitivity)

    def _refuse_more(self) -> None:
        """Raise where no further step is possible."""

    @abstractmethod
    def _terms(self) -> str:
        """The question's terms, public: equal in every process."""

    @abstractmethod
    def _noisy_answer(self, dropped: int, active: int) -> float:
        """Something to release about this step's numbers, which are private."""

    @abstractmethod
    def _release(self, answer: float) -> None:
        """Keep the answer, which is public: that of the first process."""


def _sensitivity(step: mechanisms.Mechanism) -> float:
    """The most that a person can contribute to a step; refuses a step in which all contribute the same."""
    sensitivity: float | None = getattr(step, "sensitivity", None)
    if not isinstance(step, mechanisms.Mechanism) or sensitivity is None:
        raise Unsupported(f"step={step!r} must be a mechanism with a sensitivity")
    return sensitivity
