"""`almoner statement`: one person's account."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from almoner._private import MARK
from almoner._units import shown
from almoner.cli._ledger import Person, opened
from almoner.cli._options.common import Force, Json, OptionalDelta, Page
from almoner.cli._options.files import check_page, write_page
from almoner.cli._shown.json import dumps
from almoner.cli._shown.tables import Listing, show
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.individual import BudgetStatement
    from almoner.queries import Statement

__all__ = ["statement"]

LedgerOrModel = Annotated[str, typer.Argument(help="A ledger, or the folder of a model with kept accounts.")]


def statement(
    path: LedgerOrModel,
    person: Person,
    delta: OptionalDelta = None,
    html: Page = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Print one person's account (PRIVATE): every question that charged them, the total, and what it means.

    Without --delta the epsilon of the budget is stated at the ledger's own delta. For a model that was trained with
    the setting keep_accounts, print how much of their budget its training used; a person without a name is the number
    of a row.
    """
    check_page(html, force=force, read=(path,))
    if html is not None and as_json:
        raise ArgumentError("give either --html or --json")
    told: Statement | BudgetStatement
    if path.endswith(".accounts") or Path(path).is_dir():
        from almoner.training.saved_model import statement as models_statement

        if delta is not None:
            raise ArgumentError("--delta: the accounts of a model are stated at the delta on its card")
        told = models_statement(Path(path), person)
        words, shown_lines = str(told), []
    else:
        from almoner.queries import statement as person_statement

        with opened(path) as ledger:
            told = person_statement(ledger, person, delta=delta)
        words, shown_lines = told.words, [_lines(told)] if told.lines else []
    if html is not None:
        from almoner.report.pages import statement as page

        write_page(html, page(told, person=person), whose=", and for this person")
    elif as_json:
        print(dumps({"private": MARK, **asdict(told), "words": words}))
    else:
        show(f"{MARK}, and for this person", *shown_lines, words)


def _lines(account: "Statement") -> Listing:
    """A row for each entry that charged a person."""
    of = ["data set"] if any(line.dataset for line in account.lines) else []
    rows = []
    for line in account.lines:
        about = (line.key, *([line.dataset or ""] if of else []), line.question["ask"])
        share = f"{shown(100 * line.rho / account.budget, 3)} %"
        rows.append((line.time[:10], line.analyst, line.purpose or "", *about, share))
    return Listing(("day", "who asked", "what for", "result", *of, "asked", "of your budget"), rows)
