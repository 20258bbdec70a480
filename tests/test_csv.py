"""CSV files: one fixed form, in which one person's line changes how no other line is read."""

import gzip
import re
import subprocess

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from almoner import _csv
from almoner.errors import DataError

REFUSED = "each line must be a row in UTF-8, with an entry for every column"


def rows(path, **options):
    """The rows of a file, as tuples."""
    read = _csv.form(path, **options)
    return [tuple(row.values()) for batch in _csv.batches(read) for row in batch.to_pylist()]


def written(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "names", "wanted"),
    [
        ("who,day\n1,x\n2,\n", ("who", "day"), [("1", "x"), ("2", "")]),
        ("who;day\r\n1;2,5\r\n", ("who", "day"), [("1", "2,5")]),
        ('"who"|"a,""b"",c"\n1|x,y;z', ("who", 'a,"b",c'), [("1", "x,y;z")]),
        ("who\tday\n1\t 2 \n", ("who", "day"), [("1", " 2 ")]),
        ("who\n1\n\n2\n\n", ("who",), [("1",), ("2",)]),
        ('who,day\n\n1,"a ""b"", c"\n\n\n2,""\n', ("who", "day"), [("1", 'a "b", c'), ("2", "")]),
        (b"\xef\xbb\xbfwho,day\n1,\xc3\xa9\n", ("who", "day"), [("1", "é")]),
        (" who , day\n1,x\n", ("who", "day"), [("1", "x")]),
        (",day\n1,x\n", ("column0", "day"), [("1", "x")]),
        ('who,day\n1,5"6\n2,#x\n#3,a\\b\n', ("who", "day"), [("1", '5"6'), ("2", "#x"), ("#3", "a\\b")]),
        ("who,day\n", ("who", "day"), []),
        ("who,day\n\n\n", ("who", "day"), []),
    ],
)
def test_files_in_the_fixed_form_are_read(tmp_path, text, names, wanted):
    """Names, separators, quotes, line ends and empty entries, each to the letter."""
    path = written(tmp_path, text)
    assert _csv.form(path).names == names
    assert rows(path) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "who,day\n1\n",
        "who,day\n1,2,3\n",
        "who,day\n1,2,\n",
        "who,day\n1;2\n",
        "who,day\n \n",
        'who,day\n1,"a\nb"\n',
        'who,day\n1,"a\n2,b"\n',
        'who,day\n"1,a\n2",b\n',
        'who,day\n1,"a\n3,c\n2,b"\n',
        'who,day\n1,"a\n',
        'who,day\n1,"a',
        'who,day\n1,"a"b\n',
        'who,day\n1,"a"b"\n',
        'who,day\n1,"a\\"b"\n',
        'who,day\n1, "a"\n',
        'who,day\n1,"a" \n',
        'who,day\n1,a",2\n',
        "who,day\n1,a\r\n2,b\n",
        "who,day\r\n1,a\n2,b\r\n",
        "who,day\r\n1,a\rb\r\n",
        "who,day\r1,a\r2,b\r",
        "who,day\n1,a\r2,b\n",
        b"who,day\n1,\xff\n",
        b"who,a\0\n1,x\n",
        'who,"day\n1,x\n',
        "a note\nwho,day\n1,x\n",
    ],
)
@pytest.mark.parametrize("before", ["", '7,"x"\n', '7,"x ""y"""\n'])
def test_every_other_file_is_refused_as_a_whole(tmp_path, text, before):
    """Too few or too many entries, quotes and line ends that break the rules, bytes that are no text."""
    text = text if isinstance(text, bytes) else text.encode()
    first, end, others = text.partition(b"\n")
    path = written(tmp_path, first + end + (before.encode() if end and not first.endswith(b"\r") else b"") + others)
    with pytest.raises(DataError, match=REFUSED) as refused:
        rows(path)
    assert refused.value.__context__ is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told", "wanted"),
    [
        ("who,day\n1,x\n2,é\n".encode("latin-1"), "line 3 is not UTF-8", [("1", "x"), ("2", "é")]),
        ('who,day\n\n1,x\n2,"a\nb"\n', "line 4 has a quote that is left open", [("1", "x"), ("2", "a\nb")]),
        ("who,day\r1,x\r2,y\r", "the line of names ends in another way", [("1", "x"), ("2", "y")]),
        ("who,day\n1,x\r\n2,y\n", "line 2 ends in another way", [("1", "x"), ("2", "y")]),
        ("who,day\r\n1,x\r\n2,y\n3,z", "line 3 ends in another way", [("1", "x"), ("2", "y"), ("3", "z")]),
        ("who,day\n1,x\n2\n", "line 3 has 1 entries, where 2 columns have names", None),
        ("who,day\n1,x\n# 2, was lost, it seems\n", "line 3 has 3 entries, where 2 columns", None),
        ("who,day\n" + "1,x\n" * 2_000_000 + "2,x,y\n", "line 2000002 has 3 entries", None),
    ],
)
def test_the_holder_is_told_which_line_breaks_which_rule(tmp_path, text, told, wanted):
    """In the note of the error, marked; the message names no line. The command of the note mends the file."""
    path = written(tmp_path, text)
    with pytest.raises(DataError, match=REFUSED) as refused:
        rows(path)
    (note,) = refused.value.__notes__
    assert note.startswith(f"private: for the data holder: {told}")
    assert "line 3" not in str(refused.value)
    command = re.search(r"((?:iconv|tr) .* old.csv > new.csv)|duckdb -c \"(.*)\"", note)
    assert (command is None) == (wanted is None)
    if command is not None:
        path.rename(tmp_path / "old.csv")
        if command[1]:
            subprocess.run(command[1], shell=True, cwd=tmp_path, check=True)
            assert rows(tmp_path / "new.csv") == wanted
        else:
            sql = re.sub(r"'((?:old|new)\.\w+)'", lambda found: f"'{tmp_path / found[1]}'", command[2])
            duckdb.execute(sql)
            assert [tuple(row.values()) for row in pq.read_table(tmp_path / "new.parquet").to_pylist()] == wanted


