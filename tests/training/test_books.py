"""Books in a loop of one's own: charged as a trainer charges, and refused before anybody pays."""

import numpy as np
import pytest

from almoner import errors, filters, individual, mechanisms, odometers
from almoner.training.books import Bounds, Counts, MemoryBook

STEP = mechanisms.Gaussian(4.0)


def test_a_loop_of_ones_own_charges_and_counts():
    """Accounts, bounds and losses have the contributions of those who were admitted, and nobody else's."""
    people, losses = individual.Filter(3, filters.Zcdp(rho=0.05)), individual.Losses(3, least=2.0, most=100.0)
    bounds = Bounds(odometers.Gaussian(delta=1e-5), 3)
    book = MemoryBook(people, people=3, observers=[bounds, Counts(losses)])
    for _ in range(3):
        opened = book.open(STEP)
        active = opened.charge(STEP, np.array([1.0, 0.5, np.nan]))
        book.record(STEP, opened)
    assert active.tolist() == [False, True, False]  # a step costs 1/32, so the first person has paid for one
    alone = individual.Odometer(3, odometers.Gaussian(delta=1e-5))
    for given in ([1.0, 0.5, 0.0], [0.0, 0.5, 0.0], [0.0, 0.5, 0.0]):
        alone.charge(STEP, np.array(given))
    assert np.array_equal(book.odometer().epsilon(), alone.epsilon())
    assert dict(book.current.value.released) == {STEP: 3}
    assert losses.epsilon(delta=1e-5)[2] == 0 < losses.epsilon(delta=1e-5)[1]


def test_a_mechanism_that_an_observer_cannot_count_charges_nobody():
    """Each charge of a step is checked by all who watch, before anybody pays; also where a step is charged in parts."""

    people = individual.Filter(3, filters.Zcdp(rho=1.0))
    book = MemoryBook(people, people=3, observers=[Bounds(odometers.Gaussian(delta=1e-5), 3)])
    with pytest.raises(errors.Unsupported):
        book.open(mechanisms.Laplace(4.0))
    assert not people.spent().any()
    opened = book.open(mechanisms.Gaussian(4.0))
    before = people.spent().copy()
    with pytest.raises(errors.Unsupported):
        opened.charge(mechanisms.Laplace(4.0), np.full(3, 0.5))
    assert np.array_equal(people.spent(), before)
