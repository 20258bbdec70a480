"""Models of what comes in as text: strict, and refused by place and rule."""

from typing import Annotated, Literal

import numpy as np
import pytest

from almoner._check import quoted, told, unquoted
from almoner._reading import Day, Field, Model, Number, Rule, Text, json_values, read, schema_of, toml
from almoner.errors import ArgumentError, DataError


class Inner(Model):
    share: Annotated[float, Number(0, 1, above=True)] = 0.5
    """a share"""
    whole: Annotated[int, Number(1, 9, whole=True)] | None = None
    flag: bool = False
    day: Day | None = None


class Outer(Model):
    name: Annotated[str, Text(5)]
    kind: Literal["a", "b"] = "a"
    inner: dict[str, Inner] = Field(default={})
    listed: Annotated[list[str], Rule("a list of texts")] = Field(default=[])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "name is missing"),
        ({"nam": "x"}, "nam is not known; known are inner, kind, listed, name; did you mean `name`?"),
        ({"name": "x", "a b\x00": 1}, "a name is not known; known are"),
        ({"name": "longer"}, "name='longer' must be 1 to 5 printable characters"),
        ({"name": "a\nb"}, "name='a\\nb' must be 1 to 5 printable characters"),
        ({"name": 3}, "name=3 must be 1 to 5 printable characters"),
        ({"name": "x", "kind": "c"}, "kind='c' must be one of 'a' or 'b'"),
        ({"name": "x", "inner": 3}, "inner=3 must be a table"),
        ({"name": "x", "inner": {"one": 3}}, "inner.one=3 must be a table"),
        ({"name": "x", "inner": {"one": {"shar": 1}}}, "inner.one.shar is not known"),
        (
            {"name": "x", "inner": {"one": {"share": "1"}}},
            "inner.one.share='1' must be a number above 0, and at most 1",
        ),
        ({"name": "x", "inner": {"one": {"share": True}}}, "inner.one.share=True must be a number above 0"),
        ({"name": "x", "inner": {"one": {"share": float("nan")}}}, "inner.one.share=nan must be a number above 0"),
        ({"name": "x", "inner": {"one": {"whole": 2.0}}}, "inner.one.whole=2.0 must be a whole number from 1 to 9"),
        ({"name": "x", "inner": {"one": {"whole": 10**400}}}, "inner.one.whole must be a whole number from 1 to 9"),
        ({"name": "x", "inner": {"one": {"flag": 1}}}, "inner.one.flag=1 must be true or false"),
        ({"name": "x", "inner": {"one": {"day": "2026-01-01"}}}, "inner.one.day='2026-01-01' must be a date"),
        ({"name": "x", "listed": ["a", 3]}, "listed must be a list of texts"),
        (3, "the whole must be a table"),
    ],
)
def test_what_breaks_a_rule_is_told_by_place_and_rule(values, message):
    """Also in parts of parts; where values are not quoted, the rest of the sentence is the same."""
    with pytest.raises(ArgumentError) as refused:
        read(Outer, values)
    assert str(refused.value).startswith(message)
    with pytest.raises(ArgumentError) as refused, unquoted():
        read(Outer, values)
    assert "=" not in str(refused.value).partition("; for example `")[0]


def test_numbers_pass_on_as_they_came():
    """A whole number stays one; one of NumPy is a number."""
    part = read(Inner, {"share": 1, "whole": np.int64(3)})
    assert (type(part.share), part.whole) == (int, 3)


def test_values_are_not_shown():
    """Neither by the repr of a model, which may end in a log, nor while nothing is quoted."""
    assert repr(read(Outer, {"name": "x"})) == "Outer()"
    assert (quoted("x"), told(a="x"), told(a=10**400)) == ("'x'", "a='x'", "a")
    with unquoted():
        assert (quoted("x", "one"), told(a="x")) == ("one", "a")
    assert told(a="x") == "a='x'"


def test_the_json_schema_has_the_rules():
    """Bounds, defaults, texts about the fields, and no other fields."""
    part = schema_of(Outer)["$defs"]["Inner"]
    share = {"default": 0.5, "description": "a share", "exclusiveMinimum": 0, "maximum": 1, "type": "number"}
    assert part["properties"]["share"] == share
    assert part["additionalProperties"] is False


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'"\\ud800"',
        b"\xff",
        b"",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 100_000,
    ],
)
def test_json_that_others_would_read_otherwise_is_refused(text):
    """A name twice, numbers that are not finite, half of a character, brackets too deep, too many digits."""
    with pytest.raises(DataError, match="must be JSON: UTF-8, each name once, and finite numbers"):
        json_values(text)


@pytest.mark.parametrize("text", ["a = 1\na = 2", f"a = {'[' * 100_000}", f"a = {'1' * 100_000}", "a = 'secret"])
def test_toml_that_cannot_be_read_is_refused_without_its_words(tmp_path, text):
    """A name twice, brackets too deep, too many digits, no end of a text."""
    (tmp_path / "file.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="is not a TOML file") as refused:
        toml(tmp_path / "file.toml")
    assert "secret" not in str(refused.value)
