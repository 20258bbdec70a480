"""The planned filter: all of the plan under full adaptivity, certified prices beside it, and adversaries."""

import json
import math
import random
from functools import cache, lru_cache

import numpy as np
import pytest

from almoner import filters, mechanisms
from almoner.curves import losses
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported

STEP = mechanisms.SampledGaussian(1.0, 1.0, 0.01)
LOUDER = mechanisms.SampledGaussian(1.25, 1.0, 0.01)


@pytest.fixture(scope="module")
def rounds():
    """How many planned rounds fit into (2, 1e-5)."""
    return filters.Planned(STEP, epsilon=2.0, delta=1e-5).left


def budget(**options):
    return filters.Planned(STEP, **{"epsilon": 2.0, "delta": 1e-5, **options})


def test_the_plan_is_admitted_to_the_last_round(rounds):
    """One by one or in one go: as many as ``left`` said, then a refusal that costs nothing."""
    account = budget()
    account.charge(mechanisms.Repeated(STEP, rounds - 1))
    account.charge(STEP)
    assert (account.left, account.spent, account.count) == (0, rounds, rounds)
    with pytest.raises(BudgetExceeded) as refused:
        account.charge(STEP)
    assert (refused.value.spent, refused.value.left) == (rounds, 0)
    assert not account.admits(mechanisms.Repeated(STEP, 2))


def test_more_noise_in_every_tenth_round_never_costs_rounds_of_the_plan(rounds):
    """At least as many rounds as the plan has, and more."""
    account, count = budget(), 0
    while account.admits(LOUDER if count % 10 == 9 else STEP):
        account.charge(LOUDER if count % 10 == 9 else STEP)
        count += 1
    assert count >= rounds


def test_rounds_with_more_noise_alone_are_many_more(rounds):
    """With 1.25 times the noise at least 1.4 times as many, with twice the noise four times."""
    assert budget().admits(mechanisms.Repeated(LOUDER, math.floor(1.4 * rounds)))
    assert budget().admits(mechanisms.Repeated(mechanisms.SampledGaussian(2.0, 1.0, 0.01), 4 * rounds))


def test_rounds_that_reveal_far_too_much_are_refused_without_a_warning_at_a_tiny_delta():
    """Under a tilt a hundred rounds with epsilon 3 overflowed while their price was looked for."""
    account = filters.Planned(STEP, epsilon=5.0, delta=5e-9)
    assert not account.admits(mechanisms.Repeated(mechanisms.Pure(3.0), 100))


def test_other_mechanisms_are_admitted_beside_the_plan(rounds):
    """Gaussian, pure and Laplace rounds take planned rounds and give change back, which buys the next ones."""
    account = budget()
    account.charge(mechanisms.Gaussian(60.0))
    first = account.left
    assert rounds - 3 <= first < rounds
    account.charge(mechanisms.Composed((mechanisms.Pure(0.005), mechanisms.Laplace(300.0))))
    assert first - 2 <= account.left <= first
    account.charge(mechanisms.Repeated(STEP, account.left))
    assert account.left == 0


def test_by_default_a_thousandth_of_delta_is_for_rounds_that_may_fail(rounds):
    """Out of the slack: no planned round is lost by it; states saved with nothing set aside refuse them as before."""
    account, risky = budget(), mechanisms.Approximate(0.005, 4e-9)
    assert account.left == budget(sum_delta=0.0).left == rounds
    account.charge(mechanisms.Repeated(STEP, 10))
    account.charge(mechanisms.Repeated(risky, 2))
    with pytest.raises(BudgetExceeded, match="sum_delta=1e-08"):
        account.charge(risky)
    again = filters.Planned.from_state(json.loads(json.dumps(account.state())))
    assert again.state() == account.state()
    assert not again.admits(risky)
    closed = filters.Planned.from_state(budget(sum_delta=0.0).state())
    assert not closed.admits(risky)


def test_rounds_that_may_fail_need_a_share_of_delta():
    """Without sum_delta they are refused; with it the failures add up against it."""
    risky = mechanisms.Approximate(0.005, 1e-7)
    with pytest.raises(BudgetExceeded, match="sum_delta"):
        budget().charge(risky)
    account = budget(sum_delta=2.5e-7)
    account.charge(mechanisms.Repeated(risky, 2))
    assert not account.admits(risky)
    assert account.admits(STEP)


def test_a_round_that_does_not_fit_costs_nothing(rounds):
    """A price above all that is left, and a mechanism without a distribution."""
    account = budget()
    with pytest.raises(BudgetExceeded):
        account.charge(mechanisms.Gaussian(0.1))
    with pytest.raises(Unsupported):
        account.charge(mechanisms.Zcdp(1e-6))
    assert account.left == rounds
    assert account.count == 0


