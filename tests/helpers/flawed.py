"""A private gradient descent of forty lines, and the ways in which such programs go wrong."""

import numpy as np

from almoner import audit, filters, individual
from almoner.mechanisms import Gaussian

CLIP, STEPS, SIGMA, PEOPLE = 1.0, 4, 6.0, 30
SHARED = np.random.default_rng(7)


def values(seed=3):
    """{person: (records, 3)} of thirty people."""
    rng = np.random.default_rng(seed)
    return {person: rng.normal(size=(1 + person % 3, 3)) * 2 for person in range(PEOPLE)}


def without(data, person):
    """Everybody else."""
    return {other: rows for other, rows in data.items() if other != person}


def clipped(vector, clip=CLIP):
    """At most so long; a person whose vector is not finite contributes nothing."""
    norm = np.linalg.norm(vector)
    return vector * min(1.0, clip / norm) if np.isfinite(norm) and norm > 0 else np.zeros_like(vector)


class Descent:
    """The right program. Each flaw overrides one part of it."""

    def __init__(self, data):
        self.data, self.people = data, individual.Filter(PEOPLE, filters.Gaussian(mu=1.0))
        self.at, self.step = np.zeros(3), 0
        self.noise = np.random.default_rng()

    def gradient(self, person, rows):
        return clipped((self.at - rows).sum(axis=0))

    def sensitivity(self):
        return CLIP

    def sigma(self):
        return SIGMA

    def draw(self, sigma):
        return self.noise.normal(0, sigma, 3)

    def charge(self, mechanism, norms):
        return self.people.charge(mechanism, norms)

    def divisor(self):
        return PEOPLE

    def goes_on(self):
        return self.step < STEPS

    def total(self, gradients):
        return np.sum([*gradients.values(), np.zeros(3)], axis=0)

    def told(self):
        return []

    def released(self, total, mechanism):
        return audit.released(lambda: total + self.draw(mechanism.sigma), exact=total, mechanism=mechanism)

    def run(self):
        public = []
        while self.goes_on():
            self.step += 1
            mechanism = Gaussian(self.sigma(), self.sensitivity())
            gradients = {person: self.gradient(person, rows) for person, rows in self.data.items()}
            norms = np.zeros(PEOPLE)
            for person, gradient in gradients.items():
                norms[person] = min(np.linalg.norm(gradient), mechanism.sensitivity)
            there = self.charge(mechanism, norms)
            total = self.total({person: each for person, each in gradients.items() if there[person]})
            self.at = self.at - self.released(total, mechanism) / self.divisor()
            public.append(self.at.copy())
        return audit.Outcome([public, self.told()], self.people)


class NotANumber(Descent):
    """Clips with np.clip, which lets NaN through."""

    def gradient(self, person, rows):
        return np.clip((self.at - rows).sum(axis=0) if person else rows[0] * np.nan, -0.5, 0.5)

    def charge(self, mechanism, norms):
        return super().charge(mechanism, np.nan_to_num(norms))


class Infinite(Descent):
    """Divides by an infinite norm."""

    def gradient(self, person, rows):
        with np.errstate(invalid="ignore"):
            vector = (self.at - rows).sum(axis=0) * (1 if person else np.inf)
            return vector / max(1.0, np.linalg.norm(vector))

    def charge(self, mechanism, norms):
        return super().charge(mechanism, np.nan_to_num(norms))


class InferredDomain(Descent):
    """Clips to the largest entry in the data."""

    def sensitivity(self):
        return float(max(np.abs(rows).max() for rows in self.data.values()))


class PaidOnce(Descent):
    """Charges the first step only."""

    def charge(self, mechanism, norms):
        return super().charge(mechanism, norms) if self.step == 1 else np.ones(PEOPLE, bool)


class WrongSensitivity(Descent):
    """Clips to twice what it states."""

    def gradient(self, person, rows):
        return clipped((self.at - rows).sum(axis=0), 2 * CLIP)


class NoiseByBatch(Descent):
    """Scales the noise by how many people there are."""

    def sigma(self):
        return SIGMA * len(self.data) / PEOPLE


class ClipAfterNoise(Descent):
    """Clips the noisy sum in place of people's gradients."""

    def gradient(self, person, rows):
        return (self.at - rows).sum(axis=0)


class SharedGenerator(Descent):
    """Draws each person's augmentation from one generator, so that a person shifts everybody's after them."""

    def __init__(self, data):
        super().__init__(data)
        self.shared = np.random.default_rng(5)

    def gradient(self, person, rows):
        return clipped((self.at - rows + self.shared.normal(size=rows.shape)).sum(axis=0))


class Centred(Descent):
    """Moves all records by the sum over everybody: an impure view."""

    def gradient(self, person, rows):
        return clipped((self.at - rows + np.vstack(list(self.data.values())).sum(axis=0)).sum(axis=0))


