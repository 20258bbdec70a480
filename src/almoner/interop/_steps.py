"""One training of ours in somebody else's loop, which asks for its steps."""

from typing import Any

from almoner.errors import ArgumentError, BudgetExceeded
from almoner.training import CallbackView, Trainer

MANY = "{}={} is not taken: several noisy sums in one step have no price, and memory is saved anyway, in chunks: {}"


class Steps:
    """The steps of a trainer that was not used yet, each taken when it is asked for; ``run`` is public.

    The arguments are those of ``Trainer.steps``: what is refused there is refused now, before anything is charged.
    """

    def __init__(self, trainer: Trainer, *records: Any, **options: Any) -> None:
        self.trainer = trainer
        self._steps: Any = trainer.steps(*records, **options)
        self.run: CallbackView = next(self._steps)

    @property
    def more(self) -> bool:
        """True if there is another step: the plan has one, and what is charged to all alike fits."""
        return self.run.reason is None and self.run.can_take(self.run.next_step(), 1)

    def refuse_older(self, step: int, checkpoint: str, given: str) -> None:
        """Raise ArgumentError where accounts are older than the checkpoint of a step; then the run is left."""
        if self.run.step < step:
            self.close()
            raise ArgumentError(
                f"{checkpoint}: the accounts are those of step {self.run.step}, before the checkpoint's step {step}: "
                f"give the {given} of the run that wrote it, and no older copy"
            )

    def take(self) -> None:
        """Take a step, or raise BudgetExceeded, and then no parameter has changed."""
        if next(self._steps, None) is None:
            why = f"no step was taken: {self.run.reason}"
            raise BudgetExceeded(why, asked=None, spent=self.run.step, left=None)

    def save(self) -> None:
        """Write what there is to the run's folder, while the run goes on."""
        if self._steps.gi_frame is not None:
            self.trainer.save()

    def close(self) -> None:
        """Leave the run as it is, after an error; what there is is kept in its folder."""
        self._steps.close()

    def finish(self) -> None:
        """End the run, which the loop has left; what there is is kept in its folder and on its ledger."""
        if self.more:
            self.run.stop("the loop around it ended")
        for _ in self._steps:
            pass
