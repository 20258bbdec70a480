"""The books of a run: where people pay, and the one place where noisy values are released.

A book checks a release, announces it in the run's folder, has people charged, tells the observers what each person
contributed, counts the release and draws the noise; in this order: accounts or folder always know of all releases.

Source: theory 5.1; what was announced counts as spent
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from almoner import _audit_hook, mechanisms
from almoner._arrays import Array, Mask
from almoner._uncopyable import OwnProcess
from almoner.errors import ArgumentError, BudgetExceeded, DataError, Unsupported
from almoner.individual import AccountsPerPerson, Filter, Losses
from almoner.individual import Odometer as PersonOdometer
from almoner.mechanisms import Gaussian, Mechanism, SampledGaussian
from almoner.training._accounts import Everybody, StoppingAccounts, join_new
from almoner.training._card import Boundary
from almoner.training._on_ledger import LedgerStream
from almoner.training._run.run import CurrentState, TrainingState
from almoner.training._run.samplings import Sums, Turnout
from almoner.training._run.settings import check_price, fresh_odometer

T = TypeVar("T")
Floats = NDArray[np.float64]
Contribute = Callable[[AccountsPerPerson], Sums]
Draw = Callable[[Sums, float, Any], Sums]
"""Gives private sums plus one draw of noise of a standard deviation, from rows of correlated noise where there are."""

GATES = "must make Dropouts or StillActive of the accounts that it is given"


def publish(release: Callable[[], T], *, exact: object, mechanism: object, part: _audit_hook.Part | None = None) -> T:
    """Release an exact private value with noise, where an audit sees it; ``part``: of calls that are one mechanism."""
    return _audit_hook.released(release, exact=exact, mechanism=mechanism, part=part)


class Counts:
    """Losses that count each person's contributions, for epsilons that are computed afterwards."""

    name = "losses"

    def __init__(self, losses: Losses) -> None:
        self.losses = losses

    def check(self, step: Mechanism) -> None:
        countable(step)

    def most(self, step: Mechanism) -> float:
        return countable(step).sensitivity

    def count(self, step: Mechanism, given: Floats, ids: Sequence[Hashable] | None) -> None:  # noqa: ARG002 - by row
        self.losses.record(countable(step), given)

    def state(self) -> dict[str, Any]:
        return self.losses.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self.losses.merge(Losses.from_state(dict(state)))


