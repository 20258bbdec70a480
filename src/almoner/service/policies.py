"""Policies: data, budget, analysts, limits and prices that a data holder allows, as one file, which is checked whole.

``PolicyFile`` is such a file: its fields are the lines that there may be, with what each takes and what it is for. From
them the tables of docs/service/policy.md are made, and ``almoner schema policy``.
"""

import errno
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from ipaddress import ip_network
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from almoner import _extras
from almoner._check import placed, unquoted
from almoner._disk import whole_file
from almoner._reading import AfterValidator, End, Field, Model, Number, Rule, Text, broken, model_validator, read, toml
from almoner._units import to_float
from almoner.errors import ArgumentError, DataError
from almoner.ledger import Terms, Watch, on_a_server
from almoner.queries import Question, Session
from almoner.queries.plans import AccountsPart, Plan, RowsPart, question, question_schema

__all__ = ["AnalystTerms", "ColumnPart", "Limits", "Policy", "PolicyFile", "ServiceSettings", "TablePart", "fixed_part"]


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,39}", name):
        why = "names that differ by case or spelling would have limits of their own"
        raise broken(f" must be called by 1 to 40 of a-z, 0-9, '.', '_' and '-': {why}")
    return name


def _check_keys(keys: list[Any]) -> list[Any]:
    if not 1 <= len(keys) <= 100_000:
        raise broken(" must be a list of 1 to 100000 keys")
    if len({str(key) for key in keys}) < len(keys):
        raise broken(" must be keys that differ from each other")
    return keys


Name = Annotated[str, AfterValidator(_check_name)]
Hash = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_HASHES = Rule("what `almoner serve --new-token` printed: sha256:..., or a list of two such")
Token = Annotated[Hash | Annotated[list[Hash], Field(min_length=1, max_length=2)], _HASHES]
Right = Literal["metrics", "console", "statements", "verify", "policy", "backup"]
Share = Annotated[float, Number(0, 1, above=True, real=True)]
Bound = Annotated[float, Number(-1e100, 1e100, above=True, real=True)]
Port = Annotated[int, Number(0, 65_535, whole=True)]
_NETWORK = Rule('an address or a network, such as "10.0.0.7" or "10.0.0.0/24"')
Network = Annotated[str, AfterValidator(lambda each: str(ip_network(each))), _NETWORK]
Line = Annotated[str, Text(200)]
Place = Annotated[str, Text(4_000)]
Words = Annotated[str, Text(1000)]
Changes = Mapping[str, Mapping[str, list[float]]]  # of analysts' limits, each [what the file says, the new one]


def login_hash(login: str) -> str:
    """The name of a login where hashes of tokens are."""
    return f"login:{hashlib.sha256(login.encode()).hexdigest()}"


def safe_address(address: str) -> str:
    """An address that nobody between can read or change, https or of this machine; ValueError: it is none."""
    parts = urlsplit(address)
    local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")
    seen = address.isascii() and address.isprintable() and " " not in address  # what goes into a header as it is
    if not (seen and (parts.scheme == "https" or local) and parts.hostname) or "@" in parts.netloc or parts.fragment:
        raise ValueError(address)
    return address


_HTTPS = Rule('an address that begins with https://, such as "https://login.example.org"')
Address = Annotated[str, AfterValidator(safe_address), _HTTPS]


class Limits(Model):
    """Limits of one analyst. Every field is public. Shares are of each person's budget."""

    share: Share = 0.1
    """what all questions of the analyst together may cost a person"""
    least: Annotated[float, Number(0, 1, real=True)] = 1e-4
    """the least price of a question"""
    questions: Annotated[int, Number(0, 1_000_000, whole=True)] = 100
    """questions that are charged, in a day (UTC)"""
    cells: Annotated[int, Number(1, 1_000_000, whole=True)] = 10_000
    """numbers in one answer"""
    seconds: Annotated[float, Number(0, 86_400, above=True, real=True)] = 600.0
    """seconds of answering in a day, in whole steps; counted anew when the service starts"""
    requests: Annotated[int, Number(1, 1_000_000, whole=True)] = 600
    """requests in a minute, of whatever kind"""


