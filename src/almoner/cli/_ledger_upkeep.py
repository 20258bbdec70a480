"""Commands of `almoner ledger` beside the questions: how it is made, trainings, streams, the witness, backups."""

import tomllib
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from almoner._private import MARK
from almoner._units import shown, to_float
from almoner.cli._options.common import Json
from almoner.cli._queries import LOOK, RULES, UPKEEP, LedgerName, OtherLedger, ledger, opened
from almoner.cli._shown.json import dumps
from almoner.cli._shown.tables import Listing, show
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.ledger import Ledger
    from almoner.queries.plans import Plan

__all__ = ["add"]


def add(_: typer.Typer) -> None:
    """Add the commands of this module to `almoner ledger`."""
    ledger.command("trainings", epilog="Example: almoner ledger trainings people.ledger", rich_help_panel=LOOK)(
        trainings
    )
    ledger.command("streams", epilog="Example: almoner ledger streams people.ledger", rich_help_panel=LOOK)(streams)
    ledger.command("create", epilog="Example: almoner ledger create questions.toml", rich_help_panel=RULES)(create)
    ledger.command("size", epilog="Example: almoner ledger size people.ledger", rich_help_panel=LOOK)(size)
    ledger.command(
        "compact", epilog="Example: almoner ledger compact people.ledger --before 2026-01-01", rich_help_panel=UPKEEP
    )(compact)
    ledger.command(
        "witness", epilog="Example: almoner ledger witness people.ledger --file people.head", rich_help_panel=UPKEEP
    )(witness)
    ledger.command(
        "backup", epilog="Example: almoner ledger backup people.ledger --out people.backup", rich_help_panel=UPKEEP
    )(backup)
    ledger.command(
        "restore-backup",
        epilog="Example: almoner ledger restore-backup people.backup --out restored.ledger",
        rich_help_panel=UPKEEP,
    )(restore_backup)
    ledger.command(
        "protect", epilog="Example: almoner ledger protect postgresql://owner@server/people", rich_help_panel=RULES
    )(protect)
    ledger.command(
        "write-off", epilog="Example: almoner ledger write-off people.ledger --key churn", rich_help_panel=UPKEEP
    )(write_off)


def protect(path: LedgerName) -> None:
    """On a PostgreSQL server, install triggers: only the owner can lower what was spent, or change the record."""
    from almoner.ledger import protect as protected

    with opened(path) as book:
        protected(book)
    print("protected: only the owner of the tables can lower what a person spent, or change or remove an entry")


def trainings(path: LedgerName, as_json: Json = False) -> None:
    """List the trainings: an open one was not settled yet, and all that it reserved counts as spent."""
    from almoner.ledger import trainings as listed

    with opened(path) as book:
        found, measure, symbol = listed(book), book.measure, book.symbol
    if as_json:
        print(dumps([asdict(each) | {"measure": measure} for each in found]))
        return
    rows = []
    for each in found:
        names = (each.number, each.time, each.analyst, each.purpose or "", each.key, each.state)
        rows.append((*map(str, names), shown(to_float(each.units), 6)))
    show(Listing(("number", "time", "analyst", "purpose", "key", "state", f"{symbol} at most"), rows))


def streams(path: LedgerName, as_json: Json = False) -> None:
    """List the streams: models that are trained on people as they come, each update charged by itself."""
    from almoner.ledger import streams as listed

    with opened(path) as book:
        found = listed(book)
    if as_json:
        print(dumps([asdict(each) for each in found]))
        return
    rows = []
    for each in found:
        names = (each.number, each.time, each.analyst, each.purpose or "", each.key, each.updates, each.last or "")
        rows.append([str(name) for name in names])
    show(Listing(("number", "time", "analyst", "purpose", "key", "updates", "last update"), rows))


