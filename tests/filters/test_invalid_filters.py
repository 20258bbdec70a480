"""Filters that look right and are wrong (theory 4.4 and 4.10), each caught by exact enumeration; and ours are not.

The wrong rules live here only. Every branch of an interaction is certified by the wrong rule at (epsilon, delta), and
the true delta of the whole is larger. Our filters refuse a branch of the same interaction, or the truth stays below.
"""

from collections.abc import Callable
from math import exp

import numpy as np
import pytest
from mpmath import mp, mpf

from almoner import filters, mechanisms
from almoner.curves import renyi as renyi_curves
from enumeration import Round, biased, delta, leak, pruned, renyi, response

TABLE = [  # theory 4.4: epsilon, delta, first round, after its rare outcome, otherwise, true delta
    (0.5, 1e-6, (5.542e-5, 0.2806), (0.556, 0.249), (6.245e-6, 0.5925), 1.450e-6),
    (1.0, 1e-5, (5.002e-4, 0.4152), (0.649, 0.6154), (1.034e-4, 1.092), 1.885e-5),
    (3.0, 1e-5, (5.002e-4, 0.8073), (0.7611, 2.219), (5.878e-5, 3.181), 1.960e-5),
    (8.0, 1e-5, (5.002e-4, 2.153), (0.5152, 5.886), (2.662e-5, 8.452), 1.952e-5),
]
ORDERS = 1 + np.geomspace(0.3, 3000, 241)
E1, E2 = 1.0, 0.02  # the natural filter's rounds


def table_tree(row) -> Round:
    _, _, first, rare, otherwise, _ = row
    return biased(*first).then(biased(*rare), biased(*otherwise))


def best_order(rounds, epsilon, delta, orders=ORDERS) -> bool:
    """The wrong rule: certified if *some* order, chosen after the fact, has room for all rounds."""
    total = sum(np.array(renyi(round_, orders).values) for round_ in rounds)
    bound = total + np.log1p(-1 / orders) - np.log(orders * delta) / (orders - 1)
    return bool(bound.min() <= epsilon)


def branches(tree: Round):
    """The rounds on each path of a tree of two rounds."""
    return [(tree, child) if child else (tree,) for child in tree.after]


def natural_tree() -> tuple[Round, float]:
    """Theory 4.10: randomised response; then a small one after the positive loss, a leak after the negative one."""
    p = exp(E1) / (1 + exp(E1))
    d = p * float(mp.tanh(mpf(E2) / 2))
    return response(E1).then(response(E2), leak(d)), d


def composed(rounds, epsilon) -> mpf:
    """The delta of rounds fixed in advance: what a natural (PLD) filter reads off after it has run them."""
    tree = None
    for round_ in reversed(rounds):
        tree = round_.then(*(tree,) * len(round_.there))
    return delta(tree, epsilon)


def pure(round_: Round) -> mechanisms.Mechanism:
    """A round as a pure or approximate mechanism."""
    if round_.delta:
        return mechanisms.Approximate(round_.epsilon, round_.delta)
    return mechanisms.Pure(round_.epsilon)


def at_orders(orders) -> Callable[[Round], mechanisms.Mechanism]:
    """A round as a Rényi curve (its own delta kept apart)."""
    return lambda round_: pure(round_) if round_.delta else renyi(round_, orders)


def one_order(epsilon, d, alpha):
    budget = float(renyi_curves.budget(alpha, epsilon=epsilon, delta=d))
    return filters.RenyiOrder(alpha=alpha, rho=budget), at_orders((alpha,))


def whole_curve(epsilon, d):
    account = filters.Renyi(epsilon=epsilon, delta=d)
    return account, at_orders(account.orders)


def with_aside(name, part):
    """A filter of which a part of delta is set aside for failures."""
    return lambda e, d: (getattr(filters, name)(epsilon=e, delta=d, sum_delta=part * d), pure)


OURS = {
    "Renyi, by curve": whole_curve,
    "Renyi, as pure": lambda e, d: (filters.Renyi(epsilon=e, delta=d), pure),
    "Renyi, half aside": with_aside("Renyi", 0.5),
    "RenyiOrder 30": lambda e, d: one_order(e, d, 30.0),
    "RenyiOrder 80": lambda e, d: one_order(e, d, 80.0),
    "RenyiOrder 48": lambda e, d: one_order(e, d, 48.0),
    "Zcdp": lambda e, d: (filters.Zcdp(epsilon=e, delta=d), pure),
    "Approximate": lambda e, d: (filters.Approximate(epsilon=e, delta=d), pure),
    "Approximate, half aside": with_aside("Approximate", 0.5),
    "Pure": lambda e, d: (filters.Pure(epsilon=e, delta=d), pure),
    "Basic": lambda e, d: (filters.Basic(epsilon=e, delta=d), pure),
    "Residue": lambda e, d: (filters.Residue(epsilon=e, delta=d), pure),
    "Residue, 99 % aside": with_aside("Residue", 0.99),
}


