"""One run of any kind: source -> sampling -> book -> noise -> model -> folder.

A source yields the people of each step. The sampling says who is in it, and has the model make their clipped sum; the
book has them pay and releases the sum with noise; the model takes a step along it; the folder keeps what there is.
``Trainer``, ``Stream``, ``LogisticRegression`` and ``descend`` are doors to this.

Source: theory 5.1 to 5.3, 5.6, 5.11
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from almoner.errors import ArgumentError, BudgetExceeded
from almoner.training._run.ending import Saves
from almoner.training._run.folder import Announced, Folder
from almoner.training._run.samplings import Model, Sampling, Turnout
from almoner.training._run.state import CurrentState, TrainingState

__all__ = ["Run"]


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

    def take(self, turnout: Turnout, step: Any) -> None:
        """One step: release the noisy sum of the people who are there, each of whom has paid, and follow it."""
        sampling, model = self.sampling, self.model
        noisy = self.book.release(
            step, turnout, lambda accounts: sampling.contribute(model, turnout, accounts, step), rows=sampling.noise
        )
        self.follow(noisy, turnout.divisor, turnout.rate)

    def follow(self, noisy: Any, divisor: float, rate: float | None) -> None:
        """Take the model's step along sums that were released, and count it."""
        self.model.step(noisy, divisor, rate)
        self.sampling.released()
        self.current.update(step=self.current.value.step + 1, called=0)

    def go(
        self, turnouts: Iterable[Turnout], step: Callable[[], Any], after: Callable[[], object], saves: Saves
    ) -> None:
        """Take steps until the source ends, the worst case of all people does not fit, or ``after`` says a reason.

        ``step`` gives what the next step releases, public; ``after`` is called before the first and after every one.
        """
        with saves:
            saves.save()  # what was booked just now must survive
            try:
                after()
                if self.current.value.reason is None:
                    for turnout in turnouts:
                        self.take(turnout, step())
                        after()
                        saves.after(self.current.value.step)
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
        self.follow(kept["noisy"], kept["divisor"], kept["rate"])
        self.save()

    def end(self, reason: str) -> None:
        """Say why the run ends, unless a reason was given before."""
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
        self.sampling.write_off(unseen, self.book)
        own = TrainingState.from_fields(parts["run"])
        for announced in unseen:
            own = own.with_release(announced.mechanism)
        model, public = first((parts["model"], parts["run"]))
        self.model.load(model)
        seeded = self.current.value.seeded or own.seeded
        state = TrainingState.from_fields(public)
        self.current.value = replace(state, released=own.released, seeded=seeded or state.seeded)
        self.save()
