"""Parts of refusals, read off the source: each says what came, what is wanted, and where it can the line to write."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent.parent / "src" / "almoner"
REFUSALS = {"ArgumentError", "DataError", "Unsupported"}
"""Errors of who wrote something that can be written otherwise. The others are exceptions, with a reason:

BudgetExceeded      says what was asked, spent and left: nothing that one writes brings a budget back
CalibrationFailed   says which target no parameter meets: a line would be another target
LedgerError         says what is wrong with a file or a server, and in ``reason`` what can be done
UnknownPerson       must say nothing of who is there
CopyRefused, MissingExtra, ServiceRefused   have one place each, and tests of their own
"""
CAME = (
    r"\{\}|\w=|--\w|`|'|\b[a-z]+_[a-z]+\b|^\w+: |"
    r"^(?!(a|an|the|this|there|two|so|too|no|not|exactly|charge|give)\b)[\w.]+(:| and \w+)? (must|has|is|are|needs?)\b"
)
"""A value, or the name of an argument, an option or a column."""
WANTED = (
    r"`|\b(must|give|write|needs?|use|choose|takes?|leave|only|alone|at most|at least|for example|such as|did you mean|"
    r"once|again|instead|make|open|see|read|ask|are read|is for|are for|go on|call|pip install|settle)\b"
)
"""A rule, or what to do."""
LINE = (
    r"`|\w=|for example|such as|did you mean|\b(write|give|leave|use|choose|take|see|make|call) |"
    r"must (be|hold|have|name) "
)
"""Words to write, or the rule that they must keep."""
LACKING = {"what came": (CAME, 60), "what is wanted": (WANTED, 320), "the line to write": (LINE, 370)}
"""Refusals without a part; these numbers may only fall."""
HELPERS = {"line", "nearest", "similar", "away", "refused", "told", "quoted"}


def words(node, names):
    """The text of an expression, with {} for what is put into it."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(words(part, names) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return words(node.value, names) if isinstance(node.value, ast.Name | ast.IfExp | ast.Call) else "{}"
    if isinstance(node, ast.BinOp):
        return words(node.left, names) + words(node.right, names)
    if isinstance(node, ast.IfExp):
        return words(node.body, names) + words(node.orelse, names)
    if isinstance(node, ast.Name) and node.id in names:
        return "{}" + words(names[node.id], {name: value for name, value in names.items() if name != node.id})
    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in HELPERS:
        return "`{}`"
    return "{}"


def refusals():
    """(Place, text) of every refusal with a text of its own in the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                continue
            names = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    names[node.targets[0].id] = node.value
            for node in ast.walk(function):
                made = node.exc if isinstance(node, ast.Raise) else None
                if isinstance(made, ast.Call) and getattr(made.func, "id", "") in REFUSALS and made.args:
                    yield (str(path.relative_to(SOURCE)), node.lineno), words(made.args[0], names)


@pytest.fixture(scope="module")
def found():
    texts = dict(refusals())
    assert len(texts) > 1000
    return {place: text for place, text in texts.items() if text.strip("{} `:")}  # others are the words of a function


@pytest.mark.parametrize("part", LACKING)
def test_refusals_have_their_parts(found, part):
    """Each part is in nearly all refusals; those without it are counted, and none may be added."""
    pattern, most = LACKING[part]
    without = [f"{path}:{line}: {text}" for (path, line), text in found.items() if not re.search(pattern, text)]
    assert len(without) <= most, "\n".join(without)


def test_a_refusal_without_a_part_is_found():
    """The patterns tell a bare complaint from a refusal."""
    for pattern, _ in LACKING.values():
        assert not re.search(pattern, "too many points")
        assert re.search(pattern, "points={} must be at most {}; for example `points=5`")
