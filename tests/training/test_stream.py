"""Streams: only those who are in an update pay; the algorithm written out; crashes, refusals, joined accounts."""

import copy
import json
from fractions import Fraction

import numpy as np
import pytest
import torch

from almoner import errors, filters, individual, mechanisms, odometers, training
from almoner.training import callbacks
from almoner.training._run import models
from almoner.training._run.models import noise_generator
from forks import needs_fork, raises_in_fork
from gradient_modules import naive
from training_runs import BY_RECORD, dies, network

SIGMA = 4.0
PEOPLE = ["ann", "bob", "cat", "dan", "eve"]


def records(update, *, people=PEOPLE):
    """Records of some people in an update: everybody in turn, some twice."""
    rng = np.random.default_rng(update)
    ids = [person for number, person in enumerate(people) if (number + update) % 3] + list(people[:1])
    x = torch.tensor(rng.normal(size=(len(ids), 5)), dtype=torch.float32)
    y = torch.tensor(rng.integers(0, 2, len(ids)))
    return x, y, ids


def stream(module=None, budget=None, **options):
    module = network() if module is None else module
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    budget = filters.Gaussian(mu=0.5) if budget is None else budget
    settings = {"max_grad_norm": 1.0, "noise_multiplier": SIGMA, "seed": 3} | options
    return training.Stream(module, BY_RECORD, optimizer, budget, **settings)


def flat(module):
    return torch.cat([part.detach().reshape(-1) for part in module.parameters()])


def by_hand(updates, *, squares, remainder):
    """Each update literally: sum each person's gradients, clip to the clip and to what is left, add noise."""
    module, noise, left = network(), noise_generator(torch.device("cpu"), 3), {}

    def given(person, norm):
        asked, has = min(norm, 1.0), left.setdefault(person, squares)
        paid = min(asked, has**0.5) if remainder else (asked if asked**2 <= has else 0.0)
        left[person] = max(has - paid**2, 0.0)
        return paid

    for update in updates:
        step_by_hand(module, noise, update, given)
    return flat(module), left


def step_by_hand(module, noise, update, given):
    """One update literally: each person's gradients summed, with the norm that `given` says, noise, a step."""
    x, y, ids = records(update)
    rows = list(naive(module, BY_RECORD, (x,), y))
    rows = [torch.cat([part.reshape(-1) for part in parts]).double() for parts in rows]
    total = torch.zeros_like(rows[0])
    for person in dict.fromkeys(ids):
        own = sum(row for row, name in zip(rows, ids, strict=True) if name == person)
        norm = float(own.norm())
        total += own * (given(person, norm) / norm)
    total += torch.from_numpy(noise.normal(0.0, SIGMA, len(total)))
    with torch.no_grad():
        parts = total.split([p.numel() for p in module.parameters()])
        for parameter, part in zip(module.parameters(), parts, strict=True):
            parameter -= 0.5 * (part / 4.0).view(parameter.shape).float()


@pytest.mark.parametrize("remainder", [True, False])
def test_updates_are_the_algorithm_on_those_who_are_there(remainder):
    """The model and what everybody has left are those of the algorithm written out; some run out, some do not."""
    trained = stream(sampling=training.FullBatch(spend_remainder=remainder))
    for update in range(9):
        assert trained.update(*records(update), divisor=4.0) == update + 1
    expected, left = by_hand(range(9), squares=(0.5 * SIGMA) ** 2, remainder=remainder)
    assert torch.allclose(flat(trained.module), expected, atol=2e-4)
    assert trained.accounts.left(list(left)) * SIGMA**2 == pytest.approx(list(left.values()), abs=1e-4)
    assert min(left.values()) < 0.6 < max(left.values())


def test_nobody_exceeds_the_budget_and_the_absent_pay_nothing():
    """In exact arithmetic, over updates with other people each time: a person's whole units are those of the norms that
    were admitted, at most the budget; who was never there has no account."""
    trained = stream(noise_multiplier=2.0)
    for update in range(12):
        x, y, ids = records(update)
        trained.update(x, y, ids, divisor=4.0)
        assert set(trained.accounts.missing(PEOPLE)).isdisjoint(ids)
    spent = trained.accounts.spent(PEOPLE)
    assert (spent <= 0.25).all()
    assert Fraction(float(spent.max())) <= Fraction(1, 4)
    held = trained.accounts.spent(["ann"])
    x, y, _ = records(1)
    trained.update(x[:2], y[:2], ["new", "newer"], divisor=4.0)
    assert trained.accounts.spent(["ann"]) == held
    with pytest.raises(errors.UnknownPerson):
        trained.statement("nobody")


