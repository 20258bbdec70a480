"""Streams that charge a ledger: one budget with questions and trainings, and exactly once, wherever a crash happens."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
import torch

from almoner import filters, mechanisms, odometers, training
from almoner.errors import ArgumentError, BudgetExceeded, LedgerError, UnknownPerson, Unsupported
from almoner.ledger import Consumer, Ledger, Terms, backup, verify
from almoner.queries import Count, Session, statement
from almoner.training import _on_ledger as _ledger_stream
from almoner.training._run.folder import Folder, _members, _read
from training_runs import BY_RECORD, network

PEOPLE = ["ann", "bob", "cat", "dan", "eve"]
WHOLE = filters.Gaussian(mu=0.5)
SIGMA = 4.0


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def place(request, tmp_path):
    """A ledger's file, or a schema on a server."""
    return tmp_path / "people.ledger" if request.param == "file" else request.getfixturevalue("server").place()


def opened(place, budget=None):
    who = [name for row, name in enumerate(PEOPLE) for _ in range(1 + row % 3)]
    return Session.open(
        pa.table({"who": who}), person="who", budget=budget or filters.Gaussian(mu=0.5), ledger=place, create=True
    )


def records(update):
    """Records of some people in an update: everybody in turn, ann twice."""
    rng = np.random.default_rng(update)
    ids = [person for number, person in enumerate(PEOPLE) if (number + update) % 3] + PEOPLE[:1]
    x = torch.tensor(rng.normal(size=(len(ids), 5)), dtype=torch.float32)
    return x, torch.tensor(rng.integers(0, 2, len(ids))), ids


def stream(on, module=None, **options):
    module = network() if module is None else module
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    settings = {"max_grad_norm": 1.0, "noise_multiplier": SIGMA} | options
    return training.Stream(module, BY_RECORD, optimizer, on, **settings)


def flat(module):
    return torch.cat([part.detach().reshape(-1) for part in module.parameters()])


def spent(book, ids=PEOPLE):
    return np.array([book.spent(person) for person in ids])


def clean(book):
    return [finding.what for finding in verify(book) if not finding.holds] == []


class Seen:
    """The square of what each person really contributed, noted where the sums are made; of the last attempt."""

    def __init__(self, monkeypatch):
        self.squares, self.ids = dict.fromkeys(PEOPLE, 0.0), []
        original = training.Gradients.sums

        def noting(gradients, inputs, targets, weigh, people=None, observe=None):
            def note(chosen, norms):
                weights = weigh(chosen, norms)
                for row, square in zip(chosen.tolist(), ((weights * norms) ** 2).tolist(), strict=True):
                    self.squares[self.ids[row]] += square
                return weights

            return original(gradients, inputs, targets, note, people=people, observe=observe)

        monkeypatch.setattr(training.Gradients, "sums", noting)

    def update(self, trained, update):
        x, y, ids = records(update)
        self.ids = list(dict.fromkeys(ids))
        return trained.update(x, y, ids, divisor=4.0)


@pytest.mark.slow
@pytest.mark.parametrize(("remainder", "spread"), [(True, 1), (False, 1), (True, 3)])
def test_stream_and_questions_keep_one_budget(place, monkeypatch, remainder, spread):
    """What was really released of anybody costs at most what the ledger says, and that is within the budget, which
    binds; the absent pay nothing; the statement lists both."""
    seen = Seen(monkeypatch)
    with opened(place) as session:
        book = session.ledger
        on = training.OnLedger(book, "news", purpose="care")
        trained = stream(
            on, noise_multiplier=2.0, sampling=training.FullBatch(spend_remainder=remainder, spread=spread)
        )
        before = spent(book)
        for update in range(7):
            assert seen.update(trained, update) == update + 1
            absent = [person not in seen.ids for person in PEOPLE]
            assert np.array_equal(spent(book)[absent], before[absent])
            session.analyst("zoe").ask(Count(clip=3, rho=0.002), key=f"{update}", anyway=True)
            before = spent(book)
        streamed = {
            person: sum(units for entry, units in book.charges(person) if entry.kind == "update") for person in PEOPLE
        }
        for person, square in seen.squares.items():
            cost = square / (2 * 2.0**2) * 1e15
            assert cost * (1 - 1e-9) <= streamed[person] <= cost * (1 + 1e-6) + 20
        assert spent(book).max() <= book.budget_units
        assert spread > 1 or spent(book).max() > (0.99 if remainder else 0.7) * book.budget_units
        assert clean(book)
        assert all(finding.holds for finding in session.verify(replay=True))
        assert "7 answers and 7 model updates used" in session.statement("ann").words or spread == 1
        told = statement(book, "cat")
        assert {line.question["ask"] for line in told.lines} >= {"update"}
        assert {line.key for line in told.lines if line.question["ask"] == "update"} <= {
            f"news: update {number}" for number in range(1, 8)
        }
        assert 0 < trained.statement("cat").used <= 1
        (listed,) = book.consumers.values()
        assert (listed.updates, listed.purpose, listed.described["noise_multiplier"]) == (7, "care", 2.0)


