"""An engine of Opacus that keeps to a budget, counts with an odometer, or holds training to a plan."""

from fractions import Fraction
from math import ceil
from typing import Any, NoReturn

import opacus

from almoner import _check, filters, mechanisms, odometers
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.interop.opacus._accounts import (
    CALIBRATE,
    Accountant,
    FixedAccountant,
    OdometerAccountant,
    StepAccountant,
)
from almoner.interop.opacus._rules import ADAPTIVE, RAND_ON_EMPTY, SHUFFLED, rate, steps_that_fit

__all__ = ["PrivacyEngine"]


class PrivacyEngine(opacus.PrivacyEngine):  # type: ignore[misc]
    """Opacus's engine with an accountant of Almoner. Give one of: a budget, epsilon and delta, an odometer, or steps.

    Args:
        budget: public. A filter that takes sampled Gaussian rounds, or an odometer, which has no budget.
        epsilon, delta: public. The filter is then what ``filters.recommend`` says for the noise and the rate of the
            first ``make_private``; ``why`` is its reason.
        steps, epochs: public. A run that is fixed in advance: the noise, rate and number of steps of ``make_private``
            are kept, and ``get_epsilon`` is the certified epsilon of the whole run.
        secure_mode: as in Opacus.

    ``make_private`` may be called several times: all trainings then share the budget, the odometer or the steps.

    Guarantee: that of ``Accountant``, ``OdometerAccountant`` or ``FixedAccountant``.
    Source: theory 4.1 to 4.4, 4.11, 6.1 and 7.2.
    """

    def __init__(
        self,
        budget: filters.Filter | odometers.Odometer | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        secure_mode: bool = False,
    ) -> None:
        target = None if epsilon is None and delta is None else (epsilon, delta)
        if sum(each is not None for each in (budget, target, steps, epochs)) != 1:
            raise ArgumentError("give one of: a budget or odometer; epsilon= and delta=; steps= or epochs=")
        if target is not None and None in target:
            raise ArgumentError("epsilon= and delta= must be given together")
        if target is not None:
            _check.positive(epsilon=epsilon)
            _check.between(0, 1, delta=delta)
        if steps is not None:
            _check.whole(1, steps=steps)
        if epochs is not None:
            _check.positive(epochs=epochs)
        super().__init__(accountant="rdp", secure_mode=secure_mode)
        self._target, self._steps, self._epochs, self._why = target, steps, epochs, ""
        self._is_chosen = budget is not None
        if isinstance(budget, odometers.Odometer):
            self.accountant: StepAccountant = OdometerAccountant(budget)
        elif budget is not None:
            self.accountant = Accountant(budget)

    @property
    def why(self) -> str:
        """Why the filter was recommended; empty where the caller gave one, and before ``make_private``. Public."""
        return self._why

    def get_epsilon(self, delta: float) -> float:
        """The accountant's epsilon; 0 before ``make_private`` has chosen one.

        Guarantee: that of the accountant.
        Source: that of the accountant.
        """
        return float(self.accountant.get_epsilon(delta)) if self._is_chosen else 0.0

    def make_private(self, **options: object) -> tuple[Any, ...]:
        """As in Opacus, except that shuffled loaders, ``rand_on_empty=True`` and adaptive clipping are refused.

        A budget that fits less than one epoch is reported to the logger ``almoner.interop.opacus``, as a warning with
        the number of steps that fit.

        Raises:
            BudgetExceeded: not one step fits. Nothing was spent.
            Unsupported: the loader would not be a Poisson sampler, or a step would release more than a noisy sum: the
                budget has no price for that.
        """
        if not options.get("poisson_sampling", True):
            raise Unsupported(SHUFFLED.format(f"{type(options.get('data_loader')).__name__} with its own sampler"))
        if options.get("rand_on_empty", False):
            raise Unsupported(RAND_ON_EMPTY)
        if options.get("clipping") == "adaptive":
            raise Unsupported(ADAPTIVE)
        batches = int(1 / (1 / len(options["data_loader"])))  # type: ignore  # as Opacus's sampler counts them: 92 of 93
        self._prepare_accountant(float(options["noise_multiplier"]), batches)  # type: ignore
        made: tuple[Any, ...] = super().make_private(**options)
        return made

    def make_private_with_epsilon(self, **_: object) -> NoReturn:
        """Refused: the budget has its epsilon already. Find the noise with ``almoner.accounting.calibrate``."""
        raise Unsupported(CALIBRATE)

    def _prepare_accountant(self, noise_multiplier: float, batches: int) -> None:
        """Choose the accountant, once noise and rate are known, and compare an epoch with its budget."""
        step = mechanisms.gaussian_step(noise_multiplier, 1.0, rate(1 / batches))
        if not self._is_chosen and self._target is not None:
            epsilon, delta = self._target
            chosen = filters.recommend(epsilon=epsilon, delta=delta, plan=step)  # type: ignore[arg-type]
            self.accountant, self._why = Accountant(chosen.budget), chosen.why
        elif not self._is_chosen:
            steps = self._steps or ceil(Fraction(str(self._epochs)) * batches)
            self.accountant = FixedAccountant(noise_multiplier=noise_multiplier, sample_rate=1 / batches, steps=steps)
        self._is_chosen = True
        if isinstance(self.accountant, FixedAccountant):
            self.accountant.check(step)
        elif isinstance(self.accountant, OdometerAccountant):
            self.accountant.refuse(step)
        elif isinstance(self.accountant, Accountant) and not steps_that_fit(self.accountant.budget, step, batches):
            budget = self.accountant.budget
            raise BudgetExceeded(
                f"{step!r} does not fit once into {budget!r}: training would take no step. Use more noise, a lower "
                "rate or a larger budget; almoner.accounting.calibrate finds the noise",
                asked=None,
                spent=budget.spent,
                left=budget.left,
            )