def test_an_update_without_records_is_noise():
    """It is released like any other, or its absence would tell that nobody came."""
    trained = stream()
    before = flat(trained.module)
    x, y, _ = records(0)
    assert trained.update(x[:0], y[:0], [], divisor=4.0) == 1
    assert not torch.equal(before, flat(trained.module))
    assert trained.card(delta=1e-6).steps == 1


def test_an_update_without_people_looks_like_one_of_people_who_add_nothing():
    """To the last bit: sums of another precision would tell that nobody came, whatever the noise."""
    models = []
    for count in (0, 3):
        trained = stream(budget=filters.Gaussian(mu=1e-9), sampling=training.FullBatch(spend_remainder=False))
        x, y, ids = records(0)
        trained.update(x[:count], y[:count], ids[:count], divisor=3.0)
        models.append(flat(trained.module))
    assert torch.equal(*models)


def test_ids_of_any_kind():
    """Numbers of arrays and tensors are Python's own; large ids and texts cost what their people cost."""
    trained = stream()
    x, y, _ = records(0)
    for ids in ([10**15, 7, 7], np.array([10**15, 7, 9]), torch.tensor([7, 7, 9]), ["a", "b", "a"], [("x", 1)] * 3):
        trained.update(x[:3], y[:3], ids, divisor=4.0)
    trained.update(
        x[:3], y[:3], [torch.tensor(7), torch.tensor(7), np.int64(7)], divisor=4.0
    )  # one person to PyTorch, too
    assert trained.accounts.missing([10**15, 7, 9, "a", "b", ("x", 1)]) == []
    assert len(trained.accounts.spent()) == 6


@pytest.mark.parametrize(
    "people",
    [
        "abc",
        [1.0, 2.0, 3.0],
        [None, 1, 2],
        [True, 1, 2],
        [np.True_, 1, 2],
        [np.float32(1), 2, 3],
        [[1], [2], [3]],
        [1, 2],
        3,
        [float("nan"), 1, 2],
    ],
)
def test_ids_that_are_refused(people):
    """Ids that name nobody are refused before anybody is charged."""
    trained = stream()
    x, y, _ = records(0)
    with pytest.raises(errors.ArgumentError, match="people"):
        trained.update(x[:3], y[:3], people, divisor=4.0)
    assert trained.number == 0
    assert len(trained.accounts.spent()) == 0


def test_two_models_share_accounts():
    """What one model spends the other cannot; its own card says the shared budget."""
    accounts = individual.Filter([], filters.Gaussian(mu=0.5))
    first, second = stream(budget=accounts), stream(budget=accounts)
    x, y, _ = records(0)
    ids = ["ann"] * 3
    for _ in range(6):
        first.update(x[:3], y[:3], ids, divisor=4.0)
        second.update(x[:3], y[:3], ids, divisor=4.0)
    assert accounts.spent(["ann"])[0] <= 0.25
    alone = stream()
    for _ in range(6):
        alone.update(x[:3], y[:3], ids, divisor=4.0)
    assert accounts.spent(["ann"])[0] > alone.accounts.spent(["ann"])[0] or accounts.left(["ann"])[0] < 1e-9
    with pytest.raises(errors.ArgumentError, match="rows, not ids"):
        stream(budget=individual.Filter(5, filters.Gaussian(mu=0.5)))


def test_noise_for_a_number_of_updates():
    """With updates=m somebody at the clip can be in m updates in full, and not in more."""
    trained = stream(budget=training.Target(1.0, 1e-6), noise_multiplier=None, updates=5)
    step = mechanisms.Gaussian(trained.noise_multiplier, 1.0)
    accounts = individual.Filter(["a"], filters.Gaussian(epsilon=1.0, delta=1e-6))
    assert [bool(accounts.charge(step, np.ones(1))[0]) for _ in range(7)] == [True] * 5 + [False] * 2
    with pytest.raises(errors.ArgumentError, match="updates= or noise_multiplier="):
        stream(updates=3)


def test_spread_keeps_some_for_later():
    """With spread=4 nobody's first contribution takes more than a quarter of the budget."""
    trained = stream(noise_multiplier=0.5, sampling=training.FullBatch(spread=4))
    trained.update(*records(0), divisor=4.0)
    assert (trained.accounts.used() <= 0.25 + 1e-9).all()
    assert trained.accounts.used().max() > 0.2


