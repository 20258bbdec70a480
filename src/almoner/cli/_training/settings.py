"""The file of `--settings`: settings of a training beside the options of its command, as TOML.

Each command has a model: its fields are the lines that there may be, with what each takes and what it is for. From it
the commented file of `almoner init settings` is made, and ``almoner schema train``.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

from almoner._reading import Field, Model, Numbers, Text, read, toml
from almoner.errors import ArgumentError, DataError

TRAIN, TUNE = "train", "tune"  # commands that read such a file
RATES, CLIPS = (0.25, 1.0, 4.0, 16.0), (0.25, 1.0)  # values that `almoner tune` tries by default
Line = Annotated[str, Text(1000)]


def _tried(example: str) -> Numbers:
    return Numbers(1, 10_000, 0.0, 1e100, f"a list of numbers above 0, the values to try: {example}")


class Course(Model):
    """Course of a training on a table."""

    steps: int = 200
    """The number of steps that a person who contributes the whole clip can pay for."""
    max_grad_norm: float | None = Field(default=None, examples=[0.5])
    """The clip: the largest L2 norm that one person adds to a step; else from 0.5 to 1, as the noise allows."""
    learning_rate: float | None = Field(default=None, examples=[4])
    """Step on the mean gradient; else as large as the noise allows."""
    average: float = 0.5
    """Share of the last iterates that are averaged."""
    momentum: float = 0.8
    """Nesterov's momentum, below 1: each step goes on by this share of the last."""
    decay: float = 0.0
    """Over this share of the steps, the last ones, the learning rate falls to zero."""
    extra_steps: int = 0
    """Steps more than the noise is planned for."""
    pace: float = 1.0
    """Evenness with which budgets are spread over the steps that are left: 1 evenly, 0 not at all."""
    stop_when_inactive: float | None = Field(default=None, examples=[0.1])
    """Stop, after these steps, when noisy counts say that this share of people has no budget left. Needs extra_steps
    and a pace below 1; the counts cost 1 % of each budget."""
    individual: bool = True
    """An account for each person, or else one worst case for all."""
    skip_rows: int = 0
    """Lines to leave out at the start of DATA."""


class TrainSettings(Course):
    """Settings of `almoner train`, some of which name private files."""

    keep_accounts: bool = False
    """PRIVATE: write OUT.accounts, for `almoner statement OUT`."""
    picture: Line | None = Field(default=None, examples=["spends.png"])
    """A PRIVATE picture of what each person has spent: .png, .svg or .pdf, from the folder of this file."""
    noise_multiplier: float | None = Field(default=None, examples=[30])
    """Noise of one step divided by the clip; else the least that the budget allows."""
    analyst: Line = "training"
    """Whose limits on the ledger hold, with --ledger."""
    purpose: Line | None = Field(default=None, examples=["research"])
    """The purpose whose limits on the ledger hold."""


class TuneSettings(Course):
    """Settings of `almoner tune`, which tries each value of a list."""

    max_grad_norm: Annotated[tuple[float, ...], _tried("max_grad_norm = [0.25, 1]")] = CLIPS  # type: ignore[assignment]
    """The clips to try."""
    learning_rate: Annotated[tuple[float, ...], _tried("learning_rate = [0.25, 1, 4, 16]")] = RATES  # type: ignore[assignment]
    """The learning rates to try."""


MODELS: Mapping[str, type[Model]] = {TRAIN: TrainSettings, TUNE: TuneSettings}


def read_settings(path: Path | None, command: str) -> dict[str, Any]:
    """Every setting of a command, as a file says or by default; DataError: one in it is not known, or not for this."""
    if path is None:
        return dict(MODELS[command]())
    try:
        found = toml(path)
    except DataError as error:
        raise DataError(f"{error}. `almoner init settings` writes one") from None
    known = MODELS[command].model_fields
    for name in found.keys() - known.keys():
        near = get_close_matches(name, known, 1, 0.5)
        told = f"is not known; {f'write `{near[0]}`' if near else 'known are ' + ', '.join(known)}"
        if name in TrainSettings.model_fields:
            told = f"is no setting of `almoner {command}`: leave it out"
        raise DataError(f"{_place(path, name)}: {name} {told}")
    try:
        settings = dict(read(MODELS[command], found))
    except ArgumentError as error:
        name = re.split(r"[=. ]", str(error), maxsplit=1)[0]
        more = ": `almoner tune` tries the values of a list" if isinstance(found[name], list) else ""
        rule, *line = str(error).partition("; for example")
        raise DataError(f"{_place(path, name)}: {rule}{more}{''.join(line)}") from None
    return settings | ({"picture": path.parent / settings["picture"]} if settings.get("picture") else {})


def _place(path: Path, name: str) -> str:
    line = re.compile(rf"""\s*\[?\s*["']?{re.escape(name)}["']?\s*[=.\]]""")
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return f"{path}{next((f', line {number}' for number, each in lines if line.match(each)), '')}"


def settings_template(**chosen: object) -> str:
    """A file of settings to fill in, as TOML, with the words about each; all by default but those that are chosen."""
    lines = [
        "# Settings of a training, for --settings of `almoner train` and `almoner tune`.",
        "# Each stands here with its value by default, or with an example: take the mark # away, and change it.",
        "# Nothing here may be chosen by looking at the data of the people who are trained on.",
    ]
    before: list[str] = []
    for name, field in TrainSettings.model_fields.items():
        commands = [each for each, model in MODELS.items() if name in model.model_fields]
        if commands != before:
            before = commands
            lines += ["", f"# {'-' * 8} for {' and '.join(f'`almoner {each}`' for each in commands)}"]
        lines += ["", *wrap(field.description or "", 110, initial_indent="# ", subsequent_indent="# ")]
        lines.append(f"{'' if name in chosen else '# '}{name} = {_toml(chosen.get(name, _shown(field)))}")
        tried = TuneSettings.model_fields.get(name)
        if tried is not None and isinstance(tried.default, tuple):
            lines.append(f"# {name} = {_toml(tried.default)}    # `almoner tune` tries each")
    return "\n".join(lines) + "\n"


def _shown(field: Any) -> object:
    return field.examples[0] if field.default is None else field.default


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
