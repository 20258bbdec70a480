"""The engine of Opacus, answered by Almoner: which accountant, how much noise, and the parts of the loop."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import opacus
import torch
from torch import nn
from torch.utils.data import DataLoader

from almoner import _check, filters, mechanisms, odometers
from almoner.accounting import calibrate
from almoner.errors import ArgumentError, BudgetExceeded, CalibrationFailed, Unsupported
from almoner.interop.opacus._accountants import (
    ADAPTIVE,
    Accountant,
    FixedAccountant,
    OdometerAccountant,
    StepAccountant,
    rate,
    steps_that_fit,
)
from almoner.interop.opacus._optimizer import Loader, PrivateModule, PrivateOptimizer

USUAL = {
    "poisson_sampling": (True, "only Poisson samples have a price: the loader is sampled here"),
    "rand_on_empty": (False, "an invented record in empty batches alone is changed by one person, by twice the clip"),
    "batch_first": (True, "the output must have the records on its first axis"),
    "clipping": ("flat", ADAPTIVE),
    "wrap_model": (True, "the model that is returned is the one to call"),
}
"""Options of Opacus that have one value here, and the reason."""


class PrivacyEngine(opacus.PrivacyEngine):  # type: ignore[misc]
    """Opacus's engine, with Almoner's gradients, noise and accounts. Give one of: a budget, epsilon and delta, steps.

    Args:
        budget: public. A filter that takes sampled Gaussian rounds, or an odometer, which has no budget.
        epsilon, delta: public. The filter is then what ``filters.recommend`` says for the noise and the rate of the
            first ``make_private``; ``why`` is its reason.
        steps, epochs: public. A run that is fixed in advance: the noise, rate and number of steps of ``make_private``
            are kept, and ``get_epsilon`` is the certified epsilon of the whole run.

    With none of them, ``make_private_with_epsilon`` has the budget, or ``individual`` accounts for each person.
    ``make_private`` may be called several times: all trainings then share the budget, the odometer or the steps.

    Guarantee: that of ``Accountant``, ``OdometerAccountant`` or ``FixedAccountant``, for a loss that is a mean or a sum
        over records, each of that record's own output.
    Source: theory 4.1 to 4.4, 4.11, 5.7, 6.1 and 7.2.
    """

    def __init__(
        self,
        budget: filters.Filter | odometers.Odometer | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
    ) -> None:
        target = None if epsilon is None and delta is None else (epsilon, delta)
        if sum(each is not None for each in (budget, target, steps, epochs)) > 1:
            raise ArgumentError("give one of: a budget or odometer; epsilon= and delta=; steps= or epochs=")
        if target is not None:
            if None in target:
                raise ArgumentError("epsilon= and delta= must be given together")
            _check.positive(epsilon=epsilon)
            _check.between(0, 1, delta=delta)
        _check.given(_check.whole, 1, steps=steps)
        _check.given(_check.positive, epochs=epochs)
        super().__init__(accountant="rdp")
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
        """The accountant's epsilon; 0 before ``make_private`` has chosen one; ArgumentError where none was.

        Guarantee: that of the accountant.
        Source: that of the accountant.
        """
        if not hasattr(self, "accountant"):
            raise ArgumentError(
                "this engine has no budget; the accounts of individual have: people.budget.epsilon(delta=)"
            )
        return float(self.accountant.get_epsilon(delta)) if self._is_chosen else 0.0

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        data_loader: DataLoader[Any],
        noise_multiplier: float,
        max_grad_norm: float,
        people: Sequence[Any] | None = None,
        criterion: Any = None,
        loss_reduction: str = "mean",
        noise_generator: torch.Generator | None = None,
        **options: object,
    ) -> tuple[Any, ...]:
        """The model, the optimizer and the loader to use in the place of those that are given.

        Args:
            module, optimizer, noise_multiplier, max_grad_norm, loss_reduction: public, as in Opacus.
            data_loader: private, of a map-style data set. Its batches are not used but for their number: each person is
                in a sample with probability one over it. This number and that of the people are public.
            people: (records,) private: whose each record is; None: each is a person.
            criterion: the loss, which is given back before the loader, as Opacus does where it needs it.
            noise_generator: public. Its noise can be drawn again by whoever knows its seed: NOT private.

        The logger ``almoner.interop.opacus`` warns of a budget for less than one epoch, with the steps that fit.

        Raises:
            BudgetExceeded: not one step fits. Nothing was spent.
            Unsupported: a budget has no price for samples that are not Poisson's, and for more than a noisy sum.
        """
        options.pop("grad_sample_mode", None)  # there is one way
        for name in (*USUAL, *options):
            usual, why = USUAL.get(name, (None, "it has no meaning here: leave it out"))
            if options.get(name, usual) != usual:
                raise Unsupported(f"{name}={options[name]!r}: {why}")
        _check.noise(noise_multiplier=noise_multiplier)
        _check.positive(max_grad_norm=max_grad_norm)
        loader, private = Loader(data_loader, people), PrivateModule(module)
        self._prepare_accountant(float(noise_multiplier), len(loader))
        made = PrivateOptimizer(
            optimizer,
            private,
            loader,
            self.accountant if self._is_chosen else None,
            noise_generator,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            loss_reduction=loss_reduction,
        )
        return (private, made, *(() if criterion is None else (criterion,)), loader)

    def make_private_with_epsilon(
        self, *, data_loader: DataLoader[Any], target_epsilon: float, target_delta: float, epochs: float, **options: Any
    ) -> tuple[Any, ...]:
        """``make_private`` with the least noise for so many epochs, which are fixed in advance; without another budget.

        Guarantee: the parameters after all steps, and after any one before, are together (target_epsilon,
            target_delta)-DP; ``get_epsilon(target_delta)`` is at most the target.
        Source: theory 7.1, 7.2 and 2.6.
        """
        if self._is_chosen or self._target is not None or self._steps is not None or self._epochs is not None:
            raise ArgumentError(
                "this engine has a budget or a plan: PrivacyEngine().make_private_with_epsilon(...), or "
                "make_private(..., noise_multiplier=)"
            )
        _check.positive(epochs=epochs)
        batches = len(data_loader)
        steps = ceil(Fraction(str(epochs)) * batches)
        found = calibrate.in_advance(
            epsilon=target_epsilon, delta=target_delta, steps=steps, sample_rate=rate(1 / batches)
        )
        if found.noise_multiplier is None:
            raise CalibrationFailed(f"target_epsilon={target_epsilon!r}: {steps} steps do not fit with any noise")
        self._steps = steps
        return self.make_private(data_loader=data_loader, noise_multiplier=found.noise_multiplier, **options)

    def _prepare_accountant(self, noise_multiplier: float, batches: int) -> None:
        """Choose the accountant, once noise and rate are known, and compare an epoch with its budget."""
        step = mechanisms.gaussian_step(noise_multiplier, 1.0, rate(1 / batches))
        if not self._is_chosen and self._target is not None:
            epsilon, delta = self._target
            chosen = filters.recommend(epsilon=epsilon, delta=delta, plan=step)  # type: ignore[arg-type]
            self.accountant, self._why = Accountant(chosen.budget), chosen.why
        elif self._steps is None and self._epochs is None and not self._is_chosen:
            self.__dict__.pop("accountant", None)  # Opacus's counts nothing here
            return
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
            why = "training would take no step. Use more noise, a lower rate or a larger budget"
            why = f"{step!r} does not fit once into {budget!r}: {why}; almoner.accounting.calibrate finds the noise"
            raise BudgetExceeded(why, asked=None, spent=budget.spent, left=budget.left)
