"""The accounts of those who are present in one update of a stream; people are named by ids. Private throughout."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from almoner.errors import ArgumentError
from almoner.individual import AccountsPerPerson, Filter, Odometer
from almoner.training._accounts.counted import BoundsBeside, Counted
from almoner.training._accounts.present_people import ids_and_rows, join_new
from almoner.training._accounts.run_accounts import WithoutBudget

__all__ = ["as_rows", "numbered", "opened"]

GAPS = 4
"""Whole numbers below so many times the number of records are rows as they are: accounts of nobody cost little."""


def numbered(people: object, records: int) -> tuple[list[Hashable], Tensor]:
    """Who is there, and whose each record is.

    Args:
        people: (records,) an id for each record: a list, or an array or a tensor of numbers or texts.
        records: how many there are.

    Returns:
        (m,) different ids in the order in which they appear, and (records,) their numbers from 0 to m - 1.

    Raises:
        ArgumentError: there is not one id for each record, or an id is missing, or cannot be told from itself.
    """
    ids, rows = ids_and_rows(people, records)
    return ids, torch.tensor(rows, dtype=torch.int64)


def as_rows(people: object, records: int, *, rows: bool) -> tuple[Tensor | None, list[Hashable] | None]:
    """Whose each record is, as the numbers of rows, and the ids of those rows if there are any.

    Args:
        people: (records,) private: an id for each record, or None: each is a person.
        records: how many there are.
        rows: whether whole numbers are the numbers of rows however large they are: something else has these rows too.

    Returns:
        (records,) numbers from 0, or None; and (n,) ids in the order in which they appear. Whole numbers from 0 with
        few gaps are numbers of rows already, and have no ids.
    """
    if people is None:
        return None, None
    array: Any = people.to_numpy() if hasattr(people, "to_numpy") else people
    if isinstance(array, np.ndarray) and array.dtype.kind in "iu":
        array = torch.from_numpy(array.astype(np.int64)) if array.max(initial=0) < 2**63 else array
    elif isinstance(array, Sequence) and array and all(type(each) is int and 0 <= each < 2**63 for each in array):
        array = torch.tensor(array)
    if isinstance(array, Tensor) and not array.is_floating_point() and array.dim() == 1 and len(array) == records:
        few_gaps = not records or (int(array.min()) >= 0 and int(array.max()) < GAPS * records)
        if rows or few_gaps:
            return array, None
    if rows:
        raise ArgumentError("people: accounts and shares are of rows here, so people must be whole numbers from 0")
    if isinstance(array, Tensor) and (array.is_floating_point() or array.dim() != 1):
        raise ArgumentError("people must be whole numbers or other ids, one for each record")
    ids, numbers = numbered(array, records)
    return numbers, ids


def opened(
    accounts: Filter | None,
    ids: Sequence[Hashable],
    odometer: Odometer | None = None,
    before: Callable[[], object] = lambda: None,
) -> Counted:
    """The accounts and bounds of those who are there; people who never came before get them.

    Args:
        accounts: None: there is no budget, and nobody is left out.
        ids: (m,) who is there.
        odometer: None: there are no bounds.
        before: called before anybody is charged.
    """
    present: AccountsPerPerson = WithoutBudget(len(ids))
    if accounts is not None:
        present = join_new(accounts, ids)
    if odometer is None:
        return Counted(present, [], before)
    odometer.join(odometer.missing(ids))
    return Counted(present, [BoundsBeside(odometer, ids)], before)
