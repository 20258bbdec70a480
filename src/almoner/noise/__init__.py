"""Draw noise in whole numbers, with exactly the stated probabilities, from the operating system's random bits.

>>> from almoner import noise
>>> noise.rounded_gaussian(sigma=2.5, size=4).dtype
dtype('int64')

Whole numbers hide nothing in their last digits, as floats with noise do (Mironov 2012). A draw is decided by comparing
random bits with bounds on exact numbers; where the bits that were drawn leave two results possible, more are drawn.
"""

from almoner.noise._draws import choice, discrete_laplace, rounded_gaussian

__all__ = ["choice", "discrete_laplace", "rounded_gaussian"]
