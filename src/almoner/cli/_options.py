"""Options that mean the same in every command, where commands may write, their groups, and errors in one line.

Places to write to are checked before anything is computed, so that no work and no file is lost.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from fractions import Fraction
from functools import wraps
from inspect import Parameter, Signature, signature
from math import ceil, nextafter
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Exit, Option, Typer, echo
from typer.core import TyperGroup

from almoner import _check
from almoner._check import line, nearest
from almoner._private import MARK
from almoner._units import exact
from almoner.cli._shown import STDOUT, Listing, tell, use_letters_of_the_terminal
from almoner.errors import AlmonerError, ArgumentError, DataError, MissingExtra

_NOISE_MULTIPLIER = Option(
    "--noise-multiplier", help="Standard deviation of the noise of one step, divided by the clip (the sensitivity)."
)
_DELTA = Option("--delta", help="Delta: the probability with which the guarantee may fail.")
_STEPS = Option("--steps", help="Number of steps.")
_SAMPLE_RATE = Option("--sample-rate", help="Poisson sampling rate of each step; 1 is the full batch.")
_EPOCHS = Option("--epochs", help="Passes over the data set, in place of --steps.")
_EPSILON = Option("--epsilon", help="Epsilon of the privacy budget of each person.")

Epsilon = Annotated[float, _EPSILON]
OptionalEpsilon = Annotated[float | None, _EPSILON]
Delta = Annotated[float, _DELTA]
OptionalDelta = Annotated[float | None, _DELTA]
NoiseMultiplier = Annotated[float, _NOISE_MULTIPLIER]
OptionalNoiseMultiplier = Annotated[float | None, _NOISE_MULTIPLIER]
OptionalSteps = Annotated[int | None, _STEPS]
SampleRate = Annotated[float, _SAMPLE_RATE]
MaxGradNorm = Annotated[
    float, Option("--max-grad-norm", help="The clip: the largest L2 norm that one person adds to a step.")
]
Picture = Annotated[Path | None, Option("--picture", help="Save a picture here: .png, .svg or .pdf.")]
PrivatePicture = Annotated[Path | None, Option("--picture", help="Save a PRIVATE picture here: .png, .svg or .pdf.")]
OutFile = Annotated[Path | None, Option("--out", help="Write to this file instead of printing.")]
OutFolder = Annotated[Path | None, Option("--out", help="The folder to write to.")]
Page = Annotated[Path | None, Option("--html", help="Write a PRIVATE page to this file instead of printing.")]
CsvFile = Annotated[Path | None, Option("--csv", help="Write the rows to this CSV file as well; - prints them alone.")]
PrivateCsv = Annotated[
    Path | None, Option("--csv", help="Write the rows to this PRIVATE CSV file as well; - prints them alone.")
]
Force = Annotated[bool, Option("--force", help="Overwrite what is there already.")]
Json = Annotated[bool, Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Options that say the sampling rate and the number of steps, as such or as sizes and epochs."""

    steps: OptionalSteps = None
    sample_rate: Annotated[float | None, _SAMPLE_RATE] = None
    dataset_size: Annotated[
        int | None, Option("--dataset-size", help="Number of people in the data set; with --batch-size.")
    ] = None
    batch_size: Annotated[
        int | None,
        Option("--batch-size", help="Expected size of a batch; with --dataset-size, in place of --sample-rate."),
    ] = None
    epochs: Annotated[float | None, _EPOCHS] = None

    def rate_and_steps(self) -> tuple[float, int | None]:
        """The sampling rate, 1 if nothing says it, and the number of steps, None if nothing says it.

        The rate is the batch size divided by the dataset size, rounded up; an epoch is as many steps as one over the
        rate, rounded up (Opacus's loader has as many batches, and takes each with a rate that is not above this one).
        """
        dataset_size, batch_size, sample_rate, steps = self.dataset_size, self.batch_size, self.sample_rate, self.steps
        if (dataset_size is None) != (batch_size is None):
            size = "`--dataset-size=10000`" if dataset_size is None else "`--batch-size=100`"
            raise ArgumentError(f"--dataset-size and --batch-size must be given together; for example {size}")
        if dataset_size is not None and sample_rate is not None:
            sizes = f"`--dataset-size={dataset_size} --batch-size={batch_size}`"
            raise ArgumentError(f"give either --sample-rate, or {sizes}")
        if self.epochs is not None and steps is not None:
            raise ArgumentError(f"give either --epochs or `--steps={steps}`")
        exactly = Fraction(1)
        if dataset_size is not None and batch_size is not None:
            _check.whole(1, dataset_size=dataset_size, batch_size=batch_size)
            if batch_size > dataset_size:
                most = f"at most dataset_size={dataset_size}; for example `batch_size={dataset_size}`"
                raise ArgumentError(f"batch_size={batch_size} must be {most}")
            exactly = Fraction(batch_size, dataset_size)
            sample_rate = float(exactly) if Fraction(float(exactly)) >= exactly else nextafter(float(exactly), 1.0)
        elif sample_rate is not None:
            _check.positive(sample_rate=sample_rate)
            _check.within(0, 1, sample_rate=sample_rate)
            exactly = exact(sample_rate)
        if self.epochs is not None:
            _check.positive(epochs=self.epochs)
            steps = ceil(exact(self.epochs) * ceil(1 / exactly))
        if steps is not None:
            _check.whole(1, steps=steps)
        return 1.0 if sample_rate is None else sample_rate, steps


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes every field of its parameters that are dataclasses, such as ``Sampling``, as an option."""
    options: list[Parameter] = []
    groups: dict[str, tuple[Callable[..., object], list[str]]] = {}
    for each in signature(command, eval_str=True).parameters.values():
        own = [each]
        if is_dataclass(each.annotation):
            group: Any = each.annotation
            own = list(signature(group).parameters.values())
            groups[each.name] = group, [option.name for option in own]
        options += [option.replace(kind=Parameter.KEYWORD_ONLY) for option in own]

    @wraps(command)
    def flat(**values: object) -> None:
        for name, (group, names) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in names})
        command(**values)

    flat.__signature__ = Signature(options)  # type: ignore[attr-defined]
    flat.__annotations__ = {option.name: option.annotation for option in options}
    return flat


_UsageError: Any = BadParameter.__base__  # of everything that the parser refuses
PICTURES = (".png", ".svg", ".pdf")


def check_new_file(path: Path | None, *, force: bool, read: tuple[Path | str, ...] = ()) -> None:
    """Refuse a folder that is not there, a file that the command reads, and, without --force, an existing file."""
    if path is None or path == STDOUT:
        return
    if not path.parent.is_dir():
        raise ArgumentError(f"{path}: its folder is not there")
    for other in map(Path, read):
        if path.resolve() == other.resolve() or (path.exists() and other.exists() and path.samefile(other)):
            raise ArgumentError(f"{path} is what is read here; choose another name")
    check_free(path, force=force and not path.is_dir())


def check_free(path: Path, *, force: bool) -> None:
    """Refuse to overwrite what exists, without --force."""
    if path.exists() and not force:
        raise ArgumentError(f"{path} exists already; choose another name, or overwrite it with `--force`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Options that say how a command answers: its rows as a CSV file, too, or JSON in the place of tables."""

    csv: CsvFile = None
    force: Force = False
    as_json: Json = False

    def check(self, *read: Path | str) -> None:
        """Refuse a CSV file that must not be written, or that is read, before anything is computed."""
        check_new_file(self.csv, force=self.force, read=read)

    def give(self, table: Listing, *beside: Listing | str, told: object) -> None:
        """Print a table and what stands beside it, or what is told as JSON, after the CSV file that is wanted."""
        if not table.write(self.csv):
            tell(told, table, *beside, as_json=self.as_json)


