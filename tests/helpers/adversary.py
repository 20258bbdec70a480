"""A simulated adversary against a filter, by Monte Carlo with a stated error rate."""

import numpy as np
from scipy import stats

from almoner import mechanisms

SIGMAS = (1.2, 1.6, 2.0, 2.5, 3.5, 5.0, 8.0)


def crossing_rate(make, *, epsilon, games, seed, error=1e-4, rounds=12):
    """Clopper-Pearson interval for delta(epsilon) of Gaussian rounds chosen adaptively against a filter.

    All games run in step. In each round every game picks its noise from its own realised loss: near epsilon it spends
    what it can in the largest round that still fits, far below it takes a middle one. What a filter admits depends on
    the charges alone, so games with the same charges share a filter. A game's contribution (1 - e^(epsilon - loss))_+
    is turned into a coin, so that the number of heads is binomial with success rate delta(epsilon) exactly.
    """
    rng = np.random.default_rng(seed)
    charges, accounts, losses = {(): 0}, [make()], np.zeros(games)
    where = np.zeros(games, np.int64)  # which account each game is at
    for _ in range(rounds):
        after = where.copy()
        for history, index in list(charges.items()):
            rows = np.flatnonzero(where == index)
            open_to = [s for s in SIGMAS if rows.size and accounts[index].admits(mechanisms.Gaussian(s))]
            if not open_to:
                continue
            near = losses[rows] > 0.3 * epsilon
            for group, sigma in ((rows[near], open_to[0]), (rows[~near], open_to[len(open_to) // 2])):
                reached = tuple(sorted((*history, sigma)))
                if reached not in charges:
                    charges[reached] = len(accounts)
                    accounts.append(make())
                    for each in (*history, sigma):
                        accounts[-1].charge(mechanisms.Gaussian(each))
                losses[group] += rng.standard_normal(group.size) / sigma + 1 / (2 * sigma**2)
                after[group] = charges[reached]
        where = after
    excess = np.where(losses > epsilon, -np.expm1(np.minimum(epsilon - losses, 0)), 0.0)
    heads = int(np.sum(rng.random(games) < excess))
    low = stats.beta.ppf(error, heads, games - heads + 1) if heads else 0.0
    high = stats.beta.ppf(1 - error, heads + 1, games - heads) if heads < games else 1.0
    return low, high
