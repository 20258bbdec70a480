"""The guarantee of a trained model, in fields, JSON and words. Everything on a card is public."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from bursar._units import shown

__all__ = ["ADJACENCY", "Card"]

ADJACENCY = "add or remove one person, with all of that person's records"


@dataclass(frozen=True, slots=True)
class Card:
    """What was promised, why it holds, and what it was paid with. Every field is public."""

    epsilon: float
    delta: float
    notion: str
    total: float
    """The budget of every account, in the notion's own measure: mu squared, or rho."""
    measure: str
    theorem: str
    algorithm: str
    individual: bool
    sigma: float
    """Standard deviation of the noise on each sum of gradients, to begin with where ``released`` lists others."""
    noise_multiplier: float
    max_grad_norm: float
    steps: int
    extra_steps: int
    learning_rate: float
    average: float
    divisor: float
    divisor_from: str
    count_sigma: float | None
    """Standard deviation of the noise on the count of people, where one was paid for."""
    classes_from: str
    people_from: str
    seed: str
    preprocessing: str = "none: the caller declares that the features were made without looking at the data"
    released: tuple[str, ...] = ()
    """What was released, and how often, where that is not the same in every step."""
    adjacency: str = ADJACENCY
    scope: str = "the model and every iterate; nothing that the data holder sees about single people"

    def to_dict(self) -> dict[str, Any]:
        """Fields by name."""
        return asdict(self) | {"charged_at_most": self.charged_at_most, "reproducible": self.reproducible}

    def to_json(self) -> str:
        """The card as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @property
    def reproducible(self) -> bool:
        """Whether the noise can be drawn again by whoever knows the seed: then nothing is private."""
        return self.seed.startswith("reproducible")

    @property
    def _promise(self) -> str:
        return f"({shown(self.epsilon, 6)}, {shown(self.delta, 6)})"

    @property
    def charged_at_most(self) -> str:
        """Who was charged what, at most."""
        most = f"{self.measure} = {shown(self.total, 6)}, which is {self._promise}-DP"
        if self.individual:
            return f"each person, for what that person contributed, and nobody more than {most}"
        return f"everybody the same, the worst case of every step: {most}"

    def to_markdown(self) -> str:
        """The card in words."""
        clip, noise = f"{self.max_grad_norm:g}", shown(self.sigma, 6, down=True)
        taken = f"{self.steps} steps" + (
            f" and {self.extra_steps} more" if self.individual and self.extra_steps else ""
        )
        count = (
            "" if self.count_sigma is None else f" (noise of standard deviation {self.count_sigma:.4g} on the count)"
        )
        averaged = (
            f"the mean of the last {self.average:.0%} of the iterates" if self.average > 0 else "the last iterate"
        )
        when = "to begin with; what was released is listed below" if self.released else "in every step"
        lines = [
            "# What this model promises",
            "",
            f"**{self._promise}-differential privacy**: whoever sees the model learns almost "
            "the same about you whether or not your records were in the data.",
            "",
            f"- **Between which data sets**: {self.adjacency}.",
            f"- **Who counts as a person**: {self.people_from}.",
            f"- **What is covered**: {self.scope}.",
            f"- **Notion**: {self.notion}.",
            f"- **Why it holds**: {self.theorem}.",
            f"- **How it was trained**: {self.algorithm}; {taken}, learning rate {self.learning_rate:g}; "
            f"the model is {averaged}.",
            f"- **Noise**: each person's gradient is clipped to L2 norm {clip}; the sum of all gets Gaussian noise of "
            f"standard deviation {noise} ({shown(self.noise_multiplier, 6, down=True)} times the clip) {when}.",
            f"- **Divisor of the sums**: {self.divisor:.10g}, {self.divisor_from}{count}.",
            f"- **Who was charged what**: {self.charged_at_most}.",
            f"- **Labels**: {self.classes_from}.",
            f"- **Preprocessing**: {self.preprocessing}.",
            f"- **Randomness**: {self.seed}.",
        ]
        lines += [f"- **Released**: {each}." for each in self.released]
        if self.reproducible:
            lines += ["", "**A seed was given: whoever knows it can take the noise off. This model is not private.**"]
        return "\n".join(lines) + "\n"
