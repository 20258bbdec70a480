"""Tables by public schema, and training from a file into a folder."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from almoner import training
from almoner.errors import ArgumentError, DataError
from almoner.training import saved_model, tables
from almoner.training._linear import model_folder
from almoner.training.tables import Schema, template
from data_folders import DATA, needs
from model_folders import rewrite, weights

SCHEMA = """
target = "bought"
classes = ["no", "yes"]
missing = ["", "?"]

[columns.age]
low = 0
high = 100

[columns.hours]
low = 0
high = 99
bins = [20, 40]

[columns.sex]
categories = ["F", "M"]

[columns.adult]
source = "hours"
low = 0
high = 99
bins = [30]

[columns.place]
categories = [["north", "east"], ["south"]]

[[crosses]]
columns = ["hours", "sex"]
"""

CSV = """age,hours,sex,place,secret,bought
50,20,F,north,x,yes
-7,?,M,elsewhere,x,no
1e9,60, M ,south,x,no
abc,40,,east,x,yes
"""


def schema(text=SCHEMA, **changes):
    """The schema above, with some entries changed."""
    return Schema.parse(tomllib.loads(text) | changes)


@pytest.fixture
def file(tmp_path):
    """A small CSV file."""
    path = tmp_path / "data.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


def named(known, row):
    """The features of a row that are not zero, unscaled, by name."""
    names, scale = tables.feature_names(known), np.sqrt(len(known.columns) + len(known.crosses) + 1)
    return {names[j]: round(float(value) * scale, 6) for j, value in zip(row.indices, row.data, strict=True)}


def test_each_entry_becomes_what_the_schema_says(file):
    """Scaled, binned, grouped, crossed; missing, unseen, out of bounds and not a number as documented."""
    known = schema()
    features = tables.encode(tables.read(file, known), known)
    assert named(known, features[0]) == {
        "age": 0.0,
        "hours in [20, 40)": 1.0,
        "sex=F": 1.0,
        "adult in [0, 30)": 1.0,
        "place=north or east": 1.0,
        "hours[1] and sex[0]": 1.0,
        "constant": 1.0,
    }
    assert named(known, features[1]) == {  # clamped; missing; unseen: no indicator
        "age": -1.0,
        "hours missing": 1.0,
        "sex=M": 1.0,
        "adult missing": 1.0,
        "hours[3] and sex[1]": 1.0,
        "constant": 1.0,
    }
    assert named(known, features[2]) | {"age": 1.0, "sex=M": 1.0, "place=south": 1.0} == named(known, features[2])
    assert named(known, features[3])["age missing"] == 1.0
    assert named(known, features[3])["sex missing"] == 1.0
    assert tables.labels(tables.read(file, known), known).tolist() == [1, 0, 0, 1]


def test_csv_and_parquet_are_the_same_table(file, tmp_path):
    """The same people in both formats, with typed, dictionary and null columns in Parquet, make the same features."""
    known = schema()
    table = pa.table(
        {
            "age": pa.array([50.0, -7.0, 1e9, None]),
            "hours": pa.array([20, None, 60, 40], pa.int32()),
            "sex": pa.array(["F", "M", "M", None]).dictionary_encode(),
            "place": ["north", "elsewhere", "south", "east"],
            "bought": ["yes", "no", "no", "yes"],
        }
    )
    parquet.write_table(table, tmp_path / "data.parquet")
    a, b = (tables.encode(tables.read(path, known), known) for path in (file, tmp_path / "data.parquet"))
    np.testing.assert_array_equal(a.toarray(), b.toarray())


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats()),
            st.one_of(st.none(), st.floats()),
            st.sampled_from([None, "F", "M", "", "?", "x"]),
            st.sampled_from([None, "north", "south", "x"]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_no_row_is_longer_than_one_and_none_depends_on_another(rows):
    """Whatever is in a row, its features are finite with norm at most 1, and the same as if it stood alone."""
    known = schema()

    def encoded(some):
        age, hours, sex, place = zip(*some, strict=True)
        table = pa.table(
            {
                "age": pa.array(age, pa.float64()),
                "hours": pa.array(hours, pa.float64()),
                "sex": pa.array(sex, pa.string()),
                "place": pa.array(place, pa.string()),
            }
        )
        names = list(dict.fromkeys(known.wanted))
        clean = {name: tables._clean(name, table.column(name), known)[0] for name in names}
        return tables.encode(clean, known).toarray()

    together = encoded(rows)
    assert np.isfinite(together).all()
    assert (np.linalg.norm(together, axis=1) <= 1 + 1e-12).all()
    np.testing.assert_array_equal(together, np.vstack([encoded([row]) for row in rows]))


def test_messages_name_the_column_and_the_rule_and_quote_nobody(file):
    """Refusals never hold an entry, a row number or a count."""
    refusals = [
        ({"columns": {"sex": {"categories": ["F", "M"], "missing": "refuse"}}}, "column 'sex': missing"),
        ({"columns": {"place": {"categories": ["north", "south", "east"], "unseen": "refuse"}}}, "column 'place'"),
        ({"columns": {"hours": {"low": 0, "high": 99, "missing": "refuse"}}}, "column 'hours': missing"),
        ({"classes": ["yes", "perhaps"]}, "column 'bought': entries must be among"),
        ({"person": "sex"}, "column 'sex'"),
    ]
    for changes, message in refusals:
        given_columns = {"columns": tomllib.loads(SCHEMA)["columns"], "crosses": []} | changes
        if "person" in changes:
            given_columns["columns"] = {"age": {"low": 0, "high": 100}}
        known = schema(**given_columns)
        table = tables.read(file, known)
        with pytest.raises(DataError, match=message) as refused:
            tables.encode(table, known), tables.labels(table, known), tables.owners(table, known)
        for private in ("elsewhere", "abc", "1e9", "row 2", "-7"):
            assert private not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("age,hours\n1,2\n3,4,sekret\n", "bad.csv"),
        ("age,age\n1,2\n", "twice.csv"),
        ("age,hours\n1,2\n", "columns.csv"),
        ("", "empty.csv"),
        ("sekret", "no.parquet"),
        ("sekret", "strange.xlsx"),
    ],
)
def test_broken_files_are_refused_in_one_line_without_their_content(tmp_path, text, name):
    """A file that cannot be read as a table: the path and the rule, nothing of what is in it, no inner error."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    known = schema(columns={"age": {"low": 0, "high": 9}, "hours": {"low": 0, "high": 9}}, crosses=[])
    with pytest.raises(DataError) as refused:
        tables.read(tmp_path / name, known)
    assert "sekret" not in str(refused.value)
    assert refused.value.__context__ is None
    with pytest.raises(DataError, match="cannot be read"):
        tables.read(tmp_path / "absent.csv", known)


