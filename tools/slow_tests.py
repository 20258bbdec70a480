"""List the tests that take long in tests/slow.txt, which the quick suite leaves out; `make check` runs them all.

    .venv/bin/python -m pytest -m "not (slow or server or browser)" --junitxml=times.xml
    .venv/bin/python tools/slow_tests.py times.xml

What is listed stays, where it still exists; to measure all anew, empty the list first.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "slow.txt"
SECONDS = 0.3
QUICK = ("tests/test_house.py", "tests/test_prose.py")  # what they look at, each change may break


def listed() -> set[str]:
    """The tests of the list: ``tests/module.py::test[case]``."""
    return set(LIST.read_text(encoding="utf-8").splitlines()) if LIST.exists() else set()


def slow(report: Path) -> set[str]:
    """Tests of a JUnit report that took longer than ``SECONDS``, fixtures included; none that is named by a path."""
    found = set()
    for case in ElementTree.parse(report).iter("testcase"):
        if float(case.get("time", "0")) > SECONDS:
            path = f"{case.get('classname', '').replace('.', '/')}.py"
            found.add(f"{path if (ROOT / path).exists() else path.replace('.py', '/__init__.py')}::{case.get('name')}")
    return found


def gone(test: str) -> bool:
    """True for a test whose file or function is not there any more."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return not file.exists() or name.partition("[")[0].rpartition(".")[2] not in file.read_text(encoding="utf-8")


def main() -> None:
    """Write the list."""
    found = listed() | slow(Path(sys.argv[1]))
    tests = {test for test in found if not gone(test) and not test.startswith(QUICK) and str(ROOT) not in test}
    LIST.write_text("".join(f"{test}\n" for test in sorted(tests)), encoding="utf-8")
    print(f"{len(tests)} tests")


if __name__ == "__main__":
    main()
