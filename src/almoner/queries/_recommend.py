"""Say which budget gives the least noise for a number of questions."""

from dataclasses import dataclass
from math import sqrt

from almoner import _check
from almoner.curves import gaussian, zcdp
from almoner.filters import Basic, Gaussian, Zcdp

__all__ = ["Recommendation", "recommend"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The budget with the least noise, and what each budget gives. Every field is public."""

    budget: Zcdp | Gaussian | Basic
    """Fresh, for one ``Session.open``."""
    standard_errors: dict[str, float]
    """By budget ("Zcdp", "Gaussian", "Basic"): of each answer, in full rows, for people with one row in each group. Of
    Basic alone where delta is 0."""
    why: str

    def __str__(self) -> str:
        return self.why


def recommend(*, epsilon: float, delta: float, questions: int, groups: int = 1) -> Recommendation:
    """The budget that gives each of several equal questions the least noise.

    Args:
        epsilon: what all questions together may cost a person, public, nats, > 0.
        delta: public, in [0, 1); 0 for pure DP.
        questions: how many there will be, public, >= 1.
        groups: how many groups (``by=``) of a question one person may be in, public, >= 1.

    Raises:
        ArgumentError: an argument is out of its range.

    Guarantee: that of the budget, whatever is asked: at most ``questions`` such questions fit, and each budget is
        (epsilon, delta)-DP.
    Source: theory 4.2, 4.3, 4.5.

    >>> print(recommend(epsilon=1.0, delta=1e-5, questions=1))
    Basic, with Laplace noise: standard error 1.41 (Gaussian 3.73, Zcdp 4.05)
    >>> print(recommend(epsilon=1.0, delta=1e-5, questions=100))
    Gaussian: standard error 37.3 (Zcdp 40.5, Basic 141)
    """
    _check.positive(epsilon=epsilon)
    _check.within(0, 1 - 1e-15, delta=delta)
    _check.whole(1, questions=questions, groups=groups)
    errors = {"Basic": sqrt(2) * questions * groups / epsilon}
    if delta:
        errors["Gaussian"] = sqrt(questions * groups) / gaussian.mu(epsilon=epsilon, delta=delta)
        errors["Zcdp"] = sqrt(questions * groups / (2 * zcdp.rho(epsilon=epsilon, delta=delta)))
    best, *others = sorted(errors, key=errors.__getitem__)
    budget: Zcdp | Gaussian | Basic = Basic(epsilon=epsilon)
    if best != "Basic":
        budget = Gaussian(epsilon=epsilon, delta=delta) if best == "Gaussian" else Zcdp(epsilon=epsilon, delta=delta)
    listed = ", ".join(f"{name} {errors[name]:.3g}" for name in others)
    name = "Basic, with Laplace noise" if best == "Basic" else best
    why = f"{name}: standard error {errors[best]:.3g}" + (f" ({listed})" if listed else "")
    return Recommendation(budget, errors, why)
