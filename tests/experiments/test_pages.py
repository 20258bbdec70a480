"""Pages of experiments: each shows what was recorded, names its program, and the index names only what exists."""

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "experiments"
PROGRAMS = sorted(
    path
    for path in (ROOT / "experiments").glob("*/*.py")
    if "\ndef main(" in path.read_text("utf-8") and not path.stem.endswith("_page")
)
"""Those that end in _page make pages of what others recorded, and run nothing."""


def program(name, monkeypatch):
    """A program of the folders experiments and benchmarks, as a module."""
    path = ROOT / f"{name}.py"
    monkeypatch.syspath_prepend(str(path.parent))
    module_name = name.replace("/", "_")
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, module_name, module)  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def numbers(path):
    """The recorded numbers: one JSON value, or a list of the lines of a .jsonl file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.endswith("l") else json.loads(text)


def made_table(name, record):
    """A check for pages whose program makes the table from the record alone."""
    return lambda patch: [program(name, patch).table(numbers(record))]


def tuning(patch):
    module = program("experiments/lecuyer_2021/tuning", patch)
    return [module.table(numbers("docs/experiments/tuning.json"), kind) for kind in module.KINDS]


def finetune(patch):
    module, rows = program("experiments/lecuyer_2021/finetune", patch), numbers("experiments/results/finetune.jsonl")
    size = module.Size(**rows[0]["size"])
    return [module.table(module.furthest(rows, size), size)]


def replay(patch):
    module = program("experiments/lecuyer_2021/replay", patch)
    return list(module.tables(numbers("docs/experiments/replay.json")).values())


def policies(patch):
    module, rows = program("experiments/lecuyer_2021/policies", patch), numbers("experiments/results/policies.jsonl")
    return [module.table(module.of(model, rows)) for model in ("linear", "resnet9")]


def groups(patch):
    module, record = program("experiments/koskela_2023/groups", patch), numbers("docs/experiments/groups.json")
    tables = [module.group_table(title, record[name]) for name, (title, _) in module.SETS.items()]
    return [*tables, module.clip_table(record["clipping"])]


def coverage(patch):
    rows = []
    for case, row in numbers("docs/experiments/coverage.json").items():
        rows.append(f"| {case} |")
        rows.append(f"| {100 * row['covered']:.1f}% | {100 * row['given']:.0f}% |")
    return rows


def daily(patch):
    made, retail = (numbers(f"experiments/results/{name}.json") for name in ("daily", "daily_retail"))
    doubles, weeks = "days until the mean relative error doubles", "days until that of three weeks doubles"
    noise, error = "mean relative error of the noise alone", "mean relative error, all days"
    times = "times, three weeks"
    for name, (result, sigma) in {"daily": (made, 25.0), "daily_retail": (retail, 10.0)}.items():
        days = numbers(f"experiments/results/{name}.jsonl")
        judged = program("experiments/feldman_zrnic_2021/daily", patch).judged(days, 20, sigma)
        assert judged.items() <= result.items()
    return [
        f"the answers add up to {100 * retail['share of the truth that is answered, last tenth']:.0f} % of the truth",
        f"| {made['sigma']:g} | {retail['sigma']:g} |",
        f"| {made['epsilon at delta = 1e-6']:.2f} | {retail['epsilon at delta = 1e-6']:.2f} |",
        f"| {made[doubles]} ({made['times']} times as many) | more than {retail[doubles]}",
        f"| {made[weeks]} ({made[times]} times) | {retail[weeks]} ({retail[times]} times) |",
        f"| {100 * made[noise]:.1f} % | {100 * retail[noise]:.1f} % |",
        f"| {100 * made[error]:.1f} % of {made['days asked']} days | {100 * retail[error]:.1f} % |",
    ]


def mixed(patch):
    module, told = program("experiments/queries/mixed", patch), numbers("docs/experiments/mixed.json")
    known = module.summary(numbers("experiments/results/mixed.jsonl"))
    assert known.items() <= told.items()
    return [module.written(told)]


def streams(patch):
    rows = []
    for way in ("left out", "remainder", "paced"):
        retail = numbers("experiments/results/query_streams.json")["Online Retail, revenue a week"][way]
        rows.append(" | ".join(f"{100 * each:.1f} %" for each in retail["mean error of answers"]))
        rows.append(" | ".join(f"{100 * each:.0f} %" for each in retail["share of noise intervals that cover"]))
    return rows


def training_streams(patch):
    module, runs = program("experiments/streams/releases", patch), numbers("experiments/results/releases.jsonl")
    assert numbers("docs/experiments/streams.json") == module.summary(runs)
    return [module.table(runs)]


def mnist(patch):
    runs = numbers("experiments/results/mnist.jsonl")
    return [program("experiments/feldman_zrnic_2021/mnist_page", patch).sections(runs)]


def whitehouse(patch):
    module, record = (
        program("experiments/whitehouse_2023/odometers", patch),
        numbers("docs/experiments/whitehouse.json"),
    )
    return list(module.tables(record).values())


def adaptive_steps(patch):
    module = program("benchmarks/tightness/adaptive_steps", patch)
    return module.table(numbers("docs/experiments/adaptive_steps.json"))


def utility(patch):
    module = program("experiments/utility/utility_page", patch)
    runs = module.recorded()
    assert numbers("docs/experiments/utility.json") == module.summary(runs)
    return [module.table(runs), module.rules_table(runs), module.bases(runs)]


def defaults(patch):
    module, runs = program("experiments/utility/defaults", patch), numbers("experiments/results/defaults.jsonl")
    return [module.table(runs), module.chances_table(runs)]


SHOWN = {
    "adaptive-clip.md": made_table("experiments/utility/clips", "experiments/results/clips.jsonl"),
    "renewal.md": made_table("experiments/queries/renewal", "experiments/results/renewal.json"),
    "adult.md": made_table("experiments/feldman_zrnic_2021/adult", "docs/experiments/adult.json"),
    "coverage.md": coverage,
    "daily.md": daily,
    "mixed.md": mixed,
    "descent.md": made_table("experiments/feldman_zrnic_2021/descent", "docs/experiments/descent.json"),
    "finetune.md": finetune,
    "groups.md": groups,
    "koskela-figures.md": made_table("experiments/koskela_2023/figures", "docs/experiments/koskela-figures.json"),
    "koskela.md": made_table("experiments/koskela_2023/figure1", "docs/experiments/koskela.json"),
    "defaults.md": defaults,
    "mini-batches.md": made_table("experiments/streams/mini_batches", "experiments/results/mini_batches.jsonl"),
    "mnist.md": mnist,
    "odometer-sizes.md": made_table("experiments/feldman_zrnic_2021/restarts", "docs/experiments/odometer-sizes.json"),
    "odometer.md": made_table("experiments/lecuyer_2021/odometer", "docs/experiments/odometer.json"),
    "policies.md": policies,
    "replay.md": replay,
    "training-streams.md": training_streams,
    "spreading.md": made_table("experiments/utility/spreading", "experiments/results/spreading.jsonl"),
    "stopping-counts.md": made_table(
        "experiments/feldman_zrnic_2021/stopping", "docs/experiments/stopping-counts.json"
    ),
    "streams.md": streams,
    "tuning.md": tuning,
    "utility.md": utility,
    "whitehouse.md": whitehouse,
    "../residue.md": adaptive_steps,
}
"""What a page must show, made from the recorded numbers."""

OWN_TEST = {"koskela-groups.md": "test_koskela_section6.py::test_the_page_shows_the_saved_runs"}
"""Pages that a test of their own compares with the record."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_the_page_shows_what_was_recorded(name, monkeypatch):
    """Every table of the page is the one that the program makes of the recorded numbers."""
    page = (PAGES / name).read_text(encoding="utf-8")
    rows = SHOWN[name](monkeypatch)
    assert rows
    for row in rows:
        assert row.strip() in page


