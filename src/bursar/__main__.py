"""``python -m bursar`` is the command ``bursar``."""

from bursar.cli import app

app(prog_name="python -m bursar")
