"""The page that the demonstration ends with: counts of a shop, a trained model, and one person's statement."""

from collections.abc import Sequence
from math import ceil, sqrt

import numpy as np

from almoner import _html
from almoner.cli._demo.shop import CUSTOMERS, FULL_WEEKS, PERSON, Counts

__all__ = ["difference", "index", "late", "promised", "reading", "shop"]


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
    counts: Counts, model: Sequence[Sequence[str]], about: str, promise: Sequence[str], compared: Sequence[str]
) -> str:
    """The page, with a link to the statement of a customer: the file ``statement.html`` beside it.

    Args:
        counts: of the shop, whose customers are generated.
        model: rows of the table of trained models: how it was trained, epsilon, and accuracy.
        about: the data that the models learnt from.
        promise: what one private run promises, in sentences.
        compared: how the private rows compare, in sentences.
    """
    return _html.render(
        "demo.html",
        counts=counts,
        customers=CUSTOMERS,
        shop=shop(counts),
        late=late(counts),
        model=model,
        about=about,
        promise=promise,
        compared=compared,
        person=PERSON,
    )
