"""Several budgets are charged together, or none is; a budget is opened by its key; what is given up stays so."""

import json
import sys
from pathlib import Path
from threading import Thread

import pytest

from almoner import filters, individual, mechanisms
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.ledger import Terms

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "suites"))
import w3c_attribution

TENTH = mechanisms.Pure(0.1)


def browser(**most):
    """Device whose budgets are small."""
    config = {
        "privacyBudgetEpochDays": 7,
        "epochStart": 0.5,
        "maxLookbackDays": 30,
        "fairlyAllocateCreditFraction": 0.5,
        "perSitePrivacyBudget": 1e6,
        "globalPrivacyBudgetPerEpoch": 8e6,
        "impressionSiteQuotaPerEpoch": 4e6,
        **most,
    }
    return w3c_attribution.Browser(config)


def shown(at, site, index=0):
    """Event of an impression."""
    return {"seconds": at, "site": site, "options": {"histogramIndex": index}}


def bought(at, site, epsilon=1.0, **options):
    """Event of a conversion."""
    return {"seconds": at, "site": site, "options": {"histogramSize": 2, "epsilon": epsilon, **options}}


def test_all_budgets_are_charged_or_none():
    """A round that one of the budgets cannot pay changes none, and the error says which it was."""
    budgets = filters.All({"site": filters.Basic(epsilon=0.1), "all": filters.Zcdp(rho=1.0)})
    budgets.charge({"site": TENTH, "all": mechanisms.Zcdp(0.5)})
    for charges in ({"all": mechanisms.Zcdp(0.1), "site": TENTH}, {"site": mechanisms.Pure(1e-9), "all": TENTH}):
        before = budgets.state()
        assert not budgets.admits(charges)
        with pytest.raises(BudgetExceeded, match=r"budget of 'site'.*no budget was charged"):
            budgets.charge(charges)
        assert budgets.state() == before
    with pytest.raises(Unsupported):
        budgets.charge({"all": TENTH, "site": mechanisms.Gaussian(sigma=1.0)})
    assert budgets.left("all") == 0.5


def test_one_mechanism_is_charged_to_every_budget():
    """A mechanism without keys is for all budgets that are there; for none, it is refused."""
    budgets = filters.All({"site": filters.Basic(epsilon=0.3), "all": filters.Basic(epsilon=0.5)})
    for _ in range(3):
        budgets.charge(TENTH)
    assert not budgets.admits(TENTH)
    assert budgets.left("all")[0] == pytest.approx(0.2)
    with pytest.raises(ArgumentError, match=r"charges must be \{key: mechanism\}"):
        filters.All(open=lambda _: filters.Basic(epsilon=1.0)).charge(TENTH)


def test_a_budget_is_opened_when_its_key_is_first_charged():
    """Asking opens none; a charge that is refused opens none; a key keeps its budget."""
    made = []

    def opened(key):
        made.append(key)
        return filters.Basic(epsilon=0.2)

    budgets = filters.All({"all": filters.Basic(epsilon=0.1)}, open=opened)
    assert budgets.admits({"news": TENTH})
    assert budgets.left("news")[0] == pytest.approx(0.2)
    with pytest.raises(BudgetExceeded):
        budgets.charge({"news": TENTH, "all": mechanisms.Pure(0.2)})
    assert budgets.keys == ("all",)
    budgets.charge({"news": TENTH, "all": TENTH})
    made.clear()
    budgets.charge({"news": TENTH})
    assert not budgets.admits({"news": TENTH})
    assert made == []


def test_budgets_that_cannot_be_kept_apart_are_refused():
    """A filter that was charged, that stands under two keys, or that is none, would not keep its promise here."""
    used, shared = filters.Basic(epsilon=1.0), filters.Basic(epsilon=1.0)
    used.charge(TENTH)
    with pytest.raises(ArgumentError, match="must be fresh, not charged 1 times"):
        filters.All({"a": used})
    with pytest.raises(ArgumentError, match="one key alone"):
        filters.All({"a": shared, "b": shared})
    with pytest.raises(ArgumentError, match="give filters by key, or open="):
        filters.All()
    with pytest.raises(ArgumentError, match="must be a filter, one of"):
        filters.All(open=lambda key: key).charge({"a": TENTH})
    both = filters.All(open=lambda _: shared)
    with pytest.raises(ArgumentError, match="a filter of its own for each key"):
        both.charge({"a": TENTH, "b": TENTH})
    both.charge({"a": TENTH})
    with pytest.raises(ArgumentError, match="must be fresh"):
        both.charge({"b": TENTH})
    with pytest.raises(ArgumentError, match=r"key='b' has no budget here, and open= was not given"):
        filters.All({"a": filters.Basic(epsilon=1.0)}).admits({"b": TENTH})


