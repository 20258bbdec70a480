"""Trainings and questions that charge one ledger: each person has one budget, whatever is done with their data."""

from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from threading import Thread

import numpy as np
import pyarrow as pa
import pytest
import torch

from almoner import filters, training
from almoner.errors import ArgumentError, BudgetExceeded, LedgerError, Unsupported
from almoner.ledger import Consumer, Ledger, Periods, Terms, verify, write_off
from almoner.mechanisms import Gaussian
from almoner.queries import Count, Session
from almoner.training import FixedBatches
from almoner.training._on_ledger import LedgerRun, digest
from almoner.training._records import correct
from almoner.training._run.models import Processes
from almoner.training._run.settings import Watched
from almoner.training.correlated import Banded
from almoner.training.stopping import Dropouts, Tree
from terms import grouped
from training_runs import BY_RECORD, N, dies, network, records, trainer

IDS = [f"p{row}" for row in range(N)]
WHOLE = filters.Gaussian(epsilon=1.5, delta=1e-6)
ONE = filters.Gaussian(epsilon=1.0, delta=1e-6)


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def place(request, tmp_path):
    """A ledger's file, or a schema on a server."""
    return tmp_path / "people.ledger" if request.param == "file" else request.getfixturevalue("server").place()


def on_ledger(on, budget, module=None, **options):
    """A trainer whose people pay on a ledger, with this budget at most."""
    return trainer(replace(on, at_most=budget), module, **options)


def opened(place, budget=WHOLE, **options):
    """A session of people with one to three rows each."""
    who = [name for row, name in enumerate(IDS) for _ in range(1 + row % 3)]
    given = {"data": pa.table({"who": who}), "person": "who", "budget": budget, "ledger": place, "create": True}
    return Session.open(**grouped(given | options))


def spent(book, ids=IDS):
    rows = book.store.run("SELECT person, spent FROM ledger.accounts")
    found = {book.accounts.named(person): units for person, units in rows}
    return np.array([found.get(person, 0) for person in ids])


def clean(book):
    return [finding.what for finding in verify(book) if not finding.holds] == []


def units(accounts):
    """What accounts of mu squared cost in the ledger's rho, at least, and exactly."""
    return [Fraction(round(float(each) * 10**15), 2) for each in np.asarray(accounts.spent())]


class Seen:
    """What each person really contributed to each step, noted where the sums are made."""

    def __init__(self, monkeypatch):
        self.squares = np.zeros(N)
        original = training.Gradients.sums

        def noting(gradients, inputs, targets, weigh, people=None, observe=None):
            def note(chosen, norms):
                weights = weigh(chosen, norms)
                self.squares[chosen.numpy()] += (weights * norms).numpy() ** 2
                return weights

            return original(gradients, inputs, targets, note, people=people, observe=observe)

        monkeypatch.setattr(training.Gradients, "sums", noting)


@pytest.mark.slow
def test_two_trainings_and_questions_keep_one_budget(place, monkeypatch):
    """Training, questions and a second training: what was really released of anybody costs at most what the ledger
    says, to the unit, and that is within the budget."""
    x, y = records()
    seen = Seen(monkeypatch)
    really = np.zeros(N)
    with opened(place) as session:
        book = session.ledger
        for number in range(2):
            job = on_ledger(training.OnLedger(book, f"model {number}"), ONE)
            before, squares = spent(book), seen.squares.copy()
            job.fit(x, y, IDS)
            cost = (seen.squares - squares) / (2 * job.noise_multiplier**2)
            really += cost
            assert np.all(cost * 1e15 <= (spent(book) - before) * (1 + 1e-9))
            for day in range(10):
                session.analyst("ann").ask(Count(clip=3, rho=0.004), key=f"{number} {day}", anyway=True)
        assert np.all(really * 1e15 <= spent(book))
        assert spent(book).max() <= book.budget_units
        assert spent(book).max() > 0.99 * book.budget_units  # it binds
        assert clean(book)
        told = session.statement(IDS[0])
        assert "20 answers and 2 trainings used your records" in told.words
        assert all(finding.holds for finding in session.verify(replay=True))
        assert sum(Fraction(round(line.rho * 10**15)) for line in told.lines) == book.spent(IDS[0])
    with opened(place) as session:
        assert clean(session.ledger)


