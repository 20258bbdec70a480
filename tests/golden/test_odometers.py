"""Odometers against numbers from the papers' code and from independent tools (tests/golden/odometers.json)."""

import json
import math
import re
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from almoner import _search, filters, odometers
from almoner import mechanisms as m
from almoner.accounting.compare import optimum
from almoner.curves import zcdp

ENTRIES = json.loads((Path(__file__).parent / "odometers.json").read_text(encoding="utf-8"))["numbers"]
LECUYER_CODE = (*(1 + j / 4 for j in range(5, 37)), 16.0, 32.0)  # the 34 orders of the code
LECUYER_PAPER = (*(1 + j / 4 for j in range(1, 37)), 16.0, 32.0)


def chosen(pattern):
    found = [entry for entry in ENTRIES if re.match(pattern, entry["id"])]
    assert found
    return pytest.mark.parametrize("entry", found, ids=[entry["id"] for entry in found])


def agrees(entry, value, *, looser=1.0):
    return value == pytest.approx(entry["value"], abs=entry["tolerance"] * looser, rel=0)


def rounds_of(entry):
    return m.Repeated(m.Pure(entry["inputs"]["eps_each"]), entry["inputs"]["n"])


def charged(odometer, mechanism):
    odometer.charge(mechanism)
    return odometer


@chosen("fz_alg5")
def test_feldman_zrnic_algorithm_5(entry):
    """Equal steps, one at a time: filters opened times their size."""
    given = entry["inputs"]
    odometer = odometers.FeldmanZrnic(alpha=given["alpha"], step=given["Delta"], delta=1e-5)
    for _ in range(given["t"]):
        odometer.charge(m.Gaussian(given["sigma"], given["ratio"]))
    assert agrees(entry, odometer.total)


def lecuyer_events(entry):
    name, given = entry["id"], entry["inputs"]
    if isinstance(given["events"], list):
        return [m.Repeated(m.SampledGaussian(z, 1.0, q), k) for q, z, k in given["events"]]
    if "sigma_2.0_falling" in name:
        # one tenth less noise every epoch, down to 1.0
        noises = [max(1.0, round(2.0 - 0.1 * j, 1)) for j in range(50)]
        return [m.Repeated(m.SampledGaussian(z, 1.0, 0.01024), 98) for z in noises]
    q, z, k, times = (float(x) for x in re.findall(r"[\d.]+", given["events"]))
    return [m.Repeated(m.SampledGaussian(z, 1.0, q), int(k))] * int(times)


@chosen(r"lecuyer_(fine|sigma|gauss|mixed|paper)")
def test_lecuyer_against_his_code(entry):
    """The same sequences in the code that came with the paper, whose first filter is a quarter as large."""
    orders = LECUYER_PAPER if "paper" in entry["id"] else LECUYER_CODE
    assert len(orders) == entry["inputs"]["n_orders"]
    odometer = odometers.Lecuyer(delta=entry["inputs"]["delta"], sum_delta=0.0, orders=orders, first=0.25)
    events = lecuyer_events(entry)
    for event in events[: int(entry["id"].rsplit("_", 1)[1])]:
        odometer.charge(event)
    assert agrees(entry, odometer.epsilon())


def test_lecuyer_starts_where_the_paper_says():
    """The floor of the paper's section 4.5, and that of the code with three orders more."""
    floors = {entry["id"]: entry for entry in ENTRIES if "floor" in entry["id"]}
    paper = odometers.Lecuyer(delta=1e-6, sum_delta=0.0).epsilon()
    code = odometers.Lecuyer(
        delta=1e-6, sum_delta=0.0, orders=(*LECUYER_CODE, 64.0, 128.0, 256.0), first=0.25
    ).epsilon()
    assert agrees(floors["lecuyer_floor_paper"], paper)
    assert agrees(floors["lecuyer_floor_to256"], code)


@chosen("odo_zcdp_canonne")
def test_zcdp_reference(entry):
    """V/2-zCDP fixed in advance, the reference of all comparisons."""
    assert agrees(entry, zcdp.Zcdp(entry["inputs"]["V"] / 2).epsilon(delta=entry["inputs"]["delta"]), looser=5)


@chosen("odo_filter_adv")
def test_rate_of_the_whitehouse_filter(entry):
    """The smallest epsilon at which Whitehouse et al.'s filter still admits these rounds."""
    least = _least(partial(filters.Approximate, sum_delta=0.0), entry)
    assert least == pytest.approx(entry["value"], rel=2e-6)


