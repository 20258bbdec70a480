"""Entries that cannot be read: the policy's owner is told at opening and on their own port, an analyst never."""

import re

import pytest
from typer.testing import CliRunner

from almoner.cli import app
from almoner.errors import DataError
from almoner.queries.plans import Plan
from almoner.service import explain
from services import MARKER, POLICY, service, service_folder

PRIVATE = "private: for the data holder"
FORMS = [r"\1,50", r"€\1", r"\1 Std."]


def spoiled(folder, form, rows=300):
    """The hours of the first rows in another spelling."""
    path = folder / f"{MARKER}-visits.csv"
    header, *lines = path.read_text(encoding="utf-8").replace(",", ";").splitlines()
    lines = [
        re.sub(r"^(\w+;\w+;)(\d+)[.]\d+", lambda found: found[1] + re.sub(r"(\d+)", form, found[2]), line)
        if row < rows
        else line
        for row, line in enumerate(lines)
    ]
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_a_column_of_which_nothing_can_be_read_is_not_served(tmp_path, form):
    """No ledger is made; the reason is on the owner's standard error, its numbers marked, whether served or checked."""
    folder = spoiled(service_folder(tmp_path), form)
    with pytest.raises(DataError, match="no entry can be read of column 'hours' of table 'visits' as a 'number'"):
        service(folder).__enter__()
    for options in ((), ("--check",)):
        told = CliRunner().invoke(app, ["serve", str(folder / "policy.toml"), *options])
        assert told.exit_code == 2
        assert "decimal comma" in told.stderr
        assert f"{PRIVATE}: column 'hours' of table 'visits': 300 of 300 entries" in told.stderr
        assert told.stdout == ""
    assert not (folder / "people.ledger").exists()


def test_the_line_of_the_refusal_is_served(tmp_path):
    """With the type that the message names, every entry is read."""
    folder = spoiled(service_folder(tmp_path, POLICY.replace('"number"', '"decimal comma"')), FORMS[0])
    with service(folder) as running:
        assert [(each.entries, each.unfit) for each in running.api.session.misfits if each.column == "hours"] == [
            (300, 0)
        ]
        assert running.ann.ask("all").status_code == 201


@pytest.mark.parametrize("rows", [3, 60])
def test_what_cannot_be_read_is_on_the_holder_s_port_alone(tmp_path, rows, caplog):
    """One in a hundred, or a fifth: an alarm, a log line without numbers, nothing in an analyst's answers."""
    asked = {"ask": "mean", "column": "hours", "low": 0, "high": 24, "sigma": 60}
    with service(spoiled(service_folder(tmp_path), FORMS[1], rows)) as running:
        (alarm,) = running.holder.get("/v1/alarms").json()
        assert alarm["code"] == "misfits"
        assert f"{rows} of 300 entries are no 'number'" in alarm["text"]
        assert alarm["text"] in running.holder.get("/v1/alarms").json()[0]["text"]
        assert any("column 'hours' of table 'visits'" in line for line in caplog.messages)
        assert not any(re.search(r"\d", line) for line in caplog.messages)
        assert running.ann.ask("mean", asked).status_code == 201
        for path in ("/v1/me", "/v1/datasets", "/v1/answers", "/v1/answer?key=mean"):
            assert running.ann.get(path).status_code == 200
        assert running.ann.get("/v1/alarms").status_code == 404
        seen = " ".join(running.ann.seen)
        assert not re.search("misfit|cannot be read|entries are no", seen)


def after_an_outage(running, server, meanwhile):
    """What an analyst sees while a ledger's server is away, and three times after it came back."""
    server.kill()
    try:
        away = running.ann.ask("second")
    finally:
        server.start()
    meanwhile()
    return away, [running.ann.ask("second") for _ in range(3)]


def test_analysts_do_not_learn_whether_another_file_can_be_read(tmp_path, server, caplog):
    """A ledger's server comes back when the file is another one: it is not opened, whatever is in it."""
    seen = set()
    for number in range(2):
        place = server.place()
        (tmp_path / str(number)).mkdir()
        folder = service_folder(tmp_path / str(number), POLICY.replace('"people.ledger"', f'"{place}"'))
        data = folder / f"{MARKER}-visits.csv"
        with service(folder) as running:
            assert running.ann.ask("first").status_code == 201

            def replaced(folder=folder, data=data, number=number):
                spoiled(folder, FORMS[1]) if number else data.write_text(data.read_text("utf-8") + "\n", "utf-8")

            _, after = after_an_outage(running, server, replaced)
            seen |= {(each.status_code, each.text) for each in after}
            assert running.ann.get("/v1/answer?key=first").status_code == 200
    ((status, text),) = seen
    assert status == 503
    assert "the data are not those that the service was opened with" in text
    assert not [line for line in caplog.messages if "no entry can be read" in line]


def test_data_that_cannot_be_opened_again_are_to_analysts_as_a_server_that_failed(
    tmp_path, server, caplog, monkeypatch
):
    """When a ledger's server comes back, that nothing can be read tells them nothing, nor that it can again."""
    place = server.place()
    folder = service_folder(tmp_path, POLICY.replace('"people.ledger"', f'"{place}"'))
    with service(folder) as running:
        assert running.ann.ask("first").status_code == 201

        def refused(*_, **__):
            raise DataError("no entry can be read of column 'hours'")

        away, after = after_an_outage(running, server, lambda: monkeypatch.setattr(Plan, "open", refused))
        monkeypatch.undo()
        after += [running.ann.ask("second")]
        assert {(each.status_code, each.text) for each in (away, *after)} == {(503, away.text)}
        assert [line for line in caplog.messages if "no entry can be read of column 'hours'" in line]
        assert running.ann.get("/v1/answer?key=first").status_code == 200


def test_a_policy_is_explained_with_what_cannot_be_read(tmp_path):
    """`--check` has the numbers and the first lines, marked."""
    from almoner.service.policies import Policy

    folder = spoiled(service_folder(tmp_path), FORMS[0], 2)
    (told,) = [line for line in explain(Policy.read(folder / "policy.toml")) if "count as missing" in line]
    assert told.startswith(f"{PRIVATE}: column 'hours' of table 'visits': 2 of 300 entries")
    assert told.endswith("line 2, line 3.")
