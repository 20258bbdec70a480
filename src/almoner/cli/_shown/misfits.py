"""Entries that cannot be read, as the data holder's table: of `almoner query check` and `almoner schema --check`."""

from collections.abc import Sequence

from almoner._misfits import Misfit
from almoner._private import MARK
from almoner.cli._shown.json import dumps
from almoner.cli._shown.tables import Listing, show

__all__ = ["print_misfits"]


def print_misfits(found: Sequence[Misfit], *, as_json: bool) -> None:
    """Print how many entries of each column cannot be read, and where the first are. PRIVATE."""
    if as_json:
        print(dumps([each._asdict() for each in found]))
        return
    rows = []
    for each in found:
        counts = f"{each.entries:,}", f"{each.unfit:,}"
        rows.append((each.table or "-", each.column, each.kind, *counts, ", ".join(each.first) or "-"))
    table = Listing(("table", "column", "type", "entries", "don't fit", "first"), rows)
    show(MARK, table if found else "No column has a type that its entries could miss.")
