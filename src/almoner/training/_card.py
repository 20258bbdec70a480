"""The guarantee of a trained model, as data; ``to_markdown`` and ``to_html`` put it into words. All of it is public."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from almoner import _html, filters, mechanisms
from almoner._units import shown
from almoner.accounting import meaning
from almoner.accounting.meaning import sentence
from almoner.errors import ArgumentError, DataError
from almoner.mechanisms import Gaussian, Mechanism, SampledGaussian
from almoner.odometers import FeldmanZrnic, GaussianRestarts, Odometer

Boundary = Odometer | FeldmanZrnic | GaussianRestarts  # odometers that a running bound is read off

ADJACENCY = "add or remove one person, with all of that person's records"

NOTIONS = {
    "Gaussian": "Gaussian differential privacy, converted exactly",
    "Zcdp": "zCDP, a Rényi bound at all orders at once",
    "RenyiOrder": "Rényi differential privacy at one order",
    "RenyiCurve": "Rényi differential privacy at several orders",
    "Renyi": "a mixture of Rényi bounds at several orders",
    "Residue": "a Gaussian budget of which each step takes a residue",
    "Planned": "a number of planned steps, by privacy loss distributions",
}  # the notions of the budgets, by class

LISTED = 5  # so many kinds of releases are listed one by one; of more, those that differ in the clip alone share a line
ODOMETER = "an odometer: a bound that holds whenever the training is stopped"

PEOPLE = {
    "record": "each record is treated as a different person; the caller declared this, and it cannot be checked",
    "group": "all records of one person together, as the caller says whose each is",
    "period": "a person in one period, of which the ledger has a budget each; who is in several is promised less",
}

CLASSES = {
    "caller": "given by the caller, public",
    "schema": "named in the schema, public",
    "data": "read from the data, and declared public by not giving any; the promise does not cover them",
}

PREPROCESSING = {
    "caller": "none: the caller declares that the features were made without looking at the data",
    "schema": "row by row, by the public schema: nothing was read from the data",
    "drawings": "image by image, by pictures that a public rule draws: nothing was read from the data",
}

UNCHECKED = {
    "record": "That each row is a different person. The caller said so.",
    "group": "That all rows of a person carry the same name. The caller said whose each row is.",
    "period": "That all rows of a person in a period carry the same name. The caller said whose each row is.",
    "caller": "That the features were made without looking at the data. The caller said so.",
    "schema": "That the schema was written without looking at the data.",
    "public": "That the public records are public, and were chosen without looking at the data. The caller said so.",
    "sampling": "That the sampling charges each person for all that this person contributes. The caller wrote it.",
}  # declarations of the caller that nothing can check, by the fields of the card that say it

READER = "these numbers limit how much more a reader of the model learns about you because your {} were in the data."
MEANING = "In other words"
NOT_PRIVATE = "A seed was given: anybody who knows it can take the noise off. This model is not private."
SCOPE = "the model and every iterate; nothing that the data holder sees about single people"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The promise of a trained model, why it holds, and its price. Every field is public."""

    epsilon: float
    delta: float
    notion: str
    """The class of the budget: a filter."""
    budget: str
    """The budget of every account, as code."""
    measure: str
    total: float
    """The budget of every account, in the notion's own measure: mu squared, or rho."""
    theorem: str
    why: str = ""
    """Why this filter was recommended; empty where the caller chose it."""
    individual: bool
    """True if each person is charged for their own contributions, False if all for the worst case."""
    spend_remainder: bool
    sample_rate: float | None
    """The probability with which each person is sampled in a step, to begin with; None: all people in every step."""
    sigma: float
    """Standard deviation of the noise on each sum of gradients, to begin with where ``released`` lists others."""
    noise_multiplier: float
    max_grad_norm: float
    steps: int
    extra_steps: int
    learning_rate: float
    average: float
    divisor: float
    count_sigma: float | None
    """Standard deviation of the noise on the count of people, where one was paid for; None: the divisor was given."""
    people_from: Literal["record", "group", "period"]
    classes_from: Literal["caller", "schema", "data"]
    preprocessing: Literal["caller", "schema", "drawings"] = "caller"
    reproducible: bool
    """True if a seed was given: anybody who knows it can draw the noise again, and then nothing is private."""
    released: tuple[tuple[Mechanism, int], ...] = ()
    """Mechanisms that were released, and how often, where that is not the same in every step."""
    adjacency: str = ADJACENCY
    guess: float | None = None
    """The largest chance that a guess whether a person's data were used is right, at even odds; None: not known."""
    batches: str = ""
    """The fixed batches and the factor of correlated noise, as code; empty where there are none."""
    streamed: bool = False
    """True if each step was on the people who came then, not on all of one table."""
    record: str = ""
    """The training's name on the ledger that it was charged to, and the entry that reserved; empty: on no ledger."""
    pace: float = 0.0
    """Evenness with which each person's budget was spread over the steps that were left: 1 evenly, 0 not at all."""
    momentum: float = 0.0
    decay: float = 0.0
    """The share of the steps, the last ones, over which the learning rate fell to zero."""
    sampling: str = ""
    """The sampling of people, as code, where it is a class of the caller's; empty: one of the package's."""
    tuned: str = ""
    """The choice of the settings among several runs, in words; empty where there was one run."""
    public: str = ""
    """The public records whose gradients were added, in words; empty where there were none."""
    version: str = field(default="", compare=False)
    """The version of Almoner that wrote the model's folder, the UTC day, and the SHA-256 of its weights; else empty."""
    day: str = field(default="", compare=False)
    weights: str = field(default="", compare=False)

    def on_ledger(self, record: str, periods: object) -> "Card":
        """The card of a model that people paid for on a ledger with these periods; None: one budget for good."""
        if periods is None:
            return replace(self, record=record)
        return replace(self, record=record, guess=None, people_from="period", adjacency=f"{ADJACENCY} of one period")

    def to_dict(self) -> dict[str, Any]:
        """Fields by name, as plain values."""
        released = [{**mechanisms.to_fields(mechanism), "times": times} for mechanism, times in self.released]
        return {**asdict(self), "released": released}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> "Card":
        """The card that ``to_dict`` described; DataError where fields are missing, not known or not those of a card."""
        from almoner._reading import read  # which most processes never need

        try:
            read(_model(), described)
            released = described["released"]
            fields = [{name: value for name, value in each.items() if name != "times"} for each in released]
            listed = [(mechanisms.from_fields(one), each["times"]) for one, each in zip(fields, released, strict=True)]
            card = cls(**{**described, "released": tuple(listed)})
            numbers = np.asarray([card.epsilon, card.delta, card.sigma, card.total, *(n for _, n in listed)], float)
        except (TypeError, KeyError, ValueError, ArgumentError) as error:
            raise DataError("this is not a card of a model") from error
        if not (bool((numbers >= 0).all()) and card.delta <= 1):
            raise DataError("this is not a card of a model: its numbers are out of their ranges")
        return card

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema of a card, as ``to_json`` writes it."""
        return _model().json_schema()  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """The card as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @property
    def charged_at_most(self) -> str:
        """Who was charged what, at most, in words."""
        most = f"{self.measure} = {shown(self.total, 6)}, which is {self._promise}-DP"
        if self.tuned:
            most = f"{self.measure} = {shown(self.total, 6)} in one run; all runs and the choice are {self._promise}-DP"
        if self.individual:
            return f"each person, for what that person contributed, and nobody more than {most}"
        return f"all people the same, the worst case of every step: {most}"

    def to_markdown(self) -> str:
        """The card in words."""
        lines = [
            "# What this model promises",
            "",
            f"**{self._promise}-differential privacy**: {self._reader}",
            "",
            *(f"- **{name}**: {said}." for name, said in self._facts()),
        ]
        if self.reproducible:
            lines += ["", f"**{NOT_PRIVATE}**"]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """The card as a page that stands alone: public, for whoever judges the model."""
        declared = (self.people_from, self.preprocessing, self.sampling and "sampling", self.public and "public")
        return _html.render(
            "card.html",
            card=self,
            promise=self._promise,
            reader=self._reader,
            not_private=NOT_PRIVATE,
            facts=self._facts(),
            words="" if self.guess is None else sentence(self.guess),
            unchecked=[UNCHECKED[each] for each in declared if each in UNCHECKED],
        )

    def _facts(self) -> list[tuple[str, str]]:
        system = "noise from a generator seeded by the operating system"
        told = (
            (MEANING, "" if self.guess is None else sentence(self.guess).removesuffix(".")),
            ("Which model", self.weights and f"weights.npz with SHA-256 {self.weights}"),
            ("Written", self.day and f"{self.day}, by almoner {self.version}"),
            ("Between which data sets", self.adjacency),
            ("Who counts as a person", PEOPLE[self.people_from]),
            ("What is covered", SCOPE),
            ("Notion", self._notion()),
            ("Why this filter", self.why.removesuffix(".")),
            ("Why it holds", self._theorems()),
            ("How it was trained", self._training()),
            ("Public records", self.public),
            ("Tuning", self.tuned),
            ("Noise", self._noise()),
            ("Divisor of the sums", self._divisor()),
            ("Who was charged what", self.charged_at_most),
            ("Ledger", f"{self.record}: what people have there paid for this model" if self.record else ""),
            ("Labels", CLASSES[self.classes_from]),
            ("Preprocessing", PREPROCESSING[self.preprocessing]),
            ("Randomness", "reproducible: not private" if self.reproducible else system),
            *(("Released", said) for said in _in_words(self.released)),
        )
        return [(name, said) for name, said in told if said]

    @property
    def _reader(self) -> str:
        return READER.format("records of a period" if self.people_from == "period" else "records")

    @property
    def _promise(self) -> str:
        return f"({shown(self.epsilon, 6)}, {shown(self.delta, 6)})"

    def _notion(self) -> str:
        notion = NOTIONS.get(self.notion)
        return f"{ODOMETER}; {self.budget}" if notion is None else f"{notion}; the filter {self.budget}"

    def _theorems(self) -> str:
        accounts = ["theory 5.1 for accounts per person"] if self.individual else []
        samples = [] if self.sample_rate is None or self.sampling else ["theory 5.6 for Poisson samples"]
        batches = ["theory 5.11 for correlated noise"] if self.batches else []
        return "; ".join([self.theorem, *accounts, *samples, *batches])

    def _training(self) -> str:
        sampling = "all people in every step"
        if self.sample_rate is not None:
            passes = f"{self.divisor:.6g} in a step on average, {self.steps * self.sample_rate:.4g} epochs"
            sampling = f"Poisson sampling of people, DP-SGD ({passes if self._rates() < 2 else 'at several rates'})"
        if self.batches:
            sampling = f"fixed batches by people's own records, nobody sampled: {self.batches}"
        if self.streamed:
            sampling = "each step on the people who came then"
        if self.sampling:
            sampling = f"people in a step as the caller's {self.sampling} says"
        accounts = "all people charged the worst case"
        if self.individual:
            accounts = f"an account for each person, {self._remainder()}"
        more = f" and {self.extra_steps} more" if self.individual and self.extra_steps else ""
        model = f"the mean of the last {self.average:.0%} of the iterates" if self.average > 0 else "the last iterate"
        rate = f"learning rate {self.learning_rate:g}"
        rate += f", falling to zero over the last {self.decay:.0%} of the steps" if self.decay else ""
        rate += f", momentum {self.momentum:g}" if self.momentum else ""
        steps = f"{self.steps} steps{more}, {rate}"
        return f"private gradient descent, {sampling}; {accounts}; {steps}; the model is {model}"

    def _remainder(self) -> str:
        if self.sampling:
            return "charged by that sampling"
        if not self.spend_remainder:
            return "a person who cannot pay is left out"
        if not self.pace:
            return "the last contribution spends the remainder"
        share = "evenly" if self.pace == 1 else f"with pace {self.pace:g}"
        return f"what a person has left is spread {share} over the steps that are left"

    def _noise(self) -> str:
        when = "to begin with; what was released is listed below" if self.released else "in every step"
        return (
            f"each person's gradient is clipped to L2 norm {self.max_grad_norm:g}; the sum of all gets Gaussian noise "
            f"of standard deviation {shown(self.sigma, 6, down=True)} "
            f"({shown(self.noise_multiplier, 6, down=True)} times the clip) {when}"
            + (", multiplied by the inverse of the factor" if self.batches else "")
        )

    def _divisor(self) -> str:
        source = "a public number given by the caller" + (" with the last update" if self.streamed else "")
        if self._rates() > 1:
            source = "to begin with, and times the rate of each step: a public number given by the caller"
        if self.count_sigma is not None:
            noise = f"noise of standard deviation {self.count_sigma:.4g} on the count"
            source = f"a noisy count of the people, paid for by each of them ({noise})"
        return f"{self.divisor:.10g}, {source}"

    def _rates(self) -> int:
        return len({each.sample_rate for each, _ in self.released if isinstance(each, SampledGaussian)})


