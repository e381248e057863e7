"""`storenode import`: inserts the rows of a file into a table, in batches of one commit each.

No row is lost and none is inserted twice, whatever fails in between (at-least-once sending,
idempotent inserts). A batch is sent again if its outcome is unknown, and rows behind the position
in the resume file are sent again by the next run. So every row gets an id before it is first sent:
its own, or one derived from the file and the row's number. A row whose record exists already is
skipped, or updates that record.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from language.keywords import quote
from protocol import limits
from protocol.errors import CATALOGUE
from storeclient import Refused
from storeclient.errors import NotAllowed
from storeclient.loads import columns_of, insert_of
from surfaces.shell.columns import type_of_field
from surfaces.shell.outcomes import REFUSED, USAGE, CommandEnded
from surfaces.shell.patience import RetryingClient
from surfaces.shell.refusals import explain
from surfaces.shell.resuming import ResumeFile, TransferProgress
from surfaces.shell.rows import (
    ID,
    ColumnsRefused,
    FileLines,
    FileRow,
    RowRefused,
    csv_rows,
    json_rows,
    made_id,
    read_guess,
)
from surfaces.shell.transfers import IGNORE, STREAM, Import
from surfaces.shell.values import to_client

BATCH_BYTES: Final = 4 * limits.MIB
"""Bytes of the file in one batch: as a wire frame it stays well below 16 MiB."""
OF_ROWS: Final = frozenset({
    "AlreadyExists", "AssertFailed", "BadRequest", "DivisionByZero", "Duplicate", "FieldRefused",
    "NameRefused", "NumberTooLarge", "TooLarge", "TypeRefused",
})  # fmt: skip
"""Errors caused by a row: its batch is tried again in halves, up to that row."""
assert CATALOGUE.keys() >= OF_ROWS

KEYS: Final = frozenset({"int", "uuid"})
"""Types guessed for an `id` column even without `--guess`."""
_COPY: Final = "the temporary file for a copy (see TMPDIR)"

Report = Callable[[int, int], None]


@dataclass
class ImportProgress(TransferProgress):
    """Progress of an import.

    :ivar key: identifies the file if rows have no ids of their own; hexadecimal
    :ivar guessed: guessed column types, by name: fixed up to the end of the file
    :ivar digest: SHA-256 of the imported bytes; hexadecimal
    :ivar inserted: rows that did not exist before
    """

    key: str = ""
    guessed: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    inserted: int = 0


def opened(asked: Import) -> IO[bytes]:
    """Open the file to import. Standard input and pipes are copied to a temporary file, whose size
    and contents are then known.

    Called before an event loop runs: a loop blocked on standard input would not handle signals.

    :raises Ended: it can't be read, or not be copied
    """
    if asked.path == STREAM:
        return _copy(sys.stdin.buffer, "standard input")
    try:
        file = open(asked.path, "rb")  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise CommandEnded(f"{asked.path}: {error.strerror}", USAGE) from error
    if file.seekable():
        return file
    with file:
        return _copy(file, asked.path)


def _copy(file: IO[bytes], name: str) -> IO[bytes]:
    """Copy a source to a temporary file.

    :raises Ended: the source can't be read, or the copy not be written; the message names which
    """
    at_fault = _COPY
    copy = None
    try:
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        while True:
            at_fault = name
            data = file.read(limits.MIB)
            at_fault = _COPY
            if not data:
                copy.flush()
                return copy
            copy.write(data)
    except OSError as error:
        if copy is not None:
            _discard(copy)
        why = f"{at_fault}: {error.strerror}; nothing was sent"
        raise CommandEnded(why, USAGE) from error


def _discard(copy: IO[bytes]) -> None:
    """Close a copy that could not be written: the failing flush of its buffer is ignored."""
    with contextlib.suppress(OSError):
        copy.close()


async def run(asked: Import, file: IO[bytes], patient: RetryingClient, report: Report) -> str:
    """Import a file. Return a summary for people.

    :param report: called with the imported and the total size of the file, in KiB
    :raises Ended: a row was refused, the file can't be read, or an outage lasted too long; the rows
        before that are imported
    """
    path = Path(asked.path)
    is_kept = asked.path != STREAM and path.is_file()
    resume = ResumeFile(path.with_name(f"{path.name}.resume")) if is_kept else None
    try:
        return await _Run(asked, patient, file, resume).all(report)
    except OSError as error:
        raise CommandEnded(f"{error.filename or path}: {error.strerror}", USAGE) from error


class _Run:
    def __init__(
        self, asked: Import, patient: RetryingClient, file: IO[bytes], resume: ResumeFile | None
    ) -> None:
        self._asked = asked
        self._patient = patient
        self._file = file
        self._resume = resume
        self._table = quote(asked.table.name)
        self._state = ImportProgress(
            f"import into {asked.table} of {asked.form}, on a duplicate {asked.on_duplicate}"
        )

    async def all(self, report: Report) -> str:
        """Send every row that is not imported yet."""
        defined = await self._defined()
        self._state.store = await self._patient.store()
        size = self._resume_import(defined)
        lines = FileLines(self._file)
        try:
            for batch in batches(self._rows(lines, defined), self._asked.batch):
                await self._send(batch)
                if lines.bytes == self._state.bytes:  # else the reader is ahead of the sent rows
                    self._save(lines.digest.hexdigest())
                report(-(-self._state.bytes // limits.KIB), -(-size // limits.KIB))
        except RowRefused as error:
            raise self._ended(error) from error
        except ColumnsRefused as error:
            if self._resume is not None and not self._state.rows:
                self._resume.remove()
            raise CommandEnded(str(error), USAGE) from error
        except Refused as error:
            raise CommandEnded(explain(error, ""), REFUSED) from error
        if self._resume is not None:
            self._resume.remove()
        done = f"imported {self._state.rows} rows into {self._asked.table}"
        if self._asked.on_duplicate == IGNORE:
            passed = self._state.rows - self._state.inserted
            done += f": {self._state.inserted} inserted, {passed} existed already"
        return done

    def _resume_import(self, defined: dict[str, str]) -> int:
        """Resume an earlier run. Return the size of the file."""
        size = self._file.seek(0, os.SEEK_END)
        if self._resume is None or not self._resume.load(self._state):
            self._state.key = _digest(self._file, size)
            if self._asked.form == "csv":
                self._state.guessed = self._guessed(defined)
            self._save(_digest(self._file, 0))
        elif _digest(self._file, self._state.bytes) != self._state.digest:
            raise CommandEnded(
                f"{self._asked.path}: changed among the {self._state.rows} imported rows;"
                f" remove {self._resume.path} to start over",
                USAGE,
            )
        self._file.seek(0)
        return size

    def _guessed(self, defined: dict[str, str]) -> dict[str, str]:
        """Return guessed types of columns without one: all if requested, else only that of a key.
        Columns kept as text although they look like another type are reported."""
        self._file.seek(0)
        asked = self._asked
        known = {**defined, **asked.types}
        head, guess = read_guess(FileLines(self._file), known, asked.nulls, asked.delimiter)
        found = guess.types()
        taken = {
            name: kind
            for name, kind in found.items()
            if asked.guess or (name == ID and kind in KEYS)
        }
        told = self._patient.print_notice
        where = f"{asked.path}: the head {', '.join(head)[:200]!r} has no type for"
        if taken:
            told(f"{where} {', '.join(taken)}: imported as --types {_types(taken)}")
        left = {name: kind for name, kind in found.items() if name not in taken}
        if left:
            told(
                f"{where} {', '.join(left)}: imported as strings, look like --types"
                f" {_types(left)}; --guess applies these"
            )
        left, missing = guess.types_without_missing()
        if left:
            nulls = " ".join(f"--null {shlex.quote(cell)}" for cell in missing)
            told(
                f"{where} {', '.join(left)}: imported as strings, look like --types"
                f" {_types(left)} except for {', '.join(missing)}; --guess {nulls} applies these"
            )
        return taken

    def _save(self, digest: str) -> None:
        self._state.digest = digest
        if self._resume is not None:
            self._resume.save(self._state)

    def _ended(self, error: RowRefused) -> CommandEnded:
        message = f"{self._asked.path}: {error}\n{self._state.rows} rows before it are imported"
        if self._resume is not None:
            if self._state.rows:
                # Earlier rows of the same batch too: exactly the acknowledged rows are saved.
                self._save(_digest(self._file, self._state.bytes))
            else:
                self._resume.remove()  # guessed types bind only once rows are imported
            message += "; fix it and run the same command again to continue"
        return CommandEnded(message, REFUSED)

    async def _defined(self) -> dict[str, str]:
        """Return the types of the table's fields, for columns without one; none if the user lacks
        the privilege."""
        try:
            info = (await self._patient.run(f"INFO FOR TABLE {self._table}")).value
        except NotAllowed:
            return {}
        except Refused as error:
            raise CommandEnded(explain(error, ""), REFUSED) from error
        found = {one["name"]: type_of_field(one["type"]) for one in info["fields"]}
        return {name: kind for name, kind in found.items() if kind is not None}

    def _rows(self, lines: FileLines, defined: dict[str, str]) -> Iterator[FileRow]:
        if self._asked.form == "csv":
            known = {**self._state.guessed, **defined}
            asked = self._asked
            return csv_rows(
                lines, self._state.bytes, asked.types, known, asked.nulls, asked.delimiter
            )
        return json_rows(lines, self._state.bytes)

    async def _send(self, batch: list[FileRow]) -> None:
        """Insert the rows in one commit; or, if a row is refused, those before it.

        :raises RowRefused: a row was refused
        """
        first = self._state.rows
        rows = [self._addressed(row.fields, first + n) for n, row in enumerate(batch)]
        try:
            inserted = await self._insert(rows)
        except (Refused, ValueError, TypeError) as error:
            # ValueError: the rows don't fit a frame, or can't be encoded. Nothing was sent.
            if isinstance(error, Refused) and error.code not in OF_ROWS:
                raise
            if len(batch) == 1:
                why = explain(error, "") if isinstance(error, Refused) else str(error)
                raise RowRefused(f"line {batch[0].line}: {why}") from error
            half = len(batch) // 2
            await self._send(batch[:half])
            await self._send(batch[half:])
            return
        self._state.rows += len(batch)
        self._state.bytes = batch[-1].end
        self._state.inserted += inserted

    def _addressed(self, fields: dict[str, Any], number: int) -> dict[str, Any]:
        if ID not in fields:
            fields = {ID: made_id(bytes.fromhex(self._state.key), number), **fields}
        return to_client(fields)  # type: ignore[no-any-return]

    async def _insert(self, rows: list[dict[str, Any]]) -> int:
        """Insert rows. Return the number of inserted rows; with updates, of all rows."""
        if self._asked.on_duplicate == IGNORE:
            batch = columns_of(rows)
            script = f"{insert_of(self._asked.table.name, batch, 'rows')} IGNORE RETURN id"
            return len((await self._patient.run(script, {"rows": batch})).value)
        await self._patient.run(*updating(self._asked.table.name, rows))
        return len(rows)


def updating(table: str, rows: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return a transaction that inserts rows, and updates only a row's fields if its record exists.

    Rows with the same fields are grouped: a field that a row lacks is left as it is. Rows of one
    record are applied in their order.
    """
    params: dict[str, Any] = {}
    statements = ["BEGIN"]
    for number, (names, group) in enumerate(_by_fields(rows)):
        params[f"r{number}"] = batch = columns_of(group)
        sets = ", ".join(f"{quote(name)} = $input.{quote(name)}" for name in names)
        then = f"ON DUPLICATE UPDATE SET {sets}" if sets else "IGNORE"
        statements.append(f"{insert_of(table, batch, f'r{number}')} {then} RETURN NONE")
    return "; ".join([*statements, "COMMIT"]), params


