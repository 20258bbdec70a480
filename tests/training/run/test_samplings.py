"""Samplings: who is in a step; asked again before a release they change nothing; and one of the caller's own."""

import numpy as np
import pytest
import torch
from torch import nn

from almoner import errors, filters, individual, ledger, odometers, training
from almoner.training import FixedBatches
from almoner.training.correlated import Banded
from almoner.training.stopping import StillActive
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

    def restore(self, state):
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
    assert card.sampling == "TwoAtATime(slots=12, done=0)"
    assert "TwoAtATime(slots=12, done=0) says" in card.to_markdown()
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
    with ledger.Ledger.open(tmp_path / "a.ledger", ledger.Terms(whole, person="VARCHAR"), create=True) as book:
        on_ledger = bounds(training.OnLedger(book, "stream"))
    own = bounds(filters.Gaussian(mu=1.0))
    assert on_ledger == pytest.approx(own, rel=1e-9)
    assert len(set(own)) > 1


class Free(training.Sampling):
    """Forgets to charge."""

    def contribute(self, model, turnout, accounts, step):
        return model.clipped_sum(turnout.records, np.ones(turnout.people), None).sums


def test_what_nobody_paid_for_is_not_released(data):
    """A sampling that never charges is refused before noise is drawn; steps that were paid in advance are not."""
    trainer = job(sampling=Free())
    before = [parameter.clone() for parameter in trainer.module.parameters()]
    with pytest.raises(errors.Unsupported, match=r"must call accounts\.charge"):
        trainer.fit(*data[:2])
    assert all(torch.equal(one, other) for one, other in zip(before, trainer.module.parameters(), strict=True))
    together = job(sampling=FixedBatches(3), individual=False, divisor=11, noise_multiplier=None)
    assert together.fit(*data[:2]).step == 9


class Counting(training.Sampling):
    """Everybody, and a state that the obvious ``restore`` goes on from."""

    n = 0

    def contribute(self, model, turnout, accounts, step):
        most = accounts.allowance(step)
        made = model.clipped_sum(turnout.records, most, most)
        accounts.charge(step, made.clipped)
        return made.sums

    def released(self):
        self.n += 1

    def state(self):
        return {"n": self.n}

    def restore(self, state):
        self.n = state["n"]


def test_what_a_sampling_of_the_callers_has_lost_is_paid(data, tmp_path):
    """Whatever its ``restore`` does: lost steps are paid at the most that they can have cost."""

    class Killed(Exception):
        pass

    def kill(run):
        if run.step == 5:
            raise Killed

    with dies(Killed):
        first = job(filters.Gaussian(mu=5.0), sampling=Counting(), max_grad_norm=1e-4)
        first.fit(*data[:2], callbacks=[kill], folder=training.RunFolder(tmp_path / "run", every=3))
    resumed = job(filters.Gaussian(mu=5.0), sampling=Counting(), max_grad_norm=1e-4)
    resumed.fit(*data[:2], folder=training.RunFolder(tmp_path / "run", resume=True))
    assert sum(resumed._view.released.values()) == 9 + 2
    assert np.all(resumed.accounts.spent() == 11 * (1 / 4) ** 2)  # all gradients are longer than the clip


class Mine(training.FullBatch):
    """A class of the caller's, by inheritance."""


class Half(training.Sampling):
    """Has a setting."""

    contribute = Counting.contribute

    def __init__(self, share):
        self.share = share


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Mine(), training.FullBatch()),
        (training.FullBatch(), Mine()),
        (Half(0.5), Half(1.0)),
        (training.FullBatch(pace=0.5), training.FullBatch()),
    ],
)
def test_a_run_is_resumed_with_the_sampling_that_it_began_with(data, tmp_path, first, then):
    """A subclass is not the class, and settings of one's own count; the card would not be about the steps done."""
    trainer = job(sampling=first)
    trainer.fit(*data[:2], folder=tmp_path / "run")
    with pytest.raises(errors.ArgumentError, match="sampling="):
        job(sampling=then).fit(*data[:2], folder=training.RunFolder(tmp_path / "run", resume=True))
    assert (trainer.card().sampling == "") == (type(first) is training.FullBatch)


class Sampled(Counting):
    """Says that its bounds follow own samples."""

    own_samples = True


def test_bounds_that_follow_own_samples_need_a_theorem(data):
    """A budget for which it is proven, no odometer beside, and no question whose price excludes them."""
    for budget, watch in (
        (filters.Residue(epsilon=2.0, delta=1e-5), None),
        (filters.Zcdp(rho=1.0), odometers.Gaussian(delta=1e-5)),
        (filters.Zcdp(rho=1.0), lambda people: StillActive(people, at_least=3, epsilon=0.1)),
    ):
        with pytest.raises(errors.Unsupported, match="own samples"):
            job(budget, sampling=Sampled()).fit(*data[:2], watch=watch)
    assert job(filters.Zcdp(rho=1.0), sampling=Sampled()).fit(*data[:2]).step == 9


def test_shares_of_a_resumed_run_are_those_that_it_began_with(data, tmp_path):
    """Others are refused, and not taken for granted."""
    shares = np.linspace(0.2, 1.0, len(SLOTS))
    job().fit(*data[:2], shares=shares, folder=tmp_path / "run")
    again = training.RunFolder(tmp_path / "run", resume=True)
    with pytest.raises(errors.ArgumentError, match="shares"):
        job().fit(*data[:2], shares=shares / 2, folder=again)
    assert job().fit(*data[:2], shares=shares, folder=again).step == 9


def test_a_function_that_counts_nothing_leaves_filter_and_trainer_as_they_were(data):
    """Both can be used afterwards."""
    budget = filters.Gaussian(mu=1.0)
    trainer = job(budget)
    with pytest.raises(errors.ArgumentError, match="Dropouts or StillActive"):
        trainer.fit(*data[:2], watch=lambda people: 3)
    assert trainer.fit(*data[:2]).step == 9


def test_no_repr_of_what_samplings_are_given_shows_anybody(data):
    """Neither ids nor norms."""
    seen = []

    class Looking(Counting):
        def contribute(self, model, turnout, accounts, step):
            made = model.clipped_sum(turnout.records, np.ones(turnout.people), None)
            seen.append(f"{turnout!r} {turnout._replace(ids=['ann'])!r} {made!r}")
            return super().contribute(model, turnout, accounts, step)

    job(sampling=Looking(), steps=1).fit(*data[:2])
    assert seen == ["Turnout(left=1, divisor=2) Turnout(left=1, divisor=2) Clipped(private)"]


def test_a_card_of_changed_rates_says_so(data):
    """The divisor of each step is times the rate of that step, for callbacks too."""
    divisors = []

    def change(run):
        divisors.append(run.divisor)
        if run.step == 3:
            run.sample_rate = 0.75

    trainer = job(filters.Residue(epsilon=2.0, delta=1e-5), sampling=training.Poisson(0.5), divisor=8)
    trainer.fit(*data[:2], callbacks=[change])
    assert divisors[0] == 4.0
    assert divisors[-1] == 6.0
    assert "times the rate of each step" in trainer.card().to_markdown()
