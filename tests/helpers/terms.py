"""Arguments of ``Session.open`` and ``Ledger.open`` in their groups, from a flat list of options."""

from almoner.ledger import Terms
from almoner.queries import Table

TERMS = ("keys_delta", "periods", "spelling")
READING = ("table", "view", "types", "zone", "check_view")


def on_terms(options):
    """Of a ledger: the budget and what else is fixed when it is made are terms."""
    given = {name: options.pop(name) for name in ("budget", "person", *TERMS) if name in options}
    return {"terms": Terms(given.pop("budget", None), **given), **options} if given else options


def grouped(options):
    """Of a session: how its table is read stands in the table, and what is beside the budget in its terms."""
    options = dict(options)
    terms = {name: options.pop(name) for name in TERMS if name in options}
    reading = {name: options.pop(name) for name in READING if name in options}
    if terms:
        options["budget"] = Terms(options.get("budget"), **terms)
    if reading:
        options["data"] = Table(options["data"], **reading)
    return options
