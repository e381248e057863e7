"""INFO FOR HISTORY OF: the changes of a record, newest first, read from the log.

The state has the newest change of an existing record, and each change in the log names the previous
one. So the cost grows with the answer, not with the log. A deleted record has left nothing in the
state: its deletion is searched for, backwards from the newest frame. A record's creation is
followed by such a search for an earlier record with the same id.

The log is read by its own thread, a part at a time, while the loop runs other work. Only released
commits are read: pending ones that the transaction has seen are waited for first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from actors.log_reads import LogReads
from actors.scripts.execution import SEEN_ROLLED_BACK
from actors.scripts.handlers import RequiresOnRecords, handles
from actors.scripts.statements import whole_number
from actors.scripts.transactions import ScriptRun
from language import tree
from protocol import limits
from protocol.binary import unpack_object
from protocol.errors import (
    BadRequest,
    Conflict,
    DiskFull,
    Failed,
    NoHistory,
    UnknownOutcome,
)
from protocol.rights import INFO, READ
from protocol.values import RecordId, Tick, Value, identical, instant, type_name
from storage.catalog.tables import Table
from storage.faults import LogDamaged
from storage.formats import keys
from storage.records import records
from storage.records.history import HistoryEntry, HistoryPart, SearchResult

FEW: Final = 64
"""Most changes newer than BEFORE that are skipped to reach the first one requested. Beyond that a
search is faster: a record that changes so often has a change nearby."""


@handles(tree.InfoHistory, "info", writes=False, needs=[RequiresOnRecords(READ)])
def info_for_history(run: ScriptRun, statement: tree.InfoHistory) -> Value:
    """Return changes of a record, newest first: the newest, or those before a commit.

    :raises NoHistory: it names a namespace, a database or a table
    :raises BadRequest: it names no record, or LIMIT or BEFORE is invalid
    :raises Failed: a frame that is needed is damaged
    """
    if isinstance(statement.of, tree.SecurableRef):
        kind, names = statement.of.kind.lower(), ".".join(statement.of.names)
        raise NoHistory(f"a {kind} has no history: ask for that of a record, table:id, not {names}")
    record = run.evaluate(statement.of)
    if not isinstance(record, RecordId):
        raise BadRequest(f"INFO FOR HISTORY needs a record, table:id, not {type_name(record)}")
    table = run.table(record.table, READ)
    limit = whole_number(run, statement.limit, "LIMIT")
    most = limits.HISTORY_ENTRIES if limit is None else limit
    if not 1 <= most <= limits.HISTORY_ENTRIES_MAX:
        most_of_all = limits.HISTORY_ENTRIES_MAX
        raise BadRequest(f"LIMIT of a history is 1 to {most_of_all}", limit=most_of_all)
    before = whole_number(run, statement.before, "BEFORE")
    if before is not None and before < 0:
        raise BadRequest("BEFORE takes a sequence, 0 or more")
    # READ shows values; the author and the reason need INFO on the table.
    attributed = run.rights.holds(run.transaction, run.caller, INFO, table)
    newest, upto = _standing(run, table, record)
    # BEFORE may lie in the future: the released log bounds it.
    below = upto + 1 if before is None else min(before, upto + 1)
    reading = _Reading(run, run.services.reads, keys.record(table.prefix, record.id))
    try:
        found = reading.changes(newest, below, most)
    except LogDamaged as damage:
        raise Failed(
            f"the log is damaged at commit {damage.sequence}, which this history needs",
            sequence=damage.sequence,
        ) from damage
    return {
        "record": record,
        "entries": found.entries(attributed, run.tick),
        "complete": found.stopped is None,
        "stopped": found.stopped,
        "next": found.next,
        "begins": run.services.reads.begins,
    }


def _standing(run: ScriptRun, table: Table, record: RecordId) -> tuple[int, int]:
    """Return the commit that last changed a record, 0 if it does not exist, and the newest commit
    to read: the transaction's, as far as it is released.

    :raises Conflict: a commit that the transaction has read was rolled back
    """
    tx, committer = run.transaction, run.services.committer
    # Read before the wait: the ticket then covers the commit that this names.
    newest = records.last_change(tx, table, record.id)
    # Later commits reuse rolled-back sequences: this one may name another record's change.
    if tx.reads.rolled_back:
        raise Conflict(SEEN_ROLLED_BACK)
    try:
        run.until_released(tx.ticket)
    except (DiskFull, UnknownOutcome) as lost:
        if tx.reads.rolled_back:
            raise Conflict(SEEN_ROLLED_BACK) from lost
        raise
    # Commits that it has not read may still be pending: they are left out.
    return newest, min(tx.sequence, committer.commit_index)


@dataclass(slots=True)
class _RecordChanges:
    """Consecutive changes, newest first, and the reason why there are no more."""

    changes: list[HistoryEntry] = field(default_factory=list)
    shown: int = 0
    """Changes to show; one more may follow, for comparison with the last of these."""
    held: int = 0
    """Bytes of the changes' fields."""
    stopped: str | None = None
    next: int | None = None

    def entries(self, attributed: bool, tick: Tick) -> list[Value]:
        """Return the changes in the form of the answer.

        :param attributed: True if the caller may see the author and the reason
        """
        entries: list[Value] = []
        after: dict[str, Any] | None = None
        for at, change in enumerate(self.changes):
            fields = None if change.fields is None else unpack_object(change.fields)
            tick()
            if entries:
                _compare(entries[-1], after, fields, tick)
            if at == self.shown:
                break
            entries.append(_entry(change, fields, attributed))
            after = fields
        return entries


