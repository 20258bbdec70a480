"""The residue filter: its charges against independent high precision, its adversaries, its figures."""

import copy
import json
import math
import time
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.stats import laplace, norm

from bursar import calibrate, errors, filters
from bursar import mechanisms as m
from bursar._units import FAILURE, MEASURE, RANGE, up
from bursar.curves import _certificate, gaussian, pairs, residue
from enumeration import delta as true_delta
from enumeration import leak, response

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "residue_steps.json").read_text(encoding="utf-8"))


# ---- one charge, judged in high precision --------------------------------------------------------------------------


def hockey(e, b):
    """H(e; b), from mpmath's normal distribution function."""
    return mp.ncdf(-e / b + b / 2) - mp.exp(e) * mp.ncdf(-e / b - b / 2)


def two_points(low, high):
    """Losses and masses of the pair with two losses."""
    p = (1 - mp.exp(low)) / (1 - mp.exp(low - high))
    return [(high, p), (low, 1 - p)]


def curve_of(mechanism):
    """The exact hockey-stick curves of a mechanism with continuous losses, with their kinks: one for each direction."""
    if isinstance(mechanism, m.Laplace):
        s = mpf(mechanism.sensitivity) / mpf(mechanism.scale)

        def one(e):
            return 1 - mp.exp(e) if e <= -s else mpf(0) if e >= s else 1 - mp.exp((e - s) / 2)

        return [(one, (-s, s))]
    q, z = mpf(mechanism.sample_rate), mpf(mechanism.sigma) / mpf(mechanism.sensitivity)
    kink = mp.log(1 - q)

    def there(e):  # (1-q) N(0) + q N(1) against N(0)
        over = mp.exp(e) - 1 + q
        if over <= 0:
            return 1 - mp.exp(e)
        t = z**2 * mp.log(over / q) + mpf(1) / 2
        return q * mp.ncdf((1 - t) / z) - over * mp.ncdf(-t / z)

    def back(e):
        return there(-e) * mp.exp(e) + 1 - mp.exp(e)

    return [(there, (kink,)), (back, (-kink,))]


def after_round(mechanism, e, rest):
    """F(e) of the exact mechanism, every direction, followed by N(rest, 1) against N(0, 1)."""
    if isinstance(mechanism, m.Pure):
        return [
            mp.fsum(p * hockey(e - loss, rest) for loss, p in two_points(-mpf(mechanism.epsilon), mechanism.epsilon))
        ]
    if isinstance(mechanism, m.Exponential):
        eta = mpf(mechanism.eta)
        ends = [(t * eta / 7 - eta, t * eta / 7) for t in range(1, 7)]
        return [mp.fsum(p * hockey(e - loss, rest) for loss, p in two_points(*end)) for end in ends]
    mean, values = rest**2 / 2, []
    for curve, kinks in curve_of(mechanism):
        ends = [mean + rest * t for t in (-11, -6, -3, 0, 3, 6, 11)]
        ends = sorted(ends + [e - kink for kink in kinks if ends[0] < e - kink < ends[-1]])
        inside = mp.quad(lambda z, curve=curve: curve(e - z) * mp.npdf(z, mean, rest), ends, maxdegree=5)
        values.append(inside + mp.ncdf(-11) * curve(e - ends[-1]))
    return values


def check_charge(mechanism, rng, points, shrink=1.0, slacks=(1e-15, 1e-10)):
    """The least of H + slack - F over random states and epsilons, with the charge (times ``shrink``) of the table."""
    worst = mpf(1)
    for _ in range(points):
        level, slack = 8 * int(rng.integers(-10, 4)) + 3, int(FAILURE * rng.choice(slacks))
        charge = residue.charge_at(mechanism, level, slack)
        if charge == math.inf:
            continue
        square = residue.grid(level) * int(rng.choice([1000, 1000, 1050, 3000])) // 1000
        b, rest = mp.sqrt(mpf(square) / MEASURE), mp.sqrt((square - mpf(charge) * shrink) / MEASURE)
        e = mpf(float(rng.choice([rng.normal(), rng.uniform(0, 9), -rng.uniform(0, 9)]))) * b
        spare = hockey(e, b) + mpf(slack) / FAILURE
        worst = min(worst, *(spare - f for f in after_round(mechanism, e, rest)))
    return worst


