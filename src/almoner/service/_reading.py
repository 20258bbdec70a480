"""Read the tables of a policy file: each value with its name, the value and the rule it breaks."""

from collections.abc import Mapping
from datetime import date, datetime
from math import isfinite
from typing import Any

from almoner.errors import ArgumentError

__all__ = ["Settings"]


class Settings:
    """One table of the file. What was not asked for when ``done`` is called is refused as unknown.

    Args:
        where: its name, with a point behind it, such as ``limits.``; empty for the file itself.
        values: as the file has them.
    """

    def __init__(self, where: str, values: object) -> None:
        if not isinstance(values, Mapping):
            raise ArgumentError(f"{where.rstrip('.')} must be a table")
        self.where, self._values, self._known = where, dict(values), set[str]()

    def take(self, name: str) -> Any:
        """A value as it is; None if it is not there."""
        self._known.add(name)
        return self._values.get(name)

    def names(self) -> list[str]:
        """The names in this table, all of which are taken for known."""
        self._known |= self._values.keys()
        return list(self._values)

    def refuse(self, name: str, rule: str, *, secret: bool = False) -> ArgumentError:
        """The error for a value that breaks a rule."""
        shown = "" if secret or name not in self._values else f"={self._values[name]!r:.100}"
        return ArgumentError(f"{self.where}{name}{shown} must be {rule}")

    def number(self, name: str, default: Any, *, above: float, most: float) -> Any:
        """A number above ``above`` and at most ``most``."""
        value = self.take(name)
        if value is None:
            return default
        right = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        if not right or not above < value <= most:
            raise self.refuse(name, f"a number above {above:g}, and at most {most:g}")
        return float(value)

    def share(self, name: str, default: Any, *, zero: bool = False) -> Any:
        """A share above 0, or from 0 on, and at most 1."""
        if zero and self._values.get(name) == 0 and not isinstance(self._values.get(name), bool):
            return float(self.take(name))
        return self.number(name, default, above=0, most=1)

    def whole(self, name: str, default: Any, *, low: int, high: int) -> Any:
        """A whole number."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.refuse(name, f"a whole number from {low} to {high}")
        return value

    def text(self, name: str, default: Any = None, *, most: int = 200) -> Any:
        """A printable text."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, str) or not 1 <= len(value) <= most or not value.isprintable():
            raise self.refuse(name, f"1 to {most} printable characters")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return value

    def day(self, name: str) -> date | None:
        """A date, such as 2027-01-01."""
        value = self.take(name)
        if value is not None and (not isinstance(value, date) or isinstance(value, datetime)):
            raise self.refuse(name, "a date, such as 2027-01-01, without quotes")
        return value

    def table(self, name: str) -> "Settings":
        """A table in this one; empty if it is not there."""
        value = self.take(name)
        return Settings(f"{self.where}{name}.", {} if value is None else value)

    def done(self) -> None:
        """Refuse what nobody asked for."""
        for name in self._values:
            if name not in self._known:
                raise ArgumentError(f"{self.where}{name} is not known; known are {', '.join(sorted(self._known))}")
