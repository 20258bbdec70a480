"""Books for training loops of your own: where people pay, and what counts beside.

>>> import numpy as np
>>> from almoner import filters, individual, mechanisms, odometers
>>> people = individual.Filter(3, filters.Gaussian(epsilon=1.0, delta=1e-5))
>>> book = MemoryBook(people, people=3, observers=[Bounds(odometers.Gaussian(delta=1e-5), 3)])
>>> step = mechanisms.Gaussian(sigma=10.0, sensitivity=2.0)
>>> opened = book.open(step)
>>> opened.charge(step, np.array([2.0, 0.5, 0.0]))
array([ True,  True,  True])
>>> book.record(step, opened)  # before the noisy sum of those who were admitted is shown
>>> int(np.argmax(book.odometer().epsilon()))
0
"""

from almoner.training._run.books import Bounds, MemoryBook

__all__ = ["Bounds", "MemoryBook"]
