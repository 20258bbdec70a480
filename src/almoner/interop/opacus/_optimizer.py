"""An optimizer for Opacus that charges and clips each person at that person's own bound, and its data loader.

The loader remembers whose records are in a batch, and splits large batches. What it remembers is private.
"""

from collections import deque
from collections.abc import Iterator
from math import ceil, inf, prod
from typing import Any, NoReturn, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader, Sampler, default_collate

from almoner import _check, filters, mechanisms, odometers
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import Filter
from almoner.individual import Odometer as PersonOdometer
from almoner.interop.opacus import _engine
from almoner.training.books import Bounds, MemoryBook

SPLIT = "BatchMemoryManager splits batches, which individual() does not follow: give it max_physical_batch_size instead"
OWN_PAST = (filters.RenyiOrder, filters.RenyiCurve)  # bounds may follow a person's own past samples: theory 5.6
PIECE = 2**10  # coordinates whose squares are added up in single precision
ROUNDING = 1e-5  # contributions are kept this far below their bounds: far more than float32 products are off


class _Pieces(Sampler[list[int]]):
    """The batches of a sampler, the larger ones in pieces of at most ``size`` rows."""

    def __init__(self, sampler: UniformWithReplacementSampler, size: int | None) -> None:
        self._sampler, self._size = sampler, size
        self.begun = False  # set by a loop of ``Loader``, which alone may draw
        self.drawn: deque[tuple[list[int], bool, bool]] = deque()  # of each piece: rows, and if it is first and last

    def __iter__(self) -> Iterator[list[int]]:
        if not self.begun:
            raise Unsupported(SPLIT)
        self.begun = False
        self.drawn.clear()
        for batch in self._sampler:
            size = self._size or max(1, len(batch))
            starts = range(0, max(1, len(batch)), size)
            for start in starts:
                piece = batch[start : start + size]
                self.drawn.append((piece, start == 0, start == starts[-1]))
                yield piece

    def __len__(self) -> int:
        expected = self._sampler.num_samples * self._sampler.sample_rate
        return cast(int, ceil(len(self._sampler) * max(1.0, expected / (self._size or inf))))


class Loader(DataLoader[Any]):
    """Yields the batches of a DPDataLoader and remembers the rows of the last one. What it remembers is private."""

    def __init__(self, loader: DPDataLoader, max_physical_batch_size: int | None) -> None:
        names = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator")
        more = ("prefetch_factor", "persistent_workers", "collate_fn")
        super().__init__(
            loader.dataset,
            batch_sampler=_Pieces(loader.batch_sampler, max_physical_batch_size),
            **{name: getattr(loader, name) for name in names + more},
        )
        self._sampler = loader.batch_sampler
        self._waiting: tuple[NDArray[np.int64], bool, bool] | None = None
        self._unfinished = False
        self._loop: object = None

    @property
    def sample_rate(self) -> float:
        return float(self._sampler.sample_rate)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self._waiting, self._unfinished = None, False
        self._loop = loop = object()
        pieces: Any = self.batch_sampler
        pieces.begun = True
        for batch in super().__iter__():
            if self._loop is not loop:
                raise ArgumentError("another loop over the loader was begun: the rest of this one is not paid for")
            if self._waiting is not None:
                raise ArgumentError("a batch was drawn without a step: every batch needs its step, empty ones too")
            rows, *ends = pieces.drawn.popleft()
            self._waiting = (np.asarray(rows, dtype=np.int64), *ends)
            yield batch

    @property
    def waiting(self) -> bool:
        """True if a batch, or a piece of one, was drawn that had no step yet. Public."""
        return self._unfinished or self._waiting is not None

    def take(self) -> tuple[NDArray[np.int64], bool, bool]:
        """The rows of the piece that was drawn last, and whether it is its batch's first and last; once. Private."""
        if self._waiting is None:
            raise ArgumentError("no batch was drawn for this step from the loader that individual() returned")
        taken, self._waiting = self._waiting, None
        self._unfinished = not taken[2]
        return taken


