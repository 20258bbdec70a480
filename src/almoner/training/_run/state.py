"""The state of a training run: one frozen value, replaced at each change, and what a folder keeps of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from almoner import mechanisms
from almoner.mechanisms import Gaussian, Mechanism

__all__ = ["CurrentState", "TrainingState"]

History = dict[str, Any]

PLAIN = ("step", "reason", "max_grad_norm", "noise_multiplier", "sample_rate", "seeded", "own_samples", "called")
"""The fields that a folder keeps as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Where a run stands. Every field is public.

    Module and optimizer are saved beside it. The generator of the noise is not saved: a resumed run draws fresh noise.
    """

    max_grad_norm: float
    noise_multiplier: float
    sample_rate: float | None = None
    seeded: bool = False
    step: int = 0
    reason: str | None = None
    released: MappingProxyType[Mechanism, int] = field(default_factory=lambda: MappingProxyType({}))
    answers: tuple[tuple[int, str, float], ...] = ()
    history: History = field(default_factory=dict)  # notes that callbacks keep; public, and theirs to change
    own_samples: bool = False  # true if bounds have followed people's own sampled gradients
    called: int = 0  # number of callbacks that have seen this step: a resumed run goes on with the next one

    def to_fields(self) -> dict[str, Any]:
        """Names and plain values, for a folder."""
        return {name: getattr(self, name) for name in PLAIN} | {
            "answers": list(self.answers),
            "history": self.history,
            "released": [[mechanisms.to_fields(mechanism), times] for mechanism, times in self.released.items()],
        }

    def with_release(self, mechanism: Mechanism) -> "TrainingState":
        """The state after one more release, for which people have been charged."""
        more = {mechanism: self.released.get(mechanism, 0) + 1}
        return replace(self, released=MappingProxyType(self.released | more))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "TrainingState":
        released = {mechanisms.from_fields(described): times for described, times in fields["released"]}
        return cls(
            **{name: fields[name] for name in PLAIN},
            history=fields["history"],
            answers=tuple((step, name, answer) for step, name, answer in fields["answers"]),
            released=MappingProxyType(released),
        )


class CurrentState:
    """The one place of a run where its state is replaced by the next."""

    def __init__(self, state: TrainingState) -> None:
        self.value = state

    @classmethod
    def of_step(cls, step: Gaussian) -> Self:
        return cls(TrainingState(max_grad_norm=step.sensitivity, noise_multiplier=step.sigma / step.sensitivity))

    def update(self, **changes: Any) -> None:
        self.value = replace(self.value, **changes)

    def add_release(self, mechanism: Mechanism) -> None:
        self.value = self.value.with_release(mechanism)
