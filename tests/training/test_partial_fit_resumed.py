"""`partial_fit` with a folder or on a ledger: it goes on in another process, and each call counts exactly once."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner._disk import Lock
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.ledger import Ledger, verify
from almoner.queries import Count, Session
from almoner.training import Descent, LogisticRegression, OnLedger
from almoner.training._linear import partial
from almoner.training._linear.descent import LinearModel
from almoner.training._run.folder import Folder, _read, _write

PEOPLE = ["ann", "bob", "cat", "dan", "eve"]


def rows(update):
    """Rows of some people in a call: everybody in turn, one with two rows."""
    rng = np.random.default_rng(update)
    ids = [person for number, person in enumerate(PEOPLE) if (number + update) % 3] + ["ann"]
    return rng.normal(size=(len(ids), 3)), rng.integers(0, 2, len(ids)), ids


def model(**options):
    settings = {"epsilon": 2.0, "noise_multiplier": 4.0, "learning_rate": 0.5, "n_people": 4, "classes": ["no", "yes"]}
    return LogisticRegression(**(settings | options))


def call(fitted, update, **options):
    x, y, ids = rows(update)
    return fitted.partial_fit(x, np.array(["no", "yes"])[y], ids, **options)


@pytest.fixture
def quiet(monkeypatch):
    """No noise, so that two runs can be compared."""
    monkeypatch.setattr(partial, "independent", lambda noise: lambda sums, sigma, rows: sums)


@pytest.fixture
def crash(monkeypatch):
    """Break off at the given step of a file's writing, once."""

    def at(name, when):
        original = getattr(Folder, name)

        def broken(self, *given):
            if when == "after":
                original(self, *given)
            monkeypatch.setattr(Folder, name, original)
            raise KeyboardInterrupt

        monkeypatch.setattr(Folder, name, broken)

    return at


def spent(fitted):
    return fitted.accounts_.people.spent().tolist()


@pytest.mark.slow
def test_resumed_calls_are_those_of_one_process(tmp_path, quiet):
    """The same parameters, accounts and card, however often the model is read from its folder; budgets run out."""
    whole = model()
    for update in range(9):
        call(whole, update)
    for update in range(9):
        if update == 0:
            call(model(), 0, folder=tmp_path / "m")
        else:
            call(LogisticRegression.resume(tmp_path / "m"), update)
    again = LogisticRegression.resume(tmp_path / "m")
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    np.testing.assert_array_equal(again.intercept_, whole.intercept_)
    assert spent(again) == spent(whole)
    assert again.accounts_.people.left(PEOPLE).min() < 1e-6
    assert again.card_.to_dict() == whole.card_.to_dict()
    assert (again.n_iter_, again.classes_.tolist(), again.n_features_in_) == (9, ["no", "yes"], 3)
    x = rows(0)[0]
    assert again.predict(x).tolist() == whole.predict(x).tolist()
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "m").iterdir())
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o700


def test_names_of_columns_and_settings_come_back(tmp_path):
    """A data frame's columns are checked after a resume too; parameters of the estimator are those of before."""
    import pandas as pd

    x, y, ids = rows(0)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    further = Descent(average=np.float64(0.25))
    begun = model(classes=[0, 1], fit_intercept=False, steps=np.int64(7), noise_multiplier=None, descent=further)
    begun.partial_fit(frame, y, ids, folder=tmp_path / "m", divisor=9.0)
    again = LogisticRegression.resume(tmp_path / "m")
    assert again.get_params() | {"descent": further} == begun.get_params()
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]
    assert again.card_.to_dict() == begun.card_.to_dict()
    assert again.intercept_.tolist() == [0.0]
    with pytest.raises(ValueError, match="feature names"):
        again.partial_fit(frame.rename(columns={"a": "z"}), y, ids)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_leaves_a_call_that_was_made_or_one_that_was_not(tmp_path, crash, quiet, when):
    """What was not written was told to nobody; what was written is charged, and is what goes on."""
    whole = call(call(model(), 0), 1)
    broken = call(model(), 0, folder=tmp_path / "m")
    before = broken.coef_.copy()
    crash("save", when)
    with pytest.raises(KeyboardInterrupt):
        call(broken, 1)
    np.testing.assert_array_equal(broken.coef_, before)
    again = LogisticRegression.resume(tmp_path / "m")
    assert again.n_iter_ == (1 if when == "before" else 2)
    if when == "before":
        np.testing.assert_array_equal(again.coef_, before)
        call(again, 1)
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    assert spent(again) == spent(whole)


