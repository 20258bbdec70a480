"""Check a policy against data and ledger, and then put it in force."""

from typing import Any

from almoner._units import to_float
from almoner.errors import ArgumentError
from almoner.ledger import Terms
from almoner.queries import Question, Session
from almoner.service._bodies import asked
from almoner.service.policies import Policy

__all__ = ["apply_policy", "check_against_data", "usual_question"]


def usual_question(policy: Policy, session: Session) -> Question:
    """The policy's usual question, or else a count of people that costs a hundredth of the budget."""
    if policy.usual is not None:
        return asked(dict(policy.usual))
    return asked({"ask": "people"} | _hundredth(session))


def _hundredth(session: Session) -> dict[str, float]:
    """The price of a question that costs a hundredth of the budget."""
    amount = to_float(session.ledger.budget_units // 100, down=True)
    return {("epsilon" if session.ledger.symbol == "epsilon" else "rho"): amount}


def check_against_data(policy: Policy, session: Session) -> None:
    """Refuse keys and bounds that do not fit the types of their columns, and a usual question that cannot be asked.

    Asks nothing, and changes nothing.

    Raises:
        ArgumentError: with the place in the policy.
    """
    analyst, price = session.analyst("nobody"), _hundredth(session)
    for table in policy.data_sets:
        for column in table.columns:
            fitting: list[dict[str, Any]] = []
            if column.keys:
                fitting += [{"ask": "people", "by": {column.name: list(column.keys)}}]
            if column.low is not None:
                fitting += [{"ask": "mean", "column": column.name, "low": column.low, "high": column.high}]
            for fields in fitting:
                try:
                    analyst.quote(asked({**fields, "table": table.name, **price}))
                except ArgumentError as error:
                    raise ArgumentError(f"tables.{table.name}.columns.{column.name}: {error}") from None
    try:
        analyst.quote(usual_question(policy, session))
    except ArgumentError as error:
        raise ArgumentError(f"usual: {error}") from None


def apply_policy(policy: Policy, session: Session) -> None:
    """Set the limits of analysts, and the watch, in the ledger: those that are not in force yet.

    Raises:
        ArgumentError: the ledger is watched otherwise.
    """
    _apply_watch(policy, session)
    limits = {f"analyst:{name}": terms.limits.share for name, terms in policy.analysts.items()}
    session.ledger.declare(Terms(limits=limits))


def _apply_watch(policy: Policy, session: Session) -> None:
    ledger = session.ledger
    watches = [entry.public for entry in ledger.watched() if not entry.public.get("scope")]
    if policy.watch is None:
        return
    if not watches:
        given = policy.watch
        people, mass = (None, given.people) if given.mass else (given.people, None)
        session.watch(people, epsilon=given.epsilon, mass=mass)
    elif any(watches[0].get(name) != value for name, value in policy.watch.public.items()):
        raise ArgumentError("watch: the ledger is watched otherwise; a watch cannot be changed once it is paid for")
