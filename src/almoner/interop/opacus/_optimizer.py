"""A module, an optimizer and a loader that a loop of Opacus uses as its own, with Almoner's gradients and noise.

The loader samples people and remembers whose records a batch has. In training the module keeps what it was called with
and gives its output without a graph behind it; so the loss's backward pass ends at the output, with one row g of its
gradient for each record. The optimizer computes from the same inputs each person's gradient of <output, g>, which is
that of the loss by the chain rule, whatever the loss is. What is remembered is private. Dropout's coins are tossed anew
in that pass: it takes records in chunks, so equal coins would depend on who else is in the batch.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, default_collate

from almoner import _check, filters, mechanisms
from almoner._uncopyable import OwnProcess
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import Filter
from almoner.interop.opacus._accountant import Accountant, rate, steps_that_fit
from almoner.training import MemoryBook
from almoner.training.gradients import Gradients

SPLIT = "BatchMemoryManager is not needed here: gradients are made in chunks that fit memory; leave it out"
ONCE = (
    "model: it was called before in this step: a step is one call with the batch of the loader, loss.backward() and "
    "optimizer.step(); other calls are free under torch.no_grad() or model.eval()"
)
OWN_PAST = (filters.RenyiOrder, filters.RenyiCurve)  # bounds may follow a person's own past samples: theory 5.6


class Drawn(NamedTuple):
    """A sample: the people by number, and of each record of the batch which of them it is of. Private."""

    people: NDArray[np.int64]
    whose: NDArray[np.int64]


class _Samples(Sampler[list[int]]):
    """Samples of people with all of their records: each with probability one over the number of samples."""

    def __init__(self, people: NDArray[np.int64], batches: int) -> None:
        self.whose, self.count, self.batches = people, int(people.max(initial=-1)) + 1, batches
        self.drawn: deque[Drawn] | None = None  # of a loop of ``Loader`` that begins, which alone may draw
        self._coins = np.random.default_rng()

    def __iter__(self) -> Iterator[list[int]]:
        drawn, self.drawn = self.drawn, None
        if drawn is None:
            raise Unsupported(SPLIT)
        for _ in range(self.batches):
            people = np.flatnonzero(self._coins.random(self.count) < 1 / self.batches)
            rows = np.flatnonzero(np.isin(self.whose, people))
            drawn.append(Drawn(people, np.searchsorted(people, self.whose[rows])))
            yield rows.tolist()

    def __len__(self) -> int:
        return self.batches


class Loader(DataLoader[Any]):
    """Yields Poisson samples of people as batches, empty ones too, and remembers whose they are, privately."""

    def __init__(self, loader: DataLoader[Any], people: Sequence[Any] | None) -> None:
        records = len(loader.dataset)  # type: ignore[arg-type]
        numbers = np.arange(records) if people is None else np.unique(np.asarray(people), return_inverse=True)[1]
        if numbers.shape != (records,):
            raise ArgumentError("people must say whose each record of the data set is, in their order")
        names = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
        self.samples, self.waiting = _Samples(numbers, len(loader)), cast(Drawn | None, None)
        kept = {name: getattr(loader, name) for name in (*names, "persistent_workers")}
        collate = DPDataLoader.from_data_loader(loader).collate_fn
        super().__init__(loader.dataset, batch_sampler=self.samples, collate_fn=collate, **kept)
        self.rate = 1 / self.samples.batches  # the probability with which each person is in a batch

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.waiting = None
        self.samples.drawn = drawn = deque[Drawn]()
        for batch in super().__iter__():
            if self.waiting is not None:
                raise ArgumentError("a batch was drawn without a step: every batch needs its step, empty ones too")
            self.waiting = drawn.popleft()
            yield batch

    def take(self) -> Drawn:
        """The people of the batch that was drawn last, once; until then it is ``waiting``. Private."""
        if self.waiting is None:
            raise ArgumentError("no batch was drawn for this step from the loader that make_private returned")
        taken, self.waiting = self.waiting, None
        return taken


class PrivateModule(nn.Module):
    """A module that is called as before. What it gives in training brings each record's gradient to the optimizer."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module
        self._call: tuple[Any, Tensor] | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_module"), name)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call the module; in training, keep what it was called with."""
        if not (self.training and torch.is_grad_enabled()):
            return self._module(*inputs, **named)
        if self._call is not None:
            raise Unsupported(ONCE)
        with torch.no_grad():
            output = self._module(*inputs, **named)
        if not isinstance(output, Tensor) or (inputs and named):
            raise Unsupported("model: it must give one tensor, of inputs in order or by name: use training.Trainer")
        output = output.detach().requires_grad_()
        self._call = (named or list(inputs), output)
        return output

    def take(self) -> tuple[Any, Tensor]:
        """The inputs and the output of the last call in training, once. Private."""
        call, self._call = self._call, None
        if call is None or call[1].grad is None:
            raise ArgumentError("step: call the model with the batch that the loader gave, and loss.backward(), before")
        return call


