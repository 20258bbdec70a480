"""Noise: as large as promised, and priced as the library that draws it says."""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest

from almoner import filters, noise
from almoner.curves import gaussian, zcdp
from almoner.mechanisms import Gaussian, Laplace
from almoner.queries import Count
from almoner.queries._questions.noise import noisy
from ledgers import RHO
from sessions import opened


def test_noise_is_the_noise_that_was_promised(path):
    """Standard deviation and mean of 2000 answers' noise, within five standard errors."""
    with opened(path, budget=filters.Zcdp(rho=100.0)) as session:
        keys = list(range(2000))
        found = session.analyst("x").ask(Count(by={"n": keys}, clip=3, sigma=4.0), key="a").values[9:]
        spread = math.sqrt(sum(v * v for v in found) / len(found))
        assert abs(spread - 4.0) < 5 * 4.0 / math.sqrt(2 * len(found))
        assert abs(sum(found) / len(found)) < 5 * 4.0 / math.sqrt(len(found))


@pytest.mark.parametrize("sigma", [0.37, 20.0, 12345.678])
def test_the_price_is_what_the_library_of_the_noise_says(sigma):
    """OpenDP's own privacy map of the mechanism that is run gives the price, and not more."""
    asked = Count(clip=2.5, sigma=sigma)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    rho = dp.m.make_gaussian(*space, scale=asked.mechanism.sigma).map(float(asked.clip_steps))
    assert rho <= asked.price / RHO * (1 + 1e-12)
    assert asked.price / RHO <= rho * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("sigma", [0.37, 20.0, 12345.678])
def test_the_price_is_that_of_a_gaussian_mechanism(sigma):
    """In zCDP, and as mu squared / 2: the least whole number of units that is not below either."""
    asked = Count(clip=2.5, sigma=sigma)
    exact = Fraction(asked.clip_steps) ** 2 / Fraction(asked.mechanism.sigma) ** 2 / 2
    assert exact * RHO <= asked.price < exact * RHO + 1
    for cost in (zcdp.cost(asked.mechanism), gaussian.cost(asked.mechanism) / 2):
        assert abs(cost / exact - 1) < 1e-15  # they read the decimal that a float is written as


def test_noise_is_added_and_cut_off_as_the_proof_says(monkeypatch):
    """Sums and results are cut off at 2**61, so that noise cut off at 2**62 gives what uncut noise gives."""
    sums = [5, -7, 2**70, -(2**70), 2**61, -(2**61)]
    for drawn in ([10] * 6, [2**62] * 6, [-(2**62)] * 6):
        monkeypatch.setattr(noise, "rounded_gaussian", lambda sigma, size, drawn=drawn: np.array(drawn[:size]))
        cut = [max(-(2**61), min(2**61, value)) for value in sums]
        wanted = [max(-(2**61), min(2**61, value + more)) for value, more in zip(cut, drawn, strict=True)]
        assert noisy(sums, Gaussian(sigma=1.0)) == wanted
        uncut = [max(-(2**61), min(2**61, value + 1000 * more)) for value, more in zip(cut, drawn, strict=True)]
        assert drawn[0] == 10 or noisy(sums, Gaussian(sigma=1.0)) == uncut


def test_each_kind_of_noise_has_its_own_spread():
    """Gaussian noise has standard deviation sigma, Laplace noise its scale times the root of two."""
    for mechanism, spread in ((Gaussian(sigma=1e6), 1e6), (Laplace(scale=1e6), 1e6 * math.sqrt(2))):
        drawn = np.array(noisy([0] * 40_000, mechanism))
        assert abs(drawn.std() / spread - 1) < 0.03


@pytest.mark.slow
def test_asking_loads_no_library_of_noise(tmp_path):
    """A first question imports no OpenDP."""
    code = f"""
import sys
import pyarrow as pa
from almoner import filters, queries
rows = pa.table({{"who": [1, 2, 3]}})
budget = filters.Zcdp(rho=1.0)
with queries.Session.open(rows, person="who", budget=budget, ledger={str(tmp_path / "l")!r}, create=True) as session:
    session.analyst("ann").ask(queries.People(sigma=5.0), key="a")
sys.exit("opendp" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
