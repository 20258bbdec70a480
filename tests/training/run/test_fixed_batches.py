"""The trainer with fixed batches and correlated noise: the algorithm written out, accounts, crashes, refusals."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from almoner import errors, filters, individual, mechanisms, odometers, training
from almoner.training import FixedBatches, stopping
from almoner.training._run.books import MemoryBook
from almoner.training._run.folder import _read
from almoner.training.correlated import Banded, BandedInverse, PrefixSums
from almoner.training.correlated._factor import Noise
from gradient_modules import naive
from training_runs import BY_RECORD, N, dies, network, trainer

FACTORS = [PrefixSums(), Banded(4), BandedInverse(4)]
each_factor = pytest.mark.parametrize("noise", FACTORS, ids=repr)
BATCHES = FixedBatches(80)  # of 400 people: five batches
STEPS = 20


def batches_of(x, y, people=None, n=N):
    return BATCHES.of_records((x.numpy(), y.numpy()), people, count=5, n=n)


def rows_of(module, x, y):
    rows = [torch.cat([part.reshape(-1) for part in parts]) for parts in naive(module, BY_RECORD, (x,), y)]
    return torch.stack(rows).double()


def made(noise, budget=None, module=None, **options):
    budget = filters.Gaussian(mu=1.0) if budget is None else budget
    return trainer(budget, module, **({"sampling": replace(BATCHES, noise=noise), "steps": STEPS} | options))


def by_hand(description, x, y, *, sigma, mu, key):
    """Dense matrices: the rows of C G + z, what they hold of each person, and C^-1 of them as gradients."""
    module, factor, batch = network(), description.factor(STEPS), batches_of(x, y)
    matrix = factor.columns(range(STEPS))
    products = np.abs(matrix.T @ matrix)
    z = np.array([Noise(factor, 50, key=key).draw(t) for t in range(STEPS)])
    given, rows, sums = np.zeros((len(x), STEPS)), np.zeros((STEPS, 50)), np.zeros((STEPS, 50))
    for t in range(STEPS):
        members = np.flatnonzero(batch == t % 5)
        gradients = rows_of(module, x[members], y[members]).numpy()
        norms = np.minimum(np.linalg.norm(gradients, axis=1), 1.0)
        trial = given[members].copy()
        trial[:, t] = norms
        paid = np.einsum("is,st,it->i", trial, products, trial)
        norms = np.where(paid <= (mu * sigma) ** 2, norms, 0.0)
        given[members, t] = norms
        sums[t] = (gradients * (norms / np.linalg.norm(gradients, axis=1))[:, None]).sum(0)
        rows[t] = matrix[t] @ sums + sigma * z[t]
        step = np.linalg.solve(matrix[: t + 1, : t + 1], rows[: t + 1])[t] / 80
        start = 0
        with torch.no_grad():
            for parameter in module.parameters():
                part = step[start : start + parameter.numel()]
                parameter -= torch.from_numpy(part).view(parameter.shape).float()
                start += parameter.numel()
    return module, np.einsum("is,st,it->i", given, products, given)


def flat(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


@pytest.mark.slow
@each_factor
def test_steps_are_those_of_the_matrix_mechanism(data, noise):
    """Release C G + z row by row with dense matrices, solve for the gradients: the same model and the same accounts."""
    x, y = data
    sigma, mu, seed = 2.0, 0.75, 7
    sampling = replace(BATCHES, noise=noise, spend_remainder=False)
    run = made(noise, filters.Gaussian(mu=mu), noise_multiplier=sigma, sampling=sampling, seed=seed)
    size = len(flat(run.module))
    assert size == 50
    run.fit(x, y)
    key = int.from_bytes(np.random.default_rng([seed, 1]).bytes(16), "little")
    expected, spent = by_hand(noise, x, y, sigma=sigma, mu=mu, key=key)
    assert torch.allclose(flat(run.module), flat(expected), atol=5e-4)
    assert np.allclose(run.accounts.spent() * sigma**2, spent, atol=2e-3)
    assert (run.accounts.left() * sigma**2 < 0.5).any()


@pytest.mark.quick(7)
@each_factor
@pytest.mark.parametrize("remainder", [True, False])
def test_nobody_contributes_more_than_is_charged(data, noise, remainder, monkeypatch):
    """In exact arithmetic: what all rows hold of each person, by norms, is at most the account, and the budget."""
    x, y = data
    sigma, mu = 2.0, 0.75
    contributed, batch, number, real = np.zeros((N, STEPS)), batches_of(x, y), -1, training.Gradients.sums

    def spy(self, inputs, targets, weigh, people=None):
        nonlocal number
        number += 1
        members = np.flatnonzero(batch == number % 5)

        def noting(rows, norms):
            weights = weigh(rows, norms)
            contributed[members[rows.numpy()], number] = (weights * norms).numpy()
            return weights

        return real(self, inputs, targets, noting, people=people)

    monkeypatch.setattr(training.Gradients, "sums", spy)
    budget = filters.Gaussian(mu=mu)
    sampling = replace(BATCHES, noise=noise, spend_remainder=remainder, pace=0.0)
    run = made(noise, budget, noise_multiplier=sigma, sampling=sampling, seed=1)
    run.fit(x, y)
    columns = noise.factor(STEPS).columns(range(STEPS))
    units = run.accounts.state()["spent"][:, 0].tolist()
    for person in range(0, N, 7):
        norms = [Fraction(float(v)) for v in contributed[person]]
        square = sum(
            sum(Fraction(abs(float(c))) * n for c, n in zip(row, norms, strict=True) if n) ** 2 for row in columns
        )
        assert square / Fraction(sigma) ** 2 * (1 - Fraction(1, 10**12)) <= Fraction(units[person], 10**15)
        assert units[person] <= Fraction(75, 100) ** 2 * 10**15
    assert (np.count_nonzero(contributed, axis=1) > 1).any()
    assert (run.accounts.left() < 1e-9).any() or not remainder


@each_factor
def test_the_noise_that_is_searched_spends_the_budget(data, noise):
    """With noise for the plan, a person at the clip in every place keeps within the budget, and all of it is used."""
    x, y = data
    run = made(noise, max_grad_norm=0.01)
    run.fit(x, y)
    assert 1 - 1e-9 < run.shares().max() <= 1
    assert run.noise_multiplier == pytest.approx(
        max(noise.factor(STEPS).sensitivity_at(range(j, STEPS, 5)) for j in range(5)), rel=1e-9
    )


@each_factor
def test_without_accounts_all_pay_the_published_sensitivity_once(data, noise):
    """individual=False: one charge before the first step, of the largest sensitivity over the batches."""
    x, y = data
    run = made(noise, individual=False, noise_multiplier=3.0, budget=filters.Gaussian(mu=2.0))
    run.fit(x, y)
    worst = max(noise.factor(STEPS).sensitivity_at(range(j, STEPS, 5)) for j in range(5))
    assert run.accounts.state()["spent"] == pytest.approx(
        [(worst / 3.0) ** 2 * 1e30], rel=1e-9
    ) or run.accounts.state()["spent"] == pytest.approx((worst / 3.0) ** 2 * 1e30, rel=1e-9)
    broke = made(noise, individual=False, noise_multiplier=3.0, budget=filters.Gaussian(mu=worst / 3.0 * 0.999))
    assert broke.fit(x, y).reason == "the budget is spent"
    assert broke.card(delta=1e-5).steps == 0


def test_several_records_are_one_person(data):
    """Four records a person: clipped and charged together, in one batch; the sum is the sum over people."""
    x, y = data
    people = torch.arange(N) // 4
    run = made(Banded(4), divisor=400, max_grad_norm=0.5)
    run.fit(x, y, people)
    assert run.accounts.spent().shape == (100,)
    assert run.shares().max() <= 1
    assert (run.accounts.spent() > 0).all()


def test_somebody_else_changes_nobodys_places(data):
    """Without a move of the model, nobody's account depends on who else is there."""
    x, y = data
    whole = made(Banded(4), lr=0.0, seed=3)
    whole.fit(x, y)
    for gone in (0, 17, N - 1):
        stay = np.delete(np.arange(N), gone)
        less = made(Banded(4), lr=0.0, seed=3)
        less.fit(x[stay], y[stay])
        assert less.accounts.spent() == pytest.approx(whole.accounts.spent()[stay], rel=1e-6)  # of float32 gradients


