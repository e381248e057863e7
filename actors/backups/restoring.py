"""Options and report of the restore command; the restore itself is `storage/backups/restore.py`.

The restore is offline: a command creates a store from a backup. No node serves the store, and no
actor is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from actors.environment import Environment
from actors.roles import takes_changes
from actors.store import clock_jumps
from protocol.environment import Clock, File
from protocol.errors import BadRequest
from protocol.node_roles import SERVING
from protocol.values import instant
from storage.backups.due_work import PendingExpiry
from storage.backups.restore import Restored, restore_log, restore_snapshot
from storage.backups.state_builder import RestoreEnvironment, Tick
from storage.files.directory import refuse_unless_empty
from storage.formats.container import BackupFileForm, form_of, key_for, not_a_backup
from storage.formats.sealing import Key

NOT_PROVEN: Final = "the backup was not sealed: origin not proven"
"""Warning for an unsealed backup restored into a sealed store: anyone with write access to the file
could choose its content."""


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """Options of a restore."""

    directory: str
    upto: int | None = None
    """Last sequence to restore from a log; None: all of it."""
    reading: bool = False
    """True if the restored node is read-only until it is declared writable."""
    accept_clock: bool = False
    """True to accept a wall clock behind the restored data."""
    key: Key | None = None
    """Key that seals the new store; None: it is stored in clear."""


def restore(
    environment: Environment,
    file: File,
    wanted: RestoreOptions,
    tick: Tick,
    keys: Sequence[Key] = (),
) -> Iterator[str]:
    """Create a store from a snapshot or a log. Return the lines to print.

    :param file: its beginning tells its form; the caller closes it
    :param keys: keys to open a sealed file with
    :raises BackupCorrupt: it begins like neither form
    :raises BadRequest: an option is for another form
    :raises Refusal, StoreFault, EngineFailed, OSError: as `storage.backups.restore`
    """
    path, form = wanted.directory, form_of(file)
    world = RestoreEnvironment(
        environment.fs,
        environment.clock,
        environment.rng,
        environment.open_engine,
        environment.open_in_memory,
        tick,
        key=wanted.key,
        accept_clock=wanted.accept_clock,
        roles=(SERVING,) if wanted.reading else None,
    )
    key = key_for(file, keys) if form is not None else None
    if form is BackupFileForm.LOG:
        restored, what = restore_log(world, path, file, key, wanted.upto), "commits"
    elif form is not BackupFileForm.SNAPSHOT:
        raise not_a_backup(file, "; other scripts are run by -f")
    elif wanted.upto is not None:
        raise BadRequest("a snapshot cannot be restored with --upto, which is for logs")
    else:
        restored, what = restore_snapshot(world, path, file, key), "records"
    proven = wanted.key is None or key is not None
    return chain(_report_lines(restored, what, environment.clock), () if proven else (NOT_PROVEN,))


def check_for_script(environment: Environment, wanted: RestoreOptions) -> None:
    """Check that a script may create the wanted store by being run.

    :raises NotRestored: the directory is not empty, which restores of other forms require too
    :raises BadRequest: an option is for another form
    """
    if wanted.upto is not None or wanted.reading:
        flag = "--reading" if wanted.upto is None else "--upto"
        raise BadRequest(
            f"a script cannot be restored with {flag}, for its statements are run one by one"
        )
    refuse_unless_empty(environment.fs, wanted.directory)


def _report_lines(restored: Restored, what: str, clock: Clock) -> Iterator[str]:
    """Yield the lines that describe the restored store and its next steps."""
    origin, due = restored.origin, restored.state.awaiting
    place = f"{origin.place} of " if origin.place is not None else ""
    yield (
        f"restored {place}store {origin.store} up to sequence {origin.at.sequence},"
        f" {what}: {restored.records}, state {restored.state.hash}"
    )
    yield f"it is now store {restored.store}, and its log begins at {restored.begins}"
    writes = takes_changes(restored.roles)
    if clock_jumps(clock.wall_us(), origin.at.time):
        day = instant(origin.at.time).date()
        yield f"its newest commit is of {day}: at the first start give --accept-clock-jump"
    unfinished = restored.state.unfinished
    if due or unfinished:
        when = "as soon as it is served" if writes else "once it is writable"
        yield f"{when}, the time that has passed takes effect:"
        for one in due:
            yield f"    {one.path}: {', '.join(_due(one))}"
        for path in unfinished:
            yield f"    {path}: dropped, since the script that was filling it did not finish"
    if not writes:
        yield "it is read-only until DEFINE NODE ROLES serving, writable"
    elif due or unfinished:
        yield "to keep all that until the store is made writable, restore with --reading"


_DUE: tuple[tuple[Callable[[PendingExpiry], int], str], ...] = (
    (lambda one: one.messages, "messages older than it keeps are removed: {}"),
    (lambda one: one.hand_outs, "hand-outs past their deadline are handed out again: {}"),
    (lambda one: one.keys, "expired keys are removed: {}"),
)


def _due(one: PendingExpiry) -> Iterator[str]:
    for count, text in _DUE:
        if count(one):
            yield text.format(count(one))
