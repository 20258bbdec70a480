"""Files that list mechanisms: the run that they describe, its unknown number, and refusals that name the entry."""

import json

import pytest
from typer.testing import CliRunner

from almoner import mechanisms
from almoner.accounting import calibrate, runs
from almoner.cli import app
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, CalibrationFailed, DataError

RUN = CliRunner()
MODEL = {"kind": "SampledGaussian", "sigma": 1.1, "sample_rate": 0.01, "count": 400}
SUM = {"kind": "Gaussian", "sigma": 8.0, "name": "report"}
COUNT = {"kind": "Laplace", "scale": 9}
LISTED = (
    mechanisms.Repeated(mechanisms.SampledGaussian(1.1, sample_rate=0.01), 400),
    mechanisms.Gaussian(8.0),
    mechanisms.Laplace(9),
)


def output(*arguments, code=0):
    result = RUN.invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output + result.stderr
    return result


def written(folder, values, name="run.json"):
    (folder / name).write_text(json.dumps(values), encoding="utf-8")
    return folder / name


def test_a_file_is_the_run_that_it_lists(tmp_path):
    """TOML, JSON, a saved mechanism inside, and a saved mechanism alone are one run, with its epsilon."""
    saved = written(tmp_path, mechanisms.to_fields(LISTED[0]), "model.json")
    lines = [
        "[[mechanisms]]\nfile = 'model.json'\nname = 'model'",
        "[[mechanisms]]\nkind = 'Gaussian'\nsigma = 8.0",
        "[[mechanisms]]\nkind = 'Laplace'\nscale = 9",
    ]
    (tmp_path / "run.toml").write_text("\n".join(lines), encoding="utf-8")
    whole = mechanisms.Composed(LISTED)
    in_json = written(tmp_path, {"mechanisms": [MODEL, SUM, COUNT]})
    described = written(tmp_path, mechanisms.to_fields(whole), "whole.json")
    for path in (tmp_path / "run.toml", in_json, described):
        run = runs.read(path).mechanism()
        assert mechanisms.leaves(run) == mechanisms.leaves(whole)
        assert json.loads(output("epsilon", path, "--json").stdout)["epsilon"] == tightest(whole, delta=1e-5).epsilon
    assert runs.read(tmp_path / "run.toml").names == ("model", "mechanisms.1", "mechanisms.2")
    assert mechanisms.leaves(runs.read(saved).mechanism()) == mechanisms.leaves(LISTED[0])
    twice = runs.of({"mechanisms": [{"file": "model.json", "count": 2}]}, folder=tmp_path)
    assert mechanisms.rounds(twice.mechanism()) == 800  # the count of the file is not that of the entry


def test_replaced_records_are_an_adjacency(tmp_path):
    """The run that ``replaced`` makes of the mechanisms, by command and by function; a certificate is for neither."""
    file = written(tmp_path, {"adjacency": "replace", "mechanisms": [MODEL, SUM, COUNT]})
    true = tightest(mechanisms.replaced(mechanisms.Composed(LISTED)), delta=1e-5).epsilon
    found = json.loads(output("epsilon", file, "--json").stdout)
    assert found["epsilon"] == true > 1.5 * tightest(mechanisms.Composed(LISTED), delta=1e-5).epsilon
    assert found["adjacency"] == "replace"
    again = written(tmp_path, {"adjacency": "replace", "mechanisms": found["mechanisms"]}, "again.json")
    assert json.loads(output("epsilon", again, "--json").stdout)["epsilon"] == true  # what it prints is what was read
    described = {"adjacency": "replace", **mechanisms.to_fields(mechanisms.Composed(LISTED))}
    assert runs.of(described).mechanism() == runs.read(file).mechanism()
    assert "Replacing all records of one person" in " ".join(output("epsilon", file).output.split())
    refused = output("epsilon", file, "--certificate", tmp_path / "c.json", code=2)
    assert "--certificate is for adding or removing" in refused.stderr
    assert not (tmp_path / "c.json").exists()
    unknown = runs.of({"adjacency": "replace", "mechanisms": [{**SUM, "sigma": "?"}]}).solve(epsilon=1.0, delta=1e-5)
    assert unknown.number == pytest.approx(2 * calibrate.in_advance(epsilon=1.0, delta=1e-5, steps=1).sigma, rel=1e-3)
    with pytest.raises(ArgumentError, match="adjacency"):
        runs.of({"adjacency": "bounded", "mechanisms": [SUM]})


