"""`bursar query`, `bursar ledger` and `bursar statement`: questions, the record, and one person's account."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bursar._units import shown
from bursar.cli._files import new_file
from bursar.cli._json import dumps
from bursar.errors import ArgumentError, LedgerError

__all__ = ["add"]

PRIVATE = "private: for the data holder"
NOISE = "Intervals are 95 % each, for the noise alone."

PlanFile = Annotated[Path, typer.Argument(help="A TOML file: data, person, ledger, budget, analyst, questions.")]
Ledger = Annotated[str, typer.Argument(help="The ledger: a file, or postgresql://user@server/database.")]
Other = Annotated[str | None, typer.Option("--ledger", help="In place of the ledger that the file names.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

query = typer.Typer(no_args_is_help=True, help="Ask the questions of a file, each key once.")
ledger = typer.Typer(no_args_is_help=True, help="The data holder's record: check it, show it, let people leave.")


def add(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.add_typer(query, name="query")
    app.add_typer(ledger, name="ledger")
    app.command()(statement)


@query.command("quote")
def quote(plan: PlanFile, ledger: Other = None, as_json: Json = False) -> None:
    """What every question would cost at worst, and its noise. Nothing is asked."""
    from bursar.queries.plans import Plan

    read = Plan.read(plan, ledger=ledger)
    with read.look() as session:
        quotes = read.quote(session)
    if as_json:
        print(dumps({key: asdict(each) for key, each in quotes.items()}))
        return
    table = _table("key", "rho at most", "of the budget", "released", "standard error", "95 % margin")
    for key, each in quotes.items():
        for place, (name, error) in enumerate(each.standard_errors.items()):
            first = (key, shown(each.rho, 6), f"{each.of_budget:.2%}") if place == 0 else ("", "", "")
            table.add_row(*first, name, f"{error:.6g}", f"{each.margins[name]:.6g}")
    _console().print(table)


@query.command("ask")
def ask(plan: PlanFile, ledger: Other = None, as_json: Json = False) -> None:
    """Every question's answer. A key that was asked before gives the same answer again and costs nothing."""
    from bursar.queries.plans import Plan

    read = Plan.read(plan, ledger=ledger)
    with read.open() as session:
        answers = read.ask(session)
    _tell(answers, as_json=as_json)


@query.command("list")
def list_(plan: PlanFile, ledger: Other = None, as_json: Json = False) -> None:
    """The answers that this file's analyst got for its purpose so far."""
    from bursar.queries.plans import Plan

    read = Plan.read(plan, ledger=ledger)
    with read.look() as session:
        answers = {each.key: each for each in read.analyst(session).answers()}
    _tell(answers, as_json=as_json)


