"""Several aggregates over the same groups, read off one release: numbers that they share are paid once."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import hypot
from typing import Annotated, Any, Literal

from almoner._check import quoted, told
from almoner._reading import Checked, Field, check_names, model_of
from almoner.errors import ArgumentError
from almoner.queries._language import expressions as tree
from almoner.queries._questions import row_contributions as terms
from almoner.queries._questions.intervals import NoiseBand, Whole
from almoner.queries._questions.kinds.counts import Count, People
from almoner.queries._questions.kinds.entries import Mean, Sum, Variance
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import Question, set_fields

_KINDS: dict[str, type[Question]] = {each.__name__.lower(): each for each in (Count, People, Sum, Mean, Variance)}
_OWN = ("column", "low", "high", "per", "bounds_hold")
_MOST = 64
Member = tuple[tuple[str, Any], ...]


def _members(given: Any) -> tuple[tuple[str, Member], ...]:
    """Each name with the fields of its aggregate, as a tuple of pairs."""
    listed = []
    for name, member in given.items() if isinstance(given, Mapping) else () if isinstance(given, str) else given:
        values = {"ask": member} if isinstance(member, str) else dict(member)
        if not isinstance(name, str) or not 1 <= len(name) <= 1000:
            raise ArgumentError("aggregates: each needs a name of 1 to 1000 characters")
        ask, about = values.get("ask"), f"aggregates: {quoted(name, 'one')}"
        if not isinstance(ask, str) or ask not in _KINDS:
            raise ArgumentError(f"{about}: {told(ask=ask)} must be one of {', '.join(_KINDS)}")
        if other := sorted(values.keys() - {"ask", *_OWN}):
            raise ArgumentError(
                f"{about}: {quoted(str(other[0]), 'a field')} is not of one aggregate: where=, by=, clip= and the "
                f"price are of all; its own are {', '.join(_OWN)}"
            )
        check_names(model_of(_KINDS[ask], ask=ask), values)  # type: ignore[arg-type]
        values = {field: tuple(value) if isinstance(value, list) else value for field, value in values.items()}
        listed.append((name, tuple((each, values[each]) for each in ("ask", *_OWN) if values.get(each) is not None)))
    if not 1 <= len(listed) <= _MOST or len(dict(listed)) < len(listed):
        raise ArgumentError(f"aggregates must be 1 to {_MOST} aggregates, each with a name of its own")
    return tuple(listed)


_Fields = dict[Literal["ask", "column", "low", "high", "per", "bounds_hold"], bool | float | str]
_Named = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=1000)], Literal["count", "people"] | _Fields],
    Field(min_length=1, max_length=_MOST),
]
_RULE = "{name: aggregate}, as in {'rows': 'count', 'hours': {'ask': 'mean', 'column': 'hours'}}"


@dataclass(frozen=True, slots=True)
class Several(Question[list[Any]]):
    """Several aggregates over the same groups, rows and people, at one price: {name: aggregate}.

    An aggregate is "count", "people", or the fields of a ``Count``, ``People``, ``Sum``, ``Mean`` or ``Variance``:
    ``{"ask": "mean", "column": "hours", "low": 1, "high": 99, "per": "row"}``. All are read off one noisy vector. A
    number that several need is in it once: a mean's count is the count where no entry of its column can be missing (by
    ``where``, as in ``hours is not null``), and a sum beside a mean of the same column and bounds is read off that. The
    noise on each number is the same share of the largest entry of its own, so a row of n numbers has noise of
    sqrt(n) (pure budgets: n) times that of one; ``clip`` shrinks all numbers of a person alike.

    A row without an entry of a column counts nowhere in the aggregates of that column, and in all others. The answer is
    a list in the order of ``aggregates``, and so are its intervals; ``Answer.columns(wide=True)`` has them by name.
    """

    aggregates: Annotated[Mapping[str, Any] | tuple[tuple[str, Member], ...], Checked(_members, _Named, _RULE)]
    members: tuple[tuple[str, Question], ...] = field(init=False, repr=False, compare=False)
    """Each name with its aggregate as a question of its own, whose price and clip mean nothing."""
    needed: tuple[tuple[terms.Coordinate, ...], ...] = field(init=False, repr=False, compare=False)
    """The numbers that each aggregate is read off."""
    places: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """Where these are among those that are released."""
    width_varies = True
    whole_rows = False

    def _check_kind(self) -> None:
        if self.error is not None:
            raise ArgumentError(f"{told(error=self.error)} is for one number: give rho= or epsilon=")
        listed: list[tuple[str, Question]] = []
        for name, values in self.plain().items():
            member = _KINDS[values.pop("ask")](**values, sigma=1.0, clip=1.0)
            if member.auto_bounds():
                raise ArgumentError(f"aggregates: {quoted(name, 'one')}: bounds must be numbers, not 'auto'")
            listed.append((name, member))
        set_fields(self, members=tuple(listed))
        set_fields(self, needed=tuple(self._needed(member) for _, member in listed))
        places = {each: place for place, each in enumerate(self.row())}
        set_fields(self, places=tuple(tuple(map(places.__getitem__, each)) for each in self.needed))

    def plain(self) -> dict[str, dict[str, Any]]:
        pairs: Any = self.aggregates
        return {name: dict(fields) for name, fields in pairs}

    @property
    def estimand(self) -> str:
        return "; ".join(f"{name}: {member.estimand}" for name, member in self.members)

    @property
    def whole_estimand(self) -> str:
        return "; ".join(f"{name}: {member.whole_estimand}" for name, member in self.members)

    @property
    def bounds_hold(self) -> bool | None:
        """True if all bounds were declared to take away nothing; None where there are no bounds."""
        declared = [getattr(member, "bounds_hold", None) for _, member in self.members]
        return all(declared) if (declared := [each for each in declared if each is not None]) else None

    def left_out(self) -> tuple[str, ...]:
        return tuple(name for _, member in self.members for name in member.left_out())

    def most_in_group(self) -> float | None:
        return None if any(member.most_in_group() is None for _, member in self.members) else 1.0

    def row(self) -> tuple[terms.Coordinate, ...]:
        """The numbers that the aggregates need, each once, by name: a record does not keep the aggregates' order."""
        by_name = sorted(zip(self.plain(), self.needed, strict=True))
        return tuple(dict.fromkeys(each for _, needed in by_name for each in needed))

    def _needed(self, member: Question) -> tuple[terms.Coordinate, ...]:
        """The numbers that an aggregate is read off: of a sum whose rows are counted anyway, those of its mean."""
        column = getattr(member, "column", None)
        missing = None if column is None or _is_there(column, self.where) else column
        # the counts in its row, and those of the rows with an entry of its column
        counts: dict[terms.Coordinate, terms.Coordinate]
        counts = {terms.CountRows(): terms.CountRows(missing), terms.AnyRow(): terms.AnyRow(missing)}
        if (mean := _as_mean(member)) is not None:
            others = (each for _, each in self.members if _as_mean(each) is None)
            if any(counts[terms.CountRows()] in self._needed(each) for each in others):
                return counts[terms.CountRows()], mean
        return tuple(counts.get(each, each) for each in member.row())

    def scales(self) -> dict[str, float]:
        full, scales = STEPS / self.steps, dict[terms.Coordinate, tuple[str, float]]()
        for (name, _), needed in zip(self.members, self.needed, strict=True):
            for each in needed:
                about, scale = "count", 1.0
                if isinstance(each, terms.Entry):
                    about, scale = ("sum of squares" if each.power == 2 else "sum"), each.scale**each.power
                    about = f"{about} from the middle" if each.center else about
                scales.setdefault(each, (f"{name}: {about}", full * scale))
        return dict(scales.values())

    def several(self) -> tuple[str, list[str]]:
        return "aggregate", [name for name, _ in self.members]

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        found = [member.read(*own) for (_, member), own in zip(self.members, self._own(parts, noise), strict=True)]
        return [value for value, _ in found], [interval for _, interval in found]

    def truth(self, whole: Whole) -> Any:
        both = self._own(whole.parts, whole.noise), self._own(whole.answered, whole.answered_noise)
        each = zip(self.members, *both, strict=True)
        found = [member.truth(Whole(*own, *answered, whole.least)) for (_, member), own, answered in each]
        return None if all(one is None for one in found) else found

    def reported(self) -> bool:
        return any(member.reported() for _, member in self.members)

    def _own(self, parts: list[float], noise: NoiseBand) -> Iterator[tuple[list[float], NoiseBand]]:
        """The numbers of each aggregate as its own question would have them, and the noise on each."""
        for (_, member), places in zip(self.members, self.places, strict=True):
            band = noise if all(map(self.adds_up, member.row())) else noise.of_group(1.0)
            own = [parts[place] for place in places]
            if isinstance(member, Sum) and len(own) > len(member.row()):  # the middle for each row, and the rest
                middle, half = member.middle / member.full, member.half / member.full
                error = noise.standard_error * hypot(middle, half)
                yield [own[0] * middle + own[1] * half], NoiseBand(error, noise.pure)
            else:
                yield own, band


def _as_mean(member: Question) -> terms.Entry | None:
    """Beside a count, the number that a sum can be read off; None for other aggregates."""
    if not isinstance(member, Sum):
        return None
    return terms.Entry(member.column, *member.ends, member.middle, member.half)


def _is_there(column: str, where: str | None) -> bool:
    """True if no row that a filter lets through lacks an entry, whatever the data."""
    named: list[tree.Expression] = [tree.Column(column)]
    with suppress(ArgumentError):  # a column's name may be no expression
        named.append(tree.parse_value(column, name="column"))
    return where is not None and any(each in named for each in _known(tree.parse(where)))


def _known(node: tree.Expression) -> Iterator[tree.Expression]:
    """Expressions that have a value where a condition is true."""
    match node:
        case tree.And(parts):
            for part in parts:
                yield from _known(part)
        case tree.Compare(_, left, right):
            yield from (left, right)
        case tree.In(value, _) | tree.Like(value, _) | tree.Not(tree.IsNull(value)):
            yield value