def test_one_process_goes_on(tmp_path):
    """Of two models from one folder the second is refused, before anybody pays; so is one while another is at it."""
    call(model(), 0, folder=tmp_path / "m")
    one, two = (LogisticRegression.resume(tmp_path / "m") for _ in range(2))
    call(one, 1)
    before = spent(two)
    with pytest.raises(ArgumentError, match="has seen 2 calls of partial_fit, and this model 1"):
        call(two, 1)
    assert spent(two) == before
    lock = Lock(tmp_path / "m" / "lock")
    assert lock.take()
    for attempt in (lambda: call(one, 2), lambda: LogisticRegression.resume(tmp_path / "m")):
        with pytest.raises(ArgumentError, match="in use by another process"):
            attempt()
    lock.release()
    assert call(one, 2).n_iter_ == 3


def test_noise_is_not_that_of_before(tmp_path):
    """With a seed too, which repeats a run: not within it."""
    x, y, ids = rows(0)
    noises = []
    for update in range(3):
        began = {"folder": tmp_path / "m"} if update == 0 else {}
        fitted = model(seed=1, classes=[0, 1]) if update == 0 else LogisticRegression.resume(tmp_path / "m")
        before = fitted.coef_ if update else np.zeros((1, 3))
        fitted.partial_fit(x[:0], y[:0], ids[:0], **began)
        noises.append((fitted.coef_ - before).ravel().tolist())
    assert len({tuple(each) for each in noises}) == 3
    assert not np.allclose(noises[0], noises[1])


def test_what_a_folder_cannot_hold_is_refused(tmp_path):
    """Before anybody is charged: ids that JSON cannot hold, a folder with a model, none, or a damaged one."""
    fitted = call(model(), 0, folder=tmp_path / "m")
    before = spent(fitted)
    x, y, ids = rows(1)
    with pytest.raises(ArgumentError, match="whole numbers or texts"):
        fitted.partial_fit(x, np.array(["no", "yes"])[y], [("a", number) for number in range(len(ids))])
    assert spent(fitted) == before
    with pytest.raises(ArgumentError, match="first call"):
        call(fitted, 1, folder=tmp_path / "m")
    with pytest.raises(ArgumentError, match="holds a model already"):
        call(model(), 0, folder=tmp_path / "m")
    with pytest.raises(ArgumentError, match="holds no model"):
        LogisticRegression.resume(tmp_path / "none")
    state = tmp_path / "m" / "state.npz"
    for change in (
        lambda told: told.update(format=1),
        lambda told: told["parts"]["estimator"].pop("sigma"),
        lambda told: told["parts"]["book"]["accounts"].update(ids=["ann"]),
    ):
        kept = state.read_bytes()
        told = _read(state)
        change(told)
        _write(state, told, 1)
        with pytest.raises(DataError, match=r"format 1|can't be read|damaged"):
            LogisticRegression.resume(tmp_path / "m")
        state.write_bytes(kept)
    state.write_bytes(kept[:-40])
    with pytest.raises(DataError, match="can't be read"):
        LogisticRegression.resume(tmp_path / "m")


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def place(request, tmp_path):
    """A ledger's file, or a schema on a server."""
    return tmp_path / "people.ledger" if request.param == "file" else request.getfixturevalue("server").place()


def opened(place):
    who = [name for row, name in enumerate(PEOPLE) for _ in range(1 + row % 3)]
    return Session.open(
        pa.table({"who": who}), person="who", budget=filters.Gaussian(mu=0.5), ledger=place, create=True
    )


