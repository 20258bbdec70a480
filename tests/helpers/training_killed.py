"""Trainings that are killed and go on from their folders, with a witness of every release; one for each door.

Everybody has one coordinate of the model to themselves, so that the exact sum of a release shows what each person
contributed. The witness stands where noise is added, and writes down the exact sum and the noise, forced to the disk,
before anybody gets the noisy sum.
"""

import ctypes
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from almoner import _audit_hook, filters, individual, odometers, training
from almoner.errors import ArgumentError
from almoner.ledger import Ledger, Terms, verify
from almoner.training import FixedBatches
from almoner.training.correlated import Banded, BandedInverse

N, CLIP, SIGMA, SQUARES = 12, 1.0, 4.0, 9.0
"""People, clip, noise, and how much everybody's squared contributions may add up to: fewer than there are steps."""

STRENGTH = np.linspace(0.4, 4.0, N)
NAMES = [f"p{person}" for person in range(N)]
ROWS = [person for person in range(N) for _ in range(1 + person % 2)]
RATE, DELTA, KEY = 0.5, 1e-5, "model"
ODOMETER = {"delta": DELTA, "plan": 1.0}
BUDGET = {
    "gaussian": lambda: filters.Gaussian(mu=SQUARES**0.5 / SIGMA),
    "order": lambda: filters.RenyiOrder(alpha=8.0, rho=0.2),
    "residue": lambda: filters.Residue(epsilon=4.0, delta=1e-6),
}


@dataclass(frozen=True)
class Door:
    """A way to train.

    Fields:
        goes: trains from what is in the folder to the end, and says how it ended.
        steps: planned.
        sampling: who is in a step of a trainer.
        budget: its name in BUDGET.
        ledger: whether a ledger is charged.
        whole: whether a release that was drawn and not shown is taken back: an update is charged and shown, or neither.
        scale: what a noisy sum is multiplied by in a step of the model.
        watched: odometer and losses beside the budget.
        every: steps between two saves of a trainer.
    """

    goes: "Callable[[Door, Path, Witness], dict[str, object]]"
    steps: int
    sampling: training.FullBatch | training.Poisson | FixedBatches = field(default_factory=training.FullBatch)
    budget: str = "gaussian"
    ledger: bool = False
    whole: bool = False
    scale: float = RATE / N
    watched: bool = False
    every: int | None = 5


class Witness:
    """Writes down every release: a hook of audits, and a callback of trainings.

    Args:
        path: the file, which earlier processes may have begun.
        attempt: which process of the run this is.
    """

    def __init__(self, path: Path, attempt: int) -> None:
        text = path.read_bytes() if path.exists() else b""
        path.touch()
        os.truncate(path, text.rfind(b"\n") + 1)  # what was being written when its process was killed
        self._file, self._attempt = os.open(path, os.O_WRONLY | os.O_APPEND), attempt
        self.done: Callable[[], int] = lambda: 0
        """The number of steps that are done."""

    def released(self, release, exact, mechanism, part):
        """Draw, write down what was drawn, and only then give it."""
        before = _flat(exact)
        line = {"step": self.done(), "sigma": mechanism.sigma, "exact": before.tolist()}
        if part is not None:  # the independent numbers of which a row of correlated noise is made
            line |= {"step": part.step, "drawn": part.of.draw(part.step).tolist()}
        noisy = release()
        self._write(line | {"noise": (_flat(noisy) - before).tolist()})
        return noisy

    def coins(self, draw):
        """Leave the samples alone."""
        return draw()

    def told(self, number: int) -> None:
        """Write down that an update was shown."""
        self._write({"told": number})

    def began(self, run) -> None:
        """Read the number of steps from the run."""
        self.done = lambda: run.step

    def __call__(self, run) -> None:
        """See a step: its release was written down before."""

    def _write(self, line: dict[str, object]) -> None:
        os.write(self._file, (json.dumps({"attempt": self._attempt, "time": time.monotonic()} | line) + "\n").encode())
        os.fsync(self._file)


def _flat(values) -> np.ndarray:
    parts = values if isinstance(values, list | tuple) else [values]
    return np.concatenate([np.array(part, dtype=np.float64).ravel() for part in parts])


# the doors -----------------------------------------------------------------------------------------------------------


def trainer(door: Door, folder: Path, witness: Witness) -> dict[str, object]:
    """``Trainer.fit``."""
    with book_of(door, folder) as book:
        if book is not None and [each.state for each in book.consumers.values()] == ["settled"]:
            return charged_by(book)  # the last process was killed after the end
        job, x, y = made_trainer(door, book), *records()
        losses, odometer = individual.Losses(N, least=SIGMA, most=1000 * SIGMA), odometers.Gaussian(**ODOMETER)
        run = job.fit(
            x,
            y,
            torch.tensor(ROWS) if book is None else [NAMES[person] for person in ROWS],
            callbacks=[witness],
            watch=[losses, odometer] if door.watched else None,
            folder=training.RunFolder(folder / "run", every=door.every, resume=True),
        )
        charged = {"charged": np.asarray(job.accounts.spent()).tolist()} if book is None else charged_by(book)
        bounds = {}
        if door.watched:
            epsilons = [losses.epsilon(delta=DELTA), job.odometer.epsilon()]
            bounds = {"bounds": [np.asarray(each).tolist() for each in epsilons]}
        parts = job.accounts.state().get("shares")
        return (
            charged
            | bounds
            | {
                "steps": run.step,
                "lost": sum(run.released.values()) - run.step,
                "shares": job.shares().tolist(),
                "parts": None if parts is None else np.asarray(parts).tolist(),
                "model": weights(job.module),
            }
        )