def _model() -> Any:
    from almoner._reading import model_of

    return model_of(Card, released=list[dict[str, Any]])


def _in_words(released: tuple[tuple[Mechanism, int], ...]) -> list[str]:
    """List the releases, a line each; steps that differ in the clip alone share a line, where there are many."""
    if len(released) <= LISTED:
        return [f"{times} times {mechanism!r}" for mechanism, times in released]
    clips: dict[str, list[tuple[float, int]]] = {}
    lines = []
    for mechanism, times in released:
        if isinstance(mechanism, Gaussian) and mechanism.sensitivity:
            multiple = shown(mechanism.sigma / mechanism.sensitivity, 6, down=True)
            clips.setdefault(multiple, []).append((mechanism.sensitivity, times))
        else:
            lines.append(f"{times} times {mechanism!r}")
    for multiple, steps in clips.items():
        least, most = min(clip for clip, _ in steps), max(clip for clip, _ in steps)
        among = f"{least:g}" if least == most else f"{least:.4g} to {most:.4g}"
        lines.append(f"{sum(times for _, times in steps)} times Gaussian noise of {multiple} times sensitivity {among}")
    return lines


def worst_case(odometer: Boundary | None, released: Mapping[Mechanism, int]) -> Boundary:
    """An odometer that was charged the worst case of all that was released. Public."""
    if odometer is None:
        raise ArgumentError("give a budget or an odometer")
    worst = odometer.fresh()
    for mechanism, times in released.items():
        for step, count in ((mechanism, times),) if isinstance(worst, Odometer) else ((mechanism, 1),) * times:
            worst.charge(mechanisms.Repeated(step, count) if count > 1 else step)
    return worst


