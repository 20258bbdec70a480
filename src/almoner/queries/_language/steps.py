"""Steps for each person: a person's rows become one row, before the question is asked."""

from collections.abc import Mapping

from almoner._check import quoted
from almoner.errors import ArgumentError
from almoner.queries._language.expressions import Call, Expression, parts
from almoner.queries._language.where import FUNCTIONS, parse_value

__all__ = ["AGGREGATES", "MOST_STEPS", "Steps", "checked_steps", "parse_step"]

AGGREGATES = frozenset({"all", "any", "count", "distinct", "first", "last", "max", "min", "sum"})
"""The functions of all of a person's rows."""

Steps = tuple[tuple[str, str], ...]
"""Pairs of a column's name and what it is for a person."""

MOST_STEPS = 100


def checked_steps(steps: object) -> Steps:
    """{name: aggregate} as pairs; refuses what is no aggregate of a person's rows."""
    pairs = tuple(steps.items()) if isinstance(steps, Mapping) else tuple(map(tuple, steps))  # type: ignore[call-overload]
    if not 1 <= len(pairs) <= MOST_STEPS or not all(len(pair) == 2 and all(map(_is_text, pair)) for pair in pairs):
        raise ArgumentError("each_person must be {name: aggregate}, as in {'visits': 'count()'}")
    if len({name.casefold() for name, _ in pairs}) < len(pairs):
        raise ArgumentError("each_person: each name once")
    for _, text in pairs:
        parse_step(text)
    return pairs


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 1000


def parse_step(text: str) -> tuple[str, tuple[Expression, ...]]:
    """(The aggregate, its arguments): expressions about one row."""
    tree = parse_value(text, name="each_person", functions=FUNCTIONS | AGGREGATES)
    if not isinstance(tree, Call) or tree.name not in AGGREGATES:
        raise ArgumentError(
            f"each_person: {quoted(text, 'each')} must be one of {', '.join(sorted(AGGREGATES))} of a person's rows"
        )
    takes = {"count": (0, 1), "first": (2,), "last": (2,)}.get(tree.name, (1,))
    if len(tree.arguments) not in takes:
        raise ArgumentError(f"each_person: {tree.name}() takes {' or '.join(map(str, takes))} values")
    if any(map(_has_aggregate, tree.arguments)):
        raise ArgumentError(f"each_person: {quoted(text, 'one')} has an aggregate inside of an aggregate")
    return tree.name, tree.arguments


def _has_aggregate(node: Expression) -> bool:
    return (isinstance(node, Call) and node.name in AGGREGATES) or any(map(_has_aggregate, parts(node)))
