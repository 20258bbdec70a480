"""The card of a model as a page, for whoever judges the model."""

from collections.abc import Iterable, Sequence

from almoner import _html
from almoner.accounting.meaning import sentence

__all__ = ["card_page"]

SECTIONS = (
    (
        "What is protected",
        ("Between which data sets", "Who counts as a person", "What is covered", "Labels", "Preprocessing"),
    ),
    ("The training", ("How it was trained", "Tuning", "Noise", "Divisor of the sums", "Randomness")),
    ("The price", ("Who was charged what", "Ledger", "Released")),
    ("The proof", ("Notion", "Why this filter", "Why it holds")),
)
"""The headings of the page, and which facts of the card stand below each."""

ACCURACY = (
    "How well it predicts. Accuracy that is measured on people's data is not covered by the promise, "
    "unless it was paid for."
)


def card_page(
    promise: str,
    facts: Iterable[tuple[str, str]],
    *,
    tiles: Iterable[tuple[str, str]],
    warning: str,
    guess: float | None,
    unchecked: Sequence[str],
) -> str:
    """The page. Everything on it is public.

    Args:
        promise: the guarantee, in a sentence.
        facts: what the card says, by name, without full stops.
        tiles: the most important numbers by name.
        warning: above everything; empty for none.
        guess: how often the best guess is right at most; None: not known.
        unchecked: what the caller said and nothing can check.
    """
    told = list(facts)
    body = [
        *([_html.notice(warning, alert=True)] if warning else []),
        _html.paragraph(promise, large=True),
        _html.tiles(tiles),
    ]
    if guess is not None:
        words = sentence(guess)
        body += [_html.heading("In other words"), _html.bar(guess, words, tick=0.5), _html.paragraph(words)]
    for heading, names in SECTIONS:
        below = [(name, _html.text(f"{said}.")) for name, said in told if name in names]
        body += [_html.heading(heading), _html.facts(sorted(below, key=lambda each: names.index(each[0])))]
    body += [_html.heading("What this card cannot show"), _html.points((*unchecked, ACCURACY))]
    return _html.page("What this model promises", body)