def on_ledger(**options):
    return model(**({"epsilon": None, "noise_multiplier": 2.0} | options))


def clean(book):
    return [finding.what for finding in verify(book) if not finding.holds] == []


def charged(book):
    return [book.spent(person) for person in PEOPLE]


@pytest.mark.slow
def test_calls_and_questions_keep_one_budget(place, monkeypatch):
    """Each pays for what was really added up of that person's rows, the absent pay nothing, and the budget binds."""
    squares = dict.fromkeys(PEOPLE, 0.0)
    present = []
    original = LinearModel.clipped_sum

    def noting(self, gradients, clip, most):
        made = original(self, gradients, clip, most)
        for person, norm in zip(present, np.minimum(gradients.norms(self.parameters), most), strict=True):
            squares[person] += float(norm) ** 2
        return made

    monkeypatch.setattr(LinearModel, "clipped_sum", noting)
    with opened(place) as session:
        book = session.ledger
        fitted = on_ledger(max_grad_norm=1.0)
        for update in range(8):
            before = charged(book)
            present[:] = list(dict.fromkeys(rows(update)[2]))
            call(fitted, update, **({"ledger": OnLedger(book, "risk", purpose="care")} if update == 0 else {}))
            absent = [person not in present for person in PEOPLE]
            assert np.array_equal(np.array(charged(book))[absent], np.array(before)[absent])
            session.analyst("zoe").ask(Count(clip=3, rho=0.002), key=str(update), anyway=True)
        for person, square in squares.items():
            streamed = sum(units for entry, units in book.charges(person) if entry.kind == "update")
            assert square / 8 * 1e15 * (1 - 1e-6) - 20 <= streamed <= square / 8 * 1e15 * (1 + 1e-6) + 20
        assert 0.9 * book.budget_units < max(charged(book)) <= book.budget_units
        assert clean(book)
        (stream,) = book.consumers.values()
        assert (stream.key, stream.updates, stream.described["model"]) == ("risk", 8, "LogisticRegression")
        assert fitted.statement("ann").used == pytest.approx(book.spent("ann") / book.budget_units)
        assert "entry" in fitted.card_.record
        assert fitted.card_.epsilon == pytest.approx(filters.Gaussian(mu=0.5).epsilon(delta=fitted.card_.delta))
        with pytest.raises(Unsupported, match=r"the ledger's"):
            fitted.accounts_.save(place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "when"), [("keep", "before"), ("keep", "after"), ("save", "before"), ("save", "after")]
)
def test_after_a_crash_the_ledger_says_what_was_released(tmp_path, place, crash, name, when):
    """A call that the ledger charged is what goes on, with the same noise; one that it did not charge is made anew."""
    with opened(place) as session:
        fitted = call(on_ledger(), 0, ledger=OnLedger(session.ledger, "risk"), folder=tmp_path / "m")
        before, paid = fitted.coef_.copy(), charged(session.ledger)
        crash(name, when)
        with pytest.raises(KeyboardInterrupt):
            call(fitted, 1)
    with Ledger.open(place) as book:
        on = OnLedger(book, "risk")
        again = LogisticRegression.resume(tmp_path / "m", ledger=on)
        assert again.n_iter_ == (1 if name == "keep" else 2)
        assert (charged(book) == paid) == (name == "keep")
        assert np.array_equal(again.coef_, before) == (name == "keep")
        np.testing.assert_array_equal(LogisticRegression.resume(tmp_path / "m", ledger=on).coef_, again.coef_)
        call(again, 2)
        assert [stream.updates for stream in book.consumers.values()] == [again.n_iter_]
        assert clean(book)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["keep", "save"])
