"""`almoner epsilon`, `calibrate`, `compare` and `losses`: what noise costs, and how much noise a budget needs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from typer import Argument, Option

import almoner
from almoner import _check
from almoner._private import LEVELS, MARK
from almoner._units import shown
from almoner.cli import _options
from almoner.cli._shown import Listing, dumps, progress_bar, show
from almoner.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from almoner.accounting.calibrate import Calibration
    from almoner.mechanisms import Mechanism

WHICH = (
    "You need the first if noise, sample rate and number of steps were fixed before the run; the second if any of them "
    "may depend on results and a filter with that budget refuses what does not fit; the third if there is no budget "
    "and results may decide when to stop."
)

RunFile = Annotated[
    Path | None,
    Argument(help="A TOML or JSON file that lists mechanisms, in place of the options of one (`schema run`)."),
]


def epsilon(
    *,
    run: RunFile = None,
    noise_multiplier: _options.OptionalNoiseMultiplier = None,
    sampling: _options.Sampling,
    delta: _options.Delta = 1e-5,
    certificate: Annotated[
        Path | None, Option(help="Write a certificate of an epsilon of the fixed run here, as JSON.")
    ] = None,
    out: _options.Output,
) -> None:
    """Show the epsilon of a run of Gaussian steps: fixed in advance, within a filter's budget, and by an odometer.

    Say rate and steps by --sample-rate and --steps, or by --dataset-size, --batch-size and --epochs. Without any of
    them it is one step with everybody in it. Below stand the bounds of every notion of privacy for the same run. A
    file RUN lists mechanisms with their counts: several models, a report, correlated noise.
    """
    from almoner.curves._totals import totals

    read = () if run is None else (run,)
    _options.check_new_file(certificate, force=out.force, read=read)
    out.check(*read)
    step, rounds, said = _asked(run, noise_multiplier, sampling)
    whole = almoner.mechanisms.Repeated(step, rounds)
    best = almoner.accounting.answers.of_run(step, rounds=rounds, delta=delta)
    neighbours = str(said.get("adjacency", "add-or-remove"))
    if certificate is not None:
        if neighbours == "replace":
            raise ArgumentError("--certificate is for adding or removing a person: leave it out, or adjacency")
        certified = almoner.accounting.certificates.of_run(whole, delta=delta)
        certificate.write_text(dumps(certified) + "\n", encoding="utf-8")
    rows, meaning = totals(whole, delta=delta), almoner.accounting.meaning.of(whole, points=128)
    answers = [(shown(each.epsilon, 6), each.holds, each.bound) for each in best]
    bounds = [(row.notion, row.total, shown(row.epsilon, 6), row.holds) for row in rows]
    title = f"{rounds} x {step!r}, delta = {delta:g}" if run is None else f"{run}, delta = {delta:g}"
    words, figures = meaning.words, meaning.figures() if out.as_json else {}
    said = {"epsilon": best[0].epsilon, **said, "delta": delta, "answers": list(map(asdict, best))}
    said |= {"which": WHICH, "meaning": figures | {"words": words}}
    listed = [{name: each for name, each in asdict(row).items() if name != "source"} for row in rows]
    out.give(
        Listing(_ANSWERS, answers, title=title, right=("epsilon",)),
        f"{WHICH}\n\nWhat the first means: {words}\n",
        Listing(_BOUNDS, bounds, title="The same run in every notion of privacy", right=("epsilon",)),
        _NEIGHBOURS[neighbours],
        told=said | {"bounds": listed},
    )


def _asked(
    file: Path | None, noise_multiplier: float | None, sampling: _options.Sampling
) -> tuple["Mechanism", int, dict[str, object]]:
    """A step, the number of steps, and what JSON says of them: of a file, or of options."""
    if file is not None:
        _check_alone(noise_multiplier, sampling)
        listed = almoner.accounting.runs.read(file)
        run = listed.mechanism()
        parts = [(name, each) for name, each in zip(listed.names, listed.known, strict=True) if each is not None]
        fields = [{"name": name, **almoner.mechanisms.to_fields(each)} for name, each in parts]
        return run, 1, {"adjacency": listed.adjacency, "mechanisms": fields}
    if noise_multiplier is None:
        raise ArgumentError(
            "--noise-multiplier or a file of mechanisms is missing; for example `--noise-multiplier=1.1`"
        )
    _check.noise(noise_multiplier=noise_multiplier)
    rate, count = sampling.rate_and_steps()
    if count is None and rate < 1:
        raise ArgumentError("--steps is missing, the number of batches, or --epochs; for example `--steps=1000`")
    rounds = 1 if count is None else count
    said: dict[str, object] = {"steps": rounds, "sample_rate": rate, "noise_multiplier": noise_multiplier}
    return almoner.mechanisms.gaussian_step(noise_multiplier, 1.0, rate), rounds, said


def _check_alone(noise_multiplier: float | None, sampling: _options.Sampling) -> None:
    if noise_multiplier is not None or sampling != _options.Sampling():
        others = "--noise-multiplier, --steps and the other options of one mechanism"
        raise ArgumentError(f"the file lists what is run: leave out {others}")


_NEIGHBOURS = {
    "add-or-remove": "Adding or removing one person, with all of that person's records.",
    "replace": "Replacing all records of one person by others.",
}
_ANSWERS = ("epsilon", "holds if", "by")
_BOUNDS = ("notion", "total", "epsilon", "holds")


def calibrate(
    *,
    run: RunFile = None,
    epsilon: _options.Epsilon,
    delta: _options.Delta = 1e-5,
    sampling: _options.Sampling,
    noise_multiplier: _options.OptionalNoiseMultiplier = None,
    max_grad_norm: _options.MaxGradNorm = 1.0,
    out: _options.Output,
) -> None:
    """Find the least noise with which --steps fit into a budget, or how many steps fit with --noise-multiplier.

    First for a run whose noise, rate and steps are fixed in advance, then for every filter, the best first. Say rate
    and steps by --sample-rate and --steps, or by --dataset-size, --batch-size and --epochs. Sigma is the absolute
    noise, the noise multiplier times the clip. In a file RUN one number is "?": the least noise that fits, or the most
    of anything else, is found.
    """
    out.check(*(() if run is None else (run,)))
    if run is not None:
        _check_alone(noise_multiplier, sampling)
        _show_unknown(run, epsilon, delta, out)
        return
    rate, count = sampling.rate_and_steps()
    if (count is None) == (noise_multiplier is None):
        raise ArgumentError("give either --steps or --noise-multiplier, or --epochs; for example `--steps=100`")
    asked: Any = {"epsilon": epsilon, "delta": delta, "steps": count, "noise_multiplier": noise_multiplier}
    asked |= {"max_grad_norm": max_grad_norm, "sample_rate": rate}
    with progress_bar(quiet=out.as_json) as bar:
        bar.add_task("asking every filter", total=None)
        fixed = almoner.accounting.calibrate.in_advance(**asked)
        rows = almoner.accounting.calibrate.by_filter(**asked)
    table = _calibrations(fixed, rows, f"epsilon = {epsilon:g}, delta = {delta:g}, sample rate = {rate:g}")
    without = ", ".join(f"filters.{row.filter}" for row in rows if row.note)
    notes = [f"Without a number, for reasons that --json tells: {without}."] if without else []
    if fixed.note:
        notes.insert(0, f"fixed in advance: {fixed.note}.")
    said = {"epsilon": epsilon, "delta": delta, "fixed": asdict(fixed), "which": FILTERS}
    out.give(table, FILTERS, *notes, told=said | {"filters": list(map(asdict, rows))})


def _show_unknown(file: Path, epsilon: float, delta: float, out: _options.Output) -> None:
    """The unknown number of a file, in its digits that are on the safe side."""
    found = almoner.accounting.runs.read(file).solve(epsilon=epsilon, delta=delta)
    *_, name = found.field.split(".")
    number = shown(found.number, 7, down=name not in ("sigma", "scale")) if name != "count" else str(found.number)
    title = f"{file} within epsilon = {epsilon:g}, delta = {delta:g}, fixed in advance"
    table = Listing(("unknown", "is", "epsilon"), [(found.field, number, shown(found.epsilon, 6))], title=title)
    said = {"budget": epsilon, "delta": delta, "field": found.field, "number": found.number, "epsilon": found.epsilon}
    out.give(table, told=said | {"run": almoner.mechanisms.to_fields(found.run)})


FILTERS = (
    "You need the first line if noise, sample rate and number of steps are fixed before the run; if results may change "
    "any of them, charge a filter before each step, and its own line holds."
)


def _calibrations(fixed: "Calibration", rows: "Sequence[Calibration]", title: str) -> Listing:
    """The run fixed in advance, then the filters: most steps or least noise first, those without a number below."""
    numbers = ("noise multiplier", "sigma", "steps")
    answered = [row for row in rows if not row.note]
    answered.sort(key=lambda row: (-(row.steps or 0), row.noise_multiplier or 0.0))
    cells = []
    for row in (fixed, *answered):
        name = row.filter if row is fixed else f"filters.{row.filter}"
        noise = [None if number is None else shown(number, 7) for number in (row.noise_multiplier, row.sigma)]
        cells.append((name, *noise, None if row.note else row.steps))
    return Listing(("run", *numbers), cells, title=title, right=numbers)


BOUNDS = (
    "You need a bound that is fixed if mechanism and number of steps were fixed before the run; the epsilon of a "
    "filter if they may depend on results and that filter is charged before each step; an odometer if there is no "
    "budget and results may decide when to stop."
)

Step = Literal["gaussian", "laplace", "randomized-response", "pure", "approximate"]  # kinds of one step


def described(
    name: str,
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    epsilon_each: float | None = None,
    delta_each: float | None = None,
) -> "Mechanism":
    """The mechanism that the options describe, with sensitivity 1."""
    if name not in get_args(Step):
        raise ArgumentError(f"--mechanism {name!r} must be one of {', '.join(get_args(Step))}")
    if name == "gaussian":
        if noise_multiplier is None:
            raise ArgumentError("--mechanism gaussian needs --noise-multiplier; for example `--noise-multiplier=20`")
        return almoner.mechanisms.gaussian_step(noise_multiplier, 1.0, sample_rate)
    if sample_rate != 1:
        raise ArgumentError("--sample-rate is for --mechanism gaussian")
    if epsilon_each is None:
        raise ArgumentError(f"--mechanism {name} needs --epsilon-each; for example `--epsilon-each=0.1`")
    if name == "approximate":
        if delta_each is None:
            raise ArgumentError("--mechanism approximate needs --delta-each; for example `--delta-each=1e-9`")
        return almoner.mechanisms.Approximate(epsilon_each, delta_each)
    if name == "laplace":
        _check.positive(epsilon_each=epsilon_each)
        return almoner.mechanisms.Laplace(1 / epsilon_each)
    return (almoner.mechanisms.Pure if name == "pure" else almoner.mechanisms.RandomizedResponse)(epsilon_each)


def compare(
    *,
    mechanism: Annotated[Step, Option(help=f"One step: {', '.join(get_args(Step)[:-1])} or approximate.")] = "gaussian",
    noise_multiplier: _options.OptionalNoiseMultiplier = None,
    epsilon_each: Annotated[float | None, Option(help="Epsilon of one step, unless it is gaussian.")] = None,
    delta_each: Annotated[float | None, Option(help="Delta of one step, if it is approximate.")] = None,
    sampling: _options.Sampling,
    delta: _options.Delta = 1e-5,
    people: Annotated[int, Option(help="Number of people in the data set, for Rogers et al.")] = 100_000,
    points: Annotated[int, Option(help="At how many numbers of steps to evaluate the bounds.")] = 5,
    picture: _options.Picture = None,
    out: _options.Output,
) -> None:
    """Compare all bounds that apply to one mechanism: fixed in advance, by filters, by odometers.

    Bounds that are tuned to a plan are tuned to --steps, which is 1000 unless it is given, or follows from --epochs.
    """
    _options.check_picture(picture)
    out.check()
    rate, count = sampling.rate_and_steps()
    step = described(
        mechanism, noise_multiplier=noise_multiplier, sample_rate=rate, epsilon_each=epsilon_each, delta_each=delta_each
    )
    with progress_bar(quiet=out.as_json) as bar:
        bar.add_task("computing every bound", total=None)
        rounds = 1000 if count is None else count
        table = almoner.accounting.compare.compare(step, rounds=rounds, delta=delta, points=points, people=people)
    if picture is not None:
        from almoner.report.figures import bounds

        bounds(table, picture)
    counts = tuple(map(str, table.rounds))
    title = f"Epsilon after so many steps of {table.mechanism!r}, delta = {table.delta:g}"
    bounded = [(each.name, each.promise, *(shown(epsilon, 4) for epsilon in each.epsilons)) for each in table.bounds]
    rows = Listing(("bound", "promise", *counts), bounded, title=title, right=counts, narrow=True)
    out.give(rows, BOUNDS, told=table.as_dict() | {"which": BOUNDS})


STATUS = "Exact for noise, rates and norms fixed in advance; under adaptivity an approximation and no guarantee."


def losses(
    norms: Annotated[Path, Argument(help=".npy: (people,) or (people, steps) norms, in units of the clip.")],
    noise_multiplier: _options.NoiseMultiplier,
    sample_rate: _options.SampleRate = 1.0,
    steps: _options.OptionalSteps = None,
    delta: _options.Delta = 1e-5,
    groups: Annotated[Path | None, Option(help=".npy: (people,) a label for each person.")] = None,
    gaussian: Annotated[
        bool, Option("--gaussian", help="Also by the dominating Gaussian: 30 people a second.")
    ] = False,
    picture: _options.PrivatePicture = None,
    html: _options.Page = None,
    csv: _options.PrivateCsv = None,
    force: _options.Force = False,
    as_json: _options.Json = False,
) -> None:
    """Show each person's epsilon (PRIVATE) by privacy loss distributions, beside Rényi and Gaussian accounting.

    Give --steps for norms of shape (people,), which are those of every step. The table holds quantiles and means over
    people, and --html writes it as a page; --json prints each person's epsilon.
    """
    _check.positive(noise_multiplier=noise_multiplier)
    _check.between(0, 1, delta=delta)
    _options.check_picture(picture)
    _options.check_page(html, force=force, read=(norms,), as_json=as_json)
    _options.check_new_file(csv, force=force, read=(norms,))
    values, labels = _loaded(norms), None if groups is None else _loaded(groups)
    if values.ndim in (1, 2) and (values.ndim == 1) == (steps is None):
        raise ArgumentError("give --steps with norms of shape (people,), and not with (people, steps)")
    if labels is not None and labels.shape != values.shape[:1]:
        raise DataError(f"{groups}: must have one entry for each person in {norms}")
    from almoner.report.losses import from_norms, histogram, means, page, quantiles

    run: Any = {"noise_multiplier": noise_multiplier, "delta": delta, "sample_rate": sample_rate}
    epsilons = from_norms(values, **run, steps=steps, dominating=gaussian)
    if picture is not None:
        histogram(epsilons, picture, groups=labels, title=f"delta = {delta:g}")
    if as_json:
        lists = {name: column.tolist() for name, column in epsilons.items()}
        print(dumps({"private": MARK, "status": STATUS, "delta": delta, "epsilon": lists}))
        return
    if html is not None:
        written = page(epsilons, **run, groups=labels, steps=values.shape[1] if steps is None else steps)
        _options.write_page(html, written)
        return
    title = f"{MARK}: each person's epsilon at delta = {delta:g}"
    numbers = (*(f"{level:.0%}" if level < 1 else "most" for level in LEVELS), "mean")
    averages = means(epsilons, groups=labels)
    rows = [
        (name, "all" if group is None else group, *(shown(value, 4) for value in [*levels, mean]))
        for (name, group, levels), (_, _, mean) in zip(quantiles(epsilons, groups=labels), averages, strict=True)
    ]
    table = Listing(("accounting", "group", *numbers), rows, title=title, right=numbers, narrow=True)
    if not table.write(csv, private=True):
        show(table, STATUS)


def _loaded(path: Path) -> "NDArray[np.generic]":
    import numpy as np

    if not path.is_file():
        raise DataError(_check.away(path))
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: must be an array that numpy.save wrote, without objects") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: must be one array that numpy.save wrote")
    return array
