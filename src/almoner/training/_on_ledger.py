"""A training on a ledger reserves what it may cost each person, and settles; each update of a stream is charged there.

The ledger keeps the accounts of a stream, which keeps none: each update is one transaction there, and has a number.
With a folder, the noisy sums of an update are kept there before the transaction is completed, so that after a crash the
ledger says if the update was made, and the folder which.

Names and symbols
    per       how many units of the training's budget are one unit of the ledger's: mu squared is two rho
    share     in (0, 1], private: the part of the training's budget that was reserved for a person
    most      (n,) units of the ledger that each person may pay for an update; private
    paid      (n,) units that each person pays; private

Source: theory 5.1 to 5.3, 5.10, 5.12; docs/proofs/one-account.md
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from math import inf, nextafter, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner import _check, _notions, filters
from almoner._arrays import to_numpy
from almoner._uncopyable import Uncopyable
from almoner._units import to_float
from almoner.errors import AlmonerError, ArgumentError, Unsupported
from almoner.individual import BudgetStatement, Filter
from almoner.ledger import Consumer, Ledger, new_claim, on_a_server
from almoner.mechanisms import Gaussian
from almoner.training._card import Card


@dataclass(frozen=True, slots=True)
class OnLedger:
    """The ledger that a training is charged to: the budget of a ``Trainer`` or a ``Stream``, ``ledger=`` of estimators.

    Args:
        ledger: open, e.g. ``session.ledger``, or where it is: then it is open while the training runs.
        key: a name for the training, as for a question. Public.
        analyst, purpose: whose limits on the ledger hold for the training. Public.
        dataset: which of the ledger's data sets it is about, for the record and statements. Public. Whether the records
            are those of that table is not checked: a training has arrays, and ids that say who is who.
        at_most: what a Trainer may cost each person at most: a fresh filter, or ``Target(epsilon, delta)``. Public.

    Guarantee: before the training begins, the most that it can cost each person is reserved there: its own budget, or
        what this person has left. What it spends is charged at the end and the rest given back, so that all trainings
        and questions of the ledger together keep within each person's one budget, or that of each period.
    Source: theory 5.12, 5.10; docs/proofs/one-account.md.
    """

    ledger: Ledger | Path | str
    key: str
    analyst: str = "training"
    purpose: str | None = None
    dataset: str | None = None
    at_most: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.ledger, Ledger | Path | str):
            raise ArgumentError("ledger must be an open ledger, or where it is")
        _check.name(key=self.key, analyst=self.analyst)
        _check.given(_check.name, purpose=self.purpose)

    def consumer(self, ledger: Ledger, **claimed: Any) -> Consumer:
        """The consumer of this name on the ledger, which is open; with its claims, and what the record says of it."""
        whose: dict[str, Any] = {"analyst": self.analyst, "purpose": self.purpose, "dataset": self.dataset}
        return Consumer(ledger, key=self.key, **whose, **claimed)

    def opened(self) -> tuple[Ledger, bool]:
        """The ledger, open, and whether it was opened here."""
        return (self.ledger, False) if isinstance(self.ledger, Ledger) else (Ledger.open(self.ledger), True)

    def named(self, ids: Sequence[object]) -> Sequence[object]:
        """Names of people as the ledger keeps them: the same for all spellings of a person. Private."""
        ledger, opened = self.opened()
        with ledger if opened else nullcontext():
            return ledger.people(ids)

    def of_process(self, name: str) -> "OnLedger":
        """This ledger for one of several processes, each of which is a training there of its own people."""
        if name and not (isinstance(self.ledger, Ledger) or on_a_server(self.ledger)):
            raise Unsupported(
                "ledger: a file is open in one process at a time: with group=, a ledger on a server, "
                f"OnLedger('postgresql://server/database', {self.key!r})"
            )
        return replace(self, key=self.key + name)

    def whole(self) -> Any:
        """The budget of a Trainer on this ledger; raises ArgumentError where there is none."""
        if self.at_most is None:
            raise ArgumentError(
                "budget=OnLedger(...): say what the training may cost each person at most: "
                f"OnLedger(ledger, {self.key!r}, at_most=filters.Gaussian(epsilon=0.5, delta=1e-6))"
            )
        return self.at_most

    def refuse(self, **refused: object) -> None:
        """Refuse what is not done together with a ledger: by name, each must be None or False."""
        for name, value in refused.items():
            if value is not None and value is not False:
                raise Unsupported(f"{name} is not done together with ledger=")


def reserve_on_ledger(
    on: OnLedger | None,
    ids: Sequence[object] | None,
    budget: filters.Filter | None,
    count: int,
    *,
    folder: Any = None,
    begun: bool = False,
    ended: Sequence[Any] | None = None,
) -> "LedgerRun | None":
    """The reservation of a run on its ledger, whose claims a folder keeps; None where it is on no ledger.

    ``ended``: the parameters in the folder of a run that is over, public: if it is settled, it may be read again.

    Raises ArgumentError where it was on one and goes on without, or ids, (count,) private, are not those of the people.
    """
    if on is None or budget is None:
        if ids is not None or (folder is not None and folder.claims()):
            raise ArgumentError("ids name people on a ledger, which is missing; what began on a ledger goes on there")
        return None
    if ids is None or len(ids) != count:
        raise ArgumentError("ids must say who each person is, in the order of their numbers in people")
    if folder is None:
        return LedgerRun(on, ids, budget)
    earlier, claim = folder.claims(), new_claim()
    folder.claim(claim)
    run = LedgerRun(on, ids, budget, claim=claim, earlier=earlier, begun=begun, ended=ended)
    folder.confirm = lambda: run.renew(folder)
    return run


class LedgerRun(Uncopyable, AbstractContextManager["LedgerRun"]):
    """One training on a ledger, from what is reserved to what is settled. Private, but for the budget of each person.

    ``ids`` name each account once, as the ledger does; ``claim`` is of this process, and ``earlier`` are those before
    it: None and empty where the training cannot be resumed. ``begun``: it has released something, of which the ledger
    must know. Raises Unsupported where the ledger has no price for the budget, and as ``ledger.Consumer.reserve``.

    Guarantee: whatever else is charged to the ledger, before, meanwhile or afterwards, all of it together with this
        training keeps within each person's budget of the ledger.
    Source: theory 5.12, 5.10; docs/proofs/one-account.md.
    """

    def __init__(
        self,
        on: OnLedger,
        ids: Sequence[object],
        budget: filters.Filter,
        *,
        claim: str | None = None,
        earlier: Collection[str] = (),
        begun: bool = False,
        ended: Sequence[Any] | None = None,
    ) -> None:
        self._budget, self._resumable = budget, claim is not None
        self._ledger, self._owned = on.opened()
        self._accounts: Filter | None = None
        try:
            self._units_per_ledger_unit, delta = _measured(budget, self._ledger)
            (self._limit,) = budget.notion.person_limits()
            if begun and self._ledger.find(on.key) is None:
                raise ArgumentError(
                    f"key={on.key!r}: this ledger knows of no such training, which has released something: it is "
                    "another ledger or an older copy of it, or the training had another number of processes"
                )
            self._hold = on.consumer(self._ledger, claim=claim, earlier=earlier, described={"budget": repr(budget)})
            self._hold.reserve(
                ids, -(-self._limit // self._units_per_ledger_unit), delta=delta, ended=ended is not None
            )
            self.settled = self._hold.settled
            if self.settled and digest(ended or ()) != self._ledger.consumers[on.key].model:
                raise ArgumentError(f"key={on.key!r}: it is settled, not with the model of this folder: give its own")
        except BaseException:
            self._close()
            raise

    def on_card(self, card: Card) -> Card:
        """A model's card with the training's name, and number and hash of the entry that reserved. Public."""
        return card.on_ledger(f"training {self._hold.key!r}, entry {self._hold.record}", self._ledger.periods)

    @property
    def delta(self) -> float:
        """At which the budget is stated: its own, or else the ledger's. Public."""
        return self._budget.delta or self._ledger.terms.delta or 1e-6

    def accounts(self, saved: Filter | None = None) -> Filter:
        """Accounts to charge, fresh or a folder's; ArgumentError where its budgets are not what was reserved."""
        shares = self._shares()
        if saved is None:
            self._accounts = Filter(len(shares), self._budget.fresh(), shares=shares)
        else:
            state = saved.state()
            if not (self.settled or np.array_equal(state.get("shares", ()), shares)):
                raise ArgumentError("ledger: it reserved other budgets than the folder's")
            self._accounts = Filter.from_state(state)
        self._accounts.charge_within(self._hold, whole=self._ledger.periods is None)
        return self._accounts

    def renew(self, folder: Any) -> None:
        """Put a new claim in force before each release; LedgerError, and no release, where another has gone on."""
        claim = new_claim()
        with self._hold.lock:
            folder.claim(claim, after=self._hold.claim)
            self._hold.renew(claim)

    def settle(self, card: Card | None, model: Sequence[Any]) -> None:
        """End the training: people remain charged what their accounts were, and have the rest back.

        The record knows the model, public, by a digest of its arrays; the card is None where an error ended it.

        Guarantee: each person remains charged at least what the training cost that person.
        Source: theory 5.12; docs/proofs/one-account.md.
        """
        outcome: dict[str, object] = {"model": None, "outcome": "an error"}
        if card is not None:
            told = {"epsilon": card.epsilon, "delta": card.delta, "steps": card.steps, "sigma": card.sigma}
            outcome = {"model": digest(model), "outcome": told}
        with self._hold.lock:
            charged = 0 * self._hold.units if self._accounts is None else self._accounts.charged_units()
            if not self.settled:
                units = -(-charged // self._units_per_ledger_unit)
                self._hold.settle(np.minimum(units, self._hold.units), public=outcome)

    def __exit__(self, *_: object) -> None:
        """Close the ledger, if it was opened here. What ended by an error and cannot go on is settled as it is."""
        if not self._resumable and not self._hold.settled:
            with suppress(AlmonerError):
                self.settle(None, [])
        self._close()

    def _close(self) -> None:
        if self._owned:
            self._ledger.close()

    def _shares(self) -> NDArray[np.float64]:
        """(n,) in (0, 1]: the part of the training's budget that was reserved for each person, rounded down."""
        units = np.minimum(self._hold.units.astype(object) * self._units_per_ledger_unit, self._limit).astype(np.int64)
        shares = np.where(units == self._limit, 1.0, np.minimum(units.astype(np.float64) / self._limit, 1 - 2.0**-53))
        return np.where(units == 0, 0.25 / self._limit, shares)  # a share that is not a unit


def _measured(budget: filters.Filter, ledger: Ledger) -> tuple[int, float]:
    """The units of the budget that are one of the ledger's, and the price in delta besides; Unsupported: no theorem."""
    measure = ledger.measure
    if isinstance(budget, filters.Gaussian) and measure in ("zCDP rho", "Gaussian rho"):
        return 2, 0.0
    if isinstance(budget, filters.Zcdp) and measure == "zCDP rho":
        return 1, 0.0
    if isinstance(budget.notion, _notions.Residue) and measure == "Gaussian rho":
        return 2, budget.notion.slack
    wanted = {
        "zCDP rho": "filters.Gaussian or filters.Zcdp, of steps on all people, or on fixed batches",
        "Gaussian rho": "filters.Gaussian, or filters.Residue for sampled steps",
    }
    what = wanted.get(measure)
    if what is None:
        raise Unsupported(f"ledger: it counts {measure}, in which Gaussian noise has no price: use another ledger")
    raise Unsupported(f"budget={budget!r}: this ledger counts {measure}, which needs {what}")


def digest(arrays: Sequence[Any]) -> str:
    """SHA-256 over the numbers of a model, by which the record knows it. Public."""
    sum_ = sha256()
    for array in arrays:
        values = np.ascontiguousarray(to_numpy(array))
        sum_.update(f"{values.dtype} {values.shape}".encode() + values.tobytes())
    return sum_.hexdigest()


Units = NDArray[np.int64]


class LedgerStream(Uncopyable):
    """The accounts of one stream: a ledger's. Private, but for two fields.

    ``budget`` is what the ledger promises everybody, as a filter that charges nobody; ``whole`` the same in rho, in
    which the accounts of one update are counted. Raises Unsupported where something that is refused was given beside
    the ledger, or Gaussian noise has no price in its measure.
    """

    def __init__(self, on: OnLedger, **refused: object) -> None:
        on.refuse(**refused)
        self.on = on
        self._ledger, self._owned = on.opened()
        self._begun: Consumer | None = None
        try:
            self.budget = _budget(self._ledger)
        except BaseException:
            self.close()
            raise
        self.whole = filters.Zcdp(rho=self._ledger.budget)  # in which accounts of one update are counted

    def begin(self, described: Mapping[str, object], folder: Any, number: int) -> dict[str, Any] | None:
        """Begin the stream on the ledger, or go on with it, after so many updates as the folder's state has seen.

        ``described``, public, is for the record. Returns the one update more, private, that the folder keeps and the
        ledger charged before a crash: follow it first. Raises ArgumentError as ``ledger.Consumer.begin``.
        """
        now = self._ledger.consumers.get(self.on.key)
        charged = None if now is None or now.last is None else (now.updates, now.last["released"])
        kept = None if folder is None else folder.kept(number + 1)
        if kept is not None and charged != (number + 1, digest(kept["noisy"])):
            kept = None  # it was never charged, so it is not released
        claim = new_claim() if folder is None else folder.own_claim()
        consumer = self.on.consumer(self._ledger, claim=claim, described=described)
        self._begun = consumer.begin(number + (kept is not None))
        return kept

    def on_card(self, card: Card) -> Card:
        """A model's card with the stream's name and the entry that began it. Public."""
        return card.on_ledger(f"stream {self.on.key!r}, entry {self._stream.record}", self._ledger.periods)

    def release(
        self,
        step: Gaussian,
        ids: Sequence[Hashable],
        contribute: Callable[[Filter], list[Any]],
        publish: Callable[[list[Any]], list[Any]],
        *,
        spread: int,
        keep: Callable[[int, list[Any]], None],
    ) -> list[Any]:
        """Charge the people who are there, (n,) private, on the ledger, and give the noisy sums once they are charged.

        ``contribute`` gets accounts of these people, charges them, and gives the private sums; again, where somebody
        else charged the ledger meanwhile. ``publish`` adds fresh noise. With ``spread``, public, each pays at most one
        part in so many of what is left. ``keep`` gets number and noisy sums before the transaction ends.

        Guarantee: when this returns, the ledger has charged each person what the release costs that person, and has the
            release on record; when it raises, nothing was released, or the ledger says that it was.
        Source: theory 5.1; docs/proofs/one-account.md, "Streams".
        """
        sums: list[Any] = []
        noisy: list[Any] = []

        def charged(most: Units) -> Units:
            accounts = Filter.with_left(self.whole, most)
            sums[:] = contribute(accounts)
            return accounts.charged_units()

        def drawn() -> dict[str, object]:
            noisy[:] = publish(list(sums))
            keep(self._stream.number + 1, noisy)
            return {"sigma": step.sigma, "sensitivity": step.sensitivity, "released": digest(noisy)}

        self._stream.update(ids, self._price(step), pace=spread, contribute=charged, release=drawn)
        return noisy

    def statement(self, person: Hashable, *, delta: float | None) -> BudgetStatement:
        """The statement of one person's budget on the ledger. Private."""
        ledger = self._ledger
        stated = ledger.stated_delta if delta is None else delta
        set_aside = sum(int(entry.public["units"]) for entry in ledger.watched())
        used = min(1.0, nextafter((ledger.spent(person) + set_aside) / ledger.budget_units, inf))
        return BudgetStatement(person, used, ledger.lifetime(stated), stated, ledger.meaning().guess())

    def close(self) -> None:
        if self._owned:
            self._ledger.close()

    @property
    def number(self) -> int:
        """The number of updates that the ledger has charged. Public."""
        return self._stream.number

    def refuse_used_key(self) -> None:
        """Refuse a key that the ledger knows, where there is nothing to go on from; before anything is written."""
        self.on.consumer(self._ledger).refuse_used_key()

    @property
    def _stream(self) -> Consumer:
        if self._begun is None:
            raise Unsupported("the stream has not begun")
        return self._begun

    def _price(self, step: Gaussian) -> int:
        """Units, the most that a person pays for a step."""
        accounts = Filter.with_left(self.whole, np.array([self._ledger.budget_units]))
        accounts.charge(step, accounts.allowance(step))
        return max(1, int(accounts.charged_units().max()))


def _budget(ledger: Ledger) -> filters.Gaussian | filters.Zcdp:
    """The bound of all that a ledger pays for, charged nowhere; Unsupported: Gaussian noise has no price there."""
    epsilon, delta, rho = ledger.terms.epsilon, ledger.terms.delta, to_float(ledger.budget_units)
    if ledger.measure == "Gaussian rho":
        if epsilon is not None:
            return filters.Gaussian(epsilon=epsilon, delta=delta)
        return filters.Gaussian(mu=nextafter(sqrt(2 * rho), inf))
    if ledger.measure == "zCDP rho":
        return filters.Zcdp(rho=rho) if epsilon is None else filters.Zcdp(epsilon=epsilon, delta=delta)
    raise Unsupported(f"ledger: it counts {ledger.measure}, in which Gaussian noise has no price: use another ledger")
