"""A few of the requests of benchmarks/crashes/fuzz_service.py: none fails, none tells anything private."""

import importlib.util
from pathlib import Path

FILE = Path(__file__).parents[2] / "benchmarks" / "crashes" / "fuzz_service.py"


def test_odd_requests_are_answered_and_tell_nothing_private(tmp_path):
    """Requests that were changed at random are answered or refused at both doors, and no marker comes out."""
    spec = importlib.util.spec_from_file_location("fuzz_service", FILE)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    answers = program.fuzzed(tmp_path, 300, 7)["answers"]
    assert sum(answers.values()) == 300
    assert answers["analysts 200"] > 30  # not all are refused
    assert answers["analysts 422"] > 3
