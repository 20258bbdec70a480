"""Samplings: who is in a step; asked again before a release they change nothing; and one of the caller's own."""

import numpy as np
import pytest
import torch
from torch import nn

from almoner import errors, filters, individual, ledger, odometers, training
from almoner.training.correlated import Banded, FixedBatches
from training_runs import BY_RECORD, dies

N = 12
SLOTS = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]  # nobody is in slot 5


class TwoAtATime(training.Sampling):
    """Slots 0 and 1 in the first step, 2 and 3 in the second, and so on, again and again."""

    def __init__(self, slots):
        self.slots, self.done = slots, 0

    def contribute(self, model, turnout, accounts, step):
        here = (2 * self.done + np.arange(2)) % self.slots
        most = accounts.allowance(step)[here]
        made = model.clipped_sum(turnout.records.of(here), most, most)
        norms = np.zeros(self.slots)
        norms[here] = np.nan_to_num(made.clipped)
        accounts.charge(step, norms)
        return made.sums

    def released(self):
        self.done += 1

    def state(self):
        return {"done": self.done}

    def restore(self, state, unseen, book):
        super().restore(state, unseen, book)
        self.done = state["done"]


@pytest.fixture(name="data")
def fixture_data():
    torch.manual_seed(0)
    x = torch.randn(len(SLOTS), 3)
    return x, (x[:, 0] > 0).long(), np.array(SLOTS)


def job(budget=None, **options):
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    budget = filters.Gaussian(epsilon=2.0, delta=1e-5) if budget is None else budget
    options = {"max_grad_norm": 1.0, "divisor": 2, "steps": 9, "noise_multiplier": 4.0} | options
    return training.Trainer(module, BY_RECORD, optimizer, budget, **options)


def gradient_norms(module, x, y, slots):
    """(12,) the norm of the gradient of each slot's record, by autograd; 0 where nobody is."""
    norms = np.zeros(N)
    for row, slot in enumerate(slots):
        parts = torch.autograd.grad(BY_RECORD(module(x[[row]]), y[[row]]).sum(), list(module.parameters()))
        norms[slot] = float(torch.cat([part.flatten() for part in parts]).norm())
    return norms


class Watch:
    """Adds up by hand what each slot's person pays for steps with noise 4 and clip 1."""

    def __init__(self, data):
        self.data, self.paid = data, np.zeros(N)

    def __call__(self, run):
        if run.step < run.last:
            here = (2 * run.step + np.arange(2)) % N
            self.paid[here] += (np.minimum(gradient_norms(run.module, *self.data), 1.0)[here] / 4.0) ** 2


def test_a_sampling_of_the_callers_charges_those_who_are_in_a_step(data):
    """Round robin, two people at a time: each pays for the own gradient in their turn, an empty slot nothing."""
    watch, trainer = Watch(data), job(sampling=TwoAtATime(N))
    assert trainer.fit(*data, callbacks=[watch]).step == 9
    spent = trainer.accounts.spent()
    assert spent.shape == (N,)
    assert np.all(spent >= watch.paid * (1 - 1e-5))
    assert np.allclose(spent, watch.paid, rtol=1e-4)
    assert spent[5] == 0


def test_nobodys_absence_changes_anybody_elses_turn(data):
    """Without the first person, who was in slot 0, everybody else pays in the same steps."""
    with_all, without = job(sampling=TwoAtATime(N), steps=2, seed=1), job(sampling=TwoAtATime(N), steps=2, seed=1)
    with_all.fit(*data)
    without.fit(*(part[1:] for part in data))
    turn = with_all.accounts.spent() > 0
    assert turn.tolist() == [True] * 4 + [False] * 8
    assert (without.accounts.spent() > 0).tolist() == [False, *turn[1:].tolist()]


def test_a_sampling_of_the_callers_is_resumed(data, tmp_path):
    """Killed at any step and resumed, it goes on where it was; who may have contributed has paid for it."""

    class Killed(Exception):
        pass

    def kill(run):
        if run.step == 4:
            raise Killed

    folder = training.RunFolder(tmp_path / "run", every=3)
    with dies(Killed):
        job(sampling=TwoAtATime(N)).fit(*data, callbacks=[kill], folder=folder)
    watch, resumed = Watch(data), job(sampling=TwoAtATime(N))
    run = resumed.fit(*data, callbacks=[watch], folder=training.RunFolder(tmp_path / "run", resume=True))
    assert (run.step, sum(run.released.values())) == (9, 10)  # one step was lost and taken again
    lost = (1.0 / 4.0) ** 2  # everybody pays the most that it can have cost
    assert np.all(resumed.accounts.spent() >= watch.paid * (1 - 1e-5) + lost * (1 - 1e-9))


def test_a_card_says_that_the_sampling_is_the_callers(data):
    """And that nothing checks it; the package's own samplings are described as before."""
    trainer = job(sampling=TwoAtATime(N))
    trainer.fit(*data)
    card = trainer.card()
    assert card.sampling == "TwoAtATime()"
    assert "TwoAtATime() says" in card.to_markdown()
    assert "all people in every step" not in card.to_markdown()
    assert "The caller wrote it." in card.to_html()
    assert type(card).from_dict(card.to_dict()) == card
    own = job()
    own.fit(*data[:2])
    assert own.card().sampling == ""
    assert "The caller wrote it." not in own.card().to_html()