def test_a_saved_filter_goes_on_to_the_last_unit(rounds):
    """The state is plain JSON; what is left of planned rounds and of change comes back."""
    account = budget()
    account.charge(mechanisms.Repeated(LOUDER, 3))
    account.charge(mechanisms.Repeated(STEP, 10))
    again = filters.Planned.from_state(json.loads(json.dumps(account.state())))
    assert (again.left, again.count, repr(again)) == (account.left, account.count, repr(account))
    assert again.state() == account.state()
    again.charge(mechanisms.Repeated(STEP, again.left))
    with pytest.raises(BudgetExceeded):
        again.charge(STEP)


def test_states_that_were_tampered_with_are_refused():
    """More used than there is, change that was never there, another number of totals."""
    state = budget().state()
    for spent in ([10**9, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0], [0, 0, 0, 10**30, 0]):
        with pytest.raises(ArgumentError):
            filters.Planned.from_state({**state, "spent": spent})


def test_a_state_with_other_units_of_change_is_refused():
    """Change is counted in steps of a grid: another grid would make it worth more."""
    state = budget().state()
    with pytest.raises(ArgumentError, match="units"):
        filters.Planned.from_state({**state, "units": {**state["units"], "step": 2 * state["units"]["step"]}})


def test_rounds_that_reveal_nearly_all_are_refused_without_a_crash():
    """Little noise, in the plan's grid and outside of what it can hold."""
    account = filters.Planned(mechanisms.Gaussian(10.0), epsilon=1.0, delta=1e-6)
    for sigma in (0.021, 0.025, 0.033, 0.05):
        assert not account.admits(mechanisms.Gaussian(sigma))


@pytest.mark.parametrize(("epsilon", "least"), [(20.0, 10), (400.0, 500)])
def test_large_budgets_are_used(epsilon, least):
    """The Gaussian bound is a little above: nothing is lost where all losses are far above zero."""
    assert filters.Planned(mechanisms.Gaussian(1.0), epsilon=epsilon, delta=1e-6).left >= least


def test_bad_arguments_are_named():
    """A reserve outside [0, 1), a plan that is nothing or does not fit, a share of delta that is none."""
    for reserve in (-0.1, 1.0, math.nan):
        with pytest.raises(ArgumentError, match="reserve"):
            budget(reserve=reserve)
    with pytest.raises(ArgumentError, match="plan"):
        filters.Planned(mechanisms.Composed(()), epsilon=1.0, delta=1e-5)
    with pytest.raises(ArgumentError, match="plan"):
        filters.Planned("a step", epsilon=1.0, delta=1e-5)
    with pytest.raises(ArgumentError, match="does not fit once"):
        filters.Planned(mechanisms.Gaussian(0.1), epsilon=0.5, delta=1e-5)
    with pytest.raises(ArgumentError, match="sum_delta"):
        budget(sum_delta=1e-4)


def test_an_epoch_of_two_noises_is_a_plan():
    """Its rounds may run in any order; ``left`` counts whole epochs."""
    epoch = mechanisms.Composed((STEP, mechanisms.Repeated(LOUDER, 2)))
    account = filters.Planned(epoch, epsilon=2.0, delta=1e-5)
    epochs = account.left
    account.charge(mechanisms.Repeated(LOUDER, 2 * epochs))
    assert account.left == 0
    account.charge(mechanisms.Repeated(STEP, epochs))
    with pytest.raises(BudgetExceeded):
        account.charge(STEP)


def test_the_epsilon_at_another_delta_is_the_one_of_the_composition():
    """At a larger delta it is smaller, and at its own delta it is the filter's own."""
    account = budget()
    assert account.epsilon() == 2.0
    assert 1.0 < account.epsilon(delta=1e-3) < 2.0


# An adversary that knows everything: the best strategy by dynamic programming over losses and the filter's states.

PLAN, EPSILON, DELTA = 0.125, 1.0, 1e-2
MENU = {0.125: 2, 0.25: 4}  # losses in sixteenths


def best(account_at, admits, menu):
    """The largest delta that any adaptive choice among the menu reaches, stopping whenever it likes."""

    @cache
    def value(loss, state):
        now = max(0.0, -math.expm1(EPSILON - loss / 16)) if loss / 16 > EPSILON else 0.0
        for epsilon, places in menu.items():
            following = admits(state, epsilon)
            if following is not None:
                p = 1 / (1 + math.exp(-epsilon))
                now = max(now, p * value(loss + places, following) + (1 - p) * value(loss - places, following))
        return now

    return value(0, account_at)


def totals_after(state, epsilon):
    """The filter's totals after one more round; None where it refuses."""
    account = filters.Planned.from_state(state_of(state))
    round_ = mechanisms.Pure(epsilon)
    if not account.admits(round_):
        return None
    account.charge(round_)
    return tuple(account.state()["spent"])