def test_it_is_the_stream_with_accounts_of_its_own(tmp_path):
    """One update from the same module: each person pays what that person pays without a ledger, to two units."""
    x, y, ids = records(1)
    module = network()
    alone = training.Stream(
        module, BY_RECORD, torch.optim.SGD(module.parameters(), lr=0.5), filters.Zcdp(rho=0.125),
        max_grad_norm=1.0, noise_multiplier=SIGMA,
    )  # fmt: skip
    alone.update(x, y, ids, divisor=4.0)
    with opened(tmp_path / "l") as session:
        stream(training.OnLedger(session.ledger, "news")).update(x, y, ids, divisor=4.0)
        own = alone.accounts.spent(list(dict.fromkeys(ids)))
        assert np.abs(own * 1e15 - spent(session.ledger, list(dict.fromkeys(ids)))).max() <= 2
        assert own.min() > 0


def test_card_noise_and_update_without_people(place):
    """The card promises the ledger's budget and names the entry; updates=K is of that budget; nobody there is noise."""
    with opened(place, filters.Gaussian(epsilon=1.0, delta=1e-6)) as session:
        trained = stream(training.OnLedger(session.ledger, "news"), noise_multiplier=None, updates=5)
        x, y, _ = records(0)
        before = flat(trained.module)
        trained.update(x[:0], y[:0], [], divisor=4.0)
        assert not torch.equal(before, flat(trained.module))
        for _ in range(7):
            trained.update(x[:1] * 1e3, y[:1], ["ann"], divisor=4.0)
        card, book = trained.card(), session.ledger
        assert (card.epsilon, card.delta, card.steps, card.streamed) == (1.0, 1e-6, 8, True)
        entry = book.entries("stream")[0]
        assert card.record == f"stream 'news', entry {entry.number}:{entry.hash}"
        charged = [units for _, units in book.charges("ann")]
        assert max(charged) <= book.entries("update")[0].public["price"]
        assert 5 * book.entries("update")[0].public["price"] == pytest.approx(book.budget_units, rel=1e-9)
        assert sum(charged) == book.spent("ann") <= book.budget_units
        with pytest.raises(Unsupported, match="the ledger's"):
            _ = trained.accounts
        assert clean(book)


def test_what_cannot_be_charged_is_refused(tmp_path):
    """Seeds, budgets of its own, pure ledgers, names that are taken, and one person under two names."""
    with opened(tmp_path / "l") as session:
        on = training.OnLedger(session.ledger, "news")
        with pytest.raises(Unsupported, match="together with ledger"):
            stream(on, seed=1)
        for options in ({"epsilon": 1.0}, {"ledger": on}):
            with pytest.raises(TypeError, match="write `budget="):
                stream(on, **options)
        session.analyst("zoe").ask(Count(clip=3, rho=0.002), key="taken")
        with pytest.raises(ArgumentError, match="used for a question"):
            stream(training.OnLedger(session.ledger, "taken"))
        first = stream(on)
        with pytest.raises(ArgumentError, match="another stream"):
            stream(on)
        x, y, _ = records(0)
        with pytest.raises(UnknownPerson, match="named by text"):
            first.update(x[:2], y[:2], [1, 2], divisor=4.0)
        assert first.number == 0
    with (
        Ledger.open(tmp_path / "pure", Terms(filters.Basic(epsilon=1.0), person="VARCHAR"), create=True) as pure,
        pytest.raises(Unsupported, match="no price"),
    ):
        stream(training.OnLedger(pure, "news"))


