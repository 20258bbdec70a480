"""A budget that can be copied can be spent twice."""

import os
from typing import NoReturn

from almoner.errors import ArgumentError, CopyRefused


class Uncopyable:
    """copy, deepcopy and pickle refuse. Checkpoints go through an explicit ``state()`` and ``from_state()``."""

    __slots__ = ()

    def __copy__(self, *_: object) -> NoReturn:
        raise CopyRefused(f"{type(self).__name__} cannot be copied: a copied budget can be spent twice; use state()")

    __deepcopy__ = __reduce_ex__ = __copy__


class OwnProcess:
    """Remembers the process that it is made in: a forked one has copies of all accounts, and draws the same noise."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = os.getpid()

    def check(self, what: str) -> None:
        """Refuse, by an ArgumentError, in any process that was forked since: ``what`` is for its own alone."""
        if os.getpid() != self.number:
            raise ArgumentError(
                f"{what} existed before this process was forked: both processes would draw the same noise and spend "
                "the same budget. Make it in the process that uses it"
            )
