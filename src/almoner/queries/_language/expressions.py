"""The nodes of parsed expressions: values and conditions about one row. Frozen; what they mean in SQL is elsewhere."""

from dataclasses import dataclass

__all__ = [
    "And",
    "Arithmetic",
    "Call",
    "Case",
    "Column",
    "Compare",
    "Condition",
    "Expression",
    "In",
    "IsNull",
    "IsTrue",
    "Like",
    "Literal",
    "Not",
    "Or",
    "parts",
]


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text or a truth value."""

    value: int | float | str | bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two numbers joined by a sign: + - * /."""

    sign: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Call:
    """A function of some values."""

    name: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, else the other value; missing where there is none."""

    branches: tuple[tuple["Condition", "Expression"], ...]
    otherwise: "Expression | None"


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison: left sign right."""

    sign: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class In:
    """A value is one of some literals."""

    column: "Expression"
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """A text matches a pattern, in which % stands for any text and _ for one character."""

    column: "Expression"
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """A value is missing."""

    column: "Expression"


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A truth value."""

    column: "Expression"


@dataclass(frozen=True, slots=True)
class Not:
    """A condition is false."""

    of: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    """Every part is true."""

    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Some part is true."""

    parts: tuple["Condition", ...]


Condition = Compare | In | Like | IsNull | IsTrue | Not | And | Or
Expression = Column | Literal | Arithmetic | Call | Case | Condition


def parts(node: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside one."""
    match node:
        case Arithmetic() | Compare():
            return node.left, node.right
        case Call():
            return node.arguments
        case Case():
            listed = [each for branch in node.branches for each in branch]
            return (*listed, *([] if node.otherwise is None else [node.otherwise]))
        case In() | Like() | IsNull() | IsTrue():
            return (node.column,)
        case Not():
            return (node.of,)
        case And() | Or():
            return node.parts
    return ()