class Killed(Exception):
    """Stands for a crash."""


def killed_at(step):
    def callback(run):
        if run.step == step:
            raise Killed

    return callback


@pytest.mark.slow
@each_factor
def test_a_run_that_lost_nothing_goes_on(data, noise, tmp_path):
    """Killed between two steps, after it was saved: the rows stay those of one mechanism, and are paid once."""
    x, y = data
    first = made(noise, max_grad_norm=0.01, seed=5)
    with pytest.MonkeyPatch.context() as patch:
        real = MemoryBook.release

        def release(self, *arguments, **options):
            if self.current.value.step == 8:
                raise Killed
            return real(self, *arguments, **options)

        patch.setattr(MemoryBook, "release", release)
        with pytest.raises(Killed):
            first.fit(x, y, folder=training.RunFolder(tmp_path, every=1))
    again = made(noise, max_grad_norm=0.01, seed=5)
    run = again.fit(x, y, folder=training.RunFolder(tmp_path, resume=True))
    whole = made(noise, max_grad_norm=0.01, seed=5)
    whole.fit(x, y)
    assert run.step == run.released[run.next_step()] == STEPS
    assert np.allclose(again.accounts.spent(), whole.accounts.spent(), rtol=1e-6)  # nearly everybody is at the clip
    saved = _read(tmp_path / "state.npz")["parts"]["sampling"]
    assert [start for start, _ in saved["keys"]] == [0, 8]
    assert None not in dict(saved["keys"]).values()
    assert (saved["past"][:, 0] > 0).all()


