"""The trainer: its algorithms written out, its accounts in exact arithmetic, refusals."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from almoner import errors, filters, individual, mechanisms, training
from almoner.training import stopping
from almoner.training._records import correct
from almoner.training._run.models import noise_generator
from gradient_modules import naive
from training_runs import BY_RECORD, N, network, trainer


def by_hand(module, x, y, budget, *, sigma, steps, seed, remainder):
    """Feldman & Zrnic, Algorithm 8 (or 3), literally: budgets as sums of squared norms."""
    left = np.full(len(x), budget)
    noise = noise_generator(torch.device("cpu"), seed)
    parameters = list(module.parameters())
    for _ in range(steps):
        rows = list(naive(module, BY_RECORD, (x,), y))
        rows = torch.stack([torch.cat([part.reshape(-1) for part in parts]) for parts in rows]).double()
        norms = rows.norm(dim=1).numpy()
        asked = np.minimum(norms, 1.0)
        given = np.minimum(asked, np.sqrt(left)) if remainder else np.where(asked**2 <= left, asked, 0.0)
        left = np.maximum(left - given**2, 0.0)
        total = (rows * torch.from_numpy(given / norms)[:, None]).sum(0)
        total += torch.from_numpy(noise.normal(0.0, sigma, len(total)))
        with torch.no_grad():
            for parameter, part in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
                parameter -= (part / len(x)).view(parameter.shape).float()
    return torch.cat([p.detach().reshape(-1) for p in parameters]), left


@pytest.mark.slow
@pytest.mark.parametrize("remainder", [True, False])
def test_full_batches_are_feldman_and_zrnics_algorithms(data, remainder):
    """Algorithm 8, and 3, written out with plain sums of squared norms, give the same model and the same accounts."""
    x, y = data
    sigma, steps = 8.0, 15
    squares = 3.5
    module = network()
    run = trainer(
        filters.Gaussian(mu=squares**0.5 / sigma),
        module,
        noise_multiplier=sigma,
        steps=steps,
        seed=7,
        sampling=training.FullBatch(pace=0.0, spend_remainder=remainder),
    )
    run.fit(x, y)
    expected, left = by_hand(network(), x, y, squares, sigma=sigma, steps=steps, seed=7, remainder=remainder)
    found = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert torch.allclose(found, expected, atol=2e-4)
    assert np.allclose(run.accounts.left() * sigma**2, left, atol=1e-4)
    assert (left < 0.1).any()  # the accounts do run out
    assert (left > 0.5).any()


@pytest.mark.slow
def test_nobody_contributes_more_than_is_charged(data, monkeypatch):
    """In exact arithmetic, squared norms of what is added to the sums never exceed anybody's account."""
    x, y = data
    contributed = [Fraction(0)] * N
    sigma = 8.0
    module = network()

    def spy(self, inputs, targets, weigh, people=None, observe=None):
        rows = [
            torch.cat([g.reshape(-1) for g in parts]).double() for parts in naive(module, BY_RECORD, inputs, targets)
        ]
        norms = torch.stack(rows).norm(dim=1)

        def noting(chosen, found):
            weights = weigh(chosen, found)
            for person, weight in zip(chosen.tolist(), weights.tolist(), strict=True):
                contributed[person] += (Fraction(weight) * Fraction(float(norms[person]))) ** 2
            return weights

        return original(self, inputs, targets, noting, people=people, observe=observe)

    original = training.Gradients.sums
    monkeypatch.setattr(training.Gradients, "sums", spy)
    budget = filters.Gaussian(mu=1.5**0.5 / sigma)
    trainer(budget, module, noise_multiplier=sigma, steps=10).fit(x, y)
    assert max(contributed) <= Fraction(1.5) * (1 + Fraction(1, 10**12))
    assert max(contributed) > Fraction(1.4)


def test_plain_gradient_descent_charges_the_worst_case_and_ends_with_the_budget(data):
    """individual=False: everybody pays the clip in each step; without steps it goes on until the budget refuses."""
    x, y = data
    plain = trainer(filters.Gaussian(mu=0.5), individual=False, noise_multiplier=10.0, steps=None)
    run = plain.fit(x, y)
    assert run.step == 25  # 25 / 10^2 = 0.5^2
    assert run.reason == "the budget is spent"
    assert run.released == {mechanisms.Gaussian(10.0, 1.0): 25}