EVERY = [
    mechanisms.Gaussian(2.0),
    mechanisms.SampledGaussian(2.0, sample_rate=0.1),
    mechanisms.DiscreteGaussian(3.0),
    mechanisms.Laplace(2.0),
    mechanisms.RandomizedResponse(0.5),
    mechanisms.Pure(0.5),
    mechanisms.Approximate(0.5, 1e-7),
    mechanisms.PDP(0.5, 1e-7),
    mechanisms.Exponential(0.5),
    mechanisms.Zcdp(0.02),
    mechanisms.Renyi((2.0, 8.0), (0.1, 0.3)),
    mechanisms.Repeated(mechanisms.Gaussian(9.0), 7),
    mechanisms.Composed((mechanisms.Gaussian(3.0), mechanisms.Pure(0.1))),
    mechanisms.DominatingPair(p=(0.75, 0.25), q=(0.25, 0.75)),
    mechanisms.BestOf(mechanisms.Gaussian(5.0), 4.0),
    mechanisms.MixtureOfGaussians(2.0, (0.0, 1.0), (0.5, 0.5)),
    mechanisms.SampledRecords(2.0, sample_rate=0.1, records=3),
    mechanisms.TruncatedGaussian(2.0, 1.0, 0.01, 16, 1000),
    mechanisms.ReplacedGaussian(2.0, sample_rate=0.1),
    mechanisms.RandomAllocation(3.0, 1.0, 10),
    mechanisms.Shuffled(1.0, 1000),
]


def test_every_mechanism_is_known_by_its_name():
    """Each kind can stand in a file; none is forgotten in the list of this test."""
    bases = {mechanisms.Mechanism, mechanisms.Paired}
    kinds = {each for each in vars(mechanisms).values() if isinstance(each, type)} - bases
    assert kinds == {type(each) for each in EVERY}
    for each in EVERY:
        listed = {"mechanisms": [json.loads(json.dumps(mechanisms.to_fields(each)))]}
        assert runs.of(listed).mechanism() == mechanisms.Composed((each,))


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda each: type(each).__name__)
def test_the_command_prices_every_mechanism(tmp_path, mechanism):
    """Beside Gaussian noise each has an epsilon, as the library says, however few answers there are."""
    run = mechanisms.Composed((mechanism, mechanisms.Gaussian(9.0)))
    found = json.loads(output("epsilon", written(tmp_path, mechanisms.to_fields(run)), "--json").stdout)
    assert 0 < found["epsilon"] <= tightest(run, delta=1e-5).epsilon
    assert found["answers"][0]["promise"] == "fixed"


def unknown(entry, field, *others):
    return runs.of({"mechanisms": [{**entry, field: "?"}, *others]})


UNKNOWN = [
    (MODEL, "sigma", 1),
    (MODEL, "sample_rate", -1),
    (SUM, "sigma", 1),
    (SUM, "sensitivity", -1),
    (COUNT, "scale", 1),
    ({"kind": "Zcdp", "rho": 1.0, "count": 3}, "rho", -1),
    ({"kind": "Pure", "epsilon": 1.0}, "epsilon", -1),
    ({"kind": "Exponential", "eta": 1.0}, "eta", -1),
    ({"kind": "Approximate", "epsilon": 0.1, "delta": 0.1}, "delta", -1),
]


