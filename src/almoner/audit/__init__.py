"""Audit pipelines: run them again without a person, and attack them with canaries.

``replay`` records every release of a run, runs it again without each of some people while all outputs are held still,
and compares: what of each person could be told from the outputs, and is it what the person's account paid for?
``one_run`` and ``many_runs`` attack a training, and say with confidence which claims its outputs refute.
"""

from almoner._audit_hook import Part, coins, released
from almoner.audit._calls import Amount
from almoner.audit._canaries import ManyRuns, OneRun, many_runs, one_run
from almoner.audit._replay import Finding, Outcome, Report, replay

__all__ = [
    "Amount", "Finding", "ManyRuns", "OneRun", "Outcome", "Part", "Report", "coins", "many_runs", "one_run", "released",
    "replay",
]  # fmt: skip
