"""Audits of the trainer: can somebody who sees everything that is released tell whether one person was there?

Two thousand people, each with a gradient along an axis of their own, are a thousand who are there and a thousand who
are not: what is released along somebody's axis depends on that person alone, so one run is two thousand experiments.
From how well they are told apart follows, with 95 % confidence, a lower bound on epsilon. It must not exceed the claim,
and must come close to it where the budget is used up; and planted errors must be caught.
"""

import numpy as np
import pytest
import torch
from torch import nn

from almoner import filters, individual, training
from almoner.curves import gaussian, renyi
from almoner.training import stopping
from almoner.training._records import correct
from almoner.training._run import models, samplings
from almoner.training._run.books import MemoryBook
from almoner.training._run.run import Saves
from audits import DELTA, epsilon_bound

pytestmark = pytest.mark.slow


AXES, RUNS, MU = 1000, 20, 1.5


class Axes(nn.Module):
    """A record's gradient is the record times a public number that may change from step to step."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(AXES, 1, bias=False)
        self.size = 1.0

    def forward(self, x):
        return self.line(x) * self.size


def first(output, targets):
    return output[:, 0]


class Crash(Exception):
    pass


def experiment(
    budget, *, size=lambda step: 0.5, steps=8, crash=None, crashes=0, folder=None, asks=False, counting=None, **options
):
    """((RUNS * half,) there, (...) absent): what was released along each axis, summed over all that was released."""
    there, absent = [], []
    for seed in range(RUNS):
        present = np.random.default_rng(seed).random(AXES) < 0.5
        x = torch.eye(AXES)[torch.from_numpy(present)]
        accounts = budget()
        seen = np.zeros(AXES)
        for attempt in range(crashes + 1):
            module = Axes()

            class Look:
                last = None

                def began(self, run, module=module):
                    self.last, module.size = module.line.weight.detach().clone(), size(run.step)

                def __call__(self, run, module=module, attempt=attempt, seen=seen):
                    now = module.line.weight.detach().clone()
                    if run.step:
                        seen[:] += (self.last - now)[0].numpy() * size(run.step - 1)  # the gradient's size: a ratio
                    self.last = now
                    module.size = size(run.step)
                    if asks and run.step == 4:
                        run.noisy_sum(correct, sigma=30.0)
                    if attempt < crashes and run.step == crash:
                        raise Crash

            job = training.Trainer(
                module,
                first,
                torch.optim.SGD(module.parameters(), lr=1.0),
                accounts(len(x)) if callable(accounts) else accounts,
                max_grad_norm=1.0,
                divisor=1.0,
                steps=steps,
                seed=100 * seed + attempt,  # the same verdict each time; what a planted error gives is far from it
                **({"sampling": training.FullBatch(pace=0.0)} | options),
            )
            saved = {} if folder is None else {"folder": training.RunFolder(folder / str(seed), every=3, resume=True)}
            try:
                job.fit(x, torch.zeros(len(x), dtype=torch.long), callbacks=[Look()], watch=counting, **saved)
            except Crash:
                continue
        there.append(seen[present])
        absent.append(seen[~present])
    size_of_both = min(sum(map(len, there)), sum(map(len, absent)))
    return np.concatenate(there)[:size_of_both], np.concatenate(absent)[:size_of_both]


def gaussian_budget():
    return filters.Gaussian(mu=MU)


def order_budget():
    return filters.RenyiOrder(alpha=4.0, rho=1.0)


GAUSSIAN = float(gaussian.epsilon(MU, delta=DELTA))
ORDER = float(renyi.epsilon([1.0], [4.0], delta=DELTA))
NOISE = 2**0.5 / MU  # two whole contributions, or eight of half the clip


def test_full_batches_release_what_is_claimed_and_nearly_no_less():
    """Everybody's budget is used up after eight steps."""
    found = epsilon_bound(*experiment(gaussian_budget, noise_multiplier=NOISE))
    assert 0.6 * GAUSSIAN <= found <= GAUSSIAN


def test_plain_gradient_descent_releases_what_is_claimed():
    """individual=False with gradients of the size of the clip."""
    there, absent = experiment(
        gaussian_budget, individual=False, noise_multiplier=NOISE * 1.0001, size=lambda step: 1.0, steps=2
    )
    assert 0.6 * GAUSSIAN <= epsilon_bound(there, absent) <= GAUSSIAN


def test_poisson_samples_release_no_more_than_is_claimed():
    """Bounds on gradients that grow after they were assigned keep what is released within the claim."""
    found = epsilon_bound(
        *experiment(
            order_budget,
            noise_multiplier=2.0,
            sampling=training.Poisson(0.9, refresh_every=4),
            steps=6,
            size=lambda step: 0.3 if step < 3 else 1.0,
        )
    )
    assert 0.1 < found <= ORDER


def test_counts_and_questions_in_between_release_no_more_than_is_claimed():
    """With noisy counts of dropouts in front of the accounts and a noisy sum in between."""
    found = epsilon_bound(
        *experiment(
            gaussian_budget,
            noise_multiplier=NOISE,
            asks=True,
            counting=lambda people: stopping.Dropouts(people, stopping.Tree(steps=10, sigma=20.0)),
        )
    )
    assert 0.5 * GAUSSIAN <= found <= GAUSSIAN


