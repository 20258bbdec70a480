"""`almoner train` that is stopped ends in good order, and says how to go on."""

import signal
import subprocess
import sys

import pyarrow as pa
import pytest

from almoner import filters, ledger
from almoner.queries import Session

SCHEMA = 'target = "y"\nclasses = ["0", "1"]\nperson = "who"\npeople = 40\n\n[columns.x]\nlow = 0\nhigh = 1\n'
STOPPED_AT_THE_FIFTH_STEP = """
import os, signal, sys
from almoner.training._run import books
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs things in the background ignores it
real, steps, name = books.publish, [], sys.argv.pop()
def noisy(*given, **named):
    steps.append(1)
    if len(steps) == 5:
        os.kill(os.getpid(), signal.Signals[name])
    return real(*given, **named)
books.publish = noisy
from almoner.cli import app
app(sys.argv[1:])
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("charged", [True, False])
def test_a_training_that_is_stopped_says_how_to_go_on(tmp_path, name, charged):
    """Nothing is written; on a ledger the steps so far are settled; the same command works again, with another key."""
    who = [f"p{number}" for number in range(40)]
    table = "who,x,y\n" + "".join(f"{person},{number / 40},{number % 2}\n" for number, person in enumerate(who))
    (tmp_path / "people.csv").write_text(table)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    book = tmp_path / "people.ledger"
    Session.open(
        pa.table({"who": who}), person="who", budget=filters.Gaussian(mu=1.0), ledger=book, create=True
    ).close()
    command = ["train", "people.csv", "--target", "y", "--schema", "schema.toml", "--person", "who", "--out", "model"]
    (tmp_path / "train.toml").write_text("steps = 20\n")
    command += ["--epsilon", "0.1", "--settings", "train.toml"]
    on = ["--ledger", str(book), "--key", "one"] if charged else []
    stopped = subprocess.run(
        [sys.executable, "-c", STOPPED_AT_THE_FIFTH_STEP, *command, *on, name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert stopped.returncode == 128 + signal.Signals[name], stopped.stderr
    assert "Stopped: model was not written" in stopped.stderr
    assert ("another --key" if charged else "same command again") in stopped.stderr
    assert not (tmp_path / "model").exists()
    with ledger.Ledger.open(book, create=False) as opened:
        assert [each.state for each in opened.consumers.values()] == ["settled"] * charged
        assert (opened.spent("p1") > 0) == charged
    on = [*on[:-1], "two"] if charged else []
    again = [sys.executable, "-m", "almoner", *command, *on]
    assert subprocess.run(again, cwd=tmp_path, capture_output=True, timeout=120, check=False).returncode == 0
