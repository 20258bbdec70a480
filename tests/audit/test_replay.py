"""Replay audits: nothing is found in a right program, and each planted error is."""

import re
import threading
from pathlib import Path

import numpy as np
import pytest

import flawed
import planted
from almoner import _audit_hook, audit, filters, individual, noise
from almoner.errors import ArgumentError
from almoner.mechanisms import Exponential, Gaussian, Laplace, MixtureOfGaussians, Pure, Repeated

SOME = (0, 2, 11)


def found(flaw, **options):
    return audit.replay(lambda data: flaw(data).run(), flawed.values(), people=SOME, without=flawed.without, **options)


def test_nothing_is_found_in_the_right_program():
    """What is revealed is all that was paid, and no more; a report says so."""
    report = found(flawed.Descent)
    assert report.holds, str(report)
    assert (report.calls, report.people) == (flawed.STEPS, len(SOME))
    assert 0.99 < report.tightest <= 1 + 1e-6
    assert 0.5 < report.largest <= 1
    assert "0 findings" in str(report)


@pytest.mark.quick(25)
@pytest.mark.parametrize("flaw", flawed.FLAWS, ids=lambda flaw: flaw.__name__)
def test_each_planted_error_is_found(flaw):
    """By the rule that it breaks, and named in the report."""
    report = found(flaw)
    assert flawed.FLAWS[flaw] in report.rules, str(report)
    assert not report.holds
    assert flawed.FLAWS[flaw] in str(report)


def test_other_rows_of_a_person_are_judged_as_well():
    """A person whose rows are within bounds, and would not be with others, is found where rows are replaced."""

    class Unclipped(flawed.Descent):
        def gradient(self, person, rows):
            return rows[0] * (1.0 if person in SOME else 0.1)

    data = {person: rows * 0.05 for person, rows in flawed.values().items()}
    options = {"people": SOME, "without": flawed.without}
    assert audit.replay(lambda each: Unclipped(each).run(), data, **options).holds
    other = audit.replay(
        lambda each: Unclipped(each).run(), data, replaced=lambda data, who: {**data, who: data[who] * 90}, **options
    )
    assert "sensitivity" in other.rules


def test_pure_and_labelled_releases():
    """Laplace noise is judged in L1; of labelled sums those that vanish with the person count as zero."""

    def pipeline(data):
        sums = dict.fromkeys(data, 2)
        step = Gaussian(4.0, 2.0)
        told = audit.released(lambda: sorted(sums)[:1], exact=sums, mechanism=step)
        counts = np.array([len(data), sum(data.values())])
        laplace = Laplace(20.0, float(pipeline.most))
        noisy = audit.released(lambda: counts + noise.discrete_laplace(20.0, size=2), exact=counts, mechanism=laplace)
        paid = (2 / 4.0) ** 2 / 2 + (3 / 20.0) ** 2 / 2
        return audit.Outcome([told, noisy], audit.Amount(paid, 1.0, "zCDP rho"))

    data = {"ann": 2, "bob": 1}
    options = {"people": ["ann"], "without": lambda data, who: {k: v for k, v in data.items() if k != who}}
    pipeline.most = 3
    assert audit.replay(pipeline, data, **options).holds
    pipeline.most = 2.9
    assert audit.replay(pipeline, data, **options).rules == {"sensitivity"}


@pytest.mark.parametrize("exact", [int, float])
@pytest.mark.parametrize("mechanism", [Pure(0.5), Exponential(0.25), Repeated(Pure(0.5), 2)], ids=str)
def test_mechanisms_without_a_sensitivity_reveal_at_any_move(mechanism, exact):
    """All of it is to be paid, of real numbers as of whole ones; who moves nothing pays nothing."""

    def pipeline(data):
        total = exact(sum(data.values()))
        told = audit.released(lambda: total > 3, exact=total, mechanism=mechanism)
        return audit.Outcome(told, pipeline.accounts)

    data = {"ann": 2, "bob": 1, "cy": 0}
    options = {"people": ["ann"], "without": lambda data, who: {k: v for k, v in data.items() if k != who}}
    pipeline.accounts = filters.Basic(epsilon=3.0, delta=1e-6)
    assert audit.replay(pipeline, data, **options).rules == {"account"}
    assert audit.replay(pipeline, data, **{**options, "people": ["cy"]}).holds
    pipeline.accounts.charge(mechanism)
    assert audit.replay(pipeline, data, **options).holds


