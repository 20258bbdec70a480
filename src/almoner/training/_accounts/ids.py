"""People who are named by ids: who is there, and accounts for those who never came before. Private."""

from collections.abc import Hashable, Sequence
from typing import Any

from almoner.errors import ArgumentError, Unsupported
from almoner.individual import Filter

__all__ = ["ids_and_rows", "join_new"]


def ids_and_rows(people: object, records: int) -> tuple[list[Hashable], list[int]]:
    """Who is there, and whose each record is.

    Args:
        people: (records,) an id for each record: a list, or an array or a tensor of numbers or texts.
        records: how many there are.

    Returns:
        (m,) different ids in the order in which they appear, and (records,) their numbers from 0 to m - 1.

    Raises:
        ArgumentError: there is not one id for each record, or an id is missing, or cannot be told from itself.
    """
    listed: Any = people.tolist() if hasattr(people, "tolist") else people  # whole numbers as Python's own
    if isinstance(listed, str | bytes) or not isinstance(listed, Sequence):
        raise ArgumentError(f"people must be a list of ids, one for each record, not {type(people).__name__}")
    if len(listed) != records:
        raise ArgumentError("people must have an id for each record")
    listed = [_plain(each) for each in listed]
    rows: dict[Hashable, int] = {}
    for person in listed:
        if not isinstance(person, Hashable) or isinstance(person, float | bool) or person is None or person != person:
            raise ArgumentError("people must be whole numbers, texts or other hashable ids; none may be missing")
        rows.setdefault(person, len(rows))
    return list(rows), [rows[person] for person in listed]


def _plain(person: Any) -> Any:
    """Numbers of NumPy and PyTorch as Python's own: tensors of one number are different to Python."""
    if not hasattr(person, "item") or not hasattr(person, "shape"):
        return person
    return None if person.shape else person.item()  # several numbers are no id


def join_new(accounts: Filter, ids: Sequence[Hashable]) -> None:
    """Open accounts for those who never came before."""
    new = accounts.missing(ids)
    if new and accounts.has_shares:
        raise Unsupported("people: accounts with shares are opened by join(), with the share of each person who joins")
    accounts.join(new)
