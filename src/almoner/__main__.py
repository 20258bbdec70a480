"""The command ``almoner``, also as ``python -m almoner``."""

import io
import sys

from almoner import __version__

__all__ = []  # a command, not a module to import from


def main() -> None:
    """Run the command. The version alone is printed without loading any command.

    Where the terminal cannot show a letter, as with LC_ALL=C, another sign stands in its place. Data that a command
    writes to its output is UTF-8 everywhere.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"almoner {__version__}\n")
        return
    from almoner.cli import app

    app(prog_name="almoner")


if __name__ == "__main__":
    main()