class Access(Model):
    """Who comes in, by a token or by single sign-on, and until when."""

    token: Token | None = None
    """the hash that `almoner serve --new-token` printed, no one else's; two while one takes the other's place"""
    login: Line | None = None
    """what the issuer of `[oidc]` says of who comes in, in its `claim`; in place of a token or beside it"""
    expires: End | None = None
    """the last day (UTC) on which a token or a login is good, or the moment from which on it is not"""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.token is None and self.login is None:
            raise broken('.token must be given, or with [oidc] a login: token = "sha256:..."')
        return self

    @property
    def tokens(self) -> list[str]:
        """The hashes, of which each lets in; that of a login is the hash of no token."""
        given = self.token if isinstance(self.token, list) else [self.token] if self.token else []
        return given if self.login is None else [*given, login_hash(self.login)]

    @property
    def until(self) -> datetime:
        """The last moment at which a token is good."""
        end = self.expires or date(9999, 1, 1)
        return end if isinstance(end, datetime) else datetime.combine(end, datetime.max.time(), UTC)


class AnalystAccess(Access):
    """Who asks, and what for."""

    purpose: Line | None = None
    """what the answers are for"""


class AnalystPart(Limits, AnalystAccess):
    """An analyst of a policy, whose limits stand before those of all."""


class AnalystTerms(AnalystAccess):
    """An analyst as the policy has them. ``token`` is the hash of the token; the rest is public."""

    name: str
    limits: Limits


class ColumnPart(Model):
    """Public facts about a column that questions may use."""

    keys: Annotated[list[Any], AfterValidator(_check_keys)] = Field(default=[])
    """the public values of the column, for questions that leave them out"""
    low: Bound | None = None
    """the public bound below of the column, for questions that leave it out"""
    high: Bound | None = None
    """the public bound above; both or neither"""
    about: Words | None = None
    """what analysts read about the column"""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        low, high = self.low, self.high
        if (low is None) != (high is None) or (low is not None and high is not None and not low < high):
            raise broken(" must have both low and high, and low below high, or neither")
        return self


class TablePart(RowsPart):
    """A table of people's rows, and what analysts may know and use of it."""

    about: Words | None = None
    """what analysts read about the table"""
    columns: dict[str, ColumnPart]
    """the columns that questions may use, each with what is public about it"""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.data.lower().endswith((".csv", ".csv.gz")) and self.types is None:
            why = "without it one person's entry can change the kind of a column, which analysts see"
            raise broken(f".types must be given: {why}")
        if not self.columns:
            raise broken(".columns must list the columns that questions may use")
        return self


class HolderPart(Access):
    """One of those who look after the service, or a program of theirs, and what that one may do."""

    may: list[Right]
    """any of `"metrics"`, `"console"`, `"statements"`, `"verify"`, `"policy"` and `"backup"`, and nothing else"""


class SignOnPart(Model):
    """Single sign-on: an issuer of OpenID Connect says who visits the pages. Programs keep their tokens."""

    issuer: Address
    """the issuer's address, as it says it itself"""
    client: Line
    """this service's client id at the issuer"""
    secret: Place | None = None
    """the file with the client's secret; a path from the policy's folder; none: a public client"""
    claim: Line = "sub"
    """which claim is compared with `login`; `email` counts only where the issuer says that it is verified"""
    name: Line = "single sign-on"
    """what the login page calls it"""
    address: Address | None = None
    """where browsers reach the pages of analysts; the issuer must know this address with `/signed-in` behind it"""
    holder_address: Address | None = None
    """the same of the console; without one of the two, that page takes tokens only"""


class SharingPart(Model):
    """Analysts who share their answers."""

    analysts: Annotated[list[str], Rule("a list of analysts of this file")] = Field(default=[])
    """what one of these was answered serves the others, for nothing, and each may read it by its link"""


class WatchPart(Model):
    """A watch over how many people are missing from answers."""

    people: Annotated[int, Number(0, 2**52, whole=True)] | None = None
    """about how many people may be missing from an answer; or `mass`"""
    mass: Annotated[int, Number(0, 2**52, whole=True)] | None = None
    """the same, in full clips: what is missing of all contributions"""
    epsilon: Annotated[float, Number(0, 100, above=True, real=True)] | None = None
    """the watch's own epsilon: the larger, the less noise and the higher the price"""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.people is None) == (self.mass is None) or self.epsilon is None:
            raise broken(" must have people or mass, and epsilon")
        return self


