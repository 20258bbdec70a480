"""Makes the pages of the API reference from the package: one for each public module, when the site is built."""

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any

from generate import table

import almoner

SECTION = re.compile(r"^(Args|Fields|Attributes|Returns|Raises|Examples?|Guarantee|Source|Does not promise):(.*)$")
BOXES = {"Guarantee": "success", "Source": "quote", "Does not promise": "warning"}
LISTS = {"Args": "Arguments", "Fields": "Fields", "Attributes": "Fields", "Raises": "Errors"}


def page(module_name: str) -> str:
    """The page of one public module."""
    module = importlib.import_module(module_name)
    lines = [f"# {module_name}", "", f"*{stability(module_name)}*", "", markdown(inspect.getdoc(module) or ""), ""]
    for name in sorted(module.__all__):
        lines += [*entry(module, name), ""]
    return "\n".join(lines)


def stability(module_name: str) -> str:
    """Mark of a module: how far its names may be relied on, as the package's docstring says of its room."""
    room = module_name.split(".")[1]
    marks = re.findall(r"(?m)^(stable|may change|experimental) +(.+)$", inspect.getdoc(almoner) or "")
    (mark,) = (mark for mark, rooms in marks if room in rooms.split(", "))
    return {"stable": "Stable.", "may change": "May change in any release.", "experimental": "Experimental."}[mark]


def entry(module: ModuleType, name: str) -> Iterator[str]:
    """The section of one public name."""
    thing = getattr(module, name)
    yield f"## {name} {{ #{name} }}"
    yield ""
    if inspect.ismodule(thing):
        yield f"The module `{thing.__name__}`."
        return
    if not (inspect.isclass(thing) or inspect.isfunction(inspect.unwrap(thing))) or isinstance(thing, GenericAlias):
        yield constant(module, name)
        return
    yield fenced(signature(name, thing))
    yield ""
    yield markdown(inspect.getdoc(thing) or "")
    if hasattr(thing, "model_fields"):
        yield ""
        yield table(thing)
    if inspect.isclass(thing):
        bases = [base for base in thing.__bases__ if base.__module__.startswith("almoner") and base.__name__[0] != "_"]
        if bases:
            yield ""
            yield "Inherits from " + ", ".join(f"`{base.__name__}`" for base in bases) + "."
        for member in members(thing, module):
            yield ""
            yield from member_entry(name, thing, member)


def members(cls: type, module: ModuleType) -> list[str]:
    """The public methods and properties with a docstring, without those of bases that have a section of their own."""
    listed = {getattr(module, name) for name in module.__all__ if inspect.isclass(getattr(module, name))} - {cls}
    elsewhere = {owner for base in listed & {*cls.__mro__} for owner in base.__mro__}
    found = {}
    for owner in reversed(cls.__mro__):
        if owner.__module__.startswith("almoner") and owner not in elsewhere:
            found |= {name: value for name, value in vars(owner).items() if name[0] != "_"}
    return sorted(
        name
        for name, value in found.items()
        if (
            inspect.isfunction(value)
            or isinstance(value, property | classmethod | staticmethod)
            or hasattr(value, "func")
        )
        and inspect.getdoc(getattr(cls, name))
    )


def member_entry(class_name: str, cls: type, name: str) -> Iterator[str]:
    """The section of one method or property."""
    value = inspect.getattr_static(cls, name)
    function = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
    yield f"### {class_name}.{name} {{ #{class_name}.{name} }}"
    yield ""
    if isinstance(value, property) or hasattr(value, "func"):
        _, returns = parameters(function)
        yield fenced(f"{name}: {returns}" if returns else name)
    else:
        yield fenced(signature(name, function, method=not isinstance(value, staticmethod)))
    yield ""
    yield markdown(inspect.getdoc(value) or inspect.getdoc(function) or "")


def constant(module: ModuleType, name: str) -> str:
    """What is known of a constant: its value, if short, and the text below its definition."""
    value = getattr(module, name)
    shown = repr(value)
    lines = [fenced(f"{name} = {shown}")] if len(shown) <= 200 and " at 0x" not in shown and "<" not in shown else []
    for node, text in _following(module):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            lines += ["", markdown(inspect.cleandoc(text))]
    return "\n".join(lines)


