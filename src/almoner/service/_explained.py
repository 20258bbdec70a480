"""Sentences for the data holder that say what a policy allows: over its data, or over made-up ones."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from math import floor

from almoner._private import MARK
from almoner._units import shown
from almoner.ledger import Ledger
from almoner.queries import Session
from almoner.queries.plans import described, question
from almoner.service._dummy import ABOUT, Dummy
from almoner.service.policies import AnalystTerms, Policy, TablePart, check_against_data, offers, usual_question


def explain(policy: Policy) -> list[str]:
    """Sentences that say what a policy allows, for the data holder. Opens the data, and no ledger that is not there."""
    there = Ledger.exists(policy.plan.ledger)
    with policy.plan.look() as session:
        return explained(policy, session, there=there)


def explained(policy: Policy, session: Session, *, there: bool) -> list[str]:
    """Sentences that say what a policy allows over a session; ``there``: its ledger is."""
    check_against_data(policy, session)
    return [
        *_ledger(policy, session.ledger, there=there),
        *(_data_set(name, each, session.columns[name]) for name, each in policy.file.tables.items()),
        *(f"{MARK}: {each.words()}." for each in session.misfits if each.unfit),  # no answer is ever about them
        *map(_analyst, policy.analysts.values()),
        *_changed(policy),
        *_usual(policy, session),
        *_rest(policy),
    ]


def _ledger(policy: Policy, ledger: Ledger, *, there: bool) -> Iterator[str]:
    """Say the budget, whether the ledger is there, and what would notice an older one in its place."""
    delta, witness, every = ledger.stated_delta, ledger.witness or policy.plan.witness, ""
    if ledger.periods is not None:
        every = f" in each {ledger.periods.every}, and in all of them epsilon {shown(ledger.lifetime(delta), 6)}"
    yield (
        f"Each person has one budget for all analysts together: epsilon {shown(ledger.promise(delta), 6)} at delta "
        f"{shown(delta, 6)} ({ledger.symbol} = {shown(ledger.budget, 6)}){every}. {ledger.meaning().words}"
    )
    if not there:
        yield "The ledger is not there yet: `almoner serve --prepare`, with this policy, makes it."
    if witness is None:
        yield (
            "Nothing would notice an older ledger in the place of this one, such as a restored backup, which has "
            'forgotten what was spent since: name a file on another volume, witness = "/other/volume/people.head".'
        )
    else:
        yield f"{witness} {'remembers' if there else 'will remember'} the newest entry of the ledger."


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
    over = terms.until <= datetime.now(UTC)
    until = "" if terms.expires is None else f", until {terms.expires.isoformat()}"
    until += " (the token has expired)" if over else ""
    purpose = "" if terms.purpose is None else f" for {terms.purpose!r}"
    return (
        f"{terms.name} may spend {limits.share:.4g} of each person's budget{purpose}{until}: at most "
        f"{limits.questions} questions a day, each of at least {limits.least:.4g} of the budget and at most "
        f"{limits.cells} numbers; {limits.seconds:g} seconds of answering a day, and "
        f"{limits.requests} requests a minute."
    )


def _changed(policy: Policy) -> Iterator[str]:
    for name, fields in policy.changed.items():
        for each, (of, to) in fields.items():
            yield f"analysts.{name}.{each} was changed on the console, from {of:g} to {to:g} ({policy.limits_file})."
    for place in policy.stale:
        yield f"{place} was changed on the console, and in the file since: the file holds."


def _usual(policy: Policy, session: Session) -> Iterator[str]:
    usual, budget = usual_question(policy, session), session.ledger.budget_units
    quoted = session.analyst("nobody").quote(usual)
    told = ", ".join(f"{name} = {value}" for name, value in described(usual).items())
    width = "" if quoted.half_width is None else f", with a 95 % interval of about +- {quoted.half_width:.3g}"
    yield (
        f"A usual question ({told}) costs {quoted.of_budget:.3g} of a budget{width}. For all analysts together "
        f"{budget // usual.price} of them certainly fit a fresh budget, and {quoted.fits} what is left now."
    )
    for terms in policy.analysts.values():
        limits = terms.limits
        yield f"{terms.name} alone: {floor(limits.share * budget) // usual.price} of them."
        if quoted.of_budget < limits.least:
            yield f"{terms.name} may not ask it: its price is below the least price of {limits.least:.4g}."
    total = sum(terms.limits.share for terms in policy.analysts.values())
    if total > 1:
        yield f"The analysts' limits add up to {total:.3g} budgets: who comes late may find nothing left."


def _rest(policy: Policy) -> Iterator[str]:
    service = policy.file.service
    if sharing := policy.file.sharing.analysts:
        yield f"Answers are shared, for nothing, among {', '.join(sorted(set(sharing)))}."
    if policy.watch is not None:
        what = "full contributions" if policy.watch.mass else "people"
        yield f"A watch tells when about {policy.watch.people} {what} are missing from an answer."
    places = service.socket or f"{service.host}:{service.port}", f"{service.holder_host}:{service.holder_port}"
    for name, part in policy.file.holders.items():
        yield f"{name}, who comes to {service.holder_socket or places[1]}, may: {', '.join(part.may) or 'nothing'}."
    yield f"Every answer takes a multiple of {service.step:g} seconds."
    yield f"Analysts come to {places[0]}, the data holder to {service.holder_socket or places[1]}."
    if (oidc := policy.file.oidc) is not None:
        yield f"Who logs in at {oidc.issuer} is known by the claim {oidc.claim}."
    elsewhere = service.socket is None and service.host not in ("127.0.0.1", "::1", "localhost")
    if elsewhere or (oidc is not None and not service.https):
        yield "For analysts on other machines put a proxy with https in front, and set service.https = true."


def preview(policy: Policy) -> list[str]:
    """Sentences that say what a policy would allow, with made-up data: no file of data, and no ledger, is opened."""
    with closing(Dummy(policy)) as made:
        told = explained(policy, made.session, there=True)
        first = f"Preview of {len(policy.analysts)} analysts, over fresh budgets. Answers are {ABOUT}."
        return [first, *told, *(line for each in policy.analysts.values() for line in _offered(policy, each, made))]


def _offered(policy: Policy, terms: AnalystTerms, made: Dummy) -> Iterator[str]:
    """Say what an analyst could ask of each table, each at about a hundredth of a budget, and a dummy answer."""
    limits, ledger, view = terms.limits, made.session.ledger, made.session.analyst(terms.name)
    share = max(limits.least, min(0.01, limits.share))
    price = {ledger.symbol: share * ledger.budget}
    people = [{"ask": "people", "table": name} for name in policy.file.tables]
    for fields in (*people, *(fields for _, fields in offers(policy))):
        asked = view.filled(question({**fields, **price}))
        what = f"mean of {fields['column']}" if "column" in fields else "people"
        line = f"{terms.name}, {what} by {', '.join(fields['by'])}" if "by" in fields else f"{terms.name}, {what}"
        line += f", in {fields['table']}:"
        if asked.groups * asked.coordinates + asked.reports > limits.cells:
            yield f"{line} refused, since the answer has more than {limits.cells} numbers."
            continue
        quoted, first = view.quote(asked), next(iter(made.ask(asked).columns(1)["value"]))
        often = floor(limits.share * ledger.budget_units) // asked.price
        width = "" if quoted.half_width is None else f", within {quoted.half_width:.3g} (95 %)"
        shown = "none" if first is None else f"{first:,.4g}"
        yield f"{line} {often} times at {quoted.of_budget:.3g} of a budget{width}; the first dummy value is {shown}."