def test_a_line_of_names_must_be_clear(tmp_path):
    """Two separators, or two columns of one name, are refused."""
    with pytest.raises(DataError, match="',' or ';' between the columns"):
        _csv.form(written(tmp_path, "who;day,place\n1;2\n"))
    with pytest.raises(DataError, match="two columns of the same name"):
        _csv.form(written(tmp_path, "who, who\n1,2\n"))


def test_files_without_a_line_of_names_and_with_lines_before_it(tmp_path):
    """Names may be given; lines that are skipped come before the line of names, or before the rows."""
    path = written(tmp_path, "a note, by us\nwho,day\n1,x\n")
    assert rows(path, skip_rows=1) == [("1", "x")]
    assert rows(path, names=("a", "b"), skip_rows=2) == [("1", "x")]
    assert rows(written(tmp_path, b"\xef\xbb\xbf1,x\r\n2,y"), names=("a", "b")) == [("1", "x"), ("2", "y")]
    assert rows(written(tmp_path, "who,day\n"), skip_rows=1, names=("a", "b")) == []


def test_unwanted_columns_are_checked_and_not_read(tmp_path):
    """Only their bytes need not be text."""
    path = written(tmp_path, b"who,day\n1,\xff\n2,x\n")
    read = _csv.form(path)
    assert [row for batch in _csv.batches(read, wanted=["who"]) for row in batch.to_pylist()] == [
        {"who": "1"},
        {"who": "2"},
    ]
    with pytest.raises(DataError, match=REFUSED):
        list(_csv.batches(_csv.form(written(tmp_path, 'who,day\n1,"x\n2,y"\n')), wanted=["who"]))


def test_packed_files_are_unpacked(tmp_path):
    """A file that ends in .gz or .zst is read through; a damaged one is refused."""
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"who,day\n1,x\n"))
    with pa.output_stream(str(tmp_path / "a.csv.zst"), compression="zstd") as file:
        file.write(b"who,day\n1,x\n")
    for name in ("a.csv.gz", "a.csv.zst"):
        assert rows(tmp_path / name) == [("1", "x")]
    (tmp_path / "a.csv.gz").write_bytes(b"secret")
    for path in (tmp_path / "a.csv.gz", tmp_path / "none.csv", tmp_path):
        with pytest.raises(DataError, match="cannot be read") as refused:
            rows(path)
        assert "secret" not in str(refused.value)


@given(
    st.lists(st.tuples(*[st.text(st.sampled_from('ab ,;"\\#é'), max_size=6)] * 2), max_size=12),
    st.sampled_from([5, 16, 40, 1 << 20]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_what_is_written_is_read_whatever_the_size_of_blocks(tmp_path_factory, entries, size, end, always):
    """Entries that are quoted where they must be, or always, come back to the letter, also across blocks."""

    def quoted(entry):
        plain = not always and not re.search(r'[,;]|^ *"', entry)
        return entry if plain else '"' + entry.replace('"', '""') + '"'

    path = tmp_path_factory.mktemp("csv") / "a.csv"
    lines = ["who,day", *(f"{quoted(a)},{quoted(b)}" for a, b in entries)]
    path.write_bytes((end.join(lines) + end).encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_csv, "_BLOCK", size)
        assert rows(path) == entries


@given(st.lists(st.text(st.sampled_from('ab,"\n\r 1'), max_size=8), min_size=1, max_size=6), st.integers(0, 5))
def test_one_line_changes_how_no_other_is_read(tmp_path_factory, lines, place):
    """With a line more, whatever it holds, the file is refused, or the rows are the others' and that line's own."""
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    others = ['1,"x"', "2,y", '3,"a, ""b"""', "4,", '"5",z']
    strange = "\n".join(lines)
    path.write_text("\n".join(["who,day", *others[:place], strange, *others[place:]]) + "\n", newline="")
    expected = [("1", "x"), ("2", "y"), ("3", 'a, "b"'), ("4", ""), ("5", "z")]
    try:
        read = rows(path)
    except DataError:
        return
    more = len(read) - len(expected)
    assert read == expected[:place] + read[place : place + more] + expected[place:]
    assert more <= len(strange.split("\n"))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"", "has no line of names"),
        (b"\nwho,day\n1,x\n", "has no line of names"),
        (b"who,\xff\n1,x\n", "must be text in UTF-8"),
        ("who,day\n1,x\n".encode("utf-16"), "must be text in UTF-8"),
        ("wh\u00e9,day\n1,x\n".encode("latin-1"), "must be text in UTF-8"),
    ],
)
def test_a_line_of_names_that_cannot_be_read_is_refused_by_its_own_rule(tmp_path, text, rule):
    """What is wrong with the first line is told: it has no names, or is not in UTF-8."""
    with pytest.raises(DataError, match=rule) as refused:
        _csv.form(written(tmp_path, text))
    assert refused.value.__context__ is None