def test_card_and_record_point_at_each_other(place):
    """The card names the entry that reserved; the record has the digest of the model and what its card promises."""
    x, y = records()
    with opened(place) as session:
        session.ledger.dataset("visits", person="who")
        job = on_ledger(training.OnLedger(session.ledger, "churn", purpose="care", dataset="visits"), ONE)
        job.fit(x, y, IDS)
        (listed,) = session.ledger.consumers.values()
        entry = session.ledger.entries("training")[0]
        assert entry.public["dataset"] == "visits"
        assert job.card().record == f"training 'churn', entry {entry.number}:{entry.hash}"
        assert job.card().record in job.card().to_markdown()
        assert listed.model == digest(list(job.module.parameters()))
        settled = session.ledger.entries("settled")[0].public["outcome"]
        assert (settled["epsilon"], settled["steps"]) == (job.card().epsilon, 20)
        assert listed.state == "settled"


def test_a_settled_run_charges_nobody_any_more(place):
    """After the rest was given back neither the run's questions nor its accounts can spend it again."""
    x, y = records()
    with opened(place) as session:
        job = on_ledger(training.OnLedger(session.ledger, "m"), ONE)
        run = job.fit(x, y, IDS)
        before = spent(session.ledger)
        with pytest.raises(LedgerError, match="settled"):
            run.noisy_sum(lambda output, target: (output.argmax(1) == target).double(), sigma=10.0)
        with pytest.raises(LedgerError, match="settled"):
            trainer(job.accounts).fit(x, y)
        assert np.array_equal(spent(session.ledger), before)


@pytest.mark.slow
def test_what_cannot_be_charged_is_refused_before_anything_is(place):
    """Seeds, worst-case accounts, other budgets, samples and wrong ids: each has its reason."""
    x, y = records()
    with opened(place) as session:
        on = training.OnLedger(session.ledger, "m")
        zcdp, planned = filters.Zcdp(rho=0.01), filters.recommend(epsilon=1.0, delta=1e-6).budget
        for made, what in (
            (lambda: on_ledger(on, ONE, seed=1), "seed"),
            (lambda: on_ledger(on, ONE, individual=False), "individual=False"),
            (lambda: on_ledger(on, zcdp), "counts Gaussian rho"),
            (
                lambda: on_ledger(on, filters.Renyi(epsilon=1.0, delta=1e-6), sampling=training.Poisson(0.5)),
                "filters.Residue for sampled",
            ),
        ):
            with pytest.raises(Unsupported, match=what):
                made().fit(x, y, IDS)
        for ids in (None, IDS[:-1], [None, *IDS[1:]]):
            with pytest.raises(ArgumentError, match="people must"):
                on_ledger(on, ONE).fit(x, y, ids)
        with pytest.raises(ArgumentError, match="at_most=filters"):
            trainer(on)
        assert planned is not None
        assert not spent(session.ledger).any()
        session.analyst("ann").ask(Count(clip=3, rho=0.001), key="taken")
        with pytest.raises(ArgumentError, match="used for another"):
            on_ledger(training.OnLedger(session.ledger, "taken"), ONE).fit(x, y, IDS)


