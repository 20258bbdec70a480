"""What a threshold on many runs shows about a claimed epsilon."""

import numpy as np
from scipy import stats

DELTA = 0.02


def epsilon_bound(there, absent):
    """A lower bound on epsilon at DELTA with 95 % confidence; the threshold is chosen on one half of the runs."""
    half = len(there) // 2
    best, threshold = -np.inf, 0.0
    for candidate in np.quantile(there[:half], np.linspace(0.02, 0.98, 49)):
        hits, alarms = np.mean(there[:half] > candidate), np.mean(absent[:half] > candidate)
        if hits > DELTA and np.log((hits - DELTA) / (alarms + 20 / half)) > best:
            best, threshold = np.log((hits - DELTA) / (alarms + 20 / half)), candidate
    hits, alarms = np.sum(there[half:] > threshold), np.sum(absent[half:] > threshold)
    low = stats.binomtest(int(hits), half).proportion_ci(0.95, method="exact").low
    high = stats.binomtest(int(alarms), half).proportion_ci(0.95, method="exact").high
    return np.log((low - DELTA) / high) if low > DELTA else 0.0