def test_noise_is_calibrated_to_the_budget(data):
    """Without a noise multiplier, so many full steps fit and not one more."""
    x, y = data
    run = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), individual=False, steps=30).fit(x, y)
    assert run.step == 30
    step = run.next_step()
    budget = filters.Gaussian(epsilon=1.0, delta=1e-5)
    assert budget.admits(mechanisms.Repeated(step, 30))
    assert not budget.admits(mechanisms.Repeated(step, 31))


@pytest.mark.slow
@pytest.mark.parametrize("budget", [filters.RenyiOrder(alpha=8.0, rho=0.3), filters.Renyi(epsilon=2.0, delta=1e-5)])
def test_poisson_samples_charge_everybody_at_every_step(data, budget):
    """Each person's total is the sum over all steps, sampled or not, of the price of the bound of that step."""
    x, y = data
    seen = []

    class Spy(individual.Filter):
        def charge(self, step, norms, people=None, *, sample=None):
            active = super().charge(step, norms, people, sample=sample)
            seen.append((step, np.array(norms), sample, active))
            return active

    accounts = Spy(N, budget)
    run = trainer(accounts, noise_multiplier=1.5, sampling=training.Poisson(0.1, refresh_every=5), steps=23).fit(x, y)
    assert len(seen) == run.step == 23
    again = individual.Filter(N, type(budget).from_state(budget.state()))
    for step, bounds, sample, active in seen:
        assert step == mechanisms.SampledGaussian(1.5, 1.0, 0.1)
        assert (again.charge(step, bounds)[sample] == active).all()
        assert (bounds <= 1.0).all()
    assert (np.asarray(again.spent()) == np.asarray(accounts.spent())).all()
    for block in range(0, 20, 5):  # bounds are assigned at refreshes only
        assert all((seen[block + j][1] == seen[block][1]).all() for j in range(5))
    changed = seen[0][1] != seen[5][1]
    assert changed.any()


def test_contributions_of_samples_keep_to_the_bounds_that_were_charged(data, monkeypatch):
    """A sampled gradient is clipped to the bound fixed before the coin, even where it has grown since."""
    x, y = data
    x = x * 10
    charged, given = [], []

    class Spy(individual.Filter):
        def charge(self, step, norms, people=None, **among):
            charged.append(np.array(norms))
            return super().charge(step, norms, people, **among)

    original = training.Gradients.sums

    def spy(self, inputs, targets, weigh, people=None, observe=None):
        def noting(chosen, norms):
            weights = weigh(chosen, norms)
            given.append((charged[-1], inputs[0][chosen], (weights * norms).numpy()))
            return weights

        return original(self, inputs, targets, noting, people=people, observe=observe)

    monkeypatch.setattr(training.Gradients, "sums", spy)
    run = trainer(
        Spy(N, filters.RenyiOrder(alpha=8.0, rho=5.0)),
        lr=30.0,
        noise_multiplier=1.0,
        sampling=training.Poisson(0.2, refresh_every=8, slack=1.0),
    )
    run.fit(x, y)
    row_of = {tuple(row): number for number, row in enumerate(x.tolist())}
    tight = 0
    for bounds, rows, contributed in given:
        most = bounds[[row_of[tuple(row)] for row in rows.tolist()]]
        assert (contributed <= most * (1 + 1e-9)).all()
        tight += int((contributed >= most * (1 - 1e-9)).sum())
    assert tight > 50


@pytest.mark.parametrize(
    ("steps", "passes"),
    [(10, 1), (11, 1), (12, 2), (21, 3)],  # the refresh at step 9 of 10 would serve one step; at 9 of 12, three
)
def test_bounds_are_not_refreshed_for_the_last_few_steps(data, monkeypatch, steps, passes):
    """A pass over all people is made where a third of the steps that it serves are left."""
    x, y = data
    made, original = [], training.Gradients.norms
    monkeypatch.setattr(training.Gradients, "norms", lambda *args, **given: made.append(1) or original(*args, **given))
    job = trainer(
        filters.RenyiOrder(alpha=8.0, rho=50.0),
        noise_multiplier=1.0,
        steps=steps,
        sampling=training.Poisson(0.1, refresh_every=9),
    )
    job.fit(x, y)
    assert len(made) == passes