def _entry(
    change: HistoryEntry, fields: dict[str, Any] | None, attributed: bool
) -> dict[str, Value]:
    """Return one change for the answer. `changed` is known here for a creation; for any other it
    stays null if the log no longer holds the change before it."""
    made = not change.previous
    return {
        "seq": change.sequence,
        "at": instant(change.time),
        "by": change.by if attributed else None,
        "action": "delete" if fields is None else "create" if made else "update",
        "value": fields,
        "changed": list(fields or ()) if made else None,
        "reason": change.reason if attributed else None,
    }


def _compare(
    entry: Any, after: dict[str, Any] | None, before: dict[str, Any] | None, tick: Tick
) -> None:
    """Fill in the changed fields of an entry, by comparison with the change before it. First fields
    with another or a new value, in their order, then removed ones."""
    if entry["action"] == "create":
        return
    after, before = after or {}, before or {}
    changed = [
        name
        for name in after
        if name not in before or not identical(after[name], before[name], tick)
    ]
    entry["changed"] = changed + [name for name in before if name not in after]


class _Reading:
    """Reader of the log for one statement, with a budget of frames, bytes and time."""

    def __init__(self, run: ScriptRun, reads: LogReads, key: bytes) -> None:
        self._run = run
        self._reads = reads
        self._key = key
        self._frames = limits.HISTORY_FRAMES
        self._bytes = limits.HISTORY_READ_BYTES
        clock = run.services.clock
        self._until_us = clock.monotonic_us() + limits.HISTORY_SECONDS * 1_000_000
        self._clock = clock

    def changes(self, newest: int, below: int, most: int) -> _RecordChanges:
        """Return the changes before a commit.

        :param newest: the record's newest change; 0: it does not exist
        """
        found = _RecordChanges()
        at = self._first(newest, below)
        # A chain leads to a creation; only a search finds earlier lives of the id.
        while at or (at := self._last_before(below, found)):
            if len(found.changes) == most:
                # BEFORE excludes its commit, so the next answer begins with this change.
                found.stopped, found.next = "limit", at + 1
                break
            if not self._down(at, most, found):
                break
            at, below = 0, found.changes[-1].sequence
        return found

    def _last_before(self, below: int, found: _RecordChanges) -> int:
        """Return the newest change before a commit that no chain leads to: a deletion. 0: the log
        has none, or the search has stopped.

        After a creation in the answer, only one part of the log is searched: most records are
        created once.
        """
        while below > self._reads.begins:
            if found.changes and found.held > limits.HISTORY_BYTES:
                break
            try:
                searched = self._search(below)
            except LogDamaged:
                if found.changes:
                    break  # the next answer, which begins here, reports the damage
                raise
            below = searched.reached
            if searched.found:
                return searched.found
            if found.changes or self._spent:
                break
        if below > self._reads.begins:
            found.stopped, found.next = "budget", below
        elif self._reads.begins > 1:
            found.stopped = "pruned"
        return 0

    def _first(self, newest: int, below: int) -> int:
        """Return the newest change before a commit, if it is found quickly, else 0.

        Changes read for that are not in the answer, and damage among them is ignored.
        """
        if newest < below:
            return newest
        if below > 1 and self._glance(below - 1, 1).changes:
            return below - 1  # the usual case: BEFORE is the `next` of the last answer
        at, passed = newest, 0
        while at >= max(below, self._reads.begins) and passed < FEW:
            trail = self._glance(at, FEW - passed)
            passed += len(trail.changes)
            for change in trail.changes:
                if change.sequence < below:
                    return change.sequence
            at = trail.goes_on
        return at if at < below else 0

    def _down(self, at: int, most: int, found: _RecordChanges) -> bool:
        """Add the changes from one on, backwards. Return True if a creation was reached and there
        is room for more."""
        changes = found.changes
        while at >= self._reads.begins and len(changes) <= most:
            # One change more than asked for: the last one shown is compared with it.
            trail = self._follow(at, most + 1 - len(changes))
            if not trail.changes:
                assert at < self._reads.begins, "a record's change is none"
                break  # pruned meanwhile
            changes += trail.changes
            found.held += sum(len(change.fields or b"") for change in trail.changes)
            at = trail.goes_on
            # Two at least: a single one is held back, and the next answer would begin here.
            if (found.held > limits.HISTORY_BYTES or self._spent) and len(changes) > 1:
                break
        found.shown = len(changes)
        # The last change is held back: without the one before it, its changed fields are unknown.
        if len(changes) > most or at >= self._reads.begins:
            # One more change is known, but the one before it may not be.
            found.shown = min(len(changes) - 1, most)
            found.stopped = "limit" if found.shown == most else "budget"
            found.next = changes[found.shown].sequence + 1
        elif at:
            found.stopped = "pruned"
        return found.stopped is None

    def _glance(self, at: int, count: int) -> HistoryPart:
        """Like `_follow`; empty where the log is damaged."""
        try:
            return self._follow(at, count)
        except LogDamaged:
            return HistoryPart([], 0, 0)

    def _follow(self, at: int, count: int) -> HistoryPart:
        trail = self._run.fiber.wait(self._reads.changes(self._key, at, count))
        self._bytes -= trail.read
        return trail

    def _search(self, below: int) -> SearchResult:
        searched = self._run.fiber.wait(self._reads.search(self._key, below))
        self._bytes -= searched.read
        self._frames -= searched.frames
        return searched

    @property
    def _spent(self) -> bool:
        # Bounds the use of the log thread, which feeds and followers share.
        return self._frames <= 0 or self._bytes <= 0 or self._clock.monotonic_us() >= self._until_us
