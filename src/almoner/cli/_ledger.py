"""`almoner ledger`: look and check, limit and declare, let people leave, make copies; `almoner statement`."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option, Typer

import almoner
from almoner._private import MARK
from almoner._units import shown, to_float
from almoner.cli import _options
from almoner.cli._queries import OtherLedger, PlanFile
from almoner.cli._shown import Listing, console, dumps, show, tell
from almoner.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from almoner.individual import BudgetStatement
    from almoner.ledger import Ledger
    from almoner.queries import Statement

LedgerName = Annotated[str, Argument(help="The ledger: a file, or postgresql://user@server/database.")]
LedgerOrModel = Annotated[str, Argument(help="A ledger, or the folder of a model with kept accounts.")]
Person = Annotated[str, Option("--person", help="The person, named as in the data.")]

LOOK, RULES, PEOPLE, UPKEEP = "Look and check", "Limits and declarations", "People", "Copies and upkeep"
"""The headings of the help of `almoner ledger`."""

ledger_commands = Typer(
    cls=_options.Group,
    help="The data holder's record: show it, check it, limit it, let people leave.",
    epilog=_options.examples("ledger show people.ledger", "ledger verify people.ledger"),
)


def verify(
    path: LedgerName,
    head: Annotated[str | None, Option(help="A head that `show` printed earlier: it must still be there.")] = None,
    replay: Annotated[
        Path | None, Option(help="A file of questions that names the data: compute every charge again.")
    ] = None,
    log: Annotated[
        list[Path] | None,
        Option(exists=True, dir_okay=False, help="A file of a service's log to check, the oldest first. Repeatable."),
    ] = None,
    as_json: _options.Json = False,
) -> None:
    """Verify a ledger: its record is unbroken and its accounts add up. Exit code 1 if not.

    For the data holder. An auditor who has only the exported record uses `almoner ledger check-export`.
    """
    if replay is None:
        with almoner.ledger.Ledger.open(path) as ledger:
            findings = almoner.ledger.verify(ledger, head=head)
    else:
        from almoner.queries.plans import Plan

        findings = Plan.read(replay).verify(path, head=head)
    if log:
        lines = "".join(each.read_text(encoding="utf-8", errors="replace") for each in log).splitlines()
        with almoner.ledger.Ledger.open(path) as ledger:
            findings += almoner.service.check_trail(ledger, lines)
    if as_json:
        print(dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            mark = "[green]yes[/]" if finding.holds else "[bold red]NO [/]"
            console().print(f"{mark}  {finding.what}", markup=True)
    if not all(finding.holds for finding in findings):
        raise Exit(1)


def show_(path: LedgerName, *, out: _options.Output) -> None:
    """Show the budget, the head, and every question with its worst-case price."""
    out.check(path)
    with almoner.ledger.Ledger.open(path) as ledger:
        record, symbol = almoner.ledger.summary(ledger), ledger.symbol
    of = ["data set"] if any("dataset" in asked for asked in record.questions) else []
    rows = []
    for asked in record.questions:
        names = (asked["number"], asked["time"][:16], asked["analyst"], asked["purpose"], asked["key"])
        about = (*([asked.get("dataset")] if of else []), asked["question"].get("ask"))
        rows.append((*names, *about, shown(asked[f"{symbol} at most"], 6)))
    table = Listing(("number", "time, UTC", "analyst", "purpose", "key", *of, "ask", f"{symbol} at most"), rows)
    if table.write(out.csv):
        return
    if out.as_json:
        print(dumps(asdict(record)))
        return
    show(table, f"budget: {symbol} = {shown(record.terms[symbol], 6)} ({record.terms['measure']})")
    print(f"head: {record.head}")


def report(
    path: LedgerName,
    html: Annotated[Path, Option("--html", help="Write the PRIVATE page to this file.")],
    head: Annotated[str | None, Option(help="A head that `show` printed earlier: checked, too.")] = None,
    force: _options.Force = False,
) -> None:
    """Write a page about a ledger: terms, checks, prices by analyst, every question. It names no person."""
    _options.check_page(html, force=force, read=(path,))
    from almoner.report.pages import ledger as page

    with almoner.ledger.Ledger.open(path) as ledger:
        _options.write_page(html, page(ledger, head=head))


def export(path: LedgerName, out: _options.OutFile = None, force: _options.Force = False) -> None:
    """Export the record for auditors, as lines of JSON without its private parts.

    `almoner ledger check-export` checks the chain of hashes of the exported file.
    """
    _options.check_new_file(out, force=force, read=(path,))
    with almoner.ledger.Ledger.open(path) as ledger:
        text = "".join(f"{line}\n" for line in almoner.ledger.export(ledger))
    _options.tell_or_write(text, out)


def check_export(exported: Annotated[Path, Argument(help="A file that `almoner ledger export` wrote.")]) -> None:
    """Check, without the ledger, that the chain of an exported record is unbroken.

    Prints the head, to be compared with one that `almoner ledger show` printed.
    """
    count, head = almoner.ledger.check_export_file(exported)
    print(f"{count} entries, unbroken")
    print(f"head: {head}")


def retire(path: LedgerName, person: Person) -> None:
    """Let a person leave: no later answer uses their records. The account is kept, so nobody returns with a new one."""
    _change(path, person, "left: in no answer from now on, and the account stays", lambda ledger: ledger.retire(person))


def restore(path: LedgerName, person: Person) -> None:
    """Let a person who left return, with the account as it was."""
    _change(path, person, "is back, with the account as it was left", lambda ledger: ledger.restore(person))


def erase(path: LedgerName, person: Person) -> None:
    """Remove what single questions charged a person; the total remains, and the person is in no answer from now on.

    Only in a ledger that was made with pseudonyms.
    """
    change = "is erased: one total remains, under a keyed hash"
    _change(path, person, change, lambda ledger: almoner.ledger.erase(ledger, person))


def _change(path: str, person: str, change: str, make: "Callable[[Ledger], object]") -> None:
    """Make and confirm a change, and tell the data holder of a name that may be misspelt."""
    with almoner.ledger.Ledger.open(path) as ledger:
        charged = ledger.charged(person)
        make(ledger)
    if not charged:
        print("Is the name spelt as in the data? No question has charged a person of this name so far.")
    print(f"{MARK}: this person {change}")


def limit(
    path: LedgerName,
    rho: Annotated[float | None, Option(help="The most that may be spent on each person.")] = None,
    epsilon: Annotated[float | None, Option(help="Epsilon of the privacy budget of each person.")] = None,
    analyst: Annotated[str | None, Option(help="The analyst who is limited; or give --purpose.")] = None,
    purpose: Annotated[str | None, Option(help="The purpose that is limited; or give --analyst.")] = None,
) -> None:
    """Limit what one analyst, or all for one purpose, may spend of each person's budget."""
    from almoner._units import budget

    with almoner.ledger.Ledger.open(path) as ledger:
        amount = ledger.amount(rho, epsilon)
        ledger.limit(budget(amount), analyst=analyst, purpose=purpose)
    limited = f"analyst {analyst!r}" if analyst is not None else f"purpose {purpose!r}"
    print(f"{limited}: at most {'rho' if epsilon is None else 'epsilon'} = {amount:g} of each person's budget")


