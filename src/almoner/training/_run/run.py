"""One run of any kind: source -> sampling -> book -> noise -> model -> folder; its state, and how it ends.

A source yields the people of each step. The sampling says who is in it, and has the model make their clipped sum; the
book has them pay and releases the sum with noise; the model takes a step along it; the folder keeps what there is.
``Trainer``, ``Stream``, ``LogisticRegression`` and ``descend`` are doors to this.

Ctrl-C and SIGTERM wait for a step that people have been charged for, and end the training after it. However it ends,
also by an error, what there is at that moment is written to its folder: people are charged before anything is drawn, so
the accounts cover at every moment what was released, and a step that was charged and not finished counts as spent.

Source: theory 5.1 to 5.3, 5.6, 5.11
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field, replace
from math import inf
from time import monotonic
from types import FrameType, MappingProxyType
from typing import Any, Self

from almoner import mechanisms
from almoner.errors import AlmonerError, ArgumentError, BudgetExceeded
from almoner.mechanisms import Gaussian, Mechanism
from almoner.training._run.folder import Announced, Folder
from almoner.training._run.samplings import Model, Sampling, Turnout

History = dict[str, Any]

PLAIN = ("step", "reason", "max_grad_norm", "noise_multiplier", "sample_rate", "seeded", "own_samples", "called")
"""The fields that a folder keeps as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Where a run stands. Every field is public.

    Module and optimizer are saved beside it. The generator of the noise is not saved: a resumed run draws fresh noise.
    """

    max_grad_norm: float
    noise_multiplier: float
    sample_rate: float | None = None
    seeded: bool = False
    step: int = 0
    reason: str | None = None
    released: MappingProxyType[Mechanism, int] = field(default_factory=lambda: MappingProxyType({}))
    answers: tuple[tuple[int, str, float], ...] = ()
    history: History = field(default_factory=dict)  # notes that callbacks keep; public, and theirs to change
    own_samples: bool = False  # true if bounds have followed people's own sampled gradients
    called: int = 0  # number of callbacks that have seen this step: a resumed run goes on with the next one

    def to_fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in PLAIN} | {
            "answers": list(self.answers),
            "history": self.history,
            "released": [[mechanisms.to_fields(mechanism), times] for mechanism, times in self.released.items()],
        }

    def with_release(self, mechanism: Mechanism) -> "TrainingState":
        """The state after one more release, for which people have been charged."""
        more = {mechanism: self.released.get(mechanism, 0) + 1}
        return replace(self, released=MappingProxyType(self.released | more))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "TrainingState":
        released = {mechanisms.from_fields(described): times for described, times in fields["released"]}
        return cls(
            **{name: fields[name] for name in PLAIN},
            history=fields["history"],
            answers=tuple((step, name, answer) for step, name, answer in fields["answers"]),
            released=MappingProxyType(released),
        )


class CurrentState:
    """The one place of a run where its state is replaced by the next."""

    def __init__(self, state: TrainingState) -> None:
        self.value = state

    @classmethod
    def of_step(cls, step: Gaussian) -> Self:
        return cls(TrainingState(max_grad_norm=step.sensitivity, noise_multiplier=step.sigma / step.sensitivity))

    def update(self, **changes: Any) -> None:
        self.value = replace(self.value, **changes)

    def add_release(self, mechanism: Mechanism) -> None:
        self.value = self.value.with_release(mechanism)


PART = 20  # by default saving takes at most one part in so many of the time,
LEAST = 100  # but is done so many times at least


class Killed(BaseException):
    """A signal whose default ends the process: raised first, so that what there is is kept, then sent once more."""


class Interruptions:
    """Ctrl-C and SIGTERM during a training: in the main thread they wait for a step that people are charged for.

    What was done about a signal before is done again: a handler is called, KeyboardInterrupt is raised, and the process
    ends by SIGTERM once all blocks inside this one are left. A signal that comes a second time does not wait. Where
    there is not ``anything`` to keep, signals are left alone.
    """

    def __init__(self, anything: object = True) -> None:
        self._watched, self._process = bool(anything), os.getpid()
        self._before: dict[int, Any] = {}
        self._waiting: list[int] = []
        self._killed_by: int | None = None
        self._busy = False

    def wait(self) -> None:
        """From now on a signal waits: people are being charged."""
        self._busy = True

    def go_on(self) -> None:
        """The step is over: signals that wait are dealt with, and later ones at once."""
        self._busy = False
        while self._waiting:
            self._deal_with(self._waiting.pop(0), None)

    def __enter__(self) -> Self:
        if self._watched and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if before is not None and before is not signal.SIG_IGN:  # None: not Python's
                    self._before[number] = before
                    signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._arrived:  # else somebody has set another one meanwhile
                signal.signal(number, before)
        late = {*self._waiting, *([] if self._killed_by is None else [self._killed_by])}
        self._before, self._waiting = {}, []
        for number in sorted(late, reverse=True):  # SIGTERM first: Ctrl-C raises an error
            signal.raise_signal(number)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # in a process that was forked: nothing here is its own
            signal.signal(number, self._before.get(number, signal.SIG_DFL))
            signal.raise_signal(number)
        elif self._busy and number not in self._waiting:
            self._waiting.append(number)
        else:
            self._deal_with(number, frame)

    def _deal_with(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
        else:
            self._killed_by = number
            raise Killed(signal.Signals(number).name)


class Saves(AbstractContextManager["Saves"]):
    """Saves what a training has done: at every end, and by default as often as it takes little of the time.

    ``save`` writes all there is (None: nothing), after ``every`` so many steps, public; of ``planned`` ones LEAST times
    at least. Signals wait while the end is saved; ``agreed`` gives the first process's decision in every process.
    """

    def __init__(
        self,
        save: Callable[[], object] | None,
        *,
        every: int | None,
        planned: int | None = None,
        interruptions: Interruptions,
        agreed: Callable[[bool], bool] = lambda due: due,
    ) -> None:
        self._write, self._every, self._interruptions, self._agreed = save, every, interruptions, agreed
        self._took, self._last, self._step = 0.0, monotonic(), 0
        self._most = inf if planned is None else planned // LEAST  # steps between two saves

    def save(self) -> None:
        begun = monotonic()
        if self._write is not None:
            self._write()
        self._last = monotonic()
        self._took = self._last - begun

    def after(self, step: int) -> None:
        if self._write is None:
            return
        due = monotonic() - self._last >= PART * self._took or step - self._step >= self._most
        if self._agreed(due) if self._every is None else step % self._every == 0:
            self.save()
            self._step = step

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or self._write is None:
            return
        self._interruptions.wait()
        try:
            self._write()
        except (AlmonerError, OSError) as failed:
            error.add_note(f"What was done since the folder was last saved could not be kept: {failed}")


@dataclass(eq=False, repr=False)
class Run:
    """The parts of one run, and the steps that they take together. Its state is public, all else private."""

    model: Model
    sampling: Sampling
    book: Any
    current: CurrentState
    _: KW_ONLY
    folder: Folder | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)  # what a resumed run must share with the folder's, by name
    more: dict[str, Any] = field(default_factory=dict)  # further parts to keep, by name
    keys: dict[str, int] = field(default_factory=dict)  # the number of each step that has a name

    def take(self, turnout: Turnout, step: Any) -> None:
        """One step: release the noisy sum of the people who are there, each of whom has paid, and follow it."""
        sampling, model = self.sampling, self.model
        noisy = self.book.release(
            step, turnout, lambda accounts: sampling.contribute(model, turnout, accounts, step), rows=sampling.noise
        )
        self.follow(noisy, turnout.divisor, turnout.rate, turnout.key)

    def follow(self, noisy: Any, divisor: float, rate: float | None, key: str | None = None) -> None:
        """Take the model's step along sums that were released, and count it."""
        self.model.step(noisy, divisor, rate)
        self.sampling.released()
        self.current.update(step=self.current.value.step + 1, called=0)
        if key is not None:
            self.keys[key] = self.current.value.step

    def go(
        self, turnouts: Iterable[Turnout], step: Callable[[], Any], after: Callable[[], object], saves: Saves
    ) -> Iterator[None]:
        """Take steps until the source ends, the worst case of all people does not fit, or ``after`` says a reason.

        It yields before the first and after every one, after ``after``. ``step`` gives what the next releases, public.
        """
        with saves:
            saves.save()  # what was booked just now must survive
            try:
                after()
                yield
                if self.current.value.reason is None:
                    for turnout in turnouts:
                        self.take(turnout, step())
                        after()
                        saves.after(self.current.value.step)
                        yield
                        if self.current.value.reason is not None:
                            break
            except BudgetExceeded as refused:  # the worst case of all people, for a step or a question: a public fact
                if refused is not self.book.refused:  # of some other budget, which a callback keeps
                    raise
                self.end("the budget is spent")
            self.end("all planned steps are done")
            saves.save()

    def follow_kept(self, kept: Mapping[str, Any], step: Any) -> None:
        """Follow an update that a ledger charged before a crash, and that the folder's state has not seen."""
        self.book.record_kept(step, kept["given"], kept["ids"])
        self.follow(kept["noisy"], kept["divisor"], kept["rate"], kept.get("key"))
        self.save()

    def end(self, reason: str) -> None:
        self.current.update(reason=self.current.value.reason or reason)

    def save(self) -> None:
        if self.folder is not None:
            state = self.current.value
            parts = {
                "run": state.to_fields(),
                "fixed": dict(self.fixed),
                "model": self.model.state(),
                "book": self.book.state(),
                "sampling": self.sampling.state(),
                "keys": self.keys,
            }
            self.folder.save(parts | self.more, state.step)

    def check(self, parts: Mapping[str, Any]) -> None:
        """Refuse to go on from the folder of a run with other settings; nobody was charged."""
        saved, own = dict(parts["fixed"]), dict(self.fixed)
        if saved.pop("records", None) != own.pop("records", None):
            raise ArgumentError("resume: these are not the folder's records of the same people in the same order")
        for name in (*saved, *own):
            if own.get(name) != saved.get(name):  # the card would not be about the steps that were done
                raise ArgumentError(f"{name}={own.get(name)!r} must be that of the folder: {saved.get(name)!r}")

    def resume(
        self, parts: Mapping[str, Any], unseen: list[Announced], *, first: Callable[[Any], Any] = lambda value: value
    ) -> None:
        """Go on from a folder; people pay for what may have been released since. ``first``: of the first process."""
        self.check(parts)
        self.book.load(parts["book"])
        self.sampling.restore(parts["sampling"])
        self.keys = dict(parts.get("keys", {}))
        self.sampling.write_off(unseen, self.book)
        own = TrainingState.from_fields(parts["run"])
        for announced in unseen:
            own = own.with_release(announced.mechanism)
        model, public = first((parts["model"], parts["run"]))
        self.model.load(model)
        seeded, state = self.current.value.seeded or own.seeded, TrainingState.from_fields(public)
        self.current.value = replace(state, released=own.released, seeded=seeded or state.seeded)
        self.save()
