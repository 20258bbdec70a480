"""Entries of a table that cannot be read by its schema: refused where all of a column are, told where some are."""

import logging
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from almoner.cli import app
from almoner.errors import DataError
from almoner.training import LogisticRegression, tables
from almoner.training._linear import wrappers
from almoner.training.saved_model import load, train_to_folder

PRIVATE = "private: for the data holder"
ROWS = 400
SCHEMA = """
target = "label"
classes = ["0", "1"]

[columns.age]
low = 0
high = 100

[columns.income]
low = 0
high = 5000
"""
FORMS = {
    "decimal comma": (lambda x: f"{x:.2f}".replace(".", ","), ","),
    "comma and groups": (lambda x: f"{x:,.2f}".translate(str.maketrans(",.", ".,")), ","),
    "groups": (lambda x: f"{x:,.2f}", "."),
    "currency": (lambda x: f"€{x:.2f}", "."),
}
each_form = pytest.mark.parametrize("form", FORMS)


def people():
    """Ages, incomes and labels that a line between them tells apart."""
    draw = np.random.default_rng(0)
    labels = np.arange(ROWS) % 2
    return 30 + 30 * labels + draw.normal(0, 3, ROWS), 1500 + 2000 * labels + draw.normal(0, 100, ROWS), labels


def file_of(folder, spelled, *, kind="csv", bad=ROWS):
    """The table, whose first entries are spelled so, and the others with a point."""
    ages, incomes, labels = people()
    columns = {
        name: [spelled(x) if row < bad else f"{x:.2f}" for row, x in enumerate(numbers)]
        for name, numbers in (("age", ages), ("income", incomes))
    } | {"label": [str(label) for label in labels]}
    path = folder / f"people.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        lines = [";".join(columns), *(";".join(row) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def schema_file(folder, text=SCHEMA):
    path = folder / "schema.toml"
    path.write_text(text, encoding="utf-8")
    return path


def call(*arguments, command="train", code=0):
    told = CliRunner().invoke(app, [command, *map(str, arguments)])
    assert told.exit_code == code, told.output
    return told


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@each_form
def test_a_column_of_which_nothing_can_be_read_is_refused(tmp_path, form, kind):
    """Before any charge; the note, marked, has the numbers; the line of the message gives the table with points."""
    spelled, _ = FORMS[form]
    data, schema = file_of(tmp_path, spelled, kind=kind), schema_file(tmp_path)
    with pytest.raises(DataError, match=r"no entry can be read of .*column 'income' as a 'number'") as refused:
        train_to_folder(data, tmp_path / "model", target="label", schema=schema)
    assert not (tmp_path / "model").exists()
    assert str(ROWS) not in str(refused.value)
    assert refused.value.__notes__[-1].startswith(f"{PRIVATE}: column 'income': {ROWS} of {ROWS} entries")
    assert ("line 2" if kind == "csv" else "row 1") in refused.value.__notes__[-1]
    cures = re.findall(r"(decimal = '[,.]').*?reads (\S+) and (\S+?)[,;]? ", str(refused.value) + " ")
    assert len(cures) == 2
    line = next(line for line, *_ in cures if FORMS[form][1] in line)
    known = tables.Schema.read(schema_file(tmp_path, f"{line}\n{SCHEMA}"))
    (tmp_path / "plain").mkdir()
    plain = tables.Schema.read(schema_file(tmp_path / "plain"))
    same = file_of(tmp_path / "plain", lambda x: f"{x:.2f}")
    read = tables.encode(tables.read(data, known), known).toarray()
    np.testing.assert_array_equal(read, tables.encode(tables.read(same, plain), plain).toarray())


def test_the_command_refuses_and_the_line_trains(tmp_path):
    """`almoner train` on decimal commas: no model, no charge; the line that it says gives a model."""
    data, schema = file_of(tmp_path, FORMS["decimal comma"][0]), schema_file(tmp_path)
    given = (data, "--target", "label", "--epsilon", 3)
    told = call(*given, "--schema", schema, "--out", tmp_path / "model", code=2)
    assert "decimal = ','" in told.stderr
    assert f"{PRIVATE}: column 'income'" in told.stderr
    assert told.stdout == ""
    assert not (tmp_path / "model").exists()
    schema = schema_file(tmp_path, f"decimal = ','\n{SCHEMA}")
    call(*given, "--schema", schema, "--out", tmp_path / "model", "--json")
    model = load(tmp_path / "model")
    assert model.schema.decimal == ","
    assert np.mean(np.array(model.predict(data)) == people()[2].astype(str)) > 0.95


@pytest.mark.parametrize("bad", [4, 80])
def test_where_some_entries_cannot_be_read_the_holder_is_told(tmp_path, bad, caplog):
    """One in a hundred, or a fifth: a line without a number, the numbers by `--check`, and training goes on."""
    data, schema = file_of(tmp_path, FORMS["currency"][0], bad=bad), schema_file(tmp_path)
    with caplog.at_level(logging.WARNING):
        train_to_folder(data, tmp_path / "model", target="label", schema=schema, seed=1)
    (line,) = caplog.messages
    assert "column 'age', column 'income'" in line
    assert not re.search(r"\d", line)
    told = call(data, "--target", "label", "--check", schema, command="schema").stdout
    assert told.startswith(PRIVATE)
    assert re.search(rf"age.*number.*{ROWS}.*\b{bad}\b.*line 2, line 3", told)
    found = tables.misfits(data, tables.Schema.read(schema))
    assert [tuple(each[1:5]) for each in found] == [(name, "number", ROWS, bad) for name in ("age", "income")]


