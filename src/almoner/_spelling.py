"""Which spellings of a text are one person's id?

    exact      letter by letter
    nfc        Unicode's normal form C: an accent is written with its letter or after it
    caseless   the same, and capital letters are small ones, letter by letter (not: "ß" and "ss")

DuckDB computes it everywhere, so that rows and accounts are always compared by one and the same table of letters.
"""

from collections.abc import Sequence

from almoner._workspace import duckdb

EXACT = "exact"
SPELLINGS = {
    "exact": "{0}",
    "nfc": "nfc_normalize({0})",
    "caseless": "nfc_normalize(lower(upper(nfc_normalize({0}))))",  # upper first: there are two small sigmas
}


def spelling_sql(spelling: str, name: str) -> str:
    """SQL of DuckDB for the one spelling of a name, over SQL that gives the name."""
    return SPELLINGS[spelling].format(name)


def spelled(spelling: str, names: Sequence[str]) -> list[str]:
    """The one spelling of each name, in order; to spell it again changes nothing."""
    if spelling == EXACT:
        return list(names)
    found = [name if spelling == "nfc" else name.lower() for name in names]
    rare = [place for place, name in enumerate(names) if not name.isascii()]
    if rare:
        listed = "SELECT unnest(?) AS name, unnest(?) AS place"
        sql = f"SELECT {spelling_sql(spelling, 'name')} FROM ({listed}) ORDER BY place"
        with duckdb().connect() as connection:
            rows = connection.execute(sql, [[names[place] for place in rare], rare]).fetchall()
        for place, (name,) in zip(rare, rows, strict=True):
            found[place] = name
    return found