@pytest.mark.parametrize(("entry", "field", "side"), UNKNOWN, ids=lambda each: each if isinstance(each, str) else "")
def test_the_number_that_is_found_fits_and_a_slightly_dearer_one_does_not(entry, field, side):
    """On the side that costs less, within a part in a thousand; the wrong direction would fail one of the two."""
    others = (LISTED[1], mechanisms.Laplace(9.0))
    asked = unknown(entry, field, SUM, COUNT)
    found = asked.solve(epsilon=3.0, delta=1e-6)
    assert found.field == f"mechanisms.0.{field}"
    first = runs.of({"mechanisms": [{**entry, field: found.number}]}).mechanism()
    assert found.epsilon == tightest(mechanisms.Composed((first, *others)), delta=1e-6).epsilon <= 3.0
    assert tightest(asked.mechanism(found.number * (1 - side * 1e-3)), delta=1e-6).epsilon > 3.0


def test_a_count_that_is_found_is_the_largest():
    """One round more costs too much; a count of none is told, and a rest that does not fit is refused."""
    asked = unknown(MODEL, "count", SUM, COUNT)
    found = asked.solve(epsilon=2.0, delta=1e-6)
    assert found.epsilon <= 2.0 < tightest(asked.mechanism(found.number + 1), delta=1e-6).epsilon
    assert unknown({"kind": "Pure", "epsilon": 5.0}, "count", SUM).solve(epsilon=2.0, delta=1e-6).number == 0
    with pytest.raises(CalibrationFailed, match="rest of the run"):
        unknown(SUM, "count", {"kind": "Pure", "epsilon": 5.0}).solve(epsilon=2.0, delta=1e-6)


def test_unknown_numbers_inside_others_are_found():
    """The noise of the best of several runs, and how many may be expected."""
    inner = {"kind": "Gaussian", "sigma": "?", "sensitivity": 1000.0}
    found = runs.of({"mechanisms": [{"kind": "BestOf", "mechanism": inner, "runs": 10}]}).solve(epsilon=3.0, delta=1e-6)
    assert found.field == "mechanisms.0.mechanism.sigma"
    assert 1000 < found.number < 4000
    many = {"kind": "BestOf", "mechanism": {**inner, "sigma": found.number}, "runs": "?"}
    assert runs.of({"mechanisms": [many]}).solve(epsilon=3.0, delta=1e-6).number == pytest.approx(10, rel=1e-2)


def test_numbers_without_an_end_stop_at_it():
    """Rate 1 where everybody fits; refused where no noise is enough, and where there is nothing to find."""
    everybody = unknown({"kind": "SampledGaussian", "sigma": 400.0, "sample_rate": 1.0}, "sample_rate")
    assert everybody.solve(epsilon=3.0, delta=1e-2).number == 1.0
    with pytest.raises(CalibrationFailed, match="no number"):
        unknown(SUM, "sigma", {"kind": "Gaussian", "sigma": 0.1}).solve(epsilon=3.0, delta=1e-6)
    with pytest.raises(ArgumentError, match="no number is unknown"):
        runs.of({"mechanisms": [SUM]}).solve(epsilon=3.0, delta=1e-6)


def test_the_functions_of_the_library_find_the_same(tmp_path):
    """``calibrate.least`` is what the file asks for; the command prints it, rounded to the safe side."""
    found = unknown(SUM, "sigma", COUNT).solve(epsilon=1.0, delta=1e-6)
    noise = calibrate.least(
        lambda sigma: mechanisms.Composed((mechanisms.Gaussian(sigma), LISTED[2])), epsilon=1.0, delta=1e-6, high=1e9
    )
    assert found.number == noise
    path = written(tmp_path, {"mechanisms": [{**SUM, "sigma": "?"}, COUNT]})
    budget = ("--epsilon", 1, "--delta", 1e-6)
    said = json.loads(output("calibrate", path, *budget, "--json").stdout)
    assert (said["number"], said["field"], said["epsilon"]) == (noise, "mechanisms.0.sigma", found.epsilon)
    printed = output("calibrate", path, *budget).stdout.replace("│", " ").split()
    shown = float(printed[printed.index("mechanisms.0.sigma") + 1])
    assert noise <= shown <= noise * (1 + 1e-6)
    costly = written(tmp_path, {"mechanisms": [{"kind": "Pure", "epsilon": "?"}]})
    printed = output("calibrate", costly, *budget).stdout
    assert "0.9999" in printed


