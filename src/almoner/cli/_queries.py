"""`almoner query` and `almoner ledger`: questions, and the record."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from almoner._private import MARK
from almoner._units import shown
from almoner.cli._options.common import CsvFile, Force, Json, OutFile
from almoner.cli._options.files import check_new_file, check_page, write_page
from almoner.cli._options.groups import Group
from almoner.cli._shown.answers import print_answers
from almoner.cli._shown.json import dumps
from almoner.cli._shown.misfits import print_misfits
from almoner.cli._shown.tables import Listing, console, show
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.ledger import Ledger
    from almoner.queries import Answer, Quote, Session
    from almoner.queries.plans import Plan

__all__ = ["LOOK", "PEOPLE", "RULES", "UPKEEP", "LedgerName", "OtherLedger", "Person", "add", "ledger", "opened"]

PlanFile = Annotated[Path, typer.Argument(help="A TOML file: data, person, ledger, budget, analyst, questions.")]
LedgerName = Annotated[str, typer.Argument(help="The ledger: a file, or postgresql://user@server/database.")]
OtherLedger = Annotated[str | None, typer.Option("--ledger", help="Use this ledger instead of the plan's.")]
Person = Annotated[str, typer.Option("--person", help="The person, named as in the data.")]

LOOK, RULES, PEOPLE, UPKEEP = "Look and check", "Limits and declarations", "People", "Copies and upkeep"
"""The headings of the help of `almoner ledger`."""

_ABOUT_MARGINS = '"95 % margin": of each released number. '
_ABOUT_QUOTES = (
    '"95 % within": half of the width that an interval of the answer will '
    'have; "-" where it depends on how many rows there are, and no earlier answer tells. "fit": questions of this '
    "price that every person can certainly still pay."
)

_NOT_THERE = (
    "The ledger is not there: so much would fit a new one, which `almoner ledger create {}` makes. If it got lost, "
    "restore a backup."
)

query = typer.Typer(
    cls=Group,
    help="Ask the questions of a file, each key once.",
    epilog="Example: almoner query quote questions.toml\n\nExample: almoner query ask questions.toml",
)
ledger = typer.Typer(
    cls=Group,
    help="The data holder's record: show it, check it, limit it, let people leave.",
    epilog="Example: almoner ledger show people.ledger\n\nExample: almoner ledger verify people.ledger",
)


def add(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.add_typer(query, name="query", rich_help_panel="Publish statistics")
    app.add_typer(ledger, name="ledger", rich_help_panel="Publish statistics")


@query.command("quote", epilog="Example: almoner query quote questions.toml")
def quote(
    plan: PlanFile, ledger: OtherLedger = None, csv: CsvFile = None, force: Force = False, as_json: Json = False
) -> None:
    """Show what every question would cost at most, and its noise. Asks nothing and charges nobody."""
    from almoner.ledger import Ledger
    from almoner.queries.plans import Plan

    questions = Plan.read(plan, ledger=ledger)
    _check_csv(csv, questions, plan, force=force)
    new = not Ledger.exists(questions.ledger)
    with questions.look() as session:
        quotes, stored = questions.quote(session), _stored(questions, session)
        together = _together(quotes, stored, session)
    table, about = _quoted(quotes, stored)
    table.write(csv)
    if as_json:
        print(dumps({key: asdict(each) | {"stored": key in stored} for key, each in quotes.items()}))
    else:
        show(table, about, *together, *([_NOT_THERE.format(plan)] if new else []))


def _stored(questions: "Plan", session: "Session") -> set[str]:
    """The keys that were answered already."""
    return {answer.key for answer in questions.analyst(session).answers()}


def _together(quotes: "Mapping[str, Quote]", stored: set[str], session: "Session") -> list[str]:
    """The price of all questions that are not answered yet, for a person who is in each of them; public."""
    new = [each for key, each in quotes.items() if key not in stored]
    if len(new) < 2 or session.ledger.periods is not None:
        return []
    total = sum(each.of_budget for each in new)
    said = f"Together these {len(new)} questions cost a person who is in all of them {_percent(total)} of the budget."
    if total <= 1:
        return [said]
    more = total if new[0].epsilon is not None else total**0.5
    cure = f"With {ceil(100 * more) / 100:g} times the noise all of them would fit."
    return [
        f"{said} Later ones will be refused; with anyway = true such people are left out of them, or count for less. "
        f"{cure}"
    ]


def _percent(share: float) -> str:
    """A share in percent, rounded up."""
    return f"{shown(100 * share, 3)} %"


def _quoted(quotes: "Mapping[str, Quote]", stored: set[str]) -> tuple[Listing, str]:
    """A line for each number that a question would release, and what the columns mean."""
    symbol = "epsilon" if any(each.epsilon is not None for each in quotes.values()) else "rho"
    rows = []
    for key, each in quotes.items():
        price = "stored: 0" if key in stored else shown(each.rho if each.epsilon is None else each.epsilon, 3)
        share = "0 %" if key in stored else _percent(each.of_budget)
        within = "-" if each.half_width is None else f"{each.half_width:.6g}"
        for name, margin in each.margins.items():
            rows.append((key, price, share, name, f"{margin:.6g}", within, f"{each.fits:,}"))
    alike = all(row[4] == row[5] for row in rows)
    once = ("key", f"{symbol} at most", "of budget", "95 % within", "fit")
    columns = (*once[:3], "released", *([] if alike else ["95 % margin"]), *once[3:])
    cells = ([cell for place, cell in enumerate(row) if place != 4 or not alike] for row in rows)
    return Listing(columns, cells, once=once), _ABOUT_QUOTES if alike else _ABOUT_MARGINS + _ABOUT_QUOTES


@query.command("check", epilog="Example: almoner query check questions.toml")
def check(plan: PlanFile, as_json: Json = False) -> None:
    """Count the entries that don't fit their column's type, and show where the first are. PRIVATE: for the data holder.

    Such entries count as missing in every answer; a column of nothing else is refused. Asks nothing and charges nobody.
    """
    from almoner.queries.plans import Plan

    questions = Plan.read(plan)
    with questions.look() as session:  # refuses what a session would refuse
        found = session.misfits
    print_misfits(found, as_json=as_json)


@query.command("ask", epilog="Example: almoner query ask questions.toml --json")
def ask(
    plan: PlanFile, ledger: OtherLedger = None, csv: CsvFile = None, force: Force = False, as_json: Json = False
) -> None:
    """Answer every question. A key that was asked before gives the same answer again and costs nothing."""
    from almoner.queries.plans import Plan

    questions = Plan.read(plan, ledger=ledger)
    _check_csv(csv, questions, plan, force=force)
    with questions.open() as session:
        before = _stored(questions, session)
        for said in _together(questions.quote(session), before, session):
            if "left out" in said:
                print(said, file=sys.stderr)
        answers = questions.ask(session)
    _write_csv(answers, csv)
    print_answers(answers, as_json=as_json)
    if not as_json and (stored := sum(key in before for key in answers)):
        said = "1 answer was" if stored == 1 else f"{stored} answers were"
        it = "it" if stored == 1 else "them"
        show(f"{said} stored already: nothing was charged for {it}. To ask anew, change the key.")


@query.command("list", epilog="Example: almoner query list questions.toml")
def list_(
    plan: PlanFile, ledger: OtherLedger = None, csv: CsvFile = None, force: Force = False, as_json: Json = False
) -> None:
    """List the answers that the plan's analyst has got for its purpose so far."""
    from almoner.queries.plans import Plan

    questions = Plan.read(plan, ledger=ledger)
    _check_csv(csv, questions, plan, force=force)
    with questions.open() as session:
        answers = {answer.key: answer for answer in questions.analyst(session).answers()}
    _write_csv(answers, csv)
    print_answers(answers, as_json=as_json)