def test_no_page_is_left_out():
    """Each page of an experiment is compared with its record, and each picture beside the pages is shown on one."""
    assert {path.name for path in PAGES.glob("*.md")} - {"index.md"} <= {*SHOWN, *OWN_TEST}
    for test in OWN_TEST.values():
        file, function = test.split("::")
        assert f"\ndef {function}(" in (ROOT / "tests" / "experiments" / file).read_text(encoding="utf-8")
    text = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/**/*.md"))
    for picture in PAGES.glob("*.svg"):
        assert f"{picture.name})" in text, picture.name


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_program_is_on_a_page(path):
    """A page names the program, and the program has a quick form."""
    name = path.relative_to(ROOT).as_posix()
    assert any(name in page.read_text(encoding="utf-8") for page in ROOT.glob("docs/**/*.md")), name
    assert '"--quick"' in path.read_text(encoding="utf-8"), name


# the index


def index_rows():
    """The rows of the index: number, what the paper says, where it is, the verdict, what shows it."""
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    return [[cell.strip() for cell in line.split(" | ")] for line in re.findall(r"^\| (\d.*) \|$", text, re.M)]


def test_the_index_has_a_row_for_each_statement():
    """The rows are numbered from 1 to 86, each has five cells, and none is empty."""
    rows = index_rows()
    assert [int(row[0]) for row in rows] == list(range(1, 87))
    for row in rows:
        assert len(row) == 5, row
        assert all(row), row