def trainings(path: LedgerName, as_json: _options.Json = False) -> None:
    """List the trainings: an open one was not settled yet, and all that it reserved counts as spent."""
    with almoner.ledger.Ledger.open(path) as ledger:
        found = [each for each in ledger.consumers.values() if each.kind == "training"]
        measure, symbol = ledger.measure, ledger.symbol
    wanted = ("number", "time", "key", "analyst", "purpose", "units", "state", "described", "model")
    told = [{name: getattr(each, name) for name in wanted} | {"measure": measure} for each in found]
    columns = ("number", "time", "analyst", "purpose", "key", "state")
    rows = [[*(getattr(each, name) for name in columns), shown(to_float(each.units), 6)] for each in found]
    tell(told, Listing((*columns, f"{symbol} at most"), rows), as_json=as_json)


def streams(path: LedgerName, as_json: _options.Json = False) -> None:
    """List the streams: models that are trained on people as they come, each update charged by itself."""
    with almoner.ledger.Ledger.open(path) as ledger:
        found = [each for each in ledger.consumers.values() if each.kind == "stream"]
    wanted = ("number", "time", "key", "analyst", "purpose", "described", "updates")
    told = [{name: getattr(each, name) for name in wanted} | {"last": (each.last or {}).get("time")} for each in found]
    columns = ("number", "time", "analyst", "purpose", "key", "updates", "last")
    rows = [[each[name] for name in columns] for each in told]
    tell(told, Listing((*columns[:-1], "last update"), rows), as_json=as_json)


