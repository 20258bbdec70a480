"""Writes docs/cli.md and docs/api.md from the package. A test checks that they are up to date."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

MODULES = (
    "bursar.mechanisms",
    "bursar.noise",
    "bursar.curves.zcdp",
    "bursar.curves.gaussian",
    "bursar.curves.renyi",
    "bursar.curves.approximate",
    "bursar.curves.order_mixture",
    "bursar.curves.rogers",
    "bursar.curves.pairs",
    "bursar.curves.planned",
    "bursar.curves.anytime",
    "bursar.curves.exchanges",
    "bursar.curves.planned_table",
    "bursar.curves.residue",
    "bursar.curves.lattice",
    "bursar.curves.losses",
    "bursar.curves.totals",
    "bursar.curves.tuning",
    "bursar.curves.tradeoff",
    "bursar.meaning",
    "bursar.notions",
    "bursar.filters",
    "bursar.filters.published",
    "bursar.odometers",
    "bursar.odometers.published",
    "bursar.individual",
    "bursar.answers",
    "bursar.certificates",
    "bursar.calibrate",
    "bursar.compare",
    "bursar.interop.dp_accounting",
    "bursar.interop.opendp",
    "bursar.ledger",
    "bursar.ledger.interfaces",
    "bursar.queries",
    "bursar.queries.plans",
    "bursar.interop.opacus",
    "bursar.interop.lightning",
    "bursar.audit",
    "bursar.interop.transformers",
    "bursar.training",
    "bursar.training.gradients",
    "bursar.training.callbacks",
    "bursar.training.views",
    "bursar.training.layers",
    "bursar.training.logs",
    "bursar.training.correlated",
    "bursar.training.policies",
    "bursar.training.stopping",
    "bursar.training.groups",
    "bursar.training.models",
    "bursar.training.modules",
    "bursar.training.features",
    "bursar.training.drawings",
    "bursar.training.recipes",
    "bursar.training.tables",
    "bursar.training.examples",
    "bursar.report.spends",
    "bursar.report.odometers",
    "bursar.report.losses",
    "bursar.report.tradeoff",
    "bursar.report.pages",
    "bursar.report.figures",
    "bursar.service",
    "bursar.service.policies",
    "bursar.errors",
)


def cli() -> str:
    """The page of the command line."""
    from bursar.cli import __doc__ as codes
    from bursar.cli import app

    group = typer.main.get_command(app)
    lines = ["# The command line", "", *codes.strip().splitlines()[2:], ""]
    for name, command in _commands(group):
        lines += [
            f"## bursar {name}",
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
        examples = command.epilog.removeprefix("Example: ").split("\n\nExample: ")
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


def plain(docstring: str) -> str:
    """The first paragraph of a docstring, on one line, without roles, and without capital letters for whole words."""
    first = re.sub(r":\w+:`", "`", " ".join(docstring.split("\n\n")[0].split()))
    return re.sub(
        r"^(?:(?:WHAT|WHETHER|HOW|MUCH|FOR|WHOM|THE|RECORD)\b ?)+", lambda found: found[0].capitalize(), first
    )


if __name__ == "__main__":
    folder = Path(__file__).parent
    (folder / "cli.md").write_text(cli(), encoding="utf-8")
    (folder / "api.md").write_text(api(), encoding="utf-8")
