"""`almoner audit`: run a pipeline again without people, and say what right guesses about canaries refute."""

import runpy
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer

import almoner
from almoner.cli._options import Delta, Group, Json, added, examples
from almoner.cli._shown import dumps, show, tell
from almoner.errors import ArgumentError, DataError

audit = Typer(
    cls=Group,
    help="Check pipelines: replays without people, and guesses about canaries.",
    epilog=examples("audit replay pipeline.py"),
)


@added(audit, "audit replay", "pipeline.py")
def replay(
    file: Annotated[Path, Argument(help="A Python file: pipeline, data, people, without, and perhaps replaced.")],
    as_json: Json = False,
) -> None:
    """Run a pipeline, and again without each person and with its outputs held still. Exit code 1 if it finds something.

    Runs the Python file. What is printed is PRIVATE: for the data holder. `almoner.audit.replay` explains the names.
    """
    if not file.is_file():
        raise DataError(f"{file} cannot be read")
    names = runpy.run_path(str(file), run_name="audited")
    missing = [name for name in ("pipeline", "data", "people", "without") if name not in names]
    if missing:
        raise ArgumentError(f"{file} must define {', '.join(missing)}")
    given: dict[str, Any] = {name: names[name] for name in ("people", "without")}
    given |= {name: names[name] for name in ("replaced", "number", "tolerance", "fresh") if name in names}
    report = almoner.audit.replay(names["pipeline"], names["data"], **given)
    fields = {"calls": report.calls, "people": report.people, "holds": report.holds, "largest": report.largest}
    found = sorted({str(each) for each in report.findings})
    tell(fields | {"tightest": report.tightest, "findings": found}, str(report), as_json=as_json)
    if not report.holds:
        raise Exit(1)


@added(audit, "audit guesses", "812 --guesses 1000 --canaries 100000 --mu 1")
def guesses(
    correct: Annotated[int, Argument(help="How many guesses are right.")],
    guesses: Annotated[int, Option(help="How many guesses there are, fixed in advance.")],
    canaries: Annotated[int, Option(help="How many canaries, each in the data with probability 1/2.")],
    mu: Annotated[float, Option(help="The claim: mu of Gaussian DP.")],
    delta: Delta = 1e-5,
    confidence: Annotated[float, Option(help="Of the lower bounds.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Say what right guesses about canaries show beside a claim. Exit code 1 if they refute it."""
    found = almoner.audit.OneRun(correct, guesses, canaries, confidence)
    refuted = found.refutes(mu=mu)
    if as_json:
        print(dumps({"mu": found.mu(), "epsilon": found.epsilon(delta=delta), "claim": mu, "refuted": refuted}))
    else:
        show(found.beside(mu=mu, delta=delta))
    if refuted:
        raise Exit(1)
