"""Files of questions: what they must say, and the check of a ledger against the rows."""

import pytest

from bursar.errors import ArgumentError, DataError, LedgerError
from bursar.queries.plans import Plan
from plan_files import PLAN, plan_folder


@pytest.fixture
def folder(tmp_path):
    return plan_folder(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('person = "who"', ""),
        ('person = "who"', "person = 3"),
        ("rho = 1.0", "rho = 1.0\nseed = 1"),
        ("rho = 1.0", "rho = true"),
        ("rho = 1.0", "rho = 1.0\ncreate = 0"),
        ("rho = 1.0", 'rho = 1.0\ntypes = "number"'),
        ("rho = 1.0", 'view = "x"\nrho = "much"'),
        ('key = "middle"', 'key = "rows"'),
        ('key = "middle"', ""),
        ('ask = "count"', 'ask = "drop"'),
        ("sigma = 20", ""),
        ("[[questions]]", "[[[questions"),
    ],
)
def test_plans_that_make_no_sense(folder, old, new):
    """Each is refused by name before any data are touched."""
    (folder / "plan.toml").write_text(PLAN.replace(old, new, 1))
    with pytest.raises((ArgumentError, DataError)):
        Plan.read(folder / "plan.toml")
    with pytest.raises(DataError):
        Plan.read(folder / "none.toml")


def test_a_plan_shows_no_password(folder):
    """Its repr may end in a log."""
    plan = folder / "plan.toml"
    plan.write_text(PLAN.replace("people.ledger", "postgresql://u:SECRET@h/db"))
    assert "SECRET" not in repr(Plan.read(plan))


def test_a_ledger_is_checked_against_the_rows(folder):
    """Every charge is computed again; another ledger and a lost one are refused, and none is made."""
    plan = Plan.read(folder / "plan.toml")
    with pytest.raises(LedgerError):
        plan.verify(folder / "people.ledger")
    assert not (folder / "people.ledger").exists()
    with plan.open() as session:
        plan.ask(session)
        head = session.ledger.head
    assert all(finding.holds for finding in plan.verify(folder / "people.ledger", head=head))
    assert all(finding.holds for finding in plan.verify(folder / "." / "people.ledger"))
    assert not all(finding.holds for finding in plan.verify(folder / "people.ledger", head="2:wrong"))
    with pytest.raises(ArgumentError, match="another ledger"):
        plan.verify(folder / "other.ledger")
