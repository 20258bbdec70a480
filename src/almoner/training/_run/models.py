"""A PyTorch module as a run trains it: clipped sums of its gradients, noise, and steps of its optimizer.

Of several processes each holds the records and the accounts of its own people and the same module. What is released is
the sum over all people plus one draw of noise, as if one process held all people.

Of a module that FSDP2 has sharded each process has the shards of the sum over all people already. Each draws the noise
of the whole sum from one seed of the first process, and adds the numbers of its own shards: each comes once.

Noise is drawn in double precision and rounded only when it is in the sum. Drawn in single precision it never exceeds
5.8 standard deviations, and its tail consists of few values: an observer of many coordinates sees who is not in the
sum. Nor may it come from PyTorch's generator on a processor, which knows 2^32 seeds: few enough to try them all.
"""

import inspect
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
import torch.distributed as distributed
from numpy.typing import NDArray
from torch import Tensor, nn

from almoner.errors import AlmonerError, ArgumentError
from almoner.training._card import Card
from almoner.training._records import PublicBatches, Records
from almoner.training._run.run import TrainingState
from almoner.training._run.samplings import Clipped, refuse_others
from almoner.training._run.settings import Settings
from almoner.training.correlated._factor import Noise
from almoner.training.gradients import Gradients
from almoner.training.gradients._shards import Shards, is_sharded, kept, local, shard_of

EXPLODED = 1e12  # parameters whose norm is so many times that of the first ones are of no use to anybody

Array = NDArray[np.float64]


class TorchModel:
    """A module with its optimizer, which sees noisy gradients only; both public, and trained in place.

    The gradients of ``public`` records, where there are any, are added to the noisy ones.
    """

    def __init__(
        self,
        gradients: Gradients,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        public: PublicBatches | None,
        seed: int | None,
        secret: int | None = None,
    ) -> None:
        self._gradients, self._module, self._optimizer = gradients, module, optimizer
        gradients.seeds = np.random.default_rng(secret and secret + 2) if seed is None else None  # apart from the noise
        self._public, self._turn = public, 0
        self._largest = EXPLODED * (1.0 + _norm(gradients.parameters))

    def norms(self, records: Records) -> Array:
        return cast(Array, self._gradients.norms(records.inputs, records.targets, people=records.people).numpy())

    def clipped_sum(self, records: Records, clip: Array, most: Array | None) -> Clipped:
        n = len(clip)
        norms, clipped, weights = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n)

        def weigh(rows: Tensor, lengths: Tensor) -> Tensor:
            people, norm = rows.numpy(), lengths.numpy()
            norms[people], own = norm, np.minimum(norm, clip[people])  # NaN stays NaN
            taken = norm > 0 if most is None else (norm > 0) & (own <= most[people])
            weight = np.divide(own, norm, out=np.zeros_like(norm), where=taken)
            clipped[people], weights[people] = own, weight
            return torch.from_numpy(weight)

        sums, _ = self._gradients.sums(records.inputs, records.targets, weigh, people=records.people)
        return Clipped(norms, clipped, weights, sums)

    def of_those(self, records: Records, made: Clipped, active: NDArray[np.bool_]) -> list[Tensor]:  # noqa: ARG002 - one pass made them
        """The sums that were made, as a second pass may draw others; Unsupported where somebody was not admitted."""
        refuse_others(made.weights, active)
        return made.sums

    def step(self, noisy: Sequence[Tensor], divisor: float, rate: float | None = None) -> None:  # noqa: ARG002 - linear models have it
        """One step along the noisy sums over the divisor, and along no gradient that was left in the module."""
        self._gradients.shards.reshard()
        means = [total / divisor for total in noisy]
        if self._public is not None:
            batch, scale = self._public.of_turn(self._turn), self._public.weight / self._public.size
            sums, _ = self._gradients.sums(batch.inputs, batch.targets, lambda _, norms: torch.ones_like(norms))
            means, self._turn = [mean + scale * own for mean, own in zip(means, sums, strict=True)], self._turn + 1
        self._optimizer.zero_grad(set_to_none=True)  # also of frozen parameters
        for parameter, exact in zip(self._gradients.parameters, means, strict=True):
            mean = exact.to(parameter.dtype)
            parameter.grad = mean if type(mean) is type(parameter.data) else local(mean)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def sound(self) -> bool:
        """True if the parameters, which are public, are finite and not far beyond where they began."""
        return _norm(self._gradients.parameters) <= self._largest  # False where it is not a number

    def state(self) -> dict[str, Any]:
        self._gradients.shards.reshard()
        turn = {} if self._public is None else {"turn": self._turn}
        return {"module": kept(self._module.state_dict()), "optimizer": kept(self._optimizer.state_dict())} | turn

    def load(self, state: Mapping[str, Any]) -> None:
        shards = self._gradients.shards
        shards.reshard()
        self._module.load_state_dict(shards.restored(state["module"]))
        self._optimizer.load_state_dict(shards.restored(state["optimizer"]))
        self._turn = state.get("turn", 0)


