"""Mechanisms that are run: frozen descriptions with public parameters. Their costs are in :mod:`almoner.curves`.

Adjacency is always "add or remove one person, with all of that person's records". What single people contribute
(their norms) is private, and so never a field here: it is an argument beside the mechanism.

Names and symbols
    sigma         standard deviation of Gaussian noise, absolute, in the unit of the sum; a noise multiplier z with
                  clip C means sigma = z * C
    scale         scale of Laplace noise, absolute
    sensitivity   the most that one person can contribute (L2 norm; L1 norm for Laplace): the clip, a promise
    sample_rate   probability with which each person (or record) is sampled, independently (Poisson)
    epsilon, delta, rho, orders, values   in nats; delta a probability
    p, q          probabilities of the outcomes with and without the person
    runs, shape   of a random number of runs: its mean, and the shape of its law

>>> Repeated(Gaussian(sigma=170.0), 104)
Repeated(mechanism=Gaussian(sigma=170.0, sensitivity=1.0), count=104)
"""

from almoner.mechanisms._pair import (
    DominatingPair,
    MixtureOfGaussians,
    Paired,
    RandomAllocation,
    ReplacedGaussian,
    SampledRecords,
    Shuffled,
    TruncatedGaussian,
    fields_schema,
    from_fields,
    replaced,
    to_fields,
)
from almoner.mechanisms._rounds import (
    PDP,
    Approximate,
    BestOf,
    Composed,
    DiscreteGaussian,
    Exponential,
    Gaussian,
    Laplace,
    Mechanism,
    Pure,
    RandomizedResponse,
    Renyi,
    Repeated,
    SampledGaussian,
    Zcdp,
    gaussian_step,
    in_order,
    leaves,
    repeated,
    rounds,
)

__all__ = [
    "PDP", "Approximate", "BestOf", "Composed", "DiscreteGaussian", "DominatingPair", "Exponential", "Gaussian",
    "Laplace", "Mechanism", "MixtureOfGaussians", "Paired", "Pure", "RandomAllocation", "RandomizedResponse", "Renyi",
    "Repeated", "ReplacedGaussian", "SampledGaussian", "SampledRecords", "Shuffled", "TruncatedGaussian", "Zcdp",
    "fields_schema", "from_fields", "gaussian_step", "in_order", "leaves", "repeated", "replaced", "rounds",
    "to_fields",
]  # fmt: skip
