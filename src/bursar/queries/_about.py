"""What the intervals of an answer are about, in words."""

from bursar.queries._question import Question

__all__ = ["about_in_words"]


def about_in_words(question: Question, *, everybody: bool, covered: bool) -> str:
    """A sentence on what the intervals cover, and what they rest on.

    Args:
        question: what was asked.
        everybody: whether every person could certainly pay for it.
        covered: whether there are truth intervals.
    """
    if covered:
        declared = [
            *([f"at_most={question.at_most:g}"] if question.at_most is not None else []),
            *(["bounds_hold=True"] if getattr(question, "bounds_hold", False) else []),
        ]
        rests = f", if what was declared is right ({', '.join(declared)})" if declared else ""
        return f"truth_intervals cover {question.estimand} for all people in the data{rests}."
    reasons = []
    if not question.nobody_is_clipped:
        lacking = " (declare at_most= to have it bounded)" if question.at_most is None and question.reported() else ""
        reasons.append(f"each person's contribution is clipped to {question.clip:g} full rows{lacking}")
    if getattr(question, "bounds_hold", True) is False:
        reasons.append("entries are clipped to [low, high] (declare bounds_hold=True where that changes none)")
    if not everybody:
        reasons.append("people whose budget is spent may be missing")
    if not reasons:
        return "intervals are about the noise; for this kind of question, or this noise, nothing more can be said."
    return f"intervals are about the clipped quantity: {'; '.join(reasons)}."
