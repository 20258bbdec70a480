"""Almoner: a privacy account for every person.

An account holds whole units of something that adds up; a boundary turns what it holds into a statement. The modules
below are loaded when they are first used, so that ``import almoner`` is quick.

mechanisms   descriptions of what is run
noise        exact noise in whole numbers
curves       costs of mechanisms, and conversions to (epsilon, delta)
filters      budgets fixed in advance, which refuse what does not fit
odometers    bounds on what was spent so far, right at every moment
individual   an account for each person
accounting   which epsilon holds for a run, how much noise fits, all bounds side by side, certificates
interop      dp_accounting, OpenDP, Opacus, Lightning, transformers
ledger       the record: what was asked, what it cost each person, what was answered
queries      statistics over a table, with a durable account for every person
training     models: private gradient descent with a budget for every person
audit        replays without a person, attacks with canaries: does a pipeline keep its promise?
report       pictures
service      for analysts who are in another process: over HTTP, with tokens, limits and a policy file
client       for those analysts, in Python: the library's questions and answers over HTTP
errors       every error

How far names may be relied on, until version 1.0:

stable         accounting, errors, filters, individual, mechanisms, odometers
may change     curves, interop, ledger, noise, queries, report, training
experimental   audit, client, service

A change of a stable module's names is announced for one release before. Others may change in any release; its notes say
so. Experimental ones may go.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from almoner import (
        accounting,
        audit,
        client,
        curves,
        errors,
        filters,
        individual,
        interop,
        ledger,
        mechanisms,
        noise,
        odometers,
        queries,
        report,
        service,
        training,
    )

__all__ = [
    "accounting", "audit", "client", "curves", "errors", "filters", "individual", "interop", "ledger", "mechanisms",
    "noise", "odometers", "queries", "report", "service", "training",
]  # fmt: skip

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in __all__:
        return import_module(f"almoner.{name}")
    raise AttributeError(f"module 'almoner' has no attribute {name!r}{_home_of(name)}")


def _home_of(name: str) -> str:
    """The end of the refusal of a name: the module that has it, by the text of its list; none is loaded for that."""
    from pathlib import Path

    for module in () if name.startswith("_") else __all__:
        text = Path(__file__).parent.joinpath(module, "__init__.py")
        if text.is_file() and f'"{name}"' in text.read_text(encoding="utf-8").partition("__all__")[2]:
            return f": write `almoner.{module}.{name}`"
    return f", which has {', '.join(__all__)}"


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
