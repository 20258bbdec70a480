"""Questions of callbacks: noisy sums over people, charged to the accounts of the run."""

import numpy as np
import torch
from torch import nn

from bursar.mechanisms import Gaussian
from bursar.training._accounts import TrainingAccounts
from bursar.training._counters import rounded
from bursar.training._evaluation import Values, means_by_person, values_by_record
from bursar.training._records import Records
from bursar.training._releases import Releases

__all__ = ["Questions"]


class Questions:
    """Answers questions about the records of a run with noise. Holds what is private; its answers are public."""

    def __init__(self, module: nn.Module, records: Records, accounts: TrainingAccounts, releases: Releases) -> None:
        self._module, self._records, self._accounts, self._releases = module, records, accounts, releases

    def noisy_sum(self, question: Gaussian, values: Values) -> float:
        """The sum over people of their mean values, clamped to [0, 1], plus the noise of ``question``. Public.

        Guarantee: released by a Gaussian mechanism with sensitivity 1, each person charged for their own value.
        Source: theory 2.1, 5.1.
        """
        records = self._records
        numbers = values_by_record(self._module, records.inputs, records.targets, values)
        shares = means_by_person(np.clip(numbers, 0.0, 1.0), records.people, records.person_count)  # NaN stays NaN

        def charge_and_sum() -> list[torch.Tensor]:
            active = np.asarray(self._accounts.for_questions.charge(question, shares), dtype=bool)
            return [torch.tensor([float(shares[active].sum())], dtype=torch.float64)]

        (noisy,) = self._releases.release(question, charge_and_sum)
        return rounded(float(noisy[0]), question.sigma)