@ledger.command("verify")
def verify(
    path: Ledger,
    head: Annotated[str | None, typer.Option(help="What `show` printed as head some time ago.")] = None,
    replay: Annotated[Path | None, typer.Option(help="A file of questions that says where the data are.")] = None,
    as_json: Json = False,
) -> None:
    """Whether the record is unbroken and the accounts add up; exit code 1 if not."""
    if replay is None:
        from bursar.ledger import verify as check

        with _opened(path) as book:
            findings = check(book, head=head)
    else:
        from bursar.queries.plans import Plan

        read = Plan.read(replay)
        if not _same(read.ledger, path):
            raise ArgumentError(f"replay={str(replay)!r} is about another ledger")
        with read.open(create=False) as session:
            findings = session.verify(head=head, replay=True)
    if as_json:
        print(dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            told = "[green]yes[/]" if finding.holds else "[bold red]NO [/]"
            _console().print(f"{told}  {finding.what}", markup=True)
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


@ledger.command("show")
def show(path: Ledger, as_json: Json = False) -> None:
    """The terms, the head, and every question with its worst-case price."""
    with _opened(path) as book:
        entries, head = book.entries(), book.head
    terms = {name: entries[0].public[name] for name in ("measure", "epsilon", "delta", "person", "time")}
    terms["rho"] = entries[0].public["budget"] / entries[0].public["units"]
    asked = [
        {
            "number": entry.number,
            "time": entry.public["time"],
            "analyst": entry.public["analyst"],
            "purpose": entry.public["purpose"],
            "key": entry.public["key"],
            "question": entry.public["question"],
            "rho at most": entry.public["price"] / entries[0].public["units"],
        }
        for entry in entries
        if entry.kind == "answered"
    ]
    if as_json:
        print(dumps({"terms": terms, "entries": len(entries), "head": head, "questions": asked}))
        return
    table = _table("number", "time", "analyst", "purpose", "key", "ask", "rho at most")
    for each in asked:
        kind, price = each["question"]["ask"], shown(each["rho at most"], 6)
        cells = (each["number"], each["time"], each["analyst"], each["purpose"] or "", each["key"], kind, price)
        table.add_row(*map(str, cells))
    _console().print(table)
    _console().print(f"budget: rho = {shown(terms['rho'], 6)}", f"head: {head}", sep="\n", soft_wrap=True)


@ledger.command("export")
def export(
    path: Ledger,
    out: Annotated[Path | None, typer.Option(help="A file for the lines; else they are printed.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """The record as lines of JSON without its private parts, for auditors: their chain of hashes can be checked."""
    from bursar.ledger import export as lines

    if out is not None:
        new_file(out, force=force, read=(path,))
    with _opened(path) as book:
        text = "".join(f"{line}\n" for line in lines(book))
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")


@ledger.command("check")
def check(exported: Annotated[Path, typer.Argument(help="Lines that `export` wrote.")]) -> None:
    """Whether the chain of an exported record is unbroken; its head, to be compared with what `show` printed."""
    import json

    from bursar.ledger import check_export

    try:
        text = exported.read_text(encoding="utf-8").removesuffix("\n")
        lines = text.split("\n") if text else []  # no other ends of lines: text may hold them
    except (OSError, UnicodeDecodeError):
        raise LedgerError(f"{exported} cannot be read") from None
    print(f"{check_export(lines)} entries, unbroken")
    last = json.loads(lines[-1])
    print(f"head: {last['number']}:{last['hash']}")


@ledger.command("retire")
def retire(path: Ledger, person: Annotated[str, typer.Option(help="Who leaves.")]) -> None:
    """Somebody leaves: in no later answer. The account stays, so that nobody returns with a fresh one."""
    with _opened(path) as book:
        charged = book.spent(person) > 0
        book.retire(person)
    _tell_person("left: in no answer from now on, and the account stays", charged)


@ledger.command("restore")
def restore(path: Ledger, person: Annotated[str, typer.Option(help="Who returns.")]) -> None:
    """Somebody returns to the account as it was left."""
    with _opened(path) as book:
        charged = book.spent(person) > 0
        book.restore(person)
    _tell_person("is back, with the account as it was left", charged)


@ledger.command("limit")
def limit(
    path: Ledger,
    rho: Annotated[float, typer.Option(help="The most that may be spent on each person.")],
    analyst: Annotated[str | None, typer.Option(help="By this analyst, or")] = None,
    purpose: Annotated[str | None, typer.Option(help="for this purpose.")] = None,
) -> None:
    """Limit one analyst or one purpose, under the one budget for all."""
    from bursar import _check
    from bursar._units import budget

    _check.positive(rho=rho)
    with _opened(path) as book:
        book.limit(budget(rho), analyst=analyst, purpose=purpose)
    who = f"analyst {analyst!r}" if analyst is not None else f"purpose {purpose!r}"
    print(f"{who}: at most rho = {rho:g} of each person's budget")


def statement(
    path: Ledger,
    person: Annotated[str, typer.Option(help="Whose account.")],
    delta: Annotated[float | None, typer.Option(help="At which the budget is told as epsilon.")] = None,
    as_json: Json = False,
) -> None:
    """One person's account (PRIVATE): every question that charged them, the total, and what it means."""
    from bursar.queries._statements import statement as told

    with _opened(path) as book:
        found = told(book, person, delta=delta)
    if as_json:
        print(dumps({"private": PRIVATE, **asdict(found), "words": found.words}))
        return
    table = _table("number", "time", "analyst", "purpose", "key", "ask", "rho")
    for line in found.lines:
        cells = (line.number, line.time, line.analyst, line.purpose or "", line.key, line.question["ask"])
        table.add_row(*map(str, cells), shown(line.rho, 6))
    _console().print(f"{PRIVATE}, and for this person", table, found.words, sep="\n")


def _tell_person(what: str, charged: bool) -> None:
    """Confirm, and tell the data holder of a name that may be a slip of the pen."""
    print(f"{PRIVATE}: this person {what}")
    if not charged:
        print("no question has charged anybody of this name so far: is it spelt as in the data?")


def _same(told: Path | str, path: str) -> bool:
    """Whether two names are of the same ledger."""
    return told.resolve() == Path(path).resolve() if isinstance(told, Path) else told == path


def _opened(path: str) -> Any:
    from bursar.ledger import Ledger

    return Ledger.open(path, create=False)  # a command about a ledger never makes one


def _console() -> Console:
    """Names, keys and groups are shown letter by letter: nothing in them is a style, a link or a picture."""
    return Console(markup=False, emoji=False)


def _table(*columns: str) -> Table:
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _tell(answers: dict[str, Any], *, as_json: bool) -> None:
    """Answers as JSON, or a table with a line for each value."""
    if as_json:
        told = {
            key: {"groups": each.groups, "values": each.values, "intervals": each.intervals, "rho": each.rho}
            | ({} if each.complete is None else {"complete": each.complete})
            for key, each in answers.items()
        }
        print(dumps(told))
        return
    table = _table("key", "group", "value", "95 % interval")
    for key, each in answers.items():
        for place, (group, value, interval) in enumerate(zip(each.groups, each.values, each.intervals, strict=True)):
            several = isinstance(value, list)
            for number, low_high in zip(
                value if several else [value], interval if several else [interval], strict=True
            ):
                shown = "-" if number is None else f"{number:.6g}"
                name = ", ".join(map(str, group))
                table.add_row(key if place == 0 else "", name, shown, f"{low_high[0]:.6g} to {low_high[1]:.6g}")
    _console().print(table, NOISE)
    stale = [key for key, each in answers.items() if each.complete is False]
    if stale:
        _console().print(f"Too many people could not pay any more: do not trust totals from {stale[0]!r} on.")
