"""A store made of a backup by a command: nobody serves it meanwhile, and no actor is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from actors.doors import Doors
from actors.roles import takes_changes
from actors.store import clock_jumps
from protocol.doors import Clock, File
from protocol.errors import BadRequest
from protocol.node_roles import SERVING
from protocol.values import instant
from storage.backups.awaiting import Awaiting
from storage.backups.container import key_for
from storage.backups.forms import Form, form_of, not_a_backup
from storage.backups.making import Tick, World
from storage.backups.restoring import Restored, restore_log, restore_snapshot
from storage.directory import refuse_unless_empty
from storage.sealing import Key

NOT_PROVEN: Final = "the backup was not sealed: origin not proven"
"""Told of one that went into a sealed store: who could write to the file chose what is in it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be made of a backup."""

    directory: str
    upto: int | None = None
    """Of a log, the last sequence that is wanted; None: all of it."""
    reading: bool = False
    """Whether the node that serves it takes no writes until it is told to."""
    accept_clock: bool = False
    """Whether a wall clock behind what is restored is meant."""
    key: Key | None = None
    """What the store is to be sealed with; None: it is not."""


def restore(
    doors: Doors, file: File, wanted: Wanted, tick: Tick, keys: Sequence[Key] = ()
) -> Iterator[str]:
    """Make a store of a snapshot or a log; answers what to tell of it, in lines.

    :param file: how it begins says which it is. Stays the caller's to close
    :param keys: one of them opens it, where it is sealed
    :raises BackupCorrupt: it begins as neither
    :raises BadRequest: what is wanted is for another form
    :raises Refusal, StoreFault, EngineFailed, OSError: as `storage.backups.restoring`
    """
    path, form = wanted.directory, form_of(file)
    world = World(
        doors.fs,
        doors.clock,
        doors.rng,
        doors.open_engine,
        doors.open_in_memory,
        tick,
        key=wanted.key,
        accept_clock=wanted.accept_clock,
        roles=(SERVING,) if wanted.reading else None,
    )
    key = key_for(file, keys) if form is not None else None
    if form is Form.LOG:
        restored, what = restore_log(world, path, file, key, wanted.upto), "commits"
    elif form is not Form.SNAPSHOT:
        raise not_a_backup(file, "; other scripts are run by -f")
    elif wanted.upto is not None:
        raise BadRequest("a snapshot is of one moment: --upto is for logs")
    else:
        restored, what = restore_snapshot(world, path, file, key), "records"
    proven = wanted.key is None or key is not None
    return chain(_told(restored, what, doors.clock), () if proven else (NOT_PROVEN,))


def check_for_script(doors: Doors, wanted: Wanted) -> None:
    """Whether a script may make the store that is wanted, by being run.

    :raises NotRestored: the directory is not as empty as the others want it
    :raises BadRequest: what is wanted is for another form
    """
    if wanted.upto is not None or wanted.reading:
        flag = "--reading" if wanted.upto is None else "--upto"
        raise BadRequest(f"a script is run, statement by statement: {flag} is not for it")
    refuse_unless_empty(doors.fs, wanted.directory)


def _told(restored: Restored, what: str, clock: Clock) -> Iterator[str]:
    """What was restored, and what comes next."""
    origin, due = restored.origin, restored.state.awaiting
    place = f"{origin.place} of " if origin.place is not None else ""
    yield (
        f"restored {place}store {origin.store} up to sequence {origin.at.sequence},"
        f" {what}: {restored.records}, state {restored.state.hash}"
    )
    yield f"it is store {restored.store} now, and its log begins at {restored.begins}"
    writes = takes_changes(restored.roles)
    if clock_jumps(clock.wall_us(), origin.at.time):
        day = instant(origin.at.time).date()
        yield f"its newest commit is of {day}: its first start wants --accept-clock-jump"
    unfinished = restored.state.unfinished
    if due or unfinished:
        when = "as soon as it is served" if writes else "once it is told to write"
        yield f"{when}, the time that has passed takes effect:"
        for one in due:
            yield f"    {one.path}: {', '.join(_due(one))}"
        for path in unfinished:
            yield f"    {path}: a script was filling it, and it is dropped"
    if not writes:
        yield "it only reads, until DEFINE NODE ROLES serving, writable"
    elif due or unfinished:
        yield "restored with --reading, it would keep all that until it is told to write"


_DUE: tuple[tuple[Callable[[Awaiting], int], str], ...] = (
    (lambda one: one.messages, "messages older than it keeps are removed: {}"),
    (lambda one: one.hand_outs, "hand-outs past their deadline are handed out again: {}"),
    (lambda one: one.keys, "keys that have expired are removed: {}"),
)


def _due(one: Awaiting) -> Iterator[str]:
    for count, text in _DUE:
        if count(one):
            yield text.format(count(one))