SMALL = [m.Pure(0.1), m.Pure(0.01), m.Pure(1e-3), m.Pure(0.7), m.Exponential(0.3), m.Exponential(0.05)]
CONTINUOUS = [m.Laplace(10.0), m.Laplace(2.0), m.SampledGaussian(2.0, 1.0, 0.01), m.SampledGaussian(1.0, 1.0, 0.1)]


@pytest.mark.parametrize("mechanism", SMALL)
def test_charges_are_valid_at_random_points(mechanism):
    """Guarantee of charge: 500 random (e, b) for each mechanism, b at and above the grid, e of both signs."""
    assert check_charge(mechanism, np.random.default_rng(1), 500) >= 0


@pytest.mark.parametrize("mechanism", CONTINUOUS)
def test_charges_of_continuous_losses_are_valid_at_random_points(mechanism):
    """The same for Laplace and for both directions of the sampled Gaussian, whose losses are put on points."""
    with mp.workdps(25):
        assert check_charge(mechanism, np.random.default_rng(2), 60) >= -(mpf(10) ** -19)


@pytest.mark.parametrize("mechanism", [m.Pure(0.01), m.Pure(0.1)])
def test_two_percent_less_would_not_be_valid(mechanism):
    """The check above can fail: charges two per cent smaller are caught."""
    assert check_charge(mechanism, np.random.default_rng(1), 500, shrink=0.98, slacks=(1e-15, 1e-13)) < 0


@pytest.mark.parametrize("b", [0.05, 0.5, 3.0])
def test_the_bound_between_points_holds(b):
    """The certificate's lower bound over a cell is below D at 50 points inside it, for cells of several widths."""
    pair, square, charge = pairs.randomized_response(b / 12)[0], b * b, (b / 12) ** 2 * 1.01
    rest = math.sqrt(square - charge)
    for width in (b / 200, b / 20, b / 3):
        left = np.arange(0.0, 8 * b, width)
        low, ends = _certificate._lower_bounds(pair, left, width, b, rest, 1e-13)
        for start, bound, end in zip(left, low, ends, strict=True):
            inside = np.linspace(start, start + width, 50)
            d = _certificate._gauss(inside, b, 0.0)[0] + 1e-13 - _certificate._after(pair, inside, rest, 0.0)[0]
            assert bound <= d.min() + 1e-15
            assert end <= min(d[0], d[-1]) + 1e-15


def test_rounding_is_within_the_stated_bound():
    """H and its slope in floating point, against 50 digits, at 3000 points: a quarter of the allowance at most."""
    rng = np.random.default_rng(5)
    for _ in range(3000):
        b = float(10 ** rng.uniform(-3, 1))
        e = float((rng.uniform(-12, 12) + b / 2) * b) if rng.random() < 0.7 else float(rng.uniform(-15, 15))
        value, fall, doubt, _ = (float(x[0]) for x in _certificate._gauss(np.array([e]), b, 0.0))
        slope = mp.exp(e) * mp.ncdf(-mpf(e) / b - mpf(b) / 2)
        assert max(abs(hockey(mpf(e), mpf(b)) - value), abs(slope - fall)) <= doubt / 4 + 1e-300


def test_the_certificate_refuses_what_is_false():
    """A charge below the variance of the loss is no charge, whatever the slack of rounding."""
    pair = pairs.randomized_response(0.1)[0]
    assert _certificate.certified(pair, square=4.0, charge=0.0101, slack=1e-12)
    assert not _certificate.certified(pair, square=4.0, charge=0.0099, slack=1e-12)
    assert not _certificate.certified(pairs.Pair(np.zeros(1), np.zeros(1), 0.1), square=4.0, charge=1.0, slack=1e-12)


