"""Findings of an audit, for the data holder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from almoner._private import MARK

__all__ = ["Finding", "Report"]


@dataclass(frozen=True)
class Finding:
    """A rule that is broken. PRIVATE: it can tell what a person's data are.

    Fields:
        person: of whom; None: of the run.
        rule: "control flow": other calls, or another order, without the person; "public": something public does not
            follow from what was released; "sensitivity": a call's exact value moves further than stated; "account": all
            calls together reveal more than was paid; "not a number": a person's data make a sum infinite or NaN;
            "noise": less noise than stated, used twice, or the same in every run.
        call: which release, from 1; 0: all together.
        says: how.
    """

    person: Any = field(repr=False)
    rule: str
    call: int
    says: str = field(repr=False)

    def __str__(self) -> str:
        where = f"release {self.call}: " if self.call else ""
        return f"{self.rule}: {where}{self.says}"


@dataclass(frozen=True)
class Report:
    """The findings of a replay. PRIVATE: for the data holder.

    Fields:
        findings: rules that are broken.
        calls: how many releases the recorded run had.
        people: how many people were removed.
        revealed: of each comparison the person, what all calls revealed, what the account paid, both None without an
            account, and the largest shift as a share of its call's sensitivity.
    """

    findings: Sequence[Finding] = field(repr=False)
    calls: int
    people: int
    revealed: Sequence[tuple[Any, float | None, float | None, float]] = field(repr=False)

    @property
    def holds(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    @property
    def rules(self) -> set[str]:
        """The rules that are broken."""
        return {finding.rule for finding in self.findings}

    @property
    def largest(self) -> float:
        """The largest shift of a call, as a share of its stated sensitivity; at most 1 where nothing was found."""
        return max((share for *_, share in self.revealed), default=0.0)

    @property
    def tightest(self) -> float | None:
        """The largest share of what an account paid that was revealed; None without accounts, or where nothing was."""
        shares = [revealed / paid for _, revealed, paid, _ in self.revealed if revealed is not None and paid]
        return max(shares, default=None)

    def __str__(self) -> str:
        """The findings, one line each. PRIVATE."""
        lines = [f"{MARK}: {self.calls} releases, {self.people} people removed, {len(self.findings)} findings"]
        if self.tightest is not None:
            lines.append(
                f"revealed of what was paid, at most: {self.tightest:.4f}; shift of sensitivity: {self.largest:.4f}"
            )
        named: dict[str, int] = {}
        for finding in self.findings:
            named[str(finding)] = named.get(str(finding), 0) + 1
        return "\n".join(lines + [f"{line} ({times} times)" if times > 1 else line for line, times in named.items()])