def create(
    file: Annotated[Path, typer.Argument(help="A file of questions, or a policy of `almoner serve`.")],
    other: OtherLedger = None,
) -> None:
    """Make the ledger that a file names, once, and its witness: all other commands refuse a ledger that is not there.

    If a ledger got lost, restore a backup: in a new one everybody has a fresh budget.
    """
    policy = _is_policy(file)
    if policy and other is not None:
        raise ArgumentError("--ledger is for a file of questions: a service has the ledger that its policy names")
    if policy:
        from almoner.service import opened as served
        from almoner.service.policies import Policy

        terms = Policy.read(file)
        _refuse_existing(terms.plan)
        service = served(terms, create=True)
        made = _words(service.api.session.ledger)
        service.close()
    else:
        from almoner.queries.plans import Plan

        plan = Plan.read(file, ledger=other)
        _refuse_existing(plan)
        with plan.open(create=True) as session:
            made = _words(session.ledger)
    print(made)


def _is_policy(file: Path) -> bool:
    """Tell whether a file is a policy; what is wrong with it otherwise is told by who reads it."""
    with suppress(OSError, ValueError):
        return "holder" in tomllib.loads(file.read_text(encoding="utf-8"))
    return False


def _refuse_existing(plan: "Plan") -> None:
    from almoner.ledger import Ledger

    if Ledger.exists(plan.ledger):
        name = plan.ledger if isinstance(plan.ledger, Path) else "on the server"
        raise ArgumentError(f"there is a ledger {name} already: nothing was made, and nothing was changed")


def _words(book: "Ledger") -> str:
    return f"made {book.store.name}: {book.symbol} = {shown(book.budget, 6)} for each person"


def size(path: LedgerName, as_json: Json = False) -> None:
    """Print how large a ledger is (PRIVATE, because of the numbers of people and charges)."""
    from almoner.ledger import size as measured

    with opened(path) as book:
        found = measured(book)
    if as_json:
        print(dumps({"private": MARK, **asdict(found)}))
        return
    merged = "nothing" if found.merged is None else f"entries up to {found.merged}"
    lines = [f"{found.bytes / 1e6:,.1f} MB", f"{found.entries:,} entries", f"{found.people:,} people"]
    show(MARK, *lines, f"{found.charges:,} charges", f"merged: {merged}")


def compact(
    path: LedgerName,
    before: Annotated[str | None, typer.Option(help="Merge what was asked before this day (UTC); else all.")] = None,
) -> None:
    """Merge what single questions charged into one total per person. Accounts, limits and answers do not change."""
    from almoner.ledger import compact as compacted

    with opened(path) as book:
        through = compacted(book, before=before)
    print(f"merged: entries up to {through}" if through >= 0 else "nothing was merged")


def witness(path: LedgerName, file: Annotated[Path, typer.Option(help="A new file on another volume.")]) -> None:
    """Have a file remember the newest entry: from now on an older copy of the ledger, a restored backup, is refused."""
    with opened(path) as book:
        book.witnessed_by(file.absolute())
    print(f"{file} remembers the newest entry from now on, and must be there whenever the ledger is opened")


def backup(path: LedgerName, out: Annotated[Path, typer.Option(help="A new file (PRIVATE).")]) -> None:
    """Copy a ledger's file, whole, and print the head of the copy."""
    from almoner.ledger import backup as copied

    with opened(path) as book:
        print(f"head: {copied(book, out)}")


def restore_backup(
    copy: Annotated[Path, typer.Argument(help="A file that `almoner ledger backup` wrote.")],
    out: Annotated[Path, typer.Option(help="Where the ledger was.")],
) -> None:
    """Put a backup where the ledger was lost; refused if its witness saw anything newer."""
    from almoner.ledger import restore as put_back

    print(f"head: {put_back(copy, out)}")


def write_off(path: LedgerName, key: Annotated[str, typer.Option(help="The name of the training.")]) -> None:
    """Give up a training that was killed and cannot go on: all that it reserved is spent, for good."""
    from almoner.ledger import write_off as given_up

    with opened(path) as book:
        given_up(book, key)
    print(f"{key!r} is written off: what it reserved is spent")
