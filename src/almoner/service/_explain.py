"""A policy in words, with what a usual question costs and how many fit: before anything is served."""

from datetime import UTC, datetime
from math import floor

from almoner._private import MARK
from almoner._units import shown
from almoner.ledger import Ledger
from almoner.queries import Session
from almoner.queries.plans import described
from almoner.service._apply_policy import check_against_data, usual_question
from almoner.service.policies import AnalystTerms, DataSet, Policy

__all__ = ["explain"]


def explain(policy: Policy) -> list[str]:
    """Sentences that say what a policy allows, for the data holder. Opens the data, and no ledger that is not there."""
    there = Ledger.exists(policy.plan.ledger)
    with policy.plan.look() as session:
        check_against_data(policy, session)
        return [
            *_budget(session),
            *_ledger(policy, session.ledger if there else None),
            *(_data_set(each, session.columns[each.name]) for each in policy.data_sets),
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


def _data_set(told: DataSet, kinds: dict[str, str]) -> str:
    columns = []
    for column in told.columns:
        words = f"{column.name} ({kinds[column.name]}"
        words += f", {column.low:g} to {column.high:g}" if column.low is not None else ""
        words += f", {len(column.keys)} keys" if column.keys else ""
        columns.append(f"{words})")
    return f"Questions may be about {told.name}, and use no columns but {', '.join(columns)}."


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
    service, lines = policy.service, []
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
