"""Exactly once: whatever moment a process is killed at, no answer without its charge, no second charge for a key."""

import pytest

from crashes import campaign

pytestmark = pytest.mark.slow


def test_killed_at_random_moments(tmp_path):
    """40 kills: every revealed answer is stored and charged once, the ledger checks, and replaying costs nothing."""
    recorded, revealed = campaign(tmp_path, kills=40, seed=None)
    assert recorded >= revealed > 20
