"""`evaluate`: what a finished model is worth, in one release that the people who are judged pay for."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from almoner import filters
from almoner.errors import ArgumentError, DataError
from almoner.queries import Count, Session
from almoner.training import OnLedger, evaluate
from almoner.training._run import books

PEOPLE = 400


class Scored:
    """A model that reads shares of labels off the rows."""

    def __init__(self, labels=("no", "yes")):
        self.classes_ = np.array(labels)

    def predict_proba(self, X):
        X = np.asarray(X, dtype=float)
        return np.column_stack([1 - X[:, 0], X[:, 0]]) if len(self.classes_) == 2 else X


GUESS = SimpleNamespace(bounds_y=(0, 10), predict=lambda X: np.asarray(X, dtype=float)[:, 0])


def data(kind, seed=0, people=PEOPLE):
    """Rows of people, some with several."""
    rng = np.random.default_rng(seed)
    whose = np.repeat(np.arange(people), rng.integers(1, 4, people))
    score = rng.beta(2, 2, len(whose))
    if kind == "numbers":
        return GUESS, 10 * score[:, None], np.clip(10 * score + rng.normal(0, 2, len(whose)), 0, 10), whose
    if kind == "three labels":
        shares = rng.dirichlet([1, 1, 1], len(whose))
        return Scored((0, 1, 2)), shares, np.array([rng.choice(3, p=each) for each in shares]), whose
    return Scored(), score[:, None], np.where(rng.random(len(whose)) < score, "yes", "no"), whose


KINDS = ["two labels", "three labels", "numbers"]


def truths(kind, model, X, y, whose):
    """The numbers that are estimated, by plain NumPy; each person counts once."""
    weight = 1 / np.bincount(whose)[whose]
    mean = lambda each, own=weight: float(np.sum(each * own) / np.sum(own))  # noqa: E731
    if kind == "numbers":
        error = mean((X[:, 0] - y) ** 2)
        return {"error": np.sqrt(error), "explained": 1 - error / mean((y - mean(y)) ** 2)}
    shares = model.predict_proba(X)
    right = model.classes_[shares.argmax(axis=1)] == y
    found = {"accuracy": mean(right)}
    for label in model.classes_:
        found[f"recall {label}"] = mean(right, weight * (y == label))
    if kind == "two labels":
        found["auc"] = roc_auc_score(y == "yes", shares[:, 1], sample_weight=weight)
        for number, edge in enumerate([0.18242552380635635, 0.5]):
            inside = (shares[:, 1] > edge) & (shares[:, 1] <= [0.5, 0.8175744761936437][number])
            found[f"from {edge:.2f}"] = mean(y == "yes", weight * inside)
    return found


def told(scores):
    found = {name: getattr(scores, name) for name in ("accuracy", "auc", "error", "explained")}
    found |= {f"recall {label}": each for label, each in (scores.recall or {}).items()}
    found |= {f"from {low:.2f}": each for low, _, each in scores.calibration or ()}
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_the_truth(kind):
    """At least 93 of 100 intervals of 95 %, for every number by itself; half as wide ones do not."""
    given = data(kind)
    truth = truths(kind, *given)
    held, half = (dict.fromkeys(truth, 0) for _ in range(2))
    runs = 300
    for seed in range(runs):
        scores = told(evaluate(*given, sigma=4.0, seed=seed))
        for name, true in truth.items():
            value, low, high = scores[name]
            held[name] += low <= true <= high
            half[name] += abs(true - value) <= (high - low) / 4
    assert min(held.values()) >= 0.93 * runs
    assert np.mean([*half.values()]) < 0.9 * runs


@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_confidence_has_wider_intervals(kind):
    """By the standard deviations that it asks for, also where that is rarer than any draw."""
    given = data(kind, people=4000)
    usual, rare = (told(evaluate(*given, sigma=1.0, seed=1, confidence=share)) for share in (0.95, 1 - 1e-9))
    for one, other in zip(usual.values(), rare.values(), strict=True):
        assert one is other is None or other.low <= one.low <= one.high <= other.high
    name = "explained" if kind == "numbers" else "accuracy"
    ratio = (rare[name].high - rare[name].low) / (usual[name].high - usual[name].low)
    assert ratio == pytest.approx(6.11 / 1.96, rel=0.15)


def exact_sums(monkeypatch, *given, **options):
    """The sums before noise, of one evaluation."""
    seen = []
    original = books.publish

    def noting(release, *, exact, mechanism, part=None):
        seen.append((np.asarray(exact[0]), mechanism))
        return original(release, exact=exact, mechanism=mechanism, part=part)

    with monkeypatch.context() as patch:
        patch.setattr(books, "publish", noting)
        evaluate(*given, sigma=2.0, **options)
    ((sums, mechanism),) = seen
    assert (mechanism.sigma, mechanism.sensitivity) == (2.0, 1.0)
    return sums


def moved(monkeypatch, model, X, y, whose):
    """How far the sums move, for each of twelve people who leave with all their rows."""
    before = exact_sums(monkeypatch, model, X, y, whose.tolist())
    for person in range(12):
        stays = whose != person
        after = exact_sums(monkeypatch, model, X[stays], y[stays], whose[stays].tolist())
        yield float(np.linalg.norm(before - after))


@pytest.mark.parametrize("kind", KINDS)
def test_one_person_moves_the_sums_by_at_most_one(monkeypatch, kind):
    """With all own rows; where rows are added up in place of averaged, the same check finds it."""
    assert max(moved(monkeypatch, *data(kind))) <= 1 + 1e-12
    monkeypatch.setattr("almoner.training._evaluate.np.bincount", lambda rows: np.ones(rows.max() + 1))
    assert max(moved(monkeypatch, *data(kind))) > 1.2


@pytest.fixture
def session(tmp_path):
    who = pa.table({"who": list(range(PEOPLE))})
    with Session.open(
        who, person="who", budget=filters.Gaussian(mu=1.0), ledger=tmp_path / "people.ledger", create=True
    ) as opened:
        yield opened


@pytest.mark.parametrize("kind", KINDS)
def test_people_pay_on_the_ledger_for_what_they_contribute(session, monkeypatch, kind):
    """Half of the norm over sigma, squared, to the unit; beside questions; a key is used once."""
    model, X, y, whose = data(kind)
    session.analyst("ann").ask(Count(clip=1, rho=0.01), key="people")
    before = [session.ledger.spent(person) for person in range(12)]
    on = OnLedger(session.ledger, "check", analyst="ann")
    scores = evaluate(model, X, y, whose.tolist(), sigma=2.0, ledger=on)
    norms = np.array([*moved(monkeypatch, model, X, y, whose)])
    paid = np.array([session.ledger.spent(person) for person in range(12)]) - before
    np.testing.assert_allclose(paid, norms**2 / 8 * 1e15, rtol=1e-9)
    assert (paid >= norms**2 / 8 * 1e15 * (1 - 1e-12)).all()
    assert scores.epsilon is None
    with pytest.raises(ArgumentError, match="check"):
        evaluate(model, X, y, whose.tolist(), sigma=2.0, ledger=on)
    assert scores.people.low < PEOPLE < scores.people.high


def test_who_has_nothing_left_is_not_counted(session):
    """The budget of everybody is spent: about nobody is judged, and nobody pays."""
    model, X, y, whose = data("two labels")
    for number in range(2):
        scores = evaluate(model, X, y, whose.tolist(), sigma=1.0, ledger=OnLedger(session.ledger, f"check {number}"))
    spent = [session.ledger.spent(person) for person in range(PEOPLE)]
    assert max(spent) <= session.ledger.budget_units
    assert scores.people.high < PEOPLE / 2


def test_the_price_is_that_of_one_release():
    """A sigma for an epsilon, and back; nothing from a few people says anything."""
    given = data("two labels", people=3)
    scores = evaluate(*given[:3], epsilon=0.5, delta=1e-6)
    assert scores.epsilon == pytest.approx(0.5)
    assert scores.sigma == pytest.approx(1 / filters.Gaussian(epsilon=0.5, delta=1e-6).mu, rel=1e-6)
    assert (scores.accuracy.low, scores.accuracy.high) == (0.0, 1.0)
    assert (scores.auc.low, scores.auc.high) == (0.0, 1.0)
    nobody = evaluate(given[0], given[1][:0], given[2][:0], sigma=1.0)
    assert nobody.people.low <= 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sigma": None}, "give epsilon=1.0"),
        ({"epsilon": 1.0}, "give epsilon=1.0"),
        ({"sigma": 0.0}, "sigma=0.0"),
        ({"sigma": np.nan}, "sigma=nan"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"people": [1]}, "an id for each"),
        ({"ledger": OnLedger("people.ledger", "check")}, "people must say"),
    ],
)
def test_refusals(changes, words):
    """Before anything is released."""
    model, X, y, _ = data("two labels")
    people = changes.pop("people", None)
    with pytest.raises(ArgumentError, match=words):
        evaluate(model, X, y, people, **{"sigma": 1.0} | changes)


def test_rows_that_cannot_be_judged_are_refused_without_being_quoted():
    """Labels that the model does not know, and scores and targets that are no numbers."""
    model, X, y, _ = data("two labels")
    with pytest.raises(DataError) as refused:
        evaluate(model, X, np.where(np.arange(len(y)) == 7, "secret", y), sigma=1.0)
    assert "secret" not in str(refused.value)
    broken = X.copy()
    broken[3] = np.nan
    with pytest.raises(DataError, match="a finite share"):
        evaluate(model, broken, y, sigma=1.0)
    model, X, y, _ = data("numbers")
    with pytest.raises(DataError, match="finite numbers") as refused:
        evaluate(model, X, np.where(np.arange(len(y)) == 7, "secret", y.astype(str)), sigma=1.0)
    assert "secret" not in f"{refused.value}{refused.value.__context__}"
    with pytest.raises(DataError, match="finite numbers"):
        evaluate(model, X, np.where(np.arange(len(y)) == 7, np.inf, y), sigma=1.0)
    for bounds in (None, (3, 3), (5, 1), (0, np.inf), (np.nan, 1)):
        with pytest.raises(ArgumentError, match="bounds_y"):
            evaluate(SimpleNamespace(bounds_y=bounds, predict=GUESS.predict), X, y, sigma=1.0)
    with pytest.raises(ArgumentError, match="predict_proba"):
        evaluate(SimpleNamespace(predict=GUESS.predict), X, y, sigma=1.0)


def test_labels_may_be_in_the_models_own_order():
    """A model whose labels are not sorted is judged by the column of each label."""
    rows = np.arange(999)
    for labels in (("yes", "no"), ("c", "a", "b")):
        column = rows % len(labels)
        shares = np.eye(len(labels))[column]
        model = SimpleNamespace(classes_=np.array(labels), predict_proba=shares.__getitem__)
        assert evaluate(model, rows, model.classes_[column], sigma=1.0).accuracy.value > 0.97