@pytest.mark.parametrize(
    "lines", [("51,20,F,north,'x,yes", "52,20,F,north,x',yes"), ("51,20,'F,north,x,yes", "52,20',F,north,x,yes")]
)
def test_quotes_that_are_left_open_take_in_nobodys_lines(file, lines):
    """Two lines of one person with a quote in each, in a column that is wanted or not, and others' in between."""
    first, *others = CSV.splitlines()
    text = [first, lines[0].replace("'", '"'), *others, lines[1].replace("'", '"')]
    file.write_text("\n".join(text) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="each line must be a row"):
        tables.read(file, schema())


def test_rows_of_one_person_are_found_by_the_person_column(file):
    """Rows with the same entry are the same person; a row of nobody is refused."""
    known = schema(person="secret")
    assert len(set(tables.owners(tables.read(file, known), known))) == 1
    assert tables.owners(tables.read(file, schema()), schema()) is None


@pytest.mark.parametrize("ids", [[1.0, float("nan"), 2.0], [1, None, 2], ["a", "", "b"], ["a", " ", "b"]])
@pytest.mark.parametrize("missing", [["", "?"], ["?"]])
def test_rows_of_nobody_are_refused(tmp_path, ids, missing):
    """NaN, null, blank: not a person of that name."""
    known = schema(person="secret", missing=missing)
    rows = {"age": [1, 2, 3], "hours": [20, 20, 20], "sex": ["F"] * 3, "place": ["north"] * 3, "bought": ["no"] * 3}
    parquet.write_table(pa.table(rows | {"secret": ids}), tmp_path / "data.parquet")
    with pytest.raises(DataError, match="whose it is"):
        tables.owners(tables.read(tmp_path / "data.parquet", known), known)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": {}}, "no columns"),
        ({"columns": {"age": {}}}, "columns.age must have low and high"),
        ({"columns": {"age": {"low": 5, "high": 5}}}, "columns.age: low=5"),
        ({"columns": {"age": {"low": 0, "high": float("inf")}}}, "columns.age.high=inf must be a finite number"),
        ({"columns": {"age": {"low": 0, "high": 9, "bins": [3, 2]}}}, "rising"),
        ({"columns": {"age": {"low": 0, "high": 9, "missing": "guess"}}}, "missing='guess'"),
        ({"columns": {"sex": {"categories": ["F"]}}}, "at least two"),
        ({"columns": {"sex": {"categories": ["F", "F"]}}}, "all different"),
        ({"columns": {"bought": {"low": 0, "high": 1}}}, "cannot be a feature"),
        ({"classes": ["yes"]}, "at least two labels"),
        ({"crosses": [{"columns": ["age", "sex"]}]}, "crosses"),
        ({"people": 0}, "people=0"),
        ({"aliases": {"y": "Y"}}, "aliases"),
        ({"colour": 1}, "colour"),
        ({"target": ""}, "target"),
    ],
)
def test_schemas_that_break_a_rule_are_refused(changes, message):
    """The message names the entry and the rule."""
    with pytest.raises(DataError, match=message):
        schema(**changes)