def test_it_goes_on_from_its_folder(tmp_path):
    """In another process: the same accounts, module and count, and people who come back are known."""
    with stream(folder=tmp_path / "s") as first:
        for update in range(3):
            first.update(*records(update), divisor=4.0)
    with stream(network(), folder=training.RunFolder(tmp_path / "s", resume=True)) as second:
        assert second.number == 3
        assert torch.equal(flat(second.module), flat(first.module))
        assert (second.accounts.spent(PEOPLE) == first.accounts.spent(PEOPLE)).all()
        second.update(*records(3), divisor=4.0)
        assert second.card(delta=1e-6).released == ((mechanisms.Gaussian(SIGMA, 1.0), 4),)
    with pytest.raises(errors.ArgumentError, match="resume=True"):
        stream(folder=tmp_path / "s")
    with pytest.raises(errors.ArgumentError, match="noise_multiplier"):
        stream(folder=training.RunFolder(tmp_path / "s", resume=True), noise_multiplier=5.0)
    with pytest.raises(errors.ArgumentError, match="budget"):
        stream(folder=training.RunFolder(tmp_path / "s", resume=True), budget=filters.Gaussian(mu=0.7))


def test_an_update_with_a_key_is_made_once(tmp_path):
    """Again, also in another process, it is the update of before: nobody pays, nothing moves; a key must be a text."""
    with stream(folder=tmp_path / "s") as first:
        assert first.update(*records(0), divisor=4.0, key="monday") == 1
        assert first.update(*records(1), divisor=4.0) == 2
        module, spent = flat(first.module), first.accounts.spent(PEOPLE)
        assert first.update(*records(2), divisor=4.0, key="monday") == 1
    with stream(network(), folder=training.RunFolder(tmp_path / "s", resume=True)) as second:
        assert second.update(*records(2), divisor=4.0, key="monday") == 1
        assert torch.equal(flat(second.module), module)
        assert (second.accounts.spent(PEOPLE) == spent).all()
        assert second.update(*records(2), divisor=4.0, key="tuesday") == 3
        with pytest.raises(errors.ArgumentError, match="key=7"):
            second.update(*records(2), divisor=4.0, key=7)


@pytest.mark.parametrize("when", ["announced", "charged"])
def test_who_was_in_an_update_that_broke_pays_its_worst_case(tmp_path, monkeypatch, when):
    """A crash between announcement and checkpoint: after the restart those who were in it, also somebody new, have paid
    the most that it can cost; others have paid nothing more."""
    first = stream(folder=tmp_path / "s", noise_multiplier=3.0)
    first.update(*records(0), divisor=4.0)
    there = ["ann", "bob", "cat", "eve"]
    spent = first.accounts.spent(there)
    x, y, _ = records(1)

    def crash(*_, **__):
        raise KeyboardInterrupt

    if when == "announced":
        monkeypatch.setattr(first._gradients, "sums", crash)
    else:
        monkeypatch.setattr(models.TorchModel, "step", crash)
    with dies(KeyboardInterrupt):
        first.update(x[:3], y[:3], ["bob", "new", "bob"], divisor=4.0)
    first.close()
    with stream(folder=training.RunFolder(tmp_path / "s", resume=True), noise_multiplier=3.0) as second:
        assert second.number == 1
        after = second.accounts.spent(there)
        step = 1 / 9
        for person, was, now in zip(there, spent, after, strict=True):
            assert now == (pytest.approx(min(was + step, 0.25), abs=1e-9) if person == "bob" else was)
        assert second.accounts.spent(["new"])[0] == pytest.approx(step)
        assert second.card(delta=1e-6).released == ((mechanisms.Gaussian(3.0, 1.0), 2),)


