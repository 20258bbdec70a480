"""Accountants for Opacus: a filter, an odometer, or a plan that was fixed. Each is asked before every step."""

import logging
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, ClassVar, NoReturn, cast

from opacus.accountants.accountant import IAccountant
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer

from almoner import _check, filters, mechanisms, odometers
from almoner._uncopyable import Uncopyable
from almoner.accounting import calibrate
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported

LOG = logging.getLogger("almoner.interop.opacus")

COINS = 2.0**-23  # a float32 draw falls below q with probability at most q + COINS
SEVERAL = "gradients of several Poisson batches in one step have no price here: step after each batch"
ADAPTIVE = (
    "clipping: adaptive clipping also releases how many gradients were below the clip, which one person changes by 1 "
    "and Opacus prices as 1/2, and divides by the private size of the batch: use clipping='flat' or 'per_layer'"
)
CALIBRATE = (
    "the budget has its epsilon: find the noise with accounting.calibrate.sigma(budget, steps, sample_rate=...), and "
    "give it to make_private as noise_multiplier"
)

Steps = tuple[float, float, int]  # noise multiplier, sample rate, how many


class StepAccountant(Uncopyable, IAccountant):  # type: ignore[misc]
    """An Opacus accountant that charges each step after the noise was added and before a parameter changes."""

    _NAME: ClassVar[str]  # the name to register the accountant under
    _HELD: ClassVar[str]  # the name of what it holds, in checkpoints

    def __init__(self, held: filters.Filter | odometers.Odometer | mechanisms.Repeated) -> None:
        self._account: Any = held
        self._history: list[tuple[float, float, int]] = []

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """(noise multiplier, sample rate, how many steps), in order. Public."""
        return list(self._history)

    @history.setter
    def history(self, _: object) -> NoReturn:
        raise Unsupported(CALIBRATE)

    def _charge(self, step: mechanisms.Mechanism) -> None:
        self._account.charge(step)

    def admits(self, step: mechanisms.Mechanism) -> bool:
        """True if one more step like this fits. Asking changes nothing."""
        return bool(self._account.admits(step))

    def refuse(self, step: mechanisms.Mechanism) -> None:
        """Raise where one more step cannot be counted, or does not fit; nothing is charged."""
        if not self.admits(step):
            raise BudgetExceeded(f"{step!r} does not fit any more", asked=None, spent=None, left=None)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Charge one step, or raise BudgetExceeded before anything is spent."""
        self._charge(mechanisms.gaussian_step(noise_multiplier, 1.0, sample_rate))
        _append(self._history, noise_multiplier, sample_rate)

    def _check_covers(self, then: Mapping[str, Any]) -> None:
        """Refuse a state that has more spent than this account, which was charged with all of the state's steps."""

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self._history)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """The function that Opacus calls after adding noise and before each step: it charges the step."""
        return Hook(self, rate(sample_rate))

    @classmethod
    def mechanism(cls) -> str:
        """The name to register the accountant under."""
        return cls._NAME

    def _held(self) -> dict[str, Any]:
        return dict(self._account.state())

    def state_dict(self, destination: MutableMapping[str, Any] | None = None) -> MutableMapping[str, Any]:
        """Opacus's state; and the state of the filter under "filter", of the odometer under "odometer", or "plan"."""
        state: MutableMapping[str, Any] = super().state_dict(destination)
        state[self._HELD] = self._held()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any] | None) -> None:
        """Charge the steps of a checkpoint to this account, which must be as it was before them.

        Steps taken since it was written are not in it, but their models may be known: charge them with ``step``.

        Guarantee: a budget has at least as much spent, and an odometer's bound is at least as large, as when the
            checkpoint was written; of a plan no more steps are taken than were fixed, but for those since then.
        Source: theory 1.2.
        """
        then = self.check_state(state_dict)
        for noise_multiplier, sample_rate, steps in then["history"]:
            for _ in range(steps):
                self.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
        self._check_covers(then)

    def check_state(self, state_dict: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Refuse what is not the state of an account like this one, with the same promise; return it."""
        if not state_dict or state_dict.get("mechanism") != self.mechanism() or self._HELD not in state_dict:
            raise ArgumentError(f"state_dict must be the state of an accountant {self.mechanism()!r}")
        held, now = state_dict[self._HELD], self._held()
        if held.get(self._HELD) != now.get(self._HELD) or _fixed(held) != _fixed(now):
            what = {"filter": "budget"}.get(self._HELD, self._HELD)
            raise ArgumentError(f"state_dict belongs to another {what} than {self._account!r}")
        return state_dict


class Hook:
    """The function that Opacus calls after adding noise and before each step."""

    def __init__(self, accountant: StepAccountant, sample_rate: float) -> None:
        self._accountant, self._rate = accountant, sample_rate

    def __call__(self, optimizer: DPOptimizer) -> None:
        try:
            if optimizer.accumulated_iterations != 1:
                raise Unsupported(SEVERAL)
            if isinstance(optimizer, AdaClipDPOptimizer):
                raise Unsupported(ADAPTIVE)
            self._accountant.step(noise_multiplier=float(optimizer.noise_multiplier), sample_rate=self._rate)
        except BaseException:
            forget_gradients(optimizer)
            raise


class Accountant(StepAccountant):
    """An Opacus accountant that charges a filter before each step, and stops the step that does not fit.

    Set ``engine.accountant``, or ``register_accountant("filter", functools.partial(Accountant, budget))``, or use
    ``PrivacyEngine``, which also refuses what an accountant cannot see: shuffled loaders.

    Args:
        budget: public. A filter that takes sampled Gaussian rounds: Planned, Residue, Renyi, RenyiOrder, RenyiCurve.

    ``BudgetExceeded`` leaves ``optimizer.step()`` before a parameter has changed, and the noisy gradients are removed.

    Guarantee: all steps that were taken, whenever training stops, keep the promise of the budget; noise and rate may be
        chosen anew for each step from past outputs. It assumes Poisson batches and one record for each person.
    Source: the theorem of the budget's filter; theory 2.6.
    """

    _NAME, _HELD = "filter", "filter"

    def __init__(self, budget: filters.Filter) -> None:
        if not isinstance(budget, filters.Filter):
            raise ArgumentError(f"budget={budget!r} must be a filter")
        super().__init__(budget)

    @property
    def budget(self) -> filters.Filter:
        """The filter that is charged. Public."""
        return cast(filters.Filter, self._account)

    def get_epsilon(self, delta: float, *_args: object, **_kwargs: object) -> float:
        """The epsilon that the budget promises at delta, whenever training stops; 0 before anything was charged.

        It does not grow with steps: a running total holds for fixed steps alone. Spent is ``accountant.budget.spent``.

        Guarantee: what was released so far, and all that the budget will admit, is (epsilon, delta)-DP.
        Source: the theorem of the budget's filter; theory 3.2, 3.3, 6.2.
        """
        _check.between(0, 1, delta=delta)
        return self.budget.epsilon(delta=delta) if self.budget.count else 0.0

    def _check_covers(self, then: Mapping[str, Any]) -> None:
        if any(here < there for here, there in zip(self._held()["spent"], then["filter"]["spent"], strict=True)):
            raise ArgumentError("state_dict: the budget was charged for something else too; charge that first")


class OdometerAccountant(StepAccountant):
    """An Opacus accountant without a budget: train on, look at epsilon after any step, and stop when you like.

    Args:
        odometer: public. One that takes sampled Gaussian rounds: ``odometers.Renyi``, ``plan`` being the expected run.

    Guarantee: noise, rate and the step after which training stops may depend on all results, ``get_epsilon`` included:
        for every stopping time T and every event E, P(E) <= E_Q[exp(get_epsilon at T) 1_E] + delta for neighbours P and
        Q. So "stop before get_epsilon exceeds e" is (e, delta)-DP, for every e at once. It assumes Poisson batches and
        one record for each person.
    Source: theory 6.1, 6.3; theory 2.6.
    """

    _NAME, _HELD = "odometer", "odometer"

    def __init__(self, odometer: odometers.Odometer) -> None:
        if not isinstance(odometer, odometers.Odometer):
            raise ArgumentError(f"odometer={odometer!r} must be an odometer, such as odometers.Renyi(delta=1e-5)")
        super().__init__(odometer)

    @property
    def odometer(self) -> odometers.Odometer:
        """The odometer that counts the steps. Public."""
        return cast(odometers.Odometer, self._account)

    def admits(self, step: mechanisms.Mechanism) -> bool:
        """True: an odometer has no budget.

        Raises:
            Unsupported: the odometer has no price for the step.
        """
        self.odometer.check(step)
        return True

    def get_epsilon(self, delta: float, *_args: object, one_more: bool = False, **_kwargs: object) -> float:
        """The odometer's ex-post bound now; 0 before anything was charged.

        Args:
            delta: chosen without looking at results, in (0, 1).
            one_more: the bound after one more step like the last one, to stop before a target is exceeded.

        Guarantee: that of the class; the number is a result of the run and no parameter of it.
        Source: theory 6.1.
        """
        _check.between(0, 1, delta=delta)
        if one_more and not self._history:
            raise ArgumentError("one_more=True needs a step that was taken: one more like it is counted")
        if not self.odometer.count:
            return 0.0
        step = mechanisms.gaussian_step(self._history[-1][0], 1.0, self._history[-1][1]) if one_more else None
        return self.odometer.ex_post_epsilon(delta=delta, after=step)

    def _check_covers(self, then: Mapping[str, Any]) -> None:
        if self.odometer.count < then["odometer"]["count"]:
            raise ArgumentError("state_dict: the odometer counted something else too; charge that first")


class FixedAccountant(StepAccountant):
    """An Opacus accountant for a run whose noise, rate and number of steps are fixed before it begins.

    Its epsilon is the certified one of privacy loss distributions. It holds every step to the plan.

    Args:
        noise_multiplier, sample_rate: public, of every step. The rate is one over the number of batches of the loader.
        steps: public, how many steps at most.

    Guarantee: if the three numbers were fixed without looking at results, the parameters after all of the steps, and
        after any one before, are together (get_epsilon(delta), delta)-DP for every delta. It assumes Poisson batches
        and one record for each person.
    Source: theory 7.1, 7.2 and 2.6; docs/proofs/losses.md.
    """

    _NAME, _HELD = "fixed-plan", "plan"

    def __init__(self, *, noise_multiplier: float, sample_rate: float, steps: int) -> None:
        _check.whole(1, steps=steps)
        _check.noise(noise_multiplier=noise_multiplier)
        _check.positive(sample_rate=sample_rate)
        _check.within(0, 1, sample_rate=sample_rate)
        super().__init__(mechanisms.Repeated(mechanisms.gaussian_step(noise_multiplier, 1.0, rate(sample_rate)), steps))

    @property
    def plan(self) -> mechanisms.Repeated:
        """The run that was fixed in advance. Public."""
        return cast(mechanisms.Repeated, self._account)

    def check(self, step: mechanisms.Mechanism) -> None:
        """Refuse a step that is not the plan's."""
        if step != self.plan.mechanism:
            raise ArgumentError(f"step={step!r} is not the plan's: {self.plan.mechanism!r} was fixed in advance")

    def admits(self, step: mechanisms.Mechanism) -> bool:
        """True if the plan has one more step like this."""
        return step == self.plan.mechanism and len(self) < self.plan.count

    def _charge(self, step: mechanisms.Mechanism) -> None:
        self.check(step)
        if len(self) >= self.plan.count:
            said = f"all {self.plan.count} steps that were fixed in advance are done"
            raise BudgetExceeded(said, asked=1, spent=len(self), left=0)

    def get_epsilon(self, delta: float, *_args: object, **_kwargs: object) -> float:
        """The epsilon of the whole plan at delta, whatever part of it was run.

        The number of the steps so far would not be private if results decided when to stop.

        Guarantee: that of the class.
        Source: theory 7.1, 7.2.
        """
        return tightest(self.plan, delta=delta).epsilon

    def _held(self) -> dict[str, Any]:
        return mechanisms.to_fields(self.plan)


def rate(sample_rate: float) -> float:
    """The probability with which Opacus's float32 draw falls below the sample rate, rounded up."""
    return min(1.0, float(sample_rate) + COINS)


def forget_gradients(optimizer: DPOptimizer) -> None:
    """Delete all gradients: the noisy sum of a step that was not paid for must not be readable."""
    for p in optimizer.params:
        p.grad = p.summed_grad = p.grad_sample = None


def steps_that_fit(budget: filters.Filter, step: mechanisms.Mechanism, batches: int) -> int:
    """Number of steps that a budget admits, at most an epoch; less than an epoch is logged as a warning."""
    if budget.admits(mechanisms.Repeated(step, batches)):
        return batches
    steps = calibrate.steps(budget, step)
    LOG.warning("only %d steps of %r fit into %r: less than an epoch of %d", steps, step, budget, batches)
    return steps


def _append(steps: list[Steps], noise_multiplier: float, sample_rate: float) -> None:
    count = 1
    if steps and steps[-1][:2] == (noise_multiplier, sample_rate):
        count += steps.pop()[2]
    steps.append((noise_multiplier, sample_rate, count))


def _fixed(state: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, or a plan; the share for failures may be set by the first charge, and files have no tuples."""
    fixed = {name: value for name, value in state.get("parameters", state).items() if name != "sum_delta"}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fixed.items()}
