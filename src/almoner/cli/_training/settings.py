"""The file of `--settings`: settings of a training beside the options of its command, as TOML."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from textwrap import wrap
from typing import Any

from almoner.errors import DataError

__all__ = ["IMAGES", "TRAIN", "TUNE", "as_settings", "read_settings", "settings_template"]

TRAIN, TUNE, IMAGES = "train", "tune", "train-images"
"""Commands that read such a file."""


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


KINDS: Mapping[str, Callable[[object], bool]] = {
    "a number": _number,
    "a whole number": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "true or false": lambda value: isinstance(value, bool),
    "a text": lambda value: isinstance(value, str) and value != "",
    "a path": lambda value: isinstance(value, str) and value != "",
    "a list of numbers": lambda value: isinstance(value, list) and bool(value) and all(map(_number, value)),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: the words about it, its kind, its value by default, and the commands that it is for."""

    words: str
    kind: str
    default: Any
    example: str = ""
    """A value as TOML, where there is none by default."""
    commands: tuple[str, ...] = (TRAIN, TUNE)


SETTINGS: Mapping[str, Setting] = {
    "steps": Setting("How many steps a person who contributes the whole clip can pay for.", "a whole number", 200),
    "max_grad_norm": Setting("The clip: the largest L2 norm that one person adds to a step.", "a number", 1.0),
    "learning_rate": Setting("Step on the mean gradient; else as large as the noise allows.", "a number", None, "4"),
    "average": Setting("Share of the last iterates that are averaged.", "a number", 0.5),
    "momentum": Setting("Nesterov's momentum, below 1: each step goes on by this share of the last.", "a number", 0.0),
    "decay": Setting("Over this share of the steps, the last ones, the learning rate falls to zero.", "a number", 0.0),
    "extra_steps": Setting("Steps more than the noise is planned for.", "a whole number", 0),
    "pace": Setting(
        "How evenly budgets are spread over the steps that are left: 1 evenly, 0 not at all.", "a number", 1.0
    ),
    "stop_when_inactive": Setting(
        "Stop, after these steps, when noisy counts say that this share of people has no budget left. Needs "
        "extra_steps and a pace below 1; the counts cost 1 % of each budget.",
        "a number",
        None,
        "0.1",
    ),
    "individual": Setting("An account for each person, or else one worst case for all.", "true or false", True),
    "skip_rows": Setting("Lines to leave out at the start of DATA.", "a whole number", 0),
    "noise_multiplier": Setting(
        "Noise of one step divided by the clip; else the least that the budget allows.",
        "a number",
        None,
        "30",
        (TRAIN,),
    ),
    "analyst": Setting("Whose limits on the ledger hold, with --ledger.", "a text", "training", commands=(TRAIN,)),
    "purpose": Setting("The purpose whose limits on the ledger hold.", "a text", None, '"research"', (TRAIN,)),
    "keep_accounts": Setting(
        "PRIVATE: write OUT.accounts, for `almoner statement OUT`.", "true or false", False, commands=(TRAIN, IMAGES)
    ),
    "picture": Setting(
        "A PRIVATE picture of what each person has spent: .png, .svg or .pdf, from the folder of this file.",
        "a path",
        None,
        '"spends.png"',
        (TRAIN, IMAGES),
    ),
    "features": Setting(
        "A PRIVATE folder where the features of images are kept, from the folder of this file.",
        "a path",
        None,
        '"features"',
        (IMAGES,),
    ),
    "dimensions": Setting("How many features of each image are kept.", "a whole number", None, "300", (IMAGES,)),
}

TRIED: Mapping[str, list[float]] = {"learning_rate": [1.0, 4.0, 16.0, 64.0], "max_grad_norm": [0.25, 1.0]}
"""Settings that `almoner tune` tries, and the values by default."""

REASONS: Mapping[str, Mapping[str, str]] = {
    TUNE: {
        "noise_multiplier": "each run's noise follows from the budget of the search",
        "picture": "what people spent in the best run alone is not what they paid for the search",
        "keep_accounts": "accounts of the best run alone would understate what people paid for all runs",
        "analyst": "a search has no price on a ledger",
        "purpose": "a search has no price on a ledger",
    },
}
"""For each command, why a setting of another one is none of its own, where it is about neither images nor tables."""

_OF_TABLES = "it is about tables, and steps, clip and rate are tuned already for images"


