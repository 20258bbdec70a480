"""``LogisticRegression.partial_fit``: a linear model that is released again and again, while people come."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets

from almoner import _check, individual
from almoner.errors import ArgumentError, Unsupported
from almoner.mechanisms import Gaussian
from almoner.training._accounts.present_people import ids_and_rows
from almoner.training._card import Card, build_card
from almoner.training._linear.gradients import LogisticGradients
from almoner.training._linear.inputs import labels_of, validated
from almoner.training._linear.noise_plan import Plan, check_rate, plan, rate_of
from almoner.training._linear.stream_folder import Saved, StreamFolder
from almoner.training._linear.stream_state import StreamedAccounts, StreamState, plain, planned_on, restored, stream_on
from almoner.training._on_ledger.run import OnLedger
from almoner.training._on_ledger.stream import LedgerStream
from almoner.training._run.ending import Interruptions

__all__ = ["PartialFit", "StreamedAccounts"]

Floats = NDArray[np.float64]
Features: TypeAlias = "ArrayLike | sparse.csr_matrix"

FIXED = ("epsilon", "delta", "max_grad_norm", "noise_multiplier", "steps", "fit_intercept", "seed")
"""Settings that the first call decides; the others may change between calls, as long as they follow from no data."""

UNUSED = {"individual": True, "extra_steps": 0, "momentum": 0.0, "decay": 0.0, "stop_when_inactive": None}
"""Settings that must be as they are by default: a stream has an account for each person, and no last step."""


class PartialFit:
    """The method ``partial_fit`` of an estimator whose settings are those of ``LogisticRegression``."""

    classes_: NDArray[Any]
    coef_: Floats
    intercept_: Floats
    learning_rate_: float
    n_iter_: int
    card_: Card
    accounts_: Any
    counting_: Any
    holder_report_: Any
    odometer_: Any
    _descent: Any
    _stream: StreamState | None

    def partial_fit(
        self,
        X: Features,
        y: ArrayLike,
        people: Sequence[Hashable] | ArrayLike | None = None,
        *,
        classes: Sequence[Any] | NDArray[Any] | None = None,
        divisor: float | None = None,
        checkpoint: str | Path | None = None,
        ledger: OnLedger | None = None,
    ) -> Self:
        """Take one step on the people who are there, charge them alone, and release the model.

        Each call is one update of a stream, as of ``training.Stream``: a person who is in three of two hundred calls
        pays for three. ``steps`` is in how many calls a person can contribute a gradient of norm ``max_grad_norm``; the
        noise follows from it, and the stream itself never ends. The model is the last iterate; ``average`` and ``pace``
        of ``descent`` are not used. ``learning_rate`` and ``n_people`` may change between calls; a learning rate of
        None is at most 4.

        Args:
            X: (rows, features) array or CSR matrix, private, finite; there may be no rows, and the model is released
                all the same.
            y: (rows,) labels, private.
            people: (rows,) private: an id for each row, which stays with its person in all calls: whole numbers,
                texts, or anything hashable. All rows of a person in a call are one contribution.
            classes: public. The labels; at the first call, here or as a parameter of the estimator.
            divisor: public. How many people are expected in this call; None: ``n_people``.
            checkpoint: at the first call. A folder, private: each call is on the disk before the model shows it, and
                ``resume`` goes on from there, in another process too. It holds the accounts of all people, and is
                written in full each time: with millions of people, charge a ledger.
            ledger: at the first call, with epsilon=None. The accounts that questions and trainings charge too, in an
                open ledger; people are named as there. See ``training.OnLedger``.

        Raises:
            ArgumentError, Unsupported: before anybody is charged.

        Guarantee: the model after every call is together as private as the budget says, for adding or removing any one
            person with all of that person's rows in all calls. Who comes, and with which rows, may depend on earlier
            models, if each person's rows depend on nothing of anybody else's but these.
        Source: theory 5.1 to 5.3, 5.7; Feldman & Zrnic (2021), Theorem 4.5.
        """
        stream: StreamState | None = getattr(self, "_stream", None)
        if stream is None and hasattr(self, "coef_"):
            raise ArgumentError(
                "partial_fit: this model was made by fit, or is a copy: it has no accounts to go on with. Go on with "
                "the model itself, or begin another"
            )
        if stream is not None:
            stream.process.check("this model")
            if checkpoint is not None or ledger is not None:
                raise ArgumentError("checkpoint and ledger are given at the first call of partial_fit, or to resume")
        check_rate(self._own("learning_rate"))
        expected = self._divisor(divisor)
        declared = self._declared(classes, None if stream is None else stream.classes)
        if people is None:
            raise ArgumentError("people must be given, an id for each row: who comes again must be known")
        self._refuse_changes(stream)
        planned = self._planned_stream(ledger is not None) if stream is None else stream.planned
        X, y = validated(self, X, y, reset=stream is None, least_rows=0)
        labels = np.asarray(y)
        if len(labels):
            check_classification_targets(labels)
        found, codes = labels_of(labels, declared)
        ids, rows = ids_and_rows(people, len(codes))
        intercept = bool(self._own("fit_intercept"))
        gradients = LogisticGradients(
            X, codes, len(found), intercept=intercept, people=np.asarray(rows, dtype=np.int64)
        )
        if stream is None:
            folder = None if checkpoint is None else StreamFolder(checkpoint, resume=False)
            on, start = stream_on(ledger, self._own("seed")), gradients.start
            stream = self._stream = self._begun(planned, found, start, folder, on, self._described(expected))
        with Interruptions(stream.folder or stream.ledger) as until, stream.alone():
            until.wait()  # the call is told when it is on the disk
            stream.update(ids, gradients, self._rate(stream, expected) / expected, self._described(expected))
            self._set_released(stream, expected)
        return self

    @classmethod
    def resume(cls, checkpoint: str | Path, *, ledger: OnLedger | None = None) -> Self:
        """Go on from the folder of a model that ``partial_fit`` began with ``checkpoint=``.

        Args:
            checkpoint: the folder, private. To go on from two copies of it is to spend the same budget twice; on a
                ledger the older copy is refused.
            ledger: the one that the model was charged to, open; None where it has a budget of its own.

        Returns:
            A model with the settings, parameters and accounts of the last call.

        Raises:
            ArgumentError: there is no such folder, it is in use, or the ledger is not the one that it began on.
            DataError: what is in the folder can't be read; nothing was changed.
        """
        folder = StreamFolder(checkpoint, resume=True)
        with folder.alone(None):
            saved = folder.load()
            model = cls()
            model.set_params(**saved.fields["settings"])  # type: ignore[attr-defined]
            model._restore(folder, saved, ledger)
        return model

    def _restore(self, folder: StreamFolder, saved: Saved, ledger: OnLedger | None) -> None:
        """Take over what a folder holds."""
        fields = saved.fields
        if fields["ledger"] != (None if ledger is None else ledger.key):
            raise ArgumentError(f"ledger: this model began with the stream {fields['ledger']!r}, and goes on with it")
        self.n_features_in_ = fields["n_features"]
        if fields["names"] is not None:
            self.feature_names_in_ = np.array(fields["names"], dtype=object)
        planned = replace(
            self._planned_stream(ledger is not None), step=Gaussian(fields["sigma"], self._own("max_grad_norm"))
        )
        accounts, planned = restored(saved, planned)
        on = stream_on(ledger, self._own("seed"))
        stream = StreamState(
            settings={name: self._own(name) for name in (*FIXED, *UNUSED)},
            classes=np.asarray(fields["classes"]),
            planned=planned,
            accounts=accounts,
            ledger=on,
            noise=self._generator(saved.number),
            parameters=saved.parameters,
            updates=saved.number,
            folder=folder,
        )
        if on is not None:
            stream.planned = replace(planned_on(planned, on, steps=1, noise_multiplier=None), step=planned.step)
            stream.begin(fields)
        self._stream = stream
        self._set_released(stream, fields["divisor"])

    def _own(self, name: str) -> Any:
        """A parameter of the estimator, or of its descent."""
        return getattr(self if hasattr(self, name) else self._descent, name)

    def _divisor(self, divisor: float | None) -> float:
        """The number of people who are expected."""
        expected = self._own("n_people") if divisor is None else divisor
        if expected is None:
            raise ArgumentError("n_people or divisor must be given: how many people are expected in a call")
        _check.positive(divisor=expected)
        return float(expected)

    def _rate(self, stream: StreamState, divisor: float) -> float:
        """The learning rate of a call."""
        given, step = self._own("learning_rate"), stream.planned.step
        return rate_of(given, step, self._own("steps"), divisor)

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

    def _planned_stream(self, on_ledger: bool) -> Plan:
        """The noise and the budget; before the data are looked at. On a ledger, as if its budget were for nobody."""
        for name, default in UNUSED.items():
            if self._own(name) != default:
                raise Unsupported(f"partial_fit: {name}={self._own(name)!r} is not done in a stream: leave {default!r}")
        if self._own("seed") is not None:
            _check.whole(0, seed=self._own("seed"))
        names = ("epsilon", "delta", "noise_multiplier", "max_grad_norm", "steps")
        settings = {name: self._own(name) for name in names}
        if on_ledger and settings["epsilon"] is not None:
            raise ArgumentError(
                f"epsilon={settings['epsilon']!r} must be None with ledger=: people pay with what they have left there"
            )
        if on_ledger and settings["noise_multiplier"] is None:
            settings["noise_multiplier"] = 1.0  # the ledger's budget decides
        return plan("gaussian", **settings, counted=False)

    def _refuse_changes(self, stream: StreamState | None) -> None:
        for name, value in ({} if stream is None else stream.settings).items():
            if self._own(name) != value:
                raise ArgumentError(f"{name}={self._own(name)!r} must be as at the first call: {value!r}")

    def _begun(
        self,
        planned: Plan,
        classes: NDArray[Any],
        start: Floats,
        folder: StreamFolder | None,
        ledger: LedgerStream | None,
        described: dict[str, Any],
    ) -> StreamState:
        steps, multiplier = self._own("steps"), self._own("noise_multiplier")
        if ledger is not None:
            planned = planned_on(planned, ledger, steps=steps, noise_multiplier=multiplier)
        stream = StreamState(
            settings={name: self._own(name) for name in (*FIXED, *UNUSED)},
            classes=classes,
            planned=planned,
            accounts=None if ledger is not None else individual.Filter([], planned.budget.fresh()),
            ledger=ledger,
            noise=self._generator(0),
            parameters=start,
            folder=folder,
        )
        with stream.alone():
            stream.begin(described)
        return stream

    def _generator(self, calls: int) -> np.random.Generator:
        """Of the noise; with a seed, another one after each time that the stream was resumed."""
        seed = self._own("seed")
        return np.random.default_rng(None if seed is None else [seed, 1, calls] if calls else [seed, 1])

    def _described(self, divisor: float) -> dict[str, Any]:
        """The parameters of the estimator that a folder keeps."""
        names, settings = getattr(self, "feature_names_in_", None), self.get_params()  # type: ignore[attr-defined]
        return {
            "settings": plain({name: value for name, value in settings.items() if name != "descent"}),
            "n_features": self.n_features_in_,
            "names": None if names is None else [str(each) for each in names],
            "divisor": divisor,
        }

    def _set_released(self, stream: StreamState, divisor: float) -> None:
        """The public attributes of the model, and its accounts."""
        intercept = bool(self._own("fit_intercept"))
        weights = stream.parameters[:-1] if intercept else stream.parameters
        columns = stream.parameters.shape[1]
        self.classes_, self.n_iter_, self.counting_ = stream.classes, stream.updates, None
        self.learning_rate_ = self._rate(stream, divisor)
        self.coef_ = np.ascontiguousarray(weights.T)
        self.intercept_ = stream.parameters[-1].copy() if intercept else np.zeros(columns)
        self.accounts_ = StreamedAccounts(stream.accounts, stream.planned.delta, stream.ledger)
        self.holder_report_ = self.odometer_ = None
        step = stream.planned.step
        self.card_ = build_card(
            stream.planned.budget.fresh(),
            delta=stream.planned.delta,
            why=stream.planned.why,
            individual=True,
            spend_remainder=True,
            sample_rate=None,
            streamed=True,
            sigma=step.sigma,
            noise_multiplier=step.sigma / step.sensitivity,
            max_grad_norm=step.sensitivity,
            steps=stream.updates,
            extra_steps=0,
            learning_rate=self.learning_rate_,
            average=0.0,
            divisor=divisor,
            count_sigma=None,
            people_from="group",
            classes_from="caller",
            reproducible=self._own("seed") is not None,
            record="" if stream.ledger is None else stream.ledger.record,
            released=((step, stream.updates),),
        )
