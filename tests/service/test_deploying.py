"""The service as somebody sets it up, puts it behind a proxy, backs it up and restores it, by the page for that."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
import yaml
from typer.testing import CliRunner

from almoner.cli import app
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger import Ledger, backup, restore, verify
from almoner.service import prepare
from almoner.service.policies import Policy, PolicyFile
from page_reader import Reader
from service_processes import Process, free_ports
from services import COUNT, POLICY, TOKENS, service, service_folder
from shells import ROOT, Shell, blocks

DEPLOY = ROOT / "deploy"
WITNESSED = POLICY.replace('person = "customer"\n', 'person = "customer"\nwitness = "people.head"\n', 1)
FILE, POSTGRES, (QUESTION,) = blocks()
"""The commands of the page: with a ledger in a file, on PostgreSQL, and the first question."""


@contextmanager
def shell(folder, **environment):
    made = Shell(folder, **environment)
    try:
        yield made
    finally:
        made.stop()


def set_up(running, lines):
    """Run the commands of the page, but for the first, which installs; what each prints. Ann's token is in TOKEN."""
    install, *commands = lines
    extras = re.fullmatch(r"pip install '\.\[([a-z,]+)\]'", install)[1].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(extras) <= known.keys()
    printed = {line: running.run(line) for line in commands}
    tokens = dict(re.findall("token of (.*), for nobody else: (token_.{43})", "".join(printed.values())))
    running.environment["TOKEN"] = tokens["ann"]
    return printed, tokens


@pytest.mark.server
def test_a_stranger_sets_it_up_asks_backs_up_upgrades_and_restores(tmp_path):
    """By the commands of the page alone, of which none fails; at most five until the first answer."""
    assert len([*FILE, QUESTION]) <= 5
    with shell(tmp_path) as running:
        printed, tokens = set_up(running, FILE)
        assert "next: almoner serve clinic/policy.toml" in printed[FILE[2]]
        first = json.loads(running.run(QUESTION))
        # a folder for backups, and a new process, as for an upgrade: the key finds its answer
        policy = tmp_path / "clinic" / "policy.toml"
        (tmp_path / "backups").mkdir()
        policy.write_text(policy.read_text("utf-8") + f'\n[service]\nbackups = "{tmp_path}/backups"\n', "utf-8")
        assert running.stop() == 0
        assert "is there already" in running.run(FILE[2])
        running.run(FILE[3])
        assert json.loads(running.run(QUESTION)) == first
        # the hot backup, with the data holder's token
        page = (ROOT / "docs" / "deploying.md").read_text("utf-8")
        (copying,) = re.findall(r"^curl .*/v1/backup$", page, re.M)
        running.environment["TOKEN"] = tokens["carla"]
        told = json.loads(running.run(copying))
        # the disk fails, and the ledger is lost: none takes its place but the copy
        running.stop(signal.SIGKILL)
        for each in (tmp_path / "clinic").glob("people.ledger*"):
            each.unlink() if each.is_file() else shutil.rmtree(each)
        assert "got lost" in " ".join(running.run(FILE[2], code=1).split())
        for line in re.findall(r"^almoner ledger (?:restore-backup|verify) .*$", page, re.M):
            line = line.replace("/srv/almoner-backups/NEWEST.ledger", told["file"])
            done = running.run(line.replace("/var/lib/almoner", str(tmp_path / "clinic")))
            assert told["head"] in done or done.count("yes") > 5
        running.run(FILE[3])
        running.environment["TOKEN"] = tokens["ann"]
        assert json.loads(running.run(QUESTION)) == first