# ---- dominating pairs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism", [*CONTINUOUS, m.SampledGaussian(0.4, 1.0, 0.02), m.SampledGaussian(30.0, 1.0, 0.5)]
)
def test_pairs_dominate_and_are_close(mechanism):
    """The points' curve is above the exact one at 40 epsilons in both directions, and at most 1 % of its peak above."""
    rng = np.random.default_rng(3)
    for pair, (curve, _) in zip(pairs.of(mechanism, cut=1e-14), curve_of(mechanism), strict=True):
        top = float(curve(mpf(0)))
        for e in rng.choice(pair.losses, 20).tolist() + rng.uniform(*pair.losses[[0, -1]], 20).tolist():
            assert pair.delta(epsilon=e) >= float(curve(mpf(e))) - 1e-15
            assert pair.delta(epsilon=e) <= float(curve(mpf(e))) + 0.01 * top


@pytest.mark.parametrize("eta", [0.01, 0.5, 4.0])
def test_some_pair_dominates_every_bounded_range_round(eta):
    """For 60 places t of the range one pair is above the two-point curve at all of 200 epsilons; reversed, too."""
    rounds, epsilons = pairs.exponential(eta), np.linspace(-eta, eta, 200)
    curves = np.array([[pair.delta(epsilon=e) for e in epsilons] for pair in rounds])
    for t in np.random.default_rng(6).uniform(0, eta, 60):
        (high, p), (low, rest) = two_points(mpf(t) - mpf(eta), mpf(t))
        for ends in (((high, p), (low, rest)), ((-high, p * mp.exp(-high)), (-low, rest * mp.exp(-low)))):
            exact = [float(mp.fsum(w * max(0, 1 - mp.exp(e - loss)) for loss, w in ends)) for e in epsilons]
            assert (curves >= np.array(exact) - 1e-15).all(axis=1).any()


@pytest.mark.parametrize("noise", [0.1, 0.6, 2.0, 50.0])
def test_masses_are_rounded_up(noise):
    """Every mass of the Gaussian's points is at least the exact one (50 digits), and they exceed it by 1e-10 in all."""
    points, masses, leak_ = pairs._gaussian_dots(noise, cut=1e-14)
    shift, x = mpf(1 / noise), [mpf(float(r)) for r in points]
    ends = [mpf("-inf"), *(mp.log(r) / shift + shift / 2 for r in x[1:]), mpf("inf")]
    cells = [_cell(low, high) for low, high in pairwise(ends)]
    shifted = [_cell(low - shift, high - shift) for low, high in pairwise(ends)]
    exact = [mpf(0)] * len(x)
    for j in range(len(x) - 1):
        gap = x[j + 1] - x[j]
        exact[j] += (x[j + 1] * cells[j] - shifted[j]) / gap
        exact[j + 1] += (shifted[j] - x[j] * cells[j]) / gap
    exact[-1] += cells[-1]
    over = [float(mass) - true for mass, true in zip(masses, exact, strict=True)]
    assert min(over) >= 0
    assert sum(over) < 1e-10
    assert shifted[-1] <= leak_ <= 1e-14


def _cell(low, high):
    return mp.ncdf(-low) - mp.ncdf(-high) if low > 0 else mp.ncdf(high) - mp.ncdf(low)


# ---- the filter ----------------------------------------------------------------------------------------------------


def test_pure_rounds():
    """0.01-DP rounds at (1, 1e-6): at least 550 fit; 562 is the optimum when their number is fixed in advance."""
    assert 550 <= calibrate.steps(filters.Residue(epsilon=1.0, delta=1e-6), m.Pure(0.01)) <= 562
    assert calibrate.steps(filters.Approximate(epsilon=1.0, delta=1e-6), m.Pure(0.01)) == 349