@ledger.command(
    "verify", epilog="Example: almoner ledger verify people.ledger --replay questions.toml", rich_help_panel=LOOK
)
def verify(
    path: LedgerName,
    head: Annotated[
        str | None, typer.Option(help="A head that `show` printed earlier: it must still be there.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="A file of questions that names the data: compute every charge again.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a ledger: its record is unbroken and its accounts add up. Exit code 1 if not.

    For the data holder. An auditor who has only the exported record uses `almoner ledger check-export`.
    """
    if replay is None:
        from almoner.ledger import verify as verified

        with opened(path) as book:
            findings = verified(book, head=head)
    else:
        from almoner.queries.plans import Plan

        findings = Plan.read(replay).verify(path, head=head)
    if as_json:
        print(dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            mark = "[green]yes[/]" if finding.holds else "[bold red]NO [/]"
            console().print(f"{mark}  {finding.what}", markup=True)
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


@ledger.command("show", epilog="Example: almoner ledger show people.ledger", rich_help_panel=LOOK)
def show_(path: LedgerName, csv: CsvFile = None, force: Force = False, as_json: Json = False) -> None:
    """Show the budget, the head, and every question with its worst-case price."""
    from almoner.ledger import summary

    if csv is not None:
        check_new_file(csv, force=force, read=(path,))
    with opened(path) as book:
        record = summary(book)
    symbol = "epsilon" if record.terms["measure"] == "epsilon" else "rho"
    of = ["data set"] if any("dataset" in asked for asked in record.questions) else []
    rows = []
    for asked in record.questions:
        names = (asked["number"], asked["time"][:16], asked["analyst"], asked["purpose"] or "", asked["key"])
        about = (*([asked.get("dataset", "")] if of else []), asked["question"].get("ask", ""))
        rows.append((*map(str, (*names, *about)), shown(asked[f"{symbol} at most"], 6)))
    table = Listing(("number", "time, UTC", "analyst", "purpose", "key", *of, "ask", f"{symbol} at most"), rows)
    table.write(csv)
    if as_json:
        print(dumps(asdict(record)))
        return
    budget = f"budget: {symbol} = {shown(record.terms[symbol], 6)} ({record.terms['measure']})"
    show(table, budget)
    print(f"head: {record.head}")


@ledger.command(
    "report", epilog="Example: almoner ledger report people.ledger --html report.html", rich_help_panel=LOOK
)
def report(
    path: LedgerName,
    html: Annotated[Path, typer.Option("--html", help="Write the PRIVATE page to this file.")],
    head: Annotated[str | None, typer.Option(help="A head that `show` printed earlier: checked, too.")] = None,
    force: Force = False,
) -> None:
    """Write a page about a ledger: terms, checks, prices by analyst, every question. It names no person."""
    check_page(html, force=force, read=(path,))
    from almoner.report.pages import ledger as page

    with opened(path) as book:
        write_page(html, page(book, head=head))


@ledger.command(
    "export", epilog="Example: almoner ledger export people.ledger --out record.jsonl", rich_help_panel=LOOK
)
def export(path: LedgerName, out: OutFile = None, force: Force = False) -> None:
    """Export the record for auditors, as lines of JSON without its private parts.

    `almoner ledger check-export` checks the chain of hashes of the exported file.
    """
    from almoner.ledger import export as exported

    if out is not None:
        check_new_file(out, force=force, read=(path,))
    with opened(path) as book:
        text = "".join(f"{line}\n" for line in exported(book))
    if out is None:
        typer.echo(text.encode("utf-8"), nl=False)  # as in a file, whatever the terminal shows
    else:
        out.write_text(text, encoding="utf-8")


@ledger.command("check-export", epilog="Example: almoner ledger check-export record.jsonl", rich_help_panel=LOOK)
def check_export(exported: Annotated[Path, typer.Argument(help="A file that `almoner ledger export` wrote.")]) -> None:
    """Check, without the ledger, that the chain of an exported record is unbroken.

    Prints the head, to be compared with one that `almoner ledger show` printed.
    """
    from almoner.ledger import check_export_file

    count, head = check_export_file(exported)
    print(f"{count} entries, unbroken")
    print(f"head: {head}")


@ledger.command("retire", epilog="Example: almoner ledger retire people.ledger --person 17", rich_help_panel=PEOPLE)
def retire(path: LedgerName, person: Person) -> None:
    """Let a person leave: no later answer uses their records. The account is kept, so nobody returns with a new one."""
    with opened(path) as book:
        charged = book.charged(person)
        book.retire(person)
    _confirm("left: in no answer from now on, and the account stays", charged=charged)


@ledger.command("restore", epilog="Example: almoner ledger restore people.ledger --person 17", rich_help_panel=PEOPLE)
def restore(path: LedgerName, person: Person) -> None:
    """Let a person who left return, with the account as it was."""
    with opened(path) as book:
        charged = book.charged(person)
        book.restore(person)
    _confirm("is back, with the account as it was left", charged=charged)


@ledger.command("erase", epilog="Example: almoner ledger erase people.ledger --person 17", rich_help_panel=PEOPLE)
def erase(path: LedgerName, person: Person) -> None:
    """Remove what single questions charged a person; the total remains, and the person is in no answer from now on.

    Only in a ledger that was made with pseudonyms.
    """
    from almoner.ledger import erase as erased

    with opened(path) as book:
        charged = book.charged(person)
        erased(book, person)
    _confirm("is erased: one total remains, under a keyed hash", charged=charged)


@ledger.command(
    "limit", epilog="Example: almoner ledger limit people.ledger --rho 0.5 --analyst ann", rich_help_panel=RULES
)
def limit(
    path: LedgerName,
    rho: Annotated[float | None, typer.Option(help="The most that may be spent on each person.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Epsilon of the privacy budget of each person.")] = None,
    analyst: Annotated[str | None, typer.Option(help="The analyst who is limited; or give --purpose.")] = None,
    purpose: Annotated[str | None, typer.Option(help="The purpose that is limited; or give --analyst.")] = None,
) -> None:
    """Limit what one analyst, or all for one purpose, may spend of each person's budget."""
    from almoner import _check
    from almoner._units import budget

    if (rho is None) == (epsilon is None):
        raise ArgumentError("give either --rho or --epsilon")
    amount = epsilon if rho is None else rho
    with opened(path) as book:
        if (rho is None) != (book.symbol == "epsilon"):
            raise ArgumentError(f"this ledger counts {book.measure}: give --{book.symbol}")
        _check.positive(**{book.symbol: amount})
        book.limit(budget(float(amount or 0)), analyst=analyst, purpose=purpose)
    limited = f"analyst {analyst!r}" if analyst is not None else f"purpose {purpose!r}"
    print(f"{limited}: at most {'rho' if epsilon is None else 'epsilon'} = {amount:g} of each person's budget")


def _confirm(change: str, *, charged: bool) -> None:
    """Confirm a change, and tell the data holder of a name that may be misspelt."""
    if not charged:
        print("Is the name spelt as in the data? No question has charged a person of this name so far.")
    print(f"{MARK}: this person {change}")


def opened(path: str) -> "Ledger":
    from almoner.ledger import Ledger

    return Ledger.open(path)


def _check_csv(path: Path | None, questions: "Plan", plan: Path, *, force: bool) -> None:
    """Refuse a file that must not be written, before anything is asked."""
    if path is not None:
        check_new_file(path, force=force, read=(plan, questions.ledger, *questions.files))


def _write_csv(answers: "Mapping[str, Answer]", path: Path | None) -> None:
    if path is not None:
        from almoner.queries import write_csv

        write_csv(list(answers.values()), path)
