"""The data holder's view of a running service. PRIVATE: accounts, statements, checks, and counts of all requests."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

from almoner.errors import ArgumentError
from almoner.ledger import backup, summary
from almoner.service._analyst_api import DATA_TEXTS, AnalystApi

SHARES = tuple(place / 20 for place in range(21))
_REMEMBER = 15.0  # seconds for which counts of people are kept
_ASIDE = ThreadPoolExecutor(4, thread_name_prefix="holder")  # so that no thread of analysts ever waits for it

Result = TypeVar("Result")


async def in_holder_thread(work: Callable[[], Result]) -> Result:
    """Do what the data holder asks for in threads of its own, which may wait for the ledger; analysts' never do."""
    return await asyncio.get_running_loop().run_in_executor(_ASIDE, work)


class HolderApi:
    """The data holder's questions about a service. All of it is private; the worker does what needs the ledger."""

    def __init__(self, analysts: AnalystApi) -> None:
        self.analysts = analysts
        self.checks: list[dict[str, Any]] = []
        self.checked: str | None = None
        self._people: tuple[float, list[int], int] | None = None

    def hashes(self) -> dict[str, str]:
        return {"the data holder": self.analysts.policy.file.holder.token}

    def _do(self, work: Any) -> Any:
        """Have the worker do it, in the data holder's queue."""

        def opened() -> Any:
            self.analysts.reopen()
            return work()

        return self.analysts.worker.submit("", opened, padded=False).result()

    def people(self) -> dict[str, Any]:
        """Counts of people by how much they have spent, in twentieths of the budget, and of those near the end."""
        kept = self._people
        if kept is None or time.monotonic() - kept[0] > _REMEMBER:
            near = self.analysts.policy.file.holder.near
            *above, ended = self._do(lambda: self.analysts.session.ledger.above([*SHARES, near]))
            kept = self._people = time.monotonic(), above, ended
        _, above, ended = kept
        counts = [more - less for more, less in zip(above, [*above[1:], 0], strict=True)]
        told = {"shares": list(SHARES), "people": counts, "charged": above[0]}
        told |= {"near": self.analysts.policy.file.holder.near, "near_the_end": ended}
        return told | {"share_near_the_end": ended / above[0] if above[0] else 0.0}

    def spending(self) -> dict[str, Any]:
        """The highest prices so far, by analyst and purpose and by day: from the record, which names no person."""
        kinds = ("answered", "training", "update", "watched")
        days, questions, prices = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for entry in self._do(lambda: self.analysts.session.ledger.entries(*kinds)):
            public = entry.public
            who, purpose = str(public.get("analyst") or "the data holder"), str(public.get("purpose") or "")
            price = int(public.get("price", public.get("units", 0)))
            days[str(public["time"])[:10], who] += price
            questions[who, purpose] += 1
            prices[who, purpose] += price
        budget = self.analysts.session.ledger.budget_units
        return {
            "by_analyst": [
                {"analyst": who, "purpose": purpose, "questions": number, "share": prices[who, purpose] / budget}
                for (who, purpose), number in sorted(questions.items())
            ],
            "by_day": [
                {"day": day, "analyst": who, "share": units / budget} for (day, who), units in sorted(days.items())
            ],
            "share": sum(days.values()) / budget,
        }

    def alarms(self) -> list[dict[str, str]]:
        """Alarms: states that a data holder should look at."""
        told: list[tuple[str, str]] = []
        people, states = self.people(), dict(self.analysts.data_state())
        metrics, codes = self.analysts.metrics, ("data", "ledger", "internal", "token")
        refused = {code: metrics.total("refusals", code=code) for code in codes}
        if self._do(lambda: self.analysts.session.ledger.entries("spoke")):
            told.append(("watch", "A watch says that too much is missing: totals are not to be trusted."))
        unread = [each for each in self.analysts.session.misfits if each.unfit]
        told += [("misfits", f"Entries cannot be read: {each.words()}.") for each in unread]
        if refused["data"]:
            states.setdefault("", "unfit")
        told += [("data", DATA_TEXTS[state].format(name)) for name, state in states.items()]
        if refused["ledger"]:
            told.append(("ledger", "The ledger could not be used. If it still can't, start the service again."))
        if refused["internal"]:
            told.append(("internal", f"{refused['internal']} requests failed for no known reason."))
        if refused["token"]:
            told.append(("token", f"{refused['token']} requests had no token, or one that is not valid."))
        if self.checks and not all(check["holds"] for check in self.checks):
            told.append(("verify", "A check of the ledger failed. Trust no account in it."))
        if people["share_near_the_end"] >= 0.01:
            share = f"{people['share_near_the_end']:.1%}"
            told.append(("near", f"{share} of the people who were charged are near the end."))
        return [{"code": code, "text": text} for code, text in told]

    def verify(self, *, replay: bool) -> list[dict[str, Any]]:
        """Check the ledger; with ``replay`` also every charge, from the data. Analysts wait meanwhile."""
        self.checks = list(map(asdict, self._do(lambda: self.analysts.session.verify(replay=replay))))
        self.checked = datetime.now(UTC).isoformat(timespec="seconds")
        return self.checks

    def backup(self) -> dict[str, str]:
        """Copy the ledger's file, whole, to a new one in the policy's folder for backups. Analysts wait meanwhile."""
        service, folder = self.analysts.policy.file.service, self.analysts.policy.plan.folder
        if service.backups is None:
            raise ArgumentError('service.backups must name a folder: [service] backups = "/other/volume/backups"')
        to = folder / service.backups / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S.%fZ}.ledger"
        return {"head": self._do(lambda: backup(self.analysts.session.ledger, to)), "file": str(to)}

    def statement(self, person: object) -> dict[str, Any]:
        """One person's account: for that person, and for the data holder."""
        told = self._do(lambda: self.analysts.session.statement(person))
        return {**asdict(told), "words": told.words}

    def overview(self) -> dict[str, Any]:
        """Terms, head, and each analyst's limits and questions."""
        record = self._do(lambda: summary(self.analysts.session.ledger))
        budget = self.analysts.session.ledger.budget_units
        analysts = []
        for name, terms in self.analysts.policy.analysts.items():
            so_far, expires = self.analysts.public_state.of(name), terms.expires and terms.expires.isoformat()
            told: dict[str, Any] = {"analyst": name, "purpose": terms.purpose, "share": terms.limits.share}
            told["spent"] = sum(int(public["price"]) for public in so_far.answers) / budget
            told |= {"left": so_far.left / budget, "answers": len(so_far.answers), "expires": expires}
            analysts.append(told)
        return {"terms": record.terms, "entries": record.entries, "head": record.head, "analysts": analysts}

    def exposition(self) -> bytes:
        """Counts, latencies and gauges in the text form of Prometheus."""
        people, left = self.people(), {row["analyst"]: row["left"] for row in self.overview()["analysts"]}
        near = f"People who have spent {people['near']:g} of their budget or more."
        readable = "Whether the data are those that the service was opened with, and can be read."
        gauges = [
            ("people_charged", "People who were ever charged.", people["charged"]),
            ("people_near_the_end", near, people["near_the_end"]),
            ("data_readable", readable, not self.analysts.data_state()),
            ("waiting", "Questions that wait.", self.analysts.worker.waiting),
            ("left_share", "What is left to an analyst at worst, as a share of a budget.", left),
            ("alarms", "Alarms that are on.", len(self.alarms())),
        ]
        return self.analysts.metrics.text(gauges)