def test_what_is_missing_by_intent_is_no_mistake(tmp_path, caplog):
    """Entries that the schema calls missing, and nulls: a column of nothing else is no mistake, and nobody is told."""
    table = pa.table({"age": ["?", "", None, " "], "income": pa.nulls(4, pa.float64()), "label": ["0", "1"] * 2})
    parquet.write_table(table, tmp_path / "a.parquet")
    known = tables.Schema.read(schema_file(tmp_path, f'missing = ["", "?"]\n{SCHEMA}'))
    tables.read(tmp_path / "a.parquet", known)
    assert caplog.messages == []


def test_infinite_numbers_cannot_be_used_either(tmp_path):
    """A column of infinities, of whatever spelling, is as unreadable as one of words."""
    for name, entries in {
        "floats": [np.inf, -np.inf],
        "halves": np.float16([np.inf, np.inf]),
        "text": ["1e999", "x"],
    }.items():
        table = pa.table({"age": entries, "income": [1.0, 2.0], "label": ["0", "1"]})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
        with pytest.raises(DataError, match="no entry can be read of column 'age'"):
            tables.read(tmp_path / f"{name}.parquet", tables.Schema.read(schema_file(tmp_path)))


def test_categories_none_of_which_is_in_the_file_are_refused(tmp_path, caplog):
    """The file says M where the schema says Male. That some are not listed may be meant, and is told nobody."""
    text = SCHEMA + '\n[columns.sex]\ncategories = ["Female", "Male"]\n'
    known = tables.Schema.read(schema_file(tmp_path, text))
    columns = {"age": [1, 2, 3, 4], "income": [1, 2, 3, 4], "label": ["0", "1"] * 2}
    parquet.write_table(pa.table(columns | {"sex": ["F", "M", "F", None]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="column 'sex' as a 'category': categories must be listed as the file spells"):
        tables.read(tmp_path / "a.parquet", known)
    parquet.write_table(pa.table(columns | {"sex": ["F", "M", "Male", None]}), tmp_path / "b.parquet")
    tables.read(tmp_path / "b.parquet", known)
    assert caplog.messages == []
    assert tuple(tables.misfits(tmp_path / "b.parquet", known)[2])[1:] == ("sex", "category", 3, 2, ("row 1", "row 2"))


def test_a_held_out_file_is_refused_before_the_training_and_a_prediction_is_told(tmp_path, caplog):
    """Metrics of nothing would be read as a bad model; a prediction charges nobody, so it goes on, with a line."""
    (tmp_path / "other").mkdir()
    data, schema = file_of(tmp_path, lambda x: f"{x:.2f}"), schema_file(tmp_path)
    other = file_of(tmp_path / "other", FORMS["currency"][0])
    with pytest.raises(DataError, match="no entry can be read"):
        train_to_folder(data, tmp_path / "model", target="label", schema=schema, test=other)
    assert not (tmp_path / "model").exists()
    train_to_folder(data, tmp_path / "model", target="label", schema=schema, seed=1)
    assert caplog.messages == []
    assert load(tmp_path / "model").predict_proba(other).shape == (ROWS, 2)
    assert len(caplog.messages) == 1


def test_decimal_is_a_comma_or_a_point():
    """Anything else is refused."""
    with pytest.raises(DataError, match=r"decimal=';' must be one of ',' or '.'"):
        tables.Schema.parse(
            {"target": "y", "classes": ["0", "1"], "decimal": ";", "columns": {"x": {"low": 0, "high": 1}}}
        )


def test_columns_as_people_have_them_are_told_of_once_whatever_they_hold(caplog):
    """Chance without scaling; the logged line helps. It is said of scaled rows too, so it tells nothing of them."""
    ages, incomes, labels = people()
    raw, low, high = np.c_[ages, 100 * incomes], np.array([0, 0]), np.array([100, 500_000])
    fits = {"classes": [0, 1], "n_people": ROWS, "epsilon": 3.0, "seed": 1}
    wrappers._tell_of_scales.cache_clear()
    assert LogisticRegression(**fits).fit(raw, labels).score(raw, labels) < 0.6
    (line,) = caplog.messages
    cure = re.search(r": (bounds_X=\(low, high\)) scales", line)[1]
    scaled = eval(f"LogisticRegression(**fits, {cure})", globals() | {"fits": fits, "low": low, "high": high})
    assert scaled.fit(raw, labels).score(raw, labels) > 0.95
    assert len(caplog.messages) == 1
    for rows in (raw, raw / 1e6, np.zeros_like(raw)):
        wrappers._tell_of_scales.cache_clear()
        caplog.clear()
        LogisticRegression(**fits | {"steps": 2}).fit(rows, labels)
        assert caplog.messages == [line]
