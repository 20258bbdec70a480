"""The analyst's view of a session: questions and answers."""

from collections.abc import Collection
from dataclasses import replace

from almoner import _check
from almoner._uncopyable import Uncopyable
from almoner.queries._ask.answer import Answer, Quote, answer_of
from almoner.queries._ask.ask import Asking
from almoner.queries._ask.so_far import AnalystId, SoFar, answered
from almoner.queries._questions.kinds_of import recorded
from almoner.queries._questions.question import Question

__all__ = ["Analyst"]


class Analyst(Uncopyable):
    """The analyst's view: it holds questions and answers, and nothing about single people.

    Python hides nothing from code that runs in the same process: give analysts whom you do not trust a service or a
    command around this object, not the object.
    """

    __slots__ = ("_session", "_who")

    def __init__(self, session: Asking, name: str, purpose: str | None) -> None:
        _check.name(analyst=name)
        if purpose is not None:
            _check.name(purpose=purpose)
        self._session, self._who = session, AnalystId(name, purpose)

    def __repr__(self) -> str:
        return f"Analyst({self._who.analyst!r}, purpose={self._who.purpose!r})"

    def quote(self, asked: Question, *, so_far: SoFar | None = None) -> Quote:
        """Price of a question at worst, and the noise to expect. Quoting changes nothing.

        Args:
            asked: the question.
            so_far: what ``so_far`` gave, by which it is quoted without waiting for the ledger; None to read it now.
        """
        return self._session.quote(asked, self._who, so_far)

    def filled(self, asked: Question) -> Question:
        """The question as it will be recorded: with its table, and bounds and keys that it leaves to the data set.

        Raises:
            ArgumentError: the data set declares none for what is left out.
        """
        return self._session.filled(asked)

    def so_far(self, before: SoFar | None = None) -> SoFar:
        """Public facts for this analyst as the ledger is now: the answers, and the budget left at worst.

        Args:
            before: what this method gave earlier, so that only what is new is read.
        """
        return SoFar.read(self._session.ledger, *self._who, before)

    def check(self, asked: Question, *, key: str) -> None:
        """Refuse, before anything is charged, what could not be asked under this key whatever the data.

        Raises:
            ArgumentError: the question does not fit the data's columns, or the key was used for another one.
            BudgetExceeded: it costs more than the whole budget.
        """
        self._session.check(asked, self._who, key=key)

    def ask(
        self,
        asked: Question,
        *,
        key: str,
        reserved: str | None = None,
        earlier_of: Collection[str] | None = None,
        anyway: bool = False,
    ) -> Answer:
        """Ask; the answer is stored, and each person in it charged, before it is revealed.

        Args:
            asked: the question.
            key: a name of your own for this question. The same key again gives the same answer and costs nothing, also
                after a crash.
            reserved: the key under which budget was set aside for this question.
            earlier_of: analysts whose earlier answer will do: the latest to the same question, with no more noise than
                is asked for, and whatever was paid for it. It is recorded under this key too, and costs nothing, since
                it is released already; ``Answer.earlier`` tells when. It is about the rows as they were then.
            anyway: ask although the question does not certainly fit (``Quote.fits`` is 0), as its own ``anyway`` says.

        Raises:
            ArgumentError: the question does not fit the data's columns, or the key was used for another one.
            BudgetExceeded: by public facts alone, nobody could pay the full price; or, but for ``anyway``, a person who
                paid the highest price of every question so far could not.
            DataError: the data could not be read, for this question or for an earlier one of this session, which then
                answers no new questions. Nothing was charged.

        Guarantee: each person in the answer could pay, and was charged, for what is in it of their own rows. Who has
            too little left contributes what that pays for, or with ``pace=None`` nothing, which nothing tells; the
            answer's ``complete_clip`` says what is certain.
        Source: theory 5.1, 5.3 and 2.9; docs/proofs/individual-filter.md.
        """
        _check.name(key=key)
        if reserved is not None:
            _check.name(reserved=reserved)
        if anyway and isinstance(asked, Question):
            asked = replace(asked, anyway=True)
        return self._session.ask(asked, self._who, key=key, reserved=reserved, earlier_of=earlier_of)

    def answers(self) -> list[Answer]:
        """This analyst's answers for this purpose so far, in order."""
        ledger = self._session.ledger
        entries = ledger.snapshot(lambda: answered(ledger, *self._who))
        return [answer_of(entry.public, recorded(entry.public)) for entry in entries]