def test_zcdp_ledgers_and_whole_numbers(tmp_path):
    """On a zCDP ledger of whole numbers, given by its path: it is open while the stream is."""
    path = tmp_path / "l"
    Ledger.open(path, Terms(filters.Zcdp(rho=0.1), person="BIGINT"), create=True).close()
    with stream(training.OnLedger(path, "news")) as trained:
        x, y, _ = records(0)
        trained.update(x[:3], y[:3], np.array([7, 8, 7]), divisor=4.0)
        assert trained.card(delta=1e-6).notion == "Zcdp"
        with pytest.raises(LedgerError, match="open already"):
            Ledger.open(path)
    with Ledger.open(path) as book:
        assert book.spent(8) > 0
        assert clean(book)
    with pytest.raises(ArgumentError, match="another stream"):
        stream(training.OnLedger(path, "news"))
    Ledger.open(path).close()  # it was closed again


def crash(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.quick(2)
@pytest.mark.parametrize("when", ["sums", "drawn", "kept", "committed", "applied", "saved"])
def test_a_crash_at_every_point(place, tmp_path, monkeypatch, when):
    """Before the ledger has the update it was never made, and nobody paid; afterwards it is made once, with the noise
    that was drawn, and everybody paid once."""
    opened(place).close()
    on, folder = training.OnLedger(place, "news"), tmp_path / "s"
    trained = stream(on, folder=folder)
    trained.update(*records(0), divisor=4.0)
    model = flat(trained.module)
    book = trained._ledger._ledger
    paid = spent(book)
    targets = {
        "sums": (training.Gradients, "sums", crash),
        "drawn": (_ledger_stream, "digest", crash),
        "applied": (torch.optim.SGD, "step", crash),
        "saved": (Folder, "save", crash),
    }
    if when in targets:
        monkeypatch.setattr(*targets[when])
    elif when == "kept":
        keep = Folder.keep
        monkeypatch.setattr(Folder, "keep", lambda *kept: (keep(*kept), crash()))
    else:
        update = Consumer.update
        monkeypatch.setattr(Consumer, "update", lambda *a, **k: (update(*a, **k), crash()))
    with pytest.raises(KeyboardInterrupt):
        trained.update(*records(1), divisor=4.0)
    monkeypatch.undo()
    trained.close()
    made = when in ("committed", "applied", "saved")
    with stream(on, folder=training.RunFolder(folder, resume=True)) as again:
        book = again._ledger._ledger
        assert again.number == (2 if made else 1)
        assert book.consumers["news"].last["update"] == again.number
        assert torch.equal(flat(again.module), model) != made
        kept = _read(folder / "update.npz")
        if made:
            moved = torch.cat([part.reshape(-1) for part in kept["noisy"]])
            assert torch.allclose(flat(again.module), model - 0.5 * (moved / 4.0).float())
            assert int(_members(folder / "update.npz", "number")["number"]) == 2
        assert (spent(book) > paid).any() == made
        assert again.card(delta=1e-6).released[0][1] == again.number
        again.update(*records(2), divisor=4.0)
        assert clean(book)
        assert [e.public["update"] for e in book.entries("update")] == list(range(1, again.number + 1))


def test_what_is_applied_after_a_crash_is_what_was_compared(tmp_path, monkeypatch):
    """The sums in the folder are read once: those whose digest the ledger has are the ones that are applied."""
    place, folder = tmp_path / "people.ledger", tmp_path / "s"
    opened(place).close()
    on = training.OnLedger(place, "news")
    trained = stream(on, folder=folder)
    model = flat(trained.module)
    monkeypatch.setattr(torch.optim.SGD, "step", crash)
    with pytest.raises(KeyboardInterrupt):
        trained.update(*records(0), divisor=4.0)
    monkeypatch.undo()
    trained.close()
    kept, reads = Folder.kept, []

    def changing(folder, number):
        reads.append(number)
        update = kept(folder, number)
        return update if len(reads) == 1 else update | {"noisy": [part + 1 for part in update["noisy"]]}

    monkeypatch.setattr(Folder, "kept", changing)
    with stream(on, folder=training.RunFolder(folder, resume=True)) as again:
        right = torch.cat([part.reshape(-1) for part in _read(folder / "update.npz")["noisy"]])
        assert torch.allclose(flat(again.module), model - 0.5 * (right / 4.0).float())
        assert (again.number, reads) == (1, [1])


def test_an_older_copy_is_refused(tmp_path):
    """Of the folder, which goes on in two places; and of the ledger, which would forget what was charged."""
    place, folder = tmp_path / "people.ledger", tmp_path / "s"
    opened(place).close()
    on = training.OnLedger(place, "news")
    with stream(on, folder=folder) as trained:
        trained.update(*records(0), divisor=4.0)
        backup(trained._ledger._ledger, tmp_path / "old.ledger")
    shutil.copytree(folder, tmp_path / "copy")
    with stream(on, folder=training.RunFolder(folder, resume=True)) as trained:
        trained.update(*records(1), divisor=4.0)
    with pytest.raises(ArgumentError, match="made 2 updates on this ledger, and 1 here"):
        stream(on, folder=training.RunFolder(tmp_path / "copy", resume=True))
    with pytest.raises(ArgumentError, match="made 1 updates on this ledger, and 2 here"):
        stream(training.OnLedger(tmp_path / "old.ledger", "news"), folder=training.RunFolder(folder, resume=True))
    Ledger.open(tmp_path / "other", Terms(filters.Gaussian(mu=0.5), person="VARCHAR"), create=True).close()
    with pytest.raises(ArgumentError, match="knows of no such stream"):
        stream(training.OnLedger(tmp_path / "other", "news"), folder=training.RunFolder(folder, resume=True))
    with pytest.raises(ArgumentError, match="ledger"):
        stream(training.OnLedger(place, "old news"), folder=training.RunFolder(folder, resume=True))
    with stream(on, folder=training.RunFolder(folder, resume=True)) as trained:  # nothing of this closed its way
        assert trained.number == 2


def test_a_stream_stays_where_it_began(tmp_path):
    """A folder with accounts of its own does not go on on a ledger, nor the other way round."""
    opened(tmp_path / "l").close()
    on = training.OnLedger(tmp_path / "l", "news")
    own = filters.Gaussian(mu=0.5)
    stream(own, folder=tmp_path / "own").close()
    with pytest.raises(ArgumentError, match="ledger"):
        stream(on, folder=training.RunFolder(tmp_path / "own", resume=True))
    stream(on, folder=tmp_path / "held").close()
    with pytest.raises(ArgumentError, match="ledger"):
        stream(own, folder=training.RunFolder(tmp_path / "held", resume=True))


def test_a_name_that_was_taken_leaves_a_folder_that_can_be_used(tmp_path):
    """A crash between folder and ledger, when the stream begins: it begins where it would have."""
    opened(tmp_path / "l").close()
    on, begin = training.OnLedger(tmp_path / "l", "news"), Consumer.begin
    Consumer.begin = crash
    try:
        with pytest.raises(KeyboardInterrupt):
            stream(on, folder=tmp_path / "s")
    finally:
        Consumer.begin = begin
    with stream(on, folder=training.RunFolder(tmp_path / "s", resume=True)) as trained:
        assert trained.update(*records(0), divisor=4.0) == 1


def test_nothing_left_by_public_facts_is_told(tmp_path):
    """A limit of nothing on the stream's analyst refuses the update before anything is computed."""
    with opened(tmp_path / "l") as session:
        trained = stream(training.OnLedger(session.ledger, "news", analyst="lab"))
        session.ledger.limit(0, analyst="lab")
        with pytest.raises(BudgetExceeded):
            trained.update(*records(0), divisor=4.0)
        assert trained.number == 0


@pytest.mark.parametrize("when", ["committed", "applied"])
def test_after_an_interrupted_update_a_stream_goes_on_from_its_folder_alone(tmp_path, monkeypatch, when):
    """The ledger charged it, so its bounds count it, and the same object takes no other update in its place."""
    opened(tmp_path / "l").close()
    on, watch = training.OnLedger(tmp_path / "l", "news"), odometers.Gaussian(delta=1e-6)
    trained = stream(on, folder=tmp_path / "s", watch=watch)
    with monkeypatch.context() as patched:
        if when == "applied":
            patched.setattr(torch.optim.SGD, "step", crash)
        else:
            update = type(trained._ledger._begun).update
            patched.setattr(type(trained._ledger._begun), "update", lambda *a, **k: (update(*a, **k), crash()))
        with pytest.raises(KeyboardInterrupt):
            trained.update(*records(0), divisor=4.0)
    interrupted = [trained.statement(person).epsilon for person in ("ann", "bob")]
    with pytest.raises(Unsupported, match="resume=True"):
        trained.update(*records(1), divisor=4.0)
    trained.close()
    with stream(on, folder=training.RunFolder(tmp_path / "s", resume=True), watch=watch) as again:
        assert again.number == 1
        assert [again.statement(person).epsilon for person in ("ann", "bob")] == interrupted
        assert again.update(*records(1), divisor=4.0) == 2
        assert len(again._ledger._ledger.entries("update")) == 2
        assert clean(again._ledger._ledger)


def test_an_interrupted_update_without_a_folder_ends_the_stream(tmp_path, monkeypatch):
    """Nobody can say what it was; another stream, under another key, can begin."""
    opened(tmp_path / "l").close()
    with stream(training.OnLedger(tmp_path / "l", "news")) as trained:
        with monkeypatch.context() as patched:
            patched.setattr(torch.optim.SGD, "step", crash)
            with pytest.raises(KeyboardInterrupt):
                trained.update(*records(0), divisor=4.0)
        with pytest.raises(Unsupported, match="under another key"):
            trained.update(*records(1), divisor=4.0)
    with stream(training.OnLedger(tmp_path / "l", "weather")) as other:
        assert other.update(*records(1), divisor=4.0) == 1


def test_partial_fit_goes_on_from_its_folder_after_an_interrupted_call(tmp_path, monkeypatch):
    """The line that the refusal says is the one that goes on: with one call, which was charged once."""
    opened(tmp_path / "l").close()
    book = Ledger.open(tmp_path / "l")
    on = training.OnLedger(book, "news")
    settings = {"epsilon": None, "noise_multiplier": SIGMA, "n_people": 4, "learning_rate": 1.0}
    model = training.LogisticRegression(**settings)

    def call(model, update, **first):
        x, y, ids = records(update)
        return model.partial_fit(x.numpy(), y.numpy(), ids, **first)

    with monkeypatch.context() as patched:
        patched.setattr("almoner.training._linear.descent.LinearModel.step", crash)
        with pytest.raises(KeyboardInterrupt):
            call(model, 0, classes=[0, 1], folder=tmp_path / "m", ledger=on)
    with pytest.raises(Unsupported, match=r"LogisticRegression\.resume\(path, ledger="):
        call(model, 1)
    again = training.LogisticRegression.resume(tmp_path / "m", ledger=on)
    assert again.n_iter_ == 1
    assert call(again, 1).n_iter_ == 2
    assert len(book.entries("update")) == 2
    book.close()


class Dear(training.Sampling):
    """Charges a mechanism that is dearer than the step, and not the step itself."""

    def contribute(self, model, turnout, accounts, step):
        dear = mechanisms.Gaussian(step.sigma / 2, step.sensitivity)
        most = accounts.allowance(dear)
        made = model.clipped_sum(turnout.records, most, most)
        accounts.charge(dear, made.clipped)
        return made.sums


def test_an_update_that_was_kept_is_counted_as_what_was_charged(tmp_path, monkeypatch):
    """After a crash the bounds are those without it, also where a sampling charges another mechanism than the step."""
    bounds = []
    for crashes in (False, True):
        opened(tmp_path / f"l{crashes}").close()
        on, folder = training.OnLedger(tmp_path / f"l{crashes}", "news"), tmp_path / f"s{crashes}"
        options = {"sampling": Dear(), "watch": odometers.Gaussian(delta=1e-6)}
        trained = stream(on, folder=folder, **options)
        if crashes:
            with monkeypatch.context() as patched:
                patched.setattr(torch.optim.SGD, "step", crash)
                with pytest.raises(KeyboardInterrupt):
                    trained.update(*records(0), divisor=4.0)
        else:
            trained.update(*records(0), divisor=4.0)
        trained.close()
        with stream(on, folder=training.RunFolder(folder, resume=True), **options) as again:
            bounds.append([again.statement(person).epsilon for person in ("ann", "bob")])
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


def test_a_key_that_was_used_leaves_no_folder_behind(tmp_path):
    """What can't go on writes no state, so that the folder serves another key."""
    opened(tmp_path / "l").close()
    with stream(training.OnLedger(tmp_path / "l", "news"), folder=tmp_path / "first") as trained:
        trained.update(*records(0), divisor=4.0)
    with pytest.raises(ArgumentError, match="names another stream"):
        stream(training.OnLedger(tmp_path / "l", "news"), folder=tmp_path / "second")
    with stream(training.OnLedger(tmp_path / "l", "weather"), folder=tmp_path / "second") as other:
        assert other.update(*records(0), divisor=4.0) == 1