class ServiceSettings(Model):
    """Where the service listens, and how it answers."""

    host: Line = "127.0.0.1"
    """where analysts come to"""
    port: Port = 8080
    """its port"""
    socket: Place | None = None
    """a UNIX socket in place of host and port, for the service's user and group; a path from the policy's folder"""
    holder_host: Line = "127.0.0.1"
    """where the data holder comes to"""
    holder_port: Port = 8081
    """its port"""
    holder_socket: Place | None = None
    """a UNIX socket in place of these"""
    proxies: list[Network] = Field(default=[])
    """addresses or networks whose `X-Forwarded-For` says where a visitor comes from; who uses a socket always may"""
    backups: Place | None = None
    """the folder for `POST /v1/backup`; a path from the policy's folder"""
    step: Annotated[float, Number(1e-3, 60, above=True, real=True)] = 0.25
    """seconds; the time of every answer is a multiple of it"""
    https: bool = False
    """browsers reach the pages over https, through a proxy"""
    connections: Annotated[int, Number(1, 256, whole=True)] | None = Field(
        default=None, json_schema_extra={"x-default": "64; with `https` 256, since all come from the proxy"}
    )
    """connections that one address may have at each port; all together may have 256"""
    visits: Place | None = Field(
        default=None, json_schema_extra={"x-default": "the ledger's path and `.visits`; on PostgreSQL `visits`"}
    )
    """the folder with the keys that sign visits; a path from the policy's folder"""

    @model_validator(mode="after")
    def _ports(self) -> Self:
        if self.port == self.holder_port != 0 and self.host == self.holder_host:
            raise broken(".holder_port must differ from the port of analysts")
        return self


