"""Certificates are accepted by a checker that shares no code with us, and no corrupted one is."""

import ast
import json
import subprocess
import sys
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from mpmath import mp, mpf
from typer.testing import CliRunner

import random_certificates
from almoner import filters
from almoner import mechanisms as m
from almoner.accounting import certificates
from almoner.cli import app
from almoner.curves import _totals, gaussian
from almoner.errors import ArgumentError, Unsupported
from corruptions import CHECKER, RUNS, checker, corrupted, refused, signed, stronger

CHECK = checker()
MADE = {name: certificates.of_run(run, delta=1e-5, order=order) for name, (run, order) in RUNS.items()}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", MADE)
def test_certificates_are_accepted_and_near_the_truth(name):
    """The checker proves each; no epsilon is below that of the curves, and none by a grid is far above."""
    certificate, (run, order) = MADE[name], RUNS[name]
    CHECK.check(json.loads(json.dumps(certificate)))
    if order is None:
        least = _totals.tightest(run, delta=1e-5).epsilon
        assert least <= float(certificate["epsilon"]) <= 1.1 * least + 0.002
    assert CHECK.THEOREMS == certificates.THEOREMS
    assert CHECK.ADJACENCY == certificates.ADJACENCY


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_claims_of_more_than_was_proven_are_refused(name):
    """Each field changed to claim more, or to nonsense, with a digest that fits: none is accepted."""
    believed = [change for change, claim in stronger(MADE[name]) if not refused(CHECK, claim)]
    assert believed == []


def test_corrupted_files_are_refused():
    """Sixty changes of one character; `python tests/helpers/corruptions.py 1000` makes a thousand."""
    random, made = Random(7), list(MADE.values())
    assert all(refused(CHECK, corrupted(made[number % len(made)], random)) for number in range(60))


def test_the_grid_bounds_what_is_known_exactly():
    """Ten Gaussian rounds, and thirty of randomised response, on a grid: delta is not below the exact one, and near."""
    grid = {"step": "1/128", "places": 700, "bits": 64, "beyond": "1"}
    step = ("Gaussian", {"sigma": Fraction(8), "sensitivity": Fraction(1)}, 10)
    exact = float(gaussian.delta(np.sqrt(10) / 8, epsilon=1.5))
    assert exact * (1 - 1e-9) <= CHECK.check_losses(grid, [step], Fraction(3, 2)) <= 1.02 * exact + 1e-12
    found = _totals.optimum(m.Pure(0.2), 30, 1e-6)
    answer = ("Pure", {"epsilon": Fraction("0.2")}, 30)
    proven = CHECK.check_losses(grid | {"step": "1/100"}, [answer], Fraction(found))  # all losses are on this grid
    assert 0.999e-6 <= proven <= 1.001e-6


def test_the_normal_distribution_is_bracketed():
    """On intervals from 200 places from -16 to 16 the bounds hold the values between them, 1e-30 further apart."""
    with mp.workdps(60):
        for x, width in zip(np.linspace(-16, 16, 200).tolist(), [0, 1, 2**40, 2**134] * 50, strict=True):
            place = int(mpf(x) * CHECK.ONE)
            low, high = (mpf(bound) / CHECK.ONE for bound in CHECK.normal(place, place + width))
            assert low <= mp.ncdf(mpf(place) / CHECK.ONE) <= mp.ncdf(mpf(place + width) / CHECK.ONE) <= high
            assert high - low < mpf(10) ** -30 + mpf(width) / CHECK.ONE


def test_filters_have_certificates():
    """Of a Gaussian budget, one order, and a plan; others, and charged plans, are refused by name."""
    for account in (filters.Gaussian(epsilon=1.0, delta=1e-5), filters.RenyiOrder(alpha=16, epsilon=2.0, delta=1e-5)):
        certificate = certificates.of_filter(account)
        CHECK.check(certificate)
        assert float(certificate["epsilon"]) == pytest.approx(account.notion.epsilon, rel=1e-9)
    step = m.Laplace(5.0)
    planned = filters.Planned(step, epsilon=2.0, delta=1e-5)
    certificate = certificates.of_filter(planned)
    CHECK.check(certificate)
    assert certificate["rounds"][0]["count"] == planned.left
    assert float(certificate["epsilon"]) <= 2.0 * 1.02
    planned.charge(step)
    with pytest.raises(ArgumentError, match="charged"):
        certificates.of_filter(planned)
    with pytest.raises(Unsupported, match="Residue"):
        certificates.of_filter(filters.Residue(epsilon=1.0, delta=1e-5))
    with pytest.raises(ArgumentError, match="delta"):
        certificates.of_filter(filters.Gaussian(mu=1.0))


