"""Fixed batches: who takes part in which steps, by a public rule and the person's own data."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner.errors import ArgumentError
from almoner.training.correlated._kinds import Banded, BandedInverse, PrefixSums

__all__ = ["FixedBatches"]


@dataclass(frozen=True, slots=True)
class FixedBatches:
    """Batches by each person's own id or records: adding or removing a person moves no other person. Public.

    With m batches, batch j takes part in steps j, j + m, j + 2 m, ...: each person once in m steps, m steps apart. How
    many people are in a batch varies and is private; sums are divided by a fixed public number.

    Args:
        size: >= 1. How many people are expected in a batch.
        order: "hash": a batch is the keyed hash of a person's id, or of the person's own records.
        key: makes another division into batches; not secret: nothing in the guarantee is random but the noise.
        noise: in training, the factor of the noise, Banded, BandedInverse or PrefixSums; None: independent noise. Steps
            are those of single batches, and the noise multiplier is that of the noise before it is correlated.
        pace, spend_remainder: in training, as for ``training.FullBatch``.

    Guarantee: a person's batch is a function of that person's own id or records and of public numbers.
    Source: theory 5.2, 5.11
    """

    size: int
    order: Literal["hash"] = "hash"
    key: str = "fixed batches"
    noise: Banded | BandedInverse | PrefixSums | None = field(default=None, kw_only=True)
    pace: float = field(default=1.0, kw_only=True)
    spend_remainder: bool = field(default=True, kw_only=True)

    extra_steps: ClassVar[int] = 0
    rate: ClassVar[None] = None

    def described(self) -> dict[str, Any]:
        """The settings that a resumed run must share. Public."""
        return {"pace": self.pace, "spend_remainder": self.spend_remainder}

    def __post_init__(self) -> None:
        _check.within(0, 1, pace=self.pace)
        if self.noise is not None and not isinstance(self.noise, Banded | BandedInverse | PrefixSums):
            raise ArgumentError(f"noise={self.noise!r} must be Banded, BandedInverse or PrefixSums")
        _check.whole(1, size=self.size)
        _check.one_of(("hash",), order=self.order)
        _check.name(key=self.key)

    def count(self, people: float) -> int:
        """The number of batches for a public number of people.

        Raises:
            ArgumentError: a batch is larger than all people together.
        """
        _check.positive(people=people)
        if self.size > people:
            raise ArgumentError(f"size={self.size!r} must be at most the public number of people, {people:g}")
        return max(1, round(people / self.size))

    def of_ids(self, ids: Iterable[Hashable], *, count: int) -> NDArray[np.int64]:
        """(n,) private: the batch of each person, from the person's id.

        Args:
            ids: (n,) private: whole numbers, strings or bytes that do not depend on who else is there. The number of a
                row in a list of those who are present does: it moves when another person is removed.
            count: public, >= 1. How many batches there are.
        """
        _check.whole(1, count=count)
        return np.array([self._hash(_as_bytes(each)) % count for each in ids], dtype=np.int64)

    def of_records(
        self, records: Sequence[NDArray[Any]], people: NDArray[np.int64] | None, *, count: int, n: int
    ) -> NDArray[np.int64]:
        """(n,) private: the batch of each person, from all of the person's records together, in any order.

        Args:
            records: arrays with the records on the first axis, private.
            people: (records,) whose each record is, 0 to n - 1, private; None: each record is a person.
            count: public, >= 1. How many batches there are.
            n: private. The number of people; someone without records is in batch 0.
        """
        _check.whole(1, count=count)
        rows = [np.ascontiguousarray(part).reshape(len(part), -1).view(np.uint8) for part in records]
        digests = np.array([self._hash(*parts) for parts in zip(*rows, strict=True)], dtype=np.uint64)
        if people is not None:
            totals = np.zeros(n, dtype=np.uint64)
            np.add.at(totals, people, digests)  # modulo 2^64
            digests = totals
        return (digests % np.uint64(count)).astype(np.int64)

    def _hash(self, *parts: Any) -> int:
        digest = blake2b(digest_size=8, key=blake2b(self.key.encode(), digest_size=32).digest())
        for part in parts:
            digest.update(part)
        return int.from_bytes(digest.digest(), "big")


def _as_bytes(value: Hashable) -> bytes:
    """A spelling that no other id has."""
    if isinstance(value, str):
        return b"text " + value.encode()
    if isinstance(value, bytes):
        return b"bytes " + value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return b"number " + str(int(value)).encode()
    raise ArgumentError("ids must be whole numbers, strings or bytes")