class PolicyFile(AccountsPart):
    """A policy: data, budget, analysts, limits and prices that a data holder allows."""

    tables: dict[str, TablePart]
    """the tables of people: `[tables.NAME]`"""
    limits: Limits = Limits()
    """of each analyst; `[analysts.NAME]` may have the same lines, which hold for that analyst alone"""
    analysts: dict[Name, AnalystPart]
    """`[analysts.NAME]`, one for each analyst"""
    holders: dict[Name, HolderPart]
    """`[holders.NAME]`, one for each who looks after the service"""
    oidc: SignOnPart | None = None
    """single sign-on"""
    near: Share = 0.9
    """who has spent this much of their budget is counted as near the end"""
    log: Place | None = None
    """the path of the file for the lines of the log; none: standard error"""
    sharing: SharingPart = SharingPart()
    """analysts who share their answers"""
    watch: WatchPart | None = None
    """a noisy test of how many people are missing, paid for at the start"""
    usual: dict[str, Any] | None = None
    """the usual question, in whose number the service also tells what is left; one with a price, without a key"""
    service: ServiceSettings = ServiceSettings()
    """where the service listens"""

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema of a policy, with those of the usual question's kinds."""
        whole, asked = super().json_schema(), question_schema()
        whole["properties"]["usual"] = {name: each for name, each in asked.items() if name != "$defs"}
        return whole | {"$defs": {**whole["$defs"], **asked["$defs"]}}

    @model_validator(mode="after")
    def _names(self) -> Self:
        for name in ("tables", "analysts", "holders"):
            if not getattr(self, name):
                raise broken(f".{name} must have one of them or more: [{name}.NAME]")
        tokens = set[str]()
        for kind, parts in (("analysts", self.analysts), ("holders", self.holders)):
            for name, access in parts.items():
                own = {given if given.startswith("sha256:") else f"{kind} {given}" for given in access.tokens}
                for given in tokens & own:
                    line = "token" if given.startswith("sha256:") else "login"
                    raise broken(f".{kind}.{name}.{line} must be of {name} alone")
                if access.login is not None and self.oidc is None:
                    raise broken(f".{kind}.{name}.login needs [oidc], with the issuer that says it")
                tokens.update(own)
        if not set(self.sharing.analysts) <= set(self.analysts):
            raise broken(".sharing.analysts must be a list of analysts of this file")
        return self


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy file, read and checked. ``plan`` may hold a password in a connection string, and is not shown."""

    plan: Plan = field(repr=False)
    file: PolicyFile = field(repr=False)
    analysts: Mapping[str, AnalystTerms]
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Values of the file, without what was changed since."""
    changed: Changes = field(default_factory=dict)
    """Limits that were changed on the console, and are in force: the file's, and the new one."""
    stale: tuple[str, ...] = ()
    """Places of others whose lines in the file were changed later, and hold."""
    secret: str | None = field(default=None, repr=False)
    """The client's secret of ``[oidc]``."""

    @property
    def watch(self) -> Watch | None:
        """The watch over how many people are missing."""
        given = self.file.watch
        if given is None:
            return None
        people = given.mass if given.people is None else given.people
        return Watch(int(people or 0), float(given.epsilon or 0), mass=given.people is None)

    @property
    def visits(self) -> Path:
        """The folder of visits: as the policy says, or else beside a ledger that is a file, or beside the policy."""
        given = self.file.service.visits
        return self._beside("visits", "visits") if given is None else self.plan.folder / given

    @property
    def limits_file(self) -> Path:
        """The file of limits that were changed on the console: beside the ledger, or by its name beside the policy."""
        parts = urlsplit(str(self.plan.ledger))  # other policies beside this one may have other servers' ledgers
        own = (parts.netloc.rpartition("@")[2], parts.path, *re.findall("[?&]schema=[^&]*", f"?{parts.query}"))
        return self._beside("limits", re.sub(r"[^\w.]+", "-", "".join(own)) + ".limits")

    def _beside(self, name: str, on_a_servers: str) -> Path:
        ledger = self.plan.ledger  # its path has the folder already
        return self.plan.folder / on_a_servers if on_a_server(ledger) else Path(f"{ledger}.{name}")

    def keep_limits(self) -> None:
        """Write the file of limits that were changed on the console; those that are stale never hold again."""
        kept = {name: dict(fields) for name, fields in self.changed.items()}
        for place in self.stale:
            name, _, each = place.removeprefix("analysts.").rpartition(".")
            kept.setdefault(name, {})[each] = [inf, inf]
        with whole_file(self.limits_file) as file:
            file.write(json.dumps(kept).encode())

    def with_limits(self, changes: Changes) -> "Policy":
        """The policy of the file with changed limits, checked as it is; where the file has another since, it holds."""
        values, base = deepcopy(dict(self.values)), Policy.of(self.values, self.plan.folder).analysts
        kept, stale = dict[str, dict[str, list[float]]](), list[str]()
        for name, fields in changes.items():
            for each, (of, to) in fields.items():
                if name in base and getattr(base[name].limits, each) == of:
                    kept.setdefault(name, {})[each] = [of, to]
                    values["analysts"][name][each] = to
                else:
                    stale.append(f"analysts.{name}.{each}")
        made = Policy.of(values, self.plan.folder)
        file = made.file.model_copy(update={"service": self.file.service})  # with what the command line says
        return replace(made, file=file, values=self.values, changed=kept, stale=tuple(stale))

    @classmethod
    def read(cls, path: Path | str) -> "Policy":
        """The policy in a TOML file.

        Raises:
            DataError: the file cannot be read, or is no TOML.
            ArgumentError: something in it breaks a rule; the message has the key and the rule, and no value.
        """
        return cls.of(toml(Path(path)), Path(path).parent).with_kept_limits()

    def with_kept_limits(self) -> "Policy":
        """The policy with the limits that its file of limits has now."""
        try:
            return self.with_limits(json.loads(self.limits_file.read_bytes()))
        except (OSError, AttributeError, TypeError, ValueError) as error:
            if getattr(error, "errno", None) in (errno.ENOENT, errno.ENAMETOOLONG):  # a name that no ledger has either
                return self.with_limits({}) if self.changed else self
            wanted = "put the file back as the service wrote it, or remove it: then the policy's limits hold"
            raise DataError(f"{self.limits_file} cannot be read ({type(error).__name__}): {wanted}") from None

    @classmethod
    @unquoted()
    def of(cls, values: Mapping[str, Any], folder: Path) -> "Policy":
        """The policy in the values of a file, with the folder that its paths start from."""
        file = read(PolicyFile, values)
        tables = {name: dict(part, columns=list(part.columns)) for name, part in file.tables.items()}
        for fields in tables.values():
            del fields["about"]
        settings = {name: getattr(file, name) for name in AccountsPart.model_fields}
        domains = {name: part.columns for name, part in file.tables.items()}
        plan = replace(Plan.of(settings | {"tables": tables}, folder), domains=domains)
        _ = plan.budget  # refuses one that makes no sense, before any data is read
        if file.usual is not None:
            with placed("usual"):
                usual = question(file.usual)
            if usual.open:
                raise ArgumentError("usual must have a price: no error=, and no 'auto'")
        analysts = dict[str, AnalystTerms]()
        for name, part in file.analysts.items():  # limits that an analyst's lines do not state are as of all
            own = {each: getattr(part, each) for each in Limits.model_fields if each in part.model_fields_set}
            access = {each: getattr(part, each) for each in AnalystAccess.model_fields}
            analysts[name] = AnalystTerms(name=name, limits=file.limits.model_copy(update=own), **access)
        return cls(plan, file, analysts, values, secret=_secret(file.oidc, folder) if file.oidc else None)


