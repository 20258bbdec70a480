"""Words for what questions are about."""

from almoner.queries._questions.row_contributions import Per

__all__ = ["over_what"]


def over_what(column: str, per: Per, clipped: str = "") -> str:
    """Noun phrase for what a mean, a variance or a quantile is taken over.

    Args:
        column: the column's name.
        per: whose distribution it is.
        clipped: what is done to an entry, or to a total.
    """
    match per:
        case "person":
            return f"{column}{clipped} (per person: each person has one weight, shared by their rows)"
        case "total":
            return f"each person's total of {column}{clipped} (per person)"
    return f"{column}{clipped} (per row: who has more rows has more weight)"
