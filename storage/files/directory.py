"""Data directory: its layout, its lock, and the rules for creating, restoring and copying a store.

    <data_dir>/
      LOCK      process id of the process that has the store open, or had it last; informational
      STORE     store id, format, creation time
      DAMAGED   reason for a rebuild of the state, while one is needed (`rebuild_marker.py`)
      NODE      this node's own settings (`node_file.py`); no backup contains it
      PEER      certificate and key shown to other nodes (`peer_file.py`); no backup contains it
      CLUSTER   this node's cluster metadata (`cluster_file.py`), once it is in a cluster
      RESTORING while a backup is restored into it: see below
      JOINING   while a store of other nodes is copied into it (`joining_file.py`)
      FIRST-PASSWORD  generated password of the first owner (`actors/first_password.py`)
      log/      segments (`storage/log/log.py`)
      state/    the state engine's files
      tmp/      files to be renamed into place; emptied at open

`storage/formats/__init__.py` lists the module with the byte layout of each file.

The lock is a flock on the directory itself, taken before anything in it is changed. The file LOCK
has no part in it, so removing or replacing that file lets no second process in.

The first start creates, in this order and each step durable before the next: the directory, `tmp/`
`log/` `state/`, the first and empty segment of the log, STORE. Therefore

- STORE exists: the store is complete. An empty `log/` is then a loss, never a first start.
- No STORE, and only results of the steps above: an interrupted first start. It is repeated from the
  beginning.
- No STORE, and anything else: foreign files, or a store that lost its STORE. Nothing is touched.

A restore creates a store from a backup. RESTORING is durable before any other file of it exists,
and is removed once all of them are durable. A directory with RESTORING is not a store, whatever
else it holds: only another restore may open it, to start over or to continue. The same holds for
JOINING and the process that copies a store into a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from protocol.environment import Clock, Fs, Lock, Rng
from protocol.values import instant
from storage.faults import (
    NotJoined,
    NotRestored,
    StoreDamaged,
    StoreForeign,
    StoreLocked,
    StoreMissing,
    StoreNotSealed,
    StoreOfAnotherUser,
    StoreOpenToOthers,
    StoreUnfinished,
)
from storage.files.metadata_file import (
    TEMPORARY,
    FileEncryption,
    read_facts,
    replace_file,
    write_facts,
)
from storage.formats.frames import (
    MAGIC,
    SALT_BYTES,
    SEALED_FORMAT,
    SEALED_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    begin,
)
from storage.formats.positions import RestoreOrigin
from storage.formats.sealing import Key

SEGMENT_SUFFIX: Final = ".storelog"
FIRST_EPOCH: Final = 1
_EMPTY_STORE: Final = frozenset({"LOCK", "log", "state", "tmp", "lost+found"})
"""Names allowed in a directory that is not a store yet; `lost+found` belongs to any ext4 mount
point."""
_RESTORING: Final = "RESTORING"
_OF_A_RESTORE: Final = _EMPTY_STORE | {_RESTORING, "STORE", "NODE", "PEER", "DAMAGED"}
"""Names that an interrupted restore may leave."""
JOINING: Final = "JOINING"
COPIED: Final = "COPY"
"""Name in `tmp` of the snapshot being copied, possibly partial."""
_OF_A_COPY: Final = frozenset({"log", "state", "STORE", "DAMAGED"})
"""Names that a copy replaces. All others belong to the node and stay."""
_SEALED_BEGINS: Final = MAGIC + SEALED_FORMAT.to_bytes(2, "big")
"""First bytes of a sealed segment."""


def segment_name(first: int) -> str:
    """Return the file name of the segment whose first sequence is `first`."""
    return f"{first:020d}{SEGMENT_SUFFIX}"


_BEGUN: Final = frozenset(
    f"{name}{TEMPORARY}" for name in (segment_name(1), "STORE", _RESTORING, JOINING, "NODE", "PEER")
)
"""Names that `tmp` may hold in a directory that is not a store yet."""


def new_uuid(rng: Rng) -> UUID:
    """Return a random UUID (version 4)."""
    return UUID(bytes=rng.bytes(16), version=4)


class StoreDirectory:
    """An open data directory, locked by this process until `close`."""

    def __init__(
        self, path: str, fs: Fs, clock: Clock, rng: Rng, lock: Lock, key: Key | None = None
    ) -> None:
        """Use `open`."""
        self.path = path
        self.fs = fs
        self.clock = clock
        self.rng = rng
        self.key = key
        """Encryption key of everything in it; None: the store is in clear."""
        self.log_path = f"{path}/log"
        self.state_path = f"{path}/state"
        self.tmp_path = f"{path}/tmp"
        self.store_id = UUID(int=0)
        self.created = ""
        self.origin: RestoreOrigin | None = None
        """Source of the restore that made this store; None: it was not restored."""
        self.was_open_to_others = False
        """True if other users had access when it was opened; opening removed it."""
        self._store_file = f"{path}/STORE"
        self._marker = f"{path}/{_RESTORING}"
        self._joining = f"{path}/{JOINING}"
        self.peer_file = f"{path}/PEER"
        self._lock = lock

    @classmethod
    def open(
        cls,
        path: str,
        fs: Fs,
        clock: Clock,
        rng: Rng,
        create: bool = False,
        key: Key | None = None,
    ) -> StoreDirectory:
        """Lock and open the directory.

        :param create: create a store if there is none
        :param key: encryption key, the same from the first start on; None: the store is in clear
        :raises WrongKey: it is sealed with another key
        :raises StoreNotSealed: it is not sealed, and a key was given
        :raises StoreMissing: there is no store, and `create` is False
        :raises StoreForeign: the directory holds something else
        :raises StoreUnfinished: a restore or copy into it was interrupted
        :raises StoreTooNew: a later version wrote it
        :raises StoreDamaged: STORE is unreadable
        :raises StoreLocked: another process has it open. Nothing was changed
        :raises StoreOfAnotherUser: it belongs to another user. Nothing was changed
        :raises StoreOpenToOthers: other users have access, and that can't be changed
        :raises OSError: an operation on the disk failed
        """
        path = path.rstrip("/") or "/"
        lock = _locked(fs, path, partial(_refuse_unless_ours, fs, path, create, key))
        return cls._settled(cls(path, fs, clock, rng, lock, key), cls._prepare)

    @classmethod
    def begin_restore(
        cls, path: str, fs: Fs, clock: Clock, rng: Rng, key: Key | None = None
    ) -> StoreDirectory:
        """Lock a directory to restore a store into: an empty one, or one with the remains of an
        interrupted restore, which are removed. It is not a store until `found` and `end_restore`;
        its id is new.

        :param key: encryption key of the new store; None: in clear
        :raises NotRestored: it holds anything else. Nothing was changed
        :raises StoreLocked, StoreOfAnotherUser, StoreOpenToOthers, OSError: as `open`
        """
        path = path.rstrip("/") or "/"
        lock = _locked(fs, path, partial(refuse_unless_empty, fs, path))
        return cls._settled(cls(path, fs, clock, rng, lock, key), cls._empty)

    @classmethod
    def begin_script_restore(
        cls, path: str, fs: Fs, clock: Clock, rng: Rng, key: Key | None = None
    ) -> StoreDirectory:
        """Lock a directory as `begin_restore` does, and create an empty store in it to be filled.
        It is not a store until `end_restore`. Raises as `begin_restore`."""
        directory = cls.begin_restore(path, fs, clock, rng, key)
        return cls._settled(directory, cls._prepare)

    @classmethod
    def reopen_restored(
        cls, path: str, fs: Fs, clock: Clock, rng: Rng, key: Key | None = None
    ) -> StoreDirectory:
        """Open a restored store to restore more on top of it, even if such a restore was
        interrupted.

        :param key: as `open`
        :raises NotRestored: there is no such store
        :raises WrongKey, StoreNotSealed, StoreTooNew, StoreDamaged: as `open`
        :raises StoreLocked, StoreOfAnotherUser, StoreOpenToOthers, OSError: as `open`
        """
        path = path.rstrip("/") or "/"
        lock = _locked(fs, path, partial(_refuse_unless_restored, fs, path, key))
        return cls._settled(cls(path, fs, clock, rng, lock, key), cls._prepare)

    @classmethod
    def begin_copy(
        cls, path: str, fs: Fs, clock: Clock, rng: Rng, key: Key | None = None
    ) -> StoreDirectory:
        """Lock a directory to copy a store of other nodes into: an empty one, or one with JOINING.
        Its content stays until `clear_for_copy`.

        :raises NotJoined: it holds anything else. Nothing was changed
        :raises StoreLocked, StoreOfAnotherUser, StoreOpenToOthers, OSError: as `open`
        """
        path = path.rstrip("/") or "/"
        lock = _locked(fs, path, partial(refuse_unless_joins, fs, path))
        return cls._settled(cls(path, fs, clock, rng, lock, key), cls._prepare_copy)

    @staticmethod
    def _settled(
        directory: StoreDirectory, settle: Callable[[StoreDirectory], None]
    ) -> StoreDirectory:
        try:
            settle(directory)
        except BaseException:
            # The flock outlives this object: a retry in the same process would find it held.
            directory.close()
            raise
        return directory

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    # --- metadata files -------------------------------------------------------------------------

    def write(self, path: str, facts: Mapping[str, object]) -> None:
        """Replace a metadata file, sealed if the store is. :raises OSError: the disk refused"""
        seal = None if self.key is None else FileEncryption(self.key, self.rng, self._bound(path))
        write_facts(self.fs, self.tmp_path, path, facts, seal)

    def read(self, path: str) -> dict[str, object]:
        """Read a metadata file. Raises as `metadata_file.read_facts`."""
        return read_facts(self.fs, path, self.key, self._bound(path))

    def _bound(self, path: str) -> bytes:
        """Return the store id that a sealed file is bound to, or b"". STORE defines the id. The
        markers of a restore and a copy, and the certificate of a joining node, exist before it."""
        unbound = (self._store_file, self._marker, self._joining, self.peer_file)
        return b"" if path in unbound else self.store_id.bytes

    # --- restoring ------------------------------------------------------------------------------

    @property
    def is_restoring(self) -> bool:
        """True if a restore was started and has not finished."""
        return self.fs.exists(self._marker)

    def mark_restoring(self) -> None:
        """Mark the store as being restored on top of. It is not a store until `end_restore`."""
        self.write(self._marker, {"onto": True})

    def found(self, origin: RestoreOrigin) -> None:
        """Write STORE: make this a store, or update the origin of one; durable on return.

        :raises OSError: the disk refused
        """
        self.origin = origin
        facts = {"store": str(self.store_id), "created": self.created, "from": origin.facts()}
        self.write(self._store_file, facts)

    def end_restore(self) -> None:
        """Finish a restore whose data is durable: from now on the store may be served.

        :raises OSError: the disk refused
        """
        self.fs.unlink(self._marker)
        self.fs.sync_directory(self.path)

    def _empty(self) -> None:
        self._close_to_others()
        self.fs.sync_directory(_parent(self.path))
        if not self.fs.exists(self.tmp_path):
            self.fs.make_directory(self.tmp_path)
        self._empty_tmp()
        # Durable before the first removal: from here on a crash leaves no half store.
        self.write(self._marker, {"onto": False})
        for name in self.fs.names(self.path):
            if name not in (_RESTORING, "LOCK", "lost+found"):
                self._remove(f"{self.path}/{name}")
        for path in (self.tmp_path, self.log_path, self.state_path):
            self.fs.make_directory(path)
        self.fs.sync_directory(self.path)
        # A new id, also for a whole restore: failover policy and join tokens of the original
        # name another store, so they have no effect here.
        self.store_id = new_uuid(self.rng)
        self.created = instant(self.clock.wall_us()).isoformat()

    # --- copies of other nodes' stores ----------------------------------------------------------

    def _prepare_copy(self) -> None:
        self._close_to_others()
        self.fs.sync_directory(_parent(self.path))
        if not self.fs.exists(self.tmp_path):
            self.fs.make_directory(self.tmp_path)
        for name in self.fs.names(self.tmp_path):
            # A partial snapshot stays, since its download continues behind the synced bytes.
            if name != COPIED:
                self._remove(f"{self.tmp_path}/{name}")
        self.fs.sync_directory(self.path)

    def read_joining(self, *, in_clear: bool = False) -> dict[str, object] | None:
        """Read JOINING; None: it does not exist. Raises as `metadata_file.read_facts`."""
        if not self.fs.exists(self._joining):
            return None
        return read_facts(self.fs, self._joining, None if in_clear else self.key)

    def seal_joining(self) -> None:
        """Seal JOINING and the certificate, which were begun without the key; durable on return.

        :raises WrongKey, StoreDamaged, StoreTooNew: one of them can't be read
        :raises OSError: the disk refused; a retry continues
        """
        # JOINING last: while it is in clear, a restart comes here again and seals PEER too.
        for path in (self.peer_file, self._joining):
            if self.fs.exists(path):
                try:
                    self.read(path)
                except StoreNotSealed:
                    self.write(path, read_facts(self.fs, path))

    def mark_joining(self, facts: Mapping[str, object]) -> None:
        """Write JOINING: this is not a store until `end_copy`; durable on return.

        :raises OSError: the disk refused
        """
        self.write(self._joining, facts)

    def give_up_copy(self) -> None:
        """Make the directory empty again, because no cluster member knows its node; durable on
        return.

        :raises OSError: the disk refused; a retry continues
        """
        for path in (self.peer_file, self._joining):  # PEER must never exist without JOINING
            if self.fs.exists(path):
                self.fs.unlink(path)
                self.fs.sync_directory(self.path)

    def clear_for_copy(self, store_id: UUID) -> None:
        """Remove the present store, or the remains of a copy, to make room for a new copy.

        :raises OSError: the disk refused
        """
        # A crash between the removals leaves JOINING, so the remains never pass for a store.
        for name in _OF_A_COPY.intersection(self.fs.names(self.path)):
            self._remove(f"{self.path}/{name}")
        for path in (self.log_path, self.state_path):
            self.fs.make_directory(path)
        self.fs.sync_directory(self.path)
        self.store_id = store_id

    def copied(self, created: str) -> None:
        """Write STORE for the copied store; durable on return.

        :param created: creation time of the original store, ISO 8601
        :raises OSError: the disk refused
        """
        self.created = created
        self.write(self._store_file, {"store": str(self.store_id), "created": created})

    def end_copy(self) -> None:
        """Finish a copy whose data is durable: from now on the store may be served.

        :raises OSError: the disk refused
        """
        self.fs.unlink(self._joining)
        self.fs.sync_directory(self.path)
        # Only to free space: if a crash prevents it, the next open empties `tmp`.
        self._remove(f"{self.tmp_path}/{COPIED}")

    # --------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._close_to_others()
        for path in (self.tmp_path, self.log_path, self.state_path):
            if not self.fs.exists(path):
                self.fs.make_directory(path)
        # Always: a killed process may have left names that are visible but not yet durable.
        self.fs.sync_directory(self.path)
        self._empty_tmp()
        if not self.fs.exists(self._store_file):
            self._create()
        facts = self.read(self._store_file)
        try:
            self.store_id = UUID(str(facts["store"]))
            self.created = str(facts["created"])
            self.origin = origin_in(facts)
        except (KeyError, ValueError):
            raise StoreDamaged(
                f"{self._store_file} is damaged: it holds no valid store id"
            ) from None

    def _close_to_others(self) -> None:
        # A careless copy may have left the files accessible too; mode 0700 on the directory
        # suffices, since it keeps other users from reaching them.
        try:
            self.was_open_to_others = self.fs.close_to_others(self.path)
        except PermissionError:
            raise StoreOpenToOthers(
                f"{self.path} is open to other users and has another owner: run chmod 700 on it"
                " as its owner"
            ) from None

    def _empty_tmp(self) -> None:
        for name in self.fs.names(self.tmp_path):
            self._remove(f"{self.tmp_path}/{name}")

    def _remove(self, path: str) -> None:
        if self.fs.is_directory(path):
            self.fs.remove_tree(path)
        else:
            self.fs.unlink(path)

    def _create(self) -> None:
        # The name of the directory may not be durable yet: a killed start may have created it.
        self.fs.sync_directory(_parent(self.path))
        store_id = new_uuid(self.rng)
        now_us = self.clock.wall_us()
        salt = self.rng.bytes(SALT_BYTES)
        plain = SegmentHeader(store_id.bytes, salt, 1, FIRST_EPOCH, now_us)
        header, _ = begin(plain, self.key, self.rng)
        first = f"{self.log_path}/{segment_name(1)}"
        replace_file(self.fs, self.tmp_path, first, header.encode())
        facts = {"store": str(store_id), "created": instant(now_us).isoformat()}
        # Last: the presence of STORE says that everything else is durable.
        self.write(self._store_file, facts)


def _locked(fs: Fs, path: str, look: Callable[[], object]) -> Lock:
    """Lock a directory, creating it if needed.

    :param look: read-only check that raises for an unsuitable directory
    :raises StoreLocked: another process has it open
    :raises StoreOfAnotherUser: it belongs to another user
    """
    _refuse_of_another_user(fs, path)
    look()
    _make_directories(fs, path)
    lock = fs.lock(path, f"{path}/LOCK")
    if lock is None:
        raise StoreLocked(f"{path} is open in another process{_owner(fs, path)}")
    try:
        look()  # again: another first start may have run before this process got the lock
    except BaseException:
        lock.release()
        raise
    return lock


def _refuse_of_another_user(fs: Fs, path: str) -> None:
    """Check that an existing directory belongs to the user of this process."""
    # Root could open it. The files of the state that it leaves there can't be read by the owner.
    owner = fs.other_owner(path) if fs.is_directory(path) else None
    if owner is not None:
        raise StoreOfAnotherUser(
            f"{path} belongs to the user {owner}: run this as that user (runuser -u {owner} --"
            " storenode …), or change the owner of the directory and all in it"
        )


def _refuse_unless_ours(fs: Fs, path: str, create: bool, key: Key | None) -> None:
    """Check, without changing anything, that the directory holds a store or may become one."""
    if not fs.exists(path):
        if create:
            return
        raise StoreMissing(f"{path} does not exist")
    if not fs.is_directory(path):
        raise StoreForeign(f"{path} is not a directory")
    names = fs.names(path)
    # Both markers outrank STORE: a restore or a copy writes STORE before it ends.
    if _RESTORING in names:
        raise StoreUnfinished(f"{path} holds an unfinished restore: run --restore again")
    if JOINING in names:
        raise StoreUnfinished(
            f"{path} holds an unfinished copy of a store: serve it, or run --join, again"
        )
    if "STORE" in names:
        read_facts(fs, f"{path}/STORE", key)
        return
    others = [name for name in names if name not in _EMPTY_STORE]
    if others:
        raise StoreForeign(f"{path} is not a store and holds {others[0]!r}: nothing was changed")
    if not _only_begun(fs, path):
        if fs.exists(f"{path}/STORE"):
            return  # another process completed a first start meanwhile; `_locked` checks the
            # result again once it holds the lock
        raise StoreForeign(
            f"{path} holds data but no file STORE: nothing was changed. To move a store, copy"
            " STORE together with log/"
        )
    if not create:
        raise StoreMissing(f"{path} holds no store")


def refuse_unless_empty(fs: Fs, path: str) -> None:
    """Check, without changing anything, that a store can be restored into a directory.

    :raises NotRestored: it holds something
    """
    if not fs.exists(path):
        return
    if not fs.is_directory(path):
        raise NotRestored(f"{path} is not a directory")
    names = fs.names(path)
    unfinished = _RESTORING in names
    if "STORE" in names and not unfinished:
        raise NotRestored(f"{path} holds a store: restore a backup into an empty directory")
    mays = _OF_A_RESTORE if unfinished else _EMPTY_STORE
    others = [name for name in names if name not in mays]
    if others or not (unfinished or _only_begun(fs, path)):
        what = f"holds {others[0]!r}" if others else "holds data"
        raise NotRestored(f"{path} {what}: restore a backup into an empty directory")


def refuse_unless_joins(fs: Fs, path: str) -> None:
    """Check, without changing anything, that a store can be copied into a directory.

    :raises NotJoined: it holds something
    """
    if not fs.exists(path):
        return
    if not fs.is_directory(path):
        raise NotJoined(f"{path} is not a directory")
    names = fs.names(path)
    if JOINING in names:
        return
    others = [name for name in names if name not in _EMPTY_STORE]
    if others or not _only_begun(fs, path):
        what = "a store" if "STORE" in names else repr(others[0]) if others else "data"
        raise NotJoined(f"{path} holds {what}: join with an empty directory")


def is_joining(fs: Fs, path: str) -> bool:
    """Return True if a store is being copied into a directory, or will be."""
    return fs.exists(f"{path}/{JOINING}")


def _refuse_unless_restored(fs: Fs, path: str, key: Key | None) -> None:
    if restored_from(fs, path, key) is None:
        raise NotRestored(f"{path} holds no restored store")


def restored_from(fs: Fs, path: str, key: Key | None = None) -> RestoreOrigin | None:
    """Return the origin of a restored store if more can be restored on top of it, judging by its
    files. Changes nothing.

    :param key: encryption key of the store; None: it is in clear
    :raises WrongKey, StoreNotSealed, StoreTooNew, StoreDamaged: its files can't be read
    """
    if not fs.is_directory(path) or not fs.exists(f"{path}/STORE"):
        return None
    marker = f"{path}/{_RESTORING}"
    # `onto`: the restore was begun on top of a complete store, so another may continue it.
    if fs.exists(marker) and not read_facts(fs, marker, key)["onto"]:
        return None
    try:
        return origin_in(read_facts(fs, f"{path}/STORE", key))
    except (KeyError, ValueError):
        raise StoreDamaged(f"{path}/STORE is damaged: it holds no valid store id") from None


def origin_in(facts: Mapping[str, object]) -> RestoreOrigin | None:
    """Decode the origin of a restored store from the content of STORE; None: it was not restored.

    :raises KeyError, ValueError: the content is invalid
    """
    found = facts.get("from")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ValueError("no origin")
    return RestoreOrigin.of(found)


def _only_begun(fs: Fs, path: str) -> bool:
    """Return True if `log`, `state` and `tmp` hold no more than an interrupted first start leaves
    before STORE, or a restore before RESTORING."""
    state, log, tmp = f"{path}/state", f"{path}/log", f"{path}/tmp"
    if fs.exists(state) and fs.names(state):
        return False
    if fs.exists(tmp) and not _BEGUN.issuperset(fs.names(tmp)):
        return False
    names = fs.names(log) if fs.exists(log) else []
    if not names:
        return True
    if names != [segment_name(1)]:
        return False
    file = fs.open_read(f"{log}/{names[0]}")
    try:
        sealed = file.read(0, len(_SEALED_BEGINS)) == _SEALED_BEGINS
        # Any byte behind the header may belong to a frame, so the directory has lost its STORE.
        return file.size() <= (SEALED_HEADER_BYTES if sealed else SEGMENT_HEADER_BYTES)
    finally:
        file.close()


def _make_directories(fs: Fs, path: str) -> None:
    """Create `path` and its missing parents, each made durable by an fsync of its parent."""
    if fs.exists(path):
        return
    parent = _parent(path)
    _make_directories(fs, parent)
    try:
        fs.make_directory(path)
    except FileExistsError:
        return  # a concurrent first start created it; the lock decides between the two
    fs.sync_directory(parent)


def _parent(path: str) -> str:
    above, slash, _ = path.rpartition("/")
    return above or slash or "."


def _owner(fs: Fs, path: str) -> str:
    try:
        file = fs.open_read(f"{path}/LOCK")
        try:
            pid = file.read(0, 32).partition(b"\n")[0].decode("ascii", "replace")
        finally:
            file.close()
    except OSError:
        return ""
    return f" (process {pid})" if pid else ""