@pytest.mark.parametrize(
    "budget", [filters.Residue, filters.Renyi, lambda **both: filters.Planned(Gaussian(30.0), **both)]
)
@pytest.mark.parametrize("own", [False, True])
def test_releases_that_nobody_paid_are_found_whatever_the_budget(budget, own):
    """Eight releases of which three, or none, were charged, to budgets whose prices are by what is left too."""

    def pipeline(data):
        account, public = budget(epsilon=3.0, delta=1e-6), []
        account = individual.Filter(["ann", "bob"], account) if own else account
        for number in range(8):
            if number < pipeline.charged:
                account.charge(Gaussian(30.0), *([np.ones(2)] if own else []))
            noisy = len(data) + np.random.default_rng().normal(0, 30)
            public.append(audit.released(lambda noisy=noisy: noisy, exact=float(len(data)), mechanism=Gaussian(30.0)))
        return audit.Outcome(public, account)

    options = {"people": ["ann"], "without": lambda data, who: [each for each in data if each != who]}
    for pipeline.charged in (8, 3, 0):
        report = audit.replay(pipeline, ["ann", "bob"], **options)
        assert report.rules == (set() if pipeline.charged == 8 else {"account"})
        assert (report.tightest or 1) == pytest.approx(8 / (pipeline.charged or 8), rel=0.2)


def test_sensitivity_is_checked_of_repeated_mechanisms_and_of_mixtures():
    """A person who moves a sum by 2 is found where a repeated mechanism, or the widest of a mixture, says 1."""

    def pipeline(data):
        total = float(sum(data))
        audit.released(lambda: total, exact=total, mechanism=pipeline.mechanism)
        return audit.Outcome()

    options = {"people": [2.0], "without": lambda data, who: [each for each in data if each != who], "fresh": False}
    mixture = MixtureOfGaussians(2.0, (0.0, 1.0), (0.5, 0.5))
    for mechanism in (Repeated(Gaussian(2.0), 3), mixture, Repeated(mixture, 2)):
        pipeline.mechanism = mechanism
        assert "sensitivity" in audit.replay(pipeline, [1.0, 2.0], **options).rules, mechanism
        assert "sensitivity" not in audit.replay(pipeline, [1.0, 2.0], **{**options, "people": [1.0]}).rules, mechanism


def test_the_tolerance_of_laplace_noise_is_a_share_of_its_l1_sensitivity():
    """A move of 1.005, in a million numbers, is beyond a sensitivity of 1 by more than sums may be off."""

    def pipeline(data):
        exact = np.full(10**6, 1.005e-6 * len(data))
        audit.released(lambda: 0, exact=exact, mechanism=Laplace(20.0, 1.0))
        return audit.Outcome()

    options = {"people": [1], "without": lambda data, who: data[:-1], "fresh": False}
    assert "sensitivity" in audit.replay(pipeline, [0, 1], **options).rules


@pytest.mark.parametrize(("releases", "rules"), [(1, set()), (4, {"noise"})])
def test_whole_noise_that_is_the_same_by_chance_is_no_finding(releases, rules):
    """Two small whole numbers of noise are the same in two runs once in 6,400 times; eight of them are not."""

    def pipeline(data):
        drawn = np.random.default_rng(5)  # the same in every run
        counts, step = np.array([len(data), sum(data.values())]), Laplace(20.0, 3.0)
        calls = [
            audit.released(lambda: counts + drawn.integers(-25, 25, 2), exact=counts, mechanism=step)
            for _ in range(releases)
        ]
        return audit.Outcome(calls, audit.Amount(releases, float(releases), "zCDP rho"))

    data = {"ann": 2, "bob": 1}
    report = audit.replay(pipeline, data, people=["ann"], without=lambda data, who: {"bob": 1})
    assert report.rules == rules


def replayed(pipeline, **options):
    return audit.replay(pipeline, 1, people=[1], without=lambda data, person: data, **options)


