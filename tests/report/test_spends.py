"""The data holder's picture of what people have spent."""

import json

import numpy as np

from almoner.report import figures
from almoner.training import HolderReport


def test_picture_and_numbers_are_marked_private(tmp_path):
    """Both files are written, in a folder that is made, with the mark; the numbers hold no single share."""
    shares = np.array([0.1234, 0.5, 1.0])
    report = HolderReport(shares, [1, 2], [3, 2], np.sort(np.random.default_rng(0).uniform(size=(2, 6))))
    written = figures.spends(report, tmp_path / "new" / "spends.svg", title="a run")
    assert {oct(each.stat().st_mode & 0o777) for each in written} == {"0o600"}  # nobody else may read them
    assert written == [tmp_path / "new" / "spends.svg", tmp_path / "new" / "spends.json"]
    text = written[0].read_text(encoding="utf-8")
    assert "private: for the data holder" in text
    assert "a run" in text
    numbers = json.loads(written[1].read_text(encoding="utf-8"))
    assert numbers["mark"] == "private: for the data holder"
    assert "0.1234" not in written[1].read_text(encoding="utf-8")


def test_a_run_without_steps_is_drawn(tmp_path):
    """Before the first step there is only the histogram."""
    report = HolderReport(np.zeros(3), [], [], np.empty((0, 6)))
    assert figures.spends(report, tmp_path / "spends.png")[0].stat().st_size > 0
