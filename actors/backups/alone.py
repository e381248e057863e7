"""Offline backups: a command backs up a store that only its process has open, without an actor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256

from actors.node import Node
from protocol import limits
from protocol.environment import File
from protocol.errors import BadRequest, Failed
from protocol.version import VERSION
from storage.backups import snapshot_file
from storage.backups.log_file import LogBackupWriter
from storage.backups.verify import verify
from storage.faults import LogDamaged
from storage.formats.container import BackupFileForm, LogFacts, SnapshotFacts, WrittenBackup
from storage.formats.sealing import Key
from storage.log.segments import pruned

Tick = Callable[[int, int | None], None]
"""Progress callback: bytes done, and bytes in all; None: the total is not known yet."""


class BackupInProgress:
    """Backup being written to a file.

    :param write: receives the bytes of the file
    :param key: key that seals it; None: it is written in clear
    """

    def __init__(
        self, node: Node, write: Callable[[bytes], None], tick: Tick, key: Key | None = None
    ) -> None:
        self._node = node
        self._sink = write
        self._tick = tick
        self._key = key
        self._bytes = 0
        self._taken_us = node.environment.clock.wall_us()

    async def snapshot(self) -> WrittenBackup:
        """Write a snapshot of the whole store."""
        node, directory = self._node, self._node.store.parts.directory
        moment = node.committer.ledger.moment()
        with moment.begin_transaction() as view:
            moment.end()  # the snapshot stays open as long as its only view
            at = await node.reads.position_at(view.sequence)
            facts = SnapshotFacts(VERSION, node.store.id, directory.created, self._taken_us, at)
            snapshot = snapshot_file.SnapshotWriter(
                facts, self._write, node.environment.rng, self._key
            )
            for piece in snapshot_file.pieces(view):
                snapshot.add(piece)
                await self._step()
            return self._report_size(snapshot.end())

    async def log(self, first: int) -> WrittenBackup:
        """Write the log from a sequence on.

        :raises LogPruned: the log begins later
        :raises BadRequest: the log ends before that sequence
        :raises Failed: the log is damaged
        """
        node, directory = self._node, self._node.store.parts.directory
        upto = node.committer.commit_index
        if first > upto + 1:
            raise BadRequest(
                f"the log ends at sequence {upto}: {first} does not exist yet", ends=upto
            )
        if first < node.reads.begins:
            raise pruned(first, node.reads.begins)
        try:
            before = await node.reads.position_at(first - 1)
            created = directory.created
            facts = LogFacts(VERSION, node.store.id, created, self._taken_us, before, upto)
            copy = LogBackupWriter(facts, self._write, node.environment.rng, self._key)
            after = first - 1
            while after < upto:
                frames = await node.reads.frames(after, upto, limits.MIB)
                copy.add(frames)
                after = frames[-1].sequence
                await self._step()
        except LogDamaged as damage:
            raise Failed(str(damage), sequence=damage.sequence) from damage
        return self._report_size(copy.end())

    def _report_size(self, written: WrittenBackup) -> WrittenBackup:
        self._tick(written.size, written.size)
        return written

    def _write(self, data: bytes) -> None:
        self._sink(data)
        self._bytes += len(data)

    async def _step(self) -> None:
        self._tick(self._bytes, None)
        await asyncio.sleep(0)  # yield to the replies of the log's actor


def read_back(file: File, written: WrittenBackup, tick: Tick, key: Key | None = None) -> None:
    """Verify a written file by reading it back. :raises Failed: its content differs"""
    why: str | None = None
    if written.form is BackupFileForm.SCRIPT:
        digest = _digest(file, written.size, tick)
    else:
        found = verify(file, key, lambda done: tick(done, written.size))
        digest, why = found.sha256, found.problem
    if digest != written.sha256:
        why = why or "its checksum differs"
        raise Failed(f"the backup does not read back as it was written: {why}")


def _digest(file: File, size: int, tick: Tick) -> bytes:
    digest, at = sha256(), 0
    while data := file.read(at, limits.MIB):
        digest.update(data)
        at += len(data)
        tick(at, size)
    return digest.digest()
