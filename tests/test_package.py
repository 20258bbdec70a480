"""What the package says of itself: versions, extras, and the files around it agree with each other."""

import re
import runpy
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import almoner

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def workflow(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))


def named(requirement):
    """The library of a requirement, without extra and version."""
    return re.match(r"[\w.-]+", requirement).group().lower()


def test_the_conda_recipe_is_that_of_the_package():
    """Its version, summary, license, Python, command and libraries are those of pyproject.toml."""
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == almoner.__version__
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert recipe["about"]["license"] == PROJECT["license"]
    python, *libraries = (each.replace(" ", "") for each in recipe["requirements"]["run"])
    assert python == f"python{PROJECT['requires-python']}"
    assert libraries == PROJECT["dependencies"]
    commands = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"dev"}))
def test_users_get_ranges(extra):
    """No extra for users fixes a version: it would replace the user's own, and two libraries that do cannot meet."""
    for requirement in EXTRAS[extra]:
        assert "==" not in requirement
        assert ">=" in requirement or named(requirement) == "almoner"


def test_tests_run_with_versions_that_users_may_have():
    """Each version that the developers fix lies in the range for users, and is the one that is installed."""
    ranges = {named(each): each for extra, needs in EXTRAS.items() if extra != "dev" for each in needs}
    fixed = dict(line.split("==") for line in CONSTRAINTS if "==" in line)
    assert {"torch", "opacus", "opendp", "pyspark"} <= set(fixed)
    for name, version in fixed.items():
        if name in ranges:
            low = re.search(r">=([\d.]+)", ranges[name]).group(1)
            high = re.search(r"<([\d.]+)", ranges[name])
            assert numbers(low) <= numbers(version) < (numbers(high.group(1)) if high else (10**6,))
        assert numbers(metadata.version(name)) == numbers(version)


def numbers(version):
    return tuple(map(int, re.match(r"[\d.]+\d", f"{version}.0").group().split(".")))[:2]


def test_the_set_up_installs_the_fixed_versions():
    """The Makefile installs PyTorch first and then the rest, by constraints.txt, which fixes every package of ours."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    pip = "$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt"
    assert f"PIP := {pip}\n" in makefile
    assert "\t$(PIP) torch\n\t$(PIP) --editable '.[dev]'\n" in makefile
    fixed = {line.split("==")[0] for line in CONSTRAINTS if "==" in line}
    needs = {named(each) for listed in [PROJECT["dependencies"], *EXTRAS.values()] for each in listed}
    assert fixed == needs - {"almoner"}


def test_the_oldest_versions_are_those_that_ranges_begin_with():
    """The oldest versions are the first of every range for users; a version that is asked for stands in their place."""
    found = runpy.run_path(str(ROOT / "tools" / "versions.py"))
    users = [PROJECT["dependencies"], *(listed for extra, listed in EXTRAS.items() if extra != "dev")]
    needs = {named(each) for listed in users for each in listed} - {"almoner"}
    assert {line.split("==")[0] for line in found["lowest"]()} == needs
    assert "numpy==2.0" in found["lowest"]()
    assert found["without"](["a==1", "b==2"], ["b==3"]) == ["a==1"]


def test_every_extra_that_an_error_names_is_there():
    """`pip install '.[EXTRA]'`, which an error advises, installs the library that is missing."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for libraries, extra in re.findall(r'need\(((?:"\w+", )+)extra="(\w+)"\)', path.read_text(encoding="utf-8")):
            found += [(library, extra) for library in re.findall(r"\w+", libraries)]
    assert len(found) > 20
    known = {
        "sklearn": "scikit-learn",
        "dp_accounting": "dp-accounting",
        "prometheus_client": "prometheus-client",
    }
    for library, extra in found:
        brought = {named(each) for each in EXTRAS[extra]}
        for others in re.findall(r"almoner\[([\w,]+)\]", " ".join(EXTRAS[extra])):
            brought |= {named(each) for other in others.split(",") for each in EXTRAS[other]}
        if library not in {"pandas", "py4j"}:  # come with the others
            assert known.get(library, library) in brought, (library, extra)


def test_python_versions_agree():
    """Classifiers, the least version and the versions that are tested name the same Pythons."""
    said = [each.split(" :: ")[-1] for each in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", each)]
    assert PROJECT["requires-python"] == f">={said[0]}"
    for job in workflow("tests")["jobs"].values():
        assert job["strategy"]["matrix"].get("python", said) == said
    assert f"Python {said[0]} to {said[-1]}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_the_makefile_has(path):
    """Workflows run targets of the Makefile, may write nothing by default, and store no password."""
    text, read = path.read_text(encoding="utf-8"), workflow(path.stem)
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"run: make (\w+)", text)) <= targets
    assert read["permissions"] == {"contents": "read"}
    assert "secrets." not in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_fixed(path):
    """What workflows take from others is one commit, with its version beside it: a tag can be moved."""
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action), action


def test_hooks_before_a_commit_need_no_network():
    """They are local, and call the tools of .venv."""
    read = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [each["repo"] for each in read["repos"]] == ["local"]
    for hook in read["repos"][0]["hooks"]:
        assert hook["entry"].startswith(".venv/bin/")
        assert hook["language"] == "system"


def test_recorded_runs_are_not_in_the_source_distribution():
    """They are many lines that no user of the package needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (folder,) = project["tool"]["hatch"]["build"]["targets"]["sdist"]["exclude"]
    assert list((ROOT / folder.lstrip("/")).glob("*.jsonl"))


def test_this_version_has_notes():
    """At most 40 lines or so, and the marks of modules that the package's docstring has."""
    notes = (ROOT / "docs" / "releases" / f"{almoner.__version__}.md").read_text(encoding="utf-8")
    assert notes.startswith(f"# Release {almoner.__version__}\n")
    assert len(notes.splitlines()) <= 50
    marks = re.findall(r"(?m)^(stable|may change|experimental) +(.+)$", almoner.__doc__)
    assert len(marks) == 3
    assert all(f"| {mark} | {modules} |" in notes for mark, modules in marks)


def test_the_citation_names_this_version():
    """CITATION.cff can be read, and names the version and the licence of the package."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (almoner.__version__, PROJECT["license"])


def test_a_package_index_shows_no_link_that_leads_nowhere():
    """Of the README, what points at files of the repository is left out of the description of the package."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for change in hook["fancy-pypi-readme"]["substitutions"]:
        text, found = re.subn(change["pattern"], change["replacement"].replace("\\\\", "\\"), text)
        assert found
    assert not re.findall(r"\]\((?!https?://)|docs/[\w/-]+\.(?:md|png|svg)", text)
    assert "I publish statistics" in text


def test_the_demonstration_has_an_environment_of_its_own():
    """It is made of one extra, without PyTorch and without what developers need."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "demo: $(DEMO)/ready\n\t$(DEMO)/bin/almoner demo --out demo --force\n" in makefile
    assert "--constraint constraints.txt --editable '.[demo]'\n" in makefile
    assert EXTRAS["demo"] == ["almoner[queries,sklearn]"]
    assert not {named(each) for extra in ("queries", "sklearn") for each in EXTRAS[extra]} & {"torch", "matplotlib"}
