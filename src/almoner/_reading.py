"""Models of what comes in as text or JSON, and the one place where a broken rule becomes a sentence.

Models are strict: a text is no number, 1 is not true, a number is finite, and a name that is not known is refused. A
number passes on as it came: one without a fraction stays a whole number, so that what is stored does not change.
"""

import ast
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import date
from difflib import get_close_matches
from functools import cache, reduce
from inspect import cleandoc, getsource
from itertools import pairwise
from math import isfinite
from numbers import Integral, Rational, Real
from operator import or_
from pathlib import Path
from re import findall, search
from textwrap import dedent
from typing import Annotated, Any, Literal, TypeVar, get_args

import pydantic
from pydantic import AfterValidator, AwareDatetime, Field, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from almoner._check import away, line, nearest, similar, told
from almoner.errors import ArgumentError, DataError

__all__ = [
    "AfterValidator", "Checked", "Day", "Either", "End", "Field", "Model", "Number", "Numbers", "Rule", "Text",
    "broken", "check_names", "json_values", "model_of", "model_validator", "one_of", "plain", "read", "schema_of",
    "told_of", "toml",
]  # fmt: skip

AnyModel = TypeVar("AnyModel", bound="Model")

_RULES = {
    "string_type": "text", "int_type": "a whole number", "float_type": "a number", "finite_number": "a finite number",
    "bool_type": "true or false", "dict_type": "a table", "model_type": "a table", "list_type": "a list",
    "is_instance_of": "a mechanism",
}  # fmt: skip
"""Rules of plain types, by what pydantic calls their errors."""


class Model(pydantic.BaseModel):
    """Base of all models."""

    model_config = pydantic.ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True, frozen=True,
        json_schema_serialization_defaults_required=True, use_attribute_docstrings=True,
    )  # fmt: skip

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema of it, for editors and other programs."""
        return schema_of(cls)

    def __repr_args__(self) -> list[Any]:
        """Show no value: one may be secret."""
        return []

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: object) -> object:
        """Refuse names that are not known, before one is missed under its right name."""
        if isinstance(values, Mapping) and (sentence := _wrong_names(cls, values)):
            raise broken(sentence)
        return values


def _wrong_names(model: type[Model], values: Mapping[str, Any]) -> str:
    """The sentence on a name that is not known, or is missing; empty if there is none."""
    known = _known(model)
    for name in values:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            return f".{_name(name)} is not known; known are {', '.join(sorted(known))}{meant}"
    missing = [name for name in known if known[name] and name not in values]
    if missing and "ask" in known:
        return f" {values.get('ask')!r} needs {', '.join(missing)}"
    return f".{missing[0]} is missing{line(missing[0])}" if missing else ""


@cache
def _known(model: type[Model]) -> dict[str, bool]:
    """True for the names that a model needs, False for others that it knows."""
    return {each.alias or name: each.is_required() for name, each in model.model_fields.items()}


def check_names(model: type[Model], values: Mapping[str, Any]) -> None:
    """Refuse names that a model does not have, or that are missing, and nothing else."""
    if sentence := _wrong_names(model, values):
        raise ArgumentError(sentence.lstrip(". "))


def broken(sentence: str) -> PydanticCustomError:
    """The error of a model or a validator that says a sentence of its own, which goes on behind its place: ".a is"."""
    return PydanticCustomError("sentence", "{sentence}", {"sentence": sentence})


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule of an annotated type, in the words behind "must be": ``Annotated[list[str], Rule("a list of names")]``."""

    must_be: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _ruled(handler(source), self.must_be)


@dataclass(frozen=True, slots=True)
class Number:
    """Type of a finite number between two bounds; of one of some words, where they may stand in its place."""

    low: float
    high: float
    above: bool = False  # true if the lower bound itself is too low
    whole: bool = False
    words: tuple[str, ...] = ()
    real: bool = False  # true if it becomes a float

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        low: dict[str, Any] = {"gt" if self.above else "ge": int(self.low) if self.whole else self.low}
        inner: CoreSchema
        if self.whole:
            inner = core_schema.int_schema(strict=True, le=int(self.high), **low)
        else:
            inner = core_schema.float_schema(strict=True, allow_inf_nan=False, le=self.high, **low)
        if self.words:
            inner = core_schema.union_schema([inner, core_schema.literal_schema(list(self.words))])
        other = self.low if not self.above else min(1.0, self.high)
        other = int(other) if self.whole else other
        return _ruled(inner, self.must_be, kind=int if self.whole else float, real=self.real, other=other)

    @property
    def must_be(self) -> str:
        if self.whole:
            ends = f"a whole number from {self.low:.0f} to {self.high:.0f}"
        elif self.above:
            ends = f"a number above {self.low:g}, and at most {self.high:g}"
        else:
            ends = f"a number in [{self.low:g}, {self.high:g}]"
        return " or ".join([ends, *map(repr, self.words)])