@chosen("odo_rogers_filter")
def test_rogers_filter(entry):
    """The smallest epsilon at which Rogers et al.'s filter continues."""
    assert _least(filters.Rogers, entry) == pytest.approx(entry["value"], rel=1e-7)


def _least(kind, entry):
    rounds, delta = rounds_of(entry), entry["inputs"]["delta"]

    def admits(epsilon):
        return epsilon > 0 and kind(epsilon=epsilon, delta=delta).admits(rounds)

    return _search.first_true(admits, start=1.0)


@chosen("odo_stitched_poster_drift")
def test_stitched_is_the_poster_with_drift(entry):
    """Charged round by round (in blocks), with the start that the first round fixes."""
    odometer = odometers.Stitched(delta=entry["inputs"]["delta"], sum_delta=0.0)
    assert agrees(entry, charged(odometer, rounds_of(entry)).epsilon())


@chosen("odo_stitched_exact_drift")
def test_stitched_rounds_its_constants_up(entry):
    """The exact constants of polynomial stitching give a little less: 1.7, 0.72 and 5.2 are rounded up."""
    ours = charged(odometers.Stitched(delta=entry["inputs"]["delta"], sum_delta=0.0), rounds_of(entry)).epsilon()
    assert entry["value"] - 1e-6 <= ours <= 1.02 * entry["value"]


@chosen("confseq_stitch")
def test_stitched_against_an_independent_boundary(entry):
    """The boundary part, without the drift, against a library of confidence sequences."""
    clock, delta = entry["inputs"]["v"], entry["inputs"]["alpha"]
    ours = charged(odometers.Stitched(delta=delta, sum_delta=0.0, start=0.01), m.Zcdp(clock / 2)).epsilon() - clock / 2
    assert entry["value"] - 1e-9 <= ours <= 1.02 * entry["value"]


@chosen(r"odo_mixture_exact_drift")
def test_gaussian_mixture_is_the_exact_one(entry):
    """The root of the one-sided mixture, tuned at a hundred rounds."""
    plan = 100 * entry["inputs"]["eps_each"] ** 2
    odometer = odometers.Gaussian(delta=entry["inputs"]["delta"], sum_delta=0.0, plan=plan)
    assert agrees(entry, charged(odometer, rounds_of(entry)).epsilon(), looser=2)


@chosen(r"confseq_mix1")
def test_gaussian_mixture_against_an_independent_boundary(entry):
    """The boundary part, without the drift, against a library of confidence sequences."""
    clock, delta = entry["inputs"]["v"], entry["inputs"]["alpha"]
    odometer = odometers.Gaussian(delta=delta, sum_delta=0.0, plan=1.0)
    assert agrees(entry, charged(odometer, m.Zcdp(clock / 2)).epsilon() - clock / 2, looser=2)


def two_sided(clock, scale, delta):
    return math.sqrt((clock + scale) * math.log((clock + scale) / (scale * delta**2)))


@chosen("confseq_mix2|odo_mixture_two_sided")
def test_one_sided_mixture_is_below_the_two_sided(entry):
    """Losses have one bad side: half of delta need not be spent on the other. (The two-sided one by its formula.)"""
    given = entry["inputs"]
    delta, clock = (given["alpha"], given["v"]) if "v" in given else (given["delta"], given["V"])
    plan = 1.0 if "v" in given else 100 * given["eps_each"] ** 2
    level = 2 * math.log(1 / delta)
    scale = plan / (level + math.log1p(level))
    drift = 0.0 if "v" in given else clock / 2
    assert two_sided(clock, scale, delta) + drift == pytest.approx(entry["value"], rel=1e-5)
    ours = (
        charged(odometers.Gaussian(delta=delta, sum_delta=0.0, plan=plan), m.Zcdp(clock / 2)).epsilon()
        - clock / 2
        + drift
    )
    assert ours < entry["value"] + 1e-6


@chosen(r"odo_(stitched|mixture)_poster_as_printed")
def test_the_poster_as_printed_is_ours_without_drift(entry):
    """What is missing there is V/2 and nothing else."""
    given = entry["inputs"]
    if "stitched" in entry["id"]:
        odometer = odometers.Stitched(delta=given["delta"], sum_delta=0.0)
    else:
        odometer = odometers.Mixture(delta=given["delta"], sum_delta=0.0, plan=100 * given["eps_each"] ** 2)
    ours = charged(odometer, rounds_of(entry)).epsilon()
    assert ours - given["V"] / 2 == pytest.approx(entry["value"], abs=5e-6)