def _by_fields(
    rows: list[dict[str, Any]],
) -> Iterator[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    """Yield rows grouped by their field names, each group without a repeated record."""
    together: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    records: set[str] = set()
    for row in rows:
        record = repr(row[ID])
        if record in records:
            yield from together.items()
            together, records = {}, set()
        records.add(record)
        together.setdefault(tuple(sorted(row.keys() - {ID})), []).append(row)
    yield from together.items()


def batches(rows: Iterator[FileRow], most: int) -> Iterator[list[FileRow]]:
    """Yield batches of at most `most` rows. No row is read before the previous batch is done, so
    the read part of the file is exactly the sent part.

    :raises RowRefused: a row can't be read; those before it have been yielded
    """
    batch: list[FileRow] = []
    begun = 0
    unreadable = None
    try:
        for row in rows:
            batch.append(row)
            if len(batch) >= most or row.end - begun >= BATCH_BYTES:
                yield batch
                batch, begun = [], row.end
    except RowRefused as error:
        unreadable = error
    if batch:
        yield batch
    if unreadable is not None:
        raise unreadable


def _types(columns: dict[str, str]) -> str:
    return ",".join(f"{name}:{kind}" for name, kind in columns.items())


def _digest(file: IO[bytes], size: int) -> str:
    """Return the SHA-256 of the first bytes of a file."""
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (data := file.read(min(size, limits.MIB))):
        digest.update(data)
        size -= len(data)
    return digest.hexdigest()