@pytest.mark.server
def test_a_stranger_sets_it_up_on_postgresql(tmp_path, server):
    """At most eight commands, of which none fails; the service's role can answer, and cannot give budget back."""
    import psycopg

    assert len([*POSTGRES, QUESTION]) <= 8
    if shutil.which("createdb", path=f"{server.bin}:{os.environ['PATH']}") is None:
        pytest.skip("there is no createdb")
    with shell(tmp_path, PGHOST=str(server.folder), PGUSER="owner") as running:
        running.environment["PATH"] = f"{running.environment['PATH']}:{server.bin}"
        with psycopg.connect(server.uri(), autocommit=True) as owner:
            owner.execute("CREATE ROLE postgres SUPERUSER LOGIN")
        set_up(running, POSTGRES)
        assert json.loads(running.run(QUESTION))["values"]
        assert "is there already" in running.run(POSTGRES[3])  # while it runs, too
        with psycopg.connect(server.uri("accounts", "service"), autocommit=True) as role:
            for change in ("UPDATE privacy_ledger.accounts SET spent = 0", "DELETE FROM privacy_ledger.record"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    role.execute(change)


def test_preparing_again_changes_nothing_and_replaces_no_lost_ledger(tmp_path):
    """Twice is as once; a ledger whose witness is there got lost; without a witness nothing is made."""
    policy = service_folder(tmp_path, POLICY) / "policy.toml"
    with pytest.raises(ArgumentError, match='witness = "/other/volume'):
        prepare(Policy.read(policy))
    assert not (tmp_path / "people.ledger").exists()
    policy.write_text(WITNESSED)
    assert prepare(Policy.read(policy))
    with Ledger.open(tmp_path / "people.ledger") as book:
        head = book.head
    assert not prepare(Policy.read(policy))
    with Ledger.open(tmp_path / "people.ledger") as book:
        assert book.head == head
    (tmp_path / "people.ledger").unlink()
    with pytest.raises(LedgerError, match="got lost"):
        prepare(Policy.read(policy))
    assert not (tmp_path / "people.ledger").exists()


@pytest.mark.parametrize(
    ("ledger", "owner", "told"),
    [
        ("people.ledger", "postgres", "a ledger that is a file has no roles"),
        ("postgresql://service@/accounts", None, "--owner postgres"),
        ("postgresql:///accounts", "postgres", "the role of the service"),
        ("postgresql://service:secret@/accounts", "service", "the role of the service"),
    ],
)
def test_roles_are_named_apart(tmp_path, ledger, owner, told):
    """The owner of the tables is not the service, and a file has neither; nothing is asked of a server before."""
    policy = service_folder(tmp_path, WITNESSED.replace("people.ledger", ledger)) / "policy.toml"
    with pytest.raises(ArgumentError, match=told) as refused:
        prepare(Policy.read(policy), owner=owner)
    assert "secret" not in str(refused.value)


def test_new_policies_have_tokens_of_their_own(tmp_path):
    """Two calls write other hashes, and what is printed is not what is written."""
    pages = []
    for name in ("one", "two"):
        printed = CliRunner().invoke(app, ["init", "serve", str(tmp_path / name), "--example"]).stdout
        pages.append((tmp_path / name / "policy.toml").read_text("utf-8"))
        assert not any(token in pages[-1] for token in re.findall("token_.{43}", printed))
        assert len(set(re.findall("sha256:[0-9a-f]{64}", pages[-1]))) == 3
    assert pages[0] != pages[1]


# behind a proxy


class Proxy(BaseHTTPRequestHandler):
    """Sends what comes under /statistics/ on to a UNIX socket, without that path, and says who came."""

    protocol_version = "HTTP/1.1"
    socket = ""

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.removeprefix("/statistics")
        sent = {name: value for name, value in self.headers.items() if name.lower() not in ("connection",)}
        sent["x-forwarded-for"] = self.headers.get("x-test-address", self.client_address[0])
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=self.socket, verify=False)) as client:
            told = client.request(self.command, f"http://service{path}", headers=sent, content=body)
        self.send_response(told.status_code if self.path.startswith("/statistics/") else 404)
        for name, value in told.headers.multi_items():
            if name not in ("content-length", "connection"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(told.content)))
        self.end_headers()
        self.wfile.write(told.content)

    do_POST = do_GET

    def log_message(self, *_):
        pass