@pytest.mark.parametrize(
    ("people", "message"),
    [
        (None, "in which of the sampling's 12 slots"),
        ([0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12], "12 slots"),
        (list("abcdefghijk"), "whole numbers from 0"),
    ],
)
def test_people_are_in_slots_or_refused(data, people, message):
    """Nothing is charged: the trainer can still be used."""
    trainer = job(sampling=TwoAtATime(N))
    with pytest.raises(errors.ArgumentError, match=message):
        trainer.fit(*data[:2], people)
    assert trainer.fit(*data).step == 9


def test_slots_are_not_for_accounts_of_a_ledger_or_of_another_number(data, tmp_path):
    """A ledger knows people by ids, and accounts of the caller's must be as many as there are slots."""
    budget = filters.Gaussian(epsilon=2.0, delta=1e-5)
    with pytest.raises(errors.ArgumentError, match="12 slots"):
        job(individual.Filter(13, budget), sampling=TwoAtATime(N)).fit(*data)
    on = training.OnLedger(tmp_path / "no.ledger", "slots", at_most=filters.Gaussian(epsilon=1.0, delta=1e-5))
    with pytest.raises(errors.Unsupported, match="slots"):
        job(on, sampling=TwoAtATime(N)).fit(*data)


class Twice:
    """A sampling that is asked twice for each release, the first time for accounts that nobody keeps."""

    def __init__(self, sampling, accounts):
        self.sampling, self.accounts, self.differed = sampling, accounts, []

    def __getattr__(self, name):
        return getattr(self.sampling, name)

    def contribute(self, model, turnout, accounts, step):
        before = self._kept()
        tried = self.sampling.contribute(model, turnout, self.accounts(accounts), step)
        self.differed.append(self._kept() != before)
        again = self.sampling.contribute(model, turnout, accounts, step)
        return again if isinstance(self.sampling, training.Poisson) else self._same(tried, again)

    def _kept(self):
        """The state, but for the mark that people were charged for a step that is not done."""
        return repr({name: value for name, value in self.sampling.state().items() if name != "afresh"})

    @staticmethod
    def _same(tried, again):
        assert all(torch.equal(one, other) for one, other in zip(tried, again, strict=True))
        return again


def copied(accounts):
    """Accounts that hold what these hold now."""
    return individual.Filter.from_state(accounts._accounts.state())


@pytest.mark.parametrize(
    ("sampling", "budget"),
    [
        (training.FullBatch(), filters.Gaussian(mu=1.0)),
        (training.FullBatch(pace=0.0, spend_remainder=False), filters.Gaussian(mu=1.0)),
        (training.Poisson(1.0, refresh_every=3), filters.Residue(epsilon=2.0, delta=1e-5)),
        (training.Poisson(1.0, refresh_every=3), filters.RenyiOrder(alpha=8.0, rho=1.0)),  # bounds follow own samples
        (FixedBatches(3), filters.Gaussian(mu=1.0)),
        (FixedBatches(3, noise=Banded(2)), filters.Gaussian(mu=1.0)),
    ],
)
def test_a_sampling_that_is_asked_again_charges_as_if_it_was_asked_once(data, monkeypatch, sampling, budget):
    """Where a ledger's transaction has to begin again: same charges, same sums, same noise, same parameters."""
    options = {"sampling": sampling, "seed": 7, "divisor": len(SLOTS), "steps": 7}
    once, twice, asked = job(budget.fresh(), **options), job(budget.fresh(), **options), []
    once.fit(*data[:2])
    real = training.Trainer._begun

    def begun(*given):
        asked.append(Twice(real(*given), copied))
        return asked[0]

    monkeypatch.setattr(training.Trainer, "_begun", begun)
    twice.fit(*data[:2])
    assert (len(asked[0].differed), any(asked[0].differed)) == (7, False)
    assert np.array_equal(once.accounts.spent(), twice.accounts.spent())
    for one, other in zip(once.module.parameters(), twice.module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_watched_stream_on_a_ledger_has_the_bounds_of_one_with_accounts_of_its_own(tmp_path):
    """The odometer beside the budget is told the same contributions wherever people pay."""
    names = ["ann", "bob", "cat", "dan"]
    torch.manual_seed(3)
    updates = [(torch.randn(3, 3), torch.tensor([0, 1, 1]), names[start : start + 3]) for start in (0, 1, 0)]

    def bounds(budget):
        torch.manual_seed(0)
        module = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.0)  # the gradients do not depend on the noise
        options = {"max_grad_norm": 1.0, "noise_multiplier": 8.0, "watch": odometers.Gaussian(delta=1e-6)}
        with training.Stream(module, BY_RECORD, optimizer, budget, **options) as stream:
            for x, y, people in updates:
                stream.update(x, y, people, divisor=3)
            return [stream.statement(person).epsilon for person in names]

    whole = filters.Gaussian(mu=1.0)
    with ledger.Ledger.open(tmp_path / "a.ledger", budget=whole, person="VARCHAR", create=True) as book:
        on_ledger = bounds(training.OnLedger(book, "stream"))
    own = bounds(filters.Gaussian(mu=1.0))
    assert on_ledger == pytest.approx(own, rel=1e-9)
    assert len(set(own)) > 1