def _along(output: Tensor, gradient: Tensor) -> Tensor:
    """(records,) numbers whose gradients are those of the losses."""
    return (output * gradient).reshape(len(output), -1).sum(1)


class PrivateOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus's optimizer with Almoner's sums and noise; ``make_private`` makes it, ``individual`` gives it accounts."""

    def __init__(
        self, optimizer: Any, module: PrivateModule, loader: Loader, accountant: Accountant | None, **options: Any
    ) -> None:
        super().__init__(optimizer, expected_batch_size=loader.samples.count * loader.rate, **options)
        self._module, self.loader, self._accountant = module, loader, accountant
        self._gradients = Gradients(module._module, _along)
        if callable(optimizer):
            raise Unsupported(f"optimizer={type(optimizer).__name__} wants to know its run: it is for training.Trainer")
        moved = {id(each) for each in self.params}
        if not all(id(each) in moved for each in self._gradients.parameters):
            raise ArgumentError("optimizer: it must move all parameters of the module that require a gradient")
        self._noise, self._process = np.random.default_rng(), OwnProcess()
        self.book: MemoryBook | None = None  # accounts per person; private
        self.slack = 1.0
        self._bounds = np.full(loader.samples.count, inf)

    @property
    def bounds(self) -> NDArray[np.float64]:
        """(n,) PRIVATE: the norm that each person's next contribution is clipped to, and charged for."""
        return np.asarray(np.minimum(self._bounds, self.max_grad_norm))

    def pre_step(self, closure: Any = None) -> bool:  # noqa: ARG002 - Opacus gives it
        """Have everybody pay, and put the noisy sum of those who did in the place of the gradients."""
        self._process.check("this optimizer")
        if self._step_skip_queue:
            raise Unsupported(SPLIT)
        self.original_optimizer.zero_grad(set_to_none=True)
        inputs, output = self._module.take()
        drawn = self.loader.take()
        gradient = torch.as_tensor(output.grad) * (len(output) if self.loss_reduction == "mean" else 1)
        if len(output) != len(drawn.whose):
            raise ArgumentError("the gradients are not those of the batch that the loader gave last")
        if len(output) and not self._gradients.ready(len(output)):
            self._gradients.prepare(inputs, gradient)
        if gradient.element_size() < 4 or self._gradients.half:  # the loss was computed over a batch of any size
            raise Unsupported("module: it computes in half precision: module.float(), no autocast, or training.Trainer")
        paid = self._charge()[drawn.people]
        each = np.array_equal(drawn.whose, np.arange(len(drawn.people)))  # a record in the place of its person
        whose = None if each else torch.from_numpy(drawn.whose)
        sums, norms = self._gradients.sums(inputs, gradient, lambda rows, norms: _weights(norms, paid[rows]), whose)
        if self.book is not None and isinstance(self.book.accounts.budget, OWN_PAST):
            seen = torch.isfinite(norms).numpy()
            self._bounds[drawn.people[seen]] = norms[seen].numpy() * self.slack
        divisor = self.expected_batch_size if self.loss_reduction == "mean" else 1.0
        for parameter, total in zip(self._gradients.parameters, sums, strict=True):
            parameter.grad = (self._noisy(total) / divisor).to(parameter.dtype)
        return True

    def _charge(self) -> NDArray[np.float64]:
        """(n,) the norm that each person has paid for in this step; 0 for those who could not."""
        sampled, bounds, accountant = rate(self.loader.rate), self.bounds, self._accountant
        if accountant is None and self.book is None:
            raise ArgumentError(
                "nobody would be charged: PrivacyEngine(epsilon=, delta=), or almoner.interop.opacus.individual"
            )
        active = np.ones(len(bounds), dtype=bool)
        if self.book is not None:
            if accountant is not None:  # asked before people pay
                accountant.refuse(mechanisms.gaussian_step(float(self.noise_multiplier), 1.0, sampled))
            step = mechanisms.gaussian_step(self.noise_multiplier * self.max_grad_norm, self.max_grad_norm, sampled)
            opened = self.book.open(step)
            active = np.asarray(opened.charge(step, bounds), dtype=bool)
            self.book.record(step, opened)  # before any noise is shown
        if accountant is not None:
            accountant.step(noise_multiplier=float(self.noise_multiplier), sample_rate=sampled)
        return np.where(active & (bounds > 0), bounds, 0.0)

    def _noisy(self, total: Tensor) -> Tensor:
        """A sum with noise, drawn in double precision."""
        sigma = float(self.noise_multiplier * self.max_grad_norm)
        if self.generator is not None:
            noise = torch.empty(total.shape, dtype=torch.float64, device=self.generator.device)
            return total + noise.normal_(0.0, sigma, generator=self.generator).to(total.device)
        return total + torch.from_numpy(self._noise.normal(0.0, sigma, total.shape)).to(total.device)