def as_if_killed(monkeypatch):
    monkeypatch.setattr(Saves, "__exit__", lambda *_: None)


@pytest.mark.parametrize("killed", [True, False])
def test_resumed_runs_release_no_more_than_is_claimed(tmp_path, monkeypatch, killed):
    """Somebody who saw the steps before a crash and all those after it learns no more than is claimed."""
    if killed:
        as_if_killed(monkeypatch)
    found = epsilon_bound(*experiment(gaussian_budget, noise_multiplier=NOISE, crash=5, crashes=1, folder=tmp_path))
    assert 0.3 * GAUSSIAN <= found <= GAUSSIAN


class Careless(individual.Filter):
    """A planted error: people go on contributing after they were refused."""

    def allowance(self, step, people=None):
        return np.full(len(self.spent()), step.sensitivity)

    def charge(self, step, norms, people=None):
        super().charge(step, norms, people)
        return np.ones(len(norms), dtype=bool)


def test_contributing_after_a_refusal_is_caught():
    """The same audit exceeds the claim."""
    found = epsilon_bound(
        *experiment(lambda: lambda count: Careless(count, gaussian_budget()), noise_multiplier=NOISE, steps=24)
    )
    assert found > 1.1 * GAUSSIAN


def test_noise_scaled_by_the_batch_is_caught(monkeypatch):
    """The same audit exceeds the claim where the noise shrinks with the share of people in the batch."""
    original = models.Processes.noisy_total
    monkeypatch.setattr(
        models.Processes,
        "noisy_total",
        lambda self, sums, sigma, generator: original(self, sums, sigma * 0.5, generator),
    )
    found = epsilon_bound(*experiment(gaussian_budget, noise_multiplier=NOISE))
    assert found > 1.1 * GAUSSIAN


def test_no_checkpoint_journal_is_caught(tmp_path, monkeypatch):
    """The same audit exceeds the claim where what a checkpoint has not seen is not charged on resuming."""
    as_if_killed(monkeypatch)
    monkeypatch.setattr(MemoryBook, "write_off", lambda self, *given, **named: None)
    there, absent = experiment(
        gaussian_budget,
        noise_multiplier=NOISE,
        size=lambda step: 1.0,
        crash=2,
        crashes=3,
        folder=tmp_path,
        steps=2,
    )
    assert epsilon_bound(there, absent) > 1.1 * GAUSSIAN


def test_bounds_from_the_step_they_are_used_in_are_caught(monkeypatch):
    """Charged for the norm that was last seen, but clipped at the clip: the same audit exceeds the claim."""
    original = samplings.Poisson._bounds

    class Loose(np.ndarray):
        """Bounds that are small when they are charged, and the clip when they are used."""

        def __getitem__(self, rows):
            return np.ones_like(np.asarray(super().__getitem__(rows)))

    def loose(self, *given):
        bounds, seen = original(self, *given)
        return np.asarray(bounds).view(Loose), seen

    monkeypatch.setattr(samplings.Poisson, "_bounds", loose)

    class Charged(individual.Filter):
        def charge(self, step, norms, people=None, **among):
            return super().charge(step, np.array(norms), people, **among)

    found = epsilon_bound(
        *experiment(
            lambda: lambda count: Charged(count, order_budget()),
            noise_multiplier=0.8,
            sampling=training.Poisson(0.9, refresh_every=50, slack=1.0),
            steps=12,
            size=lambda step: 0.05 if step < 1 else 1.0,
        )
    )
    assert found > 1.1 * ORDER


def spread_tells_who_is_there(count):
    """Whether the spread of the noise on axes that nobody moves tells 5 people from 4, in runs of the trainer."""
    right = 0
    for seed in range(count):
        people = 5 if seed % 2 else 4
        module = Axes()
        before = module.line.weight.detach().clone()
        training.Trainer(
            module,
            first,
            torch.optim.SGD(module.parameters(), lr=1.0),
            gaussian_budget(),
            max_grad_norm=1.0,
            divisor=4.5,
            noise_multiplier=NOISE * 2,
            steps=1,
        ).fit(torch.eye(AXES)[:people], torch.zeros(people, dtype=torch.long))
        noise = float((module.line.weight.detach() - before)[0, 10:].std())
        right += (noise < NOISE * 2 / 4.5) == (people == 5)
    return right


@pytest.mark.parametrize("planted", [False, True])
def test_dividing_by_the_active_people_is_caught(planted, monkeypatch):
    """Divided by the number of people, noise tells how many there are, every time; divided by a fixed one, never."""
    if planted:
        original, noisy, there = samplings.FullBatch.contribute, models.Processes.noisy_total, []

        def sums(self, model, turnout, accounts, step):
            there.append(turnout.people)
            return original(self, model, turnout, accounts, step)

        def by_people(self, parts, sigma, generator):
            return [part * 4.5 / there[-1] for part in noisy(self, parts, sigma, generator)]

        monkeypatch.setattr(samplings.FullBatch, "contribute", sums)
        monkeypatch.setattr(models.Processes, "noisy_total", by_people)
    right = spread_tells_who_is_there(60)
    assert right == 60 if planted else 10 <= right <= 50
