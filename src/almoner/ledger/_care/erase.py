"""Erasing a person from a ledger: what single questions charged is removed, and one total under the keyed hash remains.

The total must remain, or a person who returns would have a fresh budget. It is kept under the keyed hash that a ledger
with pseudonyms has in place of the name; so the name itself was never in the ledger.

Source: docs/ledger.md, "Erasing a person"
"""

from almoner.errors import ArgumentError
from almoner.ledger._accounts.tables import TableAccounts
from almoner.ledger._care.compact import without_gaps
from almoner.ledger._ledger import Ledger
from almoner.ledger._transaction import Transaction

__all__ = ["erase"]


def erase(ledger: Ledger, person: object) -> None:
    """Remove what single questions, trainings and updates charged a person; the total remains, and the person is out.

    A file is written anew, so that nothing remains in its gaps. The person is in no later answer, as after
    ``Ledger.retire``. A person who returns (``Ledger.restore``) has what was left, never more. Every limit,
    whenever it is set, counts the whole total.

    Args:
        ledger: open, made with pseudonyms.
        person: the person's name in the data, private. With periods, the person's accounts of all periods are erased.

    Raises:
        LedgerError: the ledger is as it was, or the person is erased but the file has its gaps.
        ArgumentError: the ledger was made without pseudonyms; or the person is in a training that is open, which may
            give something back: settle it or write it off first.

    Guarantee: the person remains charged the same units in all.
    Source: docs/ledger.md, "Erasing a person".
    """
    accounts = ledger.accounts
    if ledger.terms.pseudonyms is None or not isinstance(accounts, TableAccounts):
        raise ArgumentError(
            "ledger: it was made without pseudonyms, so that names are in its record, which never changes: retire() "
            "leaves a person out of all later questions"
        )
    names = ledger.accounts_of(person)

    def work(transaction: Transaction) -> None:
        charged = accounts.charges(names)
        held = {question for listed in charged.values() for question, _ in listed} & transaction.open_trainings()
        if held:
            raise ArgumentError("person: in a training that is open; settle it or write it off first")
        for name in names:
            accounts.mark(name, gone=True)
            note = accounts.merge_person(transaction.number + 1, name, transaction.limited)
            transaction.append({"kind": "erased"}, {**note, "person": accounts.token(name)})

    ledger.refuse_inside("nobody is erased")
    ledger.transact(work)
    without_gaps(ledger)
