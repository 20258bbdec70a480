"""Opacus accountants of Almoner: a filter, an odometer, or a plan that was fixed; each is asked before every step."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, ClassVar, NoReturn

from opacus.accountants.accountant import IAccountant
from opacus.optimizers import DPOptimizer

from almoner import _check, filters, mechanisms, odometers
from almoner._uncopyable import Uncopyable
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.interop.opacus._rules import forget_gradients, rate, refuse_accumulation, refuse_adaptive
from almoner.interop.opacus._runs import Runs

__all__ = ["CALIBRATE", "Accountant", "FixedAccountant", "Hook", "OdometerAccountant", "StepAccountant"]

CALIBRATE = (
    "the budget has its epsilon: find the noise with accounting.calibrate.sigma(budget, steps, sample_rate=...), and "
    "give it to make_private as noise_multiplier"
)


class StepAccountant(Uncopyable, IAccountant):  # type: ignore[misc]
    """An Opacus accountant that charges each step after the noise was added and before a parameter changes."""

    _NAME: ClassVar[str]
    """The name to register the accountant under."""
    _HELD: ClassVar[str]
    """The name of what it holds, in checkpoints."""

    def __init__(self) -> None:
        self._history: list[tuple[float, float, int]] = []
        self._runs = Runs()

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """(noise multiplier, sample rate, how many steps), in order. Public."""
        return list(self._history)

    @history.setter
    def history(self, _: object) -> NoReturn:
        raise Unsupported(CALIBRATE)

    @abstractmethod
    def _charge(self, step: mechanisms.Mechanism) -> None:
        """Charge one step, or raise before anything is spent."""

    @abstractmethod
    def admits(self, step: mechanisms.Mechanism) -> bool:
        """True if one more step like this fits. Asking changes nothing."""

    def refuse(self, step: mechanisms.Mechanism) -> None:
        """Raise where one more step cannot be counted, or does not fit; nothing is charged."""
        if not self.admits(step):
            raise BudgetExceeded(f"{step!r} does not fit any more", asked=None, spent=None, left=None)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Charge one step.

        Raises:
            BudgetExceeded: it does not fit. Nothing was spent.
        """
        self._take(noise_multiplier, sample_rate, run=None)

    def _take(self, noise_multiplier: float, sample_rate: float, *, run: str | None) -> None:
        """Charge one step that a run took; None is the run of this process."""
        self._charge(mechanisms.gaussian_step(noise_multiplier, 1.0, sample_rate))
        self._runs.add(noise_multiplier, sample_rate, run=run)
        steps = 1
        if self._history and self._history[-1][:2] == (noise_multiplier, sample_rate):
            steps += self._history.pop()[2]
        self._history.append((noise_multiplier, sample_rate, steps))

    def merged_state(self) -> dict[str, Any]:
        """This account, and the steps of each process that it knows of, for ``merge``."""
        return {"account": dict(self.state_dict()), "runs": self._runs.state()}

    def unknown(self, state: Mapping[str, Any]) -> int:
        """Number of steps of a state that ``merge`` would charge."""
        _check.saved(state, "account", "runs")
        return len(self._runs.missing(state["runs"]))

    def merge(self, state: Mapping[str, Any]) -> None:
        """Charge the steps of a state that are not charged here yet.

        Args:
            state: public, what ``merged_state()`` gave, in this process or another.

        Raises:
            ArgumentError: it is the state of another budget, odometer or plan. Nothing was spent.
            BudgetExceeded: the steps, which were taken, do not all fit any more.

        Guarantee: every step of the state, and every one that was charged here, is charged exactly once.
        Source: theory 1.2.
        """
        _check.saved(state, "account", "runs")
        is_fresh = not len(self)
        then = self.check_state(state["account"])
        for run, noise_multiplier, sample_rate in self._runs.missing(state["runs"]):
            self._take(noise_multiplier, sample_rate, run=run)
        if is_fresh:
            self._check_covers(then)

    @abstractmethod
    def _check_covers(self, then: Mapping[str, Any]) -> None:
        """Refuse a state that has more spent than this account, which was charged with all of the state's steps."""

    def __len__(self) -> int:
        """The number of steps that were charged."""
        return sum(steps for _, _, steps in self._history)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """The function that Opacus calls after adding noise and before each step: it charges the step."""
        return Hook(self, rate(sample_rate))

    @classmethod
    def mechanism(cls) -> str:
        """The name to register the accountant under."""
        return cls._NAME

    @abstractmethod
    def _held(self) -> dict[str, Any]:
        """The budget, odometer or plan, for checkpoints."""

    def state_dict(self, destination: MutableMapping[str, Any] | None = None) -> MutableMapping[str, Any]:
        """Opacus's state; and the state of the filter under "filter", of the odometer under "odometer", or "plan"."""
        state: MutableMapping[str, Any] = super().state_dict(destination)
        state[self._HELD] = self._held()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any] | None) -> None:
        """Charge the steps of a checkpoint to this account, which must be as it was before them.

        Steps taken since the checkpoint was written are not in it, but their models may be known: charge them with
        ``step``.

        Guarantee: a budget has at least as much spent, and an odometer's bound is at least as large, as when the
            checkpoint was written; of a plan no more steps are taken than were fixed in advance, those since the
            checkpoint not counted.
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
        self._check_same(state_dict[self._HELD])
        return state_dict

    @abstractmethod
    def _check_same(self, held: Mapping[str, Any]) -> None:
        """Refuse the budget, odometer or plan of a checkpoint that is another one."""


class Hook:
    """The function that Opacus calls after adding noise and before each step."""

    def __init__(self, accountant: StepAccountant, sample_rate: float) -> None:
        self._accountant, self._rate = accountant, sample_rate

    def __call__(self, optimizer: DPOptimizer) -> None:
        """Charge the step, or raise before a parameter changes."""
        try:
            refuse_accumulation(optimizer)
            refuse_adaptive(optimizer)
            self._accountant.step(noise_multiplier=float(optimizer.noise_multiplier), sample_rate=self._rate)
        except BaseException:
            forget_gradients(optimizer)
            raise

    def refuse(self, optimizer: DPOptimizer) -> None:
        """Raise where the step cannot be charged; nothing is."""
        self._accountant.refuse(mechanisms.gaussian_step(float(optimizer.noise_multiplier), 1.0, self._rate))


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
        super().__init__()
        self._budget = budget

    @property
    def budget(self) -> filters.Filter:
        """The filter that is charged. Public."""
        return self._budget

    def _charge(self, step: mechanisms.Mechanism) -> None:
        self._budget.charge(step)

    def admits(self, step: mechanisms.Mechanism) -> bool:
        """True if the budget admits one more step like this."""
        return self._budget.admits(step)

    def get_epsilon(self, delta: float, *_args: object, **_kwargs: object) -> float:
        """The epsilon that the budget promises at delta, whenever training stops; 0 before anything was charged.

        It does not grow with the steps: a running total would hold only for a number of steps fixed in advance. What
        was spent is ``accountant.budget.spent``.

        Guarantee: what was released so far, and all that the budget will admit, is (epsilon, delta)-DP.
        Source: the theorem of the budget's filter; theory 3.2, 3.3, 6.2.
        """
        _check.between(0, 1, delta=delta)
        return self._budget.epsilon(delta=delta) if self._budget.count else 0.0

    def _held(self) -> dict[str, Any]:
        return self._budget.state()

    def _check_same(self, held: Mapping[str, Any]) -> None:
        now = self._budget.state()
        if held["filter"] != now["filter"] or _fixed(held) != _fixed(now):
            raise ArgumentError(f"state_dict belongs to another budget than {self._budget!r}")

    def _check_covers(self, then: Mapping[str, Any]) -> None:
        spent = zip(self._budget.state()["spent"], then["filter"]["spent"], strict=True)
        if any(here < there for here, there in spent):
            raise ArgumentError("state_dict: the budget was charged for something else too; charge that first")


class OdometerAccountant(StepAccountant):
    """An Opacus accountant without a budget: train on, look at epsilon after any step, and stop when you like.

    Args:
        odometer: public. An odometer that takes sampled Gaussian rounds: ``odometers.Renyi``, with the expected run as
            its ``plan`` where there is one.

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
        super().__init__()
        self._odometer = odometer

    @property
    def odometer(self) -> odometers.Odometer:
        """The odometer that counts the steps. Public."""
        return self._odometer

    def _charge(self, step: mechanisms.Mechanism) -> None:
        self._odometer.charge(step)

    def admits(self, step: mechanisms.Mechanism) -> bool:
        """True: an odometer has no budget.

        Raises:
            Unsupported: the odometer has no price for the step.
        """
        self._odometer.check(step)
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
        if not self._odometer.count:
            return 0.0
        step = mechanisms.gaussian_step(self._history[-1][0], 1.0, self._history[-1][1]) if one_more else None
        return self._odometer.ex_post_epsilon(delta=delta, after=step)

    def _held(self) -> dict[str, Any]:
        return self._odometer.state()

    def _check_same(self, held: Mapping[str, Any]) -> None:
        now = self._odometer.state()
        if held["odometer"] != now["odometer"] or _fixed(held) != _fixed(now):
            raise ArgumentError(f"state_dict belongs to another odometer than {self._odometer!r}")

    def _check_covers(self, then: Mapping[str, Any]) -> None:
        if self._odometer.count < then["odometer"]["count"]:
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
        super().__init__()
        self._step = mechanisms.gaussian_step(noise_multiplier, 1.0, rate(sample_rate))
        self._steps = steps

    @property
    def plan(self) -> mechanisms.Repeated:
        """The run that was fixed in advance. Public."""
        return mechanisms.Repeated(self._step, self._steps)

    def check(self, step: mechanisms.Mechanism) -> None:
        """Refuse a step that is not the plan's."""
        if step != self._step:
            raise ArgumentError(f"step={step!r} is not the plan's: {self._step!r} was fixed in advance")

    def admits(self, step: mechanisms.Mechanism) -> bool:
        """True if the plan has one more step like this."""
        return step == self._step and len(self) < self._steps

    def _charge(self, step: mechanisms.Mechanism) -> None:
        self.check(step)
        if len(self) >= self._steps:
            raise BudgetExceeded(
                f"all {self._steps} steps that were fixed in advance are done", asked=1, spent=len(self), left=0
            )

    def get_epsilon(self, delta: float, *_args: object, **_kwargs: object) -> float:
        """The epsilon of the whole plan at delta, whatever part of it was run.

        The number of the steps so far would not be private if results decided when to stop.

        Guarantee: that of the class.
        Source: theory 7.1, 7.2.
        """
        _check.between(0, 1, delta=delta)
        return tightest(self.plan, delta=delta).epsilon

    def _held(self) -> dict[str, Any]:
        return mechanisms.to_fields(self.plan)

    def _check_same(self, held: Mapping[str, Any]) -> None:
        if held != mechanisms.to_fields(self.plan):
            raise ArgumentError(f"state_dict belongs to another plan than {self.plan!r}")

    def _check_covers(self, then: Mapping[str, Any]) -> None:
        """A plan counts nothing but its steps."""


def _fixed(state: Mapping[str, Any]) -> dict[str, Any]:
    """A budget's parameters; the share for failures may be set by the first charge, and files have no tuples."""
    fixed = {name: value for name, value in state["parameters"].items() if name != "sum_delta"}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fixed.items()}
