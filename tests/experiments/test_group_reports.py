"""What filtering does to groups: the report against plain loops, private by repr, and the experiments in brief."""

import sys
from pathlib import Path

import numpy as np
import pytest

from almoner import errors, filters, individual, mechanisms
from almoner.curves import gaussian
from almoner.training import Descent, descend
from almoner.training._linear.descent import LogisticGradients

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from group_reports import Audience, GroupReport, GroupWatch, linear_measure, module_measure

MU = 1.0


@pytest.fixture(scope="module")
def run():
    """A run with two groups, one of which the model gets wrong; (report, parameters seen, shares seen, data)."""
    rng = np.random.default_rng(1)
    group = np.repeat([0, 1], [150, 50])
    x = rng.normal(size=(200, 2))
    y = np.where((x[:, 0] > 0) ^ (group == 1), 1, 0)
    x /= np.maximum(1, np.linalg.norm(x, axis=1))[:, None]
    accounts = individual.Filter(200, filters.Gaussian(mu=MU))
    seen, steps = [], 60
    measure = linear_measure(x, y, intercept=False)
    train = Audience({"kind": np.array(["most", "few"])[group]}, measure)
    watch = GroupWatch(train, lambda: accounts.spent() / MU**2, steps=steps, test=train)

    def observe(number, parameters):
        watch.look(number, parameters)
        seen.append((parameters.copy(), accounts.spent() / MU**2))

    people = LogisticGradients(x, y, 2, intercept=False)
    step = mechanisms.Gaussian(sigma=4.0, sensitivity=1.0)
    descend(
        people,
        people.start,
        accounts,
        step,
        steps=steps,
        learning_rate=4,
        divisor=200,
        noise=rng,
        descent=Descent(average=0.0, momentum=0.0, pace=0.0),
        observe=observe,
    )
    return watch, seen, (x, y, group)


def test_the_rows_are_what_plain_loops_say(run):
    """Loss, accuracy, mean share and who has nothing left, for each group at both moments."""
    watch, seen, (x, y, group) = run
    start = next(number for number, (_, shares) in enumerate(seen, 1) if shares.max() >= 1 - 1e-6)
    assert 1 < start < 60
    rows = watch.report().rows
    assert len(rows) == 2 * 2 * 2  # audiences, groups, moments
    for row in rows:
        parameters, shares = seen[row["step"] - 1]
        members = np.flatnonzero(group == ["most", "few"].index(row["group"]))
        losses, right = [], []
        for i in members:
            margin = (x[i] @ parameters)[0] * (1 if y[i] else -1)
            losses.append(np.log1p(np.exp(-margin)))
            right.append(margin > 0)
        assert row["step"] == (start if row["moment"] == "filtering starts" else 60)
        assert row["people"] == len(members)
        assert row["loss"] == pytest.approx(np.mean(losses))
        assert row["accuracy"] == pytest.approx(np.mean(right))
        if row["audience"] == "train":
            assert row["share"] == pytest.approx(np.mean(shares[members]))
            assert row["used_up"] == pytest.approx(np.mean(shares[members] >= 1 - 1e-6))
        else:
            assert "share" not in row


def test_the_group_that_the_model_gets_wrong_spends_more(run):
    """The disparity that the report is there to show."""
    report = run[0].report()
    ends = {row["group"]: row for row in report.rows if row["moment"] == "end" and row["audience"] == "train"}
    assert ends["few"]["share"] > 1.2 * ends["most"]["share"]
    assert ends["few"]["accuracy"] < ends["most"]["accuracy"]
    assert report.gap("kind", "share") == pytest.approx(ends["few"]["share"] - ends["most"]["share"])
    assert report.gap("kind", "share", least=100) == 0
    with pytest.raises(errors.ArgumentError, match="nothing"):
        report.gap("nothing", "share")


def test_nothing_is_shown_by_accident(run):
    """Reprs hold no number; the table and the dict say that they are private."""
    watch = run[0]
    for thing in (watch, watch.report(), watch._audiences["train"]):
        assert repr(thing) == f"{type(thing).__name__}(private: for the data holder)"
    assert watch.report().table().startswith("private: for the data holder")
    assert watch.report().to_dict()["mark"] == "private: for the data holder"
    assert len(watch.report().table().splitlines()) == 4 + 8


def test_several_classes_and_several_rows_of_a_person():
    """Softmax losses against a plain formula, averaged over each person's rows."""
    rng = np.random.default_rng(2)
    x, y, people = rng.normal(size=(6, 3)), np.array([0, 1, 2, 1, 0, 2]), np.array([0, 0, 1, 2, 2, 2])
    parameters = rng.normal(size=(4, 3))
    losses, right = linear_measure(x, y, intercept=True, people=people)(parameters)
    logits = np.hstack([x, np.ones((6, 1))]) @ parameters
    plain = -np.log([np.exp(row)[label] / np.exp(row).sum() for row, label in zip(logits, y, strict=True)])
    hits = logits.argmax(axis=1) == y
    for person in range(3):
        assert losses[person] == pytest.approx(plain[people == person].mean())
        assert right[person] == pytest.approx(hits[people == person].mean())