def build_card(budget: filters.Filter | Boundary, *, delta: float | None, **training: Any) -> Card:
    """The card of a model, with all its other fields by name. Everything in it is public.

    The budget is a fresh filter, what each person could spend; or an odometer that was charged the worst case. Raises
    ArgumentError where delta is missing, or is not the budget's own.

    Guarantee: the epsilon and delta on the card are those of the budget, which no account exceeds, or the bound of the
        odometer for the worst case of all that was released.
    Source: theory 3.2, 3.3, and the theorem of the budget's notion.
    """
    if budget.delta is not None and delta not in (None, budget.delta):
        raise ArgumentError(f"delta={delta!r}: the budget {budget!r} is stated at its own delta={budget.delta:g}")
    if isinstance(budget, filters.Filter):
        promise = budget.notion.statement(delta)
        left: Any = budget.left
        measure = budget.notion.measure if np.ndim(left) == 0 else "epsilon"
        stated: dict[str, Any] = {
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "notion": type(budget).__name__,
            "measure": measure,
            "total": promise.epsilon if measure == "epsilon" else float(left),
            "theorem": promise.theorem,
            "guess": meaning.of(budget.tradeoff()).guess(),
        }
    else:
        epsilon, theorem = budget.epsilon(), "theory 6.1 to 6.3, 6.8"
        stated = {"epsilon": epsilon, "delta": budget.delta, "notion": f"odometers.{type(budget).__name__}"}
        stated |= {"measure": "epsilon", "total": epsilon, "theorem": theorem}
    return Card(budget=repr(budget), **stated, **training)
