"""An accountant for Opacus that holds a filter, an odometer, or a plan that was fixed."""

import logging
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NoReturn

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
    "adaptive clipping also releases how many gradients were below the clip, which one person changes by 1 and Opacus "
    "prices as 1/2, and divides by the private size of the batch: use clipping='flat'"
)
CALIBRATE = (
    "the budget has its epsilon: find the noise with accounting.calibrate.sigma(budget, steps, sample_rate=...), and "
    "give it to make_private as noise_multiplier"
)


class Accountant(Uncopyable, IAccountant):  # type: ignore[misc]
    """An accountant that is charged before each step, and stops the step that does not fit.

    ``PrivacyEngine`` has one. For an engine that is Opacus's own set ``engine.accountant``, or
    ``register_accountant("filter", functools.partial(Accountant, budget))``; that one may shuffle, which nobody sees.

    Args:
        held: public. A filter that takes sampled Gaussian rounds (Planned, Residue, Renyi, RenyiOrder, RenyiCurve); or
            an odometer, ``odometers.Renyi``, which has no budget: look at epsilon after any step, and stop when you
            like; or ``mechanisms.Repeated``, a plan: noise, rate and number of steps are fixed in advance.

    ``BudgetExceeded`` leaves ``optimizer.step()`` before a parameter has changed, and the noisy gradients are removed.

    Guarantee: with a filter all steps that were taken, whenever training stops, keep its promise; with an odometer, for
        every stopping time T and every event E, P(E) <= E_Q[exp(get_epsilon at T) 1_E] + delta for neighbours P and Q.
        Noise and rate may be chosen anew for each step from past outputs. With a plan that was fixed without looking at
        results, all of its steps are together (get_epsilon(delta), delta)-DP. It assumes Poisson samples, and one
        record for each person where the gradients are Opacus's.
    Source: the theorem of the filter; theory 2.6, 6.1, 6.3, 7.1, 7.2.
    """

    def __init__(self, held: filters.Filter | odometers.Odometer | mechanisms.Repeated) -> None:
        if not isinstance(held, filters.Filter | odometers.Odometer | mechanisms.Repeated):
            raise ArgumentError(f"held={held!r} must be a filter, an odometer, or mechanisms.Repeated(step, steps)")
        self.held: Any = held
        self._history: list[tuple[float, float, int]] = []

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """(noise multiplier, sample rate, how many steps), in order. Public."""
        return list(self._history)

    @history.setter
    def history(self, _: object) -> NoReturn:
        raise Unsupported(CALIBRATE)

    def admits(self, step: mechanisms.Mechanism) -> bool:
        """True if one more step like this fits; an odometer always admits what it can price. Changes nothing."""
        if isinstance(self.held, filters.Filter):
            return bool(self.held.admits(step))
        if isinstance(self.held, odometers.Odometer):
            self.held.check(step)
            return True
        if step != self.held.mechanism:
            raise ArgumentError(f"step={step!r} is not the plan's: {self.held.mechanism!r} was fixed in advance")
        return len(self) < int(self.held.count)

    def refuse(self, step: mechanisms.Mechanism) -> None:
        """Raise where one more step cannot be counted, or does not fit; nothing is charged."""
        if not self.admits(step):
            what = f"{step!r} does not fit any more"
            if isinstance(self.held, mechanisms.Repeated):
                what = f"all {self.held.count} steps that were fixed in advance are done"
            raise BudgetExceeded(what, asked=None, spent=None, left=None)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Charge one step, or raise BudgetExceeded before anything is spent."""
        step = mechanisms.gaussian_step(noise_multiplier, 1.0, sample_rate)
        if isinstance(self.held, mechanisms.Repeated):
            self.refuse(step)
        else:
            self.held.charge(step)
        same = bool(self._history) and self._history[-1][:2] == (noise_multiplier, sample_rate)
        count = self._history.pop()[2] + 1 if same else 1
        self._history.append((noise_multiplier, sample_rate, count))

    def get_epsilon(self, delta: float, *_args: object, one_more: bool = False, **_kwargs: object) -> float:
        """The epsilon at delta: of a filter all that it promises, of an odometer its bound now, of a plan the whole's.

        It is 0 before a filter or an odometer was charged. ``one_more``: an odometer's bound after one more step like
        the last one, to stop before a target is exceeded.

        Guarantee: that of the class. A filter's and a plan's do not grow with steps: a running total would hold for
            fixed steps alone.
        Source: that of the class; theory 3.2, 3.3, 6.2.
        """
        _check.between(0, 1, delta=delta)
        if isinstance(self.held, mechanisms.Repeated):
            return tightest(self.held, delta=delta).epsilon
        if one_more and not self._history:
            raise ArgumentError("one_more=True needs a step that was taken: one more like it is counted")
        if not self.held.count:
            return 0.0
        if isinstance(self.held, filters.Filter):
            return self.held.epsilon(delta=delta)
        after = mechanisms.gaussian_step(self._history[-1][0], 1.0, self._history[-1][1]) if one_more else None
        return float(self.held.ex_post_epsilon(delta=delta, after=after))

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self._history)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """The function that an engine of Opacus's own calls after adding noise, before each step: it charges."""

        def charge(optimizer: DPOptimizer) -> None:
            try:
                if optimizer.accumulated_iterations != 1:
                    raise Unsupported(SEVERAL)
                if isinstance(optimizer, AdaClipDPOptimizer):
                    raise Unsupported(f"clipping: {ADAPTIVE}")
                self.step(noise_multiplier=float(optimizer.noise_multiplier), sample_rate=rate(sample_rate))
            except BaseException:
                for p in optimizer.params:  # a noisy sum that was not paid for must not be readable
                    p.grad = p.summed_grad = p.grad_sample = None
                raise

        return charge

    @classmethod
    def mechanism(cls) -> str:
        """The name to register the accountant under."""
        return "filter"

    def _state(self) -> dict[str, Any]:
        plan = isinstance(self.held, mechanisms.Repeated)
        return mechanisms.to_fields(self.held) if plan else dict(self.held.state())

    def state_dict(self, destination: MutableMapping[str, Any] | None = None) -> MutableMapping[str, Any]:
        """Opacus's state, and under "held" that of the filter or the odometer, or the plan."""
        state: MutableMapping[str, Any] = super().state_dict(destination)
        state["held"] = self._state()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any] | None) -> None:
        """Charge the steps of a checkpoint to this account, which must be as it was before them.

        Steps taken since it was written are not in it, but their models may be known: charge them with ``step``.

        Guarantee: as much is charged as when the checkpoint was written, or an error is raised.
        Source: theory 1.2.
        """
        if not state_dict or "held" not in state_dict:
            raise ArgumentError("state_dict must be the state of an almoner.interop.opacus.Accountant")
        then = state_dict["held"]
        if _fixed(then) != _fixed(self._state()):
            raise ArgumentError(f"state_dict belongs to another budget, odometer or plan than {self.held!r}")
        for noise_multiplier, sample_rate, steps in state_dict["history"]:
            for _ in range(steps):
                self.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
        if not isinstance(self.held, mechanisms.Repeated) and self.held.count < then["count"]:
            raise ArgumentError("state_dict: what it holds was charged for something else too; charge that first")


def rate(sample_rate: float) -> float:
    """The probability with which Opacus's float32 draw falls below the sample rate, rounded up."""
    return min(1.0, float(sample_rate) + COINS)


def steps_that_fit(budget: filters.Filter, step: mechanisms.Mechanism, batches: int) -> int:
    """Number of steps that a budget admits, at most an epoch; less than an epoch is logged as a warning."""
    if budget.admits(mechanisms.Repeated(step, batches)):
        return batches
    steps = calibrate.steps(budget, step)
    LOG.warning("only %d steps of %r fit into %r: less than an epoch of %d", steps, step, budget, batches)
    return steps


def _fixed(state: Mapping[str, Any]) -> dict[str, Any]:
    """The kind and the parameters, or a plan; the first charge may set the share for failures, files have no tuples."""
    kind = {"kind": state.get("filter", state.get("odometer"))}
    fixed = {name: value for name, value in state.get("parameters", state).items() if name != "sum_delta"}
    return kind | {name: list(value) if isinstance(value, tuple) else value for name, value in fixed.items()}
