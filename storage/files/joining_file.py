"""The file JOINING: progress of a directory that becomes a copy of a store of other nodes.

The steps, each durable before the next:

    JOINING, with the node's own id · the join token is redeemed · JOINING names the store ·
    tmp/COPY, a snapshot, part by part · it is verified · the old content is removed · state · log
    with its HISTORY · NODE · CLUSTER · STORE · JOINING is removed

While JOINING exists the directory is not a store and is not served. A restarted process finds its
progress there: it continues with the parts, and builds the store again from them.

If a follower can no longer catch up from its leader's log, its directory is marked in the same way
(`request_copy`), once it has left the in-sync replicas. Its data stays until the copy is verified;
its id, roles and certificate stay for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from uuid import UUID

from protocol.environment import Clock, Fs, Rng
from protocol.errors import WrongKey
from storage.faults import StoreDamaged, StoreNotSealed
from storage.files.directory import StoreDirectory, new_uuid
from storage.formats.sealing import Key

Told = tuple[int, int, bytes]
"""End of an epoch (`positions.EpochEnd`): epoch, sequence of its last frame, its digest."""


@dataclass(frozen=True, slots=True)
class CopySource:
    """A node to copy the store from."""

    node: str
    """Node id; empty: not known yet."""
    addresses: tuple[str, ...]
    """Addresses `host:port` for other nodes."""
    pins: tuple[str, ...]
    """Certificate fingerprints, one of which it presents."""


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Progress of downloading a snapshot."""

    id: bytes
    """Id given by the source."""
    size: int
    """Size of the whole snapshot in bytes."""
    history: tuple[Told, ...]
    """Epochs of the source's log, up to the commit of the snapshot."""
    synced: int = 0
    """Bytes already synced to disk."""

    def facts(self) -> dict[str, object]:
        """Encode for JOINING."""
        history = [[epoch, last, digest.hex()] for epoch, last, digest in self.history]
        return {
            "id": self.id.hex(),
            "size": self.size,
            "history": history,
            "synced": self.synced,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Decode from JOINING. :raises KeyError, TypeError, ValueError: the content is invalid"""
        history = (
            (int(epoch), int(last), bytes.fromhex(digest))
            for epoch, last, digest in facts["history"]
        )
        size, synced = int(facts["size"]), int(facts["synced"])
        return cls(bytes.fromhex(facts["id"]), size, tuple(history), synced)


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Progress of a copy."""

    node: UUID
    """Id of this node, whatever store the directory holds."""
    store: UUID | None = None
    """Id of the copied store; None: unknown until the token is redeemed."""
    sources: tuple[CopySource, ...] = ()
    parts: DownloadProgress | None = None

    def facts(self) -> dict[str, object]:
        """Encode for JOINING."""
        parts = self.parts
        return {
            "node": str(self.node),
            "store": None if self.store is None else str(self.store),
            "sources": [[one.node, [*one.addresses], [*one.pins]] for one in self.sources],
            "parts": None if parts is None else parts.facts(),
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Decode from JOINING. :raises KeyError, TypeError, ValueError: the content is invalid"""
        store, parts = facts["store"], facts["parts"]
        return cls(
            UUID(facts["node"]),
            None if store is None else UUID(store),
            tuple(
                CopySource(str(node), tuple(map(str, addresses)), tuple(map(str, pins)))
                for node, addresses, pins in facts["sources"]
            ),
            None if parts is None else DownloadProgress.of(parts),
        )


class JoiningDirectory:
    """A locked directory that is being made a copy. `close` releases it."""

    def __init__(self, directory: StoreDirectory) -> None:
        self.directory = directory
        self.now = self._found()

    @classmethod
    def lock(
        cls, path: str, fs: Fs, clock: Clock, rng: Rng, key: Key | None = None
    ) -> JoiningDirectory:
        """Lock an empty directory, or one with JOINING. A node in an empty one gets a new id.

        :param key: encryption key of the store; None: it is in clear
        :raises NotJoined, StoreLocked, StoreOpenToOthers, OSError: as `StoreDirectory.begin_copy`
        :raises WrongKey: the copy was begun with another key; nothing was changed
        :raises StoreDamaged, StoreTooNew: JOINING can't be read
        """
        directory = StoreDirectory.begin_copy(path, fs, clock, rng, key)
        try:
            return cls(directory)
        except BaseException:
            directory.close()
            raise

    def _found(self) -> CopyProgress:
        try:
            facts = self.directory.read_joining()
        except StoreNotSealed:
            # A first attempt without a key was refused by a sealed store; this one brings the key.
            # Downloaded data is on the disk in clear, and sealing JOINING would not change that.
            if _has_come(self.directory):
                raise
            self.directory.seal_joining()
            facts = self.directory.read_joining()
        except WrongKey as wrong:
            raise WrongKey(
                f"{wrong.message}. A join continues with the key that it began with. To join with"
                " another key, use an empty directory, and a new join token if the first was"
                " used"
            ) from None
        if facts is None:
            # Durable before the token is redeemed: the token works once, and its row names this id.
            begun = CopyProgress(new_uuid(self.directory.rng))
            self.directory.mark_joining(begun.facts())
            return begun
        found = _read(self.directory.path, facts)
        # Sealed files are bound to the id of the store; STORE, which gives it, may not exist yet.
        if found.store is not None:
            self.directory.store_id = found.store
        return found

    def note(
        self,
        store: UUID,
        sources: Sequence[CopySource] | None = None,
        parts: DownloadProgress | None = None,
    ) -> None:
        """Record the progress; durable on return.

        :param sources: None: unchanged
        :raises OSError: the disk refused; the old record is still there
        """
        kept = self.now.sources if sources is None else tuple(sources)
        now = replace(self.now, store=store, sources=kept, parts=parts)
        # Each write waits for two syncs, so an unchanged record is not written again.
        if now != self.now:
            self.directory.mark_joining(now.facts())
            # Only after the write: a refused one leaves the old progress in force.
            self.now = now
        self.directory.store_id = store

    def give_up(self) -> None:
        """Make the directory empty again, because no token was redeemed and no member knows this
        node. Only `close` may follow.

        :raises OSError: the disk refused
        """
        # Once a token is redeemed, a row names the id in JOINING: without it the row has no node.
        assert self.now.store is None, "a token was redeemed"
        self.directory.give_up_copy()

    def close(self) -> None:
        """Release the directory."""
        self.directory.close()


def request_copy(directory: StoreDirectory, node: UUID, sources: Sequence[CopySource]) -> None:
    """Mark the store in an open directory to be replaced by a copy, which the next start makes.
    Until then it is not a store. The node must have left the in-sync replicas. Durable on return.

    :param node: id of this node
    :param sources: at least one
    :raises OSError: the disk refused
    """
    assert sources, "a copy comes from somebody"
    directory.mark_joining(CopyProgress(node, directory.store_id, tuple(sources)).facts())


def _has_come(directory: StoreDirectory) -> bool:
    """Return True if JOINING, in clear, records downloaded data."""
    found = _read(directory.path, directory.read_joining(in_clear=True) or {})
    return found.parts is not None and found.parts.synced > 0


def _read(path: str, facts: Mapping[str, object]) -> CopyProgress:
    try:
        return CopyProgress.of(facts)
    except (KeyError, TypeError, ValueError):
        raise StoreDamaged(
            f"{path}/JOINING is damaged: it does not name the store to join"
        ) from None