def check_page(path: Path | None, *, force: bool, read: tuple[Path | str, ...], as_json: bool = False) -> None:
    """Refuse a page that must not be written, or JSON beside it, before anything is read."""
    if path is not None and path.suffix.lower() != ".html":
        raise ArgumentError(f"{path} must end in .html; for example `{path.with_suffix('.html')}`")
    check_new_file(path, force=force, read=read)
    if path is not None and as_json:
        raise ArgumentError("give either --html or --json")


def write_page(path: Path, page: str, *, whose: str = "") -> None:
    """Write a private page, which only its owner can read, and say so."""
    from almoner._disk import whole_file

    with whole_file(path) as file:
        file.write(page.encode("utf-8"))
    print(f"{MARK}{whose}: written to {path}")


def tell_or_write(text: str, out: Path | None) -> None:
    """Print a text as it would stand in a file, whatever the terminal shows, or write it to one."""
    if out is None:
        echo(text.encode("utf-8"), nl=False)
    else:
        out.write_text(text, encoding="utf-8")


def check_picture(path: Path | None, *, makes_folder: bool = False) -> None:
    """Refuse a picture of a format that cannot be drawn, or in a folder that is not there and will not be made."""
    if path is not None and path.suffix.lower() not in PICTURES:
        png = f"for example `{path.with_suffix('.png')}`"
        raise ArgumentError(f"{path} must end in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}; {png}")
    if path is not None and not makes_folder and not path.parent.is_dir():
        raise ArgumentError(f"{path}: its folder is not there")


