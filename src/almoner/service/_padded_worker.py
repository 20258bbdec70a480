"""One worker does everything that needs the ledger, for one analyst after the other, each piece in whole steps of time.

How long a question takes depends on the data. So the worker is busy until the end of a step, and the next piece of work
begins then: who waits, for this answer or for another one, sees whole steps, or when the data holder's own work ended.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from math import ceil, inf
from typing import Any, NamedTuple, TypeVar

from almoner.errors import AlmonerError

Result = TypeVar("Result")

_MOST_WAITING = 8  # pieces of work in one queue
_STUCK = 60.0  # seconds, of whole steps, after which somebody should look what keeps the thread so long


class Busy(AlmonerError):
    """An analyst has as many questions waiting as may wait."""


class Stopped(AlmonerError):
    """The service is being stopped: nothing new is begun."""


class _Work(NamedTuple):
    do: Callable[[], Any]
    done: "Future[Any]"
    padded: bool
    told: Callable[[float], None] | None


class PaddedWorker:
    """A thread with a queue for each analyst, which take turns in steps of so many seconds.

    ``publish`` is called at the end of each step, before the result is told: others see what there is then, no sooner.
    """

    def __init__(self, step: float, *, publish: Callable[[], None] = lambda: None) -> None:
        self._step, self._publish = step, publish
        self._queues: OrderedDict[str, deque[_Work]] = OrderedDict()
        self._changed = threading.Condition()
        self._stopping, self._began = False, inf
        self._thread = threading.Thread(target=self._run, name="padded worker", daemon=True)
        self._thread.start()

    def submit(
        self, whose: str, do: Callable[[], Result], *, padded: bool = True, told: Callable[[float], None] | None = None
    ) -> "Future[Result]":
        """Queue work, padded to whole steps, whose seconds are ``told`` before the result; raises Busy or Stopped."""
        with self._changed:
            if self._stopping:
                raise Stopped("the service is being stopped")
            queue = self._queues.setdefault(whose, deque())
            if len(queue) >= _MOST_WAITING:
                raise Busy("too many questions are waiting")
            queue.append(_Work(do, Future(), padded, told))
            self._changed.notify()
            return queue[-1].done

    @property
    def waiting(self) -> int:
        """Number of pieces of work that wait."""
        with self._changed:
            return sum(map(len, self._queues.values()))

    @property
    def stuck(self) -> bool:
        """True if a piece of work takes more than a minute, in whole steps, or the thread has ended."""
        long = ceil(_STUCK / self._step) * self._step
        return time.monotonic() >= self._began + long or not self._thread.is_alive()

    def stop(self) -> None:
        """Finish what is begun, refuse what waits, and return when the thread has ended."""
        with self._changed:
            self._stopping = True
            waiting = [work for queue in self._queues.values() for work in queue]
            self._queues.clear()
            self._changed.notify()
        for work in waiting:
            work.done.set_exception(Stopped("the service is being stopped"))
        self._thread.join()

    def _next(self) -> _Work | None:
        """The next piece of work, of the queue whose turn it is; None when it is time to stop."""
        with self._changed:
            while not self._queues and not self._stopping:
                self._changed.wait()
            if self._stopping:
                return None
            whose, queue = self._queues.popitem(last=False)
            work = queue.popleft()
            if queue:
                self._queues[whose] = queue  # behind the others
            return work

    def _run(self) -> None:
        while (work := self._next()) is not None:
            if not work.done.set_running_or_notify_cancel():
                continue
            began = self._began = time.monotonic()
            try:
                tell = partial(work.done.set_result, work.do())
            except BaseException as error:  # the caller's to handle
                tell = partial(work.done.set_exception, error)
            if work.padded:  # until the end of the step in which the work ended
                seconds = max(1, ceil((time.monotonic() - began) / self._step)) * self._step
                while (left := began + seconds - time.monotonic()) > 0:
                    time.sleep(left)
                if work.told is not None:
                    work.told(seconds)
            self._publish()
            self._began = inf
            tell()