class OfModule:
    """Facts that the trainers of a module show of it."""

    _module: nn.Module
    _optimizer: Any
    _settings: Settings

    @property
    def module(self) -> nn.Module:
        """The module that is trained, in place."""
        return self._module

    @property
    def noise_multiplier(self) -> float:
        """The noise on a sum, as a multiple of the clip. Public."""
        return self._settings.noise_multiplier

    def _card(self, state: TrainingState, delta: float | None, **others: Any) -> Card:
        others |= {"learning_rate": float(self._optimizer.param_groups[0]["lr"]), "steps": state.step}
        return self._settings.card(delta=delta, released=state.released, reproducible=state.seeded, **others)


def _norm(parameters: Sequence[Tensor]) -> float:
    """The norm of all parameters together; NaN or infinite where one is."""
    norms = [each.detach().double().norm() for each in parameters]
    return float(torch.stack([getattr(each, "full_tensor", each.detach)().cpu() for each in norms]).norm())


def check_optimizer(optimizer: Any, parameters: list[Any]) -> None:
    """Refuse an optimizer that would leave a parameter where it is: its noisy gradients would be paid for in vain."""
    if not callable(getattr(optimizer, "step", None)) or not hasattr(optimizer, "param_groups"):
        raise ArgumentError(f"optimizer={optimizer!r} must be a torch.optim.Optimizer of the module's parameters")
    if type(optimizer).__name__ == "SparseAdam":
        raise ArgumentError("optimizer=SparseAdam takes sparse gradients only, and noise is in every coordinate")
    asked = inspect.signature(optimizer.step).parameters.get("closure")
    if asked is not None and asked.default is inspect.Parameter.empty:
        raise ArgumentError(
            f"optimizer={type(optimizer).__name__} computes the loss again within a step, which nobody has paid for: "
            "use one whose step needs no closure"
        )
    moved = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if missing := sum(id(parameter) not in moved for parameter in parameters):
        raise ArgumentError(
            f"optimizer: {missing} of the module's {len(parameters)} trained parameters are not among those it moves; "
            "make it of module.parameters(), or call requires_grad_(False) on what must stay as it is"
        )


RELATIVE_TOLERANCE = 1e-12

NoiseGenerator = np.random.Generator | torch.Generator | Any
"""Of NumPy or PyTorch, or what gives normal numbers as NumPy's do: ``normal(mean, sigma, size)``."""

T = TypeVar("T")


def noise_generator(device: torch.device, seed: int | None, secret: int | None = None) -> NoiseGenerator:
    """A generator seeded by the system, with 128 bits (63 on other devices than a processor), or reproducible.

    ``secret`` has the bits of the system where several processes draw the same noise.
    """
    if device.type == "cpu":
        return np.random.default_rng(secret if seed is None else [seed, 1])  # apart from the coins of the same seed
    secret = secrets.randbits(63) if secret is None else secret % 2**63
    return torch.Generator(device).manual_seed(secret if seed is None else seed)


