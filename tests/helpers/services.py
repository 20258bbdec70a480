"""A running service for tests: a folder with data that hold planted markers, a policy, and clients of both doors."""

from contextlib import contextmanager
from pathlib import Path

from starlette.testclient import TestClient

from almoner.service import hash_of, new_token, opened
from almoner.service.policies import Policy

MARKER = "MARKER"
"""In every private value: a name of a person, an entry of a column that is not public, a file's name."""
TOKENS = {name: new_token() for name in ("ann", "bob", "holder", "old", "stranger")}
COUNT = {"ask": "count", "by": {"country": ["FR", "ES"]}, "clip": 5, "sigma": 60}

POLICY = f"""
ledger = "people.ledger"
person = "customer"
rho = 1.0

[tables.visits]
data = "{MARKER}-visits.csv"
types = {{ hours = "number", day = "date" }}
about = "One row for each visit"

[tables.visits.columns]
country = {{ keys = ["FR", "ES"] }}
hours = {{ low = 0, high = 24, about = "length" }}
day = {{}}

[limits]
share = 0.5
cells = 100
requests = 100000

[analysts.ann]
token = "{hash_of(TOKENS["ann"])}"
purpose = "weekly"

[analysts.bob]
token = "{hash_of(TOKENS["bob"])}"

[analysts.old]
token = "{hash_of(TOKENS["old"])}"
expires = 2020-01-01

[holders.steward]
token = "{hash_of(TOKENS["holder"])}"
may = ["metrics", "console", "statements", "verify", "policy", "backup"]

[service]
step = 0.02
port = 0
holder_port = 0
"""


def service_folder(folder: Path, policy: str = POLICY, *, people: int = 60) -> Path:
    """The folder, with 300 visits of people whose names are markers, and the policy as ``policy.toml``."""
    lines = ["customer,country,hours,day,diagnosis"]
    for row in range(300):
        place = ("FR", "ES", "DE")[row % 3]
        lines.append(f"{MARKER}{row % people},{place},{row % 48 / 2},2026-01-{row % 28 + 1:02d},{MARKER}-{row}")
    (folder / f"{MARKER}-visits.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    return folder


class Door(TestClient):
    """A client that sends a token, and keeps all that it was sent."""

    def __init__(self, application, token=None):
        super().__init__(application, follow_redirects=False)
        self.seen = []
        if token is not None:
            self.headers["authorization"] = f"Bearer {token}"

    def request(self, *arguments, **options):
        response = super().request(*arguments, **options)
        self.seen.append(f"{response.status_code} {dict(response.headers)} {response.text}")
        return response

    def ask(self, key, question=COUNT, **options):
        return self.post("/v1/answers", json=question, headers={"idempotency-key": key}, **options)


class Service:
    """An open service, with a client for each analyst and for the data holder."""

    def __init__(self, folder, change=lambda text: text):
        text = change((folder / "policy.toml").read_text(encoding="utf-8"))
        (folder / "policy.toml").write_text(text, encoding="utf-8")
        self.service = opened(Policy.read(folder / "policy.toml"), create=True)
        self.api = self.service.api
        self.ann, self.bob = (self.door(TOKENS[name]) for name in ("ann", "bob"))
        self.holder = Door(self.service.holder, TOKENS["holder"])

    def door(self, token=None):
        return Door(self.service.analysts, token)


@contextmanager
def service(folder, change=lambda text: text):
    """An open service over a folder."""
    made = Service(folder, change)
    try:
        yield made
    finally:
        made.service.close()