def test_several_records_of_a_person_are_sampled_together(data):
    """With people given, accounts are per person, and the run works with and without sampling."""
    x, y = data
    people = torch.arange(N) % 150
    for options in ({}, {"sampling": training.Poisson(0.2), "noise_multiplier": 1.0}):
        budget = filters.RenyiOrder(alpha=8.0, rho=0.3)
        job = trainer(budget, divisor=150, **options)
        job.fit(x, y, people)
        assert job.accounts.spent().shape == (150,)


def test_dropouts_stand_in_front_of_the_accounts(data):
    """A noisy count of the people who dropped out is public during the run."""
    x, y = data
    job = trainer(filters.Gaussian(mu=0.6), noise_multiplier=4.0, sampling=training.FullBatch(pace=0.0, extra_steps=10))
    run = job.fit(x, y, watch=lambda people: stopping.Dropouts(people, stopping.Tree(steps=30, sigma=20.0)))
    assert run.step == 30
    gone = int((np.asarray(job.accounts.allowance(mechanisms.Gaussian(4.0))) < 0.01).sum())
    assert gone > 6 * run.counting.standard_error
    assert abs(run.counting.count - gone) < 5 * run.counting.standard_error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_grad_norm": 0.0}, "max_grad_norm=0"),
        ({"divisor": float("nan")}, "divisor=nan"),
        ({"steps": None}, "steps=None"),
        ({"steps": 0}, "steps=0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier=-1"),
    ],
)
def test_bad_arguments_are_refused_by_name(options, words):
    """The message names the argument and its value."""
    with pytest.raises(errors.ArgumentError, match=words):
        trainer(filters.Gaussian(mu=1.0), **options)


@pytest.mark.parametrize(
    ("sampling", "options", "words"),
    [
        (training.Poisson, {"rate": 1.5}, "rate=1.5"),
        (training.Poisson, {"rate": 0.1, "refresh_every": 0}, "refresh_every=0"),
        (training.FullBatch, {"extra_steps": -1}, "extra_steps=-1"),
    ],
)
def test_bad_arguments_of_a_sampling_are_refused_by_name(sampling, options, words):
    """Before there is a trainer."""
    with pytest.raises(errors.ArgumentError, match=words):
        sampling(**options)


def test_nothing_is_charged_when_a_batch_or_module_is_wrong(data):
    """Errors come before the first charge; a used trainer or budget is refused."""
    x, y = data
    accounts = individual.Filter(N, filters.Gaussian(mu=1.0))
    module = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    with pytest.raises(errors.Unsupported, match="BatchNorm1d"):
        trainer(accounts, module)
    job = trainer(accounts, noise_multiplier=5.0)
    with pytest.raises(errors.ArgumentError, match="targets must have as many"):
        job.fit(x, y[:10])
    assert not np.any(accounts.spent())
    job.fit(x, y)
    with pytest.raises(errors.ArgumentError, match="trained already"):
        job.fit(x, y)
    used = filters.Gaussian(mu=1.0)
    used.charge(mechanisms.Gaussian(10.0))
    with pytest.raises(errors.ArgumentError, match="fresh"):
        trainer(used)


def test_people_whose_gradients_are_not_numbers_do_not_stop_the_others(data):
    """They are out and pay nothing; the model stays finite."""
    x, y = data
    x = x.clone()
    x[3] = torch.nan
    for options in ({}, {"sampling": training.Poisson(0.3), "noise_multiplier": 1.0}):
        job = trainer(filters.RenyiOrder(alpha=8.0, rho=0.5), **options)
        run = job.fit(x, y)
        assert all(bool(torch.isfinite(p).all()) for p in run.module.parameters())
        assert job.accounts.spent()[3] == 0.0


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (lambda module: torch.optim.SGD(network().parameters(), lr=1.0), "4 of the module's 4"),
        (lambda module: torch.optim.SGD(module[2].parameters(), lr=1.0), "2 of the module's 4"),
        (lambda module: torch.optim.SGD, "torch.optim.Optimizer"),
        (lambda module: None, "optimizer=None"),
        (lambda module: torch.optim.LBFGS(module.parameters()), "optimizer=LBFGS computes the loss again"),
        (lambda module: torch.optim.SparseAdam(module.parameters()), "SparseAdam"),
    ],
)
def test_an_optimizer_that_would_not_move_the_module_is_refused(optimizer, words):
    """Else the whole budget is spent on gradients that nobody applies."""
    module, budget = network(), filters.Gaussian(mu=1.0)
    with pytest.raises(errors.ArgumentError, match=words):
        training.Trainer(module, BY_RECORD, optimizer(module), budget, max_grad_norm=1.0, divisor=N, steps=2)
    module[0].requires_grad_(False)  # what is not trained need not be moved
    last = torch.optim.SGD(module[2].parameters(), lr=1.0)
    training.Trainer(module, BY_RECORD, last, budget, max_grad_norm=1.0, divisor=N, steps=2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: {"inputs": x.numpy().astype(str)}, "inputs must hold numbers only"),
        (lambda x, y: {"inputs": None}, "inputs must be a tensor"),
        (lambda x, y: {"inputs": x[:0], "targets": y[:0]}, "at least one record"),
        (lambda x, y: {"targets": y.tolist()}, "targets must be a tensor"),
        (lambda x, y: {"people": [f"person {row}" for row in range(N)]}, "accounts and shares are of rows"),
        (lambda x, y: {"people": torch.arange(N) * 2}, "as many people as there are accounts"),
        (lambda x, y: {"callbacks": print}, "callbacks must be a list"),
        (lambda x, y: {"callbacks": [3]}, "callbacks must be a list"),
    ],
)
def test_what_fit_cannot_take_is_named_before_anybody_is_charged(data, change, words):
    """Texts, names where accounts are rows, no records, a callback without a list: a clear error, nothing is spent."""
    x, y = data
    people = individual.Filter(N, filters.Gaussian(mu=1.0))
    with pytest.raises(errors.ArgumentError, match=words):
        trainer(people).fit(**{"inputs": x, "targets": y} | change(x, y))
    assert not people.spent().any()


