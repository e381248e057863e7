"""State of a sealed store: in memory only while running, and on disk as an encrypted image.

    state/IMAGE     a container like a sealed snapshot (`container.py`), of another form
    tmp/IMAGE.new   an image being written

The image holds every pair of one view, including index entries and the engine's own notes: the
applied sequence, and the history it belongs to. A flush writes a complete new image, and renames it
once it is fsynced, so a crash leaves the old one. Later frames are replayed from the log, as for
any engine. The log is pruned only up to the image's sequence.

A damaged or incomplete image is a state that can't be read (`rebuild_marker.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from protocol import limits
from protocol.environment import File, Room
from protocol.errors import BackupCorrupt, BackupCut, DiskFull
from protocol.version import VERSION
from storage.engine.engine import (
    APPLIED_KEY,
    Batch,
    Engine,
    EngineFailed,
    EngineSnapshot,
    EngineUnreadable,
)
from storage.faults import StoreTooNew
from storage.files.directory import StoreDirectory
from storage.files.disk_reserve import NO_ROOM, drop_temporary
from storage.formats import keys
from storage.formats.container import (
    ContainerReader,
    ContainerWriter,
    StateFacts,
    decode_pairs,
    pack_pairs,
)
from storage.formats.keys import Pair
from storage.formats.sealing import Key

NAME: Final = "IMAGE"
_INNER: Final = "engine"
_ALL: Final = (b"", keys.EVERYTHING[1])
"""Range of all pairs, including the engine's own notes."""
_SLACK_BYTES: Final = 1 << 20
"""Upper bound for an image's bytes beside its pairs."""


