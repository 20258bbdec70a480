"""Opacus: training stops before the step that is not paid for, and everybody pays for an own bound at every step."""

import functools
import re
import sys
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from almoner import filters, individual, mechanisms, odometers
from almoner.accounting import calibrate
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, BudgetExceeded, CopyRefused, MissingExtra, Unsupported

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")

from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from almoner.interop import opacus as ours  # noqa: E402
from almoner.training._card import build_card  # noqa: E402
from almoner.training.callbacks import AdamBC  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:Secure RNG", "ignore:Full backward hook is firing", "ignore:Expected mean of"
)
N, CLIP, NOISE, Q = 60, 0.8, 1.5, 0.1
COINS = 2.0**-23
ROUND = mechanisms.SampledGaussian(NOISE * CLIP, CLIP, Q + COINS)


def data(people=N):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(people, 1, 8, 8, generator=generator) * torch.linspace(0.01, 3, people)[:, None, None, None]
    return TensorDataset(inputs, (inputs.mean((1, 2, 3)) > 0).long())


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, 2, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(36, 2, bias=False))


def private(engine, *, people=N, batches=10, noise=NOISE, workers=0, ids=None, **options):
    """What every Opacus script does."""
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    loader = DataLoader(data(people), batch_size=-(-people // batches), shuffle=True, num_workers=workers)
    return engine.make_private(
        module=module,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=CLIP,
        **(options if ids is None else options | {"people": ids}),
    )


def step(module, optimizer, x, y, loss=nn.functional.cross_entropy):
    optimizer.zero_grad()
    loss(module(x), y).backward()
    optimizer.step()


def parameters(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


def budget(rho=2.0):
    return filters.RenyiOrder(alpha=8, rho=rho)


def accounts(rho=2.0, people=N):
    return individual.Filter(people, budget(rho))


# --- the accountant -------------------------------------------------------------------------------------------------


def test_the_engine_charges_each_step_as_by_hand():
    """After two epochs the filter has the price of as many sampled Gaussian rounds, to the unit."""
    ledger, by_hand = budget(), budget()
    engine = ours.PrivacyEngine(ledger)
    module, optimizer, loader = private(engine)
    for _ in range(2):
        for x, y in loader:
            step(module, optimizer, x, y)
    by_hand.charge(
        mechanisms.Repeated(mechanisms.SampledGaussian(NOISE, 1.0, 1 / len(loader) + COINS), 2 * len(loader))
    )
    assert ledger.spent == by_hand.spent > 0
    assert len(engine.accountant) == ledger.count == 2 * len(loader)
    assert engine.accountant.history == [(NOISE, 1 / len(loader) + COINS, 2 * len(loader))]


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_the_step_that_does_not_fit_changes_nothing(mode):
    """BudgetExceeded leaves step() with the parameters as they were, and no noisy gradient is left to be found."""
    price = mechanisms.SampledGaussian(NOISE, 1.0, Q + COINS)
    one = budget()
    one.charge(price)
    ledger = budget(rho=one.spent * 3.5)
    module, optimizer, *loss, loader = private(ours.PrivacyEngine(ledger), grad_sample_mode=mode)
    loss = loss[0] if loss else nn.functional.cross_entropy
    batches = iter(loader)
    for _ in range(3):
        before = parameters(module)
        step(module, optimizer, *next(batches), loss)
        assert not torch.equal(before, parameters(module))
    before = parameters(module)
    with pytest.raises(BudgetExceeded):
        step(module, optimizer, *next(batches), loss)
    assert ledger.count == 3
    assert torch.equal(before, parameters(module))
    assert all(p.grad is None for p in optimizer.params)


def test_noise_may_change_and_each_step_has_its_own_price():
    """The price follows the optimizer's noise multiplier of the moment."""
    ledger, by_hand = filters.Renyi(epsilon=8.0, delta=1e-5), filters.Renyi(epsilon=8.0, delta=1e-5)
    module, optimizer, loader = private(ours.PrivacyEngine(ledger))
    for (x, y), noise in zip(loader, (2.0, 1.5, 1.2), strict=False):
        optimizer.noise_multiplier = noise
        step(module, optimizer, x, y)
        by_hand.charge(mechanisms.SampledGaussian(noise, 1.0, 1 / len(loader) + COINS))
    assert ledger.state()["spent"] == by_hand.state()["spent"]


def test_it_works_as_a_plain_engines_accountant_too():
    """Set on Opacus's own engine, or registered under a name."""
    ledger = budget()
    opacus.accountants.register_accountant("filter", functools.partial(ours.Accountant, ledger), force=True)
    engine = opacus.PrivacyEngine(accountant="filter")
    module, optimizer, loader = private(engine)
    step(module, optimizer, *next(iter(loader)))
    assert ledger.count == 1
    engine = opacus.PrivacyEngine(accountant="filter")
    with pytest.raises(Unsupported, match=r"calibrate\.sigma"):
        engine.make_private_with_epsilon(
            module=network(), optimizer=optimizer, data_loader=loader, target_epsilon=1.0, target_delta=1e-5, epochs=1,
            max_grad_norm=1.0,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("ledger", "epsilon"),
    [
        (filters.Renyi(epsilon=2.0, delta=1e-5), 2.0),
        (filters.RenyiOrder(alpha=8, rho=0.5), 0.5 + np.log(7 / 8) - np.log(8e-5) / 7),
        (filters.RenyiCurve(orders=[8, 16], values=[0.5, 99.0]), 0.5 + np.log(7 / 8) - np.log(8e-5) / 7),
    ],
)
def test_epsilon_is_the_promise_of_the_budget(ledger, epsilon):
    """Nothing before the first charge; then what holds whenever training stops."""
    accountant = ours.Accountant(ledger)
    assert accountant.get_epsilon(1e-5) == 0.0
    accountant.step(noise_multiplier=4.0, sample_rate=0.01)
    assert accountant.get_epsilon(delta=1e-5) == pytest.approx(epsilon, rel=1e-9)
    assert accountant.get_epsilon(1e-4) <= accountant.get_epsilon(1e-5)
    accountant.step(noise_multiplier=4.0, sample_rate=0.01)
    assert accountant.get_epsilon(delta=1e-5) == pytest.approx(epsilon, rel=1e-9)


def test_no_promise_below_the_budgets_own_delta():
    """An (epsilon, delta) budget says nothing at a smaller delta; a Gaussian budget does, without sampling."""
    accountant = ours.Accountant(filters.Renyi(epsilon=2.0, delta=1e-5))
    accountant.step(noise_multiplier=4.0, sample_rate=0.01)
    with pytest.raises(Unsupported, match="1e-07"):
        accountant.get_epsilon(1e-7)
    whole = ours.Accountant(filters.Gaussian(epsilon=2.0, delta=1e-5))
    whole.step(noise_multiplier=40.0, sample_rate=1.0)
    assert whole.get_epsilon(1e-5) == pytest.approx(2.0, rel=1e-6)
    assert whole.get_epsilon(1e-7) > 2.0
    with pytest.raises(Unsupported):
        whole.step(noise_multiplier=40.0, sample_rate=0.1)


def test_a_checkpoint_is_charged_to_the_new_budget():
    """After loading, the filter that the caller holds has spent what was spent; another budget is refused."""
    first = ours.Accountant(budget())
    for noise in (3.0, 3.0, 2.0):
        first.step(noise_multiplier=noise, sample_rate=0.1)
    ledger = budget()
    second = ours.Accountant(ledger)
    second.load_state_dict(first.state_dict())
    assert ledger.spent == first.held.spent
    assert (len(second), second.history) == (3, [(3.0, 0.1, 2), (2.0, 0.1, 1)])
    with pytest.raises(ArgumentError, match="another budget"):
        ours.Accountant(budget(rho=3.0)).load_state_dict(first.state_dict())
    first.held.charge(mechanisms.Gaussian(10.0))
    with pytest.raises(ArgumentError, match="something else"):
        ours.Accountant(budget()).load_state_dict(first.state_dict())
    with pytest.raises(ArgumentError, match="state of an almoner"):
        second.load_state_dict(opacus.accountants.RDPAccountant().state_dict())


@pytest.mark.parametrize("make", [filters.Renyi, filters.Residue], ids=lambda kind: kind.__name__)
def test_checkpoints_of_other_budgets(make):
    """Replaying a checkpoint gives the state that was saved, to the unit, also where prices depend on what is left."""
    first, second = (ours.Accountant(make(epsilon=6.0, delta=1e-5)) for _ in range(2))
    for noise in (4.0, 4.0, 3.0, 4.0):
        first.step(noise_multiplier=noise, sample_rate=0.05)
    second.load_state_dict(first.state_dict())
    assert second.held.state() == first.held.state()
    assert second.history == first.history


def test_an_accountant_cannot_be_rewritten_or_copied():
    """Its history is what was charged."""
    import copy

    accountant = ours.Accountant(budget())
    with pytest.raises(Unsupported):
        accountant.history = []
    with pytest.raises(CopyRefused):
        copy.deepcopy(accountant)
    with pytest.raises(ArgumentError, match="must be a filter"):
        ours.Accountant(1.0)


def test_noise_of_zero_stops_the_step():
    """What has no price is not released; an engine that sees it before training refuses then."""
    with pytest.raises(ArgumentError, match="noise_multiplier"):
        private(ours.PrivacyEngine(budget()), noise=0.0)
    engine = opacus.PrivacyEngine()
    engine.accountant = ours.Accountant(budget())
    module, optimizer, loader = private(engine, noise=0.0)
    before = parameters(module)
    with pytest.raises(ArgumentError, match="sigma"):
        step(module, optimizer, *next(iter(loader)))
    assert torch.equal(before, parameters(module))


def test_batches_in_one_step_are_refused():
    """A person may be in several of them, with a clip in each: by our engine, and by an accountant of Opacus's own."""
    module, optimizer, loader = private(ours.PrivacyEngine(budget()))
    batches = iter(loader)
    x, y = next(batches)
    nn.functional.cross_entropy(module(x), y).backward()
    with pytest.raises(Unsupported, match=r"called before.*torch\.no_grad"):
        module(x)
    optimizer.step()
    engine = opacus.PrivacyEngine()
    engine.accountant = ours.Accountant(budget())
    module, optimizer, loader = private(engine)
    module.allow_grad_accumulation()
    batches = iter(loader)
    before = parameters(module)
    for _ in range(2):
        x, y = next(batches)
        nn.functional.cross_entropy(module(x), y).backward()
    with pytest.raises(Unsupported, match="several Poisson batches"):
        optimizer.step()
    assert torch.equal(before, parameters(module))


def test_the_engine_refuses_what_has_no_price():
    """Shuffled batches, invented records for empty ones, other clips, words of no meaning, and two budgets."""
    engine = ours.PrivacyEngine(budget())
    for options, match in (
        ({"poisson_sampling": False}, "poisson_sampling=False: only Poisson samples"),
        ({"rand_on_empty": True}, "rand_on_empty=True: an invented record"),
        ({"clipping": "per_layer"}, "clipping='per_layer'"),
        ({"batch_first": False}, "batch_first=False"),
        ({"n_clients": 3}, "n_clients=3: it has no meaning here"),
    ):
        with pytest.raises(Unsupported, match=match):
            private(engine, **options)
    with pytest.raises(ArgumentError, match="has a budget or a plan"):
        engine.make_private_with_epsilon(data_loader=None, target_epsilon=1.0, target_delta=1e-5, epochs=1)


# --- by our own gradients -------------------------------------------------------------------------------------------


def flat(parts):
    return torch.cat([part.detach().flatten() for part in parts])


@pytest.fixture
def silent(monkeypatch):
    """No noise: what is left is the sum of what people contributed."""
    monkeypatch.setattr(ours.PrivateOptimizer, "_noisy", lambda _, total: total)


def test_target_epsilon_is_answered():
    """The noise is the certified least for so many epochs; epsilon is the target, and the run ends in time."""
    engine, module = ours.PrivacyEngine(), network()
    optimizer, loader = torch.optim.SGD(module.parameters(), lr=0.5), DataLoader(data(), batch_size=6)
    options = {"target_epsilon": 3.0, "target_delta": 1e-5, "epochs": 1.5, "max_grad_norm": CLIP}
    module, optimizer, loader = engine.make_private_with_epsilon(
        module=module, optimizer=optimizer, data_loader=loader, **options
    )
    found = calibrate.in_advance(epsilon=3.0, delta=1e-5, steps=15, sample_rate=Q + COINS).noise_multiplier
    assert optimizer.noise_multiplier == found
    assert 2.99 < engine.get_epsilon(1e-5) <= 3.0
    for x, y in loader:
        step(module, optimizer, x, y)
    batches = iter(loader)
    for _ in range(5):
        step(module, optimizer, *next(batches))
    with pytest.raises(BudgetExceeded, match="all 15 steps"):
        step(module, optimizer, *next(batches))
    assert len(engine.accountant) == 15
    with pytest.raises(ArgumentError, match=r"PrivacyEngine\(\)\.make_private_with_epsilon"):
        engine.make_private_with_epsilon(data_loader=loader, **options)


def test_an_engine_without_a_budget_takes_no_step():
    """With neither a budget nor accounts nobody would pay: the first step says what to write."""
    engine = ours.PrivacyEngine()
    module, optimizer, loader = private(engine)
    with pytest.raises(ArgumentError, match="has no budget"):
        engine.get_epsilon(1e-5)  # not zero
    before = parameters(module)
    with pytest.raises(ArgumentError, match=r"nobody would be charged: PrivacyEngine\(epsilon=, delta=\)"):
        step(module, optimizer, *next(iter(loader)))
    assert torch.equal(before, parameters(module))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_everybody_in_one_batch_is_plain_descent(silent, reduction):
    """Without noise, and with a clip that nothing exceeds, the gradient is that of the same loop without privacy."""
    loss = nn.CrossEntropyLoss(reduction=reduction)
    module, optimizer, criterion, loader = private(
        ours.PrivacyEngine(steps=9), batches=1, loss_reduction=reduction, criterion=loss, grad_sample_mode="ghost"
    )
    assert criterion is loss
    optimizer.max_grad_norm = 1e6
    (x, y), plain = next(iter(loader)), network()
    loss(plain(x), y).backward()
    criterion(module(x), y).backward()
    optimizer.step()
    torch.testing.assert_close(flat(p.grad for p in optimizer.params), flat(p.grad for p in plain.parameters()))
    assert len(x) == N


def test_losses_whose_records_depend_on_each_other_are_refused_where_they_are_seen():
    """A mean by the weights of a batch's labels, and a sum that is said to be a mean, change with one person more."""
    engine = ours.PrivacyEngine(steps=9)
    with pytest.raises(Unsupported, match="depends on others' labels"):
        private(engine, criterion=nn.CrossEntropyLoss(weight=torch.ones(2)))
    with pytest.raises(ArgumentError, match="loss_reduction='sum'"):
        private(engine, criterion=nn.CrossEntropyLoss(reduction="sum"))
    private(engine, criterion=nn.CrossEntropyLoss(weight=torch.ones(2), reduction="none"))


def test_an_optimizer_that_wants_its_run_is_refused_before_anybody_pays():
    """AdamBC must be told the noise, which nobody does here."""
    module = network()
    with pytest.raises(Unsupported, match=r"AdamBC wants to know its run"):
        ours.PrivacyEngine(steps=9).make_private(
            module=module, optimizer=AdamBC(module.parameters()), data_loader=DataLoader(data(), batch_size=N),
            noise_multiplier=1.0, max_grad_norm=CLIP,
        )  # fmt: skip


class Dropped(nn.Module):
    """A layer that forgets, and remembers what."""

    def __init__(self):
        super().__init__()
        self.inner, self.drop, self.seen = nn.Linear(64, 2, bias=False), nn.Dropout(0.5), []

    def forward(self, x):
        kept = self.drop(x.flatten(1))
        self.seen.append((kept != 0).clone())
        return self.inner(kept)


def test_coins_of_the_second_pass_do_not_depend_on_who_is_in_the_batch(silent):
    """The second pass takes chunks: coins that are the first pass's in one chunk, and others in two, would have one
    person more change what all others give. So they are never the first pass's."""
    torch.manual_seed(0)
    module = Dropped()
    private_module, optimizer, loader = ours.PrivacyEngine(steps=9).make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.0), noise_multiplier=1.0,
        data_loader=DataLoader(data(), batch_size=N), max_grad_norm=CLIP,
    )  # fmt: skip
    for at_once in (N, N // 2, 7):
        x, y = next(iter(loader))
        loss = nn.functional.cross_entropy(private_module(x), y)
        first = module.seen[-1]
        optimizer._gradients.prepare(x, torch.zeros(len(x), 2))
        optimizer._gradients._records_at_once, before = at_once, len(module.seen)
        loss.backward()
        optimizer.step()
        second = torch.cat(module.seen[before:])
        assert second.shape == first.shape
        alike = (second == first).double().mean(1)
        assert 0.4 < float(alike.mean()) < 0.6
        assert float(alike.max()) < 0.9


@pytest.mark.parametrize("order", [1, -1])
def test_each_row_is_clipped_to_the_bound_of_its_own_person(silent, order):
    """Ids in any order: a record is clipped to the bound for which its own person has paid, and sets that bound."""
    ids = np.arange(N)[::order]
    module, optimizer, loader = private(ours.PrivacyEngine(), batches=1, ids=ids, loss_reduction="sum")
    optimizer, loader = ours.individual(optimizer, loader, accounts(99.0))
    optimizer._bounds = np.linspace(0.001, CLIP, N)
    bounds, (x, y), plain = optimizer.bounds[ids], next(iter(loader)), network()
    gradients = [naive(plain, x, y, row) for row in range(N)]
    norms = np.array([float(each.norm()) for each in gradients])
    total = sum(each * min(1.0, most / norm) for each, most, norm in zip(gradients, bounds, norms, strict=True))
    step(module, optimizer, x, y, nn.CrossEntropyLoss(reduction="sum"))
    torch.testing.assert_close(flat(p.grad for p in optimizer.params).double(), total, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(optimizer.bounds[ids], np.minimum(1.1 * norms, CLIP), rtol=1e-4)


def test_people_with_several_records_are_clipped_once(silent):
    """The sum is that of each sampled person's whole gradient, clipped: with all in the batch, by hand."""
    people = np.array([f"p{row % 7}" for row in range(N)])
    module, optimizer, loader = private(ours.PrivacyEngine(steps=9), batches=1, ids=people, loss_reduction="sum")
    optimizer.max_grad_norm = clip = 0.5
    (x, y), plain = next(iter(loader)), network()
    total = 0
    for person in np.unique(people):
        gradient = sum(naive(plain, x, y, int(row)) for row in np.flatnonzero(people == person))
        total = total + gradient * min(1.0, clip / float(gradient.norm()))
    step(module, optimizer, x, y, nn.CrossEntropyLoss(reduction="sum"))
    torch.testing.assert_close(flat(p.grad for p in optimizer.params).double(), total, rtol=1e-4, atol=1e-6)
    with pytest.raises(ArgumentError, match="people must say whose"):
        private(ours.PrivacyEngine(steps=9), ids=people[:-1])


def test_people_are_sampled_with_all_of_their_records():
    """Each person is in a batch about as often as the rate says, with each record or with none."""
    people = np.arange(N) // 3
    _, _, loader = private(ours.PrivacyEngine(steps=9), ids=people)
    seen = np.zeros(20)
    for _ in range(60):
        loader.samples.drawn = each = deque()
        for rows in loader.samples:
            drawn = each.popleft()
            assert rows == np.flatnonzero(np.isin(people, drawn.people)).tolist()
            np.testing.assert_array_equal(drawn.people[drawn.whose], people[rows])
            seen[drawn.people] += 1
    assert 0.08 < seen.mean() / 600 < 0.12
    assert seen.min() > 20


def test_outputs_that_are_no_tensor_and_optimizers_of_less_are_refused():
    """A model of two outputs, and an optimizer that leaves a layer where it is."""

    class Two(nn.Linear):
        def forward(self, x):
            return super().forward(x.flatten(1)), x

    engine, module = ours.PrivacyEngine(steps=9), Two(64, 2)
    made = {"data_loader": DataLoader(data(), batch_size=6), "noise_multiplier": 1.0, "max_grad_norm": 1.0}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(Unsupported, match=r"one tensor.*training\.Trainer"):
        engine.make_private(module=module, optimizer=optimizer, **made)[0](data().tensors[0])
    with pytest.raises(ArgumentError, match="must move all parameters"):
        engine.make_private(module=module, optimizer=torch.optim.SGD([module.weight], lr=0.1), **made)


# --- which filter, and what fits ------------------------------------------------------------------------------------


def trained(engine, most=10**9, **options):
    """Train epoch after epoch until the engine stops it; how many steps were taken."""
    module, optimizer, loader = private(engine, **options)
    done = 0
    while done < most:
        for x, y in loader:
            try:
                step(module, optimizer, x, y)
            except BudgetExceeded:
                return done
            done += 1
            if done == most:
                break
    return done


@pytest.mark.slow
def test_epsilon_and_delta_are_enough_and_adaptivity_costs_nothing():
    """At noise 1.1, rate 0.01 and epsilon 1 at least 415 steps are taken, 421 being possible in a fixed run; and the
    epsilon that the engine tells is that of as many steps by loss distributions, to one percent."""
    engine = ours.PrivacyEngine(epsilon=1.0, delta=1e-5)
    assert (engine.get_epsilon(1e-5), engine.why) == (0.0, "")
    done = trained(engine, people=200, batches=100, noise=1.1)
    assert 415 <= done <= 421
    assert done == len(engine.accountant) == engine.accountant.held.count
    assert engine.get_epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    counts = [[done], [round(1.02 * done)]]
    certified = individual.losses(counts, [1.1], sample_rate=0.01 + COINS, delta=1e-5)
    assert 0.99 < certified[0] <= engine.get_epsilon(1e-5) < certified[1]
    assert engine.why.startswith("Planned")


@pytest.mark.parametrize(("noise", "batches", "epsilon"), [(0.6, 100, 3.0), (0.8, 100, 3.0), (1.5, 20, 1.0)])
def test_the_recommended_filter_admits_no_fewer_steps_than_the_default_weights(noise, batches, epsilon):
    """Where `filters.Renyi` was the recipe, what is recommended admits at least as many steps, and some."""
    engine = ours.PrivacyEngine(epsilon=epsilon, delta=1e-5)
    private(engine, people=200, batches=batches, noise=noise)
    one = mechanisms.SampledGaussian(noise, 1.0, 1 / batches + COINS)
    now = calibrate.steps(engine.accountant.held, one)
    assert now >= max(1, calibrate.steps(filters.Renyi(epsilon=epsilon, delta=1e-5), one))


def test_a_budget_for_less_than_a_step_is_refused_before_training():
    """The error names step and budget; nothing is spent, and no gradient was computed."""
    for engine in (
        ours.PrivacyEngine(filters.Renyi(epsilon=1.0, delta=1e-5)),
        ours.PrivacyEngine(epsilon=0.01, delta=1e-5),
    ):
        with pytest.raises(BudgetExceeded, match=r"does not fit once.*no step.*almoner\.accounting\.calibrate"):
            private(engine, people=200, batches=100, noise=0.6)
        assert len(engine.accountant) == 0


def test_a_budget_for_less_than_an_epoch_says_how_many_steps_fit(caplog):
    """A warning with the number of steps and the length of an epoch; none where an epoch fits, for accounts as well."""
    one = budget()
    one.charge(mechanisms.SampledGaussian(NOISE, 1.0, Q + COINS))
    private(ours.PrivacyEngine(budget(rho=one.spent * 3.5)))
    assert re.search(r"only 3 steps of .* less than an epoch of 10", caplog.text)
    caplog.clear()
    private(ours.PrivacyEngine(budget(rho=one.spent * 10.5)))
    _, optimizer, loader = private(ours.PrivacyEngine())
    ours.individual(optimizer, loader, accounts(rho=one.spent * 10.5))
    assert not caplog.records
    _, optimizer, loader = private(ours.PrivacyEngine())
    ours.individual(optimizer, loader, accounts(rho=one.spent * 0.5))
    assert "only 0 steps of" in caplog.text


def test_an_engine_needs_one_thing_to_keep_to():
    """Two, or numbers that break a rule, are refused by name."""
    for wrong in ({"epochs": 2, "steps": 3}, {"epsilon": 1.0, "delta": 1e-5, "steps": 3}):
        with pytest.raises(ArgumentError, match="give one of"):
            ours.PrivacyEngine(**wrong)
    with pytest.raises(ArgumentError, match="give one of"):
        ours.PrivacyEngine(budget(), epochs=1)
    for name, wrong in (
        ("delta", {"epsilon": 1.0}),
        ("epsilon", {"epsilon": -1.0, "delta": 1e-5}),
        ("steps", {"steps": 0}),
        ("epochs", {"epochs": float("nan")}),
    ):
        with pytest.raises(ArgumentError, match=name):
            ours.PrivacyEngine(**wrong)


# --- without a budget: odometers, and runs that are fixed in advance -------------------------------------------------


@pytest.mark.slow
def test_an_odometer_tells_epsilon_after_every_step():
    """Its ex-post bound, as by hand; with one more step before that is taken; any noise, and no end."""
    engine = ours.PrivacyEngine(odometers.Renyi(delta=1e-5))
    module, optimizer, loader = private(engine)
    by_hand, seen = odometers.Renyi(delta=1e-5), [0.0]
    assert engine.get_epsilon(1e-5) == 0.0
    with pytest.raises(ArgumentError, match="one_more"):
        engine.accountant.get_epsilon(1e-5, one_more=True)
    for (x, y), noise in zip(loader, (1.5, 1.5, 1.2, 3.0), strict=False):
        optimizer.noise_multiplier = noise
        step(module, optimizer, x, y)
        one = mechanisms.SampledGaussian(noise, 1.0, Q + COINS)
        by_hand.charge(one)
        seen.append(engine.get_epsilon(1e-5))
        assert seen[-1] == by_hand.ex_post_epsilon() > seen[-2]
        assert engine.accountant.get_epsilon(1e-5, one_more=True) == by_hand.ex_post_epsilon(after=one) > seen[-1]
    assert engine.get_epsilon(1e-7) > seen[-1]
    exact = individual.losses([[2, 1, 1]], [1.5, 1.2, 3.0], sample_rate=Q + COINS, delta=1e-5)[0]
    assert seen[-1] > exact  # of the same steps, had they been fixed in advance
    assert len(engine.accountant) == engine.accountant.held.count == 4


def test_an_odometer_without_a_price_is_refused_before_training():
    """Sampled steps have no price in odometers.Gaussian: told by make_private, not by the first step."""
    with pytest.raises(Unsupported):
        private(ours.PrivacyEngine(odometers.Gaussian(delta=1e-5)))


def test_an_odometer_that_is_none_is_refused():
    """A number and nothing are not counted with."""
    for wrong in (1.0, None):
        with pytest.raises(ArgumentError, match="held="):
            ours.Accountant(wrong)


def test_a_fixed_run_has_the_certified_epsilon_and_keeps_to_its_plan():
    """Two epochs: epsilon is that of loss distributions for the whole run from the start, and no step more is taken."""
    engine = ours.PrivacyEngine(epochs=2)
    assert engine.get_epsilon(1e-5) == 0.0
    module, optimizer, loader = private(engine)
    run = mechanisms.Repeated(mechanisms.SampledGaussian(NOISE, 1.0, Q + COINS), 20)
    exact = tightest(run, delta=1e-5).epsilon
    for _ in range(2):
        for x, y in loader:
            assert engine.get_epsilon(1e-5) == exact
            step(module, optimizer, x, y)
    before = parameters(module)
    with pytest.raises(BudgetExceeded, match="all 20 steps"):
        step(module, optimizer, *next(iter(loader)))
    assert len(engine.accountant) == 20
    assert torch.equal(before, parameters(module))
    rdp = opacus.accountants.RDPAccountant()
    rdp.history = [(NOISE, Q, 20)]
    assert exact < rdp.get_epsilon(1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("batches", [92, 93, 211])
def test_a_fixed_run_has_the_rate_that_opacus_charges(batches):
    """Of 93 batches Opacus draws 92, because 1 / (1 / 93) is below 93 in floats; an epoch of the plan has as many."""
    engine = ours.PrivacyEngine(epochs=1)
    module, optimizer, loader = private(engine, people=batches, batches=batches)
    for x, y in loader:
        step(module, optimizer, x, y)
    assert len(engine.accountant) == engine.accountant.held.count == len(loader)
    assert engine.accountant.history == [(NOISE, 1 / len(loader) + COINS, len(loader))]


@pytest.mark.filterwarnings("ignore:PrivacyEngine detected new dataset")
def test_a_fixed_run_refuses_other_noise():
    """Another noise multiplier, in a step or in a second training, is not the plan's."""
    engine = ours.PrivacyEngine(steps=30)
    module, optimizer, loader = private(engine)
    step(module, optimizer, *next(iter(loader)))
    before = parameters(module)
    optimizer.noise_multiplier = 2 * NOISE
    with pytest.raises(ArgumentError, match="fixed in advance"):
        step(module, optimizer, *next(iter(loader)))
    assert torch.equal(before, parameters(module))
    with pytest.raises(ArgumentError, match="fixed in advance"):
        private(engine, noise=1.4)
    private(engine)
    assert len(engine.accountant) == 1


def test_half_an_epoch_is_rounded_up():
    """Epochs need not be whole; decimals are taken as written."""
    for epochs, steps in ((0.25, 3), (0.3, 3), (1, 10)):
        engine = ours.PrivacyEngine(epochs=epochs)
        private(engine)
        assert engine.accountant.held.count == steps


@pytest.mark.parametrize(
    "make",
    [
        lambda: ours.Accountant(odometers.Renyi(delta=1e-5)),
        lambda: ours.Accountant(mechanisms.Repeated(mechanisms.gaussian_step(3.0, 1.0, 0.1), 9)),
    ],
    ids=["odometer", "fixed"],
)
def test_checkpoints_of_odometers_and_plans(make):
    """A checkpoint's steps are counted in the new accountant; what is no checkpoint of its kind is refused."""
    first, second = make(), make()
    for _ in range(3):
        first.step(noise_multiplier=3.0, sample_rate=0.1)
    second.load_state_dict(first.state_dict())
    assert (len(second), second.history) == (3, first.history)
    assert second.get_epsilon(1e-5) == first.get_epsilon(1e-5)
    with pytest.raises(ArgumentError, match="another budget, odometer or plan"):
        make().load_state_dict(ours.Accountant(budget()).state_dict())
    others = (
        ours.Accountant(odometers.Renyi(delta=1e-4)),
        ours.Accountant(mechanisms.Repeated(mechanisms.gaussian_step(3.0, 1.0, 0.1), 8)),
    )
    for other in others:
        if type(other.held) is type(first.held):
            with pytest.raises(ArgumentError, match="belongs to another"):
                other.load_state_dict(first.state_dict())


# --- accounts per person --------------------------------------------------------------------------------------------


def naive(module, x, y, row):
    """One person's gradient, by itself."""
    module.zero_grad()
    nn.functional.cross_entropy(module(x[row : row + 1]), y[row : row + 1]).backward()
    return torch.cat([p.grad.flatten() for p in module.parameters()]).double()


def run(accounts, *, steps=30, noise=NOISE, slack=1.1, each=lambda *_: None, **options):
    """Training with accounts per person; ``each`` sees every step."""
    torch.manual_seed(3)
    module, optimizer, loader = private(ours.PrivacyEngine(), noise=noise, **options)
    optimizer, loader = ours.individual(optimizer, loader, accounts, slack=slack)
    loader.samples._coins = np.random.default_rng(3)
    done, noisy = 0, optimizer._noisy
    optimizer._noisy = lambda total: (optimizer.sums.append(total.clone()), noisy(total))[1]
    while done < steps:
        for x, y in loader:
            rows, bounds, optimizer.sums = loader.waiting.people.copy(), optimizer.bounds.copy(), []
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            at = [p.detach().clone() for p in optimizer.params]
            optimizer.step()
            each(rows, bounds, at, optimizer, accounts)
            done += 1
            if done == steps:
                break
    return module, optimizer, loader


@pytest.mark.slow
@pytest.mark.parametrize("rho", [2.0, 0.02])
def test_contributions_keep_to_the_bounds_that_were_charged(rho):
    """Each step's sum is that of the naive gradients clipped to the bounds, of those alone who could pay; and accounts
    are those of charging by hand."""
    by_hand, plain = accounts(rho), network()
    inputs, targets = data().tensors
    refused = contributed = clipped = 0
    bounds_now = np.full(N, CLIP)

    def each(rows, bounds, at, optimizer, people):
        nonlocal refused, contributed, clipped
        np.testing.assert_allclose(bounds, bounds_now, rtol=1e-4)
        active = by_hand.charge(ROUND, bounds)
        np.testing.assert_array_equal(by_hand.spent(), people.spent())
        with torch.no_grad():
            for p, value in zip(plain.parameters(), at, strict=True):
                p.copy_(value)
        total = torch.zeros(sum(p.numel() for p in at), dtype=torch.float64)
        for row in rows:
            gradient = naive(plain, inputs, targets, int(row))
            norm = float(gradient.norm())
            if active[row]:
                given = gradient * min(1.0, bounds[row] / norm)
                assert float(given.norm()) <= bounds[row] * (1 + 1e-12)
                total += given
                contributed += 1
                clipped += norm > bounds[row]
            refused += not active[row]
            bounds_now[row] = min(CLIP, 1.1 * norm)
        summed = flat(optimizer.sums)
        torch.testing.assert_close(summed, total, rtol=1e-4, atol=1e-5)

    run(accounts(rho), each=each)
    assert contributed
    assert clipped
    assert (refused > 0) == (rho < 1)


def test_one_persons_contribution_is_never_above_the_bound():
    """With a single person, always sampled, the sum is that person's contribution: strictly within the bound."""
    seen = []

    def each(rows, bounds, at, optimizer, people):
        seen.append((float(flat(optimizer.sums).norm()), bounds[0]))

    run(accounts(99.0, people=1), people=1, batches=1, slack=0.7, each=each)
    given, bounds = np.array(seen).T
    assert np.all(given <= bounds)
    assert np.sum(given >= 0.9999 * bounds) > 5


def test_everybody_pays_sampled_or_not():
    """After the first step everybody has paid the price of the clip, whoever was in the batch."""
    people, one = accounts(), budget()
    one.charge(ROUND)
    run(people, steps=1)
    np.testing.assert_allclose(people.spent(), one.spent, rtol=1e-14)


def test_small_gradients_cost_less_and_nobody_exceeds_the_budget():
    """Who has small inputs has small gradients, and so something left when others have nothing."""
    people, worst = accounts(0.5), budget(99.0)
    worst.charge(mechanisms.Repeated(ROUND, 60))
    assert worst.spent > 0.5
    run(people, steps=60)
    assert np.all(people.spent() <= 0.5)
    people = accounts(9.0)
    run(people, steps=60)
    assert people.spent()[0] < 0.5 * people.spent()[-10:].mean()


def test_refused_people_contribute_nothing():
    """With a budget below the price of one step the sum is zero: what is left is Opacus's noise by Opacus's divisor."""
    people, noise = accounts(1e-12), []

    def each(rows, bounds, at, optimizer, people):
        assert not flat(optimizer.sums).any()
        noise.extend(p.grad.flatten() * int(N * Q) / (NOISE * CLIP) for p in optimizer.params)

    run(people, steps=20, each=each)
    assert abs(float(torch.cat(noise).std()) - 1.0) < 0.1
    assert not people.spent().any()


def test_empty_batches_are_charged_and_release_noise():
    """At a low rate most batches are empty, the first one included: everybody pays, parameters move."""
    empty = 0

    def each(rows, bounds, at, optimizer, people):
        nonlocal empty
        if not len(rows):
            empty += 1
            assert not flat(optimizer.sums).any()
            assert all(p.grad.any() for p in optimizer.params)

        by_hand.charge(mechanisms.SampledGaussian(NOISE * CLIP, CLIP, 0.25 + COINS), bounds)

    people, by_hand = accounts(99.0, people=4), accounts(99.0, people=4)
    run(people, steps=40, people=4, batches=4, each=each)
    assert 3 <= empty <= 30
    np.testing.assert_array_equal(people.spent(), by_hand.spent())


def test_gradients_that_are_no_numbers_contribute_nothing():
    """NaN and infinite records are left out of the sum; everybody else's sum is finite."""
    torch.manual_seed(0)
    module, optimizer, loader = private(ours.PrivacyEngine())
    loader.dataset.tensors[0][:10] = float("nan")
    loader.dataset.tensors[0][10:20] = float("inf")
    optimizer, loader = ours.individual(optimizer, loader, accounts())
    for x, y in loader:
        step(module, optimizer, x, y)
    assert torch.isfinite(parameters(module)).all()
    np.testing.assert_array_equal(optimizer.bounds[:20], CLIP)


def test_own_past_only_where_it_is_proven():
    """With a whole-curve budget bounds stay at the clip."""
    _, optimizer, _ = run(individual.Filter(N, filters.Renyi(epsilon=8.0, delta=1e-5)), steps=5)
    np.testing.assert_array_equal(optimizer.bounds, CLIP)


def test_the_engines_accountant_goes_on_and_may_stop_the_step():
    """The hook of make_private is kept: a worst-case budget beside the accounts stops training, as always in time."""
    one = budget()
    one.charge(mechanisms.SampledGaussian(NOISE, 1.0, Q + COINS))
    ledger = budget(one.spent * 2.5)
    module, optimizer, loader = private(ours.PrivacyEngine(ledger))
    optimizer, loader = ours.individual(optimizer, loader, accounts())
    batches = iter(loader)
    for _ in range(2):
        step(module, optimizer, *next(batches))
    before = parameters(module)
    with pytest.raises(BudgetExceeded):
        step(module, optimizer, *next(batches))
    assert ledger.count == 2
    assert torch.equal(before, parameters(module))


def test_the_engines_accountant_is_asked_before_people_are_charged():
    """A step that its budget has no room for costs nobody anything."""
    engine = ours.PrivacyEngine(filters.RenyiOrder(alpha=8.0, rho=2.0))
    module, optimizer, loader = private(engine)
    people = accounts()
    optimizer, loader = ours.individual(optimizer, loader, people)
    step(module, optimizer, *next(iter(loader)))
    before = people.spent()
    optimizer.noise_multiplier = 0.01
    with pytest.raises(BudgetExceeded):
        step(module, optimizer, *next(iter(loader)))
    assert (people.spent() == before).all()


def test_rows_stay_with_their_batches_in_worker_processes():
    """With two workers that fetch ahead, the rows of each batch are the records' own."""
    inputs = data().tensors[0]
    _, optimizer, loader = private(ours.PrivacyEngine(), workers=2)
    optimizer, loader = ours.individual(optimizer, loader, accounts())
    seen = 0
    for x, _ in loader:
        rows = loader.take().people
        assert torch.equal(x, inputs[torch.from_numpy(rows)])
        seen += len(rows)
    assert seen > N / 3


def test_what_would_charge_the_wrong_people_is_refused():
    """A skipped batch, a step without a batch or without a loss, another batch's gradients, a split batch."""
    module, optimizer, loader = private(ours.PrivacyEngine())
    people = accounts()
    optimizer, loader = ours.individual(optimizer, loader, people)
    x, y = data().tensors
    before = parameters(module)
    with pytest.raises(ArgumentError, match="every batch needs its step"):
        list(loader)
    next(iter(loader))
    with pytest.raises(ArgumentError, match="not those of the batch"):
        step(module, optimizer, x, y)
    with pytest.raises(ArgumentError, match="no batch was drawn"):
        step(module, optimizer, x, y)
    next(iter(loader))
    with pytest.raises(ArgumentError, match=r"loss\.backward"):
        optimizer.step()
    optimizer.signal_skip_step()
    with pytest.raises(Unsupported, match="BatchMemoryManager"):
        step(module, optimizer, x, y)
    assert torch.equal(before, parameters(module))
    assert not people.spent().any()


def test_loops_over_a_loader_have_batches_of_their_own():
    """A loop within a loop: each batch has its own people, and pays for them."""
    inputs = data().tensors[0]
    module, optimizer, loader = private(ours.PrivacyEngine(), batches=2)
    optimizer, loader = ours.individual(optimizer, loader, accounts(99.0))
    outer = iter(loader)
    step(module, optimizer, *next(outer))
    for x, y in loader:
        assert torch.equal(x, inputs[torch.from_numpy(loader.waiting.people)])
        step(module, optimizer, x, y)
    x, y = next(outer)
    assert torch.equal(x, inputs[torch.from_numpy(loader.waiting.people)])
    step(module, optimizer, x, y)


def test_batch_memory_manager_is_refused_in_words():
    """It makes a loader of its own, which does not say whose the records are."""
    _, optimizer, loader = private(ours.PrivacyEngine())
    optimizer, loader = ours.individual(optimizer, loader, accounts())
    manager = BatchMemoryManager(data_loader=loader, max_physical_batch_size=2, optimizer=optimizer)
    with manager as split, pytest.raises(Unsupported, match="BatchMemoryManager is not needed"):
        for _, _ in split:
            pass


def test_gradients_are_used_once():
    """Without zero_grad the second step is refused, as in Opacus."""
    module, optimizer, loader = private(ours.PrivacyEngine())
    optimizer, loader = ours.individual(optimizer, loader, accounts())
    batches = iter(loader)
    step(module, optimizer, *next(batches))
    next(batches)
    with pytest.raises((ArgumentError, Unsupported, ValueError)):
        optimizer.step()


def test_accounts_that_do_not_fit_are_refused_by_name():
    """Another engine's optimizer, another loader, a collate function that may sort, and accounts of other people."""
    _, optimizer, loader = private(opacus.PrivacyEngine())
    with pytest.raises(Unsupported, match=r"DPOptimizer: give the optimizer.*almoner\.interop\.opacus\.PrivacyEngine"):
        ours.individual(optimizer, loader, accounts())
    _, optimizer, loader = private(ours.PrivacyEngine())
    with pytest.raises(Unsupported, match="give the optimizer and the loader"):
        ours.individual(optimizer, private(ours.PrivacyEngine())[2], accounts())
    with pytest.raises(ArgumentError, match="one account for each record"):
        ours.individual(optimizer, loader, accounts(people=N + 1))
    with pytest.raises(ArgumentError, match="accounts per person"):
        ours.individual(optimizer, loader, budget())
    with pytest.raises(ArgumentError, match="slack"):
        ours.individual(optimizer, loader, accounts(), slack=0)
    ours.individual(optimizer, loader, accounts())
    with pytest.raises(ArgumentError, match="has accounts already"):
        ours.individual(optimizer, loader, accounts())
    _, optimizer, _ = private(ours.PrivacyEngine())
    optimizer.loader.collate_fn.wrapped_collator_fn = sorted
    with pytest.raises(Unsupported, match="collate_keeps_order"):
        ours.individual(optimizer, optimizer.loader, accounts())


def test_without_opacus_the_extra_is_named(monkeypatch):
    """An import without Opacus says what to install."""
    for name in [name for name in sys.modules if name.split(".")[0] == "opacus" or "interop.opacus" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(MissingExtra, match=r"install '\.\[opacus\]'"):
        __import__("almoner.interop.opacus")


# --- the documentation's scripts ------------------------------------------------------------------------------------

DIFFS = re.findall(
    r"```diff\n(.*?)```", (Path(__file__).parents[2] / "docs/training/from-opacus.md").read_text(), re.DOTALL
)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("diff", DIFFS, ids=["stop", "individual"])
def test_the_documented_change_is_small_and_runs(diff, side):
    """The script runs as it was and as it becomes, and at most five of its lines change."""
    kept, added, removed = ([line[1:] for line in diff.splitlines() if line[:1] == sign] for sign in " +-")
    assert len(kept) > 15
    assert max(len(added), len(removed)) <= 5
    skipped = "+" if side == "before" else "-"
    script = "\n".join(line[1:] for line in diff.splitlines() if line[:1] != skipped)
    torch.manual_seed(0)
    inputs = torch.randn(200, 1, 28, 28)
    targets = torch.arange(200) % 2
    names = {"train_set": TensorDataset(inputs + 3 * targets[:, None, None, None], targets)}
    exec(compile(script, side, "exec"), names)
    start = names["start"]
    assert any(not torch.equal(a, b) for a, b in zip(start, names["model"].parameters(), strict=True))
    if side == "after" and "people" in names:
        assert 0 < names["people"].spent().max() <= names["people"].budget.left
        assert names["people"].spent().min() < names["people"].spent().max()
    accountant = getattr(names["engine"], "accountant", None)
    if side == "after" and isinstance(accountant, ours.Accountant):
        assert 0 < accountant.held.count == len(accountant) < 50
        assert not accountant.held.admits(mechanisms.SampledGaussian(1.5, 1.0, 0.1))


ADAPTIVE = {
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 2.0,
    "clipping": "adaptive",
}


def test_adaptive_clipping_has_no_price():
    """It releases a count beside the sum and divides by the private size of the batch: refused at once."""
    with pytest.raises(Unsupported, match="adaptive clipping"):
        private(ours.PrivacyEngine(filters.Renyi(epsilon=8.0, delta=1e-5)), **ADAPTIVE)
    engine = opacus.PrivacyEngine()
    engine.accountant = ours.Accountant(filters.Renyi(epsilon=8.0, delta=1e-5))
    module, optimizer, loader = private(engine, **ADAPTIVE)
    before = parameters(module)
    with pytest.raises(Unsupported, match="adaptive clipping"):
        step(module, optimizer, *next(batch for batch in loader if len(batch[0])))
    assert torch.equal(parameters(module), before)
    assert len(engine.accountant) == 0


@pytest.mark.slow
def test_the_accountant_and_the_trainers_card_say_the_same_epsilon():
    """Both ask the budget, so both are rounded up: for random budgets they are equal to the last bit."""
    numbers = ("sigma", "noise_multiplier", "max_grad_norm", "learning_rate", "average", "divisor")
    training = {
        **dict.fromkeys(numbers, 1.0),
        "steps": 1,
        "extra_steps": 0,
        "sample_rate": None,
        "count_sigma": None,
        "people_from": "record",
        "classes_from": "caller",
        "individual": False,
        "spend_remainder": False,
        "reproducible": False,
    }
    rng = np.random.default_rng(0)
    for scale in np.exp(rng.uniform(-6, 1, 100)).tolist():
        for budget in (filters.Gaussian(mu=scale), filters.Zcdp(rho=scale), filters.RenyiOrder(alpha=16, rho=scale)):
            accountant = ours.Accountant(budget.fresh())
            accountant.step(noise_multiplier=1e6, sample_rate=1.0)
            card = build_card(budget, delta=1e-6, **training)
            assert accountant.get_epsilon(1e-6) == card.epsilon == budget.epsilon(delta=1e-6)


class Inside(nn.Module):
    """Computes in half precision, and gives single precision."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.net(x).float()


@pytest.mark.parametrize("inside", [False, True])
def test_half_precision_is_refused_before_anybody_pays(inside):
    """Here the loss is of a batch of any size, so one more person could change how all others are rounded."""
    module, accountant = (Inside() if inside else network().bfloat16()), ours.PrivacyEngine(steps=9)
    private_module, optimizer, loader = accountant.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.5), noise_multiplier=NOISE,
        data_loader=DataLoader(data(), batch_size=6), max_grad_norm=CLIP,
    )  # fmt: skip
    x, y = next(iter(loader))
    before = parameters(module)
    with pytest.raises(Unsupported, match=r"in half precision: module.float\(\), no autocast, or training.Trainer"):
        step(private_module, optimizer, x if inside else x.bfloat16(), y)
    assert torch.equal(before, parameters(module))
    assert accountant.accountant.history == []
