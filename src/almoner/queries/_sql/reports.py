"""SQL of the parts of each person's contribution that are in the answer, and of what was taken away in the report.

A contribution x of length r that is clipped to f r, with its report of v (1 - f) x, costs as much as a vector of length
r sqrt(f^2 + v^2 (1 - f)^2), in L1 r (f + v (1 - f)). Who cannot pay all of that keeps a smaller share of x in the
answer, and has the rest in the report: nothing is lost while that can be paid for. Below the share at which it is
cheapest, both shrink. See docs/proofs/truth-intervals.md, Lemma 1.
"""

from almoner.queries._questions.question import Question
from almoner.queries._sql.dialects import double

__all__ = ["beyond", "scale_of", "told"]

_ONE = double(1)
_ABOVE = double(1 + 1e-8)  # factor above every rounding of a longer sum


def beyond(factor: str, question: Question) -> str:
    """The length of the report on what a clip takes away from a person, in whole steps, rounded up.

    Args:
        factor: what the contribution is multiplied by to be within the clip.
        question: with a report.
    """
    clip, scale = double(question.clip_steps), double(question.report_scale * (1 + 1e-12))
    length = "square" if question.pure else "sqrt(square)"
    return (
        f"CASE WHEN {factor} < 1 THEN least({double(question.report_steps)}, "
        f"greatest(0, {length} * {_ABOVE} - {clip}) * {scale}) ELSE 0 END"
    )


def scale_of(factor: str, question: Question) -> str:
    """Size in the report of one step that is taken away from a person: less for a person longer than ``at_most``.

    Guarantee: times (1 - factor) times the length of the contribution, it is at most ``beyond``.
    """
    length = "square" if question.pure else "sqrt(square)"
    scale = double(question.report_scale)
    return f"CASE WHEN {factor} < 1 THEN least({scale}, beyond / ((1 - {factor}) * {length})) ELSE {scale} END"


def told(question: Question) -> str:
    """The people who take part; with a report also ``kept``, the share in the answer, and ``told``, that in the report.

    Guarantee: each person's contribution times both costs at most what was paid, as ``factor`` times the contribution
        and its full report would.
    Source: docs/proofs/truth-intervals.md, Lemma 1.
    """
    if not question.report_scale:
        return "{admitted}"
    people = "SELECT *, factor / clipped AS part FROM {admitted}"
    if question.pure:
        turn = f"least({_ONE}, scale)"
        cheapest = f"{turn} * (2 - {turn})"
        cost = "part * (clipped + scale * (1 - clipped))"
        rest, less = "(1 - greatest(cost, cheapest)) / (1 - scale)", "cost / cheapest"
    else:
        turn = cheapest = "scale * scale / (1 + scale * scale)"
        cost = "part * part * (clipped * clipped + scale * scale * (1 - clipped) * (1 - clipped))"
        root = f"greatest({double(0)}, greatest(cost, cheapest) * (1 + scale * scale) - scale * scale)"
        rest, less = f"(1 - sqrt({root})) / (1 + scale * scale)", "sqrt(cost / cheapest)"
    costs = f"SELECT *, {turn} AS turn, {cheapest} AS cheapest, {cost} AS cost FROM ({people})"
    moves = "part < 1 AND clipped > turn"
    shares = (
        f"SELECT *, CASE WHEN {moves} THEN {rest} ELSE 1 - clipped END AS rest, "
        f"CASE WHEN NOT ({moves}) THEN part WHEN cost >= cheapest THEN {_ONE} ELSE {less} END AS less FROM ({costs})"
    )
    kept = f"CASE WHEN {moves} THEN less * (1 - rest) ELSE factor END"
    return f"(SELECT *, {kept} AS kept, less * scale * rest AS told FROM ({shares}))"
