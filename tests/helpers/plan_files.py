"""A folder with a file of events and a file of questions about them."""

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

__all__ = ["PLAN", "plan_folder"]

PLAN = """
data = "events.parquet"
person = "who"
ledger = "people.ledger"
rho = 1.0
analyst = "ann"
purpose = "weekly"

[[questions]]
key = "rows"
ask = "count"
by = { place = ["x", "y"] }
clip = 1
sigma = 20

[[questions]]
key = "middle"
ask = "quantiles"
column = "n"
edges = [0, 2, 4, 6, 8]
levels = [0.25, 0.5]
sigma = 2
where = "place = 'x'"
"""


def plan_folder(folder: Path) -> Path:
    """The folder, with ``plan.toml`` and the 500 events of 100 people that it asks about."""
    rows = {"who": [i % 100 for i in range(500)], "n": [i % 9 for i in range(500)], "place": ["x", "y"] * 250}
    parquet.write_table(pa.table(rows), folder / "events.parquet")
    (folder / "plan.toml").write_text(PLAN)
    return folder