class Bounds:
    """Running bounds: one for each person, charged for what that person contributes; or one for the worst case.

    Args:
        odometer: fresh.
        people: the number of people, or their ids; None: one public bound for all.
    """

    name = "odometer"

    def __init__(self, odometer: Boundary, people: int | Sequence[Hashable] | None) -> None:
        self._fresh = fresh_odometer(odometer)
        self.odometer: PersonOdometer | Boundary
        self.odometer = odometer.fresh() if people is None else PersonOdometer(people, self._fresh)

    def check(self, step: Mechanism) -> None:
        self.most(step)
        self.odometer.check(step)

    def most(self, step: Mechanism) -> float:
        """The sensitivity of a step, where there is a bound for each person."""
        return countable(step, by="odometer").sensitivity if isinstance(self.odometer, PersonOdometer) else 0.0

    def count(self, step: Mechanism, given: Floats, ids: Sequence[Hashable] | None) -> None:
        if not isinstance(self.odometer, PersonOdometer):
            self.odometer.charge(step)
            return
        if ids is not None:
            self.odometer.join(self.odometer.missing(ids))
        self.odometer.charge(step, given, ids)

    def state(self) -> dict[str, Any]:
        return self.odometer.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from the bounds of a folder; raises ArgumentError where they are not those of the same odometer."""
        personal = isinstance(self.odometer, PersonOdometer)
        if ("boundary" in state) != personal or not _same(state.get("boundary", state), self._fresh.state()):
            raise ArgumentError(f"resume: the folder's bounds are not those of odometer={self._fresh!r}")
        self.odometer = type(self.odometer).from_state(dict(state))


Observer = Counts | Bounds
"""Is told by a book what each person contributed, (n,), 0 for those left out. PRIVATE where it is per person."""


@dataclass(eq=False, repr=False)
class Opened:
    """The accounts of those who are in one release, until it is recorded. Private.

    By ``ids`` (n,) nobody else is charged or looked at; ``people`` are the same for observers, also without accounts.
    """

    _accounts: Any
    _: KW_ONLY
    ids: Sequence[Hashable] | None = None
    people: Sequence[Hashable] | None = None
    observers: Sequence[Observer] = ()
    before: Callable[[], object] = lambda: None
    paid: bool = False  # for this release, or with an earlier one
    given: list[tuple[Mechanism, Floats]] = field(default_factory=list)
    """The charges, and what each who was admitted contributed, (n,), else 0; where somebody observes."""

    @property
    def _whose(self) -> tuple[Sequence[Hashable], ...]:
        return () if self.ids is None else (self.ids,)

    def allowance(self, step: Mechanism) -> Array:
        """(n,) the largest norm that each person may still contribute."""
        return cast(Array, self._accounts.allowance(step, *self._whose))

    def charge(self, step: Mechanism, norms: Array, *, sample: Array | None = None) -> Mask:
        """(n,) or (k,) bool: charge each person; who, or who of a sample, takes part. Unsupported: it has no price."""
        check_price(self._accounts, step)
        for observer in self.observers:
            observer.check(step)
        self.before()
        later = not self.observers and self.ids is None and isinstance(self._accounts, Filter)
        among = {"sample": sample} if sample is not None and later else {}
        active: Mask = self._accounts.charge(step, norms, *self._whose, **among)
        self.paid = True
        if self.observers:
            self.given.append((step, np.where(np.asarray(active), np.asarray(norms, dtype=np.float64), 0.0)))
        return active if sample is None or among else active[sample]

    def refuse_unpaid(self) -> None:
        """Raise Unsupported where nobody was charged; nothing may be released."""
        if not self.paid:
            raise Unsupported("sampling: contribute must call accounts.charge(step, norms); nothing was released")

    def count(self) -> None:
        for charged, given in self.given:
            for observer in self.observers:
                observer.count(charged, given, self.people)


class _Book:
    """Observers, the count of releases, the folder and the noise of a run: what both books keep."""

    def __init__(
        self,
        current: CurrentState,
        draw: Draw | None,
        observers: Sequence[Observer],
        folder: Any = None,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self.current, self._draw, self.observers = current, draw, tuple(observers)
        self.folder, self.before = folder, before

    def check_observed(self, step: Mechanism) -> None:
        for observer in self.observers:
            observer.check(step)

    def record(self, step: Mechanism, opened: Opened) -> None:
        opened.count()
        self.current.add_release(step)

    def state(self) -> dict[str, Any]:
        """Counts of the observers; a ledger's accounts are its own. PRIVATE."""
        return {"accounts": None, "observers": {each.name: each.state() for each in self.observers}}

    def odometer(self) -> Any:
        """The running bounds, or None. PRIVATE where they are per person."""
        return next((each.odometer for each in self.observers if isinstance(each, Bounds)), None)


