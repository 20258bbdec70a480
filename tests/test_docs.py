"""Documentation is checked against the code: examples run, generated pages are up to date, links lead somewhere."""

import doctest
import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from almoner import filters, mechanisms
from almoner.accounting import calibrate
from almoner.cli import app
from sparks import java

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
PROSE = [*PAGES, ROOT / "CONTRIBUTING.md"]
TUTORIALS = sorted(ROOT.glob("docs/tutorials/*.md"))
SLOW = {"spark.md": pytest.mark.server} | {
    f"{name}.md": pytest.mark.slow
    for name in (
        *("computer-noise", "individual", "interop", "ledger", "losses", "moving", "pipelines", "which-epsilon"),
        *("datasets", "keys", "people", "periods", "planned", "several"),
        *("budgets-and-samplings", "folders", "images", "ledgers", "linear-models", "people-and-records", "pytorch"),
        *("streams", "tuning", "watch-and-stop"),
    )
}
"""Pages whose examples take more than a second, or need Spark."""

COMMAND = re.compile(r"^```\n\$ almoner (.*)\n((?:.*\n)*?)```$", re.M)
COMMANDS = [
    (page, *found)
    for page in PAGES
    if page not in TUTORIALS
    for found in COMMAND.findall(page.read_text(encoding="utf-8"))
]
"""Commands with their output, of pages whose commands need no files: the page, the arguments, what is printed."""


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*LeafSpec")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=SLOW.get(page.name, ())) for page in PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_examples_run(page, tmp_path, monkeypatch):
    """Every example of README and docs prints what the page says."""
    if page.name == "spark.md" and not java():
        pytest.skip("there is no Java, which Spark runs on")
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    if page in TUTORIALS:
        text = COMMAND.sub(as_example, text)
    names = {"__name__": "__main__", "almoner": almoner}
    test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), 0)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0


def as_example(command):
    """A command of a tutorial as an example of Python: it reads the files that the examples before it wrote."""
    arguments, output = command.groups()
    shown = re.sub(r"^$", "<BLANKLINE>", stripped(output).rstrip("\n"), flags=re.M)
    return f">>> almoner({arguments!r})  # doctest: -NORMALIZE_WHITESPACE\n{shown}\n"


def almoner(arguments):
    """Print what a command prints, in 80 columns."""
    result = CliRunner(env={"COLUMNS": "80", "TERM": "dumb", "TTY_COMPATIBLE": "1"}).invoke(app, shlex.split(arguments))
    assert result.exit_code == 0, result.output
    print(stripped(result.output), end="")


