"""A card of every budget that accounts per person take.

python [-OO] tests/helpers/training_cards.py: prints all of them
"""

from almoner import filters
from almoner.training._card import build_card

BUDGETS = (
    filters.Gaussian(epsilon=1.0, delta=1e-5),
    filters.Gaussian(mu=0.5),
    filters.Zcdp(rho=0.1),
    filters.RenyiOrder(alpha=8.0, rho=0.3),
    filters.RenyiCurve(orders=[4.0, 8.0], values=[0.2, 0.3]),
    filters.Renyi(epsilon=1.0, delta=1e-5),
    filters.Residue(epsilon=1.0, delta=1e-5),
)
TRAINING = {
    "individual": True,
    "spend_remainder": True,
    "sample_rate": None,
    "sigma": 2.0,
    "noise_multiplier": 2.0,
    "max_grad_norm": 1.0,
    "steps": 3,
    "extra_steps": 0,
    "learning_rate": 1.0,
    "average": 0.0,
    "divisor": 40.0,
    "count_sigma": None,
    "people_from": "record",
    "classes_from": "caller",
    "reproducible": False,
}


def cards():
    """(budget, card) for each budget."""
    return [(budget, build_card(budget, delta=budget.delta or 1e-5, **TRAINING)) for budget in BUDGETS]


if __name__ == "__main__":
    for _, card in cards():
        print(card.to_json() + card.to_markdown())