@contextmanager
def behind_a_proxy(folder, socket):
    """The address of a proxy before a socket."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Proxy,), {"socket": str(socket)}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/statistics/"
    finally:
        server.shutdown()
        server.server_close()


class OnSockets(Process):
    """`almoner serve` on two UNIX sockets."""

    def __init__(self, folder):
        self.command = [sys.executable, "-m", "almoner", "serve", str(folder / "policy.toml")]
        self.log, self.address, self.socket = folder / "log", "http://service", folder / "analysts.sock"
        self.begin()

    def get(self, address, **options):
        with socket.socket(socket.AF_UNIX) as tried:  # httpx leaves one open that is refused
            tried.connect(str(self.socket))
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(self.socket), verify=False)) as client:
            return client.get(address, **options)


@pytest.fixture(scope="module")
def on_sockets(tmp_path_factory):
    """A process that serves on sockets, of a policy that does not say so of https."""
    folder = service_folder(tmp_path_factory.mktemp("sockets"), WITNESSED)
    lines = '\nsocket = "analysts.sock"\nholder_socket = "holder.sock"\n'
    (folder / "policy.toml").write_text(WITNESSED + lines)
    prepare(Policy.read(folder / "policy.toml"))
    process = OnSockets(folder)
    yield process, folder
    process.kill()


@pytest.mark.server
def test_pages_lie_under_a_path_of_a_proxy(on_sockets):
    """Login, a question, its answer, links, forms and leaving work through a proxy that takes its path off."""
    process, folder = on_sockets
    with behind_a_proxy(folder, process.socket) as address, httpx2.Client(follow_redirects=True) as visitor:
        login = visitor.get(address)
        assert str(login.url) == f"{address}login"
        entered = visitor.post(f"{address}login", data={"token": TOKENS["ann"]})
        assert (str(entered.url), entered.status_code) == (address, 200)
        fields = {**Reader(entered.text).forms["/ask"], "do": "ask", "ask": "people", "table": "visits", "key": "one"}
        answered = visitor.post(f"{address}ask", data={**fields, "price": "1"})
        assert (str(answered.url), answered.status_code) == (f"{address}answer?key=one", 200)
        (back,) = {each["href"] for each in Reader(answered.text).all("a") if each["href"] in ("/", "./")}
        assert visitor.get(answered.url.join(back)).url == address
        leaving = Reader(entered.text).forms["/logout"]
        assert str(visitor.post(f"{address}logout", data=leaving).url) == f"{address}login"
        token = {"authorization": f"Bearer {TOKENS['bob']}"}
        assert visitor.get(f"{address}v1/me", headers=token).status_code == 200


@pytest.mark.server
def test_logins_are_limited_by_the_address_that_the_proxy_says(on_sockets):
    """Who tries too often is refused, and who comes from elsewhere through the same proxy is not."""
    process, folder = on_sockets
    with behind_a_proxy(folder, process.socket) as address, httpx2.Client() as visitor:
        statuses = {}
        for place in ("192.0.2.1",) * 40 + ("192.0.2.2",):
            # what a visitor adds stands before what the proxy adds, and is not believed
            told = visitor.post(
                f"{address}login",
                data={"token": "x"},
                headers={"x-test-address": f"198.51.100.{len(statuses)}, {place}"},
            )
            statuses.setdefault(place, set()).add(told.status_code)
    assert statuses == {"192.0.2.1": {401, 429}, "192.0.2.2": {401}}


@pytest.mark.server
def test_sockets_are_for_user_and_group_and_taken_once(on_sockets):
    """Nobody else may connect; a second service is refused; what a killed service left is no hindrance."""
    process, folder = on_sockets
    assert [(folder / f"{name}.sock").stat().st_mode & 0o777 for name in ("analysts", "holder")] == [0o660] * 2
    second = subprocess.run(process.command, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert "service.socket=analysts.sock cannot be opened" in " ".join(second.stderr.split())
    assert process.get("http://service/health").status_code == 200
    process.kill(signal.SIGKILL)
    assert process.socket.is_socket()
    process.begin()
    assert process.get("http://service/health").status_code == 200


@pytest.mark.parametrize("proxies", ['["*"]', '["everybody"]', "[7]", '["10.0.0.1/8"]'])
def test_proxies_are_addresses_or_networks(tmp_path, proxies):
    """Anything else is refused: with "*" everybody could say where they come from."""
    policy = service_folder(tmp_path, f"{POLICY}proxies = {proxies}\n") / "policy.toml"
    with pytest.raises(ArgumentError, match=r"service.proxies.0 must be (an address or a network|text)"):
        Policy.read(policy)


# backups


@pytest.mark.server
def test_a_copy_of_a_running_service_is_whole_and_refused_once_it_is_old(tmp_path):
    """It is made while analysts ask; in the place of a ledger that had newer entries it is refused.

    The documented way on is a new ledger with another witness.
    """
    text = f'{WITNESSED}backups = "."\n'
    with service(service_folder(tmp_path, text)) as running:
        keys, stop = [], threading.Event()

        def ask():
            while not stop.is_set():
                assert running.ann.ask(str(len(keys)), {**COUNT, "sigma": 150}).status_code == 201
                keys.append(len(keys))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            while len(keys) < 2 and asking.is_alive():
                time.sleep(0.01)
            told = running.holder.post("/v1/backup")
        finally:
            stop.set()
            asking.join()
        assert told.status_code == 200
        assert running.bob.post("/v1/backup").status_code in (401, 404)
        assert running.ann.ask("last", {**COUNT, "sigma": 150}).status_code == 201
        copy = tmp_path / told.json()["file"]
        assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LedgerError, match="older than its witness"):
        restore(copy, tmp_path / "again.ledger")
    assert not (tmp_path / "again.ledger").exists()
    whole, kept = tmp_path / "people.ledger", tmp_path / "kept.ledger"
    with Ledger.open(whole) as book:  # the service is stopped: nothing newer comes
        head = backup(book, kept)
    whole.rename(tmp_path / "lost.ledger")
    with pytest.raises(LedgerError, match="got lost"):
        prepare(Policy.read(tmp_path / "policy.toml"))
    assert restore(kept, whole) == head
    with Ledger.open(whole) as book:
        assert all(finding.holds for finding in verify(book, head=told.json()["head"]))
    # nothing but the old copy is left: a new ledger, beside another witness
    whole.unlink()
    new = text.replace("people.ledger", "new.ledger").replace("people.head", "new.head")
    (tmp_path / "policy.toml").write_text(new)
    assert prepare(Policy.read(tmp_path / "policy.toml"))


def test_without_a_folder_no_backup_is_made(tmp_path):
    """The refusal says which line is wanted."""
    with service(service_folder(tmp_path)) as running:
        told = running.holder.post("/v1/backup")
        assert (told.status_code, "backups = " in told.text) == (422, True)


# the files of the folder deploy


def program(name):
    """A program of the system, or None; ALMONER_PROGRAMS names folders to look in, too."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:{os.environ.get('ALMONER_PROGRAMS', '')}")