_COMMAND = "almoner.command"
_OTHER_NAMES = {
    "--sigma": "--noise-multiplier", "--noise": "--noise-multiplier", "--noise-scale": "--noise-multiplier",
    "--clip": "--max-grad-norm", "--l2-norm-clip": "--max-grad-norm", "--eps": "--epsilon",
    "--target-epsilon": "--epsilon", "--target-delta": "--delta", "--q": "--sample-rate", "--rate": "--sample-rate",
    "--sampling-rate": "--sample-rate", "--sampling-probability": "--sample-rate", "--n": "--dataset-size",
    "--num-examples": "--dataset-size", "--sample-size": "--dataset-size", "--lot-size": "--batch-size",
    "--iterations": "--steps", "--num-steps": "--steps", "--rounds": "--steps", "--output": "--out",
}  # fmt: skip
"""Options as other programs call them, and what they are called here."""


def examples(*lines: str) -> str:
    """The end of a help: a line each, which is not wrapped (that is what the sign says)."""
    return "\b\n" + "\n".join(f"Example: almoner {line}".rstrip() for line in lines)


def added(group: Typer, words: str, *lines: str, panel: str | None = None) -> Callable[..., Any]:
    """Add a function to a group, as the command that these words call, with what follows them in its examples."""
    shown = examples(*(f"{words} {each}" for each in lines))
    add = group.command(words.split()[-1], epilog=shown, rich_help_panel=panel)
    return lambda command: add(flattened(command))


class Group(TyperGroup):
    """Prints its help where no command is given, its commands below headings, and remembers which command runs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help())
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        found = super().resolve_command(ctx, args)
        ctx.meta[_COMMAND] = found[1]
        return found

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = getattr(command, "rich_help_panel", None)
            about = " ".join((command.help or "").partition("\n\n")[0].split())
            panels.setdefault(panel if isinstance(panel, str) else "Commands", []).append((name, about))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


class Commands(Group):
    """All commands. An error is `Error:` and a sentence, whether a word of the line or a value is wrong."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        use_letters_of_the_terminal()
        try:
            raise SystemExit(super().main(*args, **kwargs | {"standalone_mode": False}) or 0)
        except _UsageError as error:
            _tell(_mended(error))
            raise SystemExit(2) from None

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except AlmonerError as error:
            words = str(error)
            if isinstance(error, ArgumentError):
                words = _options_named(words, ctx.meta.get(_COMMAND))
            _tell(words, *getattr(error, "__notes__", ()))  # notes are for who runs the command
            usage = isinstance(error, ArgumentError | DataError)
            raise Exit(2 if usage else 3 if isinstance(error, MissingExtra) else 1) from None
        except BrokenPipeError:  # the reader of the output stopped reading
            raise
        except OSError as error:  # a file that cannot be written: its name and why
            _tell(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
            raise Exit(2) from None


def _tell(words: str, *notes: str) -> None:
    echo("\n".join((f"Error: {words}", *notes)), err=True)


def _mended(error: Any) -> str:
    """The parser's sentence, with the words to write and where the rest of them stands."""
    words, param, command = str(error.format_message()).rstrip("."), getattr(error, "param", None), error.ctx.command
    known = [name for each in command.params for name in each.opts]
    near = [_OTHER_NAMES.get(getattr(error, "option_name", "")), *(getattr(error, "possibilities", None) or ())]
    if meant := [name for name in near if name in known]:
        words = f"{words.partition(' (Possible options')[0]}; write `{meant[0]}`"
    elif param is not None:
        words = _of_parameter(words, param, command.epilog or "")
    words = re.sub(r"\. Did you mean '([\w-]+)'.*", r"; write `\1`", words)
    return f"{words} ({error.ctx.command_path} --help)"


def _of_parameter(words: str, param: Any, epilog: str) -> str:
    """A sentence on an option or an argument that is missing, or of another type."""
    kind, option, example = param.type_descriptor, param.opts[0], epilog.partition("Example: ")[2].partition("\n")[0]
    of_type, usual = {float: ("a number", 0.1), int: ("a whole number", 10)}.get(kind.annotation, ("", None))
    if kind.is_choice:
        end = nearest(option, words.split("'")[3], kind.choices)
        return f"{option} must be one of {', '.join(map(str, kind.choices))}{end}"
    if words.startswith("Missing"):
        words = f"{option if option.startswith('--') else param.name} is missing"
    elif of_type:
        words = f"{option} must be {of_type}"
    if shown := re.search(rf"{option}[ =]\S+" if option.startswith("--") else ".+", example):
        return f"{words}; for example `{shown[0]}`"
    return words + line(param.name, usual).replace(f"`{param.name}=", f"`{option}=")


def _options_named(words: str, command: Any) -> str:
    """An argument's name in an error, as the option of the command that it came from."""
    listed = [(each.name, each.opts[0]) for each in getattr(command, "params", ())]
    names: dict[str, str] = {name: option for name, option in listed if option.startswith("--")}
    return re.sub(r"(?<![\w.-])([a-z_]+)(?==\S)", lambda found: names.get(found[1], found[1]), words)
