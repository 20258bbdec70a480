"""The files of the data under a running service: away, back, replaced, and opened again as the data holder says."""

import logging

import pytest
from pyarrow import csv, parquet

from almoner.errors import LedgerError
from almoner.service import _server, explain, opened
from almoner.service.policies import Policy
from services import MARKER, POLICY, TOKENS, Door, Service, service, service_folder

PARQUET = POLICY.replace(".csv", ".parquet").replace('types = { hours = "number", day = "date" }', "")
PEOPLE = {"ask": "people", "sigma": 4.0}


def files(folder, *, people=60):
    """The folder with its visits as CSV and as Parquet, each of which takes its place as a whole."""
    fresh = folder / "fresh"
    fresh.mkdir(exist_ok=True)
    service_folder(fresh, people=people)
    parquet.write_table(csv.read_csv(fresh / f"{MARKER}-visits.csv"), fresh / f"{MARKER}-visits.parquet")
    for ending in ("csv", "parquet"):
        (fresh / f"{MARKER}-visits.{ending}").replace(folder / f"{MARKER}-visits.{ending}")


@pytest.fixture(params=["csv", "parquet"])
def running(request, tmp_path):
    """A service over 60 people, and the file of its data."""
    files(tmp_path)
    (tmp_path / "policy.toml").write_text(POLICY if request.param == "csv" else PARQUET, encoding="utf-8")
    with service(tmp_path) as made:
        yield made, tmp_path / f"{MARKER}-visits.{request.param}"


def alarms(running):
    return [alarm["text"] for alarm in running.holder.get("/v1/alarms").json() if alarm["code"] == "data"]


def asked(running, key):
    """The status of a question for how many people there are, its code or its value, and after how long to retry."""
    response = running.ann.ask(key, PEOPLE)
    told = response.json()
    said = told["code"] if response.status_code >= 400 else told["values"][0]
    return response.status_code, said, response.headers.get("retry-after")


def reloaded(running, folder):
    """What the holder reads after SIGHUP."""
    return _server._change(running.api, lambda: Policy.read(folder / "policy.toml"), "SIGHUP")


@pytest.mark.slow
def test_data_that_are_away_are_waited_for(running, caplog):
    """CSV is in memory; for Parquet 503 with a time to wait, told to the holder, until the file is back."""
    running, path = running
    away = path.with_name("away")
    path.rename(away)
    if path.suffix == ".csv":
        assert asked(running, "a")[0] == 201
        assert alarms(running) == []
        return
    with caplog.at_level(logging.WARNING):
        assert [asked(running, "a") for _ in range(2)] == [(503, "away", "60")] * 2
        assert alarms(running) == ["A file of table 'visits' is away: questions are refused until it is back."]
        assert "privacy_data_readable 0" in running.holder.get("/metrics").text
        assert running.ann.get("/v1/me").status_code == 200
        away.rename(path)
        assert asked(running, "a")[0] == 201
    assert alarms(running) == []
    assert "privacy_data_readable 1" in running.holder.get("/metrics").text
    away = "A file of table 'visits' is away: questions are refused until it is back."
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == [away, f"over: {away}"]
    assert MARKER not in caplog.text


@pytest.mark.slow
def test_another_file_is_read_when_the_holder_says_so(running, tmp_path, caplog):
    """Never at once: CSV answers are about the old rows, Parquet is refused; SIGHUP opens the new rows, checked."""
    running, path = running
    assert asked(running, "a")[:2] == (201, pytest.approx(60, abs=30))
    files(tmp_path, people=250)
    with caplog.at_level(logging.WARNING):
        for key in ("b", "c"):
            status, said, retry = asked(running, key)
            if path.suffix == ".csv":
                assert (status, said) == (201, pytest.approx(60, abs=30))
            else:
                assert (status, said, retry) == (503, "changed", "60")
                assert "SIGHUP" in alarms(running)[0]
    stored = running.ann.get("/v1/answer?key=a").json()
    assert reloaded(running, tmp_path) == ["the data were opened again", "the policy was changed"]
    assert asked(running, "d")[:2] == (201, pytest.approx(250, abs=30))
    assert alarms(running) == []
    assert running.ann.get("/v1/answer?key=a").json() == stored
    assert reloaded(running, tmp_path) == ["the policy was changed"]
    assert all(line["holds"] for line in running.holder.post("/v1/verify", json={}).json())
    assert MARKER not in caplog.text


@pytest.mark.slow
def test_new_data_that_do_not_fit_are_not_taken(running, tmp_path):
    """A file without a column of the policy is refused at SIGHUP, and the policy changes all the same."""
    running, path = running
    rows = csv.read_csv(tmp_path / f"{MARKER}-visits.csv").drop_columns(["hours"])
    path.unlink()
    if path.suffix == ".csv":
        csv.write_csv(rows, path)
    else:
        parquet.write_table(rows, path)
    first, second = reloaded(running, tmp_path)
    assert first.startswith("the data were not opened again: ")
    assert "hours" in first
    assert second == "the policy was changed"
    assert asked(running, "a")[0] == (201 if path.suffix == ".csv" else 503)
    files(tmp_path)
    assert reloaded(running, tmp_path)[0] == "the data were opened again"
    assert asked(running, "b")[0] == 201


