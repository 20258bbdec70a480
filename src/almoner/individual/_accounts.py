"""Address accounts of many people by row or by id, and check what they contribute."""

from collections.abc import Hashable, KeysView, Mapping, Sequence, Set
from threading import RLock
from types import ModuleType
from typing import Any, Protocol, cast

import array_api_compat
import numpy as np

from almoner import _check, mechanisms
from almoner._arrays import Array, Library, Mask, to_numpy
from almoner._uncopyable import OwnProcess, Uncopyable
from almoner.errors import ArgumentError, UnknownPerson
from almoner.individual._costs import Costs
from almoner.individual._shares import in_order

People = Array | Sequence[Hashable]  # rows, or ids
_MOST_PEOPLE = 10**12
_BLOCK = 2**15  # people at a time: temporary arrays stay in the processor's cache


class AccountsPerPerson(Protocol):
    """Interface of accounts that training needs: what each of n people may still contribute, and who has paid.

    :class:`almoner.individual.Filter` is one, and so is whatever stands in front of it, such as
    :class:`almoner.training.stopping.Dropouts`. Every array with one entry per person is private.

    Guarantee: a person who takes part only where ``charge`` returns True, for the contribution that was charged, is
    protected by the budget of the accounts.
    Source: theory 5.1, 5.2.
    """

    def allowance(self, step: mechanisms.Mechanism, /) -> Array:
        """(n,) private: the largest norm each person may still contribute to this step, in the sensitivity's unit."""

    def charge(self, step: mechanisms.Mechanism, norms: Array, /) -> Mask:
        """Charge each person for a contribution of this norm, (n,) private. (n,) bool, private: who takes part."""


class Accounts(Uncopyable):
    """A row of int64 totals for every person, addressed by row or by id."""

    _owed: Any = None  # what is not in all accounts yet, and ``_settle`` brings there

    def __init__(self, people: int | Sequence[Hashable], columns: int, xp: ModuleType | None, device: object) -> None:
        self._columns, self._device = columns, device
        self._xp: Library = array_api_compat.array_namespace((np if xp is None else xp).zeros(1))
        self._lock, self._process = RLock(), OwnProcess()
        self._rows_of: dict[Hashable, int] | None = None if _is_count(people) else {}
        self._room = np.zeros((0, columns), dtype=np.int64)
        self._held = self._zeros(0)
        self.join(people)

    def join(self, people: int | Sequence[Hashable]) -> None:
        """Open accounts for people who were never here before: for so many rows more, or for new ids.

        Keep the accounts of people who leave: a returning person must not get a fresh one.
        """
        with self._lock:  # what is being charged goes into the accounts that stay
            self._join(people)

    def _join(self, people: int | Sequence[Hashable]) -> None:
        if _is_count(people):
            _check.whole(0, people=people)
            if int(people) > _MOST_PEOPLE:  # type: ignore[arg-type]
                raise ArgumentError(f"people must be at most {_MOST_PEOPLE:,}")
            if self._rows_of is not None:
                raise ArgumentError("people: these accounts have ids, so give the ids of the people who join")
            count = int(people)  # type: ignore[arg-type]
        else:
            ids = _ids(people)
            if self._rows_of is None:
                raise ArgumentError("people: these accounts have rows, so give the number of people who join")
            if len(set(ids)) != len(ids) or not self._rows_of.keys().isdisjoint(ids):
                raise ArgumentError("people: every id must be new and different")
            count, start = len(ids), len(self._rows_of)
            self._rows_of.update({person: start + j for j, person in enumerate(ids)})
        if count:
            self._held = self._with_more_rows(count)

    def _with_more_rows(self, count: int) -> Array:
        """The totals with so many rows of zeros more. NumPy's grow into spare rows, so that few people join cheaply."""
        held = self._held.shape[0]
        if not isinstance(self._held, np.ndarray):
            return self._xp.concat([self._held, self._zeros(count)])
        if self._held.base is not self._room or len(self._room) < held + count:
            size = (held + count) * 3 // 2 if held else count
            self._room = np.zeros((size, self._columns), dtype=np.int64)
            self._room[:held] = self._held
        return cast(Array, self._room[: held + count])

    def missing(self, people: Sequence[Hashable]) -> list[Hashable]:
        """The ids among these that have no account, each once, private; for accounts with ids."""
        if self._rows_of is None:
            raise ArgumentError("people: these accounts have rows, not ids")
        return [person for person in dict.fromkeys(_ids(people)) if person not in self._rows_of]

    def _zeros(self, count: int) -> Array:
        return self._xp.zeros((count, self._columns), dtype=self._xp.int64, device=self._device)

    @property
    def _spent(self) -> Array:
        """(n, m) everybody's totals, up to date."""
        if self._owed is not None:
            self._settle(slice(None))
        return self._held

    def _settle(self, where: slice | Array) -> None:
        """Bring the totals in a block of rows, or in rows by number, up to date, where anything is owed."""

    def _totals(self, where: slice | Array) -> Array:
        """The totals in a block of rows, or in rows by number."""
        if self._owed is not None:
            self._settle(where)
        return self._held[where, ...] if isinstance(where, slice) else self._xp.take(self._held, where, axis=0)

    def _chosen(self, people: People | None) -> tuple[slice | Array, Array]:
        where = self._rows(people)
        return where, self._totals(where)

    def _set_totals(self, where: slice | Array, totals: Array) -> None:
        """Set the totals, which are up to date, in a block of rows, or in different rows by number."""
        self._held = with_rows(self._held, where, totals, self._xp, self._device)

    @property
    def _block_size(self) -> int:
        return _BLOCK if self._device is None or "cpu" in str(self._device) else 2**24

    def _blocks(self, where: slice | Array) -> list[tuple[slice, slice | Array]]:
        """A few people at a time: their places among those in these rows, and their rows."""
        count, size = self._count(where), self._block_size
        blocks = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        return [(block, block if isinstance(where, slice) else where[block]) for block in blocks]

    def _count(self, where: slice | Array) -> int:
        return int((self._held if isinstance(where, slice) else where).shape[0])

    def _rows(self, people: People | slice | None) -> slice | Array:
        """Rows of the people addressed; a slice for all of them, or where one is given."""
        if people is None or isinstance(people, slice):
            return people or slice(None)
        if self._rows_of is not None:
            rows = np.asarray([self._rows_of.get(_plain_id(person), -1) for person in _listed(people)], np.int64)
        else:
            rows = to_numpy(people)
            if rows.size and not np.issubdtype(rows.dtype, np.integer):
                raise ArgumentError(f"people must be whole numbers (rows), not {rows.dtype}")
            rows = rows.astype(np.int64)
        if rows.ndim != 1:
            raise ArgumentError(f"people must be a list of people, not an array with {rows.ndim} axes")
        if ((rows < 0) | (rows >= self._held.shape[0])).any():
            raise UnknownPerson("people: not all of them have an account here; see join()")
        if len(np.unique(rows)) != len(rows):
            raise ArgumentError("people: a person may not be charged twice in one step")
        return self._xp.asarray(rows, device=self._device)

    def _contributions(self, costs: Costs, norms: Array, where: slice | Array) -> Array:
        """Norms, or who takes part, of the people in these rows, in the accounts' array library, checked."""
        xp = self._xp
        if isinstance(norms, np.ma.MaskedArray):
            raise ArgumentError("norms must not be a masked array: say who takes part with people=, or with NaN")
        given: Array = norms if _same_library(norms, xp) else xp.asarray(in_order("norms", norms))
        given = array_api_compat.to_device(given, self._device) if self._device is not None else given
        if tuple(given.shape) != (self._count(where),):
            raise ArgumentError("norms must be a list with one entry for each person addressed")
        if costs.sensitivity is not None:
            if not xp.isdtype(given.dtype, ("real floating", "integral")):
                raise ArgumentError(f"norms must be real numbers, not {given.dtype}")
            return xp.astype(given, xp.float64, copy=False)
        if given.dtype != xp.bool:
            why = "for a mechanism without a sensitivity"
            raise ArgumentError(f"norms must be bool (who takes part) {why}, not {given.dtype}")
        return given

    def _ids_now(self) -> list[Hashable] | None:
        return None if self._rows_of is None else list(self._rows_of)

    def _like(self, active: Mask, norms: Array) -> Mask:
        """The answer in the array library of the question."""
        if _same_library(norms, self._xp) or not array_api_compat.is_array_api_obj(norms):
            return active
        asked: Library = array_api_compat.array_namespace(norms)
        return asked.asarray(to_numpy(active), device=array_api_compat.device(norms))


