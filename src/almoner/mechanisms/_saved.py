"""Mechanisms as plain values, and back."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from almoner import _check
from almoner.errors import ArgumentError
from almoner.mechanisms import _pair, _rounds
from almoner.mechanisms._rounds import Mechanism

_KINDS: dict[str, type[Mechanism]] = {
    name: kind
    for module in (_rounds, _pair)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Mechanism) and kind not in (Mechanism, _pair.Paired)
}


def to_fields(mechanism: Mechanism) -> dict[str, object]:
    """A mechanism as its kind and its parameters: plain values, which JSON can hold.

    >>> from almoner.mechanisms import Pure, Repeated
    >>> to_fields(Repeated(Pure(0.1), 2))
    {'kind': 'Repeated', 'mechanism': {'kind': 'Pure', 'epsilon': 0.1}, 'count': 2}
    """
    described: dict[str, object] = {"kind": type(mechanism).__name__}
    for field in fields(mechanism):  # type: ignore[arg-type]
        value = getattr(mechanism, field.name)
        if isinstance(value, Mechanism):
            value = to_fields(value)
        elif isinstance(value, tuple):
            value = [to_fields(each) if isinstance(each, Mechanism) else each for each in value]
        described[field.name] = value
    return described


def from_fields(described: Mapping[str, object], *, where: str = "described") -> Mechanism:
    """The mechanism that :func:`to_fields` described; ``where`` is its place, in errors.

    Raises:
        ArgumentError: there is no such mechanism, or its parameters break a rule.

    >>> from_fields({"kind": "Repeated", "mechanism": {"kind": "Pure", "epsilon": 0.1}, "count": 2})
    Repeated(mechanism=Pure(epsilon=0.1), count=2)
    """
    from almoner._reading import read  # which most processes never need

    kind = described.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ArgumentError(f"{where}: {_check.told(kind=kind)} must be the name of a mechanism")
    parameters: dict[str, Any] = {}
    for name, value in described.items():
        if isinstance(value, Mapping):
            value = from_fields(value, where=f"{where}.{name}")
        elif isinstance(value, list | tuple):
            value = tuple(
                from_fields(each, where=f"{where}.{name}.{place}") if isinstance(each, Mapping) else each
                for place, each in enumerate(value)
            )
        parameters[name] = value
    read(model_of(kind), parameters, where=where)
    del parameters["kind"]
    try:
        return _KINDS[kind](**parameters)
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None


def model_of(kind: str) -> Any:
    from almoner._reading import model_of

    return model_of(_KINDS[kind], kind=kind)  # type: ignore[arg-type]


def fields_schema() -> dict[str, Any]:
    """JSON Schema of mechanisms as plain values."""
    from almoner._reading import one_of, schema_of

    return schema_of(one_of("kind", map(model_of, _KINDS)))