@chosen("odo_optimal_nonadaptive")
def test_nothing_is_below_the_optimum(entry):
    """No odometer may be below the optimal composition of as many rounds fixed in advance, which we reproduce."""
    given = entry["inputs"]
    assert agrees(entry, optimum(m.Pure(given["eps_each"]), given["n"], given["delta"]))
    for odometer in (
        odometers.Renyi(delta=given["delta"], plan=given["V"]),
        odometers.Gaussian(delta=given["delta"], plan=given["V"]),
        odometers.Line(delta=given["delta"], plan=given["V"]),
    ):
        charged(odometer, rounds_of(entry))
        assert odometer.epsilon() >= odometer.ex_post_epsilon() >= entry["value"] - 1e-9


TABLE = [  # V, 3.2, Rényi P, Rényi D, Gaussian at V* = 1, stitched, Lécuyer; theory 6.3
    (0.01, 0.375, 0.543, 0.441, 1.055, 0.558, 1.022),
    (0.2, 1.914, 2.507, 2.194, 2.473, 2.652, 3.261),
    (1.0, 4.728, 5.882, 5.341, 5.589, 6.266, 6.337),
    (5.0, 12.300, 14.535, 13.646, 14.050, 15.501, 15.844),
    (100.0, 96.04, 103.82, 101.93, 104.28, 108.84, 126.75),
]


@pytest.mark.parametrize("row", TABLE, ids=[f"V={row[0]}" for row in TABLE])
def test_table_of_boundaries(row):
    """The table of boundaries at delta = 1e-5, to one per cent (a thousandth of delta is kept for failures)."""
    clock, fixed, pathwise, ex_post, mixture, stitched, lecuyer = row
    step = m.Zcdp(clock / 2)
    renyi = charged(odometers.Renyi(delta=1e-5), step)
    exact = charged(odometers.Renyi(delta=1e-5, sum_delta=0.0), step)
    ours = (
        zcdp.of(step).epsilon(delta=1e-5),
        renyi.epsilon(),
        renyi.ex_post_epsilon(),
        charged(odometers.Gaussian(delta=1e-5, plan=1.0), step).epsilon(),
        charged(odometers.Stitched(delta=1e-5, start=0.001), step).epsilon(),
        charged(odometers.Lecuyer(delta=1e-5), step).epsilon(),
    )
    np.testing.assert_allclose(ours, row[1:], rtol=0.01)
    np.testing.assert_allclose((exact.epsilon(), exact.ex_post_epsilon()), (pathwise, ex_post), atol=0.006)
    assert (fixed, mixture, stitched, lecuyer) == pytest.approx((ours[0], *ours[3:]), abs=0.006)


SIGMAS, ROUNDS = (1.0, 5.0, 20.0, 100.0), (1, 2, 5, 10, 30, 100, 300, 1000, 3000, 10_000)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_renyi_is_below_lecuyer_everywhere(sigma):
    """Both promises, default settings, delta = 1e-5, Gaussian mechanisms, 1 to 10^4 rounds; and so it grows."""
    for rounds in ROUNDS:
        steps = m.Repeated(m.Gaussian(sigma), rounds)
        renyi = charged(odometers.Renyi(delta=1e-5), steps)
        lecuyer = charged(odometers.Lecuyer(delta=1e-5), steps).epsilon()
        assert renyi.ex_post_epsilon() < renyi.epsilon() < lecuyer
    bounds = [charged(odometers.Renyi(delta=1e-5), m.Repeated(m.Gaussian(sigma), k)).epsilon() for k in ROUNDS]
    assert all(a < b for a, b in pairwise(bounds))


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("rounds", [1, 10, 100, 1000, 10_000])
def test_tuned_to_the_plan_costs_little(sigma, rounds):
    """At the plan's end the ex-post bound is within 8 per cent of the bound for a plan fixed in advance."""
    steps = m.Repeated(m.Gaussian(sigma), rounds)
    odometer = charged(odometers.Renyi(delta=1e-5, plan=steps), steps)
    assert odometer.ex_post_epsilon() <= 1.08 * zcdp.of(steps).epsilon(delta=1e-5)
