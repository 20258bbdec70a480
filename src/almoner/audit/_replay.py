"""Record a pipeline, run it without each of some people and with its outputs held still, and report what is found."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from almoner import _audit_hook, _check
from almoner._private import MARK
from almoner.audit import _calls
from almoner.audit._noise import noise_found
from almoner.errors import ArgumentError


@dataclass(frozen=True)
class Finding:
    """A rule that is broken. PRIVATE: it can tell what a person's data are.

    Fields:
        person: of whom; None: of the run.
        rule: "control flow": other calls, or another order, without the person; "public": something public does not
            follow from what was released; "sensitivity": a call's exact value moves further than stated; "account": all
            calls together reveal more than was paid; "not a number": a person's data make a sum infinite or NaN;
            "noise": less noise than stated, used twice, or the same in every run.
        call: which release, from 1; 0: all together.
        says: how.
    """

    person: Any = field(repr=False)
    rule: str
    call: int
    says: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.rule}: {f'release {self.call}: ' if self.call else ''}{self.says}"


@dataclass(frozen=True)
class Report:
    """The findings of a replay. PRIVATE: for the data holder.

    Fields:
        findings: rules that are broken.
        calls: how many releases the recorded run had.
        people: how many people were removed.
        revealed: of each comparison the person, what all calls revealed, what the account paid, both None without an
            account, and the largest shift as a share of its call's sensitivity.
    """

    findings: Sequence[Finding] = field(repr=False)
    calls: int
    people: int
    revealed: Sequence[tuple[Any, float | None, float | None, float]] = field(repr=False)

    @property
    def holds(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    @property
    def rules(self) -> set[str]:
        """The rules that are broken."""
        return {finding.rule for finding in self.findings}

    @property
    def largest(self) -> float:
        """The largest shift of a call, as a share of its stated sensitivity; at most 1 where nothing was found."""
        return max((share for *_, share in self.revealed), default=0.0)

    @property
    def tightest(self) -> float | None:
        """The largest share of what an account paid that was revealed; None without accounts, or where nothing was."""
        shares = [revealed / paid for _, revealed, paid, _ in self.revealed if revealed is not None and paid]
        return max(shares, default=None)

    def __str__(self) -> str:
        """The findings, one line each. PRIVATE."""
        lines = [f"{MARK}: {self.calls} releases, {self.people} people removed, {len(self.findings)} findings"]
        if self.tightest is not None:
            shift = f"shift of sensitivity: {self.largest:.4f}"
            lines.append(f"revealed of what was paid, at most: {self.tightest:.4f}; {shift}")
        named = Counter(map(str, self.findings))
        return "\n".join(lines + [f"{line} ({times} times)" if times > 1 else line for line, times in named.items()])


Data = TypeVar("Data")
Pipeline = Callable[[Data], "Outcome | Generator[Outcome, None, None]"]


@dataclass(frozen=True)
class Outcome:
    """The result of a pipeline, for an audit.

    Fields:
        public: everything that it shows to anybody: numbers, texts, arrays, tensors, dataclasses, lists and
            dictionaries of them. All of it must follow from what was released.
        accounts: private. What people paid: a ``queries.Session`` or ``ledger.Ledger``, an ``individual.Filter``, a
            filter that was charged the worst case for everybody, an ``Amount``, or a function of the person that gives
            one of them; None to check single calls alone.
    """

    public: object = None
    accounts: object = None


class _Played(NamedTuple):
    """One run: what was released and public, and people's accounts."""

    run: _calls.Run
    public: Any = None
    accounts: Mapping[Any, _calls.Account | None] = {}
    diverged: _calls.Diverged | None = None


