"""Writes docs/cli.md, docs/api.md, docs/questions.md, docs/training/step.svg, and tables in other pages: those between

    <!-- table: almoner.module.Model -->
    <!-- end -->

are of the model that describes such a file. Tests check that all of them are up to date.
"""

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from almoner._reading import model_of, told_of

MODULES = (
    "almoner.mechanisms",
    "almoner.noise",
    "almoner.curves.zcdp",
    "almoner.curves.gaussian",
    "almoner.curves.renyi",
    "almoner.curves.approximate",
    "almoner.curves.planned",
    "almoner.curves.losses",
    "almoner.curves.tuning",
    "almoner.curves.tradeoff",
    "almoner.accounting.meaning",
    "almoner.filters",
    "almoner.odometers",
    "almoner.individual",
    "almoner.accounting.answers",
    "almoner.accounting.certificates",
    "almoner.accounting.calibrate",
    "almoner.accounting.runs",
    "almoner.accounting.compare",
    "almoner.interop.dp_accounting",
    "almoner.interop.opendp",
    "almoner.ledger",
    "almoner.queries",
    "almoner.queries.engines",
    "almoner.queries.plans",
    "almoner.queries.spark",
    "almoner.interop.opacus",
    "almoner.interop.lightning",
    "almoner.audit",
    "almoner.interop.transformers",
    "almoner.training",
    "almoner.training.gradients",
    "almoner.training.callbacks",
    "almoner.training.gradients.augmentations",
    "almoner.training.correlated",
    "almoner.training.stopping",
    "almoner.training.saved_model",
    "almoner.training.saved_module",
    "almoner.training.images.drawings",
    "almoner.training.images.features",
    "almoner.training.images.image_classifier",
    "almoner.training.tables",
    "almoner.training.demo_tables",
    "almoner.report.losses",
    "almoner.report.pages",
    "almoner.report.figures",
    "almoner.service",
    "almoner.service.policies",
    "almoner.client",
    "almoner.errors",
)


def cli() -> str:
    """The page of the command line."""
    from almoner.cli import __doc__ as codes
    from almoner.cli import app

    group = typer.main.get_command(app)
    lines = ["# The command line", "", *codes.strip().splitlines()[2:], ""]
    for name, command in _commands(group):
        lines += [
            f"## almoner {name}",
            "",
            inspect.cleandoc(command.help),
            "",
            "| option | default | |",
            "|---|---|---|",
        ]
        for parameter in command.params:
            names = ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))
            shown = "required" if parameter.required else parameter.default
            if callable(shown) or shown is None:
                shown = ""
            elif isinstance(shown, bool):
                shown = "on" if shown else "off"
            text = getattr(parameter, "help", "") or ""
            if parameter.name != "help":
                lines.append(f"| {names} | {shown} | {text} |")
        examples = command.epilog.removeprefix("\b\nExample: ").split("\nExample: ")
        lines += ["", "```", *examples, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its full name, those in groups included."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def api() -> str:
    """The page of all public names, with the first sentence of each docstring."""
    lines = [
        "# Every public name",
        "",
        "Signatures, arguments, guarantees and sources are on the site's page of each module, and in `help(name)`.",
        "",
    ]
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        lines += [f"## {module_name}", "", plain(inspect.getdoc(module) or ""), ""]
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            text = inspect.getdoc(thing) if not isinstance(thing, tuple | dict | int | float) else ""
            first = plain(text or "")
            lines.append(f"- `{name}`: {first}" if first else f"- `{name}`")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def questions() -> str:
    """The page of a shop's questions."""
    path = Path(__file__).with_name("questions.py")
    names: dict[str, Any] = {"__name__": "questions"}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    return str(names["page"]())


PAGES = (
    *("queries/arguments.md", "queries/plans.md", "service/policy.md"),
    *("training/from-a-file.md", "training/schema.md"),
)
"""Pages with tables that are made from models."""


def with_tables(page: str) -> str:
    """A page with its tables as the models have them now."""

    def made(found: re.Match[str]) -> str:
        model = getattr(importlib.import_module(found[2]), found[3])
        return f"{found[1]}\n{table(model)}\n\n<!-- end -->"

    between = r"(<!-- table: ([\w.]+)\.(\w+) -->\n).*?<!-- end -->"
    return re.sub(between, made, page, flags=re.DOTALL)


def table(model: Any) -> str:
    """The fields of a model, or of questions, a line each."""
    about = {} if hasattr(model, "model_fields") else told_of(model)
    model = model_of(model) if about else model
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        said = json.dumps(default) if isinstance(default, str | bool) else str(default)
        said = "required" if field.is_required() else "none" if default in (None, (), [], {}, "") else said
        said = f"`{said}`" if isinstance(default, str | bool) and default != "" else said
        said = "none" if hasattr(type(default), "model_fields") else said
        said = (getattr(field, "json_schema_extra", None) or {}).get("x-default", said)
        kind = kind_of(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
        words = " ".join((field.description or about.get(name, "")).replace("``", "`").split())
        lines.append(f"| `{field.alias or name}` | {kind} | {said} | {words} |")
    return "\n".join(lines)


def kind_of(kind: Any) -> str:
    """A type in the words of errors, without their article."""
    arguments, origin = get_args(kind), get_origin(kind)
    if origin is Annotated:
        rules = [each.must_be for each in kind.__metadata__ if getattr(each, "must_be", "")]
        return re.sub("^an? (?!table)", "", rules[-1]) if rules else kind_of(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{json.dumps(each)}`" for each in arguments)
    if NoneType in arguments:
        return kind_of(next(each for each in arguments if each is not NoneType))
    words = {str: "text", bool: "true or false", float: "number", int: "whole number", list: "list", dict: "table"}
    return words.get(origin or kind, "table")


def plain(docstring: str) -> str:
    """The first paragraph of a docstring, on one line, without roles."""
    return re.sub(r":\w+:`", "`", " ".join(docstring.split("\n\n")[0].split()))


if __name__ == "__main__":
    from step import svg

    folder = Path(__file__).parent
    (folder / "cli.md").write_text(cli(), encoding="utf-8")
    (folder / "api.md").write_text(api(), encoding="utf-8")
    (folder / "questions.md").write_text(questions(), encoding="utf-8")
    for name in PAGES:
        page = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(with_tables(page), encoding="utf-8")
    (folder / "training" / "step.svg").write_text(svg(), encoding="utf-8")