def _following(module: ModuleType) -> Iterator[tuple[Any, str]]:
    """Assignments of a module, each with the text that follows it."""
    body = ast.parse(inspect.getsource(module)).body
    for node, after in pairwise(body):
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(text, str):
            yield node, text


def signature(name: str, thing: Any, *, method: bool = False) -> str:
    """The signature as it is written in the source, on one line or with a line for each argument."""
    if getattr(thing, "_is_protocol", False):
        return f"class {name}(Protocol)"
    if inspect.isclass(thing):
        arguments, returns = class_parameters(thing), ""
    else:
        arguments, returns = parameters(thing)
        arguments = arguments[1:] if method else arguments
    end = f" -> {returns}" if returns else ""
    short = f"{name}({', '.join(arguments)}){end}"
    return short if len(short) <= 76 else f"{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){end}"


def parameters(function: Any) -> tuple[list[str], str]:
    """The arguments of a function and what it returns, in the words of the source."""
    node = _node(inspect.unwrap(function))
    if node is None:
        return [str(each) for each in inspect.signature(function).parameters.values()], ""
    arguments, spec = [], node.args
    given = [*spec.posonlyargs, *spec.args]
    defaults = [None] * (len(given) - len(spec.defaults)) + spec.defaults
    for place, (each, default) in enumerate(zip(given, defaults, strict=True), 1):
        arguments.append(_argument(each, default))
        if place == len(spec.posonlyargs):
            arguments.append("/")
    if spec.vararg or spec.kwonlyargs:
        arguments.append(f"*{_argument(spec.vararg, None)}" if spec.vararg else "*")
    arguments += [_argument(each, default) for each, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        arguments.append(f"**{_argument(spec.kwarg, None)}")
    return arguments, _unquoted(node.returns)


def class_parameters(cls: type) -> list[str]:
    """What a class is called with: the arguments of its own ``__init__``, or the fields of a dataclass or a model."""
    if hasattr(cls, "model_fields"):
        return ["*", *cls.model_fields]
    for owner in cls.__mro__:
        made = vars(owner).get("__init__") if owner.__module__ != "typing" else None
        if made is not None and _node(made) is not None:
            return parameters(made)[0][1:]
        if "__dataclass_fields__" in vars(owner):
            return _fields(owner)
    return []


def _fields(cls: type) -> list[str]:
    """The fields of a dataclass as arguments."""
    written = {}
    for owner in reversed(cls.__mro__):
        node = _class_node(owner) if "__dataclass_fields__" in vars(owner) else None
        for each in node.body if node else ():
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                written[each.target.id] = each
    arguments, keywords = [], []
    for field in dataclasses.fields(cls):
        if field.init and field.name in written:
            node = written[field.name]
            text = f"{field.name}: {_unquoted(node.annotation)}"
            if field.default is not dataclasses.MISSING:
                text += f" = {field.default!r}"
            elif field.default_factory is not dataclasses.MISSING:
                text += f" = {field.default_factory.__name__}()"
            (keywords if field.kw_only else arguments).append(text)
    return [*arguments, *(["*", *keywords] if keywords else [])]


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg + (f": {_unquoted(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if argument.annotation else f"{text}={ast.unparse(default)}"


def _unquoted(node: ast.expr | None) -> str:
    """An annotation, without the quotes of one that is evaluated later."""
    if node is None:
        return ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _node(function: Any) -> ast.FunctionDef | None:
    """The definition of a function; None for those that were made at run time."""
    code = getattr(function, "__code__", None)
    tree = _tree(code.co_filename) if code else None
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function.__name__:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first <= code.co_firstlineno <= node.body[0].lineno:
                return node
    return None


def _class_node(cls: type) -> ast.ClassDef | None:
    tree = _tree(inspect.getsourcefile(cls))
    return next((node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == cls.__name__), None)


@cache
def _tree(path: str) -> ast.Module | None:
    return ast.parse(Path(path).read_text(encoding="utf-8")) if Path(path).is_file() else None


# docstrings as Markdown


def markdown(docstring: str) -> str:
    """A docstring as Markdown: arguments and errors as lists, guarantee and source in boxes, examples as code."""
    lines, blocks, section = docstring.splitlines(), [], None
    current: list[str] = []
    for line in [*lines, "Source:"]:  # the last closes what is open
        found = SECTION.match(line)
        if found:
            blocks.append(_section(section, current))
            section, current = found[1], [found[2].strip()] if found[2].strip() else []
        elif section and line and not line.startswith(" ") and not (section in BOXES and current and current[-1]):
            blocks.append(_section(section, current))
            section, current = None, [line]
        else:
            current.append(line)
    return "\n\n".join(block for block in blocks if block)


def _section(section: str | None, lines: list[str]) -> str:
    """One section of a docstring."""
    text = textwrap.dedent("\n".join(lines)) if section not in BOXES else "\n".join(each.strip() for each in lines)
    text = text.strip("\n")
    if not text:
        return ""
    if section in BOXES:
        return f'!!! {BOXES[section]} "{section}"\n\n' + textwrap.indent(_paragraphs(text), "    ")
    if section in LISTS:
        return f"**{LISTS[section]}**\n\n" + _items(text)
    if section:
        return f"**{section}**\n\n" + _paragraphs(text)
    return _paragraphs(text)


def _items(text: str) -> str:
    """Lines "name: text", with what belongs to them, as a list."""
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") or not line or not items:
            items += [] if items or not line.strip() else [line.strip()]
            if line.startswith(" "):
                items[-1] += " " + line.strip()
        else:
            items.append(line)
    shown = []
    for item in items:
        name, colon, rest = item.partition(": ")
        plain = re.fullmatch(r"[\w*., ()]+", name) is not None and len(name) < 60
        shown.append(f"- `{name}`: {_escaped(rest)}" if colon and plain else f"- {_escaped(item)}")
    return "\n".join(shown)


def _paragraphs(text: str) -> str:
    """Paragraphs, examples and aligned columns."""
    shown = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        if block.lstrip().startswith(">>>"):
            shown.append(f"```pycon\n{textwrap.dedent(block)}\n```")
        elif any(">>>" in line[:8] for line in lines):
            start = next(place for place, line in enumerate(lines) if ">>>" in line[:8])
            rest = textwrap.dedent("\n".join(lines[start:]))
            shown += [_escaped(" ".join(" ".join(lines[:start]).split())), f"```pycon\n{rest}\n```"]
        elif all(re.match(r"[\w.]+ {2,}\S", line) for line in lines):
            shown.append(
                "\n".join(re.sub(r"(\S+) +(.*)", lambda m: f"- `{m[1]}`: {_escaped(m[2])}", line) for line in lines)
            )
        elif any(re.search(r"\S {2,}\S", line) or line.startswith("    ") for line in lines):
            shown.append(f"```text\n{block}\n```")
        elif all(re.match(r"[-*] |  ", line) for line in lines):
            shown.append("\n".join(re.sub(r"^([-*] )(.*)", lambda m: m[1] + _escaped(m[2]), line) for line in lines))
        else:
            shown.append(_escaped(" ".join(block.split())))
    return "\n\n".join(shown)


def _escaped(text: str) -> str:
    """Text of a docstring as Markdown: names stay code, addresses become links, and nothing else is markup."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text).replace("``", "`")
    shown = []
    for part in re.split(r"(`[^`]*`|https?://[^\s,;)]+[^\s,;).])", text):
        if part.startswith("http"):
            shown.append(f"<{part}>")
        elif part.startswith("`"):
            shown.append(part)
        else:
            part = part.replace("&", "&amp;").replace("<", "&lt;").replace("$", "&#36;")
            shown.append(re.sub(r"([\\*_\[\]#])", r"\\\1", part))
    return "".join(shown)


def fenced(text: str) -> str:
    """Code that is not an example."""
    return f"```python\n{text}\n```"


def places(module_names: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Where each public name is described: by dotted names, the module and the anchor."""
    found: dict[str, tuple[str, str]] = {}
    for module_name in module_names:
        module = importlib.import_module(module_name)
        found[module_name] = (module_name, "")
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                continue
            ends = [name, *(f"{name}.{each}" for each in members(thing, module))] if inspect.isclass(thing) else [name]
            for end in ends:
                found[f"{module_name}.{end}"] = (module_name, end)
    short: dict[str, set[tuple[str, str]]] = {}
    for dotted, place in found.items():
        parts = dotted.split(".")
        for start in range(1, len(parts) - 1):
            short.setdefault(".".join(parts[start:]), set()).add(place)
    return {name: min(where) for name, where in short.items() if len(where) == 1} | found