def test_ids_of_a_checkpoint_can_be_written_down(tmp_path):
    """Ids that a checkpoint cannot hold are refused."""
    with stream(folder=tmp_path / "s") as trained:
        x, y, _ = records(0)
        for person in (frozenset([1]), ("a", 1)):  # a tuple would come back as a list, which is no id
            with pytest.raises(errors.ArgumentError, match="whole numbers or texts"):
                trained.update(x[:1], y[:1], [person], divisor=4.0)
        assert trained.number == 0
    lines = (tmp_path / "s" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == []


def test_statement_and_card():
    """Statements and the card of a stream say what was released."""
    trained = stream()
    for update in range(4):
        trained.update(*records(update), divisor=4.0)
    assert "your budget is used" in str(trained.statement("bob", delta=1e-6))
    words = trained.card(delta=1e-6).to_markdown()
    assert "each step on the people who came then" in words
    assert "all people in every step" not in words


def test_few_people_among_many_cost_little():
    """Accounts grow into spare rows: joining one by one copies the totals a few times, not each time."""
    accounts = individual.Filter(list(range(1000)), filters.Gaussian(mu=1.0))
    accounts.charge(mechanisms.Gaussian(2.0), np.full(1000, 0.5))
    places, spent = set(), accounts.spent().copy()
    for person in range(1000, 3000):
        accounts.join([person])
        places.add(accounts._spent.__array_interface__["data"][0])
    assert len(places) <= 4
    assert (accounts.spent(list(range(1000))) == spent).all()
    assert (accounts.spent(list(range(1000, 3000))) == 0).all()


def test_a_budget_is_given_to_one_stream(tmp_path):
    """A second stream is refused before it makes a folder; one that goes on from its folder may have the same one."""
    budget = filters.Gaussian(mu=0.5)
    with stream(budget=budget, folder=tmp_path / "s") as first:
        first.update(*records(0), divisor=4.0)
    with pytest.raises(errors.BudgetExceeded, match="Stream"):
        stream(budget=budget, folder=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with stream(budget=budget, folder=training.RunFolder(tmp_path / "s", resume=True)) as again:
        assert again.number == 1


def bounded(budget=None, odometer=None, **options):
    """A stream with running bounds, beside a budget or in place of one."""
    module, odometer = network(), odometers.Gaussian(delta=1e-5, plan=1.0) if odometer is None else odometer
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    settings = {"max_grad_norm": 1.0, "noise_multiplier": SIGMA, "seed": 3} | options
    settings |= {} if budget is None else {"watch": odometer}
    return training.Stream(module, BY_RECORD, optimizer, odometer if budget is None else budget, **settings)


def test_running_bounds_are_those_of_the_norms_that_were_summed():
    """Without a budget nobody is left out; each bound is the odometer's, charged with that person's clipped norms."""
    trained, noise, by_hand = (
        bounded(),
        noise_generator(torch.device("cpu"), 3),
        individual.Odometer(PEOPLE, odometers.Gaussian(delta=1e-5, plan=1.0)),
    )
    module, step = network(), mechanisms.Gaussian(SIGMA, 1.0)

    def charged(person, norm):
        by_hand.charge(step, np.array([min(norm, 1.0)]), [person])
        return min(norm, 1.0)

    for update in range(5):
        step_by_hand(module, noise, update, charged)
        assert trained.update(*records(update), divisor=4.0) == update + 1
        there = [person for person in PEOPLE if person not in trained.odometer.missing(PEOPLE)]
        np.testing.assert_allclose(trained.odometer.epsilon(there), by_hand.epsilon(there), rtol=1e-5)
    assert torch.allclose(flat(trained.module), flat(module), atol=2e-4)
    assert trained.statement("ann").epsilon == trained.odometer.epsilon(["ann"])[0] > 0
    with pytest.raises(errors.Unsupported, match="no budget"):
        _ = trained.accounts
    worst = odometers.Gaussian(delta=1e-5, plan=1.0)
    for _ in range(5):
        worst.charge(step)
    assert "odometer" in trained.card().to_markdown()
    assert trained.card().epsilon == worst.epsilon() >= trained.odometer.epsilon().max()


def test_bounds_beside_a_budget_follow_what_was_admitted():
    """A person whose budget is spent contributes no more, and that person's bound stays where it was."""
    trained = bounded(budget=filters.Gaussian(mu=0.3))
    x, y, _ = records(0)
    bounds = []
    for _ in range(8):
        trained.update(x[:3], y[:3], ["ann"] * 3, divisor=4.0)
        bounds.append(float(trained.odometer.epsilon(["ann"])[0]))
    assert bounds[0] < bounds[1]
    assert bounds[-1] == bounds[-2]
    assert trained.accounts.left(["ann"])[0] == pytest.approx(0, abs=1e-9)
    assert trained.card(delta=1e-6).notion == "Gaussian"


def test_running_bounds_go_on_from_a_folder(tmp_path, monkeypatch):
    """To the last unit; who was in an update that broke is charged the most that it can cost."""
    with bounded(folder=tmp_path / "s") as first:
        for update in range(3):
            first.update(*records(update), divisor=4.0)
        before = first.odometer.state()["totals"]
    with pytest.raises(errors.ArgumentError, match="odometer"):
        bounded(
            folder=training.RunFolder(tmp_path / "s", resume=True), odometer=odometers.Gaussian(delta=1e-6, plan=1.0)
        )
    with pytest.raises(errors.ArgumentError, match="budget"):
        bounded(folder=training.RunFolder(tmp_path / "s", resume=True), budget=filters.Gaussian(mu=0.3))
    with bounded(folder=training.RunFolder(tmp_path / "s", resume=True)) as second:
        assert (second.odometer.state()["totals"] == before).all()

        def crash(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(second._gradients, "sums", crash)
        x, y, _ = records(1)
        with dies(KeyboardInterrupt):
            second.update(x[:2], y[:2], ["bob", "new"], divisor=4.0)
    with bounded(folder=training.RunFolder(tmp_path / "s", resume=True)) as third:
        fresh = individual.Odometer(["new"], odometers.Gaussian(delta=1e-5, plan=1.0))
        fresh.charge(mechanisms.Gaussian(SIGMA, 1.0), np.ones(1))
        assert third.odometer.epsilon(["new"])[0] == fresh.epsilon()[0]
        assert third.odometer.epsilon(["bob"])[0] > second.odometer.epsilon(["bob"])[0]
        assert third.odometer.epsilon(["ann"])[0] == second.odometer.epsilon(["ann"])[0]
        assert third.card().released == ((mechanisms.Gaussian(SIGMA, 1.0), 4),)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"noise_multiplier": None, "updates": 3}, "noise_multiplier must be given"),
        ({"odometer": odometers.Stitched(delta=1e-5)}, "boundary"),
        ({"odometer": "so far"}, "fresh odometer"),
        ({"budget": filters.Gaussian(mu=0.5), "odometer": "so far"}, "watch='so far'"),
        ({"watch": odometers.Gaussian(delta=1e-5)}, "the budget is an odometer already"),
    ],
    ids=["no noise", "not for people", "no odometer", "no watch", "two odometers"],
)
def test_running_bounds_that_are_refused(options, why):
    """Before anything is made, with the argument and the reason."""
    with pytest.raises((errors.ArgumentError, errors.Unsupported), match=why):
        bounded(**options)