def _secret(part: SignOnPart, folder: Path) -> str | None:
    """The client's secret, from its file; ArgumentError: it cannot be read. MissingExtra: nobody can sign on."""
    with _extras.need("joserfc", "httpx2", extra="oidc"):
        import httpx2  # noqa: F401
        import joserfc  # noqa: F401
    try:
        return None if part.secret is None else (folder / part.secret).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        wanted = 'the path of a file from the policy\'s folder, such as secret = "oidc.secret"'
        raise ArgumentError(f"oidc.secret cannot be read ({type(error).__name__}): give {wanted}") from None


def fixed_part(before: Policy, after: Policy) -> str | None:
    """The first part that differs of those which a running service keeps: data, ledger and budget, watch, ports."""
    for name in ("tables", "watch", "log", "service"):
        if getattr(before.file, name) != getattr(after.file, name):
            return name
    return None if before.plan == after.plan else "the ledger, its budget or the tables"


def changed_lines(before: object, after: object, place: str = "") -> Iterator[str]:
    """Places of the lines of a policy that differ, and nothing that stands in them."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from changed_lines(before.get(name), after.get(name), f"{place}.{name}".lstrip("."))
    elif before != after:
        yield place


class Clock:
    """The machine's clock; where that one is set back, it goes on, so that what has expired stays expired."""

    _ahead = -inf

    def now(self) -> datetime:
        self._ahead = max(self._ahead, time.time() - time.monotonic())
        return datetime.fromtimestamp(self._ahead + time.monotonic(), UTC)


def in_force(parts: Mapping[str, Access], now: datetime) -> dict[str, str]:
    """Names of the owners of tokens that have not expired, by the hashes of these."""
    return {token: name for name, each in parts.items() if now < each.until for token in each.tokens}


def usual_question(policy: Policy, session: Session) -> Question:
    """The policy's usual question, or else a count of people that costs a hundredth of the budget."""
    return question(policy.file.usual or {"ask": "people", **_hundredth(session)})


def _hundredth(session: Session) -> dict[str, float]:
    """The price of a question that costs a hundredth of the budget."""
    return {session.ledger.symbol: to_float(session.ledger.budget_units // 100, down=True)}


def offers(policy: Policy) -> Iterator[tuple[str, dict[str, Any]]]:
    """Places of the policy's keys and bounds, each with the fields of a question that uses them."""
    for name, table in policy.file.tables.items():
        for column, told in table.columns.items():
            place = f"tables.{name}.columns.{column}"
            if told.keys:
                yield place, {"ask": "people", "by": {column: list(told.keys)}, "table": name}
            if told.low is not None:
                yield place, {"ask": "mean", "column": column, "low": told.low, "high": told.high, "table": name}


def check_against_data(policy: Policy, session: Session) -> None:
    """Refuse keys, bounds and a usual question that do not fit, by ArgumentError with the place; asks nothing."""
    analyst, price = session.analyst("nobody"), _hundredth(session)
    for place, fields in offers(policy):
        with placed(place):
            with unquoted():
                asked = question({**fields, **price})
            analyst.quote(asked)
    with placed("usual"):
        analyst.quote(usual_question(policy, session))


def apply_policy(policy: Policy, session: Session) -> None:
    """Set limits and watch in the ledger where not in force yet; ArgumentError: they fit not the data, or its watch."""
    check_against_data(policy, session)
    ledger, given = session.ledger, policy.watch
    watches = [entry.public for entry in ledger.watched() if not entry.public.get("scope")]
    if given is not None and not watches:
        people, mass = (None, given.people) if given.mass else (given.people, None)
        session.watch(people, epsilon=given.epsilon, mass=mass)
    elif given is not None and any(watches[0].get(name) != value for name, value in given.public.items()):
        raise ArgumentError("watch: the ledger is watched otherwise; a watch cannot be changed once it is paid for")
    ledger.declare(Terms(limits={f"analyst:{name}": each.limits.share for name, each in policy.analysts.items()}))
