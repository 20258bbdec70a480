"""How large is a ledger's file before and after compacting, and what does compacting need?

python benchmarks/speed/ledger_size.py --people 100000 --questions 200
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

from almoner import filters
from almoner._workspace import Query
from almoner.ledger import Ledger, Terms, compact, size, verify


def ask(book, key, people, name):
    """A question that charges everybody another number of units."""

    def work(turn, offer):
        turn.settle(turn.admit(offer, key=key, price=10**9, analyst="ann"), {})

    units = f"CAST(hash(r, '{key}') % 1000000000 AS BIGINT) + 1"
    book.answer(Query(f"SELECT {name} AS person, {units} AS units FROM (SELECT unnest(range({people})) AS r)"), work)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=200)
    given = parser.parse_args()
    for kind, name in (("BIGINT", "r"), ("VARCHAR", "'person ' || r")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "people.ledger"
            with Ledger.open(path, Terms(filters.Zcdp(rho=1.0), person=kind), threads=1, create=True) as book:
                for number in range(given.questions):
                    ask(book, f"{number}", given.people, name)
            with Ledger.open(path, threads=1) as book:
                before, began = size(book).bytes, time.process_time()
                compact(book)
                seconds, after = time.process_time() - began, size(book).bytes
                sound = all(finding.holds for finding in verify(book))
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
            print(
                f"{kind}: {before / 1e6:.1f} MB, {before / 1e6 / given.questions:.3f} a question; compacted "
                f"{after / 1e6:.1f} MB, {after / 1e6 / given.questions:.4f} a question, in {seconds:.1f} s; "
                f"sound {sound}; memory of the process at most {memory:.0f} MB"
            )


if __name__ == "__main__":
    main()