@pytest.mark.parametrize("view", ["", 'view = "SELECT * FROM data"'], ids=["file", "view"])
@pytest.mark.parametrize("spoil", [lambda text: text.partition("\n")[2], lambda text: f'{text}"{MARKER}9,FR'])
def test_why_new_data_are_refused_names_nobody(tmp_path, view, spoil):
    """A file without its line of names has a person's row there: neither the log nor the holder is told of it."""
    folder = service_folder(tmp_path)
    text = POLICY.replace('types = { hours = "number", day = "date" }', f"types = {{}}\n{view}")
    text = text.replace('hours = { low = 0, high = 24, about = "length" }\nday = {}', "")
    (folder / "policy.toml").write_text(f'log = "lines"\n{text}', encoding="utf-8")
    file = folder / f"{MARKER}-visits.csv"
    with service(folder) as made:
        file.write_text(spoil(file.read_text(encoding="utf-8")), encoding="utf-8")
        told = f"{reloaded(made, folder)} {(folder / 'lines').read_text(encoding='utf-8')}"
    assert "the data were not opened again" in told
    assert MARKER not in told.replace(file.name, "")


def test_the_ledger_is_closed_at_the_end_though_the_data_were_opened_again(tmp_path):
    """It outlives the session that opened it, and not the service."""
    files(tmp_path)
    (tmp_path / "policy.toml").write_text(PARQUET, encoding="utf-8")
    with service(tmp_path) as made:
        files(tmp_path, people=90)
        reloaded(made, tmp_path)
        assert asked(made, "a")[0] == 201
    with service(tmp_path) as again:
        assert again.ann.get("/v1/answer?key=a").status_code == 200


def test_after_an_error_in_the_rows_nothing_is_opened_again(tmp_path, caplog):
    """An entry that a view cannot read ends the answers until a new start: SIGHUP with another file changes nothing."""
    files(tmp_path)
    view = "SELECT *, CAST(CASE WHEN country = 'ES' THEN 'x' ELSE '1' END AS INTEGER) AS one FROM data"
    policy = PARQUET.replace('about = "One row', f'view = "{view}"\nabout = "One row').replace("day = {}", "one = {}")
    (tmp_path / "policy.toml").write_text(policy, encoding="utf-8")
    with service(tmp_path) as made, caplog.at_level(logging.WARNING):
        bad = made.ann.ask("bad", {"ask": "count", "where": "one = 1", "clip": 5, "sigma": 60})
        assert (bad.status_code, bad.json()["code"]) == (503, "data")
        assert alarms(made) == ["The data could not be read for a question. Start the service again."]
        files(tmp_path, people=90)
        assert "start the service again" in reloaded(made, tmp_path)[0]
        assert asked(made, "good")[1] in ("data", "changed")
        assert "could not be read" in caplog.text
        assert MARKER not in caplog.text


def test_another_file_is_not_read_when_the_server_of_the_ledger_comes_back(tmp_path, server):
    """Data and ledger are opened again by themselves, with the rows as they were or not at all."""
    files(tmp_path)
    (tmp_path / "policy.toml").write_text(POLICY.replace("people.ledger", server.place()), encoding="utf-8")
    with service(tmp_path) as made:
        assert asked(made, "a")[0] == 201
        made.api.session.ledger.close()
        files(tmp_path, people=250)
        assert asked(made, "b")[:2] == (503, "changed")
        assert reloaded(made, tmp_path) == ["the data were opened again", "the policy was changed"]
        assert asked(made, "b")[:2] == (201, pytest.approx(250, abs=30))


@pytest.mark.slow
def test_a_service_makes_no_ledger(tmp_path):
    """A lost ledger is refused at the start, and is not a fresh budget for everybody; with a witness it says so."""
    folder = service_folder(tmp_path, 'witness = "people.head"\n' + POLICY)
    policy = Policy.read(folder / "policy.toml")
    with pytest.raises(LedgerError, match="`almoner ledger create FILE`"):
        opened(policy)
    told = " ".join(explain(policy))
    assert "`almoner serve --prepare`" in told
    assert "people.head will remember" in told
    assert not list(folder.glob("people*"))
    doors = opened(policy, create=True)
    assert Door(doors.analysts, TOKENS["ann"]).ask("a").status_code == 201
    doors.close()
    told = " ".join(explain(policy))
    assert "people.head remembers" in told
    assert "not there" not in told
    before = (folder / "people.ledger").read_bytes()
    running = Service(folder)
    assert running.ann.ask("b").status_code == 201
    running.service.close()
    (folder / "people.ledger").write_bytes(before)
    for start in (opened, explain):
        with pytest.raises(LedgerError, match="older than its witness"):
            start(policy)
    (folder / "people.ledger").unlink()
    for start in (opened, explain, lambda given: opened(given, create=True)):
        with pytest.raises(LedgerError, match="the ledger got lost"):
            start(policy)


def test_a_policy_without_a_witness_is_told_so(tmp_path):
    """`--check` says what would not be noticed, and the line that notices it."""
    folder = service_folder(tmp_path)
    assert 'witness = "' in " ".join(explain(Policy.read(folder / "policy.toml")))