@needs_fork
@pytest.mark.parametrize("options", [{}, {"watch": odometers.Gaussian(delta=1e-5, plan=1.0)}])
def test_streams_stay_in_their_process_and_are_not_copied(options):
    """A fork and a copy would draw the same noise again, and spend the same accounts."""
    trained = stream(seed=None, **options)
    assert raises_in_fork(errors.ArgumentError, lambda: trained.update(*records(0), divisor=4.0))
    with pytest.raises(errors.CopyRefused):
        copy.deepcopy(trained)
    trained.update(*records(0), divisor=4.0)
    assert raises_in_fork(errors.ArgumentError, lambda: trained.update(*records(1), divisor=4.0))
    assert trained.update(*records(1), divisor=4.0) == 2


def test_a_card_states_the_divisor_of_the_last_update_also_after_a_resume(tmp_path):
    """An update that fails does not change it."""
    module, x, y = network(), torch.randn(2, 5), torch.tensor([0, 1])
    with stream(module, folder=tmp_path / "stream") as first:
        first.update(x, y, ["ann", "bob"], divisor=5)
        with pytest.raises(errors.ArgumentError):
            first.update(x, y, ["ann", 1.5], divisor=7)
        assert first.card(delta=1e-5).divisor == 5.0
    with stream(module, folder=training.RunFolder(tmp_path / "stream", resume=True)) as again:
        assert again.card(delta=1e-5).divisor == 5.0
        assert "with the last update" in again.card(delta=1e-5).to_markdown()


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (training.FixedBatches(5), "takes all who are there"),
        (training.Poisson(0.5), "takes all who are there"),
        (training.FullBatch(pace=0.5), "no last step"),
    ],
)
def test_what_a_stream_cannot_do_is_refused_in_its_own_words(sampling, words):
    """Samples, batches and a pace towards a last step."""
    with pytest.raises(errors.Unsupported, match=words):
        stream(sampling=sampling)


def test_a_filter_is_one_streams_also_where_a_new_folder_is_resumed(tmp_path):
    """resume=True of a folder with nothing in it begins a stream, which takes the filter over."""
    budget, module = filters.Gaussian(mu=1.0), network()

    def opened(name):
        return stream(module, budget, folder=training.RunFolder(tmp_path / name, resume=True))

    opened("first").close()
    with pytest.raises(errors.BudgetExceeded):
        opened("second")
    opened("first").close()  # the same stream goes on


def test_an_optimizer_that_wants_its_run_is_refused_before_anybody_pays():
    """AdamBC must be told the noise, which a stream does not do."""
    module = network()
    with pytest.raises(errors.Unsupported, match=r"AdamBC wants to know its run: it is for training.Trainer"):
        training.Stream(
            module, BY_RECORD, callbacks.AdamBC(module.parameters()), filters.Gaussian(mu=1.0),
            max_grad_norm=1.0, updates=3,
        )  # fmt: skip
