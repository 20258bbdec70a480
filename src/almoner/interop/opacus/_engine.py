"""An engine of Opacus that keeps to a budget, counts with an odometer, or holds training to a plan; its accountants.

An accountant is a filter, an odometer, or a plan that was fixed; each is asked before every step.
"""

import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar, NoReturn, cast

import opacus
from opacus.accountants.accountant import IAccountant
from opacus.data_loader import CollateFnWithEmpty
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader

from almoner import _check, filters, mechanisms, odometers
from almoner._uncopyable import Uncopyable
from almoner.accounting import calibrate
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported

LOG = logging.getLogger("almoner.interop.opacus")

COINS = 2.0**-23  # a float32 draw falls below q with probability at most q + COINS
SHUFFLED = "data_loader: {}: only Poisson samples have a price, so make_private needs poisson_sampling=True"
RAND_ON_EMPTY = (
    "data_loader: rand_on_empty=True puts an invented record into empty batches only, so that adding one person "
    "changes the sum by up to twice the clip: use rand_on_empty=False"
)
ADAPTIVE = (
    "clipping: adaptive clipping also releases how many gradients were below the clip, which one person changes by 1 "
    "and Opacus prices as 1/2, and divides by the private size of the batch: use clipping='flat' or 'per_layer'"
)
CALIBRATE = (
    "the budget has its epsilon: find the noise with accounting.calibrate.sigma(budget, steps, sample_rate=...), and "
    "give it to make_private as noise_multiplier"
)

Steps = tuple[float, float, int]  # noise multiplier, sample rate, how many


class Runs:
    """The steps of all processes that an account knows of, so that checkpoints and files merge without loss. Public.

    A *run* holds the steps of one process, in order, and only ever grows: the longer of two copies is right. So an old
    checkpoint takes nothing back, and nothing counts twice.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._runs: dict[str, list[Steps]] = {}

    def add(self, noise_multiplier: float, sample_rate: float, *, run: str | None = None) -> None:
        """Add one step to a run; by default to this process's own. A forked process has another one."""
        own = self._names.setdefault(os.getpid(), secrets.token_hex(8))
        _append(self._runs.setdefault(run or own, []), noise_multiplier, sample_rate)

    def state(self) -> dict[str, list[Steps]]:
        return {name: list(steps) for name, steps in self._runs.items()}

    def missing(self, state: Mapping[str, Sequence[Sequence[float]]]) -> list[tuple[str, float, float]]:
        """The steps of a state that are not known here: their run, noise multiplier and sample rate, in order."""
        found = []
        for name, steps in state.items():
            known, there = list(_each(self._runs.get(name, []))), list(_each(steps))
            both = min(len(known), len(there))
            if known[:both] != there[:both]:
                raise ArgumentError(f"state: its run {name!r} has other steps than the run of that name here")
            found += [(name, *step) for step in there[both:]]
        return found


class StepAccountant(Uncopyable, IAccountant):  # type: ignore[misc]
    """An Opacus accountant that charges each step after the noise was added and before a parameter changes."""

    _NAME: ClassVar[str]  # the name to register the accountant under
    _HELD: ClassVar[str]  # the name of what it holds, in checkpoints

    def __init__(self, held: filters.Filter | odometers.Odometer | mechanisms.Repeated) -> None:
        self._account: Any = held
        self._history: list[tuple[float, float, int]] = []
        self._runs = Runs()

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

    def step(self, *, noise_multiplier: float, sample_rate: float, run: str | None = None) -> None:
        """Charge one step that a run took (None: of this process), or raise BudgetExceeded before anything is spent."""
        self._charge(mechanisms.gaussian_step(noise_multiplier, 1.0, sample_rate))
        self._runs.add(noise_multiplier, sample_rate, run=run)
        _append(self._history, noise_multiplier, sample_rate)

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
            self.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate, run=run)
        if is_fresh:
            self._check_covers(then)

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
            refuse_accumulation(optimizer)
            if isinstance(optimizer, AdaClipDPOptimizer):
                raise Unsupported(ADAPTIVE)
            self._accountant.step(noise_multiplier=float(optimizer.noise_multiplier), sample_rate=self._rate)
        except BaseException:
            forget_gradients(optimizer)
            raise

    def mechanism(self, optimizer: DPOptimizer) -> mechanisms.Mechanism:
        return mechanisms.gaussian_step(float(optimizer.noise_multiplier), 1.0, self._rate)

    def refuse(self, optimizer: DPOptimizer) -> None:
        self._accountant.refuse(self.mechanism(optimizer))


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
        if target is not None:
            if None in target:
                raise ArgumentError("epsilon= and delta= must be given together")
            _check.positive(epsilon=epsilon)
            _check.between(0, 1, delta=delta)
        _check.given(_check.whole, 1, steps=steps)
        _check.given(_check.positive, epochs=epochs)
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

        The logger ``almoner.interop.opacus`` warns of a budget for less than one epoch, with the steps that fit.

        Raises:
            BudgetExceeded: not one step fits. Nothing was spent.
            Unsupported: a budget has no price for loaders without Poisson samples, and for more than a noisy sum.
        """
        if not options.get("poisson_sampling", True):
            raise Unsupported(SHUFFLED.format(f"{type(options.get('data_loader')).__name__} with its own sampler"))
        if options.get("rand_on_empty", False):
            raise Unsupported(RAND_ON_EMPTY)
        if options.get("clipping") == "adaptive":
            raise Unsupported(ADAPTIVE)
        batches = int(1 / (1 / len(options["data_loader"])))  # type: ignore  # as Opacus's sampler counts them: 92 of 93
        self._prepare_accountant(float(options["noise_multiplier"]), batches)  # type: ignore
        return cast(tuple[Any, ...], super().make_private(**options))

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
            why = "training would take no step. Use more noise, a lower rate or a larger budget"
            why = f"{step!r} does not fit once into {budget!r}: {why}; almoner.accounting.calibrate finds the noise"
            raise BudgetExceeded(why, asked=None, spent=budget.spent, left=budget.left)


def rate(sample_rate: float) -> float:
    """The probability with which Opacus's float32 draw falls below the sample rate, rounded up."""
    return min(1.0, float(sample_rate) + COINS)


def refuse_unsampled(loader: Any, said: str) -> None:
    """Refuse batches that are no Poisson samples, in words that have a place for the kinds; and invented records."""
    sampler = getattr(loader, "batch_sampler", None)
    if not isinstance(loader, DataLoader) or type(sampler) is not UniformWithReplacementSampler:
        raise Unsupported(said.format(f"{type(loader).__name__} with {type(sampler).__name__}"))
    if not isinstance(loader.collate_fn, CollateFnWithEmpty) or loader.collate_fn.rand_on_empty:
        raise Unsupported(RAND_ON_EMPTY)


def refuse_accumulation(optimizer: DPOptimizer) -> None:
    if optimizer.accumulated_iterations != 1:
        raise Unsupported("gradients of several Poisson batches in one step have no price here: step after each batch")


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


def _each(steps: Sequence[Sequence[float]]) -> Iterator[tuple[float, float]]:
    for noise_multiplier, sample_rate, count in steps:
        _check.number(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
        _check.whole(1, steps=count)
        yield from [(float(noise_multiplier), float(sample_rate))] * int(count)


def _fixed(state: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, or a plan; the share for failures may be set by the first charge, and files have no tuples."""
    fixed = {name: value for name, value in state.get("parameters", state).items() if name != "sum_delta"}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fixed.items()}
