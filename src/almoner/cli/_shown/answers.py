"""Answers of questions on the screen: values, intervals, and what they are about."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from almoner._intervals import interval_shown, value_shown
from almoner.cli._shown.json import dumps
from almoner.cli._shown.tables import Listing, show

if TYPE_CHECKING:
    from almoner.queries import Answer

__all__ = ["print_answers"]


def print_answers(answers: "Mapping[str, Answer]", *, as_json: bool) -> None:
    """Print answers as JSON, or as a table with a line for each value."""
    if as_json:
        described = {
            key: {
                "groups": answer.groups,
                "values": answer.values,
                "intervals": answer.intervals,
                "rho": answer.rho,
                "complete_clip": answer.complete_clip,
                "truth_intervals": answer.truth_intervals,
                "estimand": answer.estimand,
                "about": answer.about,
            }
            | ({} if answer.complete is None else {"complete": answer.complete})
            for key, answer in answers.items()
        }
        print(dumps(described))
        return
    lines = [line for key, answer in answers.items() for line in _lines(key, answer)]
    alike = all(noise == truth for *_, noise, truth in lines)
    grouped = any(group for _, group, *_ in lines)
    columns = ("key", *(["group"] if grouped else []), "value", "95 % interval", *([] if alike else [_TRUTH]))
    rows = [
        (key, *([group] if grouped else []), value, noise, *([] if alike else [truth]))
        for key, group, value, noise, truth in lines
    ]
    show(
        Listing(columns, rows, once=("key",)),
        "Intervals are 95 % each." if alike else "Intervals are 95 % each, for the noise alone.",
    )
    _print_notes(answers, "intervals cover" if alike else f'intervals of the column "{_TRUTH}" cover')


_TRUTH = "truth, 95 %"


def _lines(key: str, answer: "Answer") -> Iterator[tuple[str, str, str, str, str]]:
    """Each value of an answer: the answer's key, its group, and the intervals for the noise and the truth."""
    columns = answer.columns()
    values, lows, highs = (columns.pop(name) for name in ("value", "low", "high"))
    truths = list(zip(columns.pop("truth_low", [None] * len(values)), columns.pop("truth_high", lows), strict=True))
    groups = zip(*columns.values(), strict=True) if columns else [()]
    for place, (group, number, low, high) in enumerate(zip(groups, values, lows, highs, strict=True)):
        value = "-" if number is None else value_shown(number, low, high)
        noise = interval_shown(low, high)
        yield (
            key,
            ", ".join(map(str, group)),
            value,
            noise,
            "-" if truths[place][0] is None else interval_shown(*truths[place]),
        )


def _print_notes(answers: "Mapping[str, Answer]", cover: str) -> None:
    """Print what each answer is about, and what is not certain about people who have little left."""
    keys: dict[str, list[str]] = {}
    for key, answer in answers.items():
        about = answer.about.replace("truth_intervals cover", cover)
        keys.setdefault(f"{answer.estimand}. {about[0].upper()}{about[1:]}", []).append(key)
    for note, alike in keys.items():
        show(f"{alike[0]}{f' and {len(alike) - 1} more' if alike[1:] else ''}: {note}")
    certain = {
        key: each.complete_clip / float(each.question.clip or 1)
        for key, each in answers.items()
        if each.complete_clip is not None
    }
    if min(certain.values(), default=1) < 1:
        worst = min(certain, key=lambda key: certain[key])
        show(f"{worst!r}: {answers[worst].about_budgets}")
    if incomplete := [key for key, answer in answers.items() if answer.complete is False]:
        show(f"Too many people could not pay any more: do not trust totals from {incomplete[0]!r} on.")