@pytest.mark.parametrize(("row", "share"), list(zip(GOLDEN["rows"], (0.93, 0.97, 0.98), strict=True)))
def test_sampled_gaussian_steps(row, share):
    """q = 0.01, sigma = 2, delta = 1e-5: at least this share of the steps that fit when fixed in advance (PLD)."""
    step = m.SampledGaussian(GOLDEN["sigma"], 1.0, GOLDEN["sample_rate"])
    exact = row["steps"]["2e-05"]
    steps = calibrate.steps(filters.Residue(epsilon=row["epsilon"], delta=GOLDEN["delta"]), step)
    assert share * exact <= steps <= exact


def test_a_table_is_built_in_seconds_and_used_in_microseconds():
    """A whole run over all states with a mechanism that is new: below 10 s; the same again: 20,000 charges a second."""
    step = m.SampledGaussian(1.7, 1.0, 0.013)
    start = time.perf_counter()
    steps = calibrate.steps(filters.Residue(epsilon=4.0, delta=1e-5), step)
    assert time.perf_counter() - start < 10
    account = filters.Residue(epsilon=4.0, delta=1e-5)
    start = time.perf_counter()
    for _ in range(1000):
        account.charge(step)
    assert time.perf_counter() - start < 0.5
    assert steps > 1000


def test_gaussian_rounds_cost_mu_squared_exactly():
    """A Gaussian mechanism takes mu squared, to the unit, and no slack."""
    account = filters.Residue(epsilon=1.0, delta=1e-6)
    account.charge(m.Repeated(m.Gaussian(sigma=25.0), 3))
    account.charge(m.SampledGaussian(sigma=50.0, sample_rate=1.0))
    assert account.state()["spent"][0] == 3 * MEASURE // 625 + MEASURE // 2500
    assert account.state()["spent"][2] == 0


MIXED = [m.Pure(0.02), m.Laplace(40.0), m.SampledGaussian(2.0, 1.0, 0.05), m.Gaussian(30.0), m.Exponential(0.04)]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(MIXED), st.integers(0, 60)), min_size=1, max_size=5))
def test_repeated_rounds_cost_what_single_ones_do(plan):
    """Repeated and composed rounds leave the same state, to the last unit, as one after the other; or are refused."""
    together, single = (filters.Residue(epsilon=1.0, delta=1e-5, sum_delta=0.0) for _ in range(2))
    fits = True
    try:
        for mechanism, count in plan:
            for _ in range(count):
                single.charge(mechanism)
    except errors.BudgetExceeded:
        fits = False
    whole = m.Composed(tuple(m.Repeated(mechanism, count) for mechanism, count in plan))
    assert together.admits(whole) == fits
    if fits:
        together.charge(whole)
        assert together.state() == single.state()


def test_a_run_saved_and_restored_goes_on_the_same():
    """state() and from_state() at every tenth round change nothing; a refusal changes nothing either."""
    straight, saved = (filters.Residue(epsilon=1.0, delta=1e-5) for _ in range(2))
    for round_ in range(80):
        mechanism = MIXED[round_ % len(MIXED)]
        straight.charge(mechanism)
        saved.charge(mechanism)
        if round_ % 10 == 0:
            before = saved.state()
            with pytest.raises(errors.BudgetExceeded):
                saved.charge(m.Pure(0.999))
            assert saved.state() == before
            saved = filters.Residue.from_state(json.loads(json.dumps(before)))
    assert straight.state() == saved.state()


def test_failures_come_out_of_their_own_share():
    """An (epsilon, delta) round costs what the pure one costs, and its delta; more than the share is refused."""
    account = filters.Residue(epsilon=1.0, delta=1e-5, sum_delta=5e-6)
    pure = filters.Residue(epsilon=1.0, delta=1e-5, sum_delta=5e-6)
    account.charge(m.Repeated(m.Approximate(0.02, 1e-6), 5))
    pure.charge(m.Repeated(m.Pure(0.02), 5))
    assert account.spent == pure.spent
    assert not account.admits(m.Approximate(0.02, 1e-12))
    assert account.admits(m.Pure(0.02))