@pytest.mark.parametrize("plant", planted.REUSED, ids=str)
def test_noise_that_is_used_again_is_found_in_few_numbers(plant):
    """1 to 7 numbers a release, after 1 to 50 releases, also with the other sign and times a factor."""
    size, lag, *_ = plant
    report = replayed(planted.reused(*plant, seed=size + 100 * lag), fresh=False)
    assert report.rules == {"noise"}, plant
    assert "used again" in str(report)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_one_draw_for_all_releases_is_found(size):
    """A vector that is drawn before the loop and added to six releases; a seed of a single number; and releases of
    other sizes between those that are the same."""
    noise = np.random.default_rng(size).normal(0, 6.0, size)
    step = Gaussian(sigma=6.0, sensitivity=1.0)

    def once(data):
        return audit.Outcome(
            [audit.released(lambda: 3.5 + noise, exact=np.full(size, 3.5), mechanism=step) for _ in range(6)]
        )

    def between(data):
        rng, out = np.random.default_rng(), []
        for release in range(24):
            fresh = rng.normal(0, 6.0, 1 + release % 5)
            told = noise[:1] if release % 7 == 0 else fresh
            out.append(audit.released(lambda told=told: told, exact=np.zeros(told.size), mechanism=step))
        return audit.Outcome(out)

    def seeded(data):
        told = float(np.random.default_rng(9).normal(0, 6.0))
        return audit.Outcome(audit.released(lambda: 7.0 + told, exact=7.0, mechanism=step))

    assert replayed(once, fresh=False).rules == {"noise"}
    assert replayed(between, fresh=False).rules == {"noise"}
    assert replayed(seeded).rules == {"noise"}


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", planted.KINDS)
def test_fresh_noise_is_no_finding(kind):
    """Of 25 clean runs of each kind, twice each: real, single precision, whole, decimal, and with other steps."""
    rng = np.random.default_rng(sum(map(ord, kind)))
    for _ in range(25):
        assert replayed(planted.clean(kind, rng)).holds


def test_outputs_are_held_still_in_the_audit_only():
    """In the block of a replay, in its thread: before, after and beside it noise is drawn as ever."""
    beside, step = [], Gaussian(1.0)

    def one():
        return audit.released(lambda: float(np.random.default_rng().normal()), exact=0.0, mechanism=step)

    def pipeline(data):
        other = threading.Thread(target=lambda: beside.append(one()))
        other.start()
        other.join()
        return audit.Outcome([one() for _ in range(data)])

    assert audit.replay(pipeline, 3, people=[1, 2], without=lambda data, person: data).holds
    assert len(set(beside)) == len(beside) == 4
    assert _audit_hook._INSTALLED.get() is None
    assert one() != one()


def test_audits_alone_install_a_hook():
    """No other room of the package can hold outputs still: nobody else names what does."""
    package = Path(_audit_hook.__file__).parent
    naming = [
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if re.search(r"_audit_hook\.installed|import .*\binstalled\b|_INSTALLED", path.read_text(encoding="utf-8"))
    ]
    assert set(naming) == {"_audit_hook.py", "audit"}


def test_a_failed_audit_leaves_no_hook():
    """An error of the recorded run is the caller's, and ends the audit."""
    with pytest.raises(ZeroDivisionError):
        audit.replay(lambda data: 1 // 0, None, people=[1], without=lambda data, person: data)
    assert _audit_hook._INSTALLED.get() is None


def test_wrong_use_is_refused():
    """Nobody to remove, nothing released, something else than an outcome, and what cannot be compared."""
    step = Gaussian(1.0)

    def tells(public, accounts=None):
        def pipeline(data):
            audit.released(lambda: 1.0, exact=0.0, mechanism=step)
            return audit.Outcome(public, accounts)

        return pipeline

    stay = {"without": lambda data, person: data}
    with pytest.raises(ArgumentError, match="people"):
        audit.replay(tells(1), None, people=[], **stay)
    with pytest.raises(ArgumentError, match="released nothing"):
        audit.replay(lambda data: audit.Outcome(), None, people=[1], **stay)
    with pytest.raises(ArgumentError, match=r"audit\.Outcome"):
        audit.replay(lambda data: None, None, people=[1], **stay)
    with pytest.raises(ArgumentError, match="cannot be compared"):
        audit.replay(tells(object()), None, people=[1], **stay)
    with pytest.raises(ArgumentError, match="accounts"):
        audit.replay(tells(1, 5), None, people=[1], **stay)
    with pytest.raises(ArgumentError, match="tolerance"):
        audit.replay(tells(1), None, people=[1], tolerance=2, **stay)
    with pytest.raises(ArgumentError, match="measure"):
        audit.Amount(1.0, 1.0, "mu")


def test_a_public_filter_pays_for_everybody():
    """The worst case, charged to one filter: what is revealed is within it, until a release is not charged."""

    def pipeline(charged):
        def run(data):
            account, step = filters.Zcdp(rho=1.0), Gaussian(4.0, 1.0)
            for number in range(3):
                if number < charged:
                    account.charge(step)
                exact = float(len(data))
                audit.released(
                    lambda exact=exact: exact + np.random.default_rng().normal(0, 4), exact=exact, mechanism=step
                )
            return audit.Outcome(None, account)

        return run

    options = {"people": ["a"], "without": lambda data, who: data - {who}}
    assert audit.replay(pipeline(3), {"a", "b"}, **options).holds
    assert audit.replay(pipeline(2), {"a", "b"}, **options).rules == {"account"}
