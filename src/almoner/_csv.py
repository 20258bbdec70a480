r"""CSV files in one fixed form, line by line, as Arrow record batches of text: for training and for queries alike.

The form, of which nothing is guessed from any row:

- text in UTF-8; lines end all alike, in ``\n`` or in ``\r\n``
- the first line names the columns, all differently; what separates its names (``,``, ``;``, ``|`` or a tab) separates
  the entries of all lines
- every other line is a row, with an entry for every column; empty lines are skipped
- an entry in double quotes has its quotes doubled inside and nothing around it; no other entry begins with a quote

A file that breaks a rule is refused as a whole. So one person's line changes how no other line is read: a quote that it
leaves open takes in nobody else's lines, and a missing entry takes nobody out of an answer. There are no remarks, no
backslash escapes and no leading notes. Messages name the file and the form; they hold no entry, row number or count.
Which rule was broken first, and in which line, is in the note of the error: PRIVATE, for the data holder.
"""

import csv
import io
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

import numpy as np

from almoner import _extras
from almoner._private import MARK
from almoner.errors import DataError

if TYPE_CHECKING:
    from pyarrow import RecordBatch

Result = TypeVar("Result")

_DELIMITERS = ",;|\t"
_IN_QUOTES = r'(^|[,;|\t])"(?:[^"]|"")*"'
_BLOCK = 2**22  # bytes that are parsed at a time
_WORKERS = min(4, os.cpu_count() or 1)
_FORM = "cannot be read as a table: each line must be a row in UTF-8, with an entry for every column"
_LINE_ENDS = r"tr -s '\r' '\n' < old.csv > new.csv makes all of them end in \n"
_CURE = "Parquet may hold any text: duckdb -c \"COPY (FROM read_csv('old.csv', all_varchar = true)) TO 'new.parquet'\""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a file's lines, read off its start. Every field is public."""

    path: Path  # .gz, .zst and .bz2 are decompressed
    names: tuple[str, ...]  # of the columns
    delimiter: str | None
    line_end: bytes
    header_lines: int  # how many lines are no rows, at the start


def form(path: Path, *, names: Sequence[str] = (), skip_rows: int = 0) -> Form:
    """The form of a file, without lines at its start; DataError: it cannot be read, or its names break a rule."""
    return guarded(path, lambda: _form(path, tuple(names), skip_rows))


def batches(read: Form, *, wanted: Sequence[str] | None = None) -> Iterator["RecordBatch"]:
    """The rows of a file, some thousands at a time, private, as text; DataError where it breaks a rule of the form.

    Only the wanted columns are read; None for all. Entries of others need not be valid UTF-8.
    """
    rows = _batches(read, wanted)
    while (batch := guarded(read.path, lambda: next(rows, None))) is not None:
        yield batch


def guarded(path: Path, read: Callable[[], Result]) -> Result:
    """Call a reader; its own messages may quote the data, so they are not passed on, not even as a context."""
    note = None
    try:
        return read()
    except DataError:
        raise
    except _Broken as error:
        problem, note = f"{path} {_FORM}", str(error)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or 'the file is damaged or of another format'}"
    except (ValueError, KeyError, OverflowError, csv.Error):  # errors of Arrow are ValueErrors
        problem = f"{path} {_FORM}"
    refused = DataError(problem)
    if note is not None:
        refused.add_note(f"{MARK}: {note}")
    raise refused


def lines_of(read: Form, rows: Sequence[int]) -> list[int]:
    """The numbers of the lines, from 1, in which rows stand, numbered from 0; private. Reads up to the last of them."""
    found: dict[int, int] = {}
    with _opened(read.path) as file:
        row = -read.header_lines
        for line, text in enumerate(file, start=1):
            if row > max(rows, default=-1):
                break
            if row < 0 or text.strip(b"\r\n"):  # the lines before the rows count, empty or not
                found[row] = line
                row += 1
    return [found[row] for row in rows]


