"""What the tests of this room share."""

import pytest

from training_runs import records


@pytest.fixture(name="data")
def fixture_data():
    """The records and targets of a small training problem."""
    return records()