class SealedEngine:
    """`Engine` over a volatile one, with an encrypted image on disk.

    :param inner: an empty engine; closed with this one
    :param directory: directory of a sealed store; its image is loaded
    :raises WrongKey: the image is sealed with another key
    :raises EngineUnreadable: the image is damaged
    :raises EngineFailed: the inner engine fails to write
    """

    def __init__(self, inner: Engine, directory: StoreDirectory) -> None:
        assert directory.key is not None, "a state in clear has an engine on the disk"
        self._inner = inner
        self._fs = directory.fs
        self._rng = directory.rng
        self._key: Key = directory.key
        self._folder = directory.state_path
        self._tmp = directory.tmp_path
        self._path = f"{self._folder}/{NAME}"
        self._image_bytes = 0
        """Bytes of the image on disk."""
        self._flushed = 0
        try:
            if self._fs.exists(self._path):
                self._load()
        except BaseException:
            inner.close()
            raise
        # Delegate everything but writes and flushes to the inner engine.
        self.get, self.scan = inner.get, inner.scan
        self.none_in, self.batch = inner.none_in, inner.batch
        self.takes_writes, self.snapshot = inner.takes_writes, inner.snapshot
        self.leave_alone = inner.leave_alone
        self.stored_bytes, self.memory_bytes = inner.stored_bytes, inner.memory_bytes

    def _load(self) -> None:
        file = self._fs.open_read(self._path)
        try:
            self._image_bytes = file.size()
            reader = ContainerReader(file, self._key)
            if not reader.header.sealed:  # unauthenticated: it could be forged without the key
                raise BackupCorrupt("the state is not sealed, but the store is", offset=0)
            facts = reader.facts(StateFacts)
            for pairs in _pairs(reader):
                # The sequence follows with the last batch: a part of an image is no state.
                self._put(pairs, 0)
        except (BackupCut, BackupCorrupt, StoreTooNew) as problem:
            raise EngineUnreadable(f"the state in {self._path}: {problem}") from problem
        finally:
            file.close()
        self._put([], facts.applied)
        self._flushed = facts.applied

    def _put(self, pairs: list[Pair], applied: int) -> None:
        batch = self._inner.batch()
        for key, value in pairs:
            batch.put(key, value)
        self._inner.write(batch, applied)

    @property
    def applied(self) -> int:
        return self._inner.applied

    def write(self, batch: Batch, applied: int) -> None:
        # In the batch: each view then names the sequence of its own contents.
        batch.put(APPLIED_KEY, applied.to_bytes(8, "big"))
        self._inner.write(batch, applied)

    # --- flushes --------------------------------------------------------------------------------

    def flush(self, room: Room | None = None) -> None:
        if self.applied == self._flushed:
            return
        # The old image stays until the rename, so there must be room for both.
        if room is not None and room.bytes < self.flush_bytes() + _SLACK_BYTES:
            raise DiskFull("no room left on the disk for the sealed state")
        view = self._inner.snapshot()
        try:
            self._write_image(view)
        except OSError as error:
            drop_temporary(self._fs, self._tmp, self._path)
            if error.errno in NO_ROOM:
                raise DiskFull("no room left on the disk for the sealed state") from error
            raise EngineFailed(f"the sealed state can't be written: {error}") from error
        finally:
            view.close()

    def _write_image(self, view: EngineSnapshot) -> None:
        # Read through the view's scans only: another thread writes meanwhile.
        applied = _standing(view)
        temporary = f"{self._tmp}/{NAME}.new"
        file = self._fs.open(temporary, create=True)
        try:
            file.truncate(0)
            size = self._write_pairs(view, applied, file)
            file.sync()
        finally:
            file.close()
        self._fs.rename(temporary, self._path)
        self._fs.sync_directory(self._folder)
        self._image_bytes, self._flushed = size, applied

    def _write_pairs(self, view: EngineSnapshot, applied: int, file: File) -> int:
        """Write all pairs of a view. Return the bytes of the image."""
        synced = pairs = 0
        writer = ContainerWriter(StateFacts(VERSION, applied), file.append, self._rng, self._key)
        for some in view.scan(*_ALL):
            writer.add(pack_pairs(some))
            pairs += len(some)
            # In parts: the log's fsync on the same disk waits for dirty pages.
            if writer.size - synced >= limits.BACKUP_SYNC_BYTES:
                file.sync()
                synced = writer.size
        writer.end(pairs, 0, applied)
        return writer.size

    def flush_bytes(self) -> int:
        """Return the approximate bytes that a flush writes: the whole state."""
        return max(self._image_bytes, self._inner.stored_bytes())

    def flushed_sequence(self) -> int:
        return self._flushed

    def unflushed_bytes(self) -> int:
        return 0  # a full disk only delays the next image, and leaves the old one intact

    def holds(self, count: int) -> bool:
        return True

    def checkpoint(self, path: str) -> None:
        raise NotImplementedError("the state in memory has no files to copy")

    def close(self) -> None:
        try:
            self.flush()
        except DiskFull as refusal:
            # Nothing is lost: the next start replays the log on top of the old image.
            raise EngineFailed(refusal.message) from refusal
        finally:
            self._inner.close()


def open_state(
    directory: StoreDirectory,
    open_on_disk: Callable[[str], Engine],
    open_in_memory: Callable[[str], Engine],
) -> Engine:
    """Open the state of a store; that of a sealed store is never on disk in clear.

    :param open_on_disk: opens the engine in a directory
    :param open_in_memory: opens an empty engine; its argument is a directory for settings files
    :raises WrongKey, EngineFailed: as `SealedEngine`
    """
    if directory.key is None:
        return open_on_disk(directory.state_path)
    return SealedEngine(open_in_memory(f"{directory.tmp_path}/{_INNER}"), directory)


def _standing(view: EngineSnapshot) -> int:
    """Return the applied sequence that is noted in a view."""
    for pairs in view.scan(APPLIED_KEY, APPLIED_KEY + b"\0"):
        return int.from_bytes(pairs[0][1], "big")
    return 0


def _pairs(reader: ContainerReader) -> Iterator[list[Pair]]:
    """Yield the pairs of an image, about one chunk at a time.

    Exhaustion proves that all pairs were present.

    :raises BackupCut, BackupCorrupt: the image is not as sealed
    """
    rest, count = b"", 0
    for chunk in reader.chunks():
        data = rest + chunk
        found, at, _ = decode_pairs(data)
        # A pair may continue in the next chunk.
        rest = data[at:]
        count += len(found)
        yield found
    assert reader.end is not None, "a stream ends with the file's end"
    if rest or reader.end.items != count:
        raise BackupCorrupt(
            "the end record does not match the data before it", offset=reader.offset
        )
