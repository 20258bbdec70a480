"""The data sets of a ledger: declared once, kept in the record."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from almoner.errors import ArgumentError
from almoner.ledger._record.datasets import Dataset
from almoner.ledger._record.entries import read_rows
from almoner.ledger._remembered import Remembered
from almoner.ledger._transaction import Transaction

__all__ = ["Declared"]


class Declared(Remembered):
    """A ledger that knows its data sets, where they were declared. A person has one account over all of them."""

    def dataset(
        self, name: str, *, person: str, columns: Mapping[str, Any] | None = None, new_version: bool = False
    ) -> Dataset:
        """Declare a data set; nothing happens where it was declared so before.

        From the first declaration on, a session says which data sets its tables are, and a table that does not fit its
        declaration is refused.

        Args:
            name: letters, digits and ``_``, public; of a table of several, the name of the table.
            person: the column that says whose row it is, public.
            columns: what is public about columns, each a ``Domain``, or ``{"low": 0, "high": 100}`` or ``{"keys":
                [...]}``. Questions that leave bounds or keys out get them from here.
            new_version: whether a declaration that differs takes the place of the one before it, from now on. What was
                asked before says which declaration it was about.

        Returns:
            The data set, with the number of its entry in the record.

        Raises:
            ArgumentError: it was declared otherwise; the message has the field that differs.
        """
        names = self._rules.terms.data_names
        wanted = Dataset(name, person, names, {} if columns is None else columns)

        def work(transaction: Transaction) -> Dataset:
            known = self._declared()
            twins = [other for other in known if other != name and other.casefold() == name.casefold()]
            if twins:
                raise ArgumentError(f"dataset={name!r}: there is {twins[0]!r} already, which differs by case alone")
            new = wanted
            if name in known:
                difference = known[name].difference(wanted)
                if difference is None:
                    return known[name]
                if not new_version:
                    raise ArgumentError(
                        f"dataset={name!r} was declared with {difference}; new_version=True declares it anew"
                    )
                new = replace(wanted, version=known[name].version + 1)
            return replace(new, number=transaction.append(new.public).number)

        return self.transact(work)

    @property
    def datasets(self) -> dict[str, Dataset]:
        """The data sets that were declared, by name, each in its last version. Public."""
        with self.store.lock:
            return self._declared()

    def _declared(self) -> dict[str, Dataset]:
        rows = read_rows(self.store.run, "kind = 'dataset'")
        listed = [Dataset.read(row.entry().public, row.number) for row in rows]
        return {each.name: each for each in listed}
