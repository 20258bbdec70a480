"""Forms of a plan: one mechanism, or several with counts; and both as saved fields."""

from collections.abc import Sequence
from typing import Any, cast

from almoner import _check, mechanisms
from almoner.errors import ArgumentError


def one(plan: object) -> mechanisms.Mechanism:
    """A plan as one mechanism, whatever its form."""
    if isinstance(plan, mechanisms.Mechanism):
        return plan
    parts = [tuple(part) for part in plan if isinstance(part, list | tuple)] if isinstance(plan, list | tuple) else []
    if not parts or len(parts) < len(cast(Sequence[object], plan)) or any(len(part) != 2 for part in parts):
        raise ArgumentError(f"plan={plan!r} must be a mechanism, or a list like [(mechanism, 20), (another, 13)]")
    for part, count in parts:
        if not isinstance(part, mechanisms.Mechanism):
            raise ArgumentError(f"plan: {part!r} must be a mechanism")
        _check.whole(1, count=count)
    return mechanisms.Composed(tuple(mechanisms.Repeated(part, count) for part, count in parts))


def to_fields(plan: Any) -> Any:
    """Plain lists and numbers of a plan in either form."""
    if isinstance(plan, mechanisms.Mechanism):
        return mechanisms.to_fields(plan)
    return [[mechanisms.to_fields(part), count] for part, count in plan]


def from_fields(fields: Any) -> Any:
    """The plan that ``to_fields`` described."""
    if isinstance(fields, list):
        return [(mechanisms.from_fields(part), count) for part, count in fields]
    return mechanisms.from_fields(fields)