def test_people_without_records_do_not_stop_a_run(data):
    """Numbers that nobody's records have, at the end of those who need a new bound, are people of norm zero."""
    x, y = data
    people = torch.arange(N)
    people[N - 3 : N - 1] = N - 4
    job = trainer(
        filters.RenyiOrder(alpha=8.0, rho=0.3), sampling=training.Poisson(0.5, refresh_every=2), noise_multiplier=1.0
    )
    assert job.fit(x, y, people).step == 20
    assert (job.accounts.spent()[N - 3 : N - 1] == 0).all()


def test_gradients_that_were_left_in_the_module_are_never_applied(data):
    """Frozen layers stay where they are, even where a look at private data has left a gradient without noise."""
    x, y = data
    module = network()
    BY_RECORD(module(x), y).sum().backward()
    module[0].requires_grad_(False)
    before = module[0].weight.detach().clone()

    def look(run):  # and a callback that does it again
        BY_RECORD(run.module(x), y).sum().backward()
        module[0].weight.grad = torch.ones_like(before)

    trainer(filters.Gaussian(mu=1.0), module, steps=2).fit(x, y, callbacks=[look])
    assert torch.equal(module[0].weight, before)


def test_modules_that_change_their_input_in_place_leave_the_records_alone(data):
    """Each pass sees the records as they were given."""
    x, y = data
    given = x.clone()
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 2))
    job = trainer(filters.Gaussian(mu=3.0), module, steps=2, noise_multiplier=10.0)
    job.fit(x, y, callbacks=[lambda run: run.noisy_sum(correct, sigma=50.0)])
    assert torch.equal(x, given)


def test_the_planned_steps_fit_whatever_the_clip_is(data):
    """Noise is a multiple of the clip: rounded up, so that the last step of full contributions fits."""
    randoms = np.random.default_rng(0)
    for _ in range(100):
        clip, steps = float(randoms.lognormal(0.0, 2.0)), int(randoms.integers(1, 200))
        budget = filters.Gaussian(mu=float(randoms.lognormal()))
        job = trainer(budget, max_grad_norm=clip, steps=steps)
        budget.charge(mechanisms.Repeated(mechanisms.Gaussian(job.noise_multiplier * clip, clip), steps))


def test_what_stands_in_front_of_the_accounts_is_theirs(data):
    """Other accounts, other things, or fewer counts than steps are refused."""
    elsewhere = stopping.Dropouts(individual.Filter(N, filters.Zcdp(rho=1.0)), stopping.Tree(steps=20, sigma=50.0))
    for counting in (lambda _: elsewhere, lambda people: people):
        with pytest.raises(errors.ArgumentError, match="of the accounts that it is given"):
            trainer(filters.Zcdp(rho=1.0)).fit(*data, watch=counting)
    with pytest.raises(errors.ArgumentError, match="10 counts are fewer"):
        trainer(filters.Zcdp(rho=1.0)).fit(
            *data, watch=lambda people: stopping.Dropouts(people, stopping.Tree(steps=10, sigma=50.0))
        )


