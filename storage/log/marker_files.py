"""Small metadata files beside the segments: BEGINS, NEWEST, CLOSED, HISTORY. log.py has their
meaning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from storage.faults import LogDamaged, StoreDamaged, StoreNotSealed
from storage.files.directory import StoreDirectory
from storage.files.disk_reserve import NO_ROOM, Reserve, disk_full, drop_temporary


class MarkerFiles:
    """Metadata files of one log. Each has a `first` sequence and the id of its store."""

    def __init__(self, directory: StoreDirectory, reserve: Reserve) -> None:
        self._directory = directory
        self._fs = directory.fs
        self._folder = directory.log_path
        self._store = directory.store_id.bytes.hex()
        self._reserve = reserve

    def read(self, name: str) -> dict[str, object] | None:
        """Read a file; None if it is missing.

        :raises LogDamaged: the file is not as written, or belongs to another store
        :raises StoreTooNew: a later version wrote it
        :raises StoreTooOld: an earlier version wrote it
        """
        path = f"{self._folder}/{name}"
        if not self._fs.exists(path):
            return None
        try:
            facts = self._directory.read(path)
            first, store = int(str(facts["first"])), facts["store"]
        except (StoreDamaged, StoreNotSealed) as error:
            raise LogDamaged(path, 0, 1, str(error)) from None
        except (KeyError, ValueError):
            raise LogDamaged(path, 0, 1, "it does not say where the log begins") from None
        # Bounds of another store's log would make this one look cut or complete.
        if store != self._store:
            raise LogDamaged(path, 0, first, "the file belongs to another store")
        return facts

    def first(self, name: str) -> int:
        """Return the `first` of a file; without the file 1, where every log begins."""
        facts = self.read(name)
        return int(str(facts["first"])) if facts else 1

    def write(self, name: str, facts: Mapping[str, object], reserved: bool = True) -> None:
        """Replace a file. Durable on return.

        :param reserved: may use the reserve if there is no other room
        :raises DiskFull: the file is unchanged
        :raises OSError: the disk fails
        """
        self._reserve.spend(partial(self._write, f"{self._folder}/{name}", facts), reserved)

    def _write(self, path: str, facts: Mapping[str, object]) -> None:
        try:
            self._directory.write(path, {**facts, "store": self._store})
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            # Before the retry: the partial file takes room that is needed again.
            drop_temporary(self._fs, self._directory.tmp_path, path)
            raise disk_full() from error

    def remove(self, name: str) -> None:
        """Remove a file. Durable on return.

        :raises OSError: the disk fails
        """
        self._fs.unlink(f"{self._folder}/{name}")
        # Without this sync a crash could bring the file back.
        self._fs.sync_directory(self._folder)
