"""The command ``almoner``, also as ``python -m almoner``."""

import sys

from almoner import __version__

__all__ = []  # a command, not a module to import from


def main() -> None:
    """Run the command. The version alone is printed without loading any command."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"almoner {__version__}\n")
        return
    from almoner.cli import app

    app(prog_name="almoner")


if __name__ == "__main__":
    main()