class Ranked(Descent):
    """Keeps the records of the largest people only: an impure view, by rank."""

    def gradient(self, person, rows):
        cut = np.median([np.abs(each).sum() for each in self.data.values()])
        return super().gradient(person, rows) * (np.abs(rows).sum() >= cut)


class EachEntry(Descent):
    """Clips every entry, where the stated norm is that of the vector."""

    def gradient(self, person, rows):
        return np.clip((self.at - rows).sum(axis=0), -CLIP, CLIP)


class EachRecord(Descent):
    """Clips records, where a person has several."""

    def gradient(self, person, rows):
        return np.sum([clipped(self.at - row) for row in rows], axis=0)


class RealDivisor(Descent):
    """Divides by how many people there are."""

    def divisor(self):
        return len(self.data)


class ToldCount(Descent):
    """Tells how many people there are."""

    def told(self):
        return [len(self.data)]


class ToldSpends(Descent):
    """Tells what people have spent."""

    def told(self):
        return [self.people.spent()]


class ExactStop(Descent):
    """Stops by a loss without noise."""

    def goes_on(self):
        return self.step < STEPS and (self.step < 2 or sum(rows.sum() for rows in self.data.values()) > TOTAL)


TOTAL = sum(rows.sum() for rows in values().values()) - 1e-9


class SameNoise(Descent):
    """Makes the generator anew in each step."""

    def released(self, total, mechanism):
        exact = np.repeat(total, 12) / 4
        noise = np.random.default_rng(id(self.people)).normal(0, mechanism.sigma, 36)
        return audit.released(lambda: exact + noise, exact=exact, mechanism=mechanism)[::12]


class Seeded(Descent):
    """Draws the same noise in every run."""

    def __init__(self, data):
        super().__init__(data)
        self.noise = np.random.default_rng(0)


class LessNoise(Descent):
    """Divides the noise by the number of people."""

    def draw(self, sigma):
        return super().draw(sigma / PEOPLE)


class NoNoise(Descent):
    """Forgets the noise."""

    def draw(self, sigma):
        return np.zeros(3)


class HalfPaid(Descent):
    """Charges half of each norm."""

    def charge(self, mechanism, norms):
        return super().charge(mechanism, norms / 2)


class RefusedStays(Descent):
    """Charges, and lets those take part who cannot pay."""

    def __init__(self, data):
        super().__init__(data)
        self.people = individual.Filter(PEOPLE, filters.Gaussian(mu=0.2))

    def charge(self, mechanism, norms):
        super().charge(mechanism, norms)
        return np.ones(PEOPLE, bool)


class TwoAccounts(Descent):
    """Opens a fresh account in the middle."""

    def charge(self, mechanism, norms):
        if self.step == 3:
            self.people = individual.Filter(PEOPLE, filters.Gaussian(mu=1.0))
        return super().charge(mechanism, norms)


class FoundGroups(Descent):
    """Releases a sum for each group that is in the data."""

    def released(self, total, mechanism):
        groups = {person: len(rows) for person, rows in self.data.items()}
        exact = np.array([float(groups[person] > 0) for person in groups])
        audit.released(lambda: exact + self.noise.normal(0, SIGMA, len(exact)), exact=exact, mechanism=mechanism)
        return super().released(total, mechanism)


class RaisesOnData(Descent):
    """Refuses data, by an error that anybody sees."""

    def gradient(self, person, rows):
        if person == 0:
            raise ValueError("an entry is out of bounds")
        return super().gradient(person, rows)

    def run(self):
        try:
            return super().run()
        except ValueError as error:
            audit.released(lambda: 0.0, exact=0.0, mechanism=Gaussian(1.0))
            return audit.Outcome(error, self.people)


class Standardised(Descent):
    """Divides by the largest norm in the data."""

    def gradient(self, person, rows):
        longest = {who: np.linalg.norm(each.sum(axis=0)) * (50 if who == 0 else 1) for who, each in self.data.items()}
        return rows.sum(axis=0) * (50 if person == 0 else 1) / max(longest.values())


FLAWS = {
    NotANumber: "not a number",
    Infinite: "not a number",
    InferredDomain: "control flow",
    PaidOnce: "account",
    WrongSensitivity: "sensitivity",
    NoiseByBatch: "control flow",
    ClipAfterNoise: "sensitivity",
    SharedGenerator: "sensitivity",
    Centred: "account",
    Ranked: "sensitivity",
    EachEntry: "sensitivity",
    EachRecord: "sensitivity",
    RealDivisor: "public",
    ToldCount: "public",
    ToldSpends: "public",
    ExactStop: "control flow",
    SameNoise: "noise",
    Seeded: "noise",
    LessNoise: "noise",
    NoNoise: "noise",
    HalfPaid: "account",
    RefusedStays: "account",
    TwoAccounts: "account",
    FoundGroups: "control flow",
    RaisesOnData: "control flow",
    Standardised: "account",
}
"""Each flaw, and a rule that the audit must find broken."""
