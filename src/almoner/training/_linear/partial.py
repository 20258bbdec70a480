"""``LogisticRegression.partial_fit``: a linear model that is released again and again, while people come."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from almoner import _check, individual
from almoner._uncopyable import OwnProcess
from almoner.accounting import calibrate
from almoner.errors import AlmonerError, ArgumentError, DataError, Unsupported
from almoner.ledger import Ledger
from almoner.mechanisms import Gaussian
from almoner.training._accounts import ids_and_rows
from almoner.training._linear.descent import LinearModel, Plan, independent, plan
from almoner.training._linear.model_folder import PersonalAccounts
from almoner.training._linear.wrappers import labels_of, validated
from almoner.training._on_ledger import LedgerStream, OnLedger
from almoner.training._run.books import LedgerBook, MemoryBook
from almoner.training._run.folder import Folder, check_ids
from almoner.training._run.run import CurrentState, Interruptions, Run
from almoner.training._run.samplings import FullBatch, Turnout

Floats = NDArray[np.float64]
Features: TypeAlias = "ArrayLike | sparse.csr_matrix"

MOST_RATE = 4.0  # nobody knows how many calls there will be: little noise in one is no reason for a long step
KIND = "LogisticRegression"  # kind of run, as the folder of a stream says
PLANNED = ("epsilon", "delta", "noise_multiplier", "max_grad_norm", "steps")
FIXED = (*PLANNED, "fit_intercept", "bounds_X", "alpha", "seed")
"""Settings that the first call decides; the others may change between calls, as long as they follow from no data."""

UNUSED = {
    "individual": True,
    "extra_steps": 0,
    "momentum": 0.8,
    "decay": 0.0,
    "stop_when_inactive": None,
    "class_weight": None,
}
"""Settings that must be as they are by default: a stream has an account for each person, and no last step. It takes no
momentum either, which the default is for trainings."""


@dataclass(slots=True, eq=False, repr=False)
class Stream:
    """The run that goes on from one call to the next."""

    run: Run  # its folder is open during a call alone
    settings: dict[str, Any]  # of the estimator, which the first call decides
    classes: NDArray[Any]  # public, as is what is planned
    planned: Plan
    ledger: LedgerStream | None
    path: Path | None  # of the folder that it goes on from
    process: OwnProcess = field(default_factory=OwnProcess)

    @property
    def model(self) -> LinearModel:
        return cast(LinearModel, self.run.model)

    @contextmanager
    def alone(self, *, new: bool = False) -> Iterator[None]:
        """Open the folder, if there is one, and keep others out of it; it must be new, or where this model is."""
        if self.path is None:
            yield
            return
        if new and (self.path / "state.npz").exists():
            raise ArgumentError(f"folder={str(self.path)!r} holds a model already: go on by LogisticRegression.resume")
        with closing(Folder(self.path, KIND, resume=not new)) as folder:
            made, found = self.run.current.value.step, folder.number()
            if found != made:
                raise ArgumentError(
                    f"folder={str(self.path)!r} has seen {found} calls of partial_fit, and this model {made}: "
                    "another process went on from it. Go on by LogisticRegression.resume"
                )
            with self.within(folder):
                yield

    @contextmanager
    def within(self, folder: Folder) -> Iterator[None]:
        """Keep what is done in a folder that is open."""
        self.run.folder = folder
        if self.ledger is not None:
            self.run.book.folder = folder
        try:
            yield
        finally:
            self.run.folder = None

    def begin(self) -> None:
        """Keep what there is, begin on the ledger or go on there, and take the step that a crash left in the folder."""
        run, state = self.run, self.run.current.value
        run.save()
        if self.ledger is not None:
            public = {"model": KIND, "max_grad_norm": state.max_grad_norm, "noise_multiplier": state.noise_multiplier}
            kept = self.ledger.begin(public, run.folder, state.step)
            if kept is not None:
                run.follow_kept(kept, self.planned.step)

    def update(self, turnout: Turnout) -> None:
        """Charge the people who are there, take the step, and keep it before anybody is told."""
        run, parameters, state, keys = self.run, self.model.parameters, self.run.current.value, dict(self.run.keys)
        try:
            run.take(turnout, self.planned.step)
            run.save()
        except BaseException:
            if self.ledger is None:  # what is not kept is told to nobody
                run.model.load({"parameters": parameters})
                run.current.value = state
            run.keys = keys  # the model does not show it: it is not done
            raise


class PartialFit:
    """The method ``partial_fit`` of an estimator whose settings are those of ``LogisticRegression``."""

    holder_report_: Any
    _descent: Any
    _on_records: Any
    _rate: Any
    _check_settings: Any
    _clip: float
    _penalty: Any
    _set_coefficients: Any
    _stream: Stream | None

    def partial_fit(
        self,
        X: Features,
        y: ArrayLike,
        people: Sequence[Hashable] | ArrayLike | None = None,
        *,
        classes: Sequence[Any] | NDArray[Any] | None = None,
        divisor: float | None = None,
        folder: str | Path | None = None,
        ledger: OnLedger | None = None,
        key: str | None = None,
    ) -> Self:
        """Take one step on the people who are there, charge them alone, and release the model.

        Each call is one update of a stream, as of ``training.Stream``: a person who is in three of two hundred calls
        pays for three. ``steps`` is in how many calls a person can contribute a gradient of norm ``max_grad_norm``; the
        noise follows from it, and the stream itself never ends. The model is the last iterate; ``average`` and ``pace``
        of ``descent`` are not used. ``learning_rate``, at most 4 if None, and ``n_people`` may change between calls.

        Args:
            X: (rows, features) array or CSR matrix, private, finite; without any rows the model is released too.
            y: (rows,) labels, private.
            people: (rows,) private: an id for each row, which stays with its person in all calls: whole numbers,
                texts, or anything hashable. All rows of a person in a call are one contribution.
            classes: public. The labels; at the first call, here or as a parameter of the estimator.
            divisor: public. How many people are expected in this call; None: ``n_people``.
            folder: at the first call. A folder, private: each call is on the disk before the model shows it, and
                ``resume`` goes on from there, in another process too. It holds the accounts of all people, and is
                written in full each time: with millions of people, charge a ledger.
            ledger: at the first call, with epsilon=None. The accounts that questions and trainings charge too, in an
                open ledger; people are named as there. See ``training.OnLedger``.
            key: public. A name for the call, such as its day: with one that was made already nothing is done.

        Raises:
            ArgumentError, Unsupported: before anybody is charged.

        Guarantee: the model after every call is together as private as the budget says, for adding or removing any one
            person with all of that person's rows in all calls. Who comes, and with which rows, may depend on earlier
            models, if each person's rows depend on nothing of anybody else's but these.
        Source: theory 5.1 to 5.3, 5.7; Feldman & Zrnic (2021), Theorem 4.5.
        """
        stream: Stream | None = getattr(self, "_stream", None)
        self._check_call(stream, folder, ledger)
        _check.given(_check.name, key=key)
        if stream is not None and key in stream.run.keys:
            return self
        expected = self._divisor(divisor)
        declared = self._declared(classes, None if stream is None else stream.classes)
        if people is None:
            raise ArgumentError("people must be given, an id for each row: who comes again must be known")
        on = None if ledger is None else _on_ledger(ledger, self._own("seed"))
        planned = self._planned_stream(on) if stream is None else stream.planned
        X, labels = validated(self, X, y, reset=stream is None, least_rows=0)
        found, codes = labels_of(labels, declared)
        ids, rows = ids_and_rows(people, len(codes))
        gradients = self._on_records(X, codes, len(found), people=np.asarray(rows, dtype=np.int64))
        if folder is not None or (stream is not None and stream.path is not None):
            check_ids(ids)  # before anybody is charged
        if stream is None:
            stream = self._begun(planned, found, gradients.start, None if folder is None else Path(folder), on)
            stream.run.more = {"estimator": self._described(stream, expected)}
            with stream.alone(new=True):
                stream.begin()
            self._stream = stream
        rate = self._rate(stream.planned.step, expected, MOST_RATE)
        turnout = Turnout(gradients, gradients.people, ids, divisor=expected, rate=rate, key=key)
        with Interruptions(stream.path or stream.ledger) as until, stream.alone():
            until.wait()  # the call is told when it is on the disk
            stream.run.more = {"estimator": self._described(stream, expected)}
            stream.update(turnout)
            self._set_released(stream, expected)
        return self

    def _check_call(self, stream: Stream | None, folder: object, ledger: object) -> None:
        self._check_settings()
        if stream is None:
            if hasattr(self, "coef_"):
                raise ArgumentError(
                    "partial_fit: this model was made by fit, or is a copy: it has no accounts to go on with. Go on "
                    "with the model itself, or begin another"
                )
            return
        stream.process.check("this model")
        if folder is not None or ledger is not None:
            raise ArgumentError("folder and ledger are given at the first call of partial_fit, or to resume")
        for name, value in stream.settings.items():
            if self._own(name) != value:
                raise ArgumentError(f"{name}={self._own(name)!r} must be as at the first call: {value!r}")

    @classmethod
    def resume(cls, folder: str | Path, *, ledger: OnLedger | None = None) -> Self:
        """Go on from the folder of a model that ``partial_fit`` began with ``folder=``.

        Args:
            folder: private. To go on from two copies is to spend a budget twice; a ledger refuses the older one.
            ledger: the one that the model was charged to, open; None where it has a budget of its own.

        Returns:
            A model with the settings, parameters and accounts of the last call.

        Raises:
            ArgumentError: there is no such folder, it is in use, or the ledger is not the one that it began on.
            DataError: what is in the folder can't be read; nothing was changed.
        """
        if not (Path(folder) / "state.npz").exists():
            raise ArgumentError(f"folder={str(folder)!r} holds no model that partial_fit began")
        with closing(Folder(folder, KIND, resume=True)) as opened:
            parts, _ = opened.load() or ({}, [])
            model = cls()
            try:
                model.set_params(**parts["estimator"]["settings"])  # type: ignore[attr-defined]
                model._restore(opened, parts, ledger)
            except AlmonerError:
                raise
            except (TypeError, KeyError, ValueError, AttributeError, IndexError) as damaged:
                raise DataError(f"folder: {str(folder)!r} is damaged; nothing was changed") from damaged
        return model

    def _restore(self, folder: Folder, parts: Mapping[str, Any], ledger: OnLedger | None) -> None:
        fields = parts["estimator"]
        if fields["ledger"] != (None if ledger is None else ledger.key):
            raise ArgumentError(f"ledger: this model began with the stream {fields['ledger']!r}, and goes on with it")
        self.n_features_in_ = int(fields["n_features"])
        if fields["names"] is not None:
            self.feature_names_in_ = np.array(fields["names"], dtype=object)
        on = None if ledger is None else _on_ledger(ledger, self._own("seed"))
        planned = replace(self._planned_stream(on), step=Gaussian(fields["sigma"], self._clip))
        start = np.asarray(parts["model"]["parameters"], dtype=np.float64)
        if start.ndim != 2 or not np.all(np.isfinite(start)):
            raise ValueError("parameters")
        calls = int(parts["run"]["step"])
        stream = self._begun(planned, np.asarray(fields["classes"]), start, folder.path, on, calls=calls)
        stream.run.more = {"estimator": fields}
        with stream.within(folder):
            try:
                stream.run.resume(parts, [])
            except ArgumentError as unlike:  # all of it is from the folder
                raise ValueError("parts") from unlike
            stream.begin()
        self._stream = stream
        self._set_released(stream, fields["divisor"])

    def _own(self, name: str) -> Any:
        value = getattr(self if hasattr(self, name) else self._descent, name)
        return [np.asarray(each).tolist() for each in value] if name == "bounds_X" and value is not None else value

    def _divisor(self, divisor: float | None) -> float:
        expected = self._own("n_people") if divisor is None else divisor
        if expected is None:
            raise ArgumentError("n_people or divisor must be given: how many people are expected in a call")
        _check.positive(divisor=expected)
        return float(expected)

    def _declared(self, classes: Sequence[Any] | NDArray[Any] | None, before: NDArray[Any] | None) -> NDArray[Any]:
        """The labels: given here or as a parameter, and the same in all calls."""
        known = self._own("classes") if before is None else before
        if known is None and classes is None:
            raise ArgumentError("classes must be given at the first call of partial_fit")
        if known is None or classes is None:
            return np.asarray(known if classes is None else classes)
        if not np.array_equal(np.unique(np.asarray(known)), np.unique(np.asarray(classes))):
            raise ArgumentError(f"classes={classes!r} must be those of before: {list(np.unique(np.asarray(known)))}")
        return np.asarray(known)

    def _planned_stream(self, on: LedgerStream | None) -> Plan:
        """The noise and the budget; before the data are looked at. On a ledger, of all that it promises."""
        for name, default in UNUSED.items():
            if self._own(name) != default and (name, self._own(name)) != ("momentum", 0):
                raise Unsupported(f"partial_fit: {name}={self._own(name)!r} is not done in a stream: leave {default!r}")
        settings = {name: self._own(name) for name in PLANNED} | {"max_grad_norm": self._clip}
        if on is None:
            return plan("gaussian", **settings, counted=False)
        if settings["epsilon"] is not None:
            raise ArgumentError(f"epsilon={settings['epsilon']!r} must be None with ledger=, which has the budget")
        given = settings["noise_multiplier"] is not None
        planned = plan("gaussian", **(settings if given else settings | {"noise_multiplier": 1.0}), counted=False)
        step, budget, clip = planned.step, on.budget, planned.step.sensitivity
        if not given:
            step = Gaussian(calibrate.sigma(on.whole, settings["steps"], sensitivity=clip), clip)
        delta = planned.delta if budget.delta is None else budget.delta
        return replace(planned, budget=budget, delta=delta, step=step, why="")

    def _begun(
        self,
        planned: Plan,
        classes: NDArray[Any],
        start: Floats,
        path: Path | None,
        on: LedgerStream | None,
        *,
        calls: int = 0,
    ) -> Stream:
        """The stream, before its first call or the next; with a seed, each time with other noise."""
        seed, current = self._own("seed"), CurrentState.of_step(planned.step)
        noise = np.random.default_rng(None if seed is None else [seed, 1, calls] if calls else [seed, 1])
        book: LedgerBook | MemoryBook
        if on is not None:
            book = LedgerBook(on, current, independent(noise))
        else:
            accounts = individual.Filter([], planned.budget.fresh())
            book = MemoryBook(accounts, current, independent(noise), by_id=True)
        run = Run(LinearModel(start, penalty=self._penalty(start)), FullBatch(), book, current)
        return Stream(run, {name: self._own(name) for name in (*FIXED, *UNUSED)}, classes, planned, on, path)

    def _described(self, stream: Stream, divisor: float) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        settings = self.get_params() | {"bounds_X": self._own("bounds_X")}  # type: ignore[attr-defined]
        return {
            "settings": {name: value for name, value in settings.items() if name != "descent"},
            "n_features": self.n_features_in_,
            "names": None if names is None else [str(each) for each in names],
            "divisor": divisor,
            "classes": stream.classes.tolist(),
            "sigma": stream.planned.step.sigma,
            "ledger": None if stream.ledger is None else stream.ledger.on.key,
        }

    def _set_released(self, stream: Stream, divisor: float) -> None:
        state, planned, people = stream.run.current.value, stream.planned, stream.run.book.accounts
        self.classes_, self.n_iter_, self.counting_, self.arrived_ = stream.classes, state.step, None, 0.0
        self.learning_rate_ = self._rate(planned.step, divisor, MOST_RATE)
        self._set_coefficients(stream.model.result)
        self.accounts_ = PersonalAccounts(people, planned.delta, stream=stream.ledger or people)
        self.holder_report_ = self.odometer_ = None
        self.card_ = planned.card(
            FullBatch(),
            divisor=divisor,
            released=state.released,
            streamed=True,
            pace=0.0,
            steps=self.n_iter_,
            learning_rate=self.learning_rate_,
            reproducible=self._own("seed") is not None,
        )
        self.card_ = self.card_ if stream.ledger is None else stream.ledger.on_card(self.card_)


def _on_ledger(ledger: OnLedger, seed: int | None) -> LedgerStream:
    """The stream on its open ledger; Unsupported: there is a seed, or the ledger has no price for Gaussian noise."""
    if not isinstance(ledger.ledger, Ledger):
        raise ArgumentError("ledger: partial_fit needs one that stays open between calls: OnLedger(Ledger.open(...))")
    return LedgerStream(ledger, seed=seed)