def test_writers_at_the_same_time_never_spend_a_budget_twice():
    """Of 8 threads with two budgets each, exactly as many charges pass as the smaller budget pays for."""
    budgets = filters.All({"small": filters.Basic(epsilon=1.0), "large": filters.Basic(epsilon=5.0)})
    passed = []

    def writer():
        for _ in range(20):
            try:
                budgets.charge({"large": TENTH, "small": TENTH})
            except BudgetExceeded:
                continue
            passed.append(1)

    threads = [Thread(target=writer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 10
    assert budgets.spent("large") == (1.0, 0.0)


def test_what_was_given_up_is_not_spent_and_not_left():
    """After ``forget`` nothing is admitted, also not after a restart, and by every kind of account."""
    for account in (filters.Basic(epsilon=1.0), filters.Renyi(epsilon=1.0, delta=1e-6)):
        account.charge(TENTH)
        account.forget()
        again = type(account).from_state(account.state())
        for each in (account, again):
            assert not each.admits(mechanisms.Pure(1e-12))
            with pytest.raises(BudgetExceeded):
                each.charge(mechanisms.Pure(1e-12))
    assert filters.Basic(epsilon=1.0).left == (1.0, 0.0)
    gone = filters.Zcdp(rho=1.0)
    gone.forget()
    assert (gone.spent, gone.left) == (0.0, 0.0)
    for revive in (
        lambda: individual.Filter(2, gone),
        lambda: gone.hand_over("another door"),
        lambda: filters.All({"again": gone}),
        lambda: Terms(gone, person="VARCHAR"),
    ):
        with pytest.raises(BudgetExceeded, match=r"was given up by forget\(\)"):
            revive()
    gone.forget()  # again: nothing happens
    assert gone.fresh().left == 1.0


def test_a_key_that_was_given_up_before_it_was_charged_stays_so():
    """The budget of a new key is opened, and closed, also in a saved state with keys of several parts."""
    budgets = filters.All(open=lambda _: filters.Basic(epsilon=1.0))
    budgets.charge({("site", 3): TENTH})
    budgets.forget([("shop", 3)])
    saved = json.loads(json.dumps(budgets.state()))
    again = filters.All.from_state(saved, open=lambda _: filters.Basic(epsilon=1.0))
    for each in (budgets, again):
        assert each.left(("site", 3))[0] == pytest.approx(0.9)
        assert not each.admits({("shop", 3): TENTH})
        assert each.admits({("shop", 4): TENTH})
    again.forget()
    assert not again.admits({("site", 3): TENTH})


def test_a_report_in_one_epoch_is_charged_by_its_norm():
    """A browser pays a quarter, a half, refuses a half, and pays the last quarter exactly."""
    device = browser()
    device.save(shown(1, "p.example"))
    device.save(shown(2, "p.example", 1))
    half = {"value": 8, "maxValue": 8, "lookbackDays": 1}
    quarter = {"value": 4, "maxValue": 8, "lookbackDays": 1, "credit": [3, 1]}
    told = [device.measure(bought(3 + at, "a.example", **how)) for at, how in enumerate((quarter, half, half, quarter))]
    assert told == [[1, 3], [0, 8], [0, 0], [1, 3]]
    assert device.measure(bought(9, "b.example", **quarter)) == [1, 3]  # each site has a budget of its own
    key = ("site", device.epoch(9), "a.example")
    assert device.budgets.left(key) == (0.0, 0.0)
    assert device.budgets.spent(("all", device.epoch(9))) == (2.5, 0.0)


def test_a_spent_quota_of_a_site_that_advertises_stops_every_report():
    """The quota of an epoch is shared by all sites; a report that it cannot pay charges no budget at all."""
    device = browser(impressionSiteQuotaPerEpoch=1e6)
    device.save(shown(1, "p.example"))
    assert device.measure(bought(2, "a.example", 0.6)) == [1, 0]
    before = device.budgets.state()
    assert device.measure(bought(3, "b.example", 0.6)) == [0, 0]
    assert device.budgets.state() == before
    assert device.measure(bought(4, "c.example", 0.4)) == [1, 0]


def test_cleared_sites_report_nothing_more():
    """A cleared site has no budget left in this epoch, and other sites have theirs."""
    device = browser()
    device.save(shown(1, "p.example"))
    device.clear_history({"seconds": 2, "sites": ["a.example"], "forgetVisits": False})
    assert device.measure(bought(3, "a.example", 0.1)) == [0, 0]
    assert device.measure(bought(4, "b.example", 0.1)) == [1, 0]
    device.clear_history({"seconds": 5, "sites": [], "forgetVisits": True})
    device.save(shown(6, "p.example"))
    assert device.measure(bought(7, "b.example", 0.1)) == [0, 0]
    later = 8 * w3c_attribution.DAY
    device.save(shown(later, "p.example"))
    assert device.measure(bought(later + 1, "a.example", 0.1)) == [1, 0]
