"""Check a policy against data and ledger, say it in words before anything is served, and put it in force."""

from datetime import UTC, datetime
from math import floor
from typing import Any

from almoner._private import MARK
from almoner._units import shown, to_float
from almoner.errors import ArgumentError
from almoner.ledger import Ledger, Terms
from almoner.queries import Question, Session
from almoner.queries.plans import described
from almoner.service._bodies import asked
from almoner.service.policies import AnalystTerms, Policy, TablePart

__all__ = ["apply_policy", "check_against_data", "explain", "usual_question"]


def usual_question(policy: Policy, session: Session) -> Question:
    """The policy's usual question, or else a count of people that costs a hundredth of the budget."""
    if policy.file.usual is not None:
        return asked(dict(policy.file.usual))
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
    for name, table in policy.file.tables.items():
        for column, told in table.columns.items():
            fitting: list[dict[str, Any]] = []
            if told.keys:
                fitting += [{"ask": "people", "by": {column: list(told.keys)}}]
            if told.low is not None:
                fitting += [{"ask": "mean", "column": column, "low": told.low, "high": told.high}]
            for fields in fitting:
                try:
                    analyst.quote(asked({**fields, "table": name, **price}))
                except ArgumentError as error:
                    raise ArgumentError(f"tables.{name}.columns.{column}: {error}") from None
    try:
        analyst.quote(usual_question(policy, session))
    except ArgumentError as error:
        raise ArgumentError(f"usual: {error}") from None


def apply_policy(policy: Policy, session: Session) -> None:
    """Set the limits of analysts, and the watch, in the ledger: those that are not in force yet.

    Raises:
        ArgumentError: the ledger is watched otherwise.
    """
    ledger, given = session.ledger, policy.watch
    watches = [entry.public for entry in ledger.watched() if not entry.public.get("scope")]
    if given is not None and not watches:
        people, mass = (None, given.people) if given.mass else (given.people, None)
        session.watch(people, epsilon=given.epsilon, mass=mass)
    elif given is not None and any(watches[0].get(name) != value for name, value in given.public.items()):
        raise ArgumentError("watch: the ledger is watched otherwise; a watch cannot be changed once it is paid for")
    limits = {f"analyst:{name}": terms.limits.share for name, terms in policy.analysts.items()}
    ledger.declare(Terms(limits=limits))


def explain(policy: Policy) -> list[str]:
    """Sentences that say what a policy allows, for the data holder. Opens the data, and no ledger that is not there."""
    there = Ledger.exists(policy.plan.ledger)
    with policy.plan.look() as session:
        check_against_data(policy, session)
        return [
            *_budget(session),
            *_ledger(policy, session.ledger if there else None),
            *(_data_set(name, each, session.columns[name]) for name, each in policy.file.tables.items()),
            *(f"{MARK}: {each.words()}." for each in session.misfits if each.unfit),  # no answer is ever about them
            *map(_analyst, policy.analysts.values()),
            *_usual(policy, session),
            *_rest(policy),
        ]


def _budget(session: Session) -> list[str]:
    ledger = session.ledger
    delta = ledger.stated_delta
    return [
        f"Each person has one budget for all analysts together: epsilon {shown(ledger.promise(delta), 6)} at delta "
        f"{shown(delta, 6)} ({ledger.symbol} = {shown(ledger.budget, 6)}). {ledger.meaning().words}"
    ]


def _ledger(policy: Policy, there: Ledger | None) -> list[str]:
    """Say whether the ledger is there, and what would notice an older one in its place."""
    lines = [] if there else ["The ledger is not there yet: `almoner ledger create`, with this policy, makes it, once."]
    witness = policy.plan.witness if there is None else there.witness
    if witness is None:
        lines.append(
            "Nothing would notice an older ledger in the place of this one, such as a restored backup, which has "
            'forgotten what was spent since: name a file on another volume, witness = "/other/volume/people.head".'
        )
    else:
        lines.append(f"{witness} {'will remember' if there is None else 'remembers'} the newest entry of the ledger.")
    return lines


def _data_set(name: str, told: TablePart, kinds: dict[str, str]) -> str:
    columns = []
    for called, column in told.columns.items():
        words = f"{called} ({kinds[called]}"
        words += f", {column.low:g} to {column.high:g}" if column.low is not None else ""
        words += f", {len(column.keys)} keys" if column.keys else ""
        columns.append(f"{words})")
    return f"Questions may be about {name}, and use no columns but {', '.join(columns)}."


def _analyst(terms: AnalystTerms) -> str:
    limits = terms.limits
    over = terms.expires is not None and terms.expires < datetime.now(UTC).date()
    until = "" if terms.expires is None else f", until {terms.expires.isoformat()}"
    until += " (the token has expired)" if over else ""
    purpose = "" if terms.purpose is None else f" for {terms.purpose!r}"
    return (
        f"{terms.name} may spend {limits.share:.4g} of each person's budget{purpose}{until}: at most "
        f"{limits.questions} questions a day, each of at least {limits.least:.4g} of the budget and at most "
        f"{limits.cells} numbers; {limits.seconds:g} seconds of answering a day, and "
        f"{limits.requests} requests a minute."
    )


def _usual(policy: Policy, session: Session) -> list[str]:
    usual, budget = usual_question(policy, session), session.ledger.budget_units
    quoted = session.analyst("nobody").quote(usual)
    told = ", ".join(f"{name} = {value}" for name, value in described(usual).items())
    width = "" if quoted.half_width is None else f", with a 95 % interval of about +- {quoted.half_width:.3g}"
    lines = [
        f"A usual question ({told}) costs {quoted.of_budget:.3g} of a budget{width}. For all analysts together "
        f"{budget // usual.price} of them certainly fit a fresh budget, and {quoted.fits} what is left now."
    ]
    for terms in policy.analysts.values():
        fits = floor(terms.limits.share * budget) // usual.price
        lines.append(f"{terms.name} alone: {fits} of them.")
        if quoted.of_budget < terms.limits.least:
            lines.append(
                f"{terms.name} may not ask it: its price is below the least price of {terms.limits.least:.4g}."
            )
    total = sum(terms.limits.share for terms in policy.analysts.values())
    if total > 1:
        lines.append(f"The analysts' limits add up to {total:.3g} budgets: who comes late may find nothing left.")
    return lines


def _rest(policy: Policy) -> list[str]:
    service, lines = policy.file.service, []
    if policy.sharing:
        lines.append(f"Answers are shared, for nothing, among {', '.join(sorted(policy.sharing))}.")
    if policy.watch is not None:
        what = "full contributions" if policy.watch.mass else "people"
        lines.append(f"A watch tells when about {policy.watch.people} {what} are missing from an answer.")
    lines.append(f"Every answer takes a multiple of {service.step:g} seconds.")
    lines.append(
        f"Analysts come to {service.host}:{service.port}, "
        f"the data holder to {service.holder_host}:{service.holder_port}."
    )
    if service.host not in ("127.0.0.1", "::1", "localhost"):
        lines.append(
            "Analysts come from other machines: put a proxy with https in front, and set service.https = true."
        )
    return lines