def replay(
    pipeline: Pipeline[Data],
    data: Data,
    *,
    people: Iterable[Any],
    without: Callable[[Data, Any], Data],
    replaced: Callable[[Data, Any], Data] | None = None,
    number: Callable[[Any], int] | None = None,
    tolerance: float = 1e-5,
    fresh: bool = True,
    threads: int = 1,
) -> Report:
    """Audit a pipeline: what it releases is recorded, and it is run again without each person, its outputs held still.

    Args:
        pipeline: runs all of it, from the data to the last output, with everything made anew: models, accounts, ledgers
            in an empty folder; it returns an ``Outcome``, or yields it from within the ``with`` blocks that close what
            it opened. It is called once or twice, and then once or more for each person.
        data: private.
        people: private. Who is removed, one after another.
        without: gives the data without a person. A new object: the data are used again.
        replaced: gives the data with other rows of the same person; None: people are only removed.
        number: the number, from 0, that a person has among the coins of a sampled run; None: the place in the order of
            ``range`` if people are whole numbers. Needed only where people are sampled.
        tolerance: public, in [0, 1). By what share of a sensitivity floating-point sums may differ because they are
            added up in another order; to 14 digits where the mechanism has none. Whole numbers are compared exactly.
        fresh: whether the pipeline is recorded twice, to find noise that is the same in every run.
        threads: public. In how many threads people are removed at the same time; above 1 for pipelines that share
            nothing between two runs, such as sessions with a ledger each.

    Returns:
        PRIVATE: what was found, for the data holder.

    Guarantee: where nothing is found, the following holds for each of these people and for the outputs that were
        recorded. With and without the person, the same mechanisms are called in the same order, and all that is public
        follows from their outputs; no call's exact value moves by more than its stated sensitivity; and what all calls
        together reveal of the person costs no more than that person's account paid (with Planned and Residue twice
        that), up to the tolerance. It says nothing about other data, other people or other outputs.
    Source: docs/audit.md
    """
    _check.within(0, 1, tolerance=tolerance)
    _check.whole(1, threads=threads)
    people = list(people)
    if not people:
        raise ArgumentError("people must name at least one person")
    first = _played(pipeline, data, _calls.Recorder(), people)
    if not first.run.calls:
        raise ArgumentError("pipeline released nothing that an audit sees: see audit.released")
    again = _played(pipeline, data, _calls.Recorder(), []).run if fresh else None
    findings = [Finding(None, *found) for found in noise_found(first.run, again)]
    auditor = _Auditor(pipeline, first, tolerance, number)

    def judged(person: Any) -> list[_calls.Pair]:
        other = None if replaced is None else replaced(data, person)
        return auditor.pairs(data, without(data, person), other, person)

    revealed = []
    with ThreadPoolExecutor(threads) as pool:  # each thread has a hook of its own
        for person, pairs in zip(people, (map if threads == 1 else pool.map)(judged, people), strict=True):
            for pair in pairs:
                findings += [Finding(person, *found) for found in pair.found]
                revealed.append((person, pair.revealed, pair.paid, pair.largest))
    return Report(findings, len(first.run.calls), len(people), revealed)


@dataclass(eq=False)
class _Auditor(Generic[Data]):
    _pipeline: Pipeline[Data]
    _first: _Played
    _tolerance: float
    _number: Callable[[Any], int] | None

    def pairs(self, data: Data, gone: Data, other: Data | None, person: Any) -> list[_calls.Pair]:
        absent, first = self._frozen(gone, person, None), self._first
        by_coins = bool(first.run.coins) or any(call.by_coins for call in first.run.calls)
        coin = 0.0 if by_coins else None  # whatever the coins: what the person would contribute in every sample
        there = [self._frozen(data, person, coin) if by_coins else first]
        there += [] if other is None else [self._frozen(other, person, coin)]
        pairs = [self._compared(each, absent, person) for each in there]
        if not by_coins:
            return pairs
        sampled, never = there[0], self._frozen(data, person, 1.0)
        pairs.append(self._compared(never, absent, person, left_out=True))
        paid, other_paid = (each.accounts.get(person) for each in (sampled, never))
        if paid is not None and other_paid is not None and paid.paid > 0 and not other_paid.paid > 0:
            says = "a person who is not sampled pays nothing, and could have been sampled"
            pairs.append(_calls.Pair([_calls.Found("account", 0, says)], None, None, 0.0))
        return pairs

    def _compared(self, there: _Played, absent: _Played, person: Any, *, left_out: bool = False) -> _calls.Pair:
        diverged = there.diverged or absent.diverged
        if diverged is not None:
            return _calls.Pair([_calls.Found("control flow", diverged.call, diverged.says)], None, None, 0.0)
        pair = _calls.compare(there.run, absent.run, there.accounts.get(person), self._tolerance, left_out)
        says = _calls.difference(there.public, absent.public)
        return pair._replace(found=[*pair.found, _calls.Found("public", 0, says)]) if says else pair

    def _frozen(self, data: Data, person: Any, coin: float | None) -> _Played:
        forced = None
        if coin is not None:
            place = person if self._number is None else self._number(person)
            if isinstance(place, bool) or not isinstance(place, int) or place < 0:
                raise ArgumentError("number must give a whole number for each person: this pipeline samples people")
            forced = place, coin
        played = _played(self._pipeline, data, _calls.Frozen(self._first.run, forced), [person])
        missing = len(self._first.run.calls) - len(played.run.calls)
        if played.diverged is None and missing > 0:
            return played._replace(diverged=_calls.Diverged(len(played.run.calls) + 1, f"{missing} releases fewer"))
        return played


def _played(pipeline: Pipeline[Data], data: Data, hook: _calls.Recorder, people: Sequence[Any]) -> _Played:
    """One run with a hook installed; an error of a replay is a way to end like any other, else it is the caller's."""
    with ExitStack() as stack, _audit_hook.installed(hook):
        try:
            outcome = pipeline(data)
            if isinstance(outcome, Generator):
                stack.callback(outcome.close)
                outcome = next(outcome)
        except _calls.Diverged as diverged:
            return _Played(hook.run, diverged=diverged)
        except Exception as error:
            if not isinstance(hook, _calls.Frozen):
                raise
            ended = f"it ends with {type(error).__name__}: {error}"  # which the recorded run did not
            return _Played(hook.run, diverged=_calls.Diverged(len(hook.run.calls) + 1, ended))
        if not isinstance(outcome, Outcome):
            raise ArgumentError(f"pipeline must give an audit.Outcome, not {type(outcome).__name__}")
        accounts = {person: _calls.account_of(outcome.accounts, person) for person in people}
        return _Played(hook.run, _calls.plain(outcome.public), accounts)
