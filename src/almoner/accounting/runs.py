"""Several mechanisms in one run, as a file lists them; one number of theirs may be unknown.

A file has ``[[mechanisms]]``, each with its ``kind``, its fields as in :mod:`almoner.mechanisms`, and ``count``; or
``file``, a JSON file of one that ``mechanisms.to_fields`` described. A JSON file may be such a description itself.
With ``adjacency = "replace"`` one person's records are replaced by others, in place of added or removed.

>>> listed = [{"kind": "Gaussian", "sigma": "?", "count": 90}, {"kind": "Laplace", "scale": 20, "name": "report"}]
>>> found = of({"mechanisms": listed}).solve(epsilon=1.0, delta=1e-6)
>>> found.field, round(found.number, 2), found.epsilon <= 1.0
('mechanisms.0.sigma', 40.89, True)
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from math import inf
from pathlib import Path
from re import search
from typing import Annotated, Any, Literal, Union

from almoner import mechanisms
from almoner._reading import Either, Model, Number, Rule, json_values, model_of, toml
from almoner._reading import read as as_model
from almoner.accounting import calibrate
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, DataError

__all__ = ["Found", "Run", "RunFile", "of", "read"]

Place = tuple[str | int, ...]

Amount = Annotated[float | Literal["?"], Rule('a number, or "?" for the one to find')]
Count = Annotated[int | Literal["?"], Number(1, 10**15, whole=True, words=("?",))]
_TYPES: dict[Any, Any] = {
    float: Amount,
    int: Count,
    int | None: int | None,
    mechanisms.Mechanism: dict[str, Any],
    tuple[mechanisms.Mechanism, ...]: list[dict[str, Any]],
    tuple[float, ...]: list[float],
    tuple[float, ...] | None: list[float] | None,
}  # types of fields in a file, by those of mechanisms


class Saved(Model):
    """A mechanism in a JSON file."""

    file: str
    """the path of the file, from the folder of this one"""
    name: str | None = None
    """its name, in tables"""
    count: Count = 1
    """how often it is run"""


def _entry(kind: Any) -> type[Model]:
    takes = {each.name: (_TYPES[each.type], ... if each.default is MISSING else each.default) for each in fields(kind)}
    return model_of(kind, **{"kind": kind.__name__, "name": (str | None, None), "count": (Count, 1)} | takes)


_ENTRIES = {name: _entry(kind) for name in mechanisms.__all__ if is_dataclass(kind := getattr(mechanisms, name))}
_KINDS = f".kind must be one of {', '.join(_ENTRIES)}; or give file"
_Entry: Any = Annotated[Union[(*_ENTRIES.values(), Saved)], Either(lambda value: _model(value), _KINDS)]


def _model(value: Any) -> type[Model] | None:
    if not isinstance(value, Mapping) or not isinstance(kind := value.get("kind"), str | None):
        return None
    return Saved if kind is None and "file" in value else _ENTRIES.get(kind or "")


class RunFile(Model):
    """A file of a run."""

    adjacency: Literal["add-or-remove", "replace"] = "add-or-remove"
    """how neighbouring data differ: one person with all records more or less, or with other records"""
    mechanisms: list[_Entry]
    """what is run, in this order"""


_NEAR: dict[str, tuple[float, float, float]] = {
    **dict.fromkeys(("sigma", "scale", "epsilon", "eta"), (1e-3, 1.0, 1e9)),
    **dict.fromkeys(("sensitivity", "rho"), (1e-9, 1.0, 1e12)),
    "delta": (1.0, 1e6, 1e18),
    "sample_rate": (1.0, 100.0, 1e12),
    "runs": (1e-6, 0.1, 1.0),
}  # least, likely and largest number, or its inverse where a smaller one costs less; of noise, in units of the other


@dataclass(frozen=True, slots=True)
class Found:
    """The unknown number of a run. Every field is public.

    Attributes:
        field: its place in the file.
        number: the least noise, or the most of what costs.
        run: with that number.
        epsilon: of the run, fixed in advance.
    """

    field: str
    number: float
    run: mechanisms.Composed
    epsilon: float


@dataclass(frozen=True, slots=True)
class Run:
    """Mechanisms that a file lists. Every field is public.

    Attributes:
        names: of the entries, or their places.
        parts: the fields of each, with its count.
        known: the mechanism of each, None where a number is unknown.
        unknown: the place of the number that is unknown.
        adjacency: "add-or-remove", or "replace": then the mechanisms are those of ``mechanisms.replaced``.
    """

    names: tuple[str, ...]
    parts: tuple[dict[str, Any], ...]
    known: tuple[mechanisms.Mechanism | None, ...]
    unknown: Place | None = None
    adjacency: str = "add-or-remove"

    def mechanism(self, number: float | None = None) -> mechanisms.Composed:
        """All of them, one after the other, with a number in the place of the unknown one."""
        made = list(self.known)
        if self.unknown is not None:
            if number is None:
                told = _told(self.unknown)
                raise ArgumentError(f"{told} is unknown: `almoner calibrate` finds it; or write a number")
            at = int(self.unknown[1])
            made[at] = _made(_with(self.parts[at], self.unknown[2:], number), f"mechanisms.{at}")
        run = tuple(each for each in made if each is not None)
        return mechanisms.Composed(tuple(map(mechanisms.replaced, run)) if self.adjacency == "replace" else run)

    def solve(self, *, epsilon: float, delta: float) -> Found:
        """The unknown number with which the run, fixed in advance, fits: the least noise, or the most of anything else.

        Raises:
            CalibrationFailed: no number is enough.

        Guarantee: with this number the run, fixed in advance, is (epsilon, delta)-DP.
        Source: theory 2.3, 3 and 7.2.
        """
        if self.unknown is None:
            raise ArgumentError('no number is unknown: write "?" in the place of one, such as sigma = "?"')
        asked: Any = {"epsilon": epsilon, "delta": delta}
        *_, name = self.unknown
        if name == "count":
            number: float = calibrate.most_rounds(self.mechanism, **asked)
        elif name in ("sigma", "scale"):
            number = calibrate.least(self.mechanism, **self._range(), **asked)
        else:
            most = 1.0 if name in ("delta", "sample_rate") else inf
            found = calibrate.least(lambda inverse: self.mechanism(min(most, 1 / inverse)), **self._range(), **asked)
            number = min(most, 1 / found)
        run = self.mechanism(number)
        return Found(_told(self.unknown), number, run, tightest(run, delta=delta).epsilon)

    def _range(self) -> dict[str, float]:
        """Where the unknown number is looked for, or its inverse; noise in units of the sensitivity, and that of it."""
        _, at, *inside, name = self.unknown or ("", 0, "")
        beside: Any = self.parts[int(at)]
        for step in inside:
            beside = beside[step]
        unit = 1.0
        if name in ("sigma", "scale"):
            unit = float(beside.get("sensitivity", 1.0))
        elif name == "sensitivity":
            unit = 1 / float(beside.get("sigma", beside.get("scale", 1.0)))
        return dict(zip(("low", "near", "high"), (each * unit for each in _NEAR[str(name)]), strict=True))


def read(path: Path) -> Run:
    """The run of a TOML or JSON file.

    Raises:
        DataError: it cannot be read, or an entry breaks a rule: the message names it.
    """
    values = _values(path)
    try:
        return of(values, folder=path.parent)
    except ArgumentError as error:
        words = str(error)
        if found := search(r"^mechanisms\.(\d+)", words):
            entry = values["mechanisms"][int(found[1])] if "mechanisms" in values else None
            name = f" ({entry['name']})" if isinstance(entry, dict) and "name" in entry else ""
            words = f"{found[0]}{name}{words[found.end() :]}"
        raise DataError(f"{path}: {words}") from None


def of(values: Mapping[str, Any], *, folder: Path = Path()) -> Run:
    """The run that the values of a file describe; files that it names are read from a folder."""
    if isinstance(values, Mapping) and "kind" in values:
        inside = {name: value for name, value in values.items() if name != "kind"}
        values = inside if values["kind"] == "Composed" else {"mechanisms": [values]}
    as_model(RunFile, values)
    if not values["mechanisms"]:
        raise ArgumentError('mechanisms is empty: write one, such as {kind = "Gaussian", sigma = 2.0, count = 100}')
    parts, names = [], []
    for place, entry in enumerate(values["mechanisms"]):
        part = {name: value for name, value in entry.items() if name != "name"}
        if "file" in part:
            saved = _saved(folder / part["file"], place)
            part = {"kind": "Repeated", "mechanism": saved, "count": part.get("count", 1)}
        parts.append(part)
        names.append(entry.get("name") or f"mechanisms.{place}")
    unknown = [("mechanisms", place, *each) for place, part in enumerate(parts) for each in _unknown(part)]
    if len(unknown) > 1:
        raise ArgumentError(f'{" and ".join(map(_told, unknown))} are unknown: one number may be "?"')
    for *_, name in unknown:
        if name != "count" and name not in _NEAR:
            raise ArgumentError(f'{_told(unknown[0])}="?" cannot be found: write what it is')
    at = unknown[0][1] if unknown else None
    made = [None if place == at else _made(part, f"mechanisms.{place}") for place, part in enumerate(parts)]
    adjacency = values.get("adjacency", "add-or-remove")
    run = Run(tuple(names), tuple(parts), tuple(made), unknown[0] if unknown else None, adjacency)
    if unknown:
        run.mechanism(2 if unknown[0][-1] in ("count", "runs") else 0.5)  # refuses what is broken beside it
    return run


def _values(path: Path) -> Any:
    if path.suffix.lower() != ".json":
        return toml(path)
    try:
        return json_values(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except DataError as error:
        raise DataError(f"{path} {error}") from None


def _saved(path: Path, place: int) -> dict[str, Any]:
    try:
        fields = _values(path)
    except DataError as error:
        raise ArgumentError(f"mechanisms.{place}.file: {error}") from None
    if not isinstance(fields, dict) or "kind" not in fields:
        cure = "`json.dumps(mechanisms.to_fields(...))` writes one"
        raise ArgumentError(f"mechanisms.{place}.file: {path} is no mechanism: {cure}")
    return fields


def _unknown(value: Any) -> Iterator[Place]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        if isinstance(each, str) and each == "?":
            yield (name,)
        yield from ((name, *place) for place in _unknown(each))


def _with(value: Any, place: Place, number: Any) -> Any:
    if not place:
        return number
    changed = value.copy()
    changed[place[0]] = _with(value[place[0]], place[1:], number)
    return changed


def _made(part: Mapping[str, Any], where: str) -> mechanisms.Mechanism:
    own = dict(part)
    count = 1 if part["kind"] == "Repeated" else own.pop("count", 1)
    try:
        one = mechanisms.from_fields(own, where=where)
        return one if count == 1 else mechanisms.Repeated(one, count)
    except RecursionError:
        raise ArgumentError(f"{where} has too many mechanisms in one another") from None


def _told(place: Place) -> str:
    return ".".join(map(str, place))
