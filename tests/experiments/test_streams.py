"""The streams of docs/experiments/streams.md: recorded numbers are on the page, and a small stream behaves alike."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("streams", ROOT / "experiments" / "queries" / "streams.py")
streams = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = streams
SPEC.loader.exec_module(streams)


def test_the_page_shows_the_recorded_numbers():
    """Every error and every share of covering intervals of Retail is on the page."""
    page = (ROOT / "docs" / "experiments" / "streams.md").read_text(encoding="utf-8")
    recorded = json.loads((ROOT / "experiments" / "results" / "query_streams.json").read_text(encoding="utf-8"))
    for way in streams.WAYS:
        quarters = recorded["Online Retail, revenue a week"][way]
        errors = " | ".join(f"{100 * each:.1f} %" for each in quarters["mean error of answers"])
        covered = " | ".join(f"{100 * each:.0f} %" for each in quarters["share of noise intervals that cover"])
        assert errors in page
        assert covered in page


def test_a_small_stream():
    """Ten whales and many small fish for twelve periods: paced answers never say 0, and end less biased."""
    rng = np.random.default_rng(5)
    people, periods, amounts = [], [], []
    for period in range(12):
        small = np.flatnonzero(rng.random(400) < 0.3)
        people += [*range(10), *(10 + small)]
        periods += [period] * (10 + len(small))
        amounts += [2000.0] * 10 + [20.0] * len(small)
    rows = pa.table({"person": people, "period": periods, "amount": amounts})
    result = streams.measured(rows, streams.revenue, 2000.0, lambda truth: 0.3 * float(truth.mean()) / 2000, 3)
    left_out, paced = result["left out"], result["paced"]
    last = [each["mean error of answers"][-1] for each in (left_out, paced)]
    assert last[0] < -0.3
    assert abs(last[1]) < abs(last[0])
    certain = [each["certain clip as a share of the clip, at least"] for each in (left_out, paced)]
    assert certain[0][-1] == 0
    assert min(certain[1]) > 0.2
    assert left_out["answers that say that nobody is shrunk"][0] > 0