def create(file: PlanFile, other: OtherLedger = None) -> None:
    """Make the ledger that a file of questions names, once, and its witness: other commands refuse one that is missing.

    `almoner serve --prepare` makes a service's. If a ledger got lost, restore a backup: in a new one everybody has a
    fresh budget.
    """
    from almoner.queries.plans import Plan

    plan = Plan.read(file, ledger=other)
    if almoner.ledger.Ledger.exists(plan.ledger):
        name = plan.ledger if isinstance(plan.ledger, Path) else "on the server"
        raise ArgumentError(f"there is a ledger {name} already: nothing was made, and nothing was changed")
    with plan.open(create=True) as begun:
        ledger = begun.ledger
        print(f"made {ledger.store.name}: {ledger.symbol} = {shown(ledger.budget, 6)} for each person")


def size(path: LedgerName, as_json: _options.Json = False) -> None:
    """Print how large a ledger is (PRIVATE, because of the numbers of people and charges)."""
    with almoner.ledger.Ledger.open(path) as ledger:
        found = almoner.ledger.size(ledger)
    merged = "nothing" if found.merged is None else f"entries up to {found.merged}"
    lines = [f"{found.bytes / 1e6:,.1f} MB", f"{found.entries:,} entries", f"{found.people:,} people"]
    lines += [f"{found.charges:,} charges", f"merged: {merged}"]
    tell({"private": MARK, **asdict(found)}, MARK, *lines, as_json=as_json)


def compact(
    path: LedgerName,
    before: Annotated[str | None, Option(help="Merge what was asked before this day (UTC); else all.")] = None,
) -> None:
    """Merge what single questions charged into one total per person. Accounts, limits and answers do not change."""
    with almoner.ledger.Ledger.open(path) as ledger:
        through = almoner.ledger.compact(ledger, before=before)
    print(f"merged: entries up to {through}" if through >= 0 else "nothing was merged")


def witness(path: LedgerName, file: Annotated[Path, Option(help="A new file on another volume.")]) -> None:
    """Have a file remember the newest entry: from now on an older copy of the ledger, a restored backup, is refused."""
    with almoner.ledger.Ledger.open(path) as ledger:
        ledger.witnessed_by(file.absolute())
    print(f"{file} remembers the newest entry from now on, and must be there whenever the ledger is opened")


def backup(path: LedgerName, out: Annotated[Path, Option(help="A new file (PRIVATE).")]) -> None:
    """Copy a ledger's file, whole, and print the head of the copy."""
    with almoner.ledger.Ledger.open(path) as ledger:
        print(f"head: {almoner.ledger.backup(ledger, out)}")


def restore_backup(
    copy: Annotated[Path, Argument(help="A file that `almoner ledger backup` wrote.")],
    out: Annotated[Path, Option(help="Where the ledger was.")],
) -> None:
    """Put a backup where the ledger was lost; refused if its witness saw anything newer."""
    print(f"head: {almoner.ledger.restore(copy, out)}")


def protect(
    path: LedgerName,
    role: Annotated[str | None, Option(help="The role of a service: it is granted what answering needs.")] = None,
) -> None:
    """On a PostgreSQL server, install triggers: only the owner can lower what was spent, or change the record."""
    with almoner.ledger.Ledger.open(path) as ledger:
        almoner.ledger.protect(ledger, role=role)
    print("protected: only the owner of the tables can lower what a person spent, or change or remove an entry")


def write_off(path: LedgerName, key: Annotated[str, Option(help="The name of the training.")]) -> None:
    """Give up a training that was killed and cannot go on: all that it reserved is spent, for good."""
    with almoner.ledger.Ledger.open(path) as ledger:
        almoner.ledger.write_off(ledger, key)
    print(f"{key!r} is written off: what it reserved is spent")


