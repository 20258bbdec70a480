"""`almoner losses`: the library's numbers, marked private, from arrays of norms."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from almoner import individual
from almoner._units import shown
from almoner.cli import app
from almoner.report.losses import from_norms

RUN = CliRunner()
OPTIONS = ("--noise-multiplier", "2", "--sample-rate", "0.005", "--delta", "1e-5")


def output(*arguments, code=0):
    result = RUN.invoke(app, [str(each) for each in ("losses", *arguments)])
    assert result.exit_code == code, result.output + result.stderr
    return result


def save(path, values):
    np.save(path, values)
    return path


def test_constant_norms_give_the_reference_epsilons(tmp_path):
    """10,000 steps at norms 1, 0.5 and 0: 1.0041 and 0.4440 from above, within a bucket, and 0; Rényi is above."""
    norms = save(tmp_path / "norms.npy", np.array([1.0, 0.5, 0.0]))
    found = json.loads(output(norms, *OPTIONS, "--steps", 10_000, "--json").stdout)
    exact = found["epsilon"]["privacy loss distributions"]
    assert 1.0041127 <= exact[0] < 1.0041127 * 1.005
    assert 0.44396497 <= exact[1] < 0.44396497 * 1.05
    assert exact[2] == 0
    assert all(r >= e for r, e in zip(found["epsilon"]["Rényi"], exact, strict=True))
    assert found["private"].startswith("private")
    assert "no guarantee" in found["status"]


@pytest.mark.slow
def test_norms_of_each_step_agree_with_the_library(tmp_path):
    """(people, steps) norms are recorded step by step; an unknown norm is an infinite epsilon."""
    values = np.random.default_rng(0).uniform(0, 1.2, (5, 30))
    values[4, 7] = np.nan
    found = json.loads(output(save(tmp_path / "n.npy", values), *OPTIONS, "--json").stdout)
    kept = individual.Losses(5, least=2.0, most=2e4, buckets=256)
    from almoner.mechanisms import SampledGaussian

    for column in values.T:
        kept.record(SampledGaussian(2.0, 1.0, 0.005), column)
    expected = kept.epsilon(delta=1e-5)
    given = [float(value) for value in found["epsilon"]["privacy loss distributions"]]
    assert given == pytest.approx(expected)
    assert given[4] == np.inf


@pytest.mark.slow
def test_table_groups_and_picture(tmp_path):
    """Quantiles and means for all and by group, and a picture that says that it is private."""
    norms = save(tmp_path / "norms.npy", np.linspace(0.1, 1, 40))
    groups = save(tmp_path / "groups.npy", np.repeat(["a", "b"], 20))
    picture = tmp_path / "picture.svg"
    shown = output(norms, *OPTIONS, "--steps", 100, "--groups", groups, "--picture", picture).stdout
    assert "private" in shown
    assert shown.count("\tall\t") == 2
    assert "mean" in shown
    lines = [line.split("\t") for line in shown.splitlines() if "\t" in line]
    rows = [(group, numbers) for _, group, *numbers in lines[1:]]
    assert [group for group, _ in rows] == ["all", "a", "b"] * 2
    assert all(len(numbers) == 7 for _, numbers in rows)  # nothing is cut off
    exact = from_norms(np.load(norms), steps=100, noise_multiplier=2, sample_rate=0.005, delta=1e-5)
    column = exact["privacy loss distributions"]
    for (_, numbers), members in zip(rows, (slice(None), slice(20), slice(20, None)), strict=False):
        assert 0 <= float(numbers[-1]) - column[members].mean() <= 1e-4  # rounded up
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_three_accountings_side_by_side(tmp_path):
    """With --gaussian: for everybody, privacy losses <= the dominating Gaussian <= Rényi; 0 and inf stay so; one panel
    for each in the picture."""
    norms = save(tmp_path / "norms.npy", np.array([1.0, 0.5, 0.5, 0.0, np.nan]))
    picture = tmp_path / "picture.svg"
    shown = output(norms, *OPTIONS, "--steps", 10_000, "--gaussian", "--picture", picture, "--json").stdout
    found = {name: [float(e) for e in values] for name, values in json.loads(shown)["epsilon"].items()}
    exact, gauss, rdp = (found[name] for name in ("privacy loss distributions", "Gaussian", "Rényi"))
    assert all(e <= g <= r for e, g, r in zip(exact, gauss, rdp, strict=True))
    assert exact[0] < gauss[0] < 1.05 * exact[0]
    assert gauss[1] == gauss[2] < gauss[0]
    assert gauss[3:] == [0.0, np.inf]
    text = picture.read_text(encoding="utf-8")
    assert all(name in text for name in ("Gaussian (1 without a bound)", "private: for the data holder"))


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("values", "more", "message"),
    [
        (np.ones(3), (), "--steps"),
        (np.ones((3, 2)), ("--steps", "5"), "--steps"),
        (np.ones((2, 2, 2)), (), "shape"),
        (np.ones(3), ("--steps", "0"), "steps=0"),
        (np.ones(3), ("--steps", str(10**12)), "10000000"),
        (np.array(["a"]), ("--steps", "5"), "numbers"),
        (np.ones(3), ("--steps", "5", "--sample-rate", "2"), "--sample-rate=2.0"),
        (np.ones(3), ("--steps", "5", "--noise-multiplier", "0"), "--noise-multiplier=0.0"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, values, more, message):
    """Shapes, types and parameters; exit code 2, no traceback."""
    result = output(save(tmp_path / "n.npy", values), *OPTIONS, *more, code=2)
    assert message in " ".join(result.stderr.split())


def test_files_that_are_no_arrays_are_refused(tmp_path):
    """No pickle is ever read."""
    path = tmp_path / "objects.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    assert "without objects" in " ".join(output(path, *OPTIONS, "--steps", 1, code=2).stderr.split())
    assert "is not there" in " ".join(output(tmp_path / "missing.npy", *OPTIONS, "--steps", 1, code=2).stderr.split())


@pytest.mark.parametrize(("name", "words"), [("picture.txt", "must end in"), ("no/picture.svg", "folder is not there")])
def test_pictures_that_cannot_be_drawn_are_refused_first(tmp_path, name, words):
    """Before anything is worked out, and in one line."""
    norms = save(tmp_path / "n.npy", np.ones(3))
    told = output(norms, *OPTIONS, "--steps", 5, "--picture", tmp_path / name, code=2).stderr
    assert words in " ".join(told.split())
    told = CliRunner().invoke(app, ["compare", "--noise-multiplier", "20", "--picture", str(tmp_path / name)])
    assert told.exit_code == 2
    assert words in " ".join(told.stderr.split())


@pytest.mark.slow
def test_a_page_of_the_losses(tmp_path):
    """The table's numbers, marked private, for its owner alone; no file is overwritten without a word."""
    norms, page = save(tmp_path / "norms.npy", np.array([1.0, 0.5, 0.0])), tmp_path / "losses.html"
    groups = save(tmp_path / "groups.npy", np.array(["a", "<b>", "a"]))
    given = (norms, *OPTIONS, "--steps", 1000, "--groups", groups, "--html", page)
    assert "written to" in output(*given).stdout
    text = page.read_text("utf-8")
    printed = output(*given[:-2], "--json").stdout
    most = max(json.loads(printed)["epsilon"]["Rényi"])
    assert shown(most, 4) in text
    assert "Private: for the data holder" in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text.replace("<bdi>", "").replace("</bdi>", "")
    assert "://" not in text
    for name, value in (
        ("People", "3"),
        ("Sigma: noise, in clips", "2"),
        ("Sampling rate", "0.005"),
        ("Steps", "1,000"),
    ):
        assert f"<dt>{name}</dt><dd><bdi>{value}</bdi></dd>" in text
    assert page.stat().st_mode & 0o777 == 0o600
    assert "--force" in output(*given, code=2).stderr
    assert "either --html or --json" in output(*given, "--force", "--json", code=2).stderr
    steps = save(tmp_path / "steps.npy", np.full((3, 7), 0.5))
    assert "written to" in output(steps, *OPTIONS, "--html", page, "--force").stdout
    assert "<dt>Steps</dt><dd><bdi>7</bdi></dd>" in page.read_text("utf-8")