def individual(
    optimizer: DPOptimizer,
    data_loader: DPDataLoader,
    people: Filter,
    *,
    slack: float = 1.1,
    collate_keeps_order: bool = False,
    max_physical_batch_size: int | None = None,
    watch: odometers.Odometer | None = None,
) -> tuple["IndividualOptimizer", DataLoader[Any]]:
    """Charge each person's account for that person's clipping bound.

    Args:
        optimizer: public. The DPOptimizer from ``PrivacyEngine.make_private``: flat clipping, one process, not ghost.
        data_loader: private. The DPDataLoader from the same call: Poisson samples, each record a person.
        people: private. As many accounts as the data set has records, in their order.
        slack: public, > 0. A bound is this many times the person's norm when last sampled.
        collate_keeps_order: public. Whether your own ``collate_fn`` keeps every record, in the given order.
        max_physical_batch_size: public. The loader splits larger batches into pieces of so many records, for memory;
            the optimizer steps after the last piece. The number of pieces is private: a scheduler must not count them.
        watch: public. A fresh odometer: each person's running bound, read at ``optimizer.odometer``.

    Returns:
        The optimizer and the loader to use from here on, in place of the arguments.

    Where a person whose gradients are always clipped can pay for less than an epoch, the logger
    ``almoner.interop.opacus`` gets a warning with the number of steps.

    Gradients must come in the loader's order: a loop that sorts, mixes or drops records of a batch before the backward
    pass charges the wrong people, undetected. Empty accounts are not reported: stop after a fixed number of steps.

    Guarantee: each person is charged at every step, sampled or not, for a bound that is fixed before that person is
        sampled for the step, from the person's own data and past and from past outputs; a contribution has at most that
        norm, and nothing if the person cannot pay. So the parameters after every step keep the promise of the budget.
    Source: theory 5.1, 5.2, 5.6.
    """
    _check.positive(slack=slack)
    _check.given(_check.whole, 1, max_physical_batch_size=max_physical_batch_size)
    if type(optimizer) is not DPOptimizer:
        kind = type(optimizer).__name__
        raise Unsupported(f"optimizer: {kind} is not a plain DPOptimizer, as make_private gives it (flat, no ghost)")
    _engine.refuse_unsampled(data_loader, _engine.SHUFFLED)
    if not collate_keeps_order and data_loader.collate_fn.wrapped_collator_fn is not default_collate:
        raise Unsupported("data_loader: its collate_fn may sort or drop records: if not, say collate_keeps_order=True")
    if not isinstance(getattr(people, "budget", None), filters.Filter):
        raise ArgumentError("people must be accounts per person: individual.Filter(len(data_set), budget)")
    sampler = data_loader.batch_sampler
    if not len(people.spent()) == len(data_loader.dataset) == sampler.num_samples:
        raise ArgumentError("people must have one account for each record of the data set")
    step = mechanisms.gaussian_step(optimizer.noise_multiplier, 1.0, _engine.rate(sampler.sample_rate))
    _engine.steps_that_fit(people.budget, step, len(data_loader))  # for a person who is always clipped
    loader = Loader(data_loader, max_physical_batch_size)
    count = len(people.spent())
    book = MemoryBook(people, people=count, observers=[] if watch is None else [Bounds(watch, count)])
    book.check(step)
    return IndividualOptimizer(optimizer, loader, book, slack), loader


class IndividualOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus's optimizer with a clipping bound for each person in place of one clip. ``individual`` makes it."""

    def __init__(self, optimizer: DPOptimizer, loader: Loader, book: MemoryBook, slack: float) -> None:
        if any(p.dtype not in (torch.float32, torch.float64) for p in optimizer.params):
            raise Unsupported("optimizer: parameters must be float32 or float64, for sums that keep to their bounds")
        names = ("noise_multiplier", "max_grad_norm", "expected_batch_size", "loss_reduction")
        same = {name: getattr(optimizer, name) for name in (*names, "generator", "secure_mode")}
        super().__init__(optimizer.original_optimizer, **same)
        self.step_hook, optimizer.step_hook = optimizer.step_hook, _refuse_replaced
        self._loader, self._slack, self._book = loader, slack, book
        self._own_past = isinstance(book.accounts.budget, OWN_PAST) and not book.observers
        self._bounds = np.full(len(book.accounts.spent()), inf)
        self._paid = np.zeros(len(self._bounds))
        self._sigma: float | None = None

    @property
    def odometer(self) -> PersonOdometer:
        """Everybody's running bound. PRIVATE: for the data holder."""
        odometer: PersonOdometer | None = self._book.odometer()
        if odometer is None:
            raise ArgumentError("odometer: this optimizer was made without watch=")
        return odometer

    @property
    def bounds(self) -> NDArray[np.float64]:
        """(n,) PRIVATE: the norm that each person's next contribution is clipped to, and charged for."""
        return np.asarray(np.minimum(self._bounds, self.max_grad_norm))

    def assign(self, norms: ArrayLike) -> None:
        """Set the bounds, between two steps, from a pass over all people at the present parameters.

        Args:
            norms: (n,) private. Each person's gradient norm, a function of that person's data and past outputs alone;
                NaN: the person is out until the next bound.
        """
        new = np.asarray(norms, dtype=np.float64)
        if new.shape != self._bounds.shape:
            raise ArgumentError("norms must have shape (n,), with one entry for each person")
        if self._loader.waiting:
            raise ArgumentError("assign: bounds are fixed before a batch is drawn, and one is waiting for its step")
        self._bounds = new * self._slack

    def clip_and_accumulate(self) -> None:
        """Charge each person at a batch's first piece, then sum the contributions of those who paid."""
        if self._step_skip_queue:
            raise Unsupported(SPLIT)
        _engine.refuse_accumulation(self)
        for p in self.params:
            _check_processed_flag(p.grad_sample)
        gradients = self.grad_samples
        rows, first, last = self._loader.take()
        self._sigma = None if first else self._sigma
        if len(rows) != len(gradients[0]):
            raise ArgumentError("the gradients are not those of the batch that the loader gave last")
        if first:
            self._begin()
        if self._sigma != self.noise_multiplier * self.max_grad_norm:
            raise ArgumentError("the batch was not paid for: its first piece was refused, or noise or clip changed")
        norms = _norms(gradients)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.minimum(1.0, self._paid[rows] * (1 - ROUNDING) / norms)
        weights[~np.isfinite(norms)] = 0.0  # a gradient that is no number contributes nothing
        _sum_up(self.params, gradients, np.nan_to_num(weights))
        if self._own_past:
            seen = np.isfinite(norms)
            self._bounds[rows[seen]] = norms[seen] * self._slack
        self.signal_skip_step(not last)

    def _begin(self) -> None:
        """Charge each person for a batch, at the noise that its last piece must have."""
        if any(p.summed_grad is not None for p in self.params) and not self._is_last_step_skipped:
            raise ArgumentError("optimizer: call zero_grad() between two steps")
        for p in self.params:
            p.summed_grad = None  # a batch whose pieces were not all drawn: paid for, not released
        bounds = self.bounds
        sigma = self.noise_multiplier * self.max_grad_norm
        step = mechanisms.gaussian_step(sigma, self.max_grad_norm, _engine.rate(self._loader.sample_rate))
        if isinstance(self.step_hook, _engine.Hook):
            self.step_hook.refuse(self)
        opened = self._book.open(step)
        active = np.asarray(opened.charge(step, bounds))
        self._book.record(step, opened)  # before the noise of the last piece is shown
        self._paid, self._sigma = np.where(active, bounds, 0.0), sigma


def _refuse_replaced(optimizer: DPOptimizer) -> NoReturn:
    _engine.forget_gradients(optimizer)
    raise ArgumentError("optimizer: this one charges nobody any more; use the one that individual() returned")


def _norms(gradients: list[torch.Tensor]) -> NDArray[np.float64]:
    """(batch,) the L2 norm of each record's gradient over all parameters."""
    squares = torch.zeros(len(gradients[0]), dtype=torch.float64)
    for gradient in gradients:
        flat = gradient.detach().reshape(len(gradient), prod(gradient.shape[1:]))
        flat = flat if flat.dtype == torch.float64 else flat.float()
        even = flat.shape[1] // PIECE * PIECE
        pieces = flat[:, :even].reshape(len(flat), even // PIECE, PIECE).norm(dim=2) if even else flat[:, :0]
        rest = flat[:, even:].norm(dim=1)
        squares += ((pieces.double() ** 2).sum(1) + rest.double() ** 2).cpu()
    return np.asarray(squares.sqrt().numpy())


def _sum_up(parameters: list[Any], gradients: list[torch.Tensor], weights: NDArray[np.float64]) -> None:
    used = np.flatnonzero(weights)
    for p, gradient in zip(parameters, gradients, strict=True):
        chosen = gradient if len(used) == len(weights) else gradient[torch.from_numpy(used).to(gradient.device)]
        factors = torch.from_numpy(weights[used]).to(gradient.device, p.dtype)
        # no product of matrices: that would be rounded more coarsely where TF32 or autocast allow it
        total = (chosen.to(p.dtype) * factors.reshape(-1, *(1,) * (chosen.dim() - 1))).sum(0)
        p.summed_grad = total if p.summed_grad is None else p.summed_grad + total
        _mark_as_processed(p.grad_sample)
