"""Books in a loop of one's own: charged as a trainer charges, and refused before anybody pays."""

import numpy as np
import pytest

from almoner import errors, filters, individual, mechanisms, odometers
from almoner.training import Bounds, MemoryBook
from almoner.training._run.books import Counts
from forks import needs_fork, raises_in_fork

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


def test_bounds_belong_to_those_who_were_there_when_the_book_was_opened():
    """Also where the ids come in another order than before; there is no second list that could differ."""
    book = MemoryBook(
        individual.Filter([], filters.Zcdp(rho=1.0)), observers=[Bounds(odometers.Gaussian(delta=1e-5), [])], by_id=True
    )
    for ids, norms in ((["a", "b"], [1.0, 0.5]), (["b", "a"], [1.0, 0.0])):
        opened = book.open(STEP, ids)
        opened.charge(STEP, np.array(norms))
        book.record(STEP, opened)
    alone = individual.Odometer(["a", "b"], odometers.Gaussian(delta=1e-5))
    for norms in ([1.0, 0.5], [0.0, 1.0]):
        alone.charge(STEP, np.array(norms))
    assert np.array_equal(book.odometer().epsilon(), alone.epsilon())


def test_a_book_by_row_takes_no_ids_and_a_book_without_noise_releases_nothing():
    """Both are refused before anybody is charged."""
    people = individual.Filter(2, filters.Zcdp(rho=1.0))
    book = MemoryBook(people, people=2)
    with pytest.raises(errors.ArgumentError, match="by_id=True"):
        book.open(STEP, ["a", "b"])
    with pytest.raises(errors.Unsupported, match="draws no noise"):
        book.release(STEP, None, lambda accounts: accounts.charge(STEP, np.ones(2)))
    assert not people.spent().any()


@needs_fork
def test_a_forked_process_charges_nothing_and_draws_no_noise():
    """Both processes would draw the same."""
    book = MemoryBook(individual.Filter(2, filters.Zcdp(rho=1.0)), people=2)
    assert raises_in_fork(errors.ArgumentError, lambda: book.open(STEP))
