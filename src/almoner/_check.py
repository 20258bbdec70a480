"""Check arguments: each error names the argument, the value and the rule; NaN is rejected.

Use with keyword arguments, so that the message knows the name: ``_check.positive(sigma=sigma)``. Of values that come in
as text one may be a secret: what is checked in ``unquoted`` is refused by its name and the rule alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date
from difflib import get_close_matches
from functools import wraps
from json import dumps
from math import inf
from numbers import Integral, Rational, Real
from pathlib import Path
from sys import float_info
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from almoner.errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

P = ParamSpec("P")
T = TypeVar("T")

_MOST = float_info.max
_SMALLEST, _LARGEST = 1e-60, 1e60  # squares, orders and units of what lies between still fit a float
_EXAMPLES = {
    "epsilon": 1.0, "delta": 1e-5, "rho": 0.1, "mu": 1.0, "sigma": 10.0, "noise_multiplier": 1.1, "sample_rate": 0.01,
    "max_grad_norm": 1.0, "clip": 1, "divisor": 100, "batch_size": 100, "learning_rate": 0.5, "epochs": 5, "steps": 100,
}  # fmt: skip
"""A usual value of arguments that have one name everywhere, as refusals tell what to write."""
_UNQUOTED = ContextVar("_UNQUOTED", default=False)


@contextmanager
def unquoted() -> Iterator[None]:
    """Let errors quote no value, inside of a block or of a decorated function."""
    before = _UNQUOTED.set(True)
    try:
        yield
    finally:
        _UNQUOTED.reset(before)


def quoted(value: object, instead: str = "a value", *, most: int = 40) -> str:
    """A value as errors show it; other words where none is quoted, and for a number of too many digits to write."""
    if _UNQUOTED.get() or (isinstance(value, int) and abs(value) >= 2**1024):
        return instead
    return str(value) if isinstance(value, date) else repr(value[:most] if isinstance(value, str) else value)


def told(**named: object) -> str:
    """An argument as errors tell it, ``name=value``: its name alone where ``quoted`` has no value."""
    ((name, value),) = named.items()
    said = quoted(value, "", most=1000)
    return f"{name}={said}" if said else name


def line(name: str, other: object = None, holds: Callable[[Any], bool] = lambda _: True) -> str:
    """The end of a refusal, which says what to write: a usual value if it may stand there, or else another one."""
    last = name.rpartition(".")[2]
    usual = _EXAMPLES.get(last)
    value = other if usual is None or not holds(usual) else usual
    return "" if value is None else f"; for example `{last}={dumps(value)}`"


def number(**named: object) -> None:
    """Reject what is not a real number (NaN included), and whole numbers that no float is as large as."""
    for name, value in named.items():
        # bool is a Real to Python; as a privacy parameter it is a mistake
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ArgumentError(f"{told(**{name: value})} must be a number{line(name)}")
        if isinstance(value, Rational) and not isinstance(value, Integral):
            raise ArgumentError(f"{told(**{name: value})} must be an int or a float, not a fraction: `float({name})`")
        if not isinstance(value, float | Integral):  # with NumPy's other floats, bounds would be rounded to theirs
            raise ArgumentError(f"{told(**{name: value})} must be an int or a float: `float({name})`")
        if value != value:
            raise ArgumentError(f"{told(**{name: value})} must be a number, not NaN{line(name)}")
        if isinstance(value, Integral) and not -_MOST <= int(value) <= _MOST:
            bits = int(value).bit_length()
            raise ArgumentError(f"{name} must be in [{-_MOST:g}, {_MOST:g}], not a number of {bits} bits")


def _numbers(holds: Callable[[Any], bool], rule: str, other: float, /, **named: object) -> None:
    number(**named)
    for name, value in named.items():
        if not holds(value):
            raise ArgumentError(f"{told(**{name: value})} must be {rule}{line(name, other, holds)}")


def within(low: float, high: float, **named: object) -> None:
    """Reject what is outside the closed interval [low, high]."""
    _numbers(
        lambda value: low <= value <= high, f"in [{low:g}, {high:g}]", low if low > -inf else min(high, 0), **named
    )


def floats(**named: "ArrayLike") -> "NDArray[np.float64]":
    """One argument's numbers as a float64 array; reject whole numbers that no float is as large as."""
    from numpy import asarray, float64  # here: commands that only print their help do without

    ((name, values),) = named.items()
    try:
        return asarray(values, float64)
    except OverflowError:
        raise ArgumentError(f"{name} must hold numbers in [{-_MOST:g}, {_MOST:g}], and no larger ones") from None