def test_who_has_nothing_left_is_not_in_the_model(place, monkeypatch):
    """A person whose budget questions have spent contributes nothing to a training, and one with a little, a little."""
    x, y = records()
    seen = Seen(monkeypatch)
    with opened(place, budget=filters.Gaussian(mu=1.0)) as session:
        everything = session.ledger.budget
        while spent(session.ledger).max() < session.ledger.budget_units * 0.999:
            number = len(session.ledger.entries())
            session.analyst("ann").ask(Count(clip=3, rho=everything * 0.9, pace=1), key=str(number), anyway=True)
        left = session.ledger.budget_units - spent(session.ledger)
        job = on_ledger(training.OnLedger(session.ledger, "m"), filters.Gaussian(mu=1.0))
        job.fit(x, y, IDS)
        cost = seen.squares / (2 * job.noise_multiplier**2)
        assert np.all(cost * 1e15 <= left * (1 + 1e-9) + 1)
        assert spent(session.ledger).max() <= session.ledger.budget_units


@pytest.mark.parametrize("noise", [None, Banded(4)])
def test_fixed_batches_and_correlated_noise(tmp_path, noise):
    """The rows that a contribution commits are charged before, and settled to the unit."""
    x, y = records()
    with opened(tmp_path / "l") as session:
        job = on_ledger(training.OnLedger(session.ledger, "m"), ONE, sampling=FixedBatches(50, noise=noise), steps=16)
        job.fit(x, y, IDS)
        assert [int(-(-each // 1)) for each in units(job.accounts)] <= spent(session.ledger).tolist()
        assert 0 < spent(session.ledger).max() <= session.ledger.budget_units
        assert clean(session.ledger)


@pytest.mark.slow
def test_poisson_samples_by_the_residue(tmp_path):
    """Sampled steps are charged what the residue certifies; its slack comes out of the declared delta, once a run."""
    x, y = records()
    budget = filters.Residue(epsilon=1.0, delta=1e-6)
    with opened(tmp_path / "l", keys_delta=1.5e-8) as session:
        on = training.OnLedger(session.ledger, "m")
        job = on_ledger(on, budget, sampling=training.Poisson(0.1), noise_multiplier=3.0, steps=20)
        job.fit(x, y, IDS)
        assert 0 < spent(session.ledger).max() <= session.ledger.budget_units
        assert clean(session.ledger)
        again = on_ledger(
            training.OnLedger(session.ledger, "n"),
            budget,
            sampling=training.Poisson(0.1),
            noise_multiplier=3.0,
            steps=20,
        )
        with pytest.raises(BudgetExceeded, match="keys_delta"):
            again.fit(x, y, IDS)
    with opened(tmp_path / "undeclared") as session, pytest.raises(ArgumentError, match="keys_delta"):
        on_ledger(
            training.OnLedger(session.ledger, "m"), budget, sampling=training.Poisson(0.1), noise_multiplier=3.0
        ).fit(x, y, IDS)


class Killed(BaseException):
    """As if the process ended here."""


def interrupted(at):
    def callback(run):
        if run.step == at:
            raise Killed

    return callback


def test_a_run_that_ends_by_an_error_is_settled_for_what_it_released(tmp_path):
    """Without a checkpoint nobody can go on: what was charged stays, the rest comes back."""
    x, y = records()
    with opened(tmp_path / "l") as session:
        job = on_ledger(training.OnLedger(session.ledger, "m"), ONE)
        with pytest.raises(Killed):
            job.fit(x, y, IDS, callbacks=[interrupted(5)])
        assert np.all(np.asarray(job.accounts.spent()) * 1e15 / 2 <= spent(session.ledger) + 1)
        assert 0 < spent(session.ledger).max() < session.ledger.budget_units / 4
        assert session.ledger.consumers["m"].state == "settled"


def copied(folder, copy):
    """A backup of a checkpoint, made while its run goes on."""
    copy.mkdir()
    for file in folder.iterdir():
        if file.name != "lock":
            (copy / file.name).write_bytes(file.read_bytes())


def backed_up(place, tmp_path):
    """A run that dies at step 6, whose folder was copied at step 4; how it is gone on with."""
    x, y = records()
    folder, copy = tmp_path / "run", tmp_path / "copy"
    on = training.OnLedger(place, "m")

    def steps(run):
        if run.step == 4:
            copied(folder, copy)
        if run.step == 6:
            raise Killed

    with dies(Killed):
        on_ledger(on, ONE).fit(x, y, IDS, folder=training.RunFolder(folder, every=50), callbacks=[steps])

    def resume(where):
        job = on_ledger(on, ONE)
        return job, job.fit(x, y, IDS, folder=training.RunFolder(where, every=50, resume=True))

    return folder, copy, resume


@pytest.mark.slow
def test_an_older_copy_of_a_checkpoint_cannot_go_on(place, tmp_path):
    """Two rounds were released since the copy was made, which it does not know: it is refused, the newest goes on."""
    opened(place).close()
    folder, copy, resume = backed_up(place, tmp_path)
    with pytest.raises(ArgumentError, match="elsewhere"):
        resume(copy)
    assert len((folder / "claims").read_text(encoding="ascii").splitlines()) == 2  # they do not pile up
    _, run = resume(folder)
    assert run.step == 20
    with opened(place) as session:
        assert spent(session.ledger).max() <= session.ledger.budget_units
        assert clean(session.ledger)


def test_a_copy_whose_parts_were_read_at_different_moments_cannot_go_on(tmp_path):
    """The newest claim beside a journal that lacks the last round: nobody would pay for that round."""
    place = tmp_path / "people.ledger"
    opened(place).close()
    folder, _, resume = backed_up(place, tmp_path)
    journal = folder / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(ArgumentError, match="elsewhere"):
        resume(folder)
    assert journal.read_bytes() != whole


def test_without_a_claim_for_each_round_an_older_copy_goes_on(tmp_path, monkeypatch):
    """The control: two rounds are charged once for two releases."""
    monkeypatch.setattr("almoner.training._on_ledger.LedgerRun.renew", lambda self, folder: None)
    place = tmp_path / "people.ledger"
    opened(place).close()
    _, copy, resume = backed_up(place, tmp_path)
    _, run = resume(copy)
    assert run.step == 20


def test_no_round_is_released_in_a_transaction_that_may_be_undone(tmp_path):
    """A callback that opens one stops the run before the next round."""
    x, y = records()
    with opened(tmp_path / "l") as session:
        book = session.ledger

        def within(run):
            if run.step == 2:
                book.transact(lambda turn: run.noisy_sum(lambda output, target: torch.ones(len(target)), sigma=10.0))

        with pytest.raises(ArgumentError, match="while a transaction is open"):
            on_ledger(training.OnLedger(book, "m"), ONE).fit(x, y, IDS, folder=tmp_path / "run", callbacks=[within])
        assert clean(book)


def test_a_killed_run_is_resumed_once(place, tmp_path):
    """It goes on with what it reserved; a copy of the checkpoint is refused, also when the run is settled."""
    x, y = records()
    folder, copy = tmp_path / "run", tmp_path / "copy"
    with opened(place) as session:
        on = training.OnLedger(session.ledger, "m")
        with pytest.raises(Killed):
            on_ledger(on, ONE).fit(x, y, IDS, folder=training.RunFolder(folder, every=4), callbacks=[interrupted(6)])
        held = spent(session.ledger)
        copied(folder, copy)
        with pytest.raises(ArgumentError, match="goes on there"):
            trainer(ONE).fit(x, y, IDS, folder=training.RunFolder(folder, resume=True))
        with pytest.raises(ArgumentError, match="elsewhere"):
            on_ledger(on, ONE).fit(x, y, IDS)
        job = on_ledger(on, ONE)
        run = job.fit(x, y, IDS, folder=training.RunFolder(folder, resume=True))
        assert run.step >= 20 - 2
        assert np.all(spent(session.ledger) <= held)
        assert np.all(np.asarray(job.accounts.spent()) > 0)
        with pytest.raises(ArgumentError, match="was settled: choose another key"):
            on_ledger(on, ONE).fit(x, y, IDS, folder=training.RunFolder(copy, resume=True))
        assert clean(session.ledger)


@pytest.mark.parametrize("died", [False, True])
def test_a_settled_run_is_loaded_again_and_charges_nobody(place, tmp_path, died):
    """The folder gives the model, which people paid for, and its card; nothing more is released."""
    x, y = records()
    keep = training.RunFolder(tmp_path / "run", every=4, resume=True)
    with opened(place) as session:
        on, paid = training.OnLedger(session.ledger, "m"), network()
        first = on_ledger(on, ONE, paid)
        with dies(Killed) if died else nullcontext():
            first.fit(x, y, IDS, folder=tmp_path / "run", callbacks=[interrupted(6)] if died else [])
        if died:
            first = on_ledger(on, ONE, paid)
            first.fit(x, y, IDS, folder=keep)
        charged, entries = spent(session.ledger), len(session.ledger.entries())
        with pytest.raises(ArgumentError, match="records"):
            on_ledger(on, ONE).fit(x + 1, y, IDS, folder=keep)
        with pytest.raises(ArgumentError, match="same order"):
            on_ledger(on, ONE).fit(x, y, IDS[::-1], folder=keep)
        with pytest.raises(ArgumentError, match="settled"):
            on_ledger(on, ONE).fit(x, y, IDS, folder=tmp_path / "other")
        kept = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != "claims"}
        module = network()
        job = on_ledger(on, ONE, module)
        for run in job.steps(x, y, IDS, folder=keep):
            with pytest.raises(LedgerError, match="settled"):
                run.noisy_sum(correct, sigma=100.0)
        assert (
            digest(list(module.parameters())) == digest(list(paid.parameters())) == session.ledger.consumers["m"].model
        )
        assert (run.step, job.card()) == (20, first.card())
        with pytest.raises(LedgerError, match="settled"):
            job.accounts.charge(Gaussian(1.0), np.ones(N))
        np.testing.assert_array_equal(spent(session.ledger), charged)
        assert len(session.ledger.entries()) == entries
        assert {path: path.read_bytes() for path in kept} == kept
        assert clean(session.ledger)


def test_a_run_whose_checkpoint_went_on_elsewhere_releases_nothing_more(server, tmp_path):
    """On a server two processes could train from copies of one checkpoint: the first stops at its next step."""
    x, y = records()
    place, folder, copy = server.place(), tmp_path / "run", tmp_path / "copy"
    steps = []
    with opened(place) as session, Ledger.open(place) as other:
        on = training.OnLedger(session.ledger, "m")

        def stolen(run):
            steps.append(run.step)
            if run.step == 8:
                copied(folder, copy)
                on_ledger(training.OnLedger(other, "m"), ONE).fit(
                    x, y, IDS, folder=training.RunFolder(copy, resume=True)
                )

        with pytest.raises(LedgerError, match=r"went on elsewhere|was settled"):
            on_ledger(on, ONE).fit(x, y, IDS, folder=training.RunFolder(folder, every=2), callbacks=[stolen])
        assert steps[-1] == 8
        assert clean(session.ledger)


def test_a_folder_with_another_model_than_the_settled_one_is_refused(tmp_path):
    """Each of two ledgers has settled the same key, for other noise: a folder is of one of them."""
    x, y = records()
    for name in ("l", "other"):
        opened(tmp_path / name).close()
        on_ledger(training.OnLedger(tmp_path / name, "m"), ONE).fit(x, y, IDS, folder=tmp_path / f"{name} run")
    for name, folder, matches in (("l", "other run", False), ("other", "l run", False), ("l", "l run", True)):
        on, keep = training.OnLedger(tmp_path / name, "m"), training.RunFolder(tmp_path / folder, resume=True)
        with nullcontext() if matches else pytest.raises(ArgumentError, match="not with the model"):
            on_ledger(on, ONE).fit(x, y, IDS, folder=keep)


def test_a_settled_run_that_counted_dropouts_is_loaded_and_does_not_count_again(tmp_path):
    """The price of counting is paid, and no step is left to count at."""
    x, y = records()
    with opened(tmp_path / "l") as session:
        on, watch = training.OnLedger(session.ledger, "m"), lambda people: Dropouts(people, Tree(20, 30.0))
        first = on_ledger(on, ONE, paid := network())
        first.fit(x, y, IDS, watch=watch, folder=tmp_path / "run")
        charged = spent(session.ledger)
        job = on_ledger(on, ONE, module := network())
        job.fit(x, y, IDS, watch=watch, folder=training.RunFolder(tmp_path / "run", resume=True))
        assert digest(list(module.parameters())) == digest(list(paid.parameters()))
        assert job.card() == first.card()
        np.testing.assert_array_equal(spent(session.ledger), charged)


def test_a_checkpoint_on_another_ledger_is_refused(tmp_path):
    """A ledger that knows nothing of what the checkpoint released is another one, or an older copy."""
    x, y = records()
    for name in ("l", "other"):
        opened(tmp_path / name).close()
    on = training.OnLedger(tmp_path / "l", "m")
    with pytest.raises(Killed):
        on_ledger(on, ONE).fit(x, y, IDS, folder=tmp_path / "run", callbacks=[interrupted(3)])
    other = training.OnLedger(tmp_path / "other", "m")
    with pytest.raises(ArgumentError, match="older copy of it, or the training had another number of processes"):
        on_ledger(other, ONE).fit(x, y, IDS, folder=training.RunFolder(tmp_path / "run", resume=True))
    with Ledger.open(tmp_path / "l") as book:
        write_off(book, "m")
    with pytest.raises(ArgumentError, match="written off"):
        on_ledger(on, ONE).fit(x, y, IDS, folder=training.RunFolder(tmp_path / "run", resume=True))


def test_logistic_regression_on_a_ledger(place):
    """The estimator charges the people of its groups; a second one finds what the first left."""
    x, y = (part.numpy() for part in records())
    groups = np.array(IDS)[np.arange(N) // 2]
    with opened(place) as session:
        book = session.ledger
        for number in range(3):
            model = training.LogisticRegression(epsilon=1.0, delta=1e-6, classes=[0, 1], steps=30)
            model.fit(x, y, groups, ledger=training.OnLedger(book, f"model {number}"))
            assert model.card_.record.startswith(f"training 'model {number}'")
            assert [*book.consumers.values()][-1].model == digest([model.coef_, model.intercept_])
            assert spent(book).max() <= book.budget_units
        assert spent(book, IDS[N // 2 :]).max() == 0
        assert clean(book)
        with pytest.raises(Unsupported, match="groups=None"):
            model.fit(x, y, ledger=training.OnLedger(book, "m"))


def test_stopping_by_counts_is_paid_on_the_ledger_too(tmp_path):
    """The price of noisy counts is charged to the same accounts, and what was booked and not used comes back."""
    x, y = (part.numpy() for part in records())
    with opened(tmp_path / "l") as session:
        model = training.LogisticRegression(
            epsilon=1.0,
            delta=1e-6,
            classes=[0, 1],
            steps=10,
            n_people=N,
            descent=training.Descent(extra_steps=10, pace=0.0, stop_when_inactive=0.5),
        )
        model.fit(x, y, np.array(IDS), ledger=training.OnLedger(session.ledger, "m"))
        cost = np.asarray(model.accounts_.people.spent()) * 1e15 / 2
        charged = spent(session.ledger, sorted(IDS))
        assert np.all(cost <= charged + 1)
        assert np.all(charged <= cost + 2)


def test_a_copy_of_the_module_cannot_be_trained_twice_under_one_key(tmp_path):
    """A key is charged once: a second run under it is refused, whether or not the first is over."""
    x, y = records()
    with opened(tmp_path / "l") as session:
        on = training.OnLedger(session.ledger, "m")
        on_ledger(on, ONE).fit(x, y, IDS)
        with pytest.raises(ArgumentError, match="settled"):
            on_ledger(on, ONE, network()).fit(x, y, IDS)


def test_the_ledger_is_opened_by_name_and_closed(tmp_path):
    """Where the ledger is will do: it is held while the training runs, and free afterwards."""
    x, y = records()
    opened(tmp_path / "l").close()
    busy = []

    def look(run):
        try:
            opened(tmp_path / "l").close()
        except LedgerError as refused:
            busy.append(refused.reason)

    on_ledger(training.OnLedger(tmp_path / "l", "m"), ONE, steps=2).fit(x, y, IDS, callbacks=[look])
    assert set(busy) == {"busy"}
    with opened(tmp_path / "l") as session:
        assert spent(session.ledger).max() > 0
    with pytest.raises(LedgerError):
        on_ledger(training.OnLedger(tmp_path / "absent", "m"), ONE).fit(x, y, IDS)
    assert torch.is_grad_enabled()


def test_a_run_goes_on_with_the_same_people_in_the_same_order(tmp_path):
    """An account goes by a number: in another order each person would be settled for what somebody else cost."""
    x, y = records()
    with opened(tmp_path / "l") as session:
        on, folder = training.OnLedger(session.ledger, "m"), tmp_path / "run"
        with pytest.raises(Killed):
            on_ledger(on, ONE).fit(x, y, IDS, folder=folder, callbacks=[interrupted(3)])
        with pytest.raises(ArgumentError, match="same order"):
            on_ledger(on, ONE).fit(x, y, IDS[::-1], folder=training.RunFolder(folder, resume=True))
        on_ledger(on, ONE).fit(x, y, IDS, folder=training.RunFolder(folder, resume=True))
        assert clean(session.ledger)


def test_a_training_does_not_begin_in_a_transaction_that_may_be_undone(tmp_path):
    """Undone with it, the reservation would be forgotten, and the rounds would not."""
    x, y = records()
    with opened(tmp_path / "l") as session:
        job = on_ledger(training.OnLedger(session.ledger, "m"), ONE)
        with pytest.raises(ArgumentError, match="while a transaction is open"):
            session.ledger.transact(lambda turn: job.fit(x, y, IDS))
        assert session.ledger.consumers == {}
        job.fit(x, y, IDS)


def test_nothing_is_charged_while_a_run_is_settled(tmp_path, monkeypatch):
    """A question that another thread asks then is refused: its charge would not be in what is settled."""
    x, y = records()
    asked = []
    with opened(tmp_path / "l") as session:
        job, original = on_ledger(training.OnLedger(session.ledger, "m"), ONE, steps=2), Consumer.settle

        def slowly(hold, *arguments, **options):
            def ask():
                try:
                    asked.append(job.accounts.charge(Gaussian(100.0), np.ones(N)))
                except LedgerError:
                    asked.append("refused")

            other = Thread(target=ask)
            other.start()
            other.join(0.5)
            entry = original(hold, *arguments, **options)
            others.append(other)
            return entry

        others = []
        monkeypatch.setattr(Consumer, "settle", slowly)
        job.fit(x, y, IDS)
        others[0].join()
        assert asked == ["refused"]


def test_a_large_budget_is_reserved_to_the_last_unit(tmp_path):
    """A share that a float can't tell from one is not the whole: nobody is charged a unit more than was reserved."""
    large = filters.Gaussian(mu=8.0)
    with opened(tmp_path / "l", budget=large) as session:
        Consumer(session.ledger, key="one unit", analyst="ann").reserve(IDS[:1], 1)
        with LedgerRun(training.OnLedger(session.ledger, "m"), IDS[:2], large) as run:
            whole = Gaussian(sigma=0.125)  # mu squared is 64, all of the budget
            assert run.accounts().charge(whole, np.ones(2)).tolist() == [False, True]


def months(place):
    """A ledger of two people with a budget in each month, and their rows in all of them."""
    periods = Periods("day", every="month", first="2026-01-01", last="2026-12-31")
    book = Ledger.open(place, Terms(ONE, person="VARCHAR", periods=periods), create=True)
    return book, [f"{person} 2026-{month:02d}-01" for person in IDS[:2] for month in range(1, 13)]


@pytest.mark.slow
def test_a_card_of_a_ledger_with_periods_is_about_a_person_in_one_of_them(tmp_path):
    """All months of a person together are known better than a month's budget says: no card promises them that."""
    book, names = months(tmp_path / "l")
    x, y = (part[: len(names)] for part in records())
    with book:
        model = training.LogisticRegression(epsilon=1.0, delta=1e-6, classes=[0, 1], steps=3, n_people=24)
        model.fit(x.numpy(), y.numpy(), names, ledger=training.OnLedger(book, "fit"))
        job = on_ledger(training.OnLedger(book, "job"), ONE, steps=2)
        job.fit(x, y, names)
        parts = training.LogisticRegression(epsilon=None, classes=[0, 1], steps=3, n_people=24)
        parts.partial_fit(x.numpy(), y.numpy(), names, ledger=training.OnLedger(book, "parts"))
        module = network()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        stream = training.Stream(
            module, BY_RECORD, optimizer, training.OnLedger(book, "stream"), max_grad_norm=1.0, updates=3
        )
        stream.update(x, y, names, divisor=24)
        for card in (model.card_, job.card(), parts.card_, stream.card()):
            assert (card.people_from, card.guess) == ("period", None)
            assert card.adjacency == "add or remove one person, with all of that person's records of one period"
            for told in (card.to_markdown(), card.to_html()):
                assert "your records of a period were in the data" in told
            assert card.record in card.to_markdown()
            assert training.Card.from_dict(card.to_dict()) == card
        assert parts.statement(names[0]).epsilon == book.lifetime(1e-6) > 10
        for stated in (lambda: model.statement(names[0]), lambda: job.statement(names[0]), model.accounts_.text):
            with pytest.raises(Unsupported, match="in one period"):
                stated()


def test_processes_of_one_training_compare_people_as_the_ledger_names_them(tmp_path, monkeypatch):
    """A person who is 17 in one process and "17" in another would give twice what a step's noise is for."""
    with Ledger.open(tmp_path / "l", Terms(ONE, person="BIGINT"), create=True) as book:
        on = training.OnLedger(book, "m")
        assert on.named(["17", 18]) == on.named([17, "18"]) == [17, 18]
    by_name = training.OnLedger(tmp_path / "l", "m")
    assert by_name.named(["17"]) == [17]
    compared = []
    monkeypatch.setattr(Processes, "refuse_shared", lambda _, ids: compared.extend(ids))
    monkeypatch.setattr(Processes, "all_gather", lambda _, value: [value])
    x, y = (part[:4] for part in records())
    with Ledger.open(tmp_path / "l") as book:
        job = on_ledger(training.OnLedger(book, "m"), ONE)
        monkeypatch.setattr(job._processes, "single", False)
        job._compared(x, y, ["1", 2, "3", 4], Watched(), None, None)
    assert compared == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_training_stops_where_its_ledger_was_moved(tmp_path):
    """No further step is released, as no question is answered: a ledger in its place would know nothing of it."""
    with opened(tmp_path / "l") as session:
        released = []

        def moves(run):
            released.append(run.step)
            if run.step == 2:
                (tmp_path / "l").rename(tmp_path / "elsewhere")

        with pytest.raises(LedgerError, match="moved or replaced"):
            on_ledger(training.OnLedger(session.ledger, "m"), ONE).fit(*records(), IDS, callbacks=[moves])
        assert released == [0, 1, 2]
