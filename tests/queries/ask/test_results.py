"""Answers as tables: pandas, Arrow, CSV files, text, notebooks and plots."""

import csv
import json

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from almoner import filters
from almoner.cli import app
from almoner.queries import Count, Covariance, Histogram, Quantiles, Sum, Top, ranges, write_csv
from almoner.queries._ask.answer import answer
from plan_files import plan_folder
from sessions import opened

BY = {"place": ["x", "<b>y</b>"], "value": [1, 2, 3]}


def answered(asked, sums, key="a key"):
    return answer(asked, [int(each * 2**20) for each in sums], key)


@pytest.fixture
def counts():
    return answered(Count(clip=1, by=BY, sigma=3.0), [5, -2, 7.5, 1e6, 0, 3])


def test_a_table_has_a_row_for_each_value(counts):
    """Keys, value and interval stand in columns; a column of the data that is called like one of ours is renamed."""
    table = counts.to_arrow()
    assert table.column_names == ["place", "value_", "value", "low", "high"]
    assert table["place"].to_pylist() == ["x"] * 3 + ["<b>y</b>"] * 3
    assert table["value_"].to_pylist() == [1, 2, 3] * 2
    assert table["value"].to_pylist() == counts.values == [5, -2, 7.5, 1e6, 0, 3]
    assert list(zip(table["low"].to_pylist(), table["high"].to_pylist(), strict=True)) == counts.intervals
    frame = counts.to_pandas()
    assert pa.Table.from_pandas(frame, preserve_index=False).to_pydict() == table.to_pydict()
    assert frame.attrs["about"] == table.schema.metadata[b"about"].decode() == counts.about
    assert frame.attrs["estimand"] == counts.estimand


def test_values_of_bins_and_levels_have_rows_of_their_own():
    """A histogram's table names the bin, that of quantiles the level; quantiles of nothing are missing."""
    histogram = answered(Histogram("n", (0, 1, 2.5), clip=1, by={"place": ["x", "y"]}, sigma=1.0), [1, 2, 3, 4])
    assert histogram.to_arrow().to_pydict()["bin"] == ["0 to 1", "1 to 2.5"] * 2
    assert histogram.to_arrow()["value"].to_pylist() == [1, 2, 3, 4]
    nothing = answered(Quantiles("n", (0, 1, 2), clip=1, per="row", levels=(0.25, 0.5), sigma=1.0), [-1, -1])
    assert nothing.to_arrow().to_pydict() == {
        "level": [0.25, 0.5],
        "value": [None] * 2,
        "low": [0] * 2,
        "high": [2] * 2,
    }
    assert "-" in str(nothing)
    assert nothing.plot().get_title() == "a key: quantiles of n"


def test_ranges_are_text():
    """A group of a range of numbers is called by its ends."""
    ranged = answered(Count(by={"n": ranges([0, 5, 10])}, clip=1, sigma=1.0), [1, 2])
    assert ranged.to_arrow()["n"].to_pylist() == ["0 to 5", "5 to 10"]


def test_csv_files(counts, tmp_path):
    """A file holds the table; several answers stand below each other under their keys, what one lacks is empty."""
    counts.to_csv(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows] == counts.values
    write_csv([counts, answered(Sum("n", 0, 2, clip=1, sigma=1.0), [4], key="to,tal")], tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["key"] for row in rows] == ["a key"] * 6 + ["to,tal"]
    assert (rows[-1]["place"], float(rows[-1]["value"])) == ("", 8.0)
    assert "about the clipped quantity" in rows[-1]["about"]


def test_printed_answers_are_short(counts):
    """The first rows, how many groups there are, and what the intervals are about."""
    text = str(counts).splitlines()
    assert text[0] == "a key: count"
    assert text[1].split() == ["place", "value_", "value", "95", "%", "interval"]
    assert len(text) == 2 + 6 + 2  # the last line: nothing is known of budgets
    many = str(answered(Count(clip=1, by={"n": range(48_000)}, sigma=1.0), [1] * 48_000)).splitlines()
    assert len(many) < 16
    assert "... 48,000 groups" in many
    assert str(answer(counts.question, counts.released, "k", complete=False)).endswith("do not trust totals.")


