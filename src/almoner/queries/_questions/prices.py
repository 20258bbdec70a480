"""Price contributions: whole steps and noise in units of rho (Gaussian noise) or of epsilon (Laplace noise)."""

from fractions import Fraction
from math import inf, nextafter

from almoner._units import MEASURE, up

__all__ = ["STEPS", "price_of", "pure_price_of", "pure_units_per_step", "units_per_step"]

STEPS = 2**20
"""Whole steps in one full row: contributions are rounded to them, added up exactly, and given whole noise."""


def price_of(clip_steps: int, noise: float) -> int:
    """The most that a question costs a person, in units of rho, rounded up.

    Args:
        clip_steps: the clip in whole steps.
        noise: standard deviation of the noise on each coordinate, in full rows.

    Guarantee: a person who contributes at most the clip is charged at most this.
    Source: theory 2.9.
    """
    return int(up(Fraction(clip_steps**2) / (2 * Fraction(noise * STEPS) ** 2)))


def pure_price_of(clip_steps: int, noise: float) -> int:
    """The most that a question costs a person in a pure budget, in units of epsilon, rounded up.

    Args:
        clip_steps: the clip in whole steps, of L1 norms.
        noise: the scale of the Laplace noise on each coordinate, in full rows.

    Guarantee: a person who contributes at most the clip is charged at most this.
    Source: docs/proofs/noise.md, Theorem 3.
    """
    return int(up(Fraction(clip_steps) / Fraction(noise * STEPS)))


def units_per_step(noise: float) -> float:
    """Price of one squared step under Gaussian noise, in units of rho, rounded up."""
    return _above(Fraction(MEASURE) / (2 * Fraction(noise * STEPS) ** 2))


def pure_units_per_step(noise: float) -> float:
    """Price of one step under Laplace noise, in units of epsilon, rounded up."""
    return _above(Fraction(MEASURE) / Fraction(noise * STEPS))


def _above(exact: Fraction) -> float:
    """A float that is above the number, also after one product with it is rounded."""
    return nextafter(nextafter(float(exact) * (1 + 1e-15), inf), inf)
