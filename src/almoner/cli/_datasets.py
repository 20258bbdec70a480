"""`almoner ledger dataset` and `datasets`: the tables that a ledger's people are in."""

import json
from typing import Annotated, Any

import typer

from almoner.cli._options.common import Json
from almoner.cli._queries import LOOK, RULES, LedgerName, ledger, opened
from almoner.cli._shown.json import dumps
from almoner.cli._shown.tables import Listing, show
from almoner.errors import ArgumentError

__all__ = ["add"]


def add(_: typer.Typer) -> None:
    """Add the commands of this module to `almoner ledger`."""
    ledger.command(
        "dataset",
        epilog="Example: almoner ledger dataset people.ledger --name visits --column who",
        rich_help_panel=RULES,
    )(dataset)
    ledger.command("datasets", epilog="Example: almoner ledger datasets people.ledger", rich_help_panel=LOOK)(datasets)


def dataset(
    path: LedgerName,
    name: Annotated[str, typer.Option(help="The name of the data set.")],
    column: Annotated[str, typer.Option(help="The column that says whose row it is.")],
    bounds: Annotated[
        list[str] | None, typer.Option(help="Public bounds of a column, as amount=[0,500]. May be repeated.")
    ] = None,
    keys: Annotated[
        list[str] | None, typer.Option(help='Public keys of a column, as country=["FR","ES"]. May be repeated.')
    ] = None,
    new_version: Annotated[
        bool, typer.Option("--new-version", help="Declare it anew where it was declared otherwise.")
    ] = False,
) -> None:
    """Declare a data set: from then on a table that does not fit is refused. Everybody has one account over all."""
    columns: dict[str, Any] = {}
    for option, listed in (("bounds", bounds), ("keys", keys)):
        for text in listed or ():
            where, _, given = text.partition("=")
            if where in columns:
                raise ArgumentError(f"--{option}: column {where!r} is given twice")
            columns[where] = _domain(option, text, given)
    with opened(path) as book:
        declared = book.dataset(name, person=column, columns=columns, new_version=new_version)
    print(f"{declared.name!r}, version {declared.version}: entry {declared.number}")


def _domain(option: str, text: str, given: str) -> dict[str, Any]:
    """Bounds or keys from JSON."""
    try:
        values = json.loads(given)
    except ValueError:
        values = None
    if not isinstance(values, list) or (option == "bounds" and len(values) != 2):
        what = "two numbers" if option == "bounds" else "texts in double quotes, or numbers"
        raise ArgumentError(f"--{option} {text!r:.200} must be COLUMN=[...], with {what}")
    return {"keys": values} if option == "keys" else {"low": values[0], "high": values[1]}


def datasets(path: LedgerName, as_json: Json = False) -> None:
    """List the data sets of a ledger, each as it was declared last."""
    with opened(path) as book:
        found = list(book.datasets.values())
    if as_json:
        print(dumps([each.public | {"number": each.number} for each in found]))
        return
    rows = []
    for each in found:
        columns = ", ".join(f"{name} {_told(domain.public)}" for name, domain in each.columns.items())
        rows.append((str(each.number), each.name, str(each.version), each.person, each.spelled, columns))
    show(Listing(("number", "data set", "version", "person", "named by", "columns"), rows))


def _told(domain: dict[str, Any]) -> str:
    if "keys" in domain:
        return f"({len(domain['keys'])} keys)"
    return f"from {domain['low']:g} to {domain['high']:g}"
