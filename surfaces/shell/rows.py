"""Rows of a file, each with its line and the offset behind it."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import re
import shlex
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final
from uuid import UUID

from protocol import limits
from protocol.errors import Refusal
from protocol.jsonvalues import load
from protocol.values import NONE, RecordId
from surfaces.shell.columns import CellRefused, Column, Guess, from_head

ID: Final = "id"
LINE_BYTES: Final = 4 * limits.RECORD_BYTES
"""Maximum bytes of one line: a record with its JSON tags and escapes."""
_CHUNK: Final = 1 << 20
_DELIMITERS: Final = ",;\t|"
"""Column delimiters that programs use."""
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_PART: Final = re.compile(rb'"(?:[^"\\]+|\\.)*("?)|[\[\]{}]', re.DOTALL)
"""A JSON string, or a nesting sign. The group is empty if the string has no end."""


class ColumnsRefused(Exception):
    """Types were given for columns that the file lacks; the message is for people."""


class RowRefused(Exception):
    """A row can't be read, or the node refuses it. The message names its line."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row of the file.

    :ivar line: number of its first line in the file, counted from 1
    :ivar end: the offset behind it, in bytes
    :ivar fields: values of the node; without `id` where the file gives none
    """

    line: int
    end: int
    fields: dict[str, Any]


class FileLines:
    """The lines of a file, counted and hashed as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.bytes = 0
        self.line = 0

    def skip(self, to: int) -> None:
        """Read up to the offset of a line's start, without decoding."""
        while self.bytes < to:
            data = self._file.read(min(_CHUNK, to - self.bytes))
            if not data:
                return
            self._count(data)
            self.line += data.count(b"\n")

    def __iter__(self) -> Iterator[str]:
        """Yield each line as text with its end.

        :raises RowRefused: it is not UTF-8, or too long
        """
        while data := self._file.readline(LINE_BYTES):
            self._count(data)
            self.line += 1
            if len(data) == LINE_BYTES:
                raise RowRefused(f"line {self.line}: longer than {LINE_BYTES} bytes")
            try:
                yield data.decode("utf-8-sig" if self.bytes == len(data) else "utf-8")
            except UnicodeDecodeError as error:
                raise RowRefused(f"line {self.line}: not UTF-8 at byte {error.start}") from error

    def filled(self) -> Iterator[tuple[int, str]]:
        """Yield each non-empty line with its number.

        :raises RowRefused: as iterating does
        """
        for text in self:
            if text.strip():
                yield self.line, text

    def is_array(self) -> bool:
        """True if the file is one JSON array. Call it before anything is read."""
        is_array = _Ahead(self._file).sign() == b"["
        self._file.seek(0)
        return is_array

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Yield each object of a file that is one JSON array, with its first line's number.

        :raises RowRefused: an item is not an object or too long, or the array does not end
        """
        ahead = _Ahead(self._file)
        wanted = ",]" if self.bytes else "["
        while True:
            sign = ahead.sign().decode("latin-1")
            if not sign:
                raise RowRefused(f"line {self._line_of(ahead)}: the array is not closed")
            if sign not in wanted:
                raise RowRefused(f"line {self._line_of(ahead)}: expected a comma, not {sign!r}")
            ahead.at += 1
            after = ahead.sign()
            if sign == "]" or (sign == "[" and after == b"]"):
                ahead.at += sign == "["
                if ahead.sign():
                    raise RowRefused(f"line {self._line_of(ahead)}: extra text after the array")
                return
            line, start = self._line_of(ahead), len(ahead.passed)
            if after != b"{":
                raise RowRefused(f"line {line}: expected an object")
            if not ahead.pass_object():
                raise RowRefused(
                    f"line {line}: the object is not closed, or over {LINE_BYTES} bytes"
                )
            data = ahead.take()
            self._count(data)
            self.line += data.count(b"\n")
            wanted = ",]"
            yield line, data[start:]

    def _line_of(self, ahead: _Ahead) -> int:
        return self.line + ahead.passed.count(b"\n") + 1

    def _count(self, data: bytes) -> None:
        self.digest.update(data)
        self.bytes += len(data)


class _Ahead:
    """Read-ahead buffer of a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._text = b""
        self._taken = 0
        self.at = 0
        """Offset in the buffer up to which it has been scanned."""
        if file.tell() == 0:
            while len(self._text) < len(BOM_UTF8) and self._read():
                pass
            if self._text.startswith(BOM_UTF8):
                self.at = len(BOM_UTF8)

    @property
    def passed(self) -> bytes:
        """Bytes scanned, and not yet taken."""
        return self._text[self._taken : self.at]

    def take(self) -> bytes:
        """Return the bytes scanned since the last call."""
        data = self.passed
        self._taken = self.at
        return data

    def sign(self) -> bytes:
        """Skip white space. Return the byte behind it; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self.at)
            assert space is not None
            self.at = space.end()
            if self.at < len(self._text) or not self._read():
                return self._text[self.at : self.at + 1]

    def pass_object(self) -> bool:
        """Scan the object that begins here. Return False if it has no end or is too long."""
        depth = 0
        while True:
            part = _PART.search(self._text, self.at)
            if part is None or part[1] == b"":  # it may continue in unread bytes
                if len(self._text) - self._taken > LINE_BYTES or not self._read():
                    return False
                continue
            self.at = part.end()
            if part[1] is None:
                depth += 1 if part[0] in b"{[" else -1
                if not depth:
                    return True

    def _read(self) -> bool:
        data = self._file.read(_CHUNK)
        self._text = self._text[self._taken :] + data
        self.at -= self._taken
        self._taken = 0
        return bool(data)


def json_rows(lines: FileLines, start: int) -> Iterator[FileRow]:
    """Yield the objects of a file: one per line, empty lines skipped, or the items of one JSON
    array.

    :param start: an offset behind a row, or 0: earlier rows are skipped
    :raises RowRefused: a line or an item is not an object
    """
    is_array = lines.is_array()
    lines.skip(start)
    for line, text in lines.items() if is_array else lines.filled():
        try:
            fields = load(text)
        except Refusal as error:
            why = error.message
            if not is_array and line == 1 and why.startswith("not JSON"):
                why += "; expected one object per line, or one array of objects"
            raise RowRefused(f"line {line}: {why}") from error
        if type(fields) is not dict:
            raise RowRefused(f"line {line}: expected an object")
        yield FileRow(line, lines.bytes, _addressed(fields))


def csv_rows(
    lines: FileLines,
    start: int,
    asked: Mapping[str, str],
    defined: Mapping[str, str],
    nulls: Collection[str] = (),
    delimiter: str = ",",
) -> Iterator[FileRow]:
    """Yield the rows below a header.

    :param start: an offset behind a row, or 0: earlier rows are skipped
    :param asked: types of columns without one in their header, by name
    :param defined: types of the table's fields, for columns without either
    :param nulls: cells that are read as empty ones
    :param delimiter: the sign between columns
    :raises ColumnsRefused: `asked` names a missing column, or one of another type in the header
    :raises RowRefused: a row has another number of cells than the header, or a cell is not of its
        type
    """
    csv.field_size_limit(LINE_BYTES)
    source = iter(lines)
    try:
        head = next(csv.reader(source, delimiter=delimiter, strict=True), None)
    except csv.Error as error:
        raise RowRefused(f"line 1: {error}") from error
    if head is None:
        return
    types = {**defined, **asked}
    columns = [from_head(name, types.get) for name in head]
    _check_head(columns, delimiter)
    missing = asked.keys() - {column.name for column in columns}
    if missing:
        there = ", ".join(head)[:200]
        raise ColumnsRefused(f"--types: there is no column {min(missing)!r}: the head is {there}")
    for column in columns:
        if asked.get(column.name, column.type) != column.type:
            raise ColumnsRefused(
                f"--types: {column.name}:{asked[column.name]} contradicts the head, {column.head}"
            )
    lines.skip(start)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        line = lines.line + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise RowRefused(f"line {line}: {error}") from error
        if cells is None:
            return
        if cells:
            if nulls:
                cells = ["" if cell in nulls else cell for cell in cells]
            yield FileRow(line, lines.bytes, _addressed(_fields(columns, cells, line)))


def read_guess(
    lines: FileLines,
    known: Mapping[str, str],
    nulls: Collection[str] = (),
    delimiter: str = ",",
) -> tuple[list[str], Guess]:
    """Return the header of a file, and the guessed types of columns without one. Reads the whole
    file, or up to an unreadable row: `csv_rows` refuses that, and nothing behind it is imported.

    :param known: types of columns without one in their header, by name
    :param nulls: cells that are read as empty ones
    :param delimiter: the sign between columns
    """
    csv.field_size_limit(LINE_BYTES)
    reader = csv.reader(iter(lines), delimiter=delimiter, strict=True)
    head: list[str] = []
    guess = Guess(())
    with contextlib.suppress(csv.Error, RowRefused):
        head = next(reader, head)
        columns = [from_head(name, known.get) for name in head]
        guess = Guess(
            column.name for column in columns if not column.exact and column.name not in known
        )
        for cells in reader:
            for column, cell in zip(columns, cells, strict=False):
                if cell not in nulls:
                    guess.count(column.name, cell)
    return head, guess


def _check_head(columns: list[Column], delimiter: str) -> None:
    names = [column.name for column in columns]
    twice = {name for name in names if names.count(name) > 1}
    for number, column in enumerate(columns, 1):
        if not column.name and not column.exact:
            raise RowRefused(
                f"line 1: column {number} of the head has no name: write one into the file, or"
                " `:string` for a field with an empty name"
            )
    if twice:
        raise RowRefused(f"line 1: duplicate column {min(twice)!r} in the head")
    others = [sign for sign in _DELIMITERS if sign != delimiter and sign in "".join(names)]
    if len(names) == 1 and others:
        sign = "tab" if others[0] == "\t" else shlex.quote(others[0])
        raise RowRefused(
            f"line 1: the head is one column, {names[0][:80]!r}, without any {delimiter!r};"
            f" try --delimiter {sign}"
        )


def _fields(columns: list[Column], cells: list[str], line: int) -> dict[str, Any]:
    if len(cells) != len(columns):
        raise RowRefused(f"line {line}: {len(cells)} cells, but the head has {len(columns)}")
    try:
        read = {column.name: column.read(cell) for column, cell in zip(columns, cells, strict=True)}
    except CellRefused as error:
        raise RowRefused(f"line {line}: {error}") from error
    return {name: value for name, value in read.items() if value is not NONE}


def _addressed(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace a record id in `id` by its id part: the table that it names is its origin, not the
    target."""
    if type(fields.get(ID)) is RecordId:
        fields[ID] = fields[ID].id
    return fields


def made_id(key: bytes, number: int) -> UUID:
    """Return the id of a row without one. It is the same whenever this row of this file is
    imported, so that a repeated import inserts nothing twice, and differs for every other file.

    A UUID of version 8: 82 bits of the key, then the row's number, so that ids are ordered like
    rows.

    :param key: at least 11 bytes that identify the file
    :param number: counted from 0
    """
    bits = int.from_bytes(key[:11], "big") >> 6  # 82 bits
    high, middle, low = bits >> 34, bits >> 22 & 0xFFF, bits & 0x3FFFFF
    value = high << 80 | 8 << 76 | middle << 64 | 2 << 62 | low << 40 | number
    return UUID(int=value)