WRONG = [
    ({}, "mechanisms is missing"),
    ([1], "the whole must be a table"),
    ({"kind": "Gausian"}, r"mechanisms.0.kind must be one of .*Gaussian.* or give file"),
    ({"mechanisms": []}, "mechanisms is empty: write one"),
    ({"mechanisms": [SUM, {"sigma": 1}]}, r"mechanisms.1.kind must be one of"),
    ({"mechanisms": [SUM, 3]}, r"mechanisms.1.kind must be one of"),
    ({"mechanisms": [{"kind": "Gaussian"}]}, "mechanisms.0.sigma is missing"),
    ({"mechanisms": [{**SUM, "cuont": 3}]}, r"mechanisms.0 \(report\).cuont is not known; .*did you mean `count`"),
    ({"mechanisms": [{**SUM, "count": 0}]}, r"report\).count=0 must be a whole number"),
    ({"mechanisms": [{**SUM, "count": True}]}, r"report\).count=True must be a whole number"),
    ({"mechanisms": [{**SUM, "sigma": "2"}]}, r"report\).sigma='2' must be a number"),
    ({"mechanisms": [COUNT, {**SUM, "sigma": -2.0}]}, r"mechanisms.1 \(report\): sigma=-2.0 must be positive"),
    ({"mechanisms": [{"kind": "Repeated", "mechanism": {**SUM, "sigma": 0}, "count": 2}]}, r"mechanisms.0.mechanism"),
    ({"mechanisms": [{**SUM, "sigma": "?", "count": "?"}]}, "one number may be"),
    (
        {"mechanisms": [{"kind": "BestOf", "mechanism": {"kind": "Pure", "epsilon": 0.1}, "runs": 3, "shape": "?"}]},
        'shape="\\?" cannot be found',
    ),
    ({"mechanisms": [{"kind": "Gaussian", "sigma": "?", "sensitivity": -1.0}]}, "sensitivity=-1.0"),
    ({"mechanisms": [{"file": "absent.json"}]}, "absent.json cannot be read"),
    ({"mechanisms": [{"file": "run.json"}]}, "run.json is no mechanism: `json.dumps"),
]


@pytest.mark.parametrize(("values", "words"), WRONG)
def test_refusals_name_the_entry(tmp_path, values, words):
    """The place and the name of the entry at fault, and the rule."""
    with pytest.raises(DataError, match=words) as refused:
        runs.read(written(tmp_path, values))
    assert "run.json" in str(refused.value)


def test_the_commands_refuse_what_does_not_go_together(tmp_path):
    """A file beside options, an unknown number where an epsilon is asked for, nothing at all, a file that is absent."""
    path = written(tmp_path, {"mechanisms": [{**SUM, "sigma": "?"}]})
    for arguments, words in (
        (("epsilon", path), "almoner calibrate"),
        (("epsilon", path, "--steps", 3), "leave out"),
        (("calibrate", path, "--epsilon", 1, "--noise-multiplier", 3), "leave out"),
        (("epsilon",), "--noise-multiplier or a file of mechanisms is missing"),
        (("epsilon", tmp_path / "absent.toml"), "is not there"),
        (("epsilon", tmp_path / "absent.json"), "cannot be read"),
        (("epsilon", path, "--csv", path, "--force"), "is what is read"),
    ):
        assert words in output(*arguments, code=2).stderr.replace("\n", " ")