@settings(max_examples=30)
@given(st.lists(st.sampled_from([0.001, 0.01, 0.1, 0.3]), max_size=40))
def test_never_less_than_basic_composition(epsilons):
    """What fits by adding up epsilons fits here, in any order."""
    basic, account = filters.Basic(epsilon=1.0), filters.Residue(epsilon=1.0, delta=1e-6)
    for epsilon in epsilons:
        if basic.admits(m.Pure(epsilon)):
            basic.charge(m.Pure(epsilon))
            account.charge(m.Pure(epsilon))


@pytest.mark.parametrize("mechanism", [m.Zcdp(0.01), m.Renyi((2.0,), (0.1,)), m.DiscreteGaussian(10.0)])
def test_without_a_dominating_pair_there_is_no_charge(mechanism):
    """Costs that are known as numbers only are refused as unsupported, and nothing is spent."""
    account = filters.Residue(epsilon=1.0, delta=1e-6)
    with pytest.raises(errors.Unsupported):
        account.charge(mechanism)
    assert account.state()["count"] == 0


@pytest.mark.parametrize(
    "mechanism", [m.Pure(math.inf), m.Pure(200.0), m.SampledGaussian(1e-3, 1.0, 0.1), m.Laplace(1e-3)]
)
def test_what_reveals_too_much_is_refused(mechanism):
    """Infinite and huge epsilons are refused without a number going wrong."""
    with pytest.raises(errors.BudgetExceeded):
        filters.Residue(epsilon=5.0, delta=1e-3).charge(mechanism)


def test_tables_for_people_hold_charges_with_slack_of_their_own():
    """Every entry is at least a charge certified for its norm, at its level or below, with the slack of its row, and
    at least that slack's share of everything."""
    step, most, total = m.Laplace(20.0), MEASURE // 10, 10**23
    table = residue.table(step, most=most, slack=total)
    levels = [residue.level(int(square)) for square in table.squares]
    assert table.units[0].tolist() == [0] * len(levels)
    for row in range(1, len(table.norms), 9):
        one, slack = m.Laplace(20.0, float(table.norms[row])), table.slacks[row]
        for column in range(0, len(levels), 8):
            cost = int(table.units[row, column])
            assert cost == RANGE or cost >= min(residue.charge_at(one, at, slack) for at in levels[: column + 1])
            assert cost * total >= slack * most
            assert cost == RANGE or cost <= table.squares[column]
    assert (np.diff(table.units, axis=0) >= 0).all()
    assert (np.diff(table.units, axis=1) <= 0).all()


def test_either_of_two_filters_with_delta_split():
    """Goes on while one filter has admitted every round; a filter that refused one stays closed, also when restored."""
    both = filters.Either(filters.Residue(epsilon=1.0, delta=5e-7), filters.Renyi(epsilon=1.0, delta=5e-7))
    assert both.delta == 1e-6
    both.charge(m.Repeated(m.Pure(0.01), 100))
    both.charge(m.Zcdp(1e-4))
    assert both.open == (False, True)
    again = filters.Either.from_state(json.loads(json.dumps(both.state())))
    assert again.open == (False, True)
    with pytest.raises(errors.BudgetExceeded):
        again.charge(m.Repeated(m.Pure(0.01), 400))
    assert again.state() == both.state()
    with pytest.raises(errors.CopyRefused):
        copy.copy(both)
    for changed in ({"open": [True, True]}, {"count": 0}, {"parts": [], "open": []}):
        with pytest.raises(errors.ArgumentError):
            filters.Either.from_state(both.state() | changed)
    for part in ({"filter": "Nobody", "parameters": {}}, {"filter": "Zcdp"}, 1):
        with pytest.raises(errors.ArgumentError):
            filters.Either.from_state(both.state() | {"parts": [part, part]})
    with pytest.raises(errors.ArgumentError, match="it lacks open"):
        filters.Either.from_state({name: value for name, value in both.state().items() if name != "open"})


