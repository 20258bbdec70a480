"""``python -m bursar`` is the command ``bursar``."""

from bursar.cli import app

if __name__ == "__main__":
    app(prog_name="bursar")