@dataclass(frozen=True, slots=True)
class Numbers:
    """Type of a list of finite numbers; any iterable of numbers becomes a tuple of floats."""

    least: int
    most: int
    low: float
    high: float
    rule: str  # rule in the words that go behind "must be"
    increasing: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        number = core_schema.float_schema(strict=True, allow_inf_nan=False, ge=self.low, le=self.high)
        listed = core_schema.list_schema(number, min_length=self.least, max_length=self.most, strict=True)
        return core_schema.no_info_wrap_validator_function(self._read, listed)

    def _read(self, values: Any, handler: core_schema.ValidatorFunctionWrapHandler) -> tuple[float, ...]:
        try:
            numbers = tuple(handler([plain(each, float) for each in values]))
        except (ValidationError, TypeError):
            numbers = ()
        if not numbers or (self.increasing and not all(a < b for a, b in pairwise(numbers))):
            raise PydanticCustomError("rule", "{rule}", {"rule": self.rule})
        return numbers


@dataclass(frozen=True, slots=True)
class Checked:
    """Type of what a function of ours checks and returns in its own form.

    The function raises ArgumentError, with the place; for what it cannot even read, ``must_be`` is the rule.
    """

    check: Callable[[Any], Any]
    shape: Any = Any  # type of it in JSON
    must_be: str = "of another form"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        shape = handler.generate_schema(self.shape)
        return core_schema.no_info_plain_validator_function(self._check, json_schema_input_schema=shape)

    def _check(self, value: Any) -> Any:
        try:
            return self.check(value)
        except (TypeError, AttributeError, KeyError, OverflowError, RecursionError):
            raise PydanticCustomError("rule", "{rule}", {"rule": self.must_be}) from None


@dataclass(frozen=True, slots=True)
class Either:
    """Type of one of several models."""

    choose: Callable[[Any], type[pydantic.BaseModel] | None]  # which one it is, by the value; None for none
    otherwise: str  # the sentence behind the place of what is none

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        tags = {f"[{each.__name__}]": handler.generate_schema(each) for each in get_args(source)}
        return core_schema.tagged_union_schema(
            tags, lambda value: (chosen := self.choose(value)) and f"[{chosen.__name__}]",
            custom_error_type="sentence", custom_error_message="{sentence}",
            custom_error_context={"sentence": self.otherwise},
        )  # fmt: skip


def plain(value: Any, kind: type[int] | type[float]) -> Any:
    """A number of NumPy as one of Python; others, and fractions, as they are."""
    if type(value) in (int, float, bool, str) or not isinstance(value, Integral if kind is int else Real):
        return value
    return value if isinstance(value, Rational) and not isinstance(value, Integral) else kind(value)  # type: ignore[call-overload]


def _ruled(
    inner: CoreSchema, rule: str, *, kind: type[int] | type[float] | None = None, real: bool = False, other: Any = None
) -> CoreSchema:
    """A type whose values pass on as they came (numbers of NumPy as plain ones), and whose errors say one rule."""

    def check(value: Any, handler: core_schema.ValidatorFunctionWrapHandler) -> Any:
        value = value if kind is None else plain(value, kind)
        try:
            read = handler(value)
        except ValidationError:
            raise PydanticCustomError("rule", "{rule}", {"rule": rule, "other": other}) from None
        return read if real else value

    return core_schema.no_info_wrap_validator_function(check, inner)


@dataclass(frozen=True, slots=True)
class Text:
    """Type of a printable text."""

    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(strict=True, min_length=1, max_length=self.most)
        return _ruled(core_schema.no_info_after_validator_function(self._printable, text), self.must_be)

    @property
    def must_be(self) -> str:
        return f"1 to {self.most} printable characters"

    @staticmethod
    def _printable(text: str) -> str:
        if not text.isprintable():
            raise ValueError
        return text


Day = Annotated[date, Rule("a date, such as 2027-01-01, without quotes")]
_END = Rule("a date, such as 2027-01-01, or with a time and its zone, 2027-01-01T12:30:00Z, without quotes")
End = Annotated[AwareDatetime | date, _END]


