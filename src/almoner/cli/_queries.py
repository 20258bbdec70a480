"""`almoner query`: the questions of a file."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from almoner._units import shown
from almoner.cli._options import CsvFile, Force, Group, Json, check_new_file
from almoner.cli._shown import Listing, dumps, print_answers, print_misfits, show

if TYPE_CHECKING:
    from almoner.queries import Answer, Quote, Session
    from almoner.queries.plans import Plan

PlanFile = Annotated[Path, typer.Argument(help="A TOML file: data, person, ledger, budget, analyst, questions.")]
OtherLedger = Annotated[str | None, typer.Option("--ledger", help="Use this ledger instead of the plan's.")]

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


@query.command("quote", epilog="Example: almoner query quote questions.toml")
def quote(
    plan: PlanFile, ledger: OtherLedger = None, csv: CsvFile = None, force: Force = False, as_json: Json = False
) -> None:
    """Show what every question would cost at most, and its noise. Asks nothing and charges nobody."""
    from almoner.ledger import Ledger

    questions = _plan(plan, ledger, csv, force=force)
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


def _plan(file: Path, ledger: str | None, csv: Path | None = None, *, force: bool = False) -> "Plan":
    """The plan of a file; a CSV file that must not be written is refused before anything is asked."""
    from almoner.queries.plans import Plan

    plan = Plan.read(file, ledger=ledger)
    check_new_file(csv, force=force, read=(file, plan.ledger, *plan.files))
    return plan


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
    with _plan(plan, None).look() as session:  # refuses what a session would refuse
        found = session.misfits
    print_misfits(found, as_json=as_json)


@query.command("ask", epilog="Example: almoner query ask questions.toml --json")
def ask(
    plan: PlanFile, ledger: OtherLedger = None, csv: CsvFile = None, force: Force = False, as_json: Json = False
) -> None:
    """Answer every question. A key that was asked before gives the same answer again and costs nothing."""
    questions = _plan(plan, ledger, csv, force=force)
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
    questions = _plan(plan, ledger, csv, force=force)
    with questions.open() as session:
        answers = {answer.key: answer for answer in questions.analyst(session).answers()}
    _write_csv(answers, csv)
    print_answers(answers, as_json=as_json)


def _write_csv(answers: "Mapping[str, Answer]", path: Path | None) -> None:
    if path is not None:
        from almoner.queries import write_csv

        write_csv(list(answers.values()), path)
