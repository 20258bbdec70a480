"""Individual accounts: a filter or an odometer for each person, as arrays with a row per person.

>>> import numpy as np
>>> from almoner import filters, mechanisms
>>> people = Filter(3, filters.Gaussian(epsilon=1.0, delta=1e-5))
>>> step = mechanisms.Gaussian(sigma=10.0, sensitivity=2.0)
>>> people.charge(step, np.array([2.0, 0.5, 0.0]))
array([ True,  True,  True])
>>> people.charge(step, np.array([2.0, 0.5, 0.0]))
array([False,  True,  True])
"""

from almoner.individual._accounts import AccountsPerPerson
from almoner.individual._filter import Filter
from almoner.individual._losses import Losses, dominating_mu, losses
from almoner.individual._odometer import Odometer, Statement
from almoner.individual._shares import shares
from almoner.individual._statements import BudgetStatement, LossStatement

__all__ = [
    "AccountsPerPerson", "BudgetStatement", "Filter", "LossStatement", "Losses", "Odometer", "Statement",
    "dominating_mu", "losses", "shares",
]  # fmt: skip
