"""Prices of rounds for an account that has part of a Gaussian budget left, its residue; see README.md.

Source: theory.md statement 4.8; docs/proofs/residue-filter.md
"""

from almoner.curves._residue._slack import (
    LEAST_NORM,
    LEAST_SLACK,
    PER_OCTAVE,
    Table,
    cost,
    cost_at,
    grid,
    ladder,
    level,
    needs_no_slack,
    size,
    table,
)

__all__ = [
    "LEAST_NORM",
    "LEAST_SLACK",
    "PER_OCTAVE",
    "Table",
    "cost",
    "cost_at",
    "grid",
    "ladder",
    "level",
    "needs_no_slack",
    "size",
    "table",
]