@pytest.mark.parametrize("kind", ["Approximate", "Basic", "Gaussian", "Pure", "Renyi", "RenyiOrder", "Rogers", "Zcdp"])
def test_every_filter_that_either_takes_can_be_saved(kind):
    """With budgets of an epsilon and a delta each; the delta of the whole is not below the sum."""
    options = {"alpha": 20.0} if kind == "RenyiOrder" else {}
    both = filters.Either(
        filters.Residue(epsilon=1.0, delta=1e-7), getattr(filters, kind)(epsilon=1.0, delta=3e-7, **options)
    )
    both.charge(m.Pure(0.01))
    again = filters.Either.from_state(json.loads(json.dumps(both.state())))
    assert again.state() == both.state()
    assert Fraction(both.delta) >= Fraction(1e-7) + Fraction(3e-7)
    assert both.delta == pytest.approx(4e-7, rel=1e-15)


@pytest.mark.parametrize(
    "parts",
    [
        lambda: [filters.Residue(epsilon=1.0, delta=1e-6)],
        lambda: [filters.Residue(epsilon=1.0, delta=1e-6), filters.Zcdp(epsilon=2.0, delta=1e-6)],
        lambda: [filters.Residue(epsilon=1.0, delta=1e-6), filters.Zcdp(rho=0.1)],
        lambda: [filters.Basic(epsilon=1.0)] * 2,
    ],
)
def test_either_wants_fresh_filters_of_one_epsilon(parts):
    """One filter, different epsilons, no epsilon, or the same filter twice are refused."""
    with pytest.raises(errors.ArgumentError):
        filters.Either(*parts())


@pytest.mark.parametrize("epsilon", [1e-3, 60.0, 1e6])
def test_budgets_far_from_one_work(epsilon):
    """Tiny and enormous budgets, and steps that cost next to nothing: no warning and no refusal."""
    account = filters.Residue(epsilon=epsilon, delta=1e-9)
    b = min(math.sqrt(account.left), 60.0)
    for mechanism in (m.Pure(b / 10), m.Laplace(10 / b), m.Exponential(b / 10), m.SampledGaussian(1e8, 1.0, 0.1)):
        account.charge(mechanism)


# ---- adversaries ---------------------------------------------------------------------------------------------------


def cells(cdf, ends):
    return np.diff(np.concatenate(([0.0], cdf(ends), [1.0])))


def menu(b):
    """Rounds of all kinds and sizes beside b, post-processed to a few outcomes: (mechanism, P, Q), both ways round."""
    rounds = []
    for x in (0.1, 0.3, 0.5, 0.65, 0.75, 0.8):
        p = 1 / (1 + math.exp(-b * x))
        rounds.append((m.RandomizedResponse(b * x), np.array([p, 1 - p]), np.array([1 - p, p])))
    for rare, x in ((0.02, 0.5), (0.02, 0.8), (0.3, 0.7), (0.6, 0.6)):
        q = rare * math.exp(-b * x)
        epsilon = max(b * x, math.log((1 - q) / (1 - rare)))
        rounds.append((m.Pure(epsilon * (1 + 1e-9)), np.array([rare, 1 - rare]), np.array([q, 1 - q])))
    for x in (0.5, 0.9, 0.999):
        ends = np.linspace(-3, 3 + b * x, 14)
        rounds.append((m.Gaussian(1 / (b * x)), cells(norm(b * x).cdf, ends), cells(norm.cdf, ends)))
    ends = np.linspace(0, 0.8 * b, 8)
    rounds.append((m.Laplace(1 / (0.8 * b)), cells(laplace(0.8 * b).cdf, ends), cells(laplace.cdf, ends)))
    for q in (0.05, 0.3):
        z, ends = 1.5 / b * q, np.linspace(-3 * 1.5 / b * q, 1 + 3 * 1.5 / b * q, 14)
        base = cells(norm(0, z).cdf, ends)
        rounds.append((m.SampledGaussian(z, 1.0, q), (1 - q) * base + q * cells(norm(1, z).cdf, ends), base))
    return rounds + [(mechanism, back, there) for mechanism, there, back in rounds]