def test_shares_need_accounts_per_person(data):
    """Where everybody is charged the worst case there is nothing to show."""
    job = trainer(filters.Zcdp(rho=1.0), individual=False)
    job.fit(*data)
    with pytest.raises(errors.ArgumentError, match="individual=False"):
        job.shares()
    with pytest.raises(errors.ArgumentError, match="individual=False"):
        _ = job.holder_report


def test_the_last_accounts_may_be_of_people_without_records(data):
    """As any other may be."""
    x, y = data
    accounts = individual.Filter(N + 3, filters.Zcdp(rho=1.0))
    run = trainer(accounts).fit(x, y, torch.arange(N))
    assert run.step == 20
    assert (accounts.spent()[N:] == 0).all()
    sampled = individual.Filter(N + 3, filters.RenyiOrder(alpha=8.0, rho=0.3))
    assert trainer(sampled, sampling=training.Poisson(0.1), noise_multiplier=2.0).fit(x, y, torch.arange(N)).step == 20
    assert (sampled.spent()[N:] == 0).all()


def test_noise_is_not_drawn_before_a_run_begins(data, monkeypatch):
    """Processes forked from one that has made a trainer must not share its noise."""
    from almoner.training import _trainer as room

    made = []
    monkeypatch.setattr(room, "noise_generator", lambda *told: made.append(told) or noise_generator(*told))
    job = trainer(filters.Zcdp(rho=1.0))
    assert not made
    job.fit(*data)
    assert len(made) == 1


def test_a_budget_is_given_to_one_training(data):
    """A second trainer, or a charge, finds nothing left in it; a fresh copy is another budget."""
    budget = filters.Gaussian(mu=1.0)
    first, second = (trainer(budget, steps=2) for _ in range(2))
    first.fit(*data)
    with pytest.raises(errors.BudgetExceeded, match=r"Trainer\.fit"):
        second.fit(*data)
    with pytest.raises(errors.BudgetExceeded):
        budget.charge(mechanisms.Gaussian(100.0))
    with pytest.raises(errors.BudgetExceeded):
        budget.state()
    assert not budget.admits(mechanisms.Gaussian(100.0))
    assert budget.fresh().admits(mechanisms.Gaussian(100.0))


def test_a_resumed_run_may_be_given_the_same_budget(data, tmp_path):
    """It goes on with the accounts of the checkpoint, so nothing is spent twice; a fresh run beside it is refused."""
    budget = filters.Gaussian(mu=1.0)

    def stop(run):
        if run.step == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(budget, steps=2).fit(*data, folder=tmp_path / "run", callbacks=[stop])
    again = trainer(budget, steps=2)
    assert again.fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True)).step == 2
    with pytest.raises(errors.BudgetExceeded):
        trainer(budget, steps=2).fit(*data)


@pytest.mark.parametrize("kind", ["trainer", "bounds of samples", "stream"])
@pytest.mark.parametrize("seed", [None, 3])
def test_without_a_seed_nobody_knows_the_coins_of_dropout(kind, seed):
    """One person more gives all later ones other coins: after one manual_seed two runs drop other inputs."""
    dropped = []
    for _ in range(2):
        torch.manual_seed(0)
        module, seen = nn.Sequential(nn.Dropout(), nn.Linear(40, 2)), []
        module[0].register_forward_hook(lambda _module, _inputs, output, seen=seen: seen.append(output.detach() == 0))
        job = training.Stream if kind == "stream" else training.Trainer
        count = {"updates": 2} if kind == "stream" else {"steps": 40, "divisor": 30}
        count |= {"sampling": training.Poisson(0.5)} if kind == "bounds of samples" else {}
        run = job(
            module,
            BY_RECORD,
            torch.optim.SGD(module.parameters(), lr=0.1),
            filters.Renyi(epsilon=1.0, delta=1e-5),
            max_grad_norm=1.0,
            seed=seed,
            **count,
        )
        x, y = torch.ones(30, 40), torch.zeros(30, dtype=torch.long)
        torch.manual_seed(0)
        if kind == "stream":
            run.update(x, y, np.arange(30), divisor=30)
        else:
            run.fit(x, y)
        dropped.append([each for each in seen if len(each) == 30][-1])  # of the sum, or of the norms before samples
    assert torch.equal(*dropped) == (seed is not None)
