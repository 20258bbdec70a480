"""The page that the demonstration ends with: counts of a shop, a trained model, and one person's statement."""

from collections.abc import Sequence
from math import ceil, sqrt

import numpy as np

from almoner import _html
from almoner.cli._demo.shop import CUSTOMERS, FULL_WEEKS, PERSON, WEEKS, Counts

__all__ = ["difference", "index", "late", "promised", "reading", "shop"]

_WIDTH, _HEIGHT, _LEFT, _BELOW = 800, 260, 50, 40


def difference(plain: Sequence[float], accounts: Sequence[float]) -> tuple[float, float | None]:
    """(Mean with accounts minus mean without, half of its 95 % interval) in points; None: one run each has none.

    Args:
        plain, accounts: accuracies in percent, as many of each; every run has noise of its own (Student's t).
    """
    from scipy import special

    runs, gained = len(plain), float(np.mean(accounts) - np.mean(plain))
    if runs < 2:
        return gained, None
    variance = np.var(plain, ddof=1) + np.var(accounts, ddof=1)
    return gained, float(special.stdtrit(2 * runs - 2, 0.975)) * sqrt(float(variance) / runs)


def shop(counts: Counts) -> list[str]:
    """Sentences on what the shop's counts show."""
    return [
        f"One budget for all people is used up after {counts.one_budget} weeks.",
        f"With an account for each customer, the same budget answers all {len(counts.answers)} weeks.",
    ]


def late(counts: Counts) -> list[str]:
    """Sentences on what the last answers lack."""
    share = f"{100 * counts.late_share:.0f}\u00a0%"
    return [
        f"Who came in more than {FULL_WEEKS} weeks is left out from then on.",
        f"So the last eight answers add up to {share} of the truth.",
    ]


def promised(epsilon: float, delta: float, guess: float | None) -> list[str]:
    """Sentences on what a private run promises, and what that lets others guess."""
    promise = f"Each private run promises epsilon {epsilon:g} at delta {delta:g}."
    if guess is None:
        return [promise]
    return [
        promise,
        "These two numbers limit what others can guess about a person.",
        "Suppose somebody knows everything about all other people, and guesses whether one person is in the data.",
        "Without the model the guess is right 50 times in 100.",
        f"With it the guess is right at most {min(1000, ceil(1000 * guess - 1e-9)) / 10:g} times in 100.",
    ]


def reading(gained: float, half: float | None, runs: int) -> list[str]:
    """Sentences that compare the two private rows.

    The demonstration has no ``extra_steps`` and the default pace, so an allowance is never below the clip.
    """
    words = [
        "On one table, trained once, accounts per person gain little or nothing.",
        "In this table both private rows take the same steps, and only their random noise differs.",
        "Accounts per person pay in streams and repeated releases, as in the shop's counts.",
        f"The row with accounts is {abs(gained):.2f} points {'lower' if gained < 0 else 'higher'} here.",
    ]
    if half is None:
        return [*words, "One run of each cannot tell a difference from noise; more --runs give an interval."]
    low, high = gained - half, gained + half
    words.append(f"The 95 % interval of this difference, over {runs} runs of each, is from {low:+.2f} to {high:+.2f}.")
    if low <= 0 <= high:
        return [*words, "It contains 0: the difference is within the noise of so few runs."]
    return [*words, "It does not contain 0; with noise alone that happens in one of 20 demonstrations."]


def index(
    counts: Counts,
    model: Sequence[Sequence[str]],
    about: str,
    promise: Sequence[str],
    compared: Sequence[str],
    statement: str,
) -> str:
    """The page.

    Args:
        counts: of the shop, whose customers are generated.
        model: rows of the table of trained models: how it was trained, epsilon, and accuracy.
        about: the data that the models learnt from.
        promise: what one private run promises, in sentences.
        compared: how the private rows compare, in sentences.
        statement: the name of the file beside this one with a person's statement.
    """
    body = [
        _html.heading("1. A shop counts its customers every week"),
        _html.paragraph(
            f"{CUSTOMERS:,} generated customers, {WEEKS} weeks, and random noise on each count.",
            *shop(counts),
        ),
        _chart(counts),
        _html.paragraph(
            "Each customer pays for the weeks in which they come.",
            *late(counts),
        ),
        _html.heading("2. A model learns with a budget for each person"),
        _html.table(
            about, ("Trained with", "Epsilon", "Accuracy on test data"), [tuple(map(_html.text, row)) for row in model]
        ),
        _html.paragraph("All rows use the same features and the same kind of model; only the first has no privacy."),
        _html.paragraph(*compared),
        _html.paragraph(*promise),
        _html.heading("3. What a customer may be told"),
        _html.paragraph(f"Customer {PERSON} of the shop asks what was used. The answer is a page in plain words:"),
        _html.link(statement, f"The statement of customer {PERSON}"),
        _html.paragraph("Such a page is private. This customer is generated, so everybody may read it."),
    ]
    return _html.page("What Almoner does", body)


def _chart(counts: Counts) -> str:
    """Truth and answers by week, and the weeks that one budget answers."""
    top = 1.2 * max(*counts.truth, *counts.answers)
    step = (_WIDTH - _LEFT - 10) / len(counts.truth)
    across = [_LEFT + step * (week + 0.5) for week in range(len(counts.truth))]
    base = _HEIGHT - _BELOW

    def up(value: float) -> float:
        return base - (base - 10) * max(value, 0.0) / top

    line = " ".join(f"{x:.1f},{up(value):.1f}" for x, value in zip(across, counts.truth, strict=True))
    dots = [
        f'<circle class="used" cx="{x:.1f}" cy="{up(y):.1f}" r="4"/>'
        for x, y in zip(across, counts.answers, strict=True)
    ]
    end = _LEFT + step * counts.one_budget
    marks = range(0, int(top), 50 if top < 400 else 100)
    label = (
        f"The number of customers in each of {len(counts.truth)} weeks, as a line, with a noisy answer for each week. "
        f"One budget for all people answers the first {counts.one_budget}."
    )
    parts = [
        f'<rect class="stop" x="{_LEFT}" y="10" width="{end - _LEFT:.1f}" height="{base - 10}"/>',
        *(f'<text x="{_LEFT - 8}" y="{up(mark) + 4:.1f}" text-anchor="end">{mark}</text>' for mark in marks),
        *(
            f'<text x="{across[week]:.1f}" y="{base + 18}" text-anchor="middle">{week + 1}</text>'
            for week in (0, 9, 19, 29, 39, 49)
        ),
        f'<text x="{_LEFT}" y="{base + 36}">week; line: truth; dots: answers, an account for each customer</text>',
        f'<text x="{end + 6:.1f}" y="24">\u2190 one budget for all people</text>',
        f'<polyline class="truth" points="{line}"/>',
        *dots,
    ]
    inner = "".join(parts)
    return f'<svg class="chart" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {_HEIGHT}">{inner}</svg>'