def best_adversary(account, rounds, depth, epsilon, basic=True):
    """The largest delta that any choice of rounds reaches, each chosen from the outcomes so far (dynamic programme).

    Without ``basic``, rounds that are admitted by basic composition are left out.
    """
    known = {}

    def next_states(state):
        if state not in known:
            known[state] = []
            for mechanism, there, back in rounds:
                world = filters.Residue.from_state(json.loads(state))
                if world.admits(mechanism):
                    world.charge(mechanism)
                    if basic or world.spent < math.inf:
                        known[state].append((there, back, json.dumps(world.state())))
        return known[state]

    def value(state, p, q, rest):
        best = np.maximum(0.0, p - math.exp(epsilon) * q)
        if rest:
            for there, back, after in next_states(state):
                deeper = value(after, np.outer(p, there).ravel(), np.outer(q, back).ravel(), rest - 1)
                best = np.maximum(best, deeper.reshape(len(p), -1).sum(axis=1))
        return best

    return float(value(json.dumps(account.state()), np.ones(1), np.ones(1), depth)[0])


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.05), (1.0, 0.01), (3.0, 0.05), (1.0, 1e-4)])
def test_the_best_two_round_adversary_stays_below_delta(epsilon, delta):
    """An optimal adversary over 32 kinds of rounds reaches over 80 % of delta and never more than delta."""
    account = filters.Residue(epsilon=epsilon, delta=delta)
    b = math.sqrt(account.left)
    assert 0.8 * delta < best_adversary(account, menu(b), 2, epsilon) <= delta
    for e in (epsilon / 2, 2 * epsilon):  # and the promise at other epsilons
        bound = float(gaussian.delta(b, epsilon=e)) + delta / 100
        assert best_adversary(account, menu(b), 2, e, basic=False) <= bound


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.05), (1.0, 0.1)])
def test_the_best_five_round_adversary_stays_below_delta(epsilon, delta):
    """The same with five rounds of randomised response of three sizes, large beside b."""
    account = filters.Residue(epsilon=epsilon, delta=delta)
    rounds = [round_ for round_ in menu(math.sqrt(account.left))[1:5] if isinstance(round_[0], m.RandomizedResponse)]
    assert 0.5 * delta < best_adversary(account, rounds, 5, epsilon) <= delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.05), (1.0, 0.01)])
def test_the_adversary_catches_charges_that_are_too_small(epsilon, delta, monkeypatch):
    """The adversary can win: against a filter that charges the variance of the loss, in any state, it exceeds delta."""

    def variance(mechanism, *, square, slack):
        cost = up(residue.size(mechanism))
        return cost if cost <= square else math.inf

    monkeypatch.setattr(residue, "charge", variance)
    account = filters.Residue(epsilon=epsilon, delta=delta)
    assert best_adversary(account, menu(math.sqrt(account.left)), 2, epsilon) > delta


def test_leaks_and_responses_enumerated():
    """Randomised responses and leaks, as many as are admitted, each chosen by the last outcome: at most delta."""
    for swap in (False, True):
        tree = _random_tree(filters.Residue(epsilon=0.5, delta=0.05, sum_delta=0.02), np.random.default_rng(9), 6, swap)
        assert 0 < true_delta(tree, 0.5) <= 0.05


def _random_tree(account, rng, depth, swap):
    """A random interaction that the filter admits, grown as far as it lets it."""
    choices = [(m.RandomizedResponse(0.15), response(0.15)), (m.Approximate(0.0, 0.004), leak(0.004))]
    mechanism, round_ = choices[int(rng.random() < 0.3) ^ swap]
    if not depth or not account.admits(mechanism):
        return None
    account.charge(mechanism)
    state = account.state()
    return round_.then(*(_random_tree(filters.Residue.from_state(state), rng, depth - 1, swap) for _ in round_.there))
