"""Replay audits of every door of the library: nothing is found, and errors that are planted in the doors are.

``python benchmarks/tightness/audits.py`` runs the same with twenty people each.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from almoner import audit, filters, individual, training
from almoner.errors import ArgumentError
from almoner.queries import Sum
from almoner.training import FixedBatches, _networks
from almoner.training._linear import descent, search
from almoner.training._run import books, models, samplings, settings
from almoner.training.callbacks import AdaptiveClip
from almoner.training.correlated import Banded, BandedInverse
from almoner.training.correlated._factor import Factor, Pattern
from pipelines import (
    DOORS,
    PEOPLE,
    asked_of,
    audited,
    log_loss,
    logistic,
    logistic_module,
    parameters,
    records,
    session,
    stream,
    table,
    tensors,
    trainer,
)
from planted import QUESTIONS, asked

QUICK = {"people": [3], "replaced": None, "fresh": False}


@pytest.mark.quick(3)
@pytest.mark.parametrize("door", DOORS)
def test_nothing_is_found_in_a_door(door):
    """With a person removed."""
    report = DOORS[door](people=1, fresh=False, replaced=None)
    assert report.holds, str(report)
    assert report.largest <= 1


def test_individual_accounts_are_used_to_the_full():
    """The audit sees all that accounts pay for: with Gaussian steps, nothing of it is slack."""
    assert audited(trainer(), **QUICK).tightest == pytest.approx(1, rel=1e-4)


def half_charged(monkeypatch):
    right = individual.Filter.charge
    monkeypatch.setattr(
        individual.Filter,
        "charge",
        lambda self, step, norms, people=None: right(self, step, norms * (0.5 if len(norms) > 1 else 1), people),
    )  # the audit's own accounts, of one person, stay as they are


def forgotten_clip(monkeypatch):
    right = training.Gradients.sums

    def sums(self, *given, **named):
        totals, norms = right(self, *given, **named)
        return [2 * each for each in totals], norms

    monkeypatch.setattr(training.Gradients, "sums", sums)


def noise_left_out(monkeypatch):
    monkeypatch.setattr(models.Processes, "noisy_total", lambda self, sums, sigma, generator: list(sums))


def mean_of_those_who_are_there(monkeypatch):
    right = samplings.FullBatch.contribute
    monkeypatch.setattr(
        samplings.FullBatch,
        "contribute",
        lambda self, model, turnout, *rest: [
            each / len(turnout.records.targets) * 200 for each in right(self, model, turnout, *rest)
        ],
    )


def count_for_nothing(monkeypatch):
    right = individual.Filter.charge

    def charge(self, step, norms, people=None, **among):
        free = len(norms) > 1 and bool(np.all(norms == 1)) and not np.any(self.spent())
        return norms > 0 if free else right(self, step, norms, people, **among)

    monkeypatch.setattr(individual.Filter, "charge", charge)


def clipped_count_for_nothing(monkeypatch):
    right = individual.Filter.charge

    def charge(self, step, norms, people=None, **among):
        free = len(norms) > 1 and step.sensitivity == 1 and step.sigma == 8 and bool(np.all(np.isin(norms, [0, 1])))
        return norms >= 0 if free else right(self, step, norms, people, **among)

    monkeypatch.setattr(individual.Filter, "charge", charge)


def clip_that_is_not_the_charged_one(monkeypatch):
    right = settings.Settings.step

    def half(self, noise, clip, rate):
        return replace(right(self, noise, clip, rate), sensitivity=0.5 * clip)

    monkeypatch.setattr(settings.Settings, "step", half)
    sums = training.Gradients.sums

    def longer(self, *given, **named):
        totals, norms = sums(self, *given, **named)
        return [2 * each for each in totals], norms

    monkeypatch.setattr(training.Gradients, "sums", longer)


ADAPTIVE = lambda: trainer(policy=AdaptiveClip(rate=1.0, sigma=8.0))  # noqa: E731

TRAINING = {
    half_charged: (trainer, "account"),
    forgotten_clip: (trainer, "sensitivity"),
    noise_left_out: (trainer, "noise"),
    mean_of_those_who_are_there: (trainer, "account"),
    clipped_count_for_nothing: (ADAPTIVE, "account"),
    clip_that_is_not_the_charged_one: (ADAPTIVE, "sensitivity"),
    count_for_nothing: (lambda: logistic(max_grad_norm=0.7), "account"),
}


@pytest.mark.parametrize("plant", TRAINING)
def test_planted_errors_of_training_are_found(plant, monkeypatch):
    """Each by the rule that it breaks."""
    plant(monkeypatch)
    make, rule = TRAINING[plant]
    assert rule in audited(make(), **QUICK, data=records(2)).rules


@pytest.mark.parametrize("pipeline", [trainer(), stream, logistic()], ids=["Trainer", "Stream", "LogisticRegression"])
def test_an_audit_sees_trainings_through_their_book_alone(pipeline, monkeypatch):
    """A book that releases past the hook releases nothing that an audit sees."""
    monkeypatch.setattr(books, "publish", lambda release, **public: release())
    with pytest.raises(ArgumentError, match="released nothing that an audit sees"):
        audited(pipeline, **QUICK)


def correlated(noise):
    return trainer(sampling=FixedBatches(10, noise=noise, pace=0.0), steps=12)


def first_row_alone(self, places):
    return np.diag([self.columns([place])[place, 0] ** 2 for place in places])


def rows_in_place_of_columns(self, places):
    rows = self.columns(range(self.steps)).T[:, list(places)]
    return rows.T @ rows


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [first_row_alone, rows_in_place_of_columns])
def test_later_rows_that_are_not_paid_are_found(wrong, monkeypatch):
    """Correlated noise: a contribution is in all later rows, and the whole column must be paid."""
    monkeypatch.setattr(Factor, "inner_products", wrong)
    assert "account" in audited(correlated(Banded(3)), **QUICK | {"people": range(8)}).rules


def test_overlaps_that_are_not_paid_are_found(monkeypatch):
    """Correlated noise that never ends: earlier contributions overlap with later ones."""
    monkeypatch.setattr(Pattern, "cross", lambda self, turn, past: np.zeros(len(past)))
    assert "account" in audited(correlated(BandedInverse(3)), **QUICK).rules


def test_who_is_not_sampled_must_pay(monkeypatch):
    """A sampled step that charges those alone who were sampled."""

    def contribute(self, model, turnout, accounts, step):
        coins = samplings._audit_hook.coins(lambda: self._coins.random(turnout.people))
        sampled = coins < step.sample_rate
        accounts.charge(step, np.where(sampled, step.sensitivity, 0.0))
        people = np.flatnonzero(sampled)
        return model.clipped_sum(turnout.records.of(people), np.full(len(people), step.sensitivity), None).sums

    monkeypatch.setattr(samplings.Poisson, "contribute", contribute)
    budget = lambda: filters.RenyiOrder(alpha=8, rho=0.5)  # noqa: E731
    assert "account" in audited(trainer(budget, sampling=training.Poisson(0.3)), **QUICK).rules


def test_a_stream_with_a_fresh_account_in_each_update_is_found():
    """Double spending: the second update is paid from an account that knows nothing of the first."""

    def forgetful(data):
        module, seen = logistic_module(), []
        x, y, who = tensors(data)
        for _ in range(3):
            optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
            job = training.Stream(
                module,
                log_loss,
                optimizer,
                filters.Gaussian(mu=0.3),
                max_grad_norm=1.0,
                noise_multiplier=5.0,
            )
            job.update(x, y, who.tolist(), divisor=20)
            seen.append(parameters(module))
        return audit.Outcome(seen, job.accounts)

    assert "account" in audited(forgetful, **QUICK).rules


def test_a_norm_without_the_intercept_is_found(monkeypatch):
    """Logistic regression whose norms forget a part of the gradient."""
    right = descent.LogisticGradients.norms
    monkeypatch.setattr(descent.LogisticGradients, "norms", lambda self, at: right(self, at) * 0.6)
    assert audited(logistic(n_people=PEOPLE), **QUICK).rules >= {"account"}


def one_of_a_search(budget, learning_rate):
    """A small network, and its trainer, with noise that a seed repeats."""
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=learning_rate)
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    return training.Trainer(module, loss, optimizer, budget, max_grad_norm=1.0, divisor=PEOPLE, steps=3, seed=5)


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("counted", [1, 2])
def test_scores_of_a_search_are_seen(counted, network, monkeypatch):
    """Each score is a count that a person moves by one at most; people who count twice are found."""
    place = _networks.Trainers if network else search.Estimators
    right = place.right
    monkeypatch.setattr(place, "right", lambda *given: counted * right(*given))

    def pipeline(data):
        one = training.LogisticRegression(steps=3, classes=[0, 1], n_people=PEOPLE)
        grid = {"learning_rate": [1.0, 4.0]}
        found = training.PrivateSearch(one_of_a_search if network else one, grid, runs=4, seed=2)
        model = found.fit(*(tensors(data) if network else (data["x"], data["y"], data["who"]))).best_estimator_
        return audit.Outcome([found.best_score_, found.best_params_, parameters(model) if network else model.coef_])

    assert audited(pipeline, **QUICK | {"people": range(3)}).rules == (set() if counted == 1 else {"sensitivity"})


@pytest.mark.slow
@pytest.mark.parametrize("plant", QUESTIONS)
def test_planted_errors_of_questions_are_found(plant, monkeypatch):
    """Each by the rule that it breaks."""
    plant(monkeypatch)
    pipeline = session(questions=4, asked=asked, watch=False)
    assert QUESTIONS[plant] in asked_of(table(records()), pipeline, people=1, fresh=False, replaced=None).rules


@pytest.mark.slow
def test_people_may_be_removed_in_several_threads(monkeypatch):
    """The same calls, the same shares of what was paid, in the same order; and a planted error is found for each."""
    pipeline = session(questions=4, asked=asked, watch=False)
    with monkeypatch.context() as plant:
        planted = QUICK | {"threads": 2}
        report = asked_of(table(records()), pipeline, **(planted | {"people": 4}))
        assert report.holds, str(report)
        assert [person for person, *_ in report.revealed] == ["p0", "p1", "p2", "p3"]
        one = asked_of(table(records()), pipeline, **(planted | {"people": 4, "threads": 1}))
        assert [row[1:] for row in one.revealed] == [row[1:] for row in report.revealed]
        next(iter(QUESTIONS))(plant)
        found = asked_of(table(records()), pipeline, **(planted | {"people": 4})).findings
        assert {finding.person for finding in found if finding.rule == "sensitivity"} == {"p0", "p1", "p2", "p3"}
    with pytest.raises(ArgumentError, match="threads=0"):
        asked_of(table(records()), pipeline, **(planted | {"threads": 0}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "view",
    [
        "SELECT * FROM data ORDER BY a DESC LIMIT 60",
        "SELECT who, b, kind, a - (SELECT avg(a) FROM data) + 20 AS a FROM data",
    ],
)
def test_impure_views_are_found(view):
    """Views by which a person's rows decide which rows of others are seen, or what is in them."""
    pipeline = session(questions=4, asked=asked, watch=False, view=view, check_view=False)
    report = asked_of(table(records()), pipeline, people=4, fresh=False, replaced=None)
    assert report.rules & {"account", "sensitivity"}


def test_questions_made_from_the_data_are_found():
    """A bound that is the largest entry, found with the person whose entry it is."""
    rows = table(records())
    amounts = rows["a"].to_pylist()
    richest = rows["who"].to_pylist()[int(np.argmax(amounts))]

    def pipeline(given):
        most = float(max(given["a"].to_pylist()))
        yield from session(questions=2, asked=lambda told: [Sum("a", 0, most, clip=1, rho=0.05)], watch=False)(given)

    assert asked_of(rows, pipeline, [richest], fresh=False, replaced=None).rules & {"public", "control flow"}