def read_settings(path: Path | None, command: str) -> dict[str, Any]:
    """Every setting of a command: as a file says, or by default.

    Args:
        path: the file; None: all by default.
        command: one of TRAIN, TUNE and IMAGES.

    Raises:
        DataError: the file cannot be read, or a setting in it is not known, not for this command, or no such value.
    """
    settings = {name: setting.default for name, setting in SETTINGS.items() if command in setting.commands}
    if command == TUNE:
        settings |= {name: list(values) for name, values in TRIED.items()}
    if path is None:
        return settings
    text, found = _parsed(path)
    for name, value in found.items():
        settings[name] = _checked(name, value, command, _place(path, text, name))
        if SETTINGS[name].kind == "a path":
            settings[name] = path.parent / value
        elif isinstance(value, int) and SETTINGS[name].kind == "a number":
            settings[name] = float(value)
    return settings


def as_settings(command: str, **others: str) -> dict[str, str]:
    """The line to write for each option that is a setting: ``{}`` stands for the value.

    Args:
        command: that refuses them.
        others: lines for more options, with underscores in their names.
    """
    lines: dict[str, str] = {}
    for name, setting in SETTINGS.items():
        option, kind = "--" + name.replace("_", "-"), setting.kind
        values = {option: '"{}"' if kind in ("a text", "a path") else "true" if kind == "true or false" else "{}"}
        if kind == "true or false":
            values[f"--no-{option[2:]}"] = "false"
        for each, value in values.items():
            told = f"write `{name} = {value}` in {command}.toml, and --settings {command}.toml"
            lines[each] = told if command in setting.commands else f"{_why_not(name, command)}: leave it out"
    return lines | {"--" + name.replace("_", "-"): line for name, line in others.items()}


def settings_template(**chosen: object) -> str:
    """A file of settings to fill in, as TOML, with the words about each; all by default but those that are chosen."""
    lines = [
        "# Settings of a training, for --settings of `almoner train`, `almoner tune` and `almoner train-images`.",
        "# Each stands here with its value by default, or with an example: take the mark # away, and change it.",
        "# Nothing here may be chosen by looking at the data of the people who are trained on.",
    ]
    before: tuple[str, ...] = ()
    for name, setting in SETTINGS.items():
        if setting.commands != before:
            before = setting.commands
            lines += ["", f"# {'-' * 8} for {' and '.join(f'`almoner {each}`' for each in before)}"]
        value = chosen.get(name, setting.default)
        written = setting.example if value is None else _toml(value)
        lines += ["", *wrap(setting.words, 110, initial_indent="# ", subsequent_indent="# ")]
        lines.append(f"{'' if name in chosen else '# '}{name} = {written}")
        if name in TRIED:
            lines.append(f"# {name} = {_toml(TRIED[name])}    # `almoner tune` tries each")
    return "\n".join(lines) + "\n"


def _parsed(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a file, and what it says."""
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a TOML file: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. `almoner init settings` writes one") from error


def _place(path: Path, text: str, name: str) -> str:
    """The file and the line of a setting."""
    line = re.compile(rf"""\s*\[?\s*["']?{re.escape(name)}["']?\s*[=.\]]""")
    found = [number for number, each in enumerate(text.splitlines(), 1) if line.match(each)]
    return f"{path}, line {found[0]}" if found else str(path)


def _checked(name: str, value: Any, command: str, place: str) -> Any:
    """The value, if it is one of this setting."""
    known = [each for each, setting in SETTINGS.items() if command in setting.commands]
    if name not in SETTINGS:
        near = get_close_matches(name, known, 1, 0.5)
        cure = f"write {near[0]}" if near else f"known are {', '.join(known)}"
        raise DataError(f"{place}: {name} is not known; {cure}")
    if name not in known:
        raise DataError(
            f"{place}: {name} is no setting of `almoner {command}`: {_why_not(name, command)}. Leave it out"
        )
    kind, more = SETTINGS[name].kind, ""
    if name in TRIED and command == TUNE:
        kind, more = "a list of numbers", f": the values to try, {name} = {_toml(TRIED[name])}"
    elif name in TRIED and isinstance(value, list):
        more = ": `almoner tune` tries the values of a list"
    if not KINDS[kind](value):
        raise DataError(f"{place}: {name}={value!r:.100} must be {kind}{more}")
    return value


def _why_not(name: str, command: str) -> str:
    """The reason why a setting is none of this command."""
    about_images = IMAGES in SETTINGS[name].commands and command != IMAGES
    of_all = "it is about images, see `almoner train-images`" if about_images else _OF_TABLES
    return REASONS.get(command, {}).get(name, of_all)


def _toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
