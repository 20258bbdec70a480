"""The one place through which noisy values are released, so that an audit can watch a run and hold its outputs still.

An ordinary run has no hook: what is released is what the noise gives. Only ``almoner.audit`` installs a hook, for the
time of one block and for the thread that is in it; other threads are never seen, and never held still.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Part:
    """The place of a call among several that are one mechanism, which is paid for once. Public.

    Fields:
        of: the object that makes the calls; calls of the same object belong together.
        rule: how the exact values of neighbours may differ. "counter": running counts, which one person moves once, by
            ``most``; "threshold": counts, each of which a person moves by ``most`` at most; "rows": sums whose noise
            is correlated by ``factor``.
        most: the unit of the first two.
        one_way: of "threshold": whether one person moves all numbers up, or all down.
        factor: the factor of correlated noise, and
        step: the row of this call, from 0.
    """

    of: object
    rule: Literal["counter", "threshold", "rows"]
    most: float = 1.0
    one_way: bool = False
    factor: object = None
    step: int = 0


_INSTALLED: ContextVar[Any] = ContextVar("audit_hook", default=None)


def released(release: Callable[[], T], *, exact: object, mechanism: object, part: Part | None = None) -> T:
    """Release an exact private value with noise: the result of ``release`` or, in an audit, of the recorded run.

    Args:
        release: draws the noise and adds it.
        exact: private. Numbers, an array, a list of arrays or tensors, or {label: number}: what noise is added to.
        mechanism: public. What is run: a mechanism of ``almoner.mechanisms``, or a watch.
        part: public. Where the call is one of several that are one mechanism.
    """
    hook = _INSTALLED.get()
    given: T = release() if hook is None else hook.released(release, exact, mechanism, part)
    return given


def coins(draw: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
    """(n,) uniform numbers, of which one below the sample rate takes its person into the sample; private.

    Args:
        draw: gives fresh ones, for the people in an order that stays when a person's records are removed.
    """
    hook = _INSTALLED.get()
    given: NDArray[np.float64] = draw() if hook is None else hook.coins(draw)
    return given


@contextmanager
def installed(hook: Any) -> Iterator[None]:
    """Let a hook, with methods like these functions, see what this block releases; for ``almoner.audit`` alone."""
    token = _INSTALLED.set(hook)
    try:
        yield
    finally:
        _INSTALLED.reset(token)