def between(low: float, high: float, **named: object) -> None:
    """Reject what is outside the open interval (low, high)."""
    _numbers(lambda value: low < value < high, f"in ({low:g}, {high:g})", low + min(1, (high - low) / 2), **named)


def positive(**named: object) -> None:
    """Reject what is not a finite number above zero."""
    _numbers(lambda value: 0 < value < inf, "positive and finite", 1.0, **named)


def noise(**named: object) -> None:
    """Reject what is no scale of noise, or so extreme that costs overflow."""
    positive(**named)
    within(_SMALLEST, _LARGEST, **named)


def amount(**named: object) -> None:
    """Reject what is no amount of privacy loss: in [0, 1e60], or infinite."""
    within(0, inf, **named)
    _numbers(lambda value: not _LARGEST < value < inf, f"in [0, {_LARGEST:g}] or inf", 1.0, **named)


def each(rule: Callable[..., None], *bounds: Any, **named: Iterable[object]) -> None:
    """Check every entry of lists by a rule: ``each(between, 1, inf, order=orders)``."""
    for name, values in named.items():
        for value in values:
            rule(*bounds, **{name: value})


def given(rule: Callable[..., None], *bounds: Any, **named: object) -> None:
    """Check those arguments by a rule that are not None: ``given(whole, 1, steps=steps)``."""
    rule(*bounds, **{name: value for name, value in named.items() if value is not None})


def equally_long(**named: Sequence[object]) -> None:
    """Reject two lists of which one is longer than the other, or both are empty."""
    (one, first), (two, second) = named.items()
    if not first or len(first) != len(second):
        raise ArgumentError(f"{one} and {two} must be equally long, not {len(first)} and {len(second)}, nor empty")


def whole(low: int, **named: object) -> None:
    """Reject what is not a whole number >= low."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
            told_of = f"{told(**{name: value})} must be a whole number >= {low}"
            raise ArgumentError(told_of + line(name, low, lambda usual: low <= usual == int(usual)))


def one_of(options: Sequence[object], **named: object) -> None:
    """Reject what is not among the options."""
    for name, value in named.items():
        if value not in options:
            listed = ", ".join(map(repr, options))
            raise ArgumentError(f"{told(**{name: value})} must be one of {listed}{nearest(name, value, options)}")


def nearest(name: str, value: object, options: Iterable[object]) -> str:
    """The end of a refusal of what is among no options: the one that was meant, or else the first text of them."""
    texts = [each for each in options if isinstance(each, str)]
    near = [] if _UNQUOTED.get() else get_close_matches(str(value).lower(), texts, 1, 0.5)
    return f"; for example `{name}={dumps((near or texts)[0])}`" if texts else ""


def similar(word: str, known: Iterable[str], instead: str = "") -> str:
    """The end of a refusal of a name: the one that was meant, or else other words."""
    near = get_close_matches(word, known, 1, 0.6)
    return f"; did you mean `{near[0]}`?" if near else instead


def away(path: Path) -> str:
    """The words on a file that is not there, for who named it: with the one beside it that was meant."""
    beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, beside, 1, 0.8)
    return f"{path} is not there" + (f"; did you mean `{path.with_name(near[0])}`?" if near else "")


@contextmanager
def placed(where: str) -> Iterator[None]:
    """Let an ArgumentError of a block say first what it is about."""
    try:
        yield
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None


def saved(state: object, *names: str) -> None:
    """Reject a mapping that ``state()`` did not produce."""
    missing = [name for name in names if not isinstance(state, Mapping) or name not in state]
    if missing:
        raise ArgumentError(f"state must be what state() gave; it lacks {', '.join(missing)}")


def name(**named: object) -> None:
    """Refuse what is not a name or a key: 1 to 200 printable characters."""
    for argument, value in named.items():
        if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
            raise ArgumentError(f"{told(**{argument: value})} must be 1 to 200 printable characters")


def renamed(lines: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function to refuse, by TypeError, names of other libraries, of which ``lines`` has what to write."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def checked(*args: P.args, **given: P.kwargs) -> T:
            if told := [f"{name}=: write `{lines[name]}`" for name in given if name in lines]:
                raise TypeError("; ".join(told))
            return function(*args, **given)

        return checked

    return decorated