def spent_at(folder):
    return _read(folder / "state.npz")["parts"]["book"]["accounts"]["spent"][:, 0]


@pytest.mark.slow
@each_factor
def test_lost_steps_are_paid_by_their_people_and_noise_begins_anew(data, noise, tmp_path):
    """Four steps are lost: the people of their batches pay the most that a step costs; others pay nothing; and no row
    after that holds what was in rows before."""
    x, y = data
    mu = 30.0
    first = made(noise, filters.Gaussian(mu=mu), noise_multiplier=1.0)
    with dies(Killed):
        first.fit(x, y, folder=training.RunFolder(tmp_path, every=5), callbacks=[killed_at(9)])
    before = spent_at(tmp_path)
    again = made(noise, filters.Gaussian(mu=mu), noise_multiplier=1.0)
    seen = {}

    class Look:
        def began(self, _):
            seen["spent"] = spent_at(tmp_path)

        def __call__(self, run):
            pass

    run = again.fit(x, y, folder=training.RunFolder(tmp_path, resume=True), callbacks=[Look()])
    paid = seen["spent"] - before
    most = run.next_step().sensitivity ** 2 * 1e15
    batch = batches_of(x, y)
    assert np.allclose(paid[batch != 4], most, rtol=1e-9)  # steps 5 to 8 are those of batches 0 to 3
    assert (paid[batch == 4] == 0).all()
    saved = _read(tmp_path / "state.npz")["parts"]["sampling"]
    assert saved["keys"][0] == [0, None]
    assert [first for first, _ in saved["keys"]] == [0, 5]
    assert not saved["past"][:, 0].any()


