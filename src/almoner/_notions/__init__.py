"""Notions of privacy: in each, the units that add up, the price of a mechanism, and the promise of a budget.

Gaussian      mu squared of Gaussian mechanisms
Zcdp          rho
RenyiOrder    the Rényi divergence at one order
RenyiCurve    the same at several orders
OrderMixture  all orders at once, by a mixture fixed in advance
Residue       what is left of a Gaussian
Planned       what is left of a plan: rounds of one kind, as often as they still fit
Approximate   V, at the rate of advanced composition
Basic         epsilon and delta themselves
Boundary      of an odometer: bounds on the loss at every moment at once

A notion is a frozen value; what was spent is in accounts, which are filters and odometers. A new theorem is a new
notion, and nothing else changes.

>>> from almoner import mechanisms
>>> notion = Zcdp(limit=10**28)
>>> price = notion.price(mechanisms.Repeated(mechanisms.Gaussian(sigma=100.0), 200))
>>> price, notion.holds(price), notion.holds(notion.after(price, mechanisms.Zcdp(1e-15)))
((10000000000000000000000000000,), True, False)
>>> round(notion.statement(delta=1e-6).epsilon, 3)
0.622
"""

from almoner._notions._additive import Additive, Basic, Gaussian, RenyiCurve, RenyiOrder, Scalar, Zcdp
from almoner._notions._boundary import MOST, STEPS, Boundary, PersonBound, as_floats
from almoner._notions._notion import Account, Budget, ByRemainder, Notion, Promise, State, Totals, no_failures
from almoner._notions._order_mixture import OrderMixture, certain, default_weights
from almoner._notions._planned import Planned
from almoner._notions._residue import Residue
from almoner._notions._with_failures import Approximate, WithFailures

__all__ = [
    "MOST", "STEPS", "Account", "Additive", "Approximate", "Basic", "Boundary", "Budget", "ByRemainder", "Gaussian",
    "Notion", "OrderMixture", "PersonBound", "Planned", "Promise", "RenyiCurve", "RenyiOrder", "Residue", "Scalar",
    "State", "Totals", "WithFailures", "Zcdp", "as_floats", "certain", "default_weights",
    "no_failures",
]  # fmt: skip
