"""The ledger: charged and stored in one transaction, by one thread and one process at a time."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from almoner.errors import BudgetExceeded, LedgerError
from almoner.ledger import Ledger, export
from ledgers import RHO, ask, clean, opened


def test_everybody_is_charged_to_the_last_unit_and_nobody_above_the_budget(where):
    """Ten tenths fit; the eleventh question leaves out exactly those who spent everything."""
    with opened(where) as book:
        for day in range(10):
            assert ask(book, f"day {day}", {"ann": RHO // 10, "bob": 7}) == {"ann", "bob"}
        assert ask(book, "day 10", {"ann": 1, "bob": 7}) == {"bob"}
        assert (book.spent("ann"), book.spent("bob"), book.spent("cy")) == (RHO, 77, 0)
        assert clean(book)


def test_what_was_written_is_there_after_opening_again(where):
    """Accounts, answers, limits, reservations and tombstones survive."""
    with opened(where) as book:
        ask(book, "a", {"ann": 5})
        book.limit(6, analyst="ann")
        book.reserve(RHO // 2, key="later")
        book.retire("bob")
        head = book.head
    with opened(where) as book:
        assert book.spent("ann") == 5
        assert book.find("a").public["answer"] == [1]
        assert book.find("b") is None
        assert ask(book, "b", {"ann": 2, "bob": 2, "cy": 2}) == {"cy"}  # ann's limit is 6; bob has left
        with pytest.raises(BudgetExceeded):
            ask(book, "c", {"cy": RHO // 2 + 1}, analyst="ed")
        assert clean(book, head=head)


FORKS = """
import os, sys
import pyarrow
from almoner import filters
from almoner.errors import LedgerError
from almoner.queries import Count, Session
rows = pyarrow.table({"who": ["ann", "bob"]})
session = Session.open(rows, person="who", budget=filters.Zcdp(rho=1.0), ledger=sys.argv[1], create=True)
session.analyst("zoe").ask(Count(clip=1, sigma=20.0), key="before")
child = os.fork()
if not child:
    for key in ("before", "a"):
        try: session.analyst("zoe").ask(Count(clip=1, sigma=20.0), key=key)
        except LedgerError: print("refused", flush=True)
    session.close()
    sys.exit()
print(os.waitpid(child, 0)[1])
session.analyst("zoe").ask(Count(clip=1, sigma=20.0), key="b")
session.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_forked_process_answers_nothing(where):
    """What a fork inherits is closed there, and goes on in its parent: no answer without its charge."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, str(where)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["refused", "refused", "0"]
    with Ledger.open(where) as book:
        assert [entry.public["key"] for entry in book.entries("answered")] == ["before", "b"]
        assert book.spent("ann") == 2 * RHO // 800
        assert clean(book)


def test_threads_of_one_session_take_turns(where):
    """A thread that begins while another one sets a limit waits for it, and then sees the limit."""
    begun = Event()

    def sets_a_limit(_):
        begun.set()
        time.sleep(0.2)
        book.limit(7, analyst="ann")

    with opened(where) as book, ThreadPoolExecutor(2) as pool:
        first = pool.submit(book.transact, sets_a_limit)
        begun.wait()
        second = pool.submit(book.transact, lambda _: dict(book._rules.limits))
        assert second.result() == {"analyst:ann": 7}
        first.result()
        assert ask(book, "a", {"x": 8, "y": 7}, price=7) == {"y"}
        assert clean(book)


def test_reading_waits_for_other_threads(where):
    """A connection keeps one result: a step of one thread never comes between another's question and its answer."""
    book = opened(where)
    ask(book, "first", {"p": RHO // 4})
    begun, go_on = Event(), Event()

    def slow(_):
        begun.set()
        assert go_on.wait(30)

    reads = [lambda: book.head, lambda: book.entries(), lambda: book.find("first"), lambda: book.spent("p")]
    reads += [lambda: book.charges("p"), lambda: list(export(book)), lambda: book.accounts.totals()]
    with ThreadPoolExecutor() as pool:
        writer = pool.submit(book.transact, slow)
        assert begun.wait(30)
        waiting = [pool.submit(read) for read in reads]
        time.sleep(0.2)
        assert not any(found.done() for found in waiting)
        go_on.set()
        writer.result(30)
        assert all(found.result(30) is not None for found in waiting)
    book.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger.record SET hash = 'other' WHERE number = 1",
        "DELETE FROM ledger.record WHERE number = 1",
        "DELETE FROM ledger.record",
    ],
)
def test_a_record_that_is_changed_while_it_is_open_is_refused(change, where):
    """The last entry that was read has another hash, or is gone: nothing is answered."""
    with opened(where) as book:
        ask(book, "a", {"x": 10})
        ask(book, "b", {"x": 10})
        book.store.run(change)
        with pytest.raises(LedgerError) as refused:
            ask(book, "c", {"x": 10})
        assert refused.value.reason in ("damaged", "closed")