def test_no_filter_promises_more_than_its_certificate_says():
    """Of a plan with room to spare the filter's own epsilon is written; a plan with a reserve is refused."""
    planned = filters.Planned(m.Laplace(0.9), epsilon=2.0, delta=1e-5)
    assert _totals.tightest(m.Laplace(0.9), delta=1e-5).epsilon < 1.2  # one round fits, and the next does not
    certificate = certificates.of_filter(planned)
    assert float(certificate["epsilon"]) >= planned.epsilon() == 2.0
    CHECK.check(certificate)
    gaussian_plan = filters.Planned(m.Gaussian(4.0), epsilon=1.0, delta=1e-5)
    certificate = certificates.of_filter(gaussian_plan)
    assert float(certificate["epsilon"]) >= gaussian_plan.epsilon()
    CHECK.check(certificate)
    with pytest.raises(Unsupported, match=r"reserve=0\.5"):
        certificates.of_filter(filters.Planned(m.Gaussian(10.0), epsilon=2.0, delta=1e-5, reserve=0.5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        m.Pure(0.0),
        m.Approximate(0.0, 1e-7),
        m.Composed((m.Approximate(1e-8, 1e-7), m.Laplace(5.0))),
        m.Repeated(m.Approximate(0.1, 1e-6), 9),
        m.Repeated(m.SampledGaussian(0.2, 1.0, 0.01), 10),
        m.Gaussian(0.22),
    ],
    ids=str,
)
def test_parameters_at_the_ends_of_the_range_are_accepted(run):
    """Zero epsilon and delta, failures that add up, and much privacy loss."""
    CHECK.check(certificates.of_run(run, delta=1e-5))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "order", "why"),
    [
        (m.Gaussian(0.125), None, "most that is checked"),
        (m.Zcdp(0.01), 10**6, "most that is checked"),
        (m.Repeated(m.Gaussian(1e5), 10**8), None, "100000000 rounds"),
        (m.Gaussian(1e10), None, "sigma"),
        (m.SampledGaussian(20.0, 1.0, 0.001), 2001, "2000"),
        (m.Repeated(m.SampledGaussian(0.1, 1.0, 0.01), 10), None, "grid"),
    ],
    ids=str,
)
def test_what_the_checker_cannot_check_is_refused(run, order, why):
    """By us, with the reason, and not by the checker afterwards."""
    with pytest.raises(Unsupported, match=why):
        certificates.of_run(run, delta=1e-5, order=order)


@pytest.mark.parametrize(
    ("run", "order"),
    [
        (m.DominatingPair((0.75, 0.25), (0.25, 0.75)), None),
        (m.Zcdp(0.1), None),
        (m.Laplace(2.0), 4),
        (m.Composed(()), None),
        (m.Approximate(0.1, 1e-3), None),
    ],
    ids=str,
)
def test_what_has_no_certificate_is_refused(run, order):
    """By name, and where nothing finite is known."""
    with pytest.raises(Unsupported):
        certificates.of_run(run, delta=1e-5, order=order)


def test_the_checker_is_small_and_independent(tmp_path):
    """250 lines, nothing of Almoner; as a command it accepts what `almoner epsilon` writes, and not a changed file."""
    text = CHECKER.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    nodes = list(ast.walk(ast.parse(text)))
    imported = {each.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for each in node.names}
    imported |= {node.module.split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported == {"hashlib", "json", "re", "sys", "fractions", "functools", "math", "pathlib", "mpmath"}
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    told = CliRunner().invoke(app, ["epsilon", "--noise-multiplier", "4", "--steps", "9", "--certificate", str(good)])
    assert told.exit_code == 0, told.output
    bad.write_text(good.read_text(encoding="utf-8").replace('"count": 9', '"count": 8'), encoding="utf-8")
    for paths, code in (([good], 0), ([good, bad], 1), ([tmp_path / "none"], 1), ([], 1)):
        run = subprocess.run([sys.executable, CHECKER, *paths], capture_output=True, text=True, check=False)
        assert run.returncode == code, run.stdout + run.stderr


@pytest.mark.slow
def test_random_certificates_are_accepted_and_their_corruptions_refused():
    """Of each kind; `python tests/helpers/random_certificates.py 600` makes some ten thousand."""
    random = Random(11)
    for kind in ["gaussian"] * 6 + ["renyi"] * 6 + ["losses"] * 3:
        made = random_certificates.certificate(random, kind)
        if made is not None:
            CHECK.check(made)
            assert not random_certificates.false(made) or made["kind"] == "renyi"
            assert refused(CHECK, corrupted(made, random))
            believed = [claim for _, claim in stronger(made) if not refused(CHECK, claim)]
            assert not any(map(random_certificates.false, believed))
    lie = signed({**MADE["gaussian"], "epsilon": "1.9"})
    assert random_certificates.false(lie)