def _form(path: Path, names: tuple[str, ...], skip_rows: int) -> Form:
    with _opened(path) as file:
        lines = [file.readline() for _ in range(skip_rows + 1)]
    line_end = b"\r\n" if lines[-1].endswith(b"\r\n") else b"\n"
    if names:
        return Form(path, names, None, line_end, skip_rows)
    if not lines[-1].strip():
        raise DataError(f"{path} has no line of names: the first line that is read must name the columns")
    first = lines[-1].removesuffix(line_end).decode("utf-8", "surrogateescape")  # never in UTF-8 itself
    if any("\ud800" <= letter <= "\udfff" for letter in first):
        raise DataError(f"{path} must be text in UTF-8")
    if "\r" in first:
        raise _Broken(f"the line of names ends in another way: {_LINE_ENDS}")
    if not first.strip() or "\0" in first:
        raise ValueError
    delimiter = _delimiter(first, path)
    listed = next(csv.reader([first], delimiter=delimiter or ",", strict=True))
    listed = [name.strip() or f"column{place}" for place, name in enumerate(listed)]
    if len(set(listed)) < len(listed):
        raise DataError(f"{path} has two columns of the same name")
    return Form(path, tuple(listed), delimiter, line_end, skip_rows + 1)


def _batches(read: Form, wanted: Sequence[str] | None) -> Iterator["RecordBatch"]:
    with _opened(read.path) as file, ThreadPoolExecutor(_WORKERS) as pool:
        for _ in range(read.header_lines):
            file.readline()
        waiting: deque[Future[RecordBatch]] = deque()
        line = read.header_lines + 1
        for block in _blocks(file):
            waiting.append(pool.submit(_parsed_from, line, block, read, wanted))
            line += block.count(b"\n")
            if len(waiting) > _WORKERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _delimiter(first: str, path: Path) -> str | None:
    """The separator of the names in a file's line of names; None where there is one name."""
    times = {each: re.sub(_IN_QUOTES, r"\1", first).count(each) for each in _DELIMITERS}
    best = [each for each in _DELIMITERS if 0 < times[each] == max(times.values())]
    if len(best) > 1:
        either = " or ".join(map(repr, best))
        raise DataError(f"{path}: {either} between the columns? Put their names into double quotes")
    return best[0] if best else None


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file in pieces that end where a line ends."""
    rest = b""
    while piece := file.read(_BLOCK):
        end = piece.rfind(b"\n") + 1
        if end:
            yield rest + piece[:end]
            rest = b""
        rest += piece[end:]
    if rest:
        yield rest


class _Broken(ValueError):
    """A line breaks a rule: which one, and where it is. PRIVATE."""


def _parsed_from(line: int, block: bytes, read: Form, wanted: Sequence[str] | None) -> "RecordBatch":
    """The rows in some lines, of which this is the number of the first; raises _Broken where a line breaks a rule."""
    with suppress(ValueError):
        return _parsed(block, read, wanted)
    raise _Broken(_broken(line, block, read))


def _broken(first: int, block: bytes, read: Form) -> str:
    """The first line that breaks a rule, the rule, and what to do about it; PRIVATE."""
    delimiter, end = read.delimiter or ",", read.line_end.removesuffix(b"\n")
    entry = _entry(delimiter)
    row = re.compile(f"{entry}(?:{re.escape(delimiter)}{entry})*")
    *lines, last = block.split(b"\n")
    for number, line in enumerate([*lines, *([last + end] if last else [])], start=first):
        text = line.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if "\r" in text or line[-1:] * (line[-1:] == b"\r") != end:
            return f"line {number} ends in another way than the line of names: {_LINE_ENDS}"
        if '"' in text and not row.fullmatch(text):
            how = "that is left open, as by a line break in an entry, or stands alone"
            return f"line {number} has a quote {how}; {_CURE}"
        entries = len(next(csv.reader([text], delimiter=delimiter), []))
        if text and entries != len(read.names):
            return f"line {number} has {entries} entries, where {len(read.names)} columns have names"
    for number, line in enumerate(lines, start=first):
        if any("\udc80" <= letter <= "\udcff" for letter in line.decode("utf-8", "surrogateescape")):
            return f"line {number} is not UTF-8: iconv -f windows-1252 -t utf-8 old.csv > new.csv reads Latin letters"
    return f"the line is one of {len(lines)} from line {first} on"


def _entry(delimiter: str) -> str:
    separator = re.escape(delimiter)
    return rf'(?:"(?:[^"\r\n]|"")*"| *(?:[^" {separator}\r\n][^{separator}\r\n]*)?)'


def _parsed(block: bytes, read: Form, wanted: Sequence[str] | None) -> "RecordBatch":
    """The rows in some lines; raises ValueError where a line breaks a rule."""
    import pyarrow
    from pyarrow import csv as reader

    returns, ends, both = (block.count(each) for each in (b"\r", b"\n", b"\r\n"))
    if (returns, ends) != ((both, both) if read.line_end == b"\r\n" else (0, ends)):
        raise ValueError  # lines that end in another way, or a part of a line's end within a line
    columns = list(read.names if wanted is None else wanted)
    texts, size = dict.fromkeys(columns, pyarrow.string()), max(len(block) + 1, 64)
    converted = reader.ConvertOptions(column_types=texts, include_columns=columns, strings_can_be_null=False)
    taken = reader.ReadOptions(column_names=list(read.names), use_threads=False, block_size=size)
    parsed, source = reader.ParseOptions(delimiter=read.delimiter or ","), pyarrow.BufferReader(block)
    table = reader.read_csv(source, read_options=taken, parse_options=parsed, convert_options=converted)
    one_row_a_line = len(table) == block.count(b"\n") + (not block.endswith(b"\n"))
    if b'"' in block and not (one_row_a_line and _quotes_are_plain(block, read.delimiter or ",")):
        _check_quotes(block, read.delimiter or ",")
    rows = table.combine_chunks().to_batches()
    return rows[0] if len(table) else pyarrow.RecordBatch.from_pylist([], table.schema)


def _quotes_are_plain(block: bytes, delimiter: str) -> bool:
    """True if quotes open and close entries in turn, with none inside of an entry: most files have no others."""
    letters = np.frombuffer(block, dtype=np.uint8)
    quotes = np.flatnonzero(letters == ord('"'))
    before, after = letters[quotes[::2] - 1], letters[(quotes[1::2] + 1) % len(letters)]
    opened = (before == ord(delimiter)) | (before == ord("\n"))
    closed = (after == ord(delimiter)) | (after == ord("\n")) | (after == ord("\r"))
    return len(quotes) % 2 == 0 and bool(opened.all() and closed.all())


def _check_quotes(block: bytes, delimiter: str) -> None:
    """Refuse lines whose quotes break the rule, each line by itself."""
    import pyarrow
    from pyarrow import compute

    separator, entry = re.escape(delimiter), _entry(delimiter)
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
    if not len(ends) or ends[-1] < len(block):
        ends = np.append(ends, len(block))
    offsets = pyarrow.py_buffer(np.concatenate([[0], ends]).astype(np.int32))
    lines = pyarrow.Array.from_buffers(pyarrow.binary(), len(ends), [None, offsets, pyarrow.py_buffer(block)])
    lines = lines.filter(compute.match_substring(lines, '"'))
    if not compute.all(compute.match_substring_regex(lines, rf"^{entry}(?:{separator}{entry})*\r?\n?$")).as_py():
        raise ValueError


def _opened(path: Path) -> BinaryIO:
    """A file to read, decompressed, after the mark that some programs put before UTF-8."""
    with _extras.need("pyarrow", extra="queries"):
        import pyarrow
    file = cast(BinaryIO, io.BufferedReader(pyarrow.input_stream(str(path)), buffer_size=2**20))
    if file.peek(3)[:3] == b"\xef\xbb\xbf":  # type: ignore[attr-defined]
        file.read(3)
    return file
