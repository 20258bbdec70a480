"""Where the public data sets are, and a mark for tests that need some: one place, as in experiments/data_sets.py."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("ALMONER_DATA", Path(__file__).parents[3] / "shared" / "data")).absolute()


def missing(*names):
    """The reason to skip a test that needs these folders of data; empty where all of them are there."""
    absent = [name for name in names if not (DATA / name).is_dir()]
    return f"{', '.join(absent)}: not in ALMONER_DATA or ../shared/data" if absent else ""


def needs(*names):
    """Skip a test, with the reason, where one of these folders of data is absent."""
    reason = missing(*names)
    return pytest.mark.skipif(bool(reason), reason=reason or "all data are there")