def state_of(totals):
    fresh = filters.Planned(mechanisms.Pure(PLAN), epsilon=EPSILON, delta=DELTA)
    return {**fresh.state(), "spent": list(totals)}


def test_the_best_adversary_stays_below_delta_and_comes_near():
    """Over the plan's own round and one of twice its epsilon, chosen by the results: between 0.7 and 1 of delta."""
    remembered = lru_cache(maxsize=None)(totals_after)
    start = tuple(filters.Planned(mechanisms.Pure(PLAN), epsilon=EPSILON, delta=DELTA).state()["spent"])
    found = best(start, remembered, MENU)
    assert 0.7 * DELTA < found <= DELTA


def test_a_filter_that_gives_five_per_cent_more_is_caught():
    """The same adversary against so many rounds of the plan more: above delta."""
    plan = filters.Planned(mechanisms.Pure(0.02), epsilon=EPSILON, delta=DELTA)
    count, p = math.ceil(1.05 * plan.left), 1 / (1 + math.exp(-0.02))
    reached = sum(
        math.comb(count, k) * p**k * (1 - p) ** (count - k) * -math.expm1(EPSILON - (2 * k - count) * 0.02)
        for k in range(count + 1)
        if (2 * k - count) * 0.02 > EPSILON
    )
    assert reached > DELTA


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_whole_paths_composed_again_stay_within_the_promise(seed):
    """All that was charged on a path, a plan of two kinds and four others, composed by another certificate."""
    rng = random.Random(seed)
    plan = mechanisms.Composed((mechanisms.Repeated(STEP, 4), mechanisms.Laplace(40.0)))
    account, charged = filters.Planned(plan, epsilon=2.0, delta=1e-5), {}
    others = [LOUDER, mechanisms.SampledGaussian(2.0, 1.0, 0.02), mechanisms.Gaussian(50.0), mechanisms.Pure(0.02)]
    menu = [plan, plan, *others]
    while menu:
        chosen = mechanisms.Repeated(rng.choice(menu), rng.choice([1, 4, 16]))
        if account.admits(chosen):
            account.charge(chosen)
            for leaf, count in mechanisms.leaves(chosen).items():
                charged[leaf] = charged.get(leaf, 0) + count
        elif chosen.count == 1:
            menu = [each for each in menu if each != chosen.mechanism]
    counts = np.array([list(charged.values())])
    assert losses.epsilons(counts, list(charged), delta=1e-5, lower=True)[0] <= 2.0
    assert losses.epsilons(counts, list(charged), delta=1e-5)[0] >= 1.8


def refused(account, mechanism):
    """The words of a refusal, without what was asked."""
    with pytest.raises(BudgetExceeded) as told:
        account.charge(mechanism)
    assert "inf" not in str(told.value)
    return str(told.value).removeprefix(f"{mechanism!r} does not fit: ")


def test_the_refusal_says_in_words_what_cannot_be_paid():
    """What the plan admits, how many of its rounds are left, and why the mechanism is refused; no infinite number."""
    step = mechanisms.Gaussian(10.0)
    account = filters.Planned(step, epsilon=1.0, delta=1e-5)
    left = account.left
    plan = f"the plan is {left} rounds of {step!r}"
    assert refused(account, mechanisms.Repeated(step, left + 1)) == (
        f"{plan}, of which {left} are left, and this takes {left + 1}"
    )
    assert refused(account, mechanisms.Gaussian(0.5)) == (
        f"{plan}, of which {left} are left. Another mechanism is admitted in place of planned rounds that are proven "
        f"to reveal as much about a person; for this one that is not proven of all {left} together"
    )
    account.charge(mechanisms.Repeated(step, left - 1))
    assert refused(account, mechanisms.Repeated(step, 2)) == f"{plan}, of which 1 is left, and this takes 2"
    account.charge(step)
    assert refused(account, step) == f"{plan}, and all of them are used"


def test_the_refusal_counts_whole_rounds_of_a_plan_of_several_mechanisms():
    """What is asked is counted in rounds of the plan, rounded up, also where it is a part of one alone."""
    step, count = mechanisms.Gaussian(30.0), mechanisms.Laplace(300.0)
    account = filters.Planned(mechanisms.Composed((step, step, count)), epsilon=1.0, delta=1e-5)
    left = account.left
    assert refused(account, mechanisms.Repeated(step, 2 * left + 1)).endswith(
        f"of which {left} are left, and this takes {left + 1}"
    )


# Plans of several kinds, with counts.