class Processes:
    """This process, alone or among the others of a torch.distributed group; None: alone; True: the default group."""

    def __init__(self, group: "distributed.ProcessGroup | Literal[True] | None" = None) -> None:
        if group is not None and not (distributed.is_available() and distributed.is_initialized()):
            raise ArgumentError("group: torch.distributed is not initialised")
        self.single = group is None  # true if this process holds all people
        self.alike = False  # true if all processes have one generator
        self.copies = False  # true if all of them have the same people and records
        self._group = None if group is True else group

    @property
    def first(self) -> bool:
        """True if this process is the one that adds the noise."""
        return self.single or distributed.get_rank(self._group) == 0

    def broadcast_module(self, module: nn.Module) -> None:
        """Set the parameters and buffers in every process to the first process's; shards, only where they are equal."""
        if not self.single:
            with torch.no_grad():
                for tensor in (*module.parameters(), *module.buffers()):
                    if not is_sharded(tensor):
                        distributed.broadcast(tensor, group=self._group, group_src=0)

    @property
    def name(self) -> str:
        """Which of how many processes this is, for what each of them names; nothing where it is alone."""
        if self.single:
            return ""
        return f", process {distributed.get_rank(self._group)} of {distributed.get_world_size(self._group)}"

    def use(self, shards: Shards) -> None:
        """Be the processes of a sharded module, if it is one; refuse one that is sharded over others than these."""
        self.alike, self.copies = bool(shards), shards.split
        if shards.split:
            if not self.single:
                raise ArgumentError("group: leave it out: of a split module all processes have the same people")
            self.single, self._group = False, shards.mesh.get_group()
        if shards and (self.single or shards.ranks != distributed.get_process_group_ranks(self._group)):
            raise ArgumentError(
                f"module: it is sharded over {len(shards.ranks)} processes, which must hold all people: "
                "compute=training.Compute(group=True)"
            )

    def broadcast(self, value: T, source: int = 0) -> T:
        if self.single:
            return value
        box = [value]
        distributed.broadcast_object_list(box, group=self._group, group_src=source)
        return box[0]

    @contextmanager
    def together(self, **settings: object) -> Iterator[None]:
        """Where what is done inside raises in one process, or settings, public, differ, raise in all of them."""
        failed = None
        try:
            yield
        except Exception as error:
            failed = error
        said = f": {failed}" if isinstance(failed, AlmonerError) else ""  # texts of others may quote data
        reason = None if failed is None else type(failed).__name__ + said
        told = self.all_gather((reason, settings))
        if failed is not None:
            raise failed
        for rank, (reason, there) in enumerate(told):
            if reason is not None:
                raise ArgumentError(f"group: process {rank} can't go on, so nobody does: {reason}")
            for name in (each for each in settings | there if there.get(each) != settings.get(each)):
                raise ArgumentError(f"group: {name}={settings.get(name)!r} here, {there.get(name)!r} in process {rank}")

    def refuse_shared(self, ids: Sequence[object]) -> None:
        """Refuse ids of people that are in several processes: each would charge them for a part of what they give."""
        key = self.broadcast(secrets.token_bytes(16))
        own = {blake2b(f"{type(each).__name__} {each!r}".encode(), digest_size=12, key=key).digest() for each in ids}
        if len(set().union(*(told := self.all_gather(own)))) < sum(map(len, told)):
            raise ArgumentError("group: a person has records in two processes: give all of them to one")

    def all_gather(self, value: T) -> list[T]:
        """Every process's value, in every process; the first process's is the first."""
        if self.single:
            return [value]
        values: list[Any] = [None] * distributed.get_world_size(self._group)
        distributed.all_gather_object(values, value, group=self._group)
        return values

    def noisy_total(self, sums: Sequence[Tensor], sigma: float, generator: NoiseGenerator) -> list[Tensor]:
        """The sums over all processes plus ONE draw of Gaussian noise, of the first process's generator; public.

        Raises ArgumentError, in every process, where not all of them charged their people for this sigma.

        Guarantee: what is returned, the same in every process, differs from the exact sum of all processes' sums by
            N(0, sigma^2) in each entry.
        Source: theory 2.1 and 5.3 (one draw on the sum).
        """
        if self.alike and any(map(is_sharded, sums)):
            return self._noisy_shards(sums, sigma, generator)
        flat = torch.cat([part.reshape(-1).double() for part in sums])
        flat = torch.zeros_like(flat) if self.copies and not self.first else flat  # the first's is of all people
        if self.first or self.alike or isinstance(generator, Noise):  # what others draw keeps them in step
            flat += _normal(len(flat), flat.device, sigma, generator) * self.first
        if not self.single:
            flat = self._reduced(flat, sigma)
        pieces = torch.split(flat, [part.numel() for part in sums])
        return [piece.view(part.shape).to(part.dtype) for piece, part in zip(pieces, sums, strict=True)]

    def _noisy_shards(self, sums: Sequence[Any], sigma: float, generator: NoiseGenerator) -> list[Any]:
        """Shards of totals plus those of ONE draw of noise, made in every process from one seed, a parameter at a time.

        Guarantee: put together, what all processes return differs from the total by N(0, sigma^2) in each entry.
        Source: theory 2.1 and 5.3.
        """
        self._reduced(torch.zeros(0, dtype=torch.float64, device=sums[0].device), sigma)
        drawn = (_normal(part.numel(), part.device, sigma, generator).view(part.shape) for part in sums)
        return [part + shard_of(each, part) for part, each in zip(sums, drawn, strict=True)]

    def _reduced(self, flat: Tensor, sigma: float) -> Tensor:
        """The sum over all processes, each of which sends its sigma as well."""
        message = torch.cat([flat, flat.new_tensor([sigma, sigma * sigma])])
        distributed.all_reduce(message, group=self._group)
        mean, square = (float(total) / distributed.get_world_size(self._group) for total in message[-2:])
        if not (abs(mean / sigma - 1) < RELATIVE_TOLERANCE and abs(square / (mean * mean) - 1) < RELATIVE_TOLERANCE):
            raise ArgumentError("group: the processes do not agree on the noise of this step; nothing was released")
        return message[:-2]


def _normal(size: int, device: torch.device, sigma: float, generator: NoiseGenerator) -> Tensor:
    if isinstance(generator, torch.Generator):
        drawn = torch.empty(size, dtype=torch.float64, device=generator.device)
        return drawn.normal_(0.0, sigma, generator=generator).to(device)
    return torch.from_numpy(generator.normal(0.0, sigma, size)).to(device)
