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
from almoner.interop.opacus._accountant import ADAPTIVE, Accountant, rate, steps_that_fit
from almoner.interop.opacus._optimizer import Loader, PrivateModule, PrivateOptimizer

USUAL = {  # options of Opacus that have one value here, and the reason
    "poisson_sampling": (True, "only Poisson samples have a price: the loader is sampled here"),
    "rand_on_empty": (False, "an invented record in empty batches alone is changed by one person, by twice the clip"),
    "batch_first": (True, "the output must have the records on its first axis"),
    "clipping": ("flat", ADAPTIVE),
}


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

    Guarantee: that of ``Accountant``, where the loss is a mean or a sum over records of each one's own output.
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
        self._target, self._steps, self._epochs = target, steps, epochs
        self.why = ""  # the reason why the filter was recommended, if it was
        self.accountant: Accountant | None = None if budget is None else Accountant(budget)

    @property
    def _is_free(self) -> bool:
        return self.accountant is None and self._target is None and self._steps is None and self._epochs is None

    def get_epsilon(self, delta: float) -> float:
        """The accountant's epsilon; 0 before ``make_private`` has chosen one.

        Guarantee: that of the accountant.
        Source: that of the accountant.
        """
        if self._is_free:
            raise ArgumentError("this engine has no budget; accounts of individual have: people.budget.epsilon(delta=)")
        return 0.0 if self.accountant is None else float(self.accountant.get_epsilon(delta))

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

        Raises:
            BudgetExceeded: not one step fits. Nothing was spent.
            Unsupported: a budget has no price for samples that are not Poisson's, and for more than a noisy sum.
        """
        options.pop("grad_sample_mode", None)  # there is one way
        for name in (*USUAL, *options):
            usual, why = USUAL.get(name, (None, "it has no meaning here: leave it out"))
            if options.get(name, usual) != usual:
                raise Unsupported(f"{name}={options[name]!r}: {why}")
        own = getattr(criterion, "reduction", "none")
        if own not in ("none", loss_reduction):
            raise ArgumentError(f"criterion has reduction={own!r}: then give loss_reduction={own!r}")
        if own == "mean" and hasattr(criterion, "ignore_index") and criterion.weight is not None:
            raise Unsupported("criterion: a mean by weights depends on others' labels: reduction='none', then .mean()")
        _check.noise(noise_multiplier=noise_multiplier)
        _check.positive(max_grad_norm=max_grad_norm)
        loader, private = Loader(data_loader, people), PrivateModule(module)
        self._prepare_accountant(float(noise_multiplier), len(loader))
        how = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm, "loss_reduction": loss_reduction}
        made = PrivateOptimizer(optimizer, private, loader, self.accountant, generator=noise_generator, **how)
        return (private, made, *(() if criterion is None else (criterion,)), loader)

    def make_private_with_epsilon(
        self, *, data_loader: DataLoader[Any], target_epsilon: float, target_delta: float, epochs: float, **options: Any
    ) -> tuple[Any, ...]:
        """``make_private`` with the least noise for so many epochs, which are fixed in advance; without another budget.

        Guarantee: the parameters after all steps, and after any one before, are together (target_epsilon,
            target_delta)-DP; ``get_epsilon(target_delta)`` is at most the target.
        Source: theory 7.1, 7.2 and 2.6.
        """
        if not self._is_free:
            raise ArgumentError(
                "this engine has a budget or a plan: PrivacyEngine().make_private_with_epsilon(...), or "
                "make_private(..., noise_multiplier=)"
            )
        _check.positive(epochs=epochs)
        batches = len(data_loader)
        steps = ceil(Fraction(str(epochs)) * batches)
        asked = {"epsilon": target_epsilon, "delta": target_delta, "steps": steps, "sample_rate": rate(1 / batches)}
        noise = calibrate.in_advance(**asked).noise_multiplier  # type: ignore[arg-type]
        if noise is None:
            raise CalibrationFailed(f"target_epsilon={target_epsilon!r}: {steps} steps do not fit with any noise")
        self._steps = steps
        return self.make_private(data_loader=data_loader, noise_multiplier=noise, **options)

    def _prepare_accountant(self, noise_multiplier: float, batches: int) -> None:
        """Choose the accountant, once noise and rate are known, and compare an epoch with its budget."""
        if self._is_free:
            return
        step = mechanisms.gaussian_step(noise_multiplier, 1.0, rate(1 / batches))
        if self.accountant is None and self._target is not None:
            epsilon, delta = self._target
            chosen = filters.recommend(epsilon=epsilon, delta=delta, plan=step)  # type: ignore[arg-type]
            self.accountant, self.why = Accountant(chosen.budget), chosen.why
        elif self.accountant is None:
            steps = self._steps or ceil(Fraction(str(self._epochs)) * batches)
            self.accountant = Accountant(mechanisms.Repeated(step, steps))
        budget = self.accountant.held
        if not isinstance(budget, filters.Filter):
            self.accountant.admits(step)  # refuses another plan's, and what has no price
        elif not steps_that_fit(budget, step, batches):
            why = "training would take no step. Use more noise, a lower rate or a larger budget"
            why = f"{step!r} does not fit once into {budget!r}: {why}; almoner.accounting.calibrate finds the noise"
            raise BudgetExceeded(why, asked=None, spent=budget.spent, left=budget.left)
