"""What one person may be told about a model: from LogisticRegression, and from the private file beside a model."""

import copy
import pickle

import numpy as np
import pytest

from almoner import filters, individual, mechanisms, odometers
from almoner.accounting import meaning
from almoner.errors import ArgumentError, DataError, UnknownPerson, Unsupported
from almoner.training import Descent, LogisticRegression, saved_model
from almoner.training.stopping import Dropouts, SquareRoot, StillActive, Tree

N = 400


def task():
    """People, two of whom contribute nothing: their features are zero."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(N, 3))
    x[:2] = 0.0
    return x, (x[:, 0] > 0).astype(int)


def model(**changes):
    settings = {"epsilon": 1.0, "n_people": N, "classes": [0, 1], "steps": 12, "fit_intercept": False, "seed": 1}
    settings["max_grad_norm"] = 1.0
    return LogisticRegression(**settings | changes)


def test_a_statement_says_what_the_accounts_of_the_run_say():
    """Whoever contributed nothing used nothing; the promise is the whole budget's; absent rows are refused."""
    fitted = model().fit(*task())
    told = fitted.statement(0)
    assert (told.person, told.used, told.epsilon, told.delta) == (0, 0.0, pytest.approx(1.0), 1e-5)
    assert fitted.statement(7).used == fitted.accounts_.people.used()[7] > 0
    for wrong in (-1, N, "7", True, 1.5):
        with pytest.raises(UnknownPerson):
            fitted.statement(wrong)
    for copied in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        with pytest.raises(ArgumentError, match="no accounts"):
            copied.statement(0)
    with pytest.raises(ArgumentError, match="individual=False"):
        model(individual=False).fit(*task()).statement(0)


def test_with_groups_a_person_is_named_as_in_the_data():
    """The account of a person with several rows is found by the person's own name."""
    x, y = task()
    names = np.asarray([f"p{row // 2:03}" for row in range(N)])[::-1]
    fitted = model().fit(x, y, groups=names)
    assert fitted.statement("p199").used == 0.0  # the rows of zeros
    assert fitted.statement("p000").person == "p000"
    with pytest.raises(UnknownPerson):
        fitted.statement("p200")


def test_each_persons_running_bound_is_that_of_their_own_clipped_gradients():
    """A naive loop over the steps, from the released iterates, finds the odometer of each person."""
    x, y = task()
    iterates = [np.zeros((3, 1))]
    boundary = odometers.Gaussian(delta=1e-5, plan=1.0)
    plain = model(descent=Descent(momentum=0.0))
    fitted = plain.fit(x, y, odometer=boundary, observe=lambda _, parameters: iterates.append(parameters.copy()))
    sigma = fitted.card_.sigma
    naive = individual.Odometer(N, boundary)
    for parameters in iterates[:-1]:
        error = 1 / (1 + np.exp(-(x @ parameters).ravel())) - y
        naive.charge(mechanisms.Gaussian(sigma), np.minimum(1.0, np.linalg.norm(x, axis=1) * np.abs(error)))
    assert fitted.odometer_.epsilon() == pytest.approx(naive.epsilon(), rel=1e-6)
    assert fitted.statement(5).epsilon == fitted.odometer_.epsilon()[5]
    again = model(descent=Descent(momentum=0.0)).fit(x, y)
    assert np.array_equal(again.coef_, fitted.coef_)  # nothing else changes
    with pytest.raises(ArgumentError, match="fresh"):
        model().fit(x, y, odometer=fitted.odometer_)


def test_a_noisy_count_of_people_is_in_the_running_bound():
    """With n_people=None each person has contributed one to a count, also those whose gradients are zero."""
    x, y = task()
    fitted = model(n_people=None).fit(x, y, odometer=odometers.Gaussian(delta=1e-5, plan=1.0))
    nothing = individual.Odometer(1, odometers.Gaussian(delta=1e-5, plan=1.0))
    nothing.charge(mechanisms.Gaussian(fitted.card_.count_sigma), np.ones(1))
    assert fitted.statement(0).epsilon == pytest.approx(float(nothing.epsilon()[0]))


def test_a_saved_file_says_the_same_and_its_owner_alone_can_read_it(tmp_path):
    """Every statement from the file is that from the model."""
    fitted = model().fit(*task())
    file = fitted.accounts_.save(tmp_path / "model.accounts")
    assert file.stat().st_mode & 0o777 == 0o600
    for person in (0, 5, N - 1):
        told, saved = fitted.statement(person), saved_model.saved_statement(file, str(person))
        assert (saved.used, saved.epsilon, saved.delta) == (told.used, told.epsilon, told.delta)
        assert 0.5 < saved.guess == told.guess <= meaning.of(fitted.accounts_.people.budget.tradeoff()).guess() < 0.6
    with pytest.raises(UnknownPerson):
        saved_model.saved_statement(file, str(N))
    assert "private" in repr(fitted.accounts_)
    text = file.read_text(encoding="utf-8")
    for broken in (text[:-9], text.replace('"format": 1', '"format": 2'), text.replace('["0"', '["1"'), "[]"):
        (tmp_path / "broken").write_text(broken, encoding="utf-8")
        with pytest.raises(DataError):
            saved_model.saved_statement(tmp_path / "broken", "0")


