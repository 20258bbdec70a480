"""Run the end-to-end vectors of the W3C Attribution API with budgets of ``almoner.filters``.

    python benchmarks/suites/w3c_attribution.py CHECKOUT

CHECKOUT is a clone of github.com/w3c/attribution, of which ``impl/e2e-tests`` is read. Every budget of the browser is
a ``filters.Basic`` in one ``filters.All``: of a site in an epoch, of all sites in an epoch, and of a site that showed
an impression in an epoch. Events that test the checks of options, and the switch of the interface, have no budgets in
them and are left out.
"""

import json
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

from almoner import filters, mechanisms

DAY = 86_400
DEFAULTS: dict[str, Any] = {
    "matchValue": 0,
    "lifetimeDays": 30,
    "priority": 0,
    "conversionSites": [],
    "conversionCallers": [],
}


def registrable(sites: list[str]) -> set[str]:
    """The sites that hosts belong to; in the vectors, their last two labels."""
    return {".".join(site.split(".")[-2:]) for site in sites}


@dataclass
class Impression:
    """Advertisement that was shown."""

    at: float
    site: str
    caller: str | None
    options: dict[str, Any]
    sites: set[str] = field(default_factory=set)
    callers: set[str] = field(default_factory=set)

    def matches(self, now: float, event: dict[str, Any], lookback: float, longest: int) -> bool:
        """True if a conversion may be attributed to it."""
        wanted, shown = event["options"], self.options
        lives = now <= self.at + min(shown["lifetimeDays"], longest) * DAY and now <= self.at + lookback
        listed = [
            (self.sites, event["site"]),
            (self.callers, event.get("intermediarySite") or event["site"]),
            (wanted.get("matchValues", []), shown["matchValue"]),
            (registrable(wanted.get("impressionSites", [])), self.site),
            (registrable(wanted.get("impressionCallers", [])), self.caller or self.site),
        ]
        return lives and all(not allowed or value in allowed for allowed, value in listed)


