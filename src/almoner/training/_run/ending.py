"""End a training, and keep what there is then: one rule for every way to train.

Ctrl-C and SIGTERM wait for a step that people have been charged for, and end the training after it. However it ends,
also by an error, what there is at that moment is written to its folder: people are charged before anything is drawn, so
the accounts cover at every moment what was released, and a step that was charged and not finished counts as spent.

Source: theory 5.1
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import monotonic
from types import FrameType
from typing import Any, Self

from almoner.errors import AlmonerError

__all__ = ["Interruptions", "Killed", "Saves"]

PART = 20  # by default saving takes at most one part in so many of the time


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

    ``save`` writes all there is (None: nothing), after ``every`` so many steps, public. Signals wait while the end is
    saved; ``agreed`` gives the first process's decision in every process.
    """

    def __init__(
        self,
        save: Callable[[], object] | None,
        *,
        every: int | None,
        interruptions: Interruptions,
        agreed: Callable[[bool], bool] = lambda due: due,
    ) -> None:
        self._write, self._every, self._interruptions, self._agreed = save, every, interruptions, agreed
        self._took, self._last = 0.0, monotonic()

    def save(self) -> None:
        begun = monotonic()
        if self._write is not None:
            self._write()
        self._last = monotonic()
        self._took = self._last - begun

    def after(self, step: int) -> None:
        if self._write is None:
            return
        by_time = monotonic() - self._last >= PART * self._took
        if self._agreed(by_time) if self._every is None else step % self._every == 0:
            self.save()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or self._write is None:
            return
        self._interruptions.wait()
        try:
            self._write()
        except (AlmonerError, OSError) as failed:
            error.add_note(f"What was done since the folder was last saved could not be kept: {failed}")