def test_an_audience_needs_a_label_for_everybody():
    """Attributes of different lengths, or none, are refused."""
    for groups in ({}, {"a": [1, 2], "b": [1]}):
        with pytest.raises(errors.ArgumentError, match="groups"):
            Audience(groups, lambda parameters: ([], []))


def test_a_run_without_filtering_has_an_end_only():
    """If nobody's budget is used up there is no start to report."""
    one = Audience({"all": ["x"]}, lambda parameters: ([0.5], [1.0]))
    watch = GroupWatch(one, lambda: np.array([0.3]), steps=2)
    watch.look(1, None)
    watch.look(2, None)
    assert [row["moment"] for row in watch.report().rows] == ["end"]
    assert isinstance(watch.report(), GroupReport)


def test_mean_epsilons_by_group_are_those_of_the_counted_losses():
    """The mean of certified bounds of each person's steps, by group, against the exact Gaussian formula of each."""
    norms = np.array([1.0, 0.5, 0.1, 0.05])
    counted = individual.Losses(4, least=20.0, most=2e5, buckets=2000)
    group, step = np.array(["a", "a", "b", "b"]), mechanisms.Gaussian(sigma=20.0, sensitivity=1.0)
    train = Audience({"kind": group}, lambda parameters: (np.zeros(4), np.ones(4)))
    epsilons = lambda: counted.epsilon(delta=1e-5)  # noqa: E731
    watch = GroupWatch(train, lambda: np.zeros(4), steps=30, test=train, epsilons=epsilons)
    for number in range(1, 31):
        counted.record(step, norms)
        watch.look(number, None)
    exact = gaussian.epsilon(np.sqrt(30) * norms / 20, delta=1e-5)
    rows = watch.report().rows
    for row in rows:
        if row["audience"] == "test":
            assert "epsilon" not in row
            continue
        mean = exact[group == row["group"]].mean()
        assert mean <= row["epsilon"] <= 1.01 * mean  # rounded up, by the buckets
    assert "epsilon" in watch.report().table().splitlines()[2]
    assert watch.report().gap("kind", "epsilon") > 0.3


def test_an_epsilon_that_is_no_number_counts_as_infinite():
    """One person without a bound makes the group's mean infinite; one of a wrong length is refused."""
    train = Audience({"kind": ["a", "a", "b"]}, lambda parameters: (np.zeros(3), np.ones(3)))
    for bad in (np.nan, np.inf, -1.0):
        watch = GroupWatch(train, lambda: np.zeros(3), steps=1, epsilons=lambda bad=bad: [0.5, bad, 0.25])
        watch.look(1, None)
        assert [row["epsilon"] for row in watch.report().rows] == [np.inf, 0.25]
    watch = GroupWatch(train, lambda: np.zeros(3), steps=1, epsilons=lambda: [0.5, 0.25])
    with pytest.raises(errors.ArgumentError, match="epsilons"):
        watch.look(1, None)


def test_filtering_starts_at_the_step_that_is_given():
    """With start= the first look is after that step, whatever the shares say; without it, at the first empty budget."""
    train = Audience({"kind": ["a"]}, lambda parameters: ([0.0], [1.0]))
    for shares, start, expected in ((0.5, 3, [3, 5]), (1.0, 3, [3, 5]), (1.0, None, [1, 5]), (0.5, None, [5])):
        watch = GroupWatch(train, lambda shares=shares: np.array([shares]), steps=5, start=start)
        for step in range(1, 6):
            watch.look(step, None)
        assert [row["step"] for row in watch.report().rows] == expected
    with pytest.raises(errors.ArgumentError, match="start"):
        GroupWatch(train, lambda: np.zeros(1), steps=5, start=0)


def test_groups_of_a_module_add_up_to_its_accuracy():
    """Losses and right answers of a PyTorch module by group, at the end of a training, are those of all people."""
    pytest.importorskip("torch")
    from almoner.training.callbacks import Evaluation
    from training_runs import BY_RECORD, N, records, trainer

    x, y = records()
    job = trainer(filters.Gaussian(mu=0.6), noise_multiplier=4.0)
    side = np.where(x[:, 0] > 0, "right", "left")
    watch = GroupWatch(Audience({"side": side}, module_measure(x, y, BY_RECORD)), job.shares, steps=20)
    run = job.fit(x, y, callbacks=[Evaluation(x, y, every=10), lambda run: watch.look(run.step, run.module)])
    rows = watch.report().rows
    assert {row["group"] for row in rows} == {"left", "right"}
    assert run.history["accuracy"][-1][1] == pytest.approx(
        sum(row["accuracy"] * row["people"] for row in rows if row["moment"] == "end") / N
    )