def test_the_pages_of_the_papers_are_made_from_the_records(monkeypatch):
    """The index and the paper's pages are what the program makes of the records now; a claim has all its cells."""
    module = program("experiments/papers", monkeypatch)
    made = module.made()
    assert len(made) == 5
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python experiments/papers.py"
        assert len(text.encode()) > 2000
    known = module.read()
    assert {claim["paper"] for claim in known["claim"]} == {row["paper"] for row in known["row"]} == set(known["paper"])
    for claim in known["claim"]:
        assert claim["says"], claim
        assert claim["here"], claim
        assert claim["verdict"], claim
        assert ("picture" in claim) == ("alt" in claim)
        if "picture" in claim:
            assert (PAGES / claim["picture"]).is_file(), claim["picture"]
        for line in claim.get("command", "").strip().splitlines():
            python, name, *options = line.split()
            assert python == "python"
            text = (ROOT / name).read_text(encoding="utf-8")
            for option in options:
                assert not option.startswith("--") or f'"{option}"' in text, line


def test_tuned_gains_are_those_of_the_page_of_tuning(monkeypatch):
    """Each kind of candidate is compared with tuned runs of its own: seeds of the kinds were mixed up."""
    found = program("experiments/papers", monkeypatch).figures()
    page = (PAGES / "tuning.md").read_text(encoding="utf-8")
    for epsilon in ("1", "0.3"):
        for name, label in {
            "4": "4 for all steps (the default)",
            "16": "16 for all steps",
            "linear": "linear for",
        }.items():
            row = re.search(rf"^\| {re.escape(epsilon)} \| {re.escape(label)}.*$", page, re.M)[0]
            assert found[f"tuned against {name} at {epsilon}"] in row


def test_runs_that_are_no_pairs_are_compared_by_welch(monkeypatch):
    """The interval of the difference of two means is the one that the formula gives."""
    module = program("experiments/papers", monkeypatch)
    plain, other = [1.0, 2.0, 3.0, 6.0], [5.0, 7.0, 6.0]
    spreads = [np.var(each, ddof=1) / len(each) for each in (plain, other)]
    freedom = sum(spreads) ** 2 / (spreads[0] ** 2 / 3 + spreads[1] ** 2 / 2)
    half = stats.t.ppf(0.975, freedom) * sum(spreads) ** 0.5
    assert module.unpaired(plain, other) == f"+3.00 [{3 - half:+.2f}, {3 + half:+.2f}]"


def test_a_figure_without_a_record_stops_the_page(monkeypatch):
    """No page is written with a hole in it."""
    module = program("experiments/papers", monkeypatch)
    assert module.filled("{a} and {b}", {"a": "1", "b": "2"}) == "1 and 2"
    with pytest.raises(KeyError):
        module.filled("{a}", {})


def test_every_program_of_a_paper_is_run_by_make_papers(monkeypatch):
    """Each is called in its quick form, and whole unless it needs other data, with options that it has."""
    module = program("experiments/papers", monkeypatch)
    assert len(module.PROGRAMS) >= 17
    assert {name for name, _ in module.calls("quick")} == {*module.PROGRAMS}
    assert {name for name, *_ in module.calls("full")} >= {*module.PROGRAMS} - {"koskela_2023/mimic.py"}
    for how in ("quick", "full", "pages"):
        for name, *options in module.calls(how):
            text = (ROOT / "experiments" / name).read_text(encoding="utf-8")
            for option in options:
                assert not option.startswith("--") or f'"{option}"' in text, (name, option)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ("+0.61 [+0.09, +1.13]", "holds"),
        ("-0.19 [-1.78, +1.40]", "not decided: the interval holds 0"),
        ("+0.18 [+0.00, +0.37]", "not decided: the interval ends at 0"),
        ("-0.18 [-0.37, -0.00]", "not decided: the interval ends at 0"),
        ("-9.79 [-10.18, -9.40]", "does not hold"),
        ("+0.20", "one run: not decided"),
    ],
)
def test_what_an_interval_says(interval, verdict, monkeypatch):
    """A gain holds where its whole interval is above zero."""
    assert program("experiments/papers", monkeypatch).decided(interval) == verdict


def test_verdicts_of_the_index():
    """Each row works, or says what is not there or missing, or names the command that would run it."""
    for number, _, _, verdict, shown in index_rows():
        assert verdict.startswith(("works", "in part: ", "not there")) or "`python experiments/" in verdict, number
        assert verdict.startswith("not there") or "](" in shown or "::test_" in shown, number
        assert not (verdict.startswith("works") and re.search(r"\bno function\b|\bnot there\b", verdict)), number


def test_the_index_names_only_what_exists():
    """Every name of the package, every test, and every test file in the index is there."""
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    for name in set(re.findall(r"`(almoner[\w.]+)`", text)):
        assert found(name), name
    tests = set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text))
    assert len(tests) > 40
    for file, test in tests:
        assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"


def found(name):
    """What a dotted name stands for: a module, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            place = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            place = getattr(place, part)
        return place
    return None