def checked(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def words(name):
    """The lines of a file of deploy, without comments."""
    text = (DEPLOY / name).read_text("utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def places():
    """What the lines of deploy/policy.toml say, as a policy that is read."""
    above, service = (DEPLOY / "policy.toml").read_text("utf-8").split("[service]")
    rest = POLICY.replace('ledger = "people.ledger"', "").split("[service]")[0]
    return PolicyFile.model_validate(tomllib.loads(f"{above}{rest}\n[service]{service}"))


def test_the_lines_of_the_policy_are_read():
    """They are lines that the program knows, and the other files are about the same places."""
    page = (ROOT / "docs" / "deploying.md").read_text("utf-8")
    named = {*re.findall(r"`deploy/(\w[\w.]*)`|--file deploy/(\w+)", page)}
    assert {"".join(each) for each in named} == {path.name for path in DEPLOY.iterdir()}
    file = places()
    assert file.service.https
    for name, wanted in {
        "nginx.conf": (file.service.socket, file.service.holder_socket),
        "Caddyfile": (file.service.socket, file.service.holder_socket),
        "almoner.service": (str(Path(file.witness).parent), file.service.backups),
        "logrotate": ("/var/log/almoner/almoner.log",),
    }.items():
        assert all(each in "\n".join(words(name)) for each in wanted), name


def test_the_unit_of_systemd(tmp_path):
    """It is a unit without faults, runs a command of the program, and is shut in (exposure at most 2 of 10)."""
    unit = dict(line.split("=", 1) for line in words("almoner.service") if "=" in line)
    program_, command, policy = unit["ExecStart"].split()
    assert (program_, command, policy) == ("/opt/almoner/bin/almoner", "serve", "/etc/almoner/policy.toml")
    folders = {unit[f"{kind}Directory"] for kind in ("State", "Runtime", "Logs")}
    assert folders == {"almoner"}
    if program("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    text = (DEPLOY / "almoner.service").read_text("utf-8").replace(program_, sys.executable)
    (tmp_path / "almoner.service").write_text(text)
    assert "almoner.service" not in checked("systemd-analyze", "verify", tmp_path / "almoner.service")
    told = checked("systemd-analyze", "security", "--offline=true", DEPLOY / "almoner.service")
    assert float(re.search(r"exposure level for almoner.service: ([\d.]+)", told)[1]) <= 2


def nginx_files(folder, text):
    """A file for nginx in a folder that has the site of this text, with a certificate, and its command."""
    names = ["-keyout", folder / "key.pem", "-out", folder / "fullchain.pem"]
    checked("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", "/CN=localhost", *names)
    (folder / "site.conf").write_text(text.replace("/etc/ssl/almoner", str(folder)))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    inside = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in kinds)
    first = f"{'user root; ' if os.geteuid() == 0 else ''}pid {folder}/pid; error_log stderr; daemon off; events {{}}"
    (folder / "nginx.conf").write_text(f"{first}\nhttp {{ access_log off; {inside}include site.conf; }}\n")
    return [program("nginx"), "-p", folder, "-c", folder / "nginx.conf"]


def test_the_file_of_nginx(tmp_path):
    """nginx reads it; what it limits is there."""
    lines = words("nginx.conf")
    for each in ("limit_conn almoner_connections 8;", "proxy_set_header X-Forwarded-For $remote_addr;"):
        assert each in lines
    assert lines.count("client_max_body_size 64k;") == 2
    if program("nginx") is None or program("openssl") is None:
        pytest.skip("there is no nginx")
    command = nginx_files(tmp_path, (DEPLOY / "nginx.conf").read_text("utf-8"))
    assert "test is successful" in checked(*command, "-t")


@pytest.mark.server
def test_nginx_brings_analysts_to_the_service(on_sockets, tmp_path):
    """By the file of deploy, but for ports: over TLS, under the path, with the visitor's address."""
    if program("nginx") is None or program("openssl") is None:
        pytest.skip("there is no nginx")
    process, folder = on_sockets
    plain, port, holder_port = free_ports(3)
    text = (DEPLOY / "nginx.conf").read_text("utf-8").replace("/run/almoner", str(folder))
    for there, here in (("listen 80;", plain), ("listen 443 ssl;", port), ("listen 8443 ssl;", holder_port)):
        assert there in text
        text = text.replace(there, there.replace(there.split()[1].strip(";"), f"127.0.0.1:{here}"))
    running = subprocess.Popen(list(map(str, nginx_files(tmp_path, text))), stderr=subprocess.DEVNULL)
    address = f"https://127.0.0.1:{port}/statistics/"
    try:
        with httpx2.Client(verify=False, follow_redirects=True) as visitor:
            for _ in range(200):
                with suppress(httpx2.HTTPError):
                    visitor.get(address)
                    break
                time.sleep(0.05)
            entered = visitor.post(f"{address}login", data={"token": TOKENS["bob"]})
            assert (str(entered.url), entered.status_code) == (address, 200)
            assert entered.headers["strict-transport-security"]
            assert visitor.get(address.removesuffix("statistics/")).status_code == 404
            assert visitor.get(f"https://127.0.0.1:{holder_port}/").status_code == 403
            assert visitor.post(f"{address}v1/quote", content=b"x" * 70_000).status_code == 413
            moved = visitor.get(f"http://127.0.0.1:{plain}/statistics/", follow_redirects=False)
            assert moved.headers["location"].startswith("https://")
        lines = [json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")]
        assert {line["address"] for line in lines if line.get("who") == "bob"} == {"127.0.0.1"}
    finally:
        running.terminate()
        running.wait()


def test_the_file_of_caddy():
    """Caddy reads it."""
    assert words("Caddyfile").count("max_size 64KB") == 2
    if program("caddy") is None:
        pytest.skip("there is no caddy")
    checked(program("caddy"), "adapt", "--config", DEPLOY / "Caddyfile", "--adapter", "caddyfile", "--validate")


def test_the_file_of_a_container():
    """Its instructions are known, what it copies and installs is there, and it serves, as a user without rights."""
    text = (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    said = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    known = {"FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert {name for name, _ in said} == known | {"ENTRYPOINT", "CMD"}
    told = dict(said)
    assert int(told["USER"]) > 0
    defaults = places().service.__class__()
    assert told["EXPOSE"].split() == [str(defaults.port), str(defaults.holder_port)]
    command = [*json.loads(told["ENTRYPOINT"]), *json.loads(told["CMD"])]
    assert command == ["almoner", "serve", "/etc/almoner/policy.toml"]
    (extras,) = re.findall(r"'/source\[([a-z,]+)\]'", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert (ROOT / "constraints.txt").exists()
    (probe,) = re.findall(r"http://127.0.0.1:8080(/\w+)", told["HEALTHCHECK"])
    assert probe == "/health"


def test_what_prometheus_reads(tmp_path):
    """The series of the alerts are those that a service has, and promtool finds no fault."""
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    with service(service_folder(tmp_path)) as running:
        running.ann.ask("one", COUNT)
        running.door().get("/v1/me")
        shown = running.holder.get("/metrics").text
    for rule in rules:
        for series in re.findall(r"privacy_\w+", rule["expr"]):
            assert f"# TYPE {series.removesuffix('_total')}" in shown, series
    scrape = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))["scrape_configs"][0]
    assert scrape["metrics_path"] == "/metrics"
    assert 'up{job="almoner"}' in (DEPLOY / "alerts.yml").read_text("utf-8")
    if program("promtool") is None:
        pytest.skip("there is no promtool")
    for name in ("prometheus.yml", "alerts.yml"):
        text = (DEPLOY / name).read_text("utf-8").replace("/etc/prometheus/almoner.token", str(tmp_path / "token"))
        (tmp_path / name).write_text(text)
    (tmp_path / "token").write_text("")
    assert "SUCCESS" in checked(program("promtool"), "check", "config", tmp_path / "prometheus.yml")


def test_the_file_of_logrotate():
    """The braces close, and files are moved, which the service notices, and not emptied, which would lose lines."""
    lines = words("logrotate")
    assert (lines[0], lines[-1]) == ("/var/log/almoner/almoner.log {", "}")
    assert "nocreate" in lines
    assert not {"copytruncate", "copy"} & set(lines)
