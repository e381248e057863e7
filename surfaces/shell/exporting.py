"""`storenode export`: writes the records of a table to a file, page by page in order of their ids.

All pages are read from one snapshot of the store, so the file is the table at its sequence. If the
node no longer keeps that snapshot (it was restarted, or an hour has passed), a new one is taken.
Then each record was read between two known sequences. No record is written twice, and none that
exists during the whole export is missing: each page starts behind the last id of the one before
(keyset pagination).
"""

from __future__ import annotations

import io
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Protocol

from language.keywords import quote
from protocol import limits
from protocol.jsonvalues import dump, from_json, load, to_json
from protocol.values import NONE
from storeclient import Refused
from storeclient.errors import NotAllowed
from storeclient.files import give_name
from storeclient.moments import NEW
from surfaces.command.descriptors import OutputLost
from surfaces.shell.cells import CsvRows, Harmless, TextWriter, harmless_json
from surfaces.shell.columns import Census, Column
from surfaces.shell.outcomes import REFUSED, USAGE, CommandEnded
from surfaces.shell.patience import RetryingClient
from surfaces.shell.refusals import explain
from surfaces.shell.resuming import ResumeFile, TransferProgress
from surfaces.shell.transfers import STREAM, Export
from surfaces.shell.values import from_client, to_client

PAGE_ROWS: Final = 1000
"""Rows of the first page. Later pages grow while they fit a wire frame, and shrink if they don't.
"""
PAGE_ROWS_MOST: Final = 16_000

KEEP_SECONDS: Final = 300
"""Seconds that the snapshot is kept after a page: for outages, and for resuming the export."""

Report = Callable[[int, int], None]


@dataclass
class ExportProgress(TransferProgress):
    """Progress of an export. `bytes` are those of the part file.

    :ivar last: the last id, as JSON; None at the beginning
    :ivar first_sequence: that of the first page; 0 at the beginning
    :ivar last_sequence: that of the newest one
    :ivar moment: name of the snapshot; None at the beginning
    :ivar name: unique part of the unfinished files' names
    """

    last: Any = None
    first_sequence: int = 0
    last_sequence: int = 0
    moment: str | None = None
    name: str = ""


async def run(asked: Export, patient: RetryingClient, report: Report) -> str:
    """Export a table. Return a summary for people.

    :param report: called with the number of exported records, and their number at the beginning
    :raises Ended: refused, the file exists or can't be written, or an outage lasted too long
    """
    try:
        if asked.path == STREAM:
            return await _to_stream(asked, patient, report)
        return await _to_file(asked, patient, report)
    except Refused as error:
        raise CommandEnded(explain(error, ""), REFUSED) from error
    except OutputLost:
        raise
    except OSError as error:
        raise CommandEnded(f"{error.filename or asked.path}: {error.strerror}", USAGE) from error


async def _to_file(asked: Export, patient: RetryingClient, report: Report) -> str:
    path = Path(asked.path)
    if os.path.lexists(path):
        raise _there(path)
    resume = ResumeFile(path.with_name(f"{path.name}.resume"))
    pages = _Pages(asked, patient)
    pages.state.store = await patient.store()
    goes_on = resume.load(pages.state)
    if not goes_on:
        pages.state.name = secrets.token_hex(4)
    part = path.with_name(f"{path.name}.{pages.state.name}.part")
    try:
        await _to_part(part, goes_on, pages, resume, report)
    except BaseException:
        if not os.path.lexists(resume.path):  # no later run can resume from it
            part.unlink(missing_ok=True)
        raise
    done = part
    if asked.form == "csv":
        done = path.with_name(f"{path.name}.{pages.state.name}.csv-part")
        done.unlink(missing_ok=True)  # left by an earlier run of the same export
        with part.open("rb") as rows, done.open("x", encoding="utf-8", newline="") as out:
            write_csv(rows, pages.census.columns(), out)
            out.flush()
            os.fsync(out.fileno())
    try:
        give_name(str(done), str(path))
    except FileExistsError:
        raise _there(path) from None
    # Only now: until the file exists, a resumed run needs its sources.
    part.unlink(missing_ok=True)
    resume.remove()
    return pages.summary(str(path))


async def _to_part(
    part: Path, goes_on: bool, pages: _Pages, resume: ResumeFile, report: Report
) -> None:
    """Write all records into the part file, a line of JSON each. A new file is created exclusively:
    "x" follows no symbolic link."""
    with part.open("r+b" if goes_on else "x+b") as file:
        if os.fstat(file.fileno()).st_size < pages.state.bytes:
            raise CommandEnded(
                f"{part}: truncated; remove it and {resume.path} to start over", USAGE
            )
        # Bytes behind this offset were written but not recorded: these rows are read again.
        file.truncate(pages.state.bytes)
        for line in file if pages.is_csv else ():
            pages.census.count(_object(line))
        file.seek(pages.state.bytes)

        def keep() -> None:
            file.flush()
            os.fsync(file.fileno())
            resume.save(pages.state)

        await pages.write(file, keep, report)


