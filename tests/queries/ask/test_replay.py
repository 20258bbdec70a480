"""Charging again: every question from the data, into the same accounts."""

import pyarrow as pa

from almoner.queries import Count
from sessions import ROWS, opened


def test_replay_sees_changed_rows(path):
    """When rows are not the same any more, re-running the charges gives other accounts, and verify says so."""
    with opened(path) as session:
        session.analyst("x").ask(Count(sigma=5.0, clip=3), key="a")
        head = session.ledger.head
    fewer = pa.table(ROWS).slice(1)
    with opened(path, fewer) as session:
        findings = session.verify(replay=True, head=head)
        assert [finding.holds for finding in findings] == [True] * (len(findings) - 1) + [False]


def test_a_purpose_by_the_name_of_none_is_a_purpose(path):
    """A limit on it does not concern questions without any, not even when they are charged again."""
    with opened(path) as session:
        session.limit(0.25, purpose="None")
        session.analyst("ann").ask(Count(clip=1, rho=0.2), key="a")
        session.analyst("ann", purpose="None").ask(Count(clip=1, rho=0.2), key="b")
        assert all(finding.holds for finding in session.verify(replay=True))