def test_printed_intervals_of_large_numbers_hold_them():
    """Ends are rounded outwards, to what the noise allows: six digits would leave the number itself out."""
    text = str(answered(Count(clip=1, sigma=2.0), [123_456_789])).splitlines()
    assert text[2].split() == ["123,456,789.0", "123,456,785.0", "to", "123,456,793.0"]


def test_notebooks_get_bars_and_no_script(counts):
    """A table with a bar for each interval; keys of the data are text there, whatever is in them."""
    page = counts._repr_html_()
    assert page.count("<svg") == page.count("<circle") == 6
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;b&gt;y" in page
    huge = answered(Sum("n", -1e100, 1e100, clip=1, by={"n": [1, 2]}, sigma=1e9), [-(2**43), 2**43])
    assert "nan" not in huge._repr_html_()


def test_plots_have_a_point_for_each_value(counts, tmp_path):
    """The picture can be written without a display."""
    axes = counts.plot()
    assert axes.get_yticklabels()[0].get_text() == "x, 1"
    assert list(axes.lines[0].get_xdata()) == counts.values
    axes.figure.savefig(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 1000
    assert counts.plot(axes) is axes


def test_the_command_line_writes_csv_files(tmp_path):
    """With --csv the answers are in a file too; a file that is there, or is read, is not overwritten."""
    plan_folder(tmp_path)
    plan, out = str(tmp_path / "plan.toml"), tmp_path / "out.csv"
    runner = CliRunner()
    assert runner.invoke(app, ["ledger", "create", plan]).exit_code == 0
    run = runner.invoke(app, ["query", "ask", plan, "--csv", str(out), "--json"])
    assert run.exit_code == 0, run.output
    told = json.loads(run.output)
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["key"] for row in rows] == ["rows"] * 2 + ["middle"] * 2
    assert [float(row["value"]) for row in rows] == [*told["rows"]["values"], *told["middle"]["values"][0]]
    assert [row["place"] for row in rows] == ["x", "y", "", ""]
    assert [row["level"] for row in rows] == ["", "", "0.25", "0.5"]
    assert runner.invoke(app, ["query", "ask", plan, "--csv", str(out)]).exit_code != 0
    assert runner.invoke(app, ["query", "list", plan, "--csv", str(out), "--force"]).exit_code == 0
    assert runner.invoke(app, ["query", "ask", plan, "--csv", plan, "--force"]).exit_code != 0
    assert runner.invoke(app, ["query", "ask", plan, "--csv", str(tmp_path / "events.parquet"), "--force"]).exit_code


def test_asked_answers_print(tmp_path):
    """What a session answers has the same table."""
    with opened(tmp_path / "ledger", budget=filters.Zcdp(rho=1.0)) as session:
        found = session.analyst("ann").ask(Count(clip=1, by={"place": ["x", "z"]}, sigma=50.0), key="rows")
    assert found.to_arrow()["place"].to_pylist() == ["x", "z"]
    assert str(found).startswith("rows: count\nplace")


def test_matrices_and_named_values_have_rows_of_their_own(tmp_path):
    """A covariance matrix has a row for each entry, also where the noise leaves none; a top has its keys."""
    both = {"n": (0, 9), "amount": (0, 4)}
    with opened(tmp_path / "ledger", budget=filters.Zcdp(rho=1e3)) as session:
        matrix = session.analyst("ann").ask(Covariance(both, clip=5, sigma=0.5), key="matrix")
        top = session.analyst("ann").ask(Top(2, "place", ["x", "y", "z"], clip=2, sigma=0.5), key="top")
    assert matrix.to_arrow()["columns"].to_pylist() == ["n, n", "n, amount", "amount, n", "amount, amount"]
    assert [name for name, _ in top.value] == top.to_arrow()["key"].to_pylist()
    assert [count for _, count in top.value] == top.to_arrow()["value"].to_pylist()
    assert len(str(matrix).splitlines()) == 2 + 4 + 1
    assert "<circle" in top._repr_html_()