LONG = {"epsilon": 8.0, "learning_rate": 1.0}
FURTHER = {"momentum": 0.0, "pace": 0.0, "extra_steps": 300}


def test_the_run_stops_when_the_noisy_count_is_above_the_share():
    """No stop before the planned steps; at the end the count is above the share, and was not one step earlier."""
    x, y = task()
    counts = []

    def counting(people):
        counted = Dropouts(people, Tree(300, 8.0), noise=np.random.default_rng(5))
        counts.append(counted)
        return counted

    seen = []
    fitted = model(descent=Descent(stop_when_inactive=0.3, **FURTHER), **LONG).fit(
        x, y, counting=counting, observe=lambda step, _: seen.append((step, counts[0].count))
    )
    assert 12 < fitted.n_iter_ < 312
    assert [count for step, count in seen if step <= 12] == [0.0] * 12
    assert fitted.counting_.count > 0.3 * N >= max(count for _, count in seen[:-1])
    out = np.count_nonzero(fitted.accounts_.people.used() > 0.999)
    assert abs(fitted.counting_.count - out) < 6 * fitted.counting_.standard_error
    assert fitted.card_.extra_steps == fitted.n_iter_ - 12
    assert fitted.card_.released == ((mechanisms.Gaussian(fitted.card_.sigma), fitted.n_iter_), (counts[0].price, 1))
    assert fitted.card_.reproducible


def test_the_counts_cost_a_hundredth_and_those_who_stay_get_it_back():
    """All planned steps fit beside the booked price; who never drops out pays for steps alone."""
    fitted = model(descent=Descent(stop_when_inactive=0.3, **FURTHER), **LONG).fit(*task())
    assert fitted.statement(0).used == 0.0
    price = fitted.counting_.price
    budget = filters.Gaussian(epsilon=8.0, delta=1e-5)
    assert (price.sensitivity / price.sigma) ** 2 == pytest.approx(0.01 * budget.left, rel=1e-6)
    budget.charge(price)
    for _ in range(12):
        budget.charge(mechanisms.Gaussian(fitted.card_.sigma))
    assert budget.left < 1e-6


def test_still_active_ends_the_run_by_its_own_number():
    """The sparse vector technique works likewise, with a budget that takes pure mechanisms."""
    fitted = model(descent=Descent(**FURTHER), **LONG).fit(
        *task(), counting=lambda people: StillActive(people, at_least=300, epsilon=0.3)
    )
    assert not fitted.counting_.still
    assert fitted.n_iter_ < 312


def test_the_average_begins_where_it_would_without_more_steps():
    """The model is the mean of all iterates after the first half of the planned steps."""
    x, y = task()
    iterates = []
    fitted = model(descent=Descent(stop_when_inactive=0.3, **FURTHER), **LONG).fit(
        x, y, observe=lambda _, now: iterates.append(now.ravel())
    )
    assert fitted.coef_.ravel() == pytest.approx(np.mean(iterates[6:], axis=0))
    assert fitted.card_.average == pytest.approx(1 - 6 / len(iterates))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"descent": Descent(stop_when_inactive=0.3, pace=0.0)}, "extra_steps"),
        ({"descent": Descent(stop_when_inactive=0.3, extra_steps=9)}, "pace"),
        ({"descent": Descent(stop_when_inactive=1.5, **FURTHER)}, "stop_when_inactive=1.5"),
        ({"descent": Descent(stop_when_inactive=float("nan"), **FURTHER)}, "stop_when_inactive"),
        ({"descent": Descent(stop_when_inactive=0.3, **FURTHER), "individual": False, **LONG}, "individual=True"),
    ],
)
def test_what_cannot_stop_is_refused_before_anything_is_read(changes, words):
    """The error names the argument."""
    with pytest.raises(ArgumentError, match=words):
        model(**changes).fit(None, None)


def test_counting_that_does_not_fit_is_refused():
    """Too few counts, no share, two numbers, other accounts, and prices that an odometer cannot count."""
    x, y = task()
    wrong = [
        ({"stop_when_inactive": 0.3}, lambda people: Dropouts(people, SquareRoot(299, 9.0)), "fewer"),
        ({}, lambda people: Dropouts(people, SquareRoot(300, 9.0)), "stop_when_inactive"),
        ({}, lambda people: people, "counting"),
    ]
    for changes, counting, words in wrong:
        with pytest.raises(ArgumentError, match=words):
            model(descent=Descent(**FURTHER | changes), **LONG).fit(x, y, counting=counting)
    job = model(descent=Descent(**FURTHER), **LONG)
    with pytest.raises(Unsupported, match="odometer"):
        job.fit(
            x,
            y,
            odometer=odometers.Gaussian(delta=1e-5, plan=1.0),
            counting=lambda people: StillActive(people, at_least=300, epsilon=0.3),
        )