def _there(path: Path) -> CommandEnded:
    return CommandEnded(f"{path}: file exists; choose another name", USAGE)


async def _to_stream(asked: Export, patient: RetryingClient, report: Report) -> str:
    pages = _Pages(asked, patient)
    terminal = sys.stdout.isatty()
    if asked.form == "jsonl":
        out: _Bytes = _JsonTerminal() if terminal else sys.stdout.buffer
        await pages.write(out, sys.stdout.flush, report)
    else:
        with tempfile.TemporaryFile() as file:
            await pages.write(file, file.flush, report)
            file.seek(0)
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8")
            shown = Harmless(sys.stdout) if terminal else sys.stdout
            write_csv(file, pages.census.columns(), shown)
    sys.stdout.flush()
    return pages.summary("standard output")


class _Bytes(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _JsonTerminal:
    """Lines of JSON for a terminal."""

    def write(self, data: bytes) -> None:
        """Write whole lines."""
        sys.stdout.write(harmless_json(data.decode()))


class _Pages:
    """The pages of a table, and the progress."""

    def __init__(self, asked: Export, patient: RetryingClient) -> None:
        self.state = ExportProgress(f"export of {asked.table} as {asked.form}")
        self.census = Census()
        """Columns of everything written, for CSV."""
        self.is_csv = asked.form == "csv"
        self._asked = asked
        self._patient = patient
        self._table = quote(asked.table.name)
        self._rows = PAGE_ROWS
        self._most = PAGE_ROWS_MOST

    async def write(self, out: _Bytes, keep: Callable[[], object], report: Report) -> None:
        """Write all remaining records, a line of JSON each.

        :param keep: called after each page to make it durable
        """
        total = await self._total()
        while True:
            page, rows = await self._page()
            for row in page:
                self.census.count(row)
            data = b"".join(dump(row) + b"\n" for row in page)
            out.write(data)
            if page:
                self.state.last = to_json(page[-1]["id"])
            self.state.rows += len(page)
            self.state.bytes += len(data)
            keep()
            report(self.state.rows, max(total, self.state.rows))
            if len(page) < rows:
                await self._patient.let_go(self.state.moment)
                return

    async def _total(self) -> int:
        """Return the number of records; 0 if the user lacks the privilege."""
        try:
            return int((await self._patient.run(f"INFO FOR TABLE {self._table}")).value["records"])
        except NotAllowed:
            return 0

    async def _page(self) -> tuple[list[dict[str, Any]], int]:
        """Return the records of the next page, and the requested number."""
        while True:
            rows = self._rows
            try:
                page = await self._read(rows)
            except Refused as error:
                # A page of one record always fits: a record has at most half of a frame.
                if error.code != "AnswerTooLarge" or rows == 1:
                    raise
                self._rows = self._most = rows // 2
                continue
            self._rows = min(rows * 2, self._most)
            return page, rows

    async def _read(self, rows: int) -> list[dict[str, Any]]:
        state, params = self.state, {}
        where = ""
        if state.last is not None:
            where = "WHERE id > $last "
            params["last"] = to_client(from_json(state.last))
        select = f"SELECT * FROM {self._table} {where}ORDER BY id LIMIT {rows}"
        try:
            answer = await self._patient.run(
                select, params, moment=state.moment or NEW, keep=KEEP_SECONDS
            )
        except Refused as error:
            if state.moment is None or "moment" not in error.detail:
                raise
            state.moment = None
            return await self._read(rows)
        state.moment = answer.moment
        state.first_sequence = state.first_sequence or answer.seq
        state.last_sequence = answer.seq
        return from_client(answer.value)  # type: ignore[no-any-return]

    def summary(self, path: str) -> str:
        """Return the result with its sequence."""
        first, last = self.state.first_sequence, self.state.last_sequence
        when = (
            f"as of sequence {first}"
            if first == last
            else (
                f"each as of a sequence from {first} to {last}: the node did not keep the snapshot"
            )
        )
        return f"exported {self.state.rows} records of {self._asked.table} to {path}, {when}"


def write_csv(rows: IO[bytes], columns: list[Column], out: TextWriter) -> None:
    """Convert lines of JSON to CSV with typed columns."""
    written = CsvRows(out)
    written.row(column.head for column in columns)
    for line in rows:
        row = _object(line)
        written.row(column.write(row.get(column.name, NONE)) for column in columns)


def _object(line: bytes) -> dict[str, Any]:
    row = load(line)
    assert isinstance(row, dict)
    return row


assert 2 * limits.RECORD_BYTES <= limits.FRAME_BYTES