def dataset(
    path: LedgerName,
    name: Annotated[str, Option(help="The name of the data set.")],
    column: Annotated[str, Option(help="The column that says whose row it is.")],
    bounds: Annotated[
        list[str] | None, Option(help="Public bounds of a column, as amount=[0,500]. May be repeated.")
    ] = None,
    keys: Annotated[
        list[str] | None, Option(help='Public keys of a column, as country=["FR","ES"]. May be repeated.')
    ] = None,
    new_version: Annotated[
        bool, Option("--new-version", help="Declare it anew where it was declared otherwise.")
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
    with almoner.ledger.Ledger.open(path) as ledger:
        declared = ledger.dataset(name, person=column, columns=columns, new_version=new_version)
    print(f"{declared.name!r}, version {declared.version}: entry {declared.number}")


def _domain(option: str, text: str, given: str) -> dict[str, Any]:
    from almoner._reading import json_values

    values = None
    with suppress(DataError):
        values = json_values(given.encode(errors="replace"))
    if not isinstance(values, list) or (option == "bounds" and len(values) != 2):
        what = "two numbers" if option == "bounds" else "texts in double quotes, or numbers"
        raise ArgumentError(f"--{option} {text!r:.200} must be COLUMN=[...], with {what}")
    return {"keys": values} if option == "keys" else {"low": values[0], "high": values[1]}


def datasets(path: LedgerName, as_json: _options.Json = False) -> None:
    """List the data sets of a ledger, each as it was declared last."""
    with almoner.ledger.Ledger.open(path) as ledger:
        found = list(ledger.datasets.values())
    rows = []
    for each in found:
        columns = [
            f"{name} ({len(of['keys'])} keys)" if "keys" in of else f"{name} from {of['low']:g} to {of['high']:g}"
            for name, of in ((name, domain.public) for name, domain in each.columns.items())
        ]
        rows.append((each.number, each.name, each.version, each.person, each.spelled, ", ".join(columns)))
    table = Listing(("number", "data set", "version", "person", "named by", "columns"), rows)
    tell([each.public | {"number": each.number} for each in found], table, as_json=as_json)


def statement(
    path: LedgerOrModel,
    person: Person,
    delta: _options.OptionalDelta = None,
    html: _options.Page = None,
    csv: _options.PrivateCsv = None,
    force: _options.Force = False,
    as_json: _options.Json = False,
) -> None:
    """Print one person's account (PRIVATE): every question that charged them, the total, and what it means.

    Without --delta the epsilon of the budget is stated at the ledger's own delta. For a model that was trained with
    the setting keep_accounts, print how much of their budget its training used; a person without a name is the number
    of a row.
    """
    _options.check_page(html, force=force, read=(path,), as_json=as_json)
    _options.check_new_file(csv, force=force, read=(path,))
    told: Statement | BudgetStatement
    if path.endswith(".accounts") or Path(path).is_dir():
        from almoner.training.saved_model import statement as models_statement

        if delta is not None:
            raise ArgumentError("--delta: leave it out; the accounts of a model are stated at the delta on its card")
        told = models_statement(Path(path), person)
        words, lines = str(told), []
        table = Listing(tuple(asdict(told)), [list(asdict(told).values())])
    else:
        with almoner.ledger.Ledger.open(path) as ledger:
            told = almoner.queries.statement(ledger, person, delta=delta)
        words, table = told.words, _lines(told)
        lines = [table] if told.lines else []
    if table.write(csv, private=True):
        return
    if html is not None:
        from almoner.report.pages import statement as page

        _options.write_page(html, page(told, person=person), whose=", and for this person")
    else:
        said = {"private": MARK, **asdict(told), "words": words}
        tell(said, f"{MARK}, and for this person", *lines, words, as_json=as_json)


def _lines(account: "Statement") -> Listing:
    of = ["data set"] if any(line.dataset for line in account.lines) else []
    rows = []
    for line in account.lines:
        about = (line.key, *([line.dataset] if of else []), line.question["ask"])
        share = f"{shown(100 * line.rho / account.budget, 3)} %"
        rows.append((line.time[:10], line.analyst, line.purpose, *about, share))
    return Listing(("day", "who asked", "what for", "result", *of, "asked", "of your budget"), rows)


for _command, _panel, _example in (
    (verify, LOOK, "people.ledger --replay questions.toml"),
    (show_, LOOK, "people.ledger"),
    (report, LOOK, "people.ledger --html report.html"),
    (export, LOOK, "people.ledger --out record.jsonl"),
    (check_export, LOOK, "record.jsonl"),
    (retire, PEOPLE, "people.ledger --person 17"),
    (restore, PEOPLE, "people.ledger --person 17"),
    (erase, PEOPLE, "people.ledger --person 17"),
    (limit, RULES, "people.ledger --rho 0.5 --analyst ann"),
    (trainings, LOOK, "people.ledger"),
    (streams, LOOK, "people.ledger"),
    (create, RULES, "questions.toml"),
    (size, LOOK, "people.ledger"),
    (compact, UPKEEP, "people.ledger --before 2026-01-01"),
    (witness, UPKEEP, "people.ledger --file people.head"),
    (backup, UPKEEP, "people.ledger --out people.backup"),
    (restore_backup, UPKEEP, "people.backup --out restored.ledger"),
    (protect, RULES, "postgresql://owner@server/people"),
    (write_off, UPKEEP, "people.ledger --key churn"),
    (dataset, RULES, "people.ledger --name visits --column who"),
    (datasets, LOOK, "people.ledger"),
):
    _name = _command.__name__.strip("_").replace("_", "-")
    _options.added(ledger_commands, f"ledger {_name}", _example, panel=_panel)(_command)
