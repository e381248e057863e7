"""Snapshot copies for nodes that join (Raft §7): a snapshot of the released state, sent in parts.

Each node that asks gets its own snapshot, in an unnamed file; the log behind it is pinned
meanwhile. Both outlive the link: a node that reconnects with the copy's id resumes at its offset.

Both are dropped when the node has attached, when it asks for another copy, or after
`limits.COPY_KEPT_SECONDS` without a request. The file of a completed copy is dropped earlier if
another node needs its room.

The snapshot is read on the loop in slices, and a low-priority thread writes its file. So other
requests wait no longer than beside a backup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

import structlog
from pykka import ActorRef

from actors.backups.files import (
    AbandonBackup,
    AddPart,
    BackupFilesActor,
    BeginBackup,
    FinishBackup,
    KeepUnnamed,
    RemoveKept,
)
from actors.backups.folder import BackupFolder
from actors.backups.taking import KeptFile, StoreFacts, retrieve_result
from actors.commits.committer import Committer
from actors.environment import Environment
from actors.log_pins import Pin
from actors.log_reads import LogReads
from actors.runtime import Runtime, Supervised, ask, tell
from actors.settings import NodeSettings
from actors.store import Store
from protocol import limits
from protocol.environment import Clock
from protocol.errors import Busy, Failed, LogPruned, NotImplementedHere, Refusal
from protocol.links import Copy, CopyBegins, CopyEnds, Frames, Link, LinkClosed, Part, Refused
from protocol.version import VERSION
from storage.backups import snapshot_file
from storage.engine.engine import Engine
from storage.faults import LogDamaged
from storage.formats.container import SnapshotFacts, WrittenBackup
from storage.formats.positions import LogPosition
from storage.txn.transaction import Transaction

log = structlog.get_logger("cluster")

PART_BYTES: Final = limits.MIB
ID_BYTES: Final = 16
ALIVE: Final = Frames(0, 0)
"""Keep-alive message, sent while a snapshot is taken."""
_PIN_US: Final = limits.LOG_PIN_SECONDS * 500_000
"""Age (µs) at which a log pin is renewed, before it expires."""

Told = tuple[int, int, bytes]
"""An entry of the epoch history: the epoch, its last frame, and the digest of that frame."""


class CopySnapshot(NamedTuple):
    """A snapshot taken for a copy."""

    at: LogPosition
    written: WrittenBackup
    file: KeptFile


class CopyInProgress:
    """The copy for one node, from its request on."""

    def __init__(self, id: bytes, link: Link, now_us: int) -> None:
        self.id = id
        self.link = link
        """Link of the newest request."""
        self.asked_us = now_us
        """Monotonic time of the newest request or sent part (µs)."""
        self.taking: asyncio.Task[CopySnapshot]
        self.pin: Pin | None = None
        """Pin of the log behind the snapshot."""
        self.renewal: asyncio.TimerHandle | None = None
        self.was_whole = False
        """True if it was sent to its end."""
        self.sent_bytes = 0
        """Bytes sent, repeated parts included."""

    @property
    def failed(self) -> bool:
        """True if the snapshot could not be taken."""
        taking = self.taking
        return taking.done() and (taking.cancelled() or taking.exception() is not None)

    @property
    def has_file(self) -> bool:
        """True if it uses room on the disk, or will."""
        if self.failed:
            return False
        return not self.taking.done() or self.taking.result().file.kept

    def drop_file(self) -> None:
        """Drop the file of a completed copy, and keep the log behind it."""
        self.taking.result().file.close()

    def drop_pin(self) -> None:
        """Let the log behind the copy be pruned. Idempotent."""
        if self.pin is not None:
            self.pin.release()
            self.pin = None

    def drop(self) -> None:
        """Drop the copy and its log pin. Idempotent."""
        if self.renewal is not None:
            self.renewal.cancel()
        self.drop_pin()
        # No effect on a completed snapshot, whose file is closed by the callback instead.
        self.taking.cancel()
        self.taking.add_done_callback(_close_file)


def _close_file(taking: asyncio.Task[CopySnapshot]) -> None:
    """Close the file of a dropped copy; retrieve the exception of a failed one, else asyncio logs
    it."""
    if not taking.cancelled() and taking.exception() is None:
        taking.result().file.close()


class SnapshotCopies:
    """All copies that a node gives. On the loop only.

    :param files: starts the actor that writes their files, and no other files; called once, for the
        first copy
    :param new_id: returns so many random bytes
    :param history: returns the epoch history of the log, the present epoch included
    """

    def __init__(
        self,
        committer: Committer,
        reads: LogReads,
        engine: Engine,
        store: StoreFacts,
        files: Callable[[], Supervised[Any]],
        clock: Clock,
        new_id: Callable[[int], bytes],
        history: Callable[[], Sequence[Told]],
    ) -> None:
        self._committer = committer
        self._reads = reads
        self._engine = engine
        self._store = store
        self._begin_files = files
        self._clock = clock
        self._new_id = new_id
        self._history = history
        self._given: dict[str, CopyInProgress] = {}
        """Copies by node id."""
        self._begun: Supervised[Any] | None = None
        """Supervisor of the file-writing actor, once there was a copy to give."""
        self._one = asyncio.Lock()
        """Held while a snapshot is taken: one at a time."""
        self._numbers = count(1)
        """Numbers of kept files."""

    @property
    def given(self) -> dict[str, CopyInProgress]:
        """Copies being sent, or kept for a node to resume, by node id."""
        return dict(self._given)

    def attached(self, node: str) -> None:
        """Drop the copy of a node: it has attached, or its copy is of no more use."""
        found = self._given.pop(node, None)
        if found is not None:
            found.drop()

    @property
    def _files(self) -> Supervised[Any]:
        if self._begun is None:
            self._begun = self._begin_files()
        return self._begun

    def close(self) -> None:
        """Drop all copies."""
        for node in list(self._given):
            self.attached(node)

    # --- one link -------------------------------------------------------------------------------

    async def accept(self, link: Link) -> None:
        """Serve a link from another node, on a node that only gives copies."""
        wanted = await link.receive()
        if isinstance(wanted, Copy):
            await self.serve(link, wanted)
        else:
            refusal = NotImplementedHere(
                "this node gives copies, but does not accept followers yet"
            )
            link.send(Refused(refusal.code, refusal.message))

    async def serve(self, link: Link, asked: Copy) -> None:
        """Send the parts of the store from the requested offset, or refuse. Return once the node
        has them, or is gone."""
        node = link.peer.node
        try:
            giving = self._find_copy(link, asked)
            taken = await self._taken(giving)
            log.info(
                "sending a copy of the store",
                node=node,
                sequence=taken.at.sequence,
                offset=asked.offset,
            )
            await self._send(giving, taken, asked)
            log.info("a copy of the store was sent", node=node, bytes=giving.sent_bytes)
        except LinkClosed as closed:
            log.info("a copy was cut off", node=node, reason=str(closed))
        except Refusal as refusal:
            log.warning("a copy was refused", node=node, reason=refusal.message)
            link.send(Refused(refusal.code, refusal.message))

    def _find_copy(self, link: Link, asked: Copy) -> CopyInProgress:
        """Return the copy to send: the one to resume, if it still exists, or a new one.

        :raises Busy: too many copies are being given
        """
        node, now_us = link.peer.node, self._clock.monotonic_us()
        found = self._given.get(node)
        if found is not None and found.has_file:
            # A node asks over one link at a time: the earlier link is dead.
            found.link.close("the node has asked for its copy again")
            # Without an id, the node holds no part: an unfinished copy is sent from its start.
            # A complete one was of no use to the node, so it gets another.
            if asked.resume == found.id or (asked.resume is None and not found.was_whole):
                found.link, found.asked_us = link, now_us
                return found
        # Its own former copy goes first, and makes room.
        self.attached(node)
        self._make_room()
        made = self._given[node] = CopyInProgress(self._new_id(ID_BYTES), link, now_us)
        made.taking = asyncio.ensure_future(self._take(made))
        self._renew(node, made)
        return made

    def _make_room(self) -> None:
        """Make room for one more copy: the oldest completed one loses its file, since most likely
        its node needs it no more.

        :raises Busy: too many are being sent
        """
        held = [one for one in self._given.values() if one.has_file]
        if len(held) < limits.COPIES:
            return
        whole = [one for one in held if one.was_whole]
        if not whole:
            raise Busy(f"too many copies are being sent: the limit is {limits.COPIES}")
        min(whole, key=lambda one: one.asked_us).drop_file()

    async def _taken(self, giving: CopyInProgress) -> CopySnapshot:
        """Wait for the snapshot and return it. The requester gets keep-alive messages meanwhile.

        :raises Refusal: it can't be taken
        """
        while not giving.taking.done():
            # `wait` does not cancel the snapshot with this request: a later one can use it.
            await asyncio.wait((giving.taking,), timeout=limits.COPY_ALIVE_SECONDS)
            # Waiting counts as a request: a slow snapshot is not given up.
            giving.asked_us = self._clock.monotonic_us()
            if not giving.taking.done():
                giving.link.send(ALIVE)
                await giving.link.drained()
        if giving.taking.cancelled():
            raise LinkClosed("the copy is no longer available")
        return giving.taking.result()

    async def _send(self, giving: CopyInProgress, taken: CopySnapshot, asked: Copy) -> None:
        link, at, size = giving.link, taken.at, taken.written.size
        goes_on = asked.resume == giving.id and asked.offset <= size
        offset = asked.offset if goes_on else 0
        # The history ends at the snapshot. Its last entry is the snapshot's own frame, with which
        # log matching begins when the node attaches.
        epoch_ends = [told for told in self._history() if told[0] < at.epoch]
        if at.sequence:
            epoch_ends.append((at.epoch, at.sequence, at.digest))
        link.send(CopyBegins(giving.id, self._store.id, size, at.sequence, at.epoch, epoch_ends))
        while offset < size:
            # Before each part: a newer request may have replaced this link, or the file is gone.
            if giving.link is not link or not taken.file.kept:
                raise LinkClosed("the copy is no longer available")
            data = await taken.file.read(offset, PART_BYTES)
            link.send(Part(offset, data))
            offset += len(data)
            giving.sent_bytes += len(data)
            # Backpressure: a slow link holds one part in memory.
            await link.drained()
            giving.asked_us = self._clock.monotonic_us()
        link.send(CopyEnds(taken.written.sha256))
        giving.was_whole = True
        # Closing at once could cut off the digest, which is still on its way.
        await _wait_until_closed(link)

    # --- the snapshot ---------------------------------------------------------------------------

    async def _take(self, giving: CopyInProgress) -> CopySnapshot:
        """Take the snapshot, with the log behind it pinned from before on.

        :raises DiskFull: there is no room for it beside the store
        :raises Failed: the log is damaged at the commit of the snapshot
        """
        async with self._one:
            moment = self._committer.ledger.moment()
            view = moment.begin_transaction()
            moment.end()  # the snapshot lasts until `view` is released
            number, done = next(self._numbers), False
            try:
                # Pinned together with the view: the node needs every frame after it to attach.
                giving.pin = self._reads.pin(view.sequence + 1)
                at = await self._position_at(view.sequence)
                await self._write(view, at)
                written = await ask(self._files.ref, FinishBackup(lambda: False))
                await ask(self._files.ref, KeepUnnamed(number))
                done = True
                return CopySnapshot(at, written, KeptFile(self._files, number, written))
            finally:
                view.release()
                if not done:
                    # No node can attach behind a copy that failed.
                    giving.drop_pin()
                    tell(self._files.ref, AbandonBackup())
                    tell(self._files.ref, RemoveKept(number))

    async def _position_at(self, sequence: int) -> LogPosition:
        try:
            return await self._reads.position_at(sequence)
        except LogDamaged as damage:
            raise Failed(
                f"the log is damaged at commit {damage.sequence}", sequence=damage.sequence
            ) from damage

    async def _write(self, view: Transaction, at: LogPosition) -> None:
        """Read the snapshot in slices; each part is written while the next one is read."""
        store, files = self._store, self._files
        facts = SnapshotFacts(VERSION, store.id, store.created, self._clock.wall_us(), at)
        await ask(files.ref, BeginBackup(facts, None, self._engine.stored_bytes()))
        writing: asyncio.Future[None] | None = None
        found: list[snapshot_file.SnapshotPiece] = []
        size, until_us = 0, self._clock.monotonic_us() + limits.SLICE_US
        try:
            for piece in snapshot_file.pieces(view):
                found.append(piece)
                size += len(piece.data)
                if size >= PART_BYTES:
                    # At most two parts are in memory: one is written while the next is read.
                    if writing is not None:
                        await writing
                    writing = ask(files.ref, AddPart(found))
                    found, size = [], 0
                if self._clock.monotonic_us() >= until_us:
                    await asyncio.sleep(0)
                    until_us = self._clock.monotonic_us() + limits.SLICE_US
            if writing is not None:
                await writing
            await ask(files.ref, AddPart(found))
        finally:
            if writing is not None:
                writing.add_done_callback(retrieve_result)

    # --- how long it is kept --------------------------------------------------------------------

    def _renew(self, node: str, giving: CopyInProgress) -> None:
        """Renew the log pin of a copy. Drop both after a long time without requests, or if a full
        disk has pruned that log."""
        if self._given.get(node) is not giving:
            return
        now_us = self._clock.monotonic_us()
        if now_us - giving.asked_us >= limits.COPY_KEPT_SECONDS * 1_000_000:
            log.warning(
                "a copy was given up", node=node, reason="the node did not come back for it"
            )
            self.attached(node)
            return
        if giving.pin is not None:
            try:
                # The new pin comes first: in a gap, the log thread could prune the log.
                renewed = self._reads.pin(giving.pin.sequence)
            except LogPruned as pruned:
                log.warning("a copy was given up", node=node, reason=pruned.message)
                self.attached(node)
                return
            giving.pin.release()
            giving.pin = renewed
        giving.renewal = self._committer.at(now_us + _PIN_US, partial(self._renew, node, giving))


def begin_copies(
    runtime: Runtime,
    committer: Committer,
    reads: LogReads,
    store: Store,
    settings: NodeSettings,
    environment: Environment,
    supervise: Callable[[Callable[[], ActorRef[Any]]], Supervised[Any]],
) -> SnapshotCopies:
    """Return the copies of a node's store.

    :param supervise: starts an actor, and stops it with the node
    """
    directory, _, engine = store.parts
    fs, rng, tmp, key = environment.fs, environment.rng, directory.tmp_path, settings.key
    nowhere = BackupFolder(fs, None)

    def files() -> ActorRef[Any]:
        return BackupFilesActor.start(runtime, fs, rng, nowhere, tmp, key, "copy")

    about = StoreFacts(store.id, directory.created)
    new_files = partial(supervise, files)
    return SnapshotCopies(
        committer, reads, engine, about, new_files, environment.clock, rng.bytes, committer.history
    )


async def _wait_until_closed(link: Link) -> None:
    """Return once the node has closed its link: it has all that it asked for."""
    with suppress(LinkClosed, TimeoutError):
        async with asyncio.timeout(limits.COPY_SILENT_SECONDS):
            await link.receive()
