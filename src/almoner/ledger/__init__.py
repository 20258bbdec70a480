"""The ledger: a durable, append-only record of questions, answers and each person's charges.

The ledger belongs to the data holder. It is one DuckDB file, or a schema of a PostgreSQL database, with

    record      one entry for each event, chained by hashes: who asked what, the worst-case price, the noisy answer
    accounts    what each person has spent, in whole units of the budget's measure; people who left keep theirs
    charges     what each question cost each person
    shares      what each person has spent on an analyst or a purpose that is limited
"""

from almoner.ledger._care.upkeep import backup, compact, erase, protect, restore, size
from almoner.ledger._care.verify import Finding, check_export, check_export_file, export, summary, verify
from almoner.ledger._consumer import Consumer, new_claim, write_off
from almoner.ledger._ledger import Ledger
from almoner.ledger._opening import on_a_server
from almoner.ledger._periods import Periods
from almoner.ledger._record.datasets import Dataset, Domain
from almoner.ledger._record.entries import Entry
from almoner.ledger._record.rules import Answered, ConsumerState
from almoner.ledger._record.terms import Terms
from almoner.ledger._record.watch import Watch
from almoner.ledger._transaction import Transaction

__all__ = [
    "Answered", "Consumer", "ConsumerState", "Dataset", "Domain", "Entry", "Finding", "Ledger", "Periods", "Terms",
    "Transaction", "Watch", "backup", "check_export", "check_export_file", "compact", "erase", "export",
    "new_claim", "on_a_server", "protect", "restore", "size", "summary", "verify", "write_off",
]  # fmt: skip
