"""The group experiments in their quick form, and the loader of the MIMIC-III benchmark's phenotyping files."""

import csv
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from almoner import errors
from almoner.mechanisms import Gaussian
from data_folders import DATA, needs

ROOT = Path(__file__).parents[2]


def program(name):
    spec = importlib.util.spec_from_file_location(
        f"koskela_{name}", ROOT / "experiments" / "koskela_2023" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


groups, mimic = program("groups"), program("mimic")


# groups


@pytest.mark.slow
@needs("adult", "diabetes130")
def test_the_quick_experiment_shows_every_group(tmp_path, monkeypatch, capsys):
    """The command as continuous integration runs it: every group at both moments, and tables on a page."""
    page = (ROOT / "docs" / "experiments" / "groups.md").read_text(encoding="utf-8")
    (tmp_path / "groups.md").write_text(page, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["groups.py", "--quick", "--data", str(DATA), "--out", str(tmp_path)])
    groups.main()
    results = json.loads((tmp_path / "groups.json").read_text(encoding="utf-8"))
    for name, attributes in (("adult", {"sex", "race"}), ("diabetes130", {"race", "age"})):
        train = [row for row in results[name] if row["audience"] == "train"]
        assert {row["attribute"] for row in train} == attributes
        for attribute in attributes:
            ends = [row for row in train if row["attribute"] == attribute and row["moment"] == "end"]
            assert sum(row["people"] for row in ends) == 3000
            for row in ends:
                start = next(r for r in train if (r["group"], r["moment"]) == (row["group"], "filtering starts"))
                assert 0 < start["share"] <= row["share"] <= 1
                assert start["used_up"] <= row["used_up"]
    sexes = {row["group"]: row["share"] for row in results["adult"] if row["moment"] == "end" and "share" in row}
    assert sexes["Male"] > 1.5 * sexes["Female"]  # the disparity
    assert [row["multiple"] for row in results["clipping"]] == [1.0, 5.0]
    filled = (tmp_path / "groups.md").read_text(encoding="utf-8")
    assert "| sex | Female |" in filled
    assert "| 5 | 2.5 |" in filled
    assert "| sex | Male |" in capsys.readouterr().out


def test_the_saved_results_are_those_on_the_page():
    """The page's tables are made from the saved numbers."""
    folder = ROOT / "docs" / "experiments"
    results = json.loads((folder / "groups.json").read_text(encoding="utf-8"))
    page = (folder / "groups.md").read_text(encoding="utf-8")
    for name, (title, _) in groups.SETS.items():
        assert groups.group_table(title, results[name]) in page
    assert groups.clip_table(results["clipping"]) in page


def test_a_step_costs_what_the_settings_say():
    """So many steps at the whole clip cost the budget, and not one more."""
    chosen = groups.Settings(steps=50, clip=0.3)
    budget = groups.filters.Gaussian(epsilon=chosen.epsilon, delta=groups.DELTA)
    step = chosen.step()
    assert step == Gaussian(sigma=step.sigma, sensitivity=0.3)
    for _ in range(50):
        budget.charge(step)
    assert not budget.admits(step)


# MIMIC-III


def write(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture
def benchmark(tmp_path):
    """Three stays of two people in the benchmark's shape, made by hand."""
    phenotypes = list(mimic.CODES)
    stays = [("7_episode1_timeseries.csv", 1), ("7_episode2_timeseries.csv", 0), ("12_episode1_timeseries.csv", 0)]
    rows = [[name, "24.500000", label, *[0] * 24] for name, label in stays]
    write(tmp_path / "listfile.csv", ["stay", "period_length", *phenotypes], rows)
    header = ["Hours", *mimic.CHANNELS]
    for name, _ in stays:
        lines = []
        for hour, heart, eye in ((0.5, "75", "4 Spontaneously"), (1.5, "125", "To Speech"), (2.0, "", "")):
            line = dict.fromkeys(header, "")
            line |= {"Hours": hour, "Heart Rate": heart, "Glascow coma scale eye opening": eye, "Height": "999"}
            lines.append([line[column] for column in header])
        write(tmp_path / name, header, lines)
    return tmp_path


def test_the_loader_reads_stays_labels_and_subjects(benchmark):
    """Subjects from the files' names, labels from the list, and summaries clamped and scaled by public ranges."""
    stays = mimic.read(benchmark)
    assert stays.subjects.tolist() == [7, 7, 12]
    assert stays.y[:, 0].tolist() == [1, 0, 0]
    assert stays.y.shape == (3, 25)
    assert stays.hours.tolist() == [24.5] * 3
    assert stays.phenotypes[21].startswith("Pneumonia")
    assert stays.x.shape == (3, 17 * 5 + 1)
    entries = (stays.x[0] * np.sqrt(86))[:-1].reshape(17, 5)
    np.testing.assert_allclose(entries[mimic.CHANNELS.index("Heart Rate")], [1, -0.2, -0.4, 0, 0])
    np.testing.assert_allclose(entries[3], [1, 2 / 3, 1 / 3, 1, 1 / 3])  # 4 and 3 on a scale from 1 to 4
    np.testing.assert_allclose(entries[mimic.CHANNELS.index("Height")], [1, 1, 1, 1, 1])
    assert np.all(entries[mimic.CHANNELS.index("pH")] == 0)
    assert np.all(np.linalg.norm(stays.x, axis=1) <= 1 + 1e-12)


def test_the_loader_refuses_other_files(benchmark):
    """Another header, a label that is none, another name, another order of channels, no file."""
    path = benchmark / "listfile.csv"
    text = path.read_text(encoding="utf-8")
    for wrong in (
        text.replace("period_length", "hours"),
        text.replace("24.500000,1,", "24.500000,2,", 1),
        text.replace("7_episode1_timeseries", "seven"),
        text.splitlines()[0] + "\n",
    ):
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(errors.DataError):
            mimic.read(benchmark)
    path.write_text(text, encoding="utf-8")
    stay = benchmark / "12_episode1_timeseries.csv"
    stay.write_text(stay.read_text(encoding="utf-8").replace("Height,Mean", "Mean,Height"), encoding="utf-8")
    with pytest.raises(errors.DataError, match="channels"):
        mimic.read(benchmark)
    with pytest.raises(errors.DataError, match="not there"):
        mimic.read(benchmark, benchmark / "val_listfile.csv")


@needs("mimic3_demo")
def test_a_private_model_from_files_made_from_the_demo(tmp_path):
    """Files of the benchmark's shape from the open demo; a person is a subject with all stays; nobody overspends."""
    folder = mimic.make_from_demo(DATA / "mimic3_demo", tmp_path)
    data, test = mimic.read(folder / "train"), mimic.read(folder / "test")
    assert len(data.y) > len(set(data.subjects)) > 70  # several stays of a person
    assert not set(data.subjects) & set(test.subjects)
    assert data.phenotypes == tuple(mimic.CODES)
    assert np.all(data.x[:, 5 * mimic.CHANNELS.index("Heart Rate")] > 0)  # everybody's heart rate was measured
    found, report, accounts = mimic.train(
        data,
        test,
        phenotype="Pneumonia",
        stays=folder / "all_stays.csv",
        epsilon=1.0,
        steps=30,
        last=45,
        seed=0,
    )
    assert found.shape == (86, 1)
    assert len(accounts.spent()) == len(set(data.subjects))
    assert np.all(accounts.spent() <= accounts.budget.mu**2)
    ends = [row for row in report.rows if row["moment"] == "end" and row["audience"] == "train"]
    assert sum(row["people"] for row in ends if row["attribute"] == "gender") == len(set(data.subjects))
    assert {row["group"] for row in ends if row["attribute"] == "gender"} == {"F", "M"}
    with pytest.raises(errors.DataError, match="none of"):
        mimic.train(data, test, phenotype="Plague", stays=None, epsilon=1.0, steps=1, last=1, seed=0)
