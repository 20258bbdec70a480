"""What the intervals of an answer are about, in words."""

from almoner.queries._questions.clips import nobody_is_clipped
from almoner.queries._questions.question import Question

__all__ = ["about_in_words", "in_table"]


def in_table(estimand: str, question: Question) -> str:
    """What an answer is about, and in which table where there are several."""
    return estimand if question.table is None else f"{estimand}, in table {question.table}"


def about_in_words(question: Question, *, everybody: bool, least: float, covered: bool) -> str:
    """A sentence on what the intervals cover, and what they rest on.

    Args:
        question: what was asked.
        everybody: whether every person could certainly pay for it in full.
        least: the share of each person's contribution that answer and report certainly hold; see ``least_share``.
        covered: whether there are truth intervals.
    """
    if covered:
        declared = _declared(question)
        rests = f", if what was declared is right ({', '.join(declared)})" if declared else ""
        paced = ""
        if least < 1:
            paced = f" They allow for people with little budget left, who count for at least {least:.2g} of themselves."
        whole = in_table(question.whole_estimand, question)
        return f"truth_intervals cover {whole} for all people in the data{rests}.{paced}"
    reasons = []
    clipped = not nobody_is_clipped(question)
    if clipped:
        lacking = " (declare at_most= to have it bounded)" if question.at_most is None and question.reported() else ""
        reasons.append(f"each person's contribution is clipped to {question.clip:g} full rows{lacking}")
    if getattr(question, "bounds_hold", True) is False and not question.reported():
        other = ", or widest= to have it reported" if hasattr(question, "widest") else ""
        reasons.append(f"entries are clipped to their bounds (declare bounds_hold=True where that changes none{other})")
    if not everybody and not least:
        reasons.append("people whose budget is spent may be missing")
    elif not everybody:
        shrunk = f"people with little budget left may be shrunk, to {least:.2g} of themselves at least"
        known = "" if question.report_scale or not question.reported() else " (report= would tell what that takes away)"
        reasons.append(shrunk + known)
    if not reasons:
        return "intervals are about the noise; for this kind of question, or this noise, nothing more can be said."
    return f"intervals are about the clipped quantity: {'; '.join(reasons)}."


def _declared(question: Question) -> list[str]:
    """What an analyst declared, as it was written."""
    values = {name: getattr(question, name, None) for name in ("at_most", "widest", "bounds_hold")}
    texts = {name: f"{value:g}" if name == "at_most" else str(value) for name, value in values.items() if value}
    return [f"{name}={text}" for name, text in texts.items()]