class MemoryBook(_Book):
    """Accounts in memory, by row or by id: a run's own, the caller's, one worst case for all, none, or held ones.

    Args:
        accounts: private.
        current: the state of the run, where releases are counted; None: one of its own.
        draw: gives sums plus noise; None: somebody else draws it, after ``record``.
        people: the number of people, private; by id, whoever is there.
        observers: told what each person contributes.
        folder: where a release is announced before people are charged, or None.
        by_id: whether each release says by ids who is in it; people who never came before get an account.
        before: called before anybody is charged, and before noise is drawn.

    Guarantee: when a release returns or raises, the folder or the accounts know of all that was released.
    Source: theory 5.1; what was announced counts as spent.
    """

    def __init__(
        self,
        accounts: Any,
        current: CurrentState | None = None,
        draw: Draw | None = None,
        *,
        people: int = 0,
        observers: Sequence[Observer] = (),
        folder: Any = None,
        by_id: bool = False,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        current = current or CurrentState(TrainingState(max_grad_norm=0.0, noise_multiplier=0.0))
        super().__init__(current, draw, observers, folder, before)
        self.accounts, self._people, self._by_id, self._process = accounts, people, by_id, OwnProcess()
        self.gate: Any = None  # accounts in front of these, which steps are charged through; questions are not
        self.refused: BudgetExceeded | None = None  # the refusal of this run's own budget, if there was one

    def check(self, step: Mechanism, *, gated: bool = True) -> None:
        """Raise Unsupported where anybody cannot price or count a release; nobody is charged."""
        check_price(self.gate if gated and self.gate is not None else self.accounts, step)
        self.check_observed(step)

    def open(self, step: Mechanism, ids: Sequence[Hashable] | None = None, *, gated: bool = True) -> Opened:
        """Check and announce a release; the accounts of those who are there, to be charged.

        For loops that are not ours; then ``record``, before the noise is shown.

        Args:
            step: public. What will be released.
            ids: (n,) who is there, private, in a book by id; else None, and everybody is there.
            gated: whether it is a step, not a question.
        """
        self._process.check("this run")
        if not self._by_id and ids is not None:
            raise ArgumentError("ids: this book is by row; make it with by_id=True and accounts by id")
        self.check(step, gated=gated)
        accounts = self.gate if gated and self.gate is not None else self.accounts
        named = ids
        if named is not None:
            if self.folder is not None:
                self.folder.check_ids(named)
            if isinstance(accounts, Filter):
                join_new(accounts, named)
            else:  # there is no budget
                accounts, named = Everybody(len(named), None), None
        if self.folder is not None:
            self.folder.announce(step, ids)
        return Opened(accounts, ids=named, people=ids, observers=self.observers, before=self.before)

    def release(
        self, step: Any, turnout: Turnout, contribute: Contribute, *, rows: Any = None, gated: bool = True
    ) -> Sums:
        """Check a release, announce it, have people charged for it, and give the noisy sums, which are public.

        Args:
            step: public. Its sigma is the noise on each entry of the sums.
            turnout: who is there.
            contribute: charges the accounts that it is given, and gives the private sums.
            rows: the noise of this release; None: fresh and independent.
            gated: whether it is a step, not a question.
        """
        if (draw := self._draw) is None:
            raise Unsupported("this book draws no noise: open and record are for loops that do; nothing was charged")
        opened = self.open(step, turnout.ids, gated=gated)
        try:
            sums = contribute(opened)
        except BudgetExceeded as refused:
            self.refused = refused
            raise
        opened.refuse_unpaid()
        self.before()
        self.record(step, opened)
        part = None if rows is None else rows.part()
        return publish(lambda: draw(sums, step.sigma, rows), exact=sums, mechanism=step, part=part)

    def put_in_front(
        self, counting: Callable[[Any], Any], named: str, check: Callable[[StoppingAccounts], object]
    ) -> StoppingAccounts:
        """Charge steps through accounts made of these, which have booked their price in each; given back if refused."""
        gate = counting(self.accounts)
        if not isinstance(gate, StoppingAccounts):
            raise ArgumentError(f"{named} {GATES}")
        try:
            if gate.people is not self.accounts:
                raise ArgumentError(f"{named} {GATES}")
            check(gate)
            self.check_observed(gate.price)
        except BaseException:
            gate.undo()
            raise
        self.gate = gate
        self.current.add_release(gate.price)
        self.count_worst_case(gate.price)
        return gate

    def admits(self, mechanism: Mechanism) -> bool:
        """True if the public filter has room; with accounts per person always, because each is judged by itself."""
        return not isinstance(self.accounts, Everybody) or self.accounts.admits(mechanism)

    def count_worst_case(self, mechanism: Mechanism, ids: Sequence[Hashable] | None = None) -> None:
        """Have the observers count as much for each person as the mechanism allows."""
        many = len(ids) if ids is not None else self._people
        for observer in self.observers:
            observer.count(mechanism, np.full(many, observer.most(mechanism)), ids)

    def write_off(
        self, mechanism: Mechanism, ids: Sequence[Hashable] | None = None, norms: Floats | None = None
    ) -> None:
        """Charge people as much as a mechanism can have cost, or all that is left, after a crash.

        By ids, or everybody; at most the norms, (n,), or the sensitivity.
        """
        self.count_worst_case(mechanism, ids)
        if isinstance(self.accounts, Everybody):
            with suppress(BudgetExceeded):  # then it was refused before the crash, too
                self.accounts.charge(mechanism, np.zeros(1))  # type: ignore[arg-type]  # it was a step
        elif isinstance(self.accounts, Filter):
            if ids is not None:
                self.accounts.join(self.accounts.missing(ids))
            self.accounts.write_off(mechanism, norms, people=ids)

    def state(self) -> dict[str, Any]:
        """The accounts, and what the observers counted. PRIVATE."""
        return super().state() | {"accounts": self.accounts.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from the accounts and counts of a folder; DataError where they are damaged.

        Raises ArgumentError where they are of another budget, or something else was counted.
        """
        saved, own = state["accounts"], self.accounts
        if (own.budget is None) != (saved is None):
            raise ArgumentError("budget: what began with a budget of its own goes on with it, and nothing else does")
        if saved is not None:
            personal = isinstance(own, Filter)
            budget = own.budget.state() if personal else own.state()
            if ("budget" in saved) != personal or not _same(saved.get("budget", saved), budget):
                raise ArgumentError(f"resume: the folder's accounts do not hold the budget {own.budget!r}")
            try:
                self.accounts = (
                    Filter.from_state(saved) if personal else Everybody(self._people, own.budget.from_state(saved))
                )
            except (TypeError, KeyError, ValueError) as damaged:
                raise DataError("folder: its accounts are damaged; nothing was changed") from damaged
        load_observers(self.observers, state["observers"])

    def shares(self, rows: Any = None) -> Floats:
        """(n,) the share of each person's budget that is used, or of some rows. PRIVATE."""
        if self.accounts.budget is None:
            raise ArgumentError("shares: this run has no budget; read trainer.odometer")
        if isinstance(self.accounts, Everybody):
            raise ArgumentError("individual=False: all are charged the worst case, so there are no shares to show")
        return cast(Floats, self.accounts.used(rows))


class LedgerBook(_Book):
    """The accounts of a stream on a ledger: each release is one transaction there, and a folder keeps its sums before.

    Observers are told once the ledger has charged; by ``spread`` each pays at most one part in so many of what is left.

    Guarantee: that of ``LedgerStream.release``.
    Source: theory 5.1; docs/proofs/one-account.md, "Streams".
    """

    accounts = refused = None

    def __init__(
        self,
        stream: LedgerStream,
        current: CurrentState,
        draw: Draw,
        *,
        observers: Sequence[Observer] = (),
        spread: int = 1,
    ) -> None:
        super().__init__(current, draw, observers)
        self._stream, self._spread, self._add_noise = stream, spread, draw

    check = _Book.check_observed

    def release(self, step: Any, turnout: Turnout, contribute: Contribute, *, rows: Any = None) -> Sums:
        """Charge the people on the ledger, then give the noisy sums; Unsupported: an update before was not followed."""
        if self._stream.number != self.current.value.step:
            cure = (
                "go on from the folder, with training.RunFolder(path, resume=True) in a new Stream, or with "
                "LogisticRegression.resume(path, ledger=...)"
            )
            if self.folder is None:
                cure = "it had no folder to go on from: begin another one, under another key"
            raise Unsupported(f"an update of this stream was interrupted after the ledger had charged it: {cure}")
        self.check(step)
        last: list[Opened] = []

        def again(accounts: Filter) -> Sums:
            last[:] = [Opened(accounts, people=turnout.ids, observers=self.observers)]
            sums = contribute(last[0])
            last[0].refuse_unpaid()
            return sums

        def drawn(sums: Sums) -> Sums:
            self.before()
            return publish(lambda: self._add_noise(sums, step.sigma, rows), exact=sums, mechanism=step)

        def keep(number: int, noisy: Sums) -> None:
            if self.folder is not None:
                update = {"noisy": noisy, "divisor": turnout.divisor, "rate": turnout.rate, "key": turnout.key}
                given = [[mechanisms.to_fields(charged), each] for charged, each in last[0].given]
                self.folder.keep(update | {"given": given, "ids": list(turnout.ids or ())}, number)

        try:
            return self._stream.release(step, turnout.ids or (), again, drawn, spread=self._spread, keep=keep)
        finally:
            if self._stream.number > self.current.value.step:  # charged, also where something was raised since
                self.record(step, last[0])

    def record_kept(self, step: Mechanism, given: Sequence[tuple[Mapping[str, Any], Floats]], ids: Any) -> None:
        """As ``record``, for an update that a folder kept."""
        opened = Opened(None, people=ids, observers=self.observers)
        opened.given = [(mechanisms.from_fields(charged), each) for charged, each in given]
        self.record(step, opened)

    def load(self, state: Mapping[str, Any]) -> None:
        if state["accounts"] is not None:
            raise ArgumentError("budget: what began with a budget of its own goes on with it, and nothing else does")
        load_observers(self.observers, state["observers"])

    def write_off(self, mechanism: Mechanism, ids: Any = None, norms: Any = None) -> None:
        """Nothing is announced in the folder of a stream on a ledger, which knows what was charged."""


def load_observers(observers: Sequence[Observer], saved: Mapping[str, Any]) -> None:
    """Have observers go on from their states, by name; raises ArgumentError where something else was counted."""
    for name in {each.name for each in observers} ^ set(saved):
        raise ArgumentError(f"{name}: as the folder's run did, watch it or do not")
    for each in observers:
        each.load(saved[each.name])


def countable(mechanism: Mechanism, *, by: str = "losses") -> Gaussian | SampledGaussian:
    if not isinstance(mechanism, Gaussian | SampledGaussian):
        raise Unsupported(f"{by}: {mechanism!r} can't be counted beside Gaussian steps; nothing was released")
    return mechanism


def _same(*states: Mapping[str, Any]) -> bool:
    """True if saved filters or odometers make one promise; the first charge may have set the share for failures."""
    one, other = (
        (each.get("filter"), each.get("odometer"), {**each["parameters"], "sum_delta": None}) for each in states
    )
    return one == other