def test_a_call_and_a_schema_that_disagree_are_refused(tmp_path):
    """The target in the call must be the target in the file; no file, or no TOML, is a DataError too."""
    (tmp_path / "s.toml").write_text(SCHEMA, encoding="utf-8")
    assert Schema.read(tmp_path / "s.toml", target="bought", person="id").person == "id"
    with pytest.raises(DataError, match="target"):
        Schema.read(tmp_path / "s.toml", target="age")
    with pytest.raises(DataError, match="is not there"):
        Schema.read(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("a = ", encoding="utf-8")
    with pytest.raises(DataError, match="not a TOML file"):
        Schema.read(tmp_path / "bad.toml")


def test_a_schema_survives_its_dictionary():
    """parse(to_dict) is the identity."""
    known = schema(person="id", people=7, aliases={"ja": "yes"}, file={"names": ["a", "b"]})
    assert Schema.parse(json.loads(json.dumps(known.to_dict()))) == known


def test_the_template_knows_names_and_nothing_else(file):
    """A template has the columns' names, parses as TOML, is not usable until filled in, and holds no entry."""
    text = template(tables.column_names(file), "bought")
    parsed = tomllib.loads(text)
    assert set(parsed["columns"]) == {"age", "hours", "sex", "place", "secret"}
    with pytest.raises(DataError):
        Schema.parse(parsed)
    assert not any(entry in text for entry in ("north", "50", "elsewhere", "yes"))


@pytest.fixture
def people_file(tmp_path):
    """Some hundreds of made-up people, two rows each, whom age tells apart."""
    draw = np.random.default_rng(0)
    lines = ["id,age,hours,sex,place,bought"]
    for person, age in enumerate(draw.integers(0, 101, size=400)):
        rest = f"north,{'yes' if age > 50 else 'no'}"
        lines += [f"p{person},{age},{draw.integers(100)},{draw.choice(['F', 'M'])},{rest}" for _ in range(2)]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def trained(path, **options):
    """A model from that file."""
    known = schema(person="id", people=400)
    options = {"epsilon": 3.0, "learning_rate": 16.0, "steps": 50, "seed": 0} | options
    return saved_model.train(path, known, test=path, **options)


def test_a_trained_model_is_saved_whole_loaded_and_predicts_the_same(people_file, tmp_path):
    """The folder holds model, card and metrics, no pickle and no private report; loading gives the same answers."""
    result = trained(people_file)
    assert result.metrics["accuracy"] > 0.85
    out = saved_model.save(result, tmp_path / "model")
    assert sorted(path.name for path in out.iterdir()) == [
        "card.html",
        "card.json",
        "card.md",
        "metrics.json",
        "model.json",
        "weights.npz",
    ]
    model = saved_model.load(out)
    np.testing.assert_array_equal(model.coef, result.model.coef)
    np.testing.assert_allclose(model.predict_proba(people_file), result.model.predict_proba(people_file))
    labels = [line.rsplit(",", 1)[1] for line in people_file.read_text(encoding="utf-8").splitlines()[1:]]
    assert np.mean(np.array(model.predict(people_file)) == labels) == pytest.approx(result.metrics["accuracy"])
    others = tmp_path / "others.csv"  # of people who have no names here, and no labels yet
    columns = [line.split(",") for line in people_file.read_text(encoding="utf-8").splitlines()]
    kept = [place for place, name in enumerate(columns[0]) if name not in ("id", model.schema.target)]
    others.write_text("".join(",".join(line[place] for place in kept) + "\n" for line in columns), encoding="utf-8")
    assert model.predict(others) == model.predict(people_file)
    card = json.loads((out / "card.json").read_text(encoding="utf-8"))
    assert card["people_from"] == "group"
    assert "not cover" in json.loads((out / "metrics.json").read_text(encoding="utf-8"))["note"]
    assert len(result.holder_report.shares) == 400
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_softmax_models_are_saved_too(people_file, tmp_path):
    """Three labels: three columns of weights, there and back."""
    known = schema(classes=["no", "perhaps", "yes"], person="id", people=400)
    result = saved_model.train(people_file, known, epsilon=3.0, learning_rate=16.0, steps=50, seed=0)
    assert saved_model.load(saved_model.save(result, tmp_path / "m")).predict(people_file) == result.model.predict(
        people_file
    )
    assert result.model.coef.shape[0] == 3
    assert result.metrics is None


def test_a_folder_is_not_overwritten_unless_forced_and_never_if_it_is_no_model(people_file, tmp_path):
    """What is there is kept; --force replaces a model, and nothing but a model."""
    result = trained(people_file, steps=2)
    out = saved_model.save(result, tmp_path / "model")
    before = (out / "card.json").read_bytes()
    with pytest.raises(ArgumentError, match="--force"):
        saved_model.save(trained(people_file, steps=3), out)
    assert (out / "card.json").read_bytes() == before
    saved_model.save(trained(people_file, steps=3), out, force=True)
    assert json.loads((out / "card.json").read_text(encoding="utf-8"))["steps"] == 3
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    (photographs / "cat.jpg").write_text("meow", encoding="utf-8")
    with pytest.raises(ArgumentError, match="not a model"):
        saved_model.save(result, photographs, force=True)
    assert (photographs / "cat.jpg").exists()


def test_a_crash_while_saving_leaves_nothing_half_written(people_file, tmp_path, monkeypatch):
    """If writing fails, neither a folder nor a temporary one is left, and an old model is still there."""
    result = trained(people_file, steps=2)
    old = saved_model.save(result, tmp_path / "old")
    monkeypatch.setattr(
        model_folder.np.lib.format, "write_array", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full"))
    )
    for name, force in (("new", False), ("old", True)):
        with pytest.raises(OSError, match="disk full"):
            saved_model.save(result, tmp_path / name, force=force)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["old"]
    assert saved_model.load(old).schema == result.model.schema


@pytest.mark.parametrize(
    "damage", ["model.json", "weights.npz", "pickle", "format", "list", "bytes", "nan", "shape", "schema", "columns"]
)
def test_damaged_models_are_refused(people_file, tmp_path, damage):
    """A missing file, a pickle in place of the weights, another format: DataError, and nothing is unpickled."""
    out = saved_model.save(trained(people_file, steps=2), tmp_path / "model")
    if damage == "pickle":
        rewrite(out, {"coef": np.array([{"a": 1}], dtype=object), "intercept": np.zeros(1)})
    elif damage == "list":
        (out / "model.json").write_text("[]", encoding="utf-8")
    elif damage == "bytes":
        (out / "weights.npz").write_bytes(b"PK\x03\x04 something else")
    elif damage == "nan":
        found = weights(out)
        rewrite(out, found | {"coef": found["coef"] * np.nan})
    elif damage == "shape":
        found = weights(out)
        rewrite(out, found | {"coef": found["coef"][:, 1:]})
    elif damage == "schema":
        rewrite(out, schema=[3])
    elif damage == "columns":
        rewrite(out, schema={"target": "bought", "classes": ["no", "yes"], "columns": 3})
    elif damage == "format":
        rewrite(out, format=99)
    else:
        (out / damage).unlink()
    with pytest.raises(DataError):
        saved_model.load(out)


def test_a_person_who_is_in_the_file_more_often_is_still_one_person(people_file, tmp_path):
    """Declared by a person column, doubling everybody's rows changes nobody's charge by more than the clip allows."""
    lines = people_file.read_text(encoding="utf-8").splitlines()
    doubled = tmp_path / "doubled.csv"
    doubled.write_text("\n".join([*lines, *lines[1:]]) + "\n", encoding="utf-8")
    once, twice = trained(people_file, max_grad_norm=1e-3), trained(doubled, max_grad_norm=1e-3)
    assert len(twice.holder_report.shares) == len(once.holder_report.shares) == 400
    np.testing.assert_allclose(twice.model.coef, once.model.coef, rtol=1e-6)  # all gradients are clipped


@needs("adult")
def test_adult_is_read_as_its_source_describes():
    """32561 and 16281 people, of whom 24.08 % and 23.62 % earn more; every row has norm at most 1."""
    known = Schema.read(Path(training.__file__).parent / "adult.toml")
    for part, rows, share in (("data", 32561, 0.2408), ("test", 16281, 0.2362)):
        table = tables.read(DATA / "adult" / f"adult.{part}", known, skip_rows=part == "test")
        features, codes = tables.encode(table, known), tables.labels(table, known)
        assert features.shape == (rows, len(tables.feature_names(known)))
        assert codes.mean() == pytest.approx(share, abs=1e-4)
        assert features.multiply(features).sum(axis=1).max() <= 1 + 1e-12
