"""`almoner query`: the questions of a file."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

import almoner
from almoner._check import told
from almoner._units import shown
from almoner.cli._options import Delta, Group, Json, OptionalEpsilon, Output, added, check_page, examples
from almoner.cli._shown import STDOUT, Listing, csv_file, print_answers, print_misfits, show
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.queries import Answer, Quote, Session
    from almoner.queries.plans import Plan

PlanFile = Annotated[Path, Argument(help="A TOML file: data, person, ledger, budget, analyst, questions.")]
OtherLedger = Annotated[str | None, Option("--ledger", help="Use this ledger instead of the plan's.")]

_ABOUT_MARGINS = '"95 % margin": of each released number. '
_ABOUT_QUOTES = (
    '"95 % within": half of the width that an interval of the answer will have; "-" where it depends on how many rows '
    'there are, and no earlier answer tells. "fit": questions of this price that every person can certainly still pay.'
)

_NOT_THERE = (
    "The ledger is not there: so much would fit a new one, which `almoner ledger create {}` makes. If it got lost, "
    "restore a backup."
)

query = Typer(
    cls=Group,
    help="Ask the questions of a file, each key once.",
    epilog=examples("query quote questions.toml", "query ask questions.toml"),
)


@added(query, "query quote", "questions.toml")
def quote(plan: PlanFile, ledger: OtherLedger = None, *, out: Output) -> None:
    """Show what every question would cost at most, and its noise. Asks nothing and charges nobody."""
    questions = _plan(plan, ledger, out)
    new = not almoner.ledger.Ledger.exists(questions.ledger)
    with questions.look() as session:
        quotes, stored = questions.quote(session), {each.key for each in questions.analyst(session).answers()}
        together, _ = _together(quotes, stored, session)
    table, about = _quoted(quotes, stored)
    told = {key: asdict(each) | {"stored": key in stored} for key, each in quotes.items()}
    out.give(table, about, *filter(None, [together]), *([_NOT_THERE.format(plan)] if new else []), told=told)


def _plan(file: Path, ledger: str | None, out: Output) -> "Plan":
    """The plan of a file; a CSV file that must not be written is refused before anything is asked."""
    from almoner.queries.plans import Plan

    plan = Plan.read(file, ledger=ledger)
    out.check(file, plan.ledger, *plan.files)
    return plan


def _together(quotes: "Mapping[str, Quote]", stored: set[str], session: "Session") -> tuple[str, bool]:
    """The price of all questions that are not answered yet, for a person who is in each; if it is beyond the budget."""
    new = [each for key, each in quotes.items() if key not in stored]
    if len(new) < 2 or session.ledger.periods is not None:
        return "", False
    total = sum(each.of_budget for each in new)
    share, who = f"{shown(100 * total, 3)} % of the budget", "a person who is in all of them"
    said = f"Together these {len(new)} questions cost {who} {share}."
    if total <= 1:
        return said, False
    more = total if new[0].epsilon is not None else total**0.5
    later = "Later ones will be refused, or, with anyway = true, leave such people out or count them for less."
    return f"{said} {later} With {ceil(100 * more) / 100:g} times the noise all of them would fit.", True


def _quoted(quotes: "Mapping[str, Quote]", stored: set[str]) -> tuple[Listing, str]:
    """A line for each number that a question would release, and what the columns mean."""
    symbol = "epsilon" if any(each.epsilon is not None for each in quotes.values()) else "rho"
    rows = []
    for key, each in quotes.items():
        price = "stored: 0" if key in stored else shown(each.rho if each.epsilon is None else each.epsilon, 3)
        share = "0 %" if key in stored else f"{shown(100 * each.of_budget, 3)} %"
        within = "-" if each.half_width is None else f"{each.half_width:.6g}"
        for name, margin in each.margins.items():
            rows.append((key, price, share, name, f"{margin:.6g}", within, f"{each.fits:,}"))
    alike = all(row[4] == row[5] for row in rows)
    once = ("key", f"{symbol} at most", "of budget", "95 % within", "fit")
    titled = [(*once[:3], "released", "95 % margin", *once[3:]), *rows]
    columns, *cells = ([cell for place, cell in enumerate(row) if place != 4 or not alike] for row in titled)
    return Listing(columns, cells, once=once), _ABOUT_QUOTES if alike else _ABOUT_MARGINS + _ABOUT_QUOTES


@added(query, "query check", "questions.toml")
def check(plan: PlanFile, as_json: Json = False) -> None:
    """Count the entries that don't fit their column's type, and show where the first are. PRIVATE: for the data holder.

    Such entries count as missing in every answer; a column of nothing else is refused. Asks nothing and charges nobody.
    """
    with _plan(plan, None, Output()).look() as session:  # refuses what a session would refuse
        found = session.misfits
    print_misfits(found, as_json=as_json)


@added(query, "query ask", "questions.toml --json")
def ask(plan: PlanFile, ledger: OtherLedger = None, *, out: Output) -> None:
    """Answer every question. A key that was asked before gives the same answer again and costs nothing."""
    questions = _plan(plan, ledger, out)
    with questions.open() as session:
        before = {each.key for each in questions.analyst(session).answers()}
        said, beyond = _together(questions.quote(session), before, session)
        if beyond:
            print(said, file=sys.stderr)
        answers = questions.ask(session)
    beside = []
    if stored := sum(key in before for key in answers):
        said, it = ("1 answer was", "it") if stored == 1 else (f"{stored} answers were", "them")
        beside = [f"{said} stored already: nothing was charged for {it}. To ask anew, change the key."]
    _give(answers, out, *beside)


@added(query, "query summary", "visits.parquet --person who --ledger first.ledger --epsilon 1")
def summary(
    data: Annotated[Path, Argument(help="The table: a Parquet, CSV or DuckDB file, a row for each event.")],
    person: Annotated[str, Option("--person", help="The column that says whose row it is.")],
    ledger: Annotated[str, Option("--ledger", help="The ledger that it is charged to.")],
    epsilon: OptionalEpsilon = None,
    delta: Delta = 1e-6,
    price: Annotated[
        float | None, Option(help="The most that it costs a person, in the ledger's unit; else all of a new ledger.")
    ] = None,
    bounds: Annotated[list[str] | None, Option(help="Public bounds of a column, as age=0:120.")] = None,
    clip: Annotated[float | None, Option(help="The most rows of a person that count; else none are.")] = None,
    html: Annotated[Path | None, Option("--html", help="Write a page with pictures as well.")] = None,
    *,
    out: Output,
) -> None:
    """Show people, missing entries, quartiles, rates and frequent keys of each column, at one price.

    With --epsilon the ledger is made where there is none: all answers that are charged to it, whoever asks, are then
    (epsilon, delta)-DP together. Names and types of columns are taken as public: they alone say what is asked.
    Numbers without --bounds are told by steps of about a tenth. The same command again gives the same answers.
    """
    from almoner.queries import Session
    from almoner.report import pages

    out.check(data, ledger)
    check_page(html, force=out.force, read=(data, ledger), as_json=out.as_json)
    terms = None
    if epsilon is not None:  # half of delta is for keys of texts
        budget = almoner.filters.Gaussian(epsilon=epsilon, delta=delta / 2)
        terms = almoner.ledger.Terms(budget, keys_delta=delta / 2)
    elif not almoner.ledger.Ledger.exists(ledger):
        raise ArgumentError(f"there is no ledger at {ledger}: give --epsilon 1 to make it, or restore a backup")
    ends = dict(map(_bounds, bounds or ()))
    with Session.open(data, person=person, budget=terms, ledger=ledger, create=terms is not None) as session:
        answers = session.analyst("summary").summary(price=price, bounds=ends, clip=clip)
    if html is not None:
        html.write_text(pages.answers(answers, title=f"Summary of {data.name}"), encoding="utf-8")
    _give(answers, out)


def _bounds(given: str) -> tuple[str, tuple[float, float]]:
    column, _, ends = given.rpartition("=")
    try:
        low, high = map(float, ends.split(":"))
    except ValueError:
        raise ArgumentError(f"{told(bounds=given)} must be a column and numbers, as --bounds age=0:120") from None
    return column, (low, high)


@added(query, "query list", "questions.toml")
def list_(plan: PlanFile, ledger: OtherLedger = None, *, out: Output) -> None:
    """List the answers that the plan's analyst has got for its purpose so far."""
    questions = _plan(plan, ledger, out)
    with questions.open() as session:
        answers = {answer.key: answer for answer in questions.analyst(session).answers()}
    _give(answers, out)


def _give(answers: "Mapping[str, Answer]", out: Output, *beside: str) -> None:
    """Print answers and what stands beside them, or JSON, after the CSV file that is wanted."""
    if out.csv is not None:
        with csv_file(out.csv) as file:
            almoner.queries.write_csv(list(answers.values()), file)
    if out.csv != STDOUT:
        print_answers(answers, as_json=out.as_json)
        show(*([] if out.as_json else beside))
