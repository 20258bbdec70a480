"""The best stopping rule against a running bound, by going backwards over all losses: what it can make of a bound.

A law is (probabilities, losses) of one round under P; losses are whole multiples of STEP, rounded down, so that what is
computed is never above the truth.
"""

import math

import numpy as np
from scipy.special import ndtr

STEP = 0.01


def response(epsilon):
    """Randomised response."""
    truth, places = 1 / (1 + math.exp(-epsilon)), round(epsilon / STEP)
    return np.array([1 - truth, truth]), np.array([-places, places])


def post_processed(noise, rate, cells=4000):
    """A sampled Gaussian whose output is only told to the cell it lies in: both laws add up to one."""
    edges = np.linspace(-9 * noise, 1 + 9 * noise, cells)
    q = np.diff(np.concatenate([[0.0], ndtr(edges / noise), [1.0]]))
    p = (1 - rate) * q + rate * np.diff(np.concatenate([[0.0], ndtr((edges - 1) / noise), [1.0]]))
    p, q = p[(p > 0) & (q > 0)], q[(p > 0) & (q > 0)]
    places = np.floor(np.log(p / q) / STEP).astype(int)
    held, where = np.unique(places, return_inverse=True)
    return np.bincount(where, weights=p), held


def _backwards(law, bounds, gain):
    """The value at loss 0 before the first round of the best moment to stop."""
    probabilities, places = law
    reach = int(max(bounds) / STEP) + 400
    losses = STEP * np.arange(-reach, reach + 1)
    value = gain(losses, bounds[-1])
    for bound in (*bounds[-2::-1], math.inf):
        mean = np.zeros_like(value)
        for probability, place in zip(probabilities, places, strict=True):
            at = np.clip(np.arange(len(losses)) + place, 0, len(losses) - 1)
            mean += probability * value[at]
        value = np.maximum(gain(losses, bound), mean)
    return float(value[reach])


def best_stop(law, bounds):
    """sup over stopping times T of E[(1 - exp(bound at T - L_T))_+]; bounds after 1, 2, ... rounds."""
    return _backwards(law, bounds, lambda losses, bound: -np.expm1(np.minimum(bound - losses, 0.0)))


def crossing(law, bounds):
    """The probability that the loss is ever above the bound."""
    return _backwards(law, bounds, lambda losses, bound: (losses > bound + 1e-9).astype(float))