def test_a_call_with_a_key_is_made_once(tmp_path, crash, quiet, name, when):
    """The job that is run again after a crash leaves one call of that day, which is paid once."""
    with opened(tmp_path / "l") as session:
        fitted = call(on_ledger(), 0, key="day 0", ledger=OnLedger(session.ledger, "risk"), folder=tmp_path / "m")
        crash(name, when)
        with pytest.raises(KeyboardInterrupt):
            call(fitted, 1, key="day 1")
    with Ledger.open(tmp_path / "l") as book:
        on = OnLedger(book, "risk")
        again = LogisticRegression.resume(tmp_path / "m", ledger=on)
        for update in (0, 1, 1):
            call(again, update, key=f"day {update}")
        assert again.n_iter_ == 2
        assert call(LogisticRegression.resume(tmp_path / "m", ledger=on), 1, key="day 1").n_iter_ == 2
        assert [each.updates for each in book.consumers.values()] == [2]
        call(again, 2, key="day 2")
        assert call(again, 3).n_iter_ == 4
        assert clean(book)


def test_a_call_that_could_not_be_kept_does_not_seem_to_be_made(tmp_path, crash, quiet):
    """The ledger charged it, and the model does not show it: asked again by its key it is refused, not passed over."""
    with opened(tmp_path / "l") as session:
        fitted = call(on_ledger(), 0, key="day 0", ledger=OnLedger(session.ledger, "risk"), folder=tmp_path / "m")
        before = fitted.coef_.copy()
        crash("save", "before")
        with pytest.raises(KeyboardInterrupt):
            call(fitted, 1, key="day 1")
        paid = charged(session.ledger)
        with pytest.raises(ArgumentError, match=r"Go on by LogisticRegression\.resume"):
            call(fitted, 1, key="day 1")
        np.testing.assert_array_equal(fitted.coef_, before)
        assert charged(session.ledger) == paid
        again = LogisticRegression.resume(tmp_path / "m", ledger=OnLedger(session.ledger, "risk"))
        assert call(again, 1, key="day 1").n_iter_ == 2
        assert charged(session.ledger) == paid


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_with_a_key_is_made_once_without_a_ledger(tmp_path, crash, quiet, when):
    """In the process that broke and in another one: parameters and accounts are those of two calls."""
    whole = call(call(model(), 0), 1)
    fitted = call(model(), 0, folder=tmp_path / "m", key="day 0")
    crash("save", when)
    with pytest.raises(KeyboardInterrupt):
        call(fitted, 1, key="day 1")
    again = LogisticRegression.resume(tmp_path / "m")
    for update in (0, 1, 1):
        call(again, update, key=f"day {update}")
    assert (again.n_iter_, call(fitted, 0, key="day 0").n_iter_) == (2, 1)
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    assert spent(again) == spent(whole)


def test_an_older_copy_of_the_folder_is_refused(tmp_path):
    """The ledger knows of more calls; and another model, or another ledger, is refused by name."""
    place = tmp_path / "l"
    with opened(place) as session:
        on = OnLedger(session.ledger, "risk")
        fitted = call(on_ledger(), 0, ledger=on, folder=tmp_path / "m")
        shutil.copytree(tmp_path / "m", tmp_path / "old")
        call(fitted, 1)
        call(fitted, 2)
        paid = charged(session.ledger)
        with pytest.raises(ArgumentError, match="is a copy"):
            LogisticRegression.resume(tmp_path / "old", ledger=on)
        with pytest.raises(ArgumentError, match="began with the stream"):
            LogisticRegression.resume(tmp_path / "m")
        with pytest.raises(ArgumentError, match="names another stream"):
            call(on_ledger(), 0, ledger=on)
        for options, more, why in (
            ({"epsilon": 1.0}, {"ledger": OnLedger(session.ledger, "b")}, "epsilon=1.0 must be None"),
            ({"seed": 1}, {"ledger": OnLedger(session.ledger, "b")}, "seed"),
            ({}, {"ledger": OnLedger(place, "b")}, "stays open"),
        ):
            with pytest.raises((ArgumentError, Unsupported), match=why):
                call(on_ledger(**options), 0, **more)
        assert charged(session.ledger) == paid
        planned = call(on_ledger(noise_multiplier=None, steps=4), 0, ledger=OnLedger(session.ledger, "c"))
        assert 4 * 0.5 / planned.card_.noise_multiplier**2 == pytest.approx(0.125, rel=1e-6)