class Browser:
    """Device with its impressions and budgets, as the specification describes it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.impressions = config, list[Impression]()
        most = {
            "site": "perSitePrivacyBudget",
            "all": "globalPrivacyBudgetPerEpoch",
            "quota": "impressionSiteQuotaPerEpoch",
        }
        self.budgets = filters.All(
            open=lambda key: filters.Basic(epsilon=config[most[key[0]]] / 1e6)  # (kind, epoch[, site])
        )
        self.start: float | None = None
        self.cleared: float | None = None

    def epoch(self, at: float) -> int:
        """Number of the epoch of a moment; the first moment that is asked for fixes where epochs begin."""
        period = self.config["privacyBudgetEpochDays"] * DAY
        if self.start is None:
            self.start = floor((at - self.config["epochStart"] * period) / 3600) * 3600
        return floor((at - self.start) / period)

    def first_epoch(self, now: float) -> int:
        """First epoch whose budget may be used."""
        first = self.epoch(now - self.config["maxLookbackDays"] * DAY)
        return first if self.cleared is None else max(first, self.epoch(self.cleared) + 1)

    def save(self, event: dict[str, Any]) -> None:
        """Keep an impression."""
        options = {**DEFAULTS, **event["options"]}
        sites, callers = registrable(options["conversionSites"]), registrable(options["conversionCallers"])
        self.impressions.append(
            Impression(event["seconds"], event["site"], event.get("intermediarySite"), options, sites, callers)
        )

    def measure(self, event: dict[str, Any]) -> list[int]:
        """Attribute a conversion: every epoch whose budgets can pay takes part."""
        now, wanted = event["seconds"], event["options"]
        longest = self.config["maxLookbackDays"]
        lookback = min(wanted.get("lookbackDays", longest), longest) * DAY
        current = self.epoch(now)
        found = [each for each in self.impressions if each.matches(now, event, lookback, longest)]
        value, most = wanted.get("value", 1), wanted.get("maxValue", 1)
        whole = Fraction(2 * value) * Fraction(str(wanted.get("epsilon", 1.0))) / (2 * most)
        own = whole
        if self.epoch(now - lookback) == current:  # in one epoch a report is charged by its own norm
            inside = [each for each in found if self.epoch(each.at) == current]
            own = whole * sum(self.histogram(inside, wanted)) / (2 * value)
        paying, charged = list[Impression](), set[Any]()
        for epoch in range(self.first_epoch(now), current + 1):
            inside = [each for each in found if self.epoch(each.at) == epoch]
            if not inside:
                continue
            shared = [("all", epoch), *(("quota", epoch, each.site) for each in inside)]
            costs: dict[Any, Any] = {key: mechanisms.Pure(float(whole)) for key in shared if key not in charged}
            if own:
                costs["site", epoch, event["site"]] = mechanisms.Pure(float(own))
            if not costs or self.budgets.admits(costs):
                if costs:
                    self.budgets.charge(costs)
                charged.update(shared)
                paying += inside
        return self.histogram(paying, wanted)

    def histogram(self, impressions: list[Impression], wanted: dict[str, Any]) -> list[int]:
        """Share the value among the newest impressions of the highest priority."""
        size = wanted["histogramSize"]
        newest = sorted(impressions, key=lambda each: (-each.options["priority"], -each.at))
        shares = self.allocate(wanted.get("credit", [1])[: len(newest)], wanted.get("value", 1))
        counts = [0] * size
        for each, share in zip(newest, shares, strict=False):
            if each.options["histogramIndex"] < size:
                counts[each.options["histogramIndex"]] += share
        return counts

    def allocate(self, credit: list[float], value: int) -> list[int]:
        """Round shares of a value to whole numbers, fairly, with the random number of the vectors."""
        shares = [Fraction(value) * Fraction(each) / sum(map(Fraction, credit)) for each in credit]
        held = 0
        for other in range(1, len(shares)):
            first, second = shares[held] % 1, shares[other] % 1
            if not first and not second:
                continue
            up, down = (1 - first, 1 - second) if first + second > 1 else (-first, -second)
            if Fraction(self.config["fairlyAllocateCreditFraction"]) < down / (up + down):
                held, other, moved = other, held, up
            else:
                moved = down
            shares[other] += moved
            shares[held] -= moved
        return [round(share) for share in shares]

    def clear_impressions(self, site: str) -> None:
        """Remove the impressions of a site, and the site from those of others."""
        kept = []
        for each in self.impressions:
            emptied = (each.caller or each.site) == site
            for names in (each.sites, each.callers):
                emptied |= names == {site}
                names.discard(site)
            if not emptied:
                kept.append(each)
        self.impressions = kept

    def clear_history(self, event: dict[str, Any]) -> None:
        """Give up the budgets of sites; where visits are forgotten, no epoch so far is used again."""
        now, sites = event["seconds"], set(event["sites"])
        if event["forgetVisits"]:
            self.impressions = [each for each in self.impressions if sites and each.site not in sites]
            self.cleared = now
        else:
            epochs = range(self.first_epoch(now), self.epoch(now) + 1)
            self.budgets.forget([("site", epoch, site) for site in sites for epoch in epochs])


def run(case: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """Differences between what a case expects and what the browser gives."""
    browser, faults = Browser(case.get("config", config)), []
    for event in case["events"]:
        match event["event"]:
            case "saveImpression":
                browser.save(event)
            case "measureConversion":
                if (got := browser.measure(event)) != event["expected"]:
                    faults.append(f"second {event['seconds']}: {got}, not {event['expected']}")
            case "clearImpressionsForSite":
                browser.clear_impressions(event["site"])
            case "clearBrowsingHistoryForAttribution":
                browser.clear_history(event)
    return faults


def has_no_budget(case: dict[str, Any]) -> bool:
    """True if a case tests errors of options, or the switch of the interface."""
    events = case["events"]
    return any(
        "API" in each["event"] or "expectedError" in each or not isinstance(each.get("expected", []), list)
        for each in events
    )


def main() -> int:
    """Run the vectors of a checkout."""
    folder = Path(sys.argv[1]) / "impl" / "e2e-tests"
    config = json.loads((folder / "CONFIG.json").read_text(encoding="utf-8"))
    failed = ran = left = 0
    for path in sorted(folder.glob("*.json")):
        if path.name == "CONFIG.json":
            continue
        case = json.loads(path.read_text(encoding="utf-8"))
        if has_no_budget(case):
            left += 1
            continue
        faults = run(case, config)
        ran, failed = ran + 1, failed + bool(faults)
        print(f"{'differs' if faults else 'agrees':8}{path.stem}", *faults, sep="\n        " if faults else "")
    print(f"{ran - failed} of {ran} vectors agree; {left} have no budgets in them")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
