"""Questions of callbacks during a run, and accounts that count who dropped out: both are paid for in its book."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from almoner.errors import ArgumentError, Unsupported
from almoner.mechanisms import Gaussian
from almoner.training._accounts.counters import rounded
from almoner.training._accounts.stopping_accounts import StoppingAccounts
from almoner.training._records import Records, Values, means_by_person, values_by_record
from almoner.training._run.books import MemoryBook
from almoner.training._run.distributed import Processes
from almoner.training._run.samplings import FullBatch, Poisson, Sampling, Turnout
from almoner.training._run.settings import Settings

__all__ = ["Questions", "put_in_front"]


class Questions:
    """Answers with noise about the records of a run. Private, but for the answers.

    Args:
        module: public.
        records: private.
        book: charged for each question.
        sampling: knows whose gradients were clipped.
    """

    def __init__(self, module: nn.Module, records: Records, book: MemoryBook, sampling: Sampling) -> None:
        self._module, self._records, self._book, self._sampling = module, records, book, sampling

    def noisy_sum(self, name: str, question: Gaussian, values: Values) -> float:
        """The sum over people of their mean values, clamped to [0, 1], plus the noise of ``question``. Public.

        Guarantee: released by a Gaussian mechanism with sensitivity 1, each person charged for their own value.
        Source: theory 2.1, 5.1.
        """
        records = self._records
        numbers = values_by_record(self._module, records.inputs, records.targets, values)
        shares = means_by_person(np.clip(numbers, 0.0, 1.0), records.people, records.person_count)  # NaN stays NaN
        return self._noisy_total(name, question, shares)

    def count_clipped(self, name: str, question: Gaussian) -> float:
        """The number of people whose gradients exceeded the clip in the last step, plus noise. Public."""
        if not isinstance(self._sampling, FullBatch):
            raise ArgumentError("count_clipped needs every person in every step: sampling=FullBatch()")
        if self._sampling.were_clipped is None:
            raise ArgumentError("count_clipped: this process has taken no step yet")
        return self._noisy_total(name, question, self._sampling.were_clipped)

    def _noisy_total(self, name: str, question: Gaussian, shares: NDArray[np.float64]) -> float:
        """The total of what people have, (n,) in [0, 1], plus noise; who cannot pay for their own is left out.

        The answer is kept under this name.
        """

        def contribute(accounts: Any) -> list[Any]:
            active = np.asarray(accounts.charge(question, shares), dtype=bool)
            return [torch.tensor([float(shares[active].sum())], dtype=torch.float64)]

        book, turnout = self._book, Turnout(self._records, self._records.person_count)
        (noisy,) = book.release(question, turnout, contribute, gated=False)
        answer, state = rounded(float(noisy[0]), question.sigma), book.current.value
        book.current.update(answers=(*state.answers, (state.step, name, answer)))
        return answer


def put_in_front(counting: Any, book: MemoryBook, sampling: Sampling, settings: Settings, processes: Processes) -> Any:
    """Put accounts that answer a public question in front of a book, and book their price; before the first step.

    Args:
        counting: gives Dropouts or StillActive of the accounts of the book.

    Returns:
        These accounts.
    """
    if settings.batches is not None:
        raise Unsupported("drops are not counted together with FixedBatches")
    stopping, current = counting(book.accounts), book.current
    try:
        if not isinstance(stopping, StoppingAccounts) or stopping.people is not book.accounts:
            raise ArgumentError("watch: a function must make Dropouts or StillActive of the accounts that it is given")
        last, step = settings.last_step, current.value.step
        if stopping.most is not None and last and stopping.most < last - step:
            raise ArgumentError(f"watch: {stopping.most} counts are fewer than steps: {last}")
        if isinstance(sampling, Poisson) and not stopping.own_samples:
            if current.value.own_samples:
                raise ArgumentError("watch: bounds followed own samples so far, which the price of counting excludes")
            sampling.own_samples = False  # before the first step: refreshes alone
        book.check_observed(stopping.price)
    except BaseException:
        if isinstance(stopping, StoppingAccounts):
            stopping.undo()
        raise
    current.update(seeded=current.value.seeded or stopping.reproducible)
    if not processes.single:
        stopping.among(processes.all_gather)
    book.put_in_front(stopping, stopping.price)
    return stopping