def made_trainer(door: Door, book: Ledger | None = None) -> training.Trainer:
    """A trainer of a model with one coordinate for each person."""
    module, budget = linear(), BUDGET[door.budget]()
    return training.Trainer(
        module,
        constant_loss if isinstance(door.sampling, training.Poisson) else logistic_loss,
        torch.optim.SGD(module.parameters(), lr=RATE),
        budget if book is None else training.OnLedger(book, KEY, at_most=budget),
        max_grad_norm=CLIP,
        noise_multiplier=SIGMA,
        divisor=N,
        steps=door.steps,
        sampling=door.sampling,
    )


def stream(door: Door, folder: Path, witness: Witness) -> dict[str, object]:
    """``Stream``: others are there in each update, and sometimes nobody."""
    with book_of(door, folder) as book, made_stream(door, folder, book) as job:
        witness.done = lambda: job.number
        while job.number < door.steps:
            x, y, ids = present(job.number)
            witness.told(job.update(torch.tensor(x), torch.tensor(y), ids, divisor=N))
        charged = charged_by(book) if book else {"charged": np.asarray(job.accounts.spent(NAMES)).tolist()}
        bounds = {"bounds": [np.asarray(job.odometer.epsilon(NAMES)).tolist()]} if door.watched else {}
        lost = sum(times for _, times in job.card(delta=DELTA).released) - job.number
        return charged | bounds | {"steps": job.number, "lost": lost, "model": weights(job.module)}


def made_stream(door: Door, folder: Path, book: Ledger | None) -> training.Stream:
    """A stream with its folder."""
    module = linear()
    return training.Stream(
        module,
        logistic_loss,
        torch.optim.SGD(module.parameters(), lr=RATE),
        BUDGET[door.budget]() if book is None else training.OnLedger(book, KEY),
        max_grad_norm=CLIP,
        noise_multiplier=SIGMA,
        sampling=training.FullBatch(spread=2),
        watch=odometers.Gaussian(**ODOMETER) if door.watched else None,
        folder=training.RunFolder(folder / "run", resume=True),
    )


def partial_fit(door: Door, folder: Path, witness: Witness) -> dict[str, object]:
    """``LogisticRegression.partial_fit``, with the same people as a stream."""
    with book_of(door, folder) as book:
        model, begins = made_logistic(book, folder)
        witness.done = lambda: getattr(model, "n_iter_", 0)
        while witness.done() < door.steps:
            x, y, ids = present(witness.done())
            model.partial_fit(x, y, ids, **begins)
            begins = {}
            witness.told(model.n_iter_)
        charged = charged_by(book) if book else {"charged": model.accounts_.people.spent(NAMES).tolist()}
        return charged | {"steps": model.n_iter_, "lost": 0, "model": model.coef_.ravel().tolist()}


def made_logistic(book: Ledger | None, folder: Path) -> tuple[training.LogisticRegression, dict[str, object]]:
    """The model of the folder and no options, or a new one and those of its first call."""
    on = None if book is None else training.OnLedger(book, KEY)
    try:
        return training.LogisticRegression.resume(folder / "run", ledger=on), {}
    except ArgumentError as error:
        if "holds no model" not in str(error):
            raise
    epsilon = None if book is not None else BUDGET["gaussian"]().epsilon(delta=DELTA)
    model = training.LogisticRegression(
        epsilon=epsilon,
        delta=DELTA,
        max_grad_norm=CLIP,
        noise_multiplier=SIGMA,
        learning_rate=RATE,
        classes=[-1.0, 1.0],
        n_people=N,
        fit_intercept=False,
    )
    return model, {"folder": folder / "run", "ledger": on}


SAMPLED = training.Poisson(0.25, refresh_every=4)
BATCHES = FixedBatches(4, noise=Banded(3))
DOORS = {
    "full": Door(trainer, 24),
    "full, watched": Door(trainer, 24, watched=True, every=None),
    "full, ledger": Door(trainer, 24, ledger=True),
    "poisson": Door(trainer, 20, SAMPLED, "order", scale=RATE / N / 0.25),
    "poisson, ledger": Door(trainer, 20, SAMPLED, "residue", ledger=True, scale=RATE / N / 0.25),
    "batches": Door(trainer, 21, BATCHES, scale=RATE / 4),
    "batches, ledger": Door(trainer, 21, FixedBatches(4, noise=BandedInverse(3)), ledger=True, scale=RATE / 4),
    "stream": Door(stream, 18),
    "stream, watched": Door(stream, 18, watched=True),
    "stream, ledger": Door(stream, 12, ledger=True, whole=True),
    "partial_fit": Door(partial_fit, 24, whole=True),
    "partial_fit, ledger": Door(partial_fit, 12, ledger=True, whole=True),
}