def _weights(norms: Tensor, paid: NDArray[np.float64]) -> Tensor:
    most = torch.from_numpy(np.atleast_1d(paid))
    return torch.where(norms > 0, torch.minimum(norms, most) / norms, 0.0)


def individual(
    optimizer: PrivateOptimizer,
    data_loader: Loader,
    people: Filter,
    *,
    slack: float = 1.1,
    collate_keeps_order: bool = False,
) -> tuple[PrivateOptimizer, DataLoader[Any]]:
    """Charge each person's account for that person's clipping bound; gives back the optimizer and the loader.

    Args:
        optimizer, data_loader: from one call of ``PrivacyEngine.make_private``.
        people: private. As many accounts as there are people: records, or ids in sorted order where it got ``people=``.
        slack: public, > 0. A bound is this many times the person's norm when last sampled.
        collate_keeps_order: public. Whether your own ``collate_fn`` keeps every record, in the given order.

    A loop that sorts, mixes or drops records of a batch before the backward pass charges the wrong people, undetected.
    Empty accounts are not reported: stop after a fixed number of steps.

    Guarantee: each person is charged at every step, sampled or not, for a bound that is fixed before that person is
        sampled for the step, from the person's own data and past and from past outputs; a contribution has at most that
        norm, and nothing if the person cannot pay. So the parameters after every step keep the promise of the budget.
    Source: theory 5.1, 5.2, 5.6.
    """
    _check.positive(slack=slack)
    if not isinstance(optimizer, PrivateOptimizer) or optimizer.loader is not data_loader:
        raise Unsupported(
            f"optimizer={type(optimizer).__name__}: give the optimizer and the loader that make_private of "
            "almoner.interop.opacus.PrivacyEngine returned"
        )
    if optimizer.book is not None:
        raise ArgumentError("optimizer: it has accounts already")
    if not collate_keeps_order and getattr(data_loader.collate_fn, "wrapped_collator_fn", 0) is not default_collate:
        raise Unsupported("data_loader: its collate_fn may sort or drop records: if not, say collate_keeps_order=True")
    if not isinstance(getattr(people, "budget", None), filters.Filter):
        raise ArgumentError("people must be accounts per person: individual.Filter(len(data_set), budget)")
    if len(people.spent()) != data_loader.samples.count:
        raise ArgumentError("people must have one account for each record of the data set, or for each of people=")
    step = mechanisms.gaussian_step(optimizer.noise_multiplier, 1.0, rate(data_loader.rate))
    steps_that_fit(people.budget, step, len(data_loader))  # for a person who is always clipped
    book = MemoryBook(people, people=data_loader.samples.count)
    book.check(step)
    optimizer.book, optimizer.slack = book, slack
    return optimizer, data_loader
