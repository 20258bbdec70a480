"""Losses, accuracies, mean spends and epsilons by group, when filtering starts and at the end: for the data holder.

Individual accounts let people whose gradients are small go on after the others have left. Who leaves first is whom the
model gets wrong, and these people are not spread evenly over groups. So filtering can make a model worse for a group,
so look at the groups when you train with it. What is seen is a function of private data: whether or not the groups
themselves are public, losses and spends by group are private, and nothing that is run next may depend on them.

Names and symbols
    groups        for each attribute (say "sex") the group of each person, (n,); private or public
    shares        the share of each person's budget that is used, (n,), in [0, 1]; private
    start         the first step after which a person's budget is used up; private, because it depends on their data

Source: Koskela, Tobaben & Honkela (2023), section 6.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from almoner import _check
from almoner._private import MARK
from almoner.errors import ArgumentError
from almoner.training._accounts import USED_UP
from almoner.training._linear.descent import Matrix

if TYPE_CHECKING:
    from torch import Tensor, nn

    from almoner.training.gradients._batches import Batch

__all__ = ["Audience", "GroupReport", "GroupWatch", "linear_measure", "module_measure"]

Array = NDArray[np.float64]

START, END = "filtering starts", "end"


@dataclass(frozen=True, repr=False)
class Audience:
    """The people (or held-out records) by whom a model is judged, and their groups. Private."""

    groups: Mapping[str, Any]
    """Attribute -> (n,) labels."""
    measure: Callable[[Any], tuple[Any, Any]]
    """Parameters -> ((n,) losses, (n,) shares of correct answers, in [0, 1])."""

    def __post_init__(self) -> None:
        lengths = {len(labels) for labels in self.groups.values()}
        if len(lengths) != 1:
            raise ArgumentError("groups must have at least one attribute, each with a label for every person")

    def __repr__(self) -> str:
        return f"Audience({MARK})"


class GroupReport:
    """Report of each group. PRIVATE: for the data holder.

    Fields (private):
        rows: a dict for each attribute, group, audience and moment: people, step, loss, accuracy and, for those who
            have accounts, share (mean share of the budget used), used_up (share of people with nothing left) and, if
            the watch was given epsilons, epsilon (the mean of each one's epsilon; inf if one of them has no bound).
    """

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        return f"GroupReport({MARK})"

    def gap(self, attribute: str, column: str, *, moment: str = END, audience: str = "train", least: int = 1) -> float:
        """Largest less smallest value of a column over the groups of an attribute with at least so many people."""
        values = [
            row[column]
            for row in self.rows
            if (row["attribute"], row["moment"], row["audience"]) == (attribute, moment, audience)
            and row["people"] >= least
        ]
        if not values:
            raise ArgumentError(f"no groups of attribute={attribute!r} at moment={moment!r} in audience={audience!r}")
        return float(max(values) - min(values))

    def table(self) -> str:
        """A Markdown table that says that it is private."""
        columns = ["audience", "attribute", "group", "people", "moment", "step", "loss", "accuracy", "share", "used_up"]
        columns += ["epsilon"] if any("epsilon" in row for row in self.rows) else []
        lines = [f"{MARK}:", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        for row in self.rows:
            shown = (row.get(column) for column in columns)
            lines.append("| " + " | ".join(f"{v:.4f}" if isinstance(v, float) else str(v or "") for v in shown) + " |")
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Everything, marked private. Not for publication."""
        return {"mark": MARK, "rows": self.rows}


class GroupWatch:
    """Looks at groups when filtering starts and at the end of a run; give ``look`` to ``descend`` as observe=.

    Args:
        train: private. Those who have accounts, in the order of the accounts.
        shares: private. A function that gives the share of each one's budget that is used, (n,).
        steps: public. How many steps there will be.
        test: private. Others by whom the model is judged, if any.
        epsilons: private. A function that gives an upper bound on each one's epsilon so far, (n,) nats >= 0, such as
            ``lambda: counted.epsilon(delta=1e-5)`` of ``individual.Losses``. Their means by group are reported; each
            bound holds as far as its own source says, and a mean over people is no guarantee for anybody.
        start: public. The step after which filtering counts as started, such as the number of steps that each person
            can pay in full; None: the first step after which a person has nothing left. Give it where people who cannot
            pay in full are left out: these people keep their remainders, so that nobody's budget is used up exactly.
    """

    def __init__(
        self,
        train: Audience,
        shares: Callable[[], Any],
        *,
        steps: int,
        test: Audience | None = None,
        epsilons: Callable[[], Any] | None = None,
        start: int | None = None,
    ) -> None:
        if start is not None:
            _check.whole(1, start=start)
        self._audiences = {"train": train} | ({} if test is None else {"test": test})
        self._shares, self._steps, self._epsilons = shares, steps, epsilons
        self._start, self._started = start, False
        self._rows: list[dict[str, Any]] = []

    def __repr__(self) -> str:
        return f"GroupWatch({MARK})"

    def look(self, step: int, parameters: Array) -> None:
        """Keep all rows when filtering starts, and at the last step."""
        if not self._started and self._starts(step):
            self._started = True
            self._note(START, step, parameters)
        if step == self._steps:
            self._note(END, step, parameters)

    def _starts(self, step: int) -> bool:
        if self._start is not None:
            return step >= self._start
        return bool(np.max(np.asarray(self._shares()), initial=0.0) >= USED_UP)

    def report(self) -> GroupReport:
        """The report so far."""
        return GroupReport(list(self._rows))

    def _note(self, moment: str, step: int, parameters: Array) -> None:
        shares = np.clip(np.asarray(self._shares(), dtype=np.float64), 0.0, 1.0)
        bounds = {} if self._epsilons is None else {"epsilon": _bounds(self._epsilons(), len(shares))}
        for name, audience in self._audiences.items():
            losses, right = (np.asarray(values, dtype=np.float64) for values in audience.measure(parameters))
            for attribute, labels in audience.groups.items():
                groups, where = np.unique(np.asarray(labels), return_inverse=True)
                counts = np.bincount(where)
                columns = {"loss": losses, "accuracy": right}
                if name == "train":
                    columns |= {"share": shares, "used_up": np.where(shares >= USED_UP, 1.0, 0.0)} | bounds
                means = {key: np.bincount(where, values) / counts for key, values in columns.items()}
                for index, group in enumerate(groups):
                    row: dict[str, Any] = {"audience": name, "attribute": attribute, "group": str(group)}
                    row |= {"moment": moment, "step": step, "people": int(counts[index])}
                    self._rows.append(row | {key: float(values[index]) for key, values in means.items()})


def _bounds(epsilons: Any, count: int) -> Array:
    """(count,) the epsilons, where what is no number >= 0 counts as infinite."""
    found = np.asarray(epsilons, dtype=np.float64)
    if found.shape != (count,):
        raise ArgumentError("epsilons must give one number for each person who has an account")
    return np.where(found >= 0, found, np.inf)


def linear_measure(
    x: Matrix, y: ArrayLike, *, intercept: bool, people: ArrayLike | None = None
) -> Callable[[Array], tuple[Array, NDArray[np.float64]]]:
    """The log losses and the correct answers of a linear model, for ``Audience``.

    Args:
        x: (rows, features), private.
        y: (rows,) class numbers, private.
        intercept: public. Whether the parameters end with a row that multiplies a constant 1.
        people: (rows,) whose each row is, 0 .. n - 1, private: means over each person's rows. None: each row is one.
    """
    numbers = np.asarray(y)

    def measure(parameters: Array) -> tuple[Array, NDArray[np.float64]]:
        logits = np.asarray(x @ parameters[: x.shape[1]]) + (parameters[-1] if intercept else 0.0)
        if logits.shape[1] == 1:
            logits = np.hstack([np.zeros_like(logits), logits])
        losses = -log_softmax(logits, axis=1)[np.arange(len(numbers)), numbers]
        right = (np.argmax(logits, axis=1) == numbers).astype(np.float64)
        if people is None:
            return losses, right
        rows = np.bincount(people)
        return np.bincount(people, losses) / rows, np.bincount(people, right) / rows

    return measure


def module_measure(
    inputs: "Batch", targets: "Tensor", loss: "Callable[[Tensor, Tensor], Tensor]", people: "Tensor | None" = None
) -> "Callable[[nn.Module], tuple[Array, Array]]":
    """Losses and right answers of a classifier, for an ``Audience``; both private where the records are.

    Args:
        inputs, targets, people: as for ``Trainer.fit``; people's values are means over their records.
        loss: one number for each record.
    """
    from almoner.training._records import correct, means_by_person, values_by_record
    from almoner.training.gradients._batches import as_inputs

    batch = as_inputs(inputs)
    count = len(targets) if people is None else int(people.max()) + 1

    def measure(module: "nn.Module") -> tuple[Array, Array]:
        losses, right = (values_by_record(module, batch, targets, values) for values in (loss, correct))
        return means_by_person(losses, people, count), means_by_person(right, people, count)

    return measure