# their parts ---------------------------------------------------------------------------------------------------------


def linear() -> nn.Module:
    """One weight for each person, zero."""
    module = nn.Linear(N, 1, bias=False).double()
    nn.init.zeros_(module.weight)
    return module


def weights(module: nn.Module) -> list[float]:
    """The parameters of the module."""
    return module.weight.detach().ravel().tolist()


def logistic_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Gradients follow the model, and so the noise of earlier steps."""
    return nn.functional.softplus(-target * output.squeeze(-1))


def constant_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Gradients are as long as the records: known also of those who are not in a sample."""
    return -target * output.squeeze(-1)


def records() -> tuple[torch.Tensor, torch.Tensor]:
    """Records of everybody, each with one coordinate that is not zero; some people have two."""
    x, y = rows_of(range(N))
    return torch.tensor(x), torch.tensor(y)


def rows_of(people) -> tuple[np.ndarray, np.ndarray]:
    """The records of these people."""
    rows = [person for person in ROWS if person in people]
    x = np.zeros((len(rows), N))
    x[range(len(rows)), rows] = [STRENGTH[person] / (1 + person % 2) for person in rows]
    return x, np.array([1.0 if person % 3 else -1.0 for person in rows])


def present(update: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Records, labels and ids of those who are there in an update."""
    people = [] if update % 7 == 5 else [person for person in range(N) if (person + update) % 3]
    return *rows_of(people), [NAMES[person] for person in ROWS if person in people]


@contextmanager
def book_of(door: Door, folder: Path) -> Iterator[Ledger | None]:
    """The ledger of a run, open."""
    budget = filters.Gaussian(mu=SQUARES**0.5 / SIGMA)
    place = folder / "people.ledger"
    terms = Terms(budget, person="VARCHAR", keys_delta=1e-6)
    with Ledger.open(place, terms, create=True, threads=1) if door.ledger else nullcontext() as book:
        yield book


def charged_by(book: Ledger) -> dict[str, object]:
    """What everybody is charged on a ledger, as mu squared; and what an examination of its record finds."""
    charged = [2 * book.spent(person) / 1e15 for person in NAMES]
    over = ["above the ledger's budget"] if max(map(book.spent, NAMES)) > book.budget_units else []
    found = [finding.what for finding in verify(book) if not finding.holds] + over
    settled = book.entries("settled")
    steps = {"steps": settled[0].public["outcome"]["steps"]} if settled else {}
    return {"charged": charged, "found": found} | steps


# processes -----------------------------------------------------------------------------------------------------------


def without_announcements() -> None:
    """Break the journal: nothing is announced."""
    training._run.folder.Folder.announce = lambda *_: None


def with_the_same_noise() -> None:
    """Break the noise: each process draws the same."""
    real = np.random.default_rng
    np.random.default_rng = lambda seed=None: real(1 if seed is None else seed)
    training.correlated._factor.secrets.randbits = lambda _: 1


BROKEN = {"announcements": without_announcements, "noise": with_the_same_noise}
"""Controls: what each of them breaks must be found."""


def train(door: Door, folder: Path, attempt: int, broken: str | None = None) -> None:
    """Train from what is in the folder to the end, and write down how it ended."""
    if broken is not None:
        BROKEN[broken]()
    witness = Witness(folder / "released.jsonl", attempt)
    with _audit_hook.installed(witness):
        end = door.goes(door, folder, witness)
    (folder / "end.new").write_text(json.dumps(end), encoding="utf-8")
    (folder / "end.new").rename(folder / "end.json")


def warm_up() -> None:
    """Load, in the parent, what a first training loads."""
    torch.set_num_threads(1)
    everybody = training.FullBatch()
    for sampling, budget in zip(
        (everybody, SAMPLED, SAMPLED, BATCHES), ("gaussian", "order", "residue", "gaussian"), strict=True
    ):
        made_trainer(Door(trainer, 2, sampling, budget)).fit(*records(), torch.tensor(ROWS))


def started(door: Door, folder: Path, attempt: int, *, processor: float = 0.0, broken: str | None = None) -> int:
    """The id of a forked process that trains.

    Args:
        processor: seconds of processor time after which the system ends it, by SIGPROF; 0: never.
    """
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it dies with its parent
        if os.getppid() == parent:
            signal.setitimer(signal.ITIMER_PROF, processor)
            logging.disable(logging.WARNING)  # of records that are longer than they should be
            train(door, folder, attempt, broken)
            os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)
