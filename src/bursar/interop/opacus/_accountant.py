"""An Opacus accountant that charges a filter, and an engine that uses it."""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NoReturn

import opacus
from opacus.accountants.accountant import IAccountant
from opacus.optimizers import DPOptimizer

from bursar import _check, filters, mechanisms
from bursar._uncopyable import Uncopyable
from bursar.errors import ArgumentError, Unsupported
from bursar.interop.opacus._rules import (
    ADAPTIVE,
    RAND_ON_EMPTY,
    SHUFFLED,
    forget_gradients,
    rate,
    refuse_accumulation,
    refuse_adaptive,
)

__all__ = ["Accountant", "PrivacyEngine"]

CALIBRATE = (
    "the budget has its epsilon: find the noise with bursar.calibrate.sigma(budget, steps, sample_rate=...), "
    "and give it to make_private as noise_multiplier"
)


class Accountant(Uncopyable, IAccountant):  # type: ignore[misc]
    """An Opacus accountant that charges a filter before each step, and stops the step that does not fit.

    Set ``engine.accountant``, or ``register_accountant("bursar", functools.partial(Accountant, budget))``, or use
    ``PrivacyEngine`` below, which also refuses what an accountant cannot see: shuffled loaders.

    Args:
        budget: public. A filter that takes sampled Gaussian rounds: Renyi, RenyiOrder, RenyiCurve, Residue, ...

    ``BudgetExceeded`` leaves ``optimizer.step()`` before a parameter has changed, and the noisy gradients are removed.

    Guarantee: all steps that were taken, whenever training stops, keep the promise of the budget; noise and rate may be
        chosen anew for each step from past outputs. It assumes Poisson batches and one record for each person.
    Source: the theorem of the budget's filter; theory 2.6.
    """

    def __init__(self, budget: filters.Filter) -> None:
        if not isinstance(budget, filters.Filter):
            raise ArgumentError(f"budget={budget!r} must be a filter")
        self._budget = budget
        self._history: list[tuple[float, float, int]] = []

    @property
    def budget(self) -> filters.Filter:
        """The filter that is charged. Public."""
        return self._budget

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """(noise multiplier, sample rate, how many steps), in order. Public."""
        return list(self._history)

    @history.setter
    def history(self, value: object) -> NoReturn:
        raise Unsupported(CALIBRATE)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Charge one step.

        Raises:
            BudgetExceeded: it does not fit. Nothing was spent.
        """
        self._budget.charge(mechanisms.gaussian_step(noise_multiplier, 1.0, sample_rate))
        steps = 1
        if self._history and self._history[-1][:2] == (noise_multiplier, sample_rate):
            steps += self._history.pop()[2]
        self._history.append((noise_multiplier, sample_rate, steps))

    def get_epsilon(self, delta: float, *args: object, **kwargs: object) -> float:
        """The epsilon that the budget promises at delta, whenever training stops; 0 before anything was charged.

        It does not grow with the steps: a running total would hold only for a number of steps fixed in advance. What
        was spent is ``accountant.budget.spent``.

        Guarantee: what was released so far, and all that the budget will admit, is (epsilon, delta)-DP.
        Source: the theorem of the budget's filter; theory 3.2, 3.3, 6.2.
        """
        _check.between(0, 1, delta=delta)
        return self._budget.epsilon(delta=delta) if self._budget.count else 0.0

    def __len__(self) -> int:
        """The number of steps that were charged."""
        return sum(steps for _, _, steps in self._history)

    @classmethod
    def mechanism(cls) -> str:
        """The name to register the accountant under."""
        return "bursar"

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """The function that Opacus calls after adding noise and before each step: it charges the step."""

        def charge(optimizer: DPOptimizer) -> None:
            try:
                refuse_accumulation(optimizer)
                refuse_adaptive(optimizer)
                self.step(noise_multiplier=float(optimizer.noise_multiplier), sample_rate=rate(sample_rate))
            except BaseException:
                forget_gradients(optimizer)
                raise

        return charge

    def state_dict(self, destination: MutableMapping[str, Any] | None = None) -> MutableMapping[str, Any]:
        """Opacus's state, and the state of the filter under "filter"."""
        state: MutableMapping[str, Any] = super().state_dict(destination)
        state["filter"] = self._budget.state()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any] | None) -> None:
        """Charge the steps of a checkpoint to this accountant's budget, which must be as it was before them.

        Steps taken since the checkpoint was written are not in it, but their models may be known: charge them with
        ``step``.

        Guarantee: the budget has at least as much spent as when the checkpoint was written.
        Source: theory 1.2.
        """
        if not state_dict or state_dict.get("mechanism") != self.mechanism() or "filter" not in state_dict:
            raise ArgumentError("state_dict must be the state of a bursar accountant")
        then, now = state_dict["filter"], self._budget.state()
        if then["filter"] != now["filter"] or _fixed(then) != _fixed(now):
            raise ArgumentError(f"state_dict belongs to another budget than {self._budget!r}")
        for noise_multiplier, sample_rate, steps in state_dict["history"]:
            for _ in range(steps):
                self.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
        if any(here < there for here, there in zip(self._budget.state()["spent"], then["spent"], strict=True)):
            raise ArgumentError("state_dict: the budget was charged for something else too; charge that first")


class PrivacyEngine(opacus.PrivacyEngine):  # type: ignore[misc]
    """Opacus's engine with an ``Accountant`` that charges a filter.

    Args:
        budget: public. A filter that takes sampled Gaussian rounds. ``make_private`` may be called several times: all
            trainings then share the budget.
        secure_mode: as in Opacus.
    """

    def __init__(self, budget: filters.Filter, *, secure_mode: bool = False) -> None:
        super().__init__(accountant="rdp", secure_mode=secure_mode)
        self.accountant = Accountant(budget)

    def make_private(self, **options: object) -> tuple[Any, ...]:
        """As in Opacus, except that shuffled loaders, ``rand_on_empty=True`` and adaptive clipping are refused.

        Raises:
            Unsupported: the loader would not be a Poisson sampler, or a step would release more than a noisy sum: the
                budget has no price for that.
        """
        if not options.get("poisson_sampling", True):
            raise Unsupported(SHUFFLED.format(f"{type(options.get('data_loader')).__name__} with its own sampler"))
        if options.get("rand_on_empty", False):
            raise Unsupported(RAND_ON_EMPTY)
        if options.get("clipping") == "adaptive":
            raise Unsupported(ADAPTIVE)
        made: tuple[Any, ...] = super().make_private(**options)
        return made

    def make_private_with_epsilon(self, **options: object) -> NoReturn:
        """Refused: the budget has its epsilon already. Find the noise with ``bursar.calibrate.sigma``."""
        raise Unsupported(CALIBRATE)


def _fixed(state: dict[str, Any]) -> dict[str, Any]:
    """A budget's parameters; the share for failures may be set by the first charge."""
    return {name: value for name, value in state["parameters"].items() if name != "sum_delta"}