@pytest.mark.parametrize(
    ("shown", "holds"), [("a  b\n\nend", True), ("a b\n\nend", False), ("a  b\nend", False), ("a  b\n\n...", True)]
)
def test_commands_of_tutorials_are_compared(shown, holds):
    """A command between examples is run, and its output compared to the blank."""
    text = COMMAND.sub(as_example, f"```\n$ almoner try it\n{shown}\n```\n")
    printed = {"almoner": lambda arguments: print("a  b\n\nend" if arguments == "try it" else "")}
    test = doctest.DocTestParser().get_doctest(text, printed, "page", None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert (runner.run(test, out=lambda text: None).failed == 0) == holds


def stripped(text):
    """Without the blanks at the ends of lines, which tables have."""
    return "".join(f"{line.rstrip()}\n" for line in text.strip().splitlines())


@pytest.mark.parametrize(("page", "arguments", "output"), COMMANDS, ids=lambda value: str(value)[-40:])
def test_commands_print_what_the_page_says(page, arguments, output, tmp_path, monkeypatch):
    """Every command that a page shows with its output prints that output, in 80 columns."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner(env={"COLUMNS": "80", "TERM": "dumb", "TTY_COMPATIBLE": "1"}).invoke(app, shlex.split(arguments))
    assert result.exit_code == 0
    matches = doctest.OutputChecker().check_output(stripped(output), stripped(result.output), doctest.ELLIPSIS)
    assert matches, result.output


def test_the_readme_shows_commands():
    """The commands are found, so that none goes unchecked."""
    assert any(page.name == "README.md" for page, *_ in COMMANDS)
    shown = sum(page.read_text(encoding="utf-8").count("\n$ almoner ") for page in PAGES)
    assert len(COMMANDS) + sum(len(COMMAND.findall(page.read_text(encoding="utf-8"))) for page in TUTORIALS) == shown


def kept(name):
    """A record of an experiment, or its page."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else text


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_the_picture_is_told_in_recorded_figures(name):
    """What stands under the first picture was recorded by the runs that it shows."""
    record, text = kept("docs/experiments/mixed.json"), " ".join(kept(name).split())
    assert f"five figures a week for {record['weeks']} weeks" in text
    assert f"(epsilon 2, delta {record['delta']:.0e})".replace("e-0", "e-") in text
    assert f"need epsilon {record['needed']['hindsight']:.1f} for what accounts do with 2" in text


def test_accounts_beat_the_best_caps_where_the_page_says_so():
    """At each epsilon accounts have at least 18 % less error in all splits, and are worse in one figure at most."""
    for each in kept("docs/experiments/mixed.json")["epsilons"].values():
        for gain in each["gains"].values():
            assert gain["mean"] + gain["half"] < -0.18
            assert max(gain["splits"]) < -0.17
        worse = [
            mine > best for mine, best in zip(*(each["errors"][n] for n in ("accounts", "hindsight")), strict=True)
        ]
        assert sum(worse) <= 1


def test_a_cap_ties_where_the_page_says_so():
    """The page on daily counts tells what accounts answered in the last tenth of the days, and what a cap would."""
    record, text = kept("experiments/results/daily_retail.json"), kept("docs/experiments/daily.md")
    assert f"add up to {100 * record['share of the truth that is answered, last tenth']:.0f} % of the truth" in text
    share = record["share of the truth under a cap of as many days, last tenth"]
    assert f"the last tenth adds up to {100 * share:.0f} % of the truth" in text


def test_the_readme_tells_trainers_what_was_measured():
    """The changed lines are those of a guide whose script runs; steps and points are those of the pages linked."""
    readme = " ".join(kept("README.md").split())
    (change,) = re.findall(r"```diff\n(.*?)```", kept("README.md"), re.DOTALL)
    assert set(change.splitlines()) <= set(kept("docs/training/from-opacus.md").splitlines())
    assert "at most 0.3 % of the steps of a fixed plan ([137 settings](docs/filters.md))" in readme
    measured = " ".join(kept("docs/filters.md").split())
    assert "At 137 of its points" in measured
    assert "`Planned` admits at least 99.7 % of the number fixed in advance" in measured
    cell = r" \| ([+-][\d.]+) \[[^]]*\]"
    gains = re.findall(rf"{cell}{cell} \|$", kept("docs/experiments/training-streams.md"), re.M)
    assert len(gains) == 10
    everybody, cap = zip(*gains, strict=True)
    told = [
        f"{float(end):+.1f}" for column in (everybody, cap) for end in (min(column, key=float), max(column, key=float))
    ]
    assert "the difference is {} to {} points of accuracy against".format(*told[:2]) in readme
    assert "and {} to {} against the best cap by count".format(*told[2:]) in readme


@pytest.mark.parametrize(("noise", "rate", "epsilon"), [(1.1, 0.01, 1.0), (0.8, 0.01, 2.0), (2.0, 0.005, 1.0)])
def test_looking_costs_few_steps(noise, rate, epsilon):
    """The filter that is recommended pays for at least 99.7 % of the steps of a plan that is fixed in advance."""
    step = mechanisms.SampledGaussian(sigma=noise, sample_rate=rate)
    plan = calibrate.in_advance(epsilon=epsilon, delta=1e-5, noise_multiplier=noise, sample_rate=rate).steps
    budget = filters.recommend(epsilon=epsilon, delta=1e-5, plan=step).budget
    assert calibrate.steps(budget, step) >= 0.997 * plan


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pictures_are_told_in_words(page):
    """Every picture on a page has a text for those who do not see it."""
    assert not re.findall(r"!\[\s*\]", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_are_there(page):
    """Every file of the repository that a page names in backticks, or by a command, exists."""
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`(?:python )?((?:src|tests|benchmarks|experiments|docs)/[\w./]+)[ `]", text):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """Relative links point at files that exist, and at sections of them that exist."""
    for target, section in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists(), target
            assert not section or section in sections(there), f"{target}#{section}"


def test_every_page_is_in_the_navigation():
    """The site shows each page of the docs once, and none that is not there."""
    named = re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES if page.name != "README.md")


def sections(page):
    """The anchors of a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {
        re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-")
        for title in re.findall(r"^#+ (.*)", text, re.M)
    }


@pytest.mark.parametrize("name", ["cli", "api", "questions"])
def test_generated_pages_are_up_to_date(name):
    """docs/cli.md, docs/api.md and docs/questions.md are what their sources say now (`make docs` writes them)."""
    page = ROOT / "docs" / f"{name}.md"
    assert getattr(generator(), name)() == page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", generator().PAGES)
def test_tables_of_what_files_hold_are_up_to_date(name):
    """They are what the models say now (`make docs` writes them), and there are some."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert "<!-- table: " in page
    assert generator().with_tables(page) == page


def test_cited_statements_are_there():
    """Every statement that the package or a page cites by number is in docs/theory.md, once."""
    numbers = re.findall(r"^\*\*(\d+\.\d+) ", (ROOT / "docs" / "theory.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(numbers) == len(set(numbers))
    for path in [*PAGES, *(ROOT / "src").rglob("*.py")]:
        for cited in re.findall(r"theory ((?:\d+\.\d+(?:, | and | to | or )?)+)", path.read_text(encoding="utf-8")):
            assert set(re.findall(r"\d+\.\d+", cited)) <= set(numbers), f"{path.name} cites {cited}"
