"""A stream on a ledger: each update charges the people who are in it there, in one transaction, and has a number.

The ledger keeps the accounts; the stream keeps none. With a folder, the noisy sums of an update are kept there before
the transaction is completed, so that after a crash the ledger says if the update was made, and the folder which.

Names and symbols
    most      (n,) units of the ledger that each person may pay for an update; private
    paid      (n,) units that each person pays; private

Source: theory 5.1 to 5.3, 5.12; docs/proofs/one-account.md, "Streams"
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf, nextafter, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner import filters
from almoner._uncopyable import Uncopyable
from almoner._units import to_float
from almoner.errors import Unsupported
from almoner.individual import BudgetStatement, Filter
from almoner.ledger import Consumer, Ledger, new_claim
from almoner.mechanisms import Gaussian
from almoner.training._on_ledger.run import OnLedger, digest

__all__ = ["LedgerStream"]

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

    @property
    def record(self) -> str:
        """The stream's name and the entry that began it: for the model's card. Public."""
        return f"stream {self.on.key!r}, entry {self._stream.record}"

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

        people: Sequence[Any] = ids
        self._stream.update(people, self._price(step), pace=spread, contribute=charged, release=drawn)
        return noisy

    def statement(self, person: Hashable, *, delta: float | None) -> BudgetStatement:
        """The statement of one person's budget on the ledger. Private."""
        ledger = self._ledger
        stated = ledger.stated_delta if delta is None else delta
        set_aside = sum(int(entry.public["units"]) for entry in ledger.watched())
        used = min(1.0, nextafter((ledger.spent(person) + set_aside) / ledger.budget_units, inf))
        return BudgetStatement(person, used, ledger.promise(stated), stated, ledger.meaning().guess())

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
