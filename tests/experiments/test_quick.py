"""Every experiment has a quick form of seconds, which runs from a clean checkout and changes no file of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from data_folders import DATA, missing

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path
    for path in (ROOT / "experiments").glob("*/*.py")
    if "\ndef main(" in path.read_text("utf-8") and not path.stem.endswith("_page")
)
"""Those that end in _page make pages of what others recorded, and run nothing."""

OWN_TEST = {
    "feldman_zrnic_2021/adult.py": "training/linear/test_estimator.py::"
    "test_the_adult_experiment_runs_in_its_quick_form",
    "feldman_zrnic_2021/mnist.py": "experiments/test_mnist.py::test_the_quick_form_trains",
    "koskela_2023/figure1.py": "experiments/test_losses.py::test_the_quick_form_runs_and_orders_the_accountings",
    "koskela_2023/groups.py": "experiments/test_koskela.py::test_the_quick_experiment_shows_every_group",
    "koskela_2023/section6.py": "experiments/test_koskela_section6.py::"
    "test_the_quick_form_writes_the_page_and_goes_on_after_a_kill",
    "lecuyer_2021/finetune.py": "experiments/test_training.py::test_fine_tuning_in_quick_form",
    "lecuyer_2021/policies.py": "experiments/test_training.py::test_policies_in_quick_form",
    "lecuyer_2021/tuning.py": "experiments/test_tuning.py::test_tuning_in_quick_form",
    "utility/spreading.py": "experiments/test_spreading.py::test_runs_are_recorded_once_and_the_table_is_printed",
}
"""Programs whose quick form is run, and judged, by a test of their own."""

ABSENT = re.compile(r"^almoner\.errors\.DataError: (\S+) does not (exist|contain .*); set ALMONER_DATA", re.M)
"""The last words of a program whose data set is not there."""


def name(path):
    return path.relative_to(ROOT / "experiments").as_posix()


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in PROGRAMS if name(path) not in OWN_TEST], ids=name)
def test_the_quick_form_runs(path, tmp_path):
    """It ends well, prints something, and leaves every file as it was; or its data set is not there, and it says so."""
    before = written()
    command = [sys.executable, path, "--quick"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"ALMONER_DATA": str(DATA)}, capture_output=True, text=True
    )
    absent = ABSENT.search(done.stderr)
    if done.returncode and absent and missing(Path(absent[1]).relative_to(DATA).parts[0]):
        pytest.skip(missing(Path(absent[1]).relative_to(DATA).parts[0]))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
    assert written() == before
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_without_data_a_quick_form_is_skipped_and_the_reason_names_the_data(tmp_path):
    """Where the folder of data sets is empty, programs that need one are no failures: the reason says which."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        __file__,
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "-k",
        "renewal or clips",
    ]
    environment = os.environ | {"ALMONER_DATA": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "2 skipped" in done.stdout
    assert done.stdout.count(": not in ALMONER_DATA or ../shared/data") == 2


def test_the_others_have_a_test_of_their_own():
    """Each program whose quick form is not run here is there, and so is the test that runs it."""
    for program, test in OWN_TEST.items():
        assert ROOT / "experiments" / program in PROGRAMS
        file, function = test.split("::")
        assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def written():
    """When each file of the experiments and their pages was last written."""
    folders = (ROOT / "experiments", ROOT / "docs" / "experiments")
    files = (file for folder in folders for file in folder.rglob("*") if file.suffix not in ("", ".pyc"))
    return {file: file.stat().st_mtime_ns for file in files}