FIRST, SECOND = mechanisms.SampledGaussian(2.0, 1.0, 0.05), mechanisms.SampledGaussian(2.0, 1.0, 0.1)
STAGES = [(FIRST, 20), (SECOND, 13)]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_every_round_of_two_stages_is_admitted_in_any_order(seed):
    """20 rounds at one rate and 13 at another, at the epsilon of the run fixed in advance (1.00394), rounded up."""
    account, rounds = filters.Planned(STAGES, epsilon=1.004, delta=1e-5), [FIRST] * 20 + [SECOND] * 13
    if seed is not None:
        random.Random(seed).shuffle(rounds)
    for done, round_ in enumerate(rounds):
        assert account.left == 33 - done
        account.charge(round_)
    assert (account.left, account.spent) == (0, 33)
    assert not account.admits(FIRST)
    assert not account.admits(SECOND)


def test_no_kind_is_used_beyond_its_count():
    """Where the plan fills the budget a fourteenth round of the second kind does not fit, and the first are there."""
    account = filters.Planned(STAGES, epsilon=1.004, delta=1e-5)
    account.charge(mechanisms.Repeated(SECOND, 13))
    assert "20 are left" in refused(account, SECOND)
    assert not account.admits(mechanisms.Repeated(FIRST, 21))
    account.charge(mechanisms.Repeated(FIRST, 20))


def test_a_plan_that_does_not_fit_is_refused_with_what_does():
    """The message says the largest scale, and those counts are admitted."""
    with pytest.raises(ArgumentError, match=r"counts of \[18, 11\] fit"):
        filters.Planned(STAGES, epsilon=0.95, delta=1e-5)
    assert filters.Planned([(FIRST, 18), (SECOND, 11)], epsilon=0.95, delta=1e-5).left == 29
    for bad in ([], [FIRST], [(FIRST, 0)], [(FIRST, 1.5)], [(FIRST, 1, 1)], [("x", 1)], "x", 3):
        with pytest.raises(ArgumentError):
            filters.Planned(bad, epsilon=1.0, delta=1e-5)
    with pytest.raises(ArgumentError, match="reserve"):
        filters.Planned(STAGES, epsilon=2.0, delta=1e-5, reserve=0.1)


def test_what_a_plan_leaves_buys_other_rounds_and_the_plan_stays_whole():
    """Change pays for them beside the plan; a state that was saved goes on to the last unit."""
    account, other = filters.Planned(STAGES, epsilon=1.5, delta=1e-5), mechanisms.Gaussian(20.0)
    account.charge(mechanisms.Repeated(other, 10))
    assert account.left == 33
    account.charge(mechanisms.Composed((mechanisms.Repeated(FIRST, 7), mechanisms.Repeated(SECOND, 3))))
    restored = filters.Planned.from_state(json.loads(json.dumps(account.state())))
    assert restored.state() == account.state()
    for each in (account, restored):
        each.charge(mechanisms.Repeated(FIRST, 13))
        each.charge(mechanisms.Repeated(SECOND, 10))
        assert each.left == 0
        for _ in range(10):
            each.charge(other)
        assert not each.admits(mechanisms.Repeated(other, 1000))
    assert restored.state() == account.state()


QUIET, LOUD = mechanisms.Pure(0.125), mechanisms.Pure(0.25)


@pytest.mark.parametrize("counts", [(6, 3), (10, 2), (10, 1)])
def test_the_best_adversary_against_a_plan_of_two_kinds_stays_below_delta(counts):
    """Rounds of both kinds in any order, and beyond their counts for change or for what is left: at most delta."""
    fresh = filters.Planned(list(zip((QUIET, LOUD), counts, strict=True)), epsilon=EPSILON, delta=DELTA)
    saved = fresh.state()

    @cache
    def after(state, epsilon):
        account = filters.Planned.from_state({**saved, "spent": list(state)})
        if not account.admits(mechanisms.Pure(epsilon)):
            return None
        account.charge(mechanisms.Pure(epsilon))
        return tuple(account.state()["spent"])

    assert 0 < best(tuple(saved["spent"]), after, MENU) <= DELTA


@pytest.mark.parametrize("wrong", ["loud for quiet", "beyond its count"])
def test_wrong_rules_for_a_plan_of_two_kinds_are_caught(wrong):
    """A loud round that takes a quiet one, or a kind used two times too often: the same adversary gets above delta."""
    right_start = (10, 2)
    assert filters.Planned([(QUIET, 10), (LOUD, 2)], epsilon=EPSILON, delta=DELTA).left == 12
    start = (10, 4) if wrong == "beyond its count" else right_start

    def right(state, epsilon):
        quiet, loud = (state[0] - 1, state[1]) if epsilon == QUIET.epsilon else (state[0], state[1] - 1)
        return (quiet, loud) if min(quiet, loud) >= 0 else None

    def any_kind(state, epsilon):
        return (state[0] + state[1] - 1, 0) if sum(state) else None

    assert best(start, any_kind if wrong == "loud for quiet" else right, MENU) > DELTA
    assert best(right_start, right, MENU) <= DELTA