def test_lost_steps_use_no_noise_again(data, tmp_path):
    """The draws of the steps that are taken again are fresh: the same ones would cancel between the attempts."""
    x, y = data
    kept = []

    class Spy(Noise):
        def normal(self, mean, sigma, size):
            kept.append((self.step, self.draw(self.step)))
            return super().normal(mean, sigma, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("almoner.training._run.fixed_batches.Noise", Spy)
        first = made(Banded(4), filters.Gaussian(mu=30.0), noise_multiplier=1.0, seed=9)
        with dies(Killed):
            first.fit(x, y, folder=training.RunFolder(tmp_path, every=5), callbacks=[killed_at(9)])
        again = made(Banded(4), filters.Gaussian(mu=30.0), noise_multiplier=1.0, seed=9)
        again.fit(x, y, folder=training.RunFolder(tmp_path, resume=True))
    assert [step for step, _ in kept] == [*range(9), *range(5, STEPS)]
    values = np.concatenate([draw for _, draw in kept])
    assert len(np.unique(values)) == len(values)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampling": 80}, "sampling=80 must be"),
        ({"noise": 4}, "noise=4 must be"),
        ({"noise": Banded(6)}, "band=6 must be at most 5, the number of batches"),
        ({"sampling": FixedBatches(401)}, "size=401 must be at most"),
        ({"steps": None, "individual": False, "noise_multiplier": 1.0}, "steps=None"),
        ({"budget": odometers.Renyi(delta=1e-5)}, "an odometer is not done together"),
        ({"budget": filters.Residue(epsilon=1.0, delta=1e-5)}, "FixedBatches needs a filters.Gaussian"),
    ],
)
def test_what_does_not_go_together_is_refused(options, words):
    """The error names the argument and the rule, before any data are read."""
    with pytest.raises(errors.AlmonerError, match=words):
        made(**({"noise": Banded(4)} | options))


def test_an_odometer_beside_batches_is_refused(data):
    """It has no price for rows that hold earlier contributions too."""
    with pytest.raises(errors.Unsupported, match="odometer is not done together with FixedBatches"):
        made(Banded(4)).fit(*data, watch=odometers.Renyi(delta=1e-5))


def test_what_would_break_the_account_is_refused_before_it_is_charged(data, tmp_path):
    """Other noise in the middle, counting, losses, another factor at a resume."""
    x, y = data

    def quieter(run):
        run.noise_multiplier = 0.1

    run = made(Banded(4))
    with pytest.raises(errors.ArgumentError, match="can't be set in a run with fixed batches"):
        run.fit(x, y, callbacks=[quieter])
    assert not run.accounts.spent().any()
    with pytest.raises(errors.Unsupported, match="drops are not counted"):
        made(Banded(4)).fit(x, y, watch=lambda people: stopping.Dropouts(people, stopping.Tree(STEPS, 5.0)))
    with pytest.raises(errors.Unsupported, match="losses are not counted"):
        made(Banded(4)).fit(x, y, watch=individual.Losses(N, least=1.0, most=50.0))
    first = made(Banded(4))
    with pytest.raises(Killed):
        first.fit(x, y, folder=training.RunFolder(tmp_path, every=1), callbacks=[killed_at(5)])
    with pytest.raises(errors.ArgumentError, match="batches="):
        made(Banded(3)).fit(x, y, folder=training.RunFolder(tmp_path, resume=True))
    with pytest.raises(errors.ArgumentError, match="must be that of the folder"):
        made(None, sampling=training.FullBatch()).fit(x, y, folder=training.RunFolder(tmp_path, resume=True))


def test_empty_batches_and_half_precision_records(data):
    """Three people in three batches, of which some may be empty: every step is taken; all types have bytes."""
    x, y = data
    run = made(Banded(3), sampling=FixedBatches(1, noise=Banded(3)), divisor=3, steps=9)
    run.fit(x[:3], y[:3])
    assert run.card(delta=1e-5).steps == 9
    stored = [part.reshape(len(part), -1).view(torch.uint8).numpy() for part in (x.bfloat16(), y > 0)]
    batch = BATCHES.of_records(stored, None, count=5, n=N)
    assert set(batch) == set(range(5))


def test_the_card_says_what_noise_it_was(data):
    """Batches, factor and theorem are on the card; the divisor is that of a batch."""
    x, y = data
    run = made(Banded(4))
    run.fit(x, y)
    card = run.card(delta=1e-5)
    assert "fixed batches by people's own records, nobody sampled" in card.to_markdown()
    assert "Banded(band=4" in card.batches
    assert "theory 5.11" in card.to_markdown()
    assert card.divisor == 80
    (released,) = card.released
    assert released == (mechanisms.Gaussian(run.noise_multiplier, released[0].sensitivity), STEPS)
