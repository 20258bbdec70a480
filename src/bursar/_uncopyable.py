"""A budget that can be copied can be spent twice."""

from typing import NoReturn

from bursar.errors import CopyRefused

__all__ = ["Uncopyable"]


class Uncopyable:
    """copy, deepcopy and pickle refuse. Checkpoints go through an explicit ``state()`` and ``from_state()``."""

    __slots__ = ()

    def __copy__(self) -> NoReturn:
        raise CopyRefused(f"{type(self).__name__} cannot be copied: a copied budget can be spent twice; use state()")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__copy__()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self.__copy__()
