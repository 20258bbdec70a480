"""Killed at random moments, across both doors: nobody is undercharged, and no answer, model or reservation is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "crashes" / "training.py"
HELPER = Path(__file__).parents[1] / "helpers" / "account_kills.py"


@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.server)])
def test_killed_at_random_moments(kind, request, tmp_path):
    """Workers that ask and train on one ledger are killed; after each kill both doors are checked."""
    place = tmp_path / "l" if kind == "file" else request.getfixturevalue("server").place()
    command = [sys.executable, "-W", "ignore", HELPER, place, tmp_path, "3", "2", "7"]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert '"steps"' in run.stdout


def killed(*options):
    """The status of kills of trainings with these options, and what they found."""
    command = [sys.executable, "-W", "ignore", SCRIPT, *options]
    run = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, timeout=300, check=False)
    return run.returncode, json.loads(run.stdout)


def test_every_way_to_train_is_killed_and_goes_on(tmp_path):
    """Nobody is undercharged, no noise is used again, and all planned steps are taken; interrupted itself, it goes on
    with what it has."""
    kept = ["--out", tmp_path / "kills", "--seed", "1"]
    assert killed("--kills", 2, *kept)[0] == 0
    with (tmp_path / "kills").open("a") as file:
        file.write('{"run": 2, "door"')
    status, found = killed("--quick", *kept)
    assert (status, found["problems"], found["used again"]) == (0, {}, 0)
    assert found["kills"] == (tmp_path / "kills").read_text().count('"ended"') == 12
    assert len(found["by door"]) >= 6


def test_a_journal_that_announces_nothing_is_found():
    """The control: steps that were lost are charged to nobody, and somebody is undercharged."""
    status, found = killed("--broken", "announcements", "--kills", 8, "--doors", "full;batches", "--signals", "SIGKILL")
    assert status == 1
    assert any("undercharged" in problem for problem in found["problems"])


def test_noise_that_is_the_same_in_each_process_is_found():
    """The control: the noise of one process comes again in the next."""
    doors = "full;batches;stream;partial_fit"
    status, found = killed("--broken", "noise", "--kills", 8, "--doors", doors, "--signals", "SIGKILL")
    assert (status, found["used again"] > 0) == (1, True)
    assert any("used again" in problem for problem in found["problems"])


def test_either_of_two_processes_is_killed_and_both_go_on():
    """Nobody is undercharged, of a module in shards and of one with correlated noise; the control, without a journal,
    is found."""
    command = [sys.executable, "-W", "ignore", SCRIPT.with_name("together.py"), "--quick"]
    run = subprocess.run(command, stdout=subprocess.PIPE, timeout=300, check=False)
    assert run.returncode == 0
    assert [each["problems"] for each in json.loads(run.stdout)] == [[], []]
    assert all(each["steps taken again"] > 0 for each in json.loads(run.stdout))
    broken = [*command, "--doors", "sharded", "--broken", "announcements"]
    run = subprocess.run(broken, stdout=subprocess.PIPE, timeout=300, check=False)
    assert run.returncode == 1
    assert any("undercharged" in problem for problem in json.loads(run.stdout)[0]["problems"])
