"""The data holder's view of a running service. PRIVATE: accounts, statements, checks, and counts of all requests."""

import asyncio
import json
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from os import SEEK_END
from typing import Any, TypeVar

from almoner.errors import AlmonerError, ArgumentError
from almoner.ledger import backup, summary
from almoner.service._analyst_api import DATA_TEXTS, AnalystApi
from almoner.service._bodies import Refused
from almoner.service.policies import Right, in_force

_LOG = logging.getLogger("almoner.service")
SHARES = tuple(place / 20 for place in range(21))
LOOKS = 5.0  # seconds between two looks at ledger and data
_COUNTS = 60.0  # seconds, or 40 steps, between two counts of people: each takes whole steps, of which nobody learns
_PATIENCE = 1.0  # seconds for which metrics and alarms wait for a look
_WARNING = timedelta(days=7)  # before a token ends
_NUMBERS = ("misfits", "internal", "token", "near")  # alarms whose texts have numbers, which no log has
_FOUND, _SEARCHED = 100, 2**24  # questions, and lines, that a search shows; bytes of the log that it reads
CHANGE = threading.Lock()  # of two changes of a policy at once, the last is in force
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
        self.change: Callable[[str], list[str]] = lambda _: []
        """Reads the policy again for a holder, and says what came of it."""
        self._on, self._lock = set[str](), threading.Lock()
        self._people: dict[str, Any] = self._count()

    def hashes(self, right: Right | None = None) -> dict[str, str]:
        """Names of holders, by the hashes of their tokens that are in force; of those who may do one thing."""
        holders = self.analysts.policy.file.holders.items()
        may = {name: part for name, part in holders if right is None or right in part.may}
        return in_force(may, self.analysts.clock.now())

    def refuse_without(self, right: Right, name: str) -> None:
        if name not in self.hashes(right).values():
            raise Refused(403, "right", f'this is not allowed to {name}: may of [holders.{name}] has no "{right}"')

    def _do(self, work: Callable[[], Result]) -> Result:
        """Have the worker do it, in the data holder's queue."""

        def opened() -> Result:
            self.analysts.reopen()
            return work()

        return self.analysts.worker.submit("", opened, padded=False).result()

    def _count(self) -> dict[str, Any]:
        self.analysts.look()
        ledger, near = self.analysts.session.ledger, self.analysts.policy.file.near
        *above, ended = ledger.above([*SHARES, near])
        counts = [more - less for more, less in zip(above, [*above[1:], 0], strict=True)]
        told = {"shares": list(SHARES), "people": counts, "charged": above[0], "near": near, "near_the_end": ended}
        self._people = told | {"share_near_the_end": ended / above[0] if above[0] else 0.0}
        self._spoke, self._counted = bool(ledger.entries("spoke")), time.monotonic()
        return self._people

    def people(self) -> dict[str, Any]:
        """Counts of people by how much they have spent, in twentieths of the budget, and of those near the end."""
        return self._do(self._count)

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
        """Alarms: states that a data holder should look at. Each has a line in the log when it comes, and one after."""
        api = self.analysts
        due = api.ledger_up and time.monotonic() > self._counted + max(_COUNTS, 40 * api.policy.file.service.step)
        with suppress(AlmonerError, TimeoutError):  # what the worker has not seen by then is as it was before
            api.worker.submit(" ", self._count if due else api.look, padded=due).result(_PATIENCE)
        with self._lock:
            told = list(self._alarms())
            now = {f"{code}: see the alarms" if code in _NUMBERS else text for code, text in told}
            for text in sorted(now ^ self._on):
                _LOG.warning(text if text in now else f"over: {text}")
            self._on = now
        return [{"code": code, "text": text} for code, text in told]

    def _alarms(self) -> Iterator[tuple[str, str]]:
        """Code and text of each alarm, from memory."""
        api, now, fails = self.analysts, self.analysts.clock.now(), not all(check["holds"] for check in self.checks)
        failed, strange = (api.metrics.total("refusals", code=code) for code in ("internal", "token"))
        again = "On a server, it is opened again by itself; else start the service again."
        near, behind = self._people["share_near_the_end"], now.timestamp() - time.time()
        for code, on, text in (
            ("ledger", not api.ledger_up, f"The ledger cannot be used. {again}"),
            ("clerk", api.worker.stuck, "A question, or a check, takes more than a minute, and others wait for it."),
            ("clock", behind > 60, "The machine's clock was set back: tokens end all the same."),
            ("log", api.trail.broken, "The newest line of the log could not be written: is there room for it?"),
            ("watch", self._spoke, "A watch says that too much is missing: totals are not to be trusted."),
            ("verify", fails, "A check of the ledger failed. Trust no account in it."),
            ("internal", failed, f"{failed} requests failed for no known reason."),
            ("token", strange, f"{strange} requests had no token, or one that is not valid."),
            ("near", near >= 0.01, f"{near:.1%} of the people who were charged are near the end."),
            *(("data", True, DATA_TEXTS[state].format(name)) for name, state in api.data_state.items()),
            *(("misfits", each.unfit, f"Entries cannot be read: {each.words()}.") for each in api.session.misfits),
        ):
            if on:
                yield code, text
        for name, each in (*api.policy.analysts.items(), *api.policy.file.holders.items()):
            if now < each.until <= now + _WARNING:
                yield "expires", f"The token of {name} is good until {each.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC."

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

    def statement(self, person: object, who: str) -> tuple[dict[str, Any], int | None]:
        """One person's account, for that person and for holders; and the entry that says who saw it."""
        analysts = self.analysts  # which notes it before anything is shown
        told, entry = self._do(lambda: (analysts.session.statement(person), analysts.note(who, person)))
        return {**asdict(told), "words": told.words}, entry

    def overview(self) -> dict[str, Any]:
        """Terms, head, and each analyst's limits and questions."""
        record = self._do(lambda: summary(self.analysts.session.ledger))
        budget = self.analysts.session.ledger.budget_units
        analysts = []
        for name, terms in self.analysts.policy.analysts.items():
            so_far, expires = self.analysts.public_state.of(name), terms.expires and terms.expires.isoformat()
            spent = sum(int(public["price"]) for public in so_far.answers) / budget
            told = {"analyst": name, "purpose": terms.purpose, "share": terms.limits.share, "spent": spent}
            analysts.append({**told, "left": so_far.left / budget, "answers": len(so_far.answers), "expires": expires})
        return {"terms": record.terms, "entries": record.entries, "head": record.head, "analysts": analysts}

    def limit(self, name: str, wanted: Mapping[str, Any], who: str) -> None:
        """Change limits of an analyst, at once and for later starts; ArgumentError where a policy's may not be so."""
        api = self.analysts
        with CHANGE:
            before, kept = api.policy, api.policy.with_kept_limits()  # which services that share the file changed too
            if name not in kept.analysts:
                raise ArgumentError("analyst must be one of the policy")
            now, fields = kept.analysts[name].limits, dict(kept.changed.get(name, {}))
            for each, to in wanted.items():
                fields[each] = [fields.get(each, [getattr(now, each)])[0], to]
            after = kept.with_limits({**kept.changed, name: fields})
            lines = api.change_policy(after)
            try:
                after.keep_limits()
            except OSError as error:
                api.change_policy(before)
                raise ArgumentError(f"{after.limits_file} cannot be written: {error.strerror}") from None
        _LOG.info("the policy was changed", extra={"facts": {"who": who, "lines": lines, "limits": dict(wanted)}})

    def found(self, text: str) -> dict[str, list[dict[str, Any]]]:
        """Questions, and lines of the log, in which a text is: the newest."""
        text, log = text.casefold(), self.analysts.policy.file.log
        entries = self._do(lambda: self.analysts.session.ledger.entries("answered", "shared"))
        names = ("time", "analyst", "purpose", "key", "question")
        asked = [{name: entry.public.get(name) for name in names} for entry in reversed(entries)]
        asked = [each for each in asked if text in json.dumps(list(each.values()), ensure_ascii=False).casefold()]
        lines = deque[dict[str, Any]](maxlen=_FOUND)
        if log is not None:
            with suppress(FileNotFoundError), (self.analysts.policy.plan.folder / log).open("rb") as file:
                file.seek(max(0, file.seek(0, SEEK_END) - _SEARCHED))
                for line in file:
                    if text in line.decode("utf-8", "replace").casefold():
                        with suppress(ValueError, TypeError):  # the first may be half of one
                            lines.append(dict(json.loads(line)))
        return {"asked": asked[:_FOUND], "lines": list(lines)[::-1]}

    def exposition(self) -> bytes:
        """Counts, latencies and gauges in the text form of Prometheus: of people as they were counted last."""
        alarms, people, api = self.alarms(), self._people, self.analysts
        budget = api.session.ledger.budget_units
        left = {name: api.public_state.of(name).left / budget for name in api.policy.analysts}
        near = f"People who have spent {people['near']:g} of their budget or more."
        readable = "Whether the data are those that the service was opened with, and can be read."
        gauges = [
            ("people_charged", "People who were ever charged.", people["charged"]),
            ("people_near_the_end", near, people["near_the_end"]),
            ("people_age_seconds", "Seconds since people were counted.", time.monotonic() - self._counted),
            ("ledger_up", "Whether the ledger can be used.", api.ledger_up),
            ("data_readable", readable, not api.data_state),
            ("clerk_up", "Whether questions are answered, none of them for a minute.", not api.worker.stuck),
            ("waiting", "Questions that wait.", api.worker.waiting),
            ("left_share", "What is left to an analyst at worst, as a share of a budget.", left),
            ("alarms", "Alarms that are on.", len(alarms)),
        ]
        return api.metrics.text(gauges)