@pytest.mark.parametrize("row", TABLE)
def test_best_order_so_far_is_wrong(row):
    """Every branch is certified by its best order, and the true delta is that of the table, 1.4 to 2 times delta."""
    epsilon, d, *_, true = row
    tree = table_tree(row)
    assert all(best_order(rounds, epsilon, d) for rounds in branches(tree))
    assert float(delta(tree, epsilon)) == pytest.approx(true, rel=1e-3)
    assert delta(tree, epsilon) > 1.4 * d


@pytest.mark.parametrize("row", TABLE)
def test_best_of_two_filters_without_a_split_is_wrong(row):
    """Two right filters at (epsilon, delta): each branch passes one of them, neither passes both, the truth fails."""
    epsilon, d, *_ = row
    tree = table_tree(row)
    fits = np.array(
        [[best_order(rounds, epsilon, d, np.array([alpha])) for alpha in ORDERS] for rounds in branches(tree)]
    )
    assert fits.any(axis=1).all()  # some order for each branch ...
    assert not fits.all(axis=0).any()  # ... and none for both
    chosen = [ORDERS[np.flatnonzero(branch)[0]] for branch in fits]
    for branch, alpha in enumerate(chosen):
        account, describe = one_order(epsilon, d, alpha)
        for round_ in branches(tree)[branch]:
            account.charge(describe(round_))
    assert delta(tree, epsilon) > 1.4 * d


@pytest.mark.parametrize("row", TABLE)
def test_best_of_two_filters_with_a_split_is_right(row):
    """Half of delta for each of the same two filters: what either admits stays below delta."""
    epsilon, d, *_ = row
    tree = table_tree(row)
    kept = []
    for alpha in (30.0, 48.0):
        run = pruned(tree, *one_order(epsilon, d / 2, alpha))
        kept.append(run.after if run else None)
    assert all(kept)
    either = tree.then(*(first or second for first, second in zip(*kept, strict=True)))
    assert delta(either, epsilon) <= d


@pytest.mark.parametrize("e1", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("e2", [0.001, 0.02])
def test_the_natural_filter_is_wrong(e1, e2):
    """Both branches compose to delta(e1) = d exactly, as a PLD would say; the truth is (2 - p) d."""
    p = 1 / (1 + mp.exp(-mpf(e1)))
    d = p * mp.tanh(mpf(e2) / 2)
    tree = response(e1).then(response(e2), leak(float(d)))
    for rounds in branches(tree):
        assert abs(composed(rounds, e1) - d) < 1e-15
    assert abs(delta(tree, e1) - (2 - p) * d) < 1e-15
    assert delta(tree, e1) > 1.04 * d


@pytest.mark.quick(37)
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("row", TABLE)
def test_our_filters_withstand_the_best_order_attack(name, row):
    """Each of our filters refuses a branch of the table's attack, and what it admits stays below delta."""
    epsilon, d, *_ = row
    account, describe = OURS[name](epsilon, d)
    run = pruned(table_tree(row), account, describe)
    assert run is None or None in run.after
    assert delta(run, epsilon) <= d


@pytest.mark.parametrize("name", OURS)
def test_our_filters_withstand_the_natural_attack(name):
    """Each of our filters refuses a branch of the attack on natural filters, and what it admits stays below delta."""
    tree, d = natural_tree()
    account, describe = OURS[name](E1, d)
    run = pruned(tree, account, describe)
    assert run is None or None in run.after
    assert delta(run, E1) <= d


@pytest.mark.quick(9)
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("times", [2, 10, 100])
def test_what_our_filters_admit_of_the_attacks_is_never_above_delta(name, times):
    """With a larger delta, of which more of the same attacks fits, the truth still stays below it."""
    for row in TABLE:
        account, describe = OURS[name](row[0], times * row[1])
        assert delta(pruned(table_tree(row), account, describe), row[0]) <= times * row[1]


@pytest.mark.slow
def test_most_of_our_filters_admit_something_of_the_attacks():
    """The tests above are no empty ones: many filters run the first round of an attack, and some a second."""
    runs = [pruned(table_tree(row), *make(row[0], row[1])) for make in OURS.values() for row in TABLE]
    assert sum(run is not None for run in runs) > len(runs) / 2
    assert sum(run is not None and any(run.after) for run in runs) >= 3


def test_the_enumeration_agrees_with_closed_forms():
    """Two randomised responses, fixed in advance: delta at 0 is the total variation distance, computed by hand."""
    p = 1 / (1 + mp.exp(-mpf(0.3)))
    by_hand = p**2 - (1 - p) ** 2  # outcomes agree; mixed outcomes weigh the same in both worlds
    assert abs(composed([response(0.3), response(0.3)], 0) - by_hand) < 1e-30
    assert delta(None, 0.1) == 0
    assert abs(delta(leak(0.25), 3.0) - mpf("0.25")) < 1e-30