def with_rows(held: Array, where: slice | Array, rows: Array, xp: Library, device: object) -> Array:
    """(n, m) with other rows (k, m) in a block, or in k different places by number; changed in place if possible."""
    try:
        held[where, ...] = rows
        return held
    except IndexError:  # the array API standard has no assignment to rows by number
        places = np.full(held.shape[0], -1)
        places[to_numpy(where)] = np.arange(rows.shape[0])
        place = xp.asarray(places, dtype=xp.int64, device=device)
        changed = xp.take(rows, xp.where(place < 0, 0, place), axis=0)
        return xp.where((place < 0)[:, None], held, changed)


def _listed(people: Any) -> Sequence[Hashable]:
    """Ids as Python's own numbers and texts."""
    return cast(Sequence[Hashable], people.tolist() if array_api_compat.is_torch_array(people) else people)


def _ids(people: object) -> list[Hashable]:
    """Ids in an order that stays: row by row, arrays of contributions are in that order."""
    people = _listed(people)
    no_list = isinstance(people, str | bytes | Set | Mapping) and not isinstance(people, KeysView)
    no_list = no_list or len(getattr(people, "shape", (0,))) != 1
    ids = [] if no_list else [_plain_id(person) for person in people]
    if no_list or not all(isinstance(person, Hashable) and person == person for person in ids):
        raise ArgumentError("people must be a number, or a list of ids that are hashable, in an order that stays")
    return ids


def _plain_id(person: Hashable) -> Hashable:
    """Tensors of the same number are different to Python, so that one person would have two accounts."""
    scalar = array_api_compat.is_torch_array(person) and not cast(Array, person).ndim
    return cast(Any, person).item() if scalar else person


def _is_count(people: object) -> bool:
    return isinstance(people, int | np.integer | float) or people is None


def _same_library(array: object, xp: Library) -> bool:
    return array_api_compat.is_array_api_obj(array) and array_api_compat.array_namespace(array) is xp