@cache
def model_of(kind: Any, /, **other: Any) -> type[Model]:
    """Model of the fields of a data class; of others a type, a text (that text alone), or a type and a default."""
    known = ((each.name, each.type, each.default) for each in fields(kind) if each.init)
    takes: dict[str, Any] = {name: (type_, ... if usual is MISSING else usual) for name, type_, usual in known}
    for name, each in other.items():
        takes[name] = each if isinstance(each, tuple) else (Literal[each] if isinstance(each, str) else each, ...)
    return pydantic.create_model(kind.__name__, __base__=Model, __doc__=None, **takes)


def one_of(tag: str, models: Iterable[type[Model]]) -> Any:
    """Type of what is one of several models, as a tag says."""
    return Annotated[reduce(or_, models), Field(discriminator=tag)]


def told_of(kind: type) -> dict[str, str]:
    """Texts below the fields of a class in its source, by their names; also of the classes before it."""
    told: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        body = ast.parse(dedent(getsource(each))).body[0].body  # type: ignore[attr-defined]
        for field, below in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                told[ast.unparse(field.target)] = cleandoc(ast.literal_eval(below.value))
    return told


def read(model: type[AnyModel], values: object, *, where: str = "") -> AnyModel:
    """Values of a file, a body or arguments as a model; ArgumentError: the place, behind ``where``, rule and value."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ArgumentError(_sentence(error, where)) from None


def _sentence(error: ValidationError, where: str) -> str:
    first = error.errors(include_url=False)[0]
    context, value = first.get("ctx", {}), first["input"]
    place = ".".join([where] * bool(where) + [_name(each) for each in first["loc"] if str(each)[:1] != "["])
    if first["type"] == "sentence":
        options = search(r"^[.](\w+) must be one of ([^;]*);", context["sentence"])
        near = similar(str(value.get(options[1])), options[2].split(", ")) if options and type(value) is dict else ""
        return f"{place}{context['sentence']}{near}".lstrip(". ")
    if first["type"] == "value_error":
        return str(context["error"])  # of a check of ours, which has the place
    expected = f"one of {context['expected']}" if "expected" in context else "of another form"
    rule = context.get("rule") or _RULES.get(first["type"]) or expected
    short = isinstance(value, int | float | str | date) or value is None
    end = nearest(place, value, findall("'([^']*)'", expected)) if rule == expected else ""
    other = {"bool_type": True, "int_type": 1, "float_type": 1.0}.get(first["type"], context.get("other"))
    fits = (type(other), int) if type(other) is float else (type(other),)
    end = end or ("" if other is None else line(place, other, lambda usual: type(usual) in fits))
    return f"{told(**{place: value}) if place and short else place or 'the whole'} must be {rule}{end}"


def _name(name: object) -> str:
    return str(name) if search(r"^[\w-]{1,60}$", str(name)) else "a name"


class _Untitled(GenerateJsonSchema):
    """JSON Schema whose fields have no titles beside their names, and whose objects have no other fields."""

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> dict[str, Any]:
        return super().typed_dict_schema(schema) | {"additionalProperties": False}

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def schema_of(model: Any, ref: str = "#/$defs/{model}", *, answered: bool = False) -> dict[str, Any]:
    """JSON Schema of a model, or of a type of answers, which have every field; ``ref`` is where parts stand."""
    mode: Literal["serialization", "validation"] = "serialization" if answered else "validation"
    return pydantic.TypeAdapter(model).json_schema(ref_template=ref, schema_generator=_Untitled, mode=mode)


def toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file; DataError: none can be read. It has the place, and no word, which may be secret."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(away(path)) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a TOML file: its text must be in UTF-8") from None
    except RecursionError:
        raise DataError(f"{path} is not a TOML file that can be read: its brackets are too deep") from None
    except ValueError as error:  # of a whole number of thousands of digits, too
        place = search(r"\((at line \d+, column \d+|at end of document)\)$", str(error))
        raise DataError(f"{path} is not a TOML file{f': look {place[1]}' if place else ''}") from None


def json_values(text: bytes) -> Any:
    """The values of a JSON text; DataError: none, or a name twice, numbers that are not finite, or no Unicode."""
    try:
        finite: Any = {"parse_constant": _finite, "parse_float": _finite}
        values = json.loads(text.decode("utf-8"), object_pairs_hook=_each_once, **finite)
        json.dumps(values, ensure_ascii=False).encode("utf-8")  # refuses half of a character
    except (ValueError, RecursionError):
        raise DataError("must be JSON: UTF-8, each name once, and finite numbers") from None
    return values


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError
    return table
