"""Payment of a question, how sure it is that everybody can pay, and what is said of accounts."""

from typing import NamedTuple

from almoner._units import to_float
from almoner.errors import BudgetExceeded

MASS = 1024  # parts of the longest contribution in which missing mass is counted
_ALMOST = "CAST('0.99999999' AS DOUBLE)"  # of shrunk contributions: rounding makes none cost more than is paid
_CERTAIN = "; nobody can have more than {:.6g} left"
_UNCERTAIN = (
    ", and a person who paid the highest price of every question so far has {:.6g} left: people may be missing from "
    "the answer, and nothing tells how many. To have it all the same, ask with anyway=True (in TOML and JSON: true)"
)


def exceeded(asked: int, budget: int, left: int, symbol: str = "rho", *, why: str = _CERTAIN) -> BudgetExceeded:
    """A refusal, from public numbers alone; all in units."""
    amounts = {"asked": to_float(asked), "spent": to_float(budget - left), "left": to_float(left, down=True)}
    cost = f"this may cost {symbol} = {amounts['asked']:.6g} of a person's budget"
    return BudgetExceeded(cost + why.format(amounts["left"]), **amounts)


class PaymentSql(NamedTuple):
    """Payment of one person, as SQL expressions over ``c``, a row of what was offered. Public."""

    units: str  # the charge of the person
    factor: str  # the factor on the person's contribution before it is added up
    taken: str  # true if the person takes part


class Payment(NamedTuple):
    """Payment of a question: a fixed part, and a part for what a person contributes. Public.

    Guarantee: a person is charged at most ``allowed(left)``, where ``left`` is what that person has left: the least
        over the budget and over every limit that applies. What a person is charged covers ``fixed`` and what the
        person's contribution costs after it was multiplied by the factor and rounded towards zero; it depends on
        nothing but that person's own account and rows, and public numbers.
    Source: theory 5.1 to 5.3; docs/proofs/individual-filter.md, "Shrinking to what is left".
    """

    pace: int | None = None
    """A person may pay one part in so many of what is left, and a contribution that costs more shrinks to what that
    pays for; None where a person pays in full or is left out."""
    fixed: int = 0  # units that each person pays who takes part, whatever they contribute; who cannot is left out
    linear: bool = False  # true if a contribution's price grows with its length (Laplace noise), not with its square

    def allowed(self, left: int) -> int:
        """The most that a person with so much left may pay, units, rounded down; 0 where nothing is left."""
        return max(0, left) // (self.pace or 1)

    def floor(self, left: int, price: int) -> int:
        """Units, at most the price, that every person can pay where everybody has so much left, or more.

        Guarantee: a person whose contribution costs no more, the fixed part included, takes part in full. Where it is
            the price, nobody is shrunk or left out for lack of budget; where the question has a pace, the contribution
            of each other person shrinks to no less than what it pays for.
        Source: docs/proofs/individual-filter.md, "How complete an answer is".
        """
        return min(price, self.allowed(left))

    def refuse_uncertain(self, left: int, price: int, budget: int, symbol: str) -> None:
        """Refuse what a person cannot pay who has ``left`` units, after the highest price of all questions so far.

        With a pace of 2 or more, which shrinks people so that something is always left, a part of it is enough.
        """
        floor = self.floor(left, price)
        if floor >= price or (self.pace is not None and self.pace > 1 and floor > self.fixed):
            return
        raise exceeded(price, budget, max(0, left), symbol, why=_UNCERTAIN)

    def after(self, spent: int, most: int, price: int) -> int:
        """The most that a person can have spent who had spent so much, or less, before this question; units.

        Guarantee: an upper bound for everyone who had spent at most ``spent``.
        Source: docs/proofs/individual-filter.md, "How complete an answer is".
        """
        return spent + min(price, self.allowed(most - spent))

    def sql(self, left: str, *, divide: str) -> PaymentSql:
        """SQL of what a person pays who has ``left``, over ``c`` with full ``units`` and, with a pace, a ``factor``."""
        if self.pace is None:
            return PaymentSql(f"c.units + {self.fixed:d}", "c.factor", f"c.units <= ({left}) - {self.fixed:d}")
        allowed = f"greatest(0, ({left}) {divide} {self.pace:d} - {self.fixed:d})"
        part = f"least(c.units, {allowed})"
        return PaymentSql(f"{part} + {self.fixed:d}", self.factor_sql(part, "c"), f"{allowed} > 0")

    def mass_sql(self, price: int) -> str:
        """SQL, over wanted and paid, of the mass missing from contributions, rounded up; the longest is ``MASS``."""
        worth = [f"{units} * 1e0 / {max(1, price - self.fixed):d}" for units in ("wanted", "paid")]
        wanted, paid = (f"least(1e0, {each})" if self.linear else f"sqrt(least(1e0, {each}))" for each in worth)
        return f"CAST(coalesce(sum(ceil({MASS:d} * ({wanted} - {paid}))), 0) AS BIGINT)"

    def factor_sql(self, units: str, row: str) -> str:
        """The factor of a contribution of which units are paid, without the fixed part, as SQL."""
        share = f"CAST({units} AS DOUBLE) / CAST({row}.units AS DOUBLE)"
        return (
            f"CASE WHEN {units} >= {row}.units THEN {row}.factor ELSE "
            f"{row}.factor * {_ALMOST} * {share if self.linear else f'sqrt({share})'} END"
        )


PrivateNote = dict[str, object]  # the private part of an entry of the record, as JSON


class Share(NamedTuple):
    """A limited scope (an analyst's or a purpose's), and the most that each person may spend on it; units, public."""

    scope: str
    most: int


class Charge(NamedTuple):
    """Units that one question cost one person; below 0 where something came back. Private."""

    question: int
    units: int


class Consistency(NamedTuple):
    """Results of two checks: every account is the sum of its charges; none of them breaks the budget."""

    sums: bool
    budget: bool


class Extent(NamedTuple):
    """Of a column of units: how many people, units in all, the most of one person. Private."""

    people: int
    units: int
    most: int
