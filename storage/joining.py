"""The file JOINING: a directory that is to become a copy of a store that other nodes have.

    JOINING, with the node's own id · the join token is redeemed · JOINING says of which store ·
    tmp/COPY, a snapshot, part by part · it is proven · what was there goes · state · log with its
    HISTORY · NODE · CLUSTER · STORE · JOINING goes

each durable before the next. As long as JOINING is there the directory is no store, and nobody
serves it. Whoever goes on finds in it how far it has come: the parts are gone on with, the store is
made anew of them.

A node that its leader can't bring up to date any more has its directory marked the same way
(`note_anew`), once it is out of the set. What it holds stays until its copy is proven; its id,
roles and certificate stay for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from uuid import UUID

from protocol.doors import Clock, Fs, Rng
from protocol.errors import WrongKey
from storage.directory import StoreDirectory, new_uuid
from storage.faults import StoreDamaged, StoreNotSealed
from storage.sealing import Key

Told = tuple[int, int, bytes]
"""A reign: its epoch, the last frame of it, and that frame's digest."""


@dataclass(frozen=True, slots=True)
class Source:
    """A node that the store may be copied from."""

    node: str
    """Its id; empty: not known yet."""
    addresses: tuple[str, ...]
    """`host:port`, where other nodes reach it."""
    pins: tuple[str, ...]
    """The fingerprints of which it shows one."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A snapshot on its way."""

    id: bytes
    """What its giver calls it."""
    size: int
    """Bytes of the whole."""
    history: tuple[Told, ...]
    """The reigns of its giver's log, up to the commit that it shows the store at."""
    synced: int = 0
    """So many of its bytes are on the disk."""

    def facts(self) -> dict[str, object]:
        """As the file has it."""
        history = [[epoch, last, digest.hex()] for epoch, last, digest in self.history]
        return {
            "id": self.id.hex(),
            "size": self.size,
            "history": history,
            "synced": self.synced,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """What the file says. :raises KeyError, TypeError, ValueError: it says something else"""
        history = (
            (int(epoch), int(last), bytes.fromhex(digest))
            for epoch, last, digest in facts["history"]
        )
        size, synced = int(facts["size"]), int(facts["synced"])
        return cls(bytes.fromhex(facts["id"]), size, tuple(history), synced)


@dataclass(frozen=True, slots=True)
class Joining:
    """How far a directory has come."""

    node: UUID
    """The id of its node, whatever store it holds."""
    store: UUID | None = None
    """The store that is copied; None: it is not known, since no token was redeemed yet."""
    sources: tuple[Source, ...] = ()
    parts: Parts | None = None

    def facts(self) -> dict[str, object]:
        """As the file has it."""
        parts = self.parts
        return {
            "node": str(self.node),
            "store": None if self.store is None else str(self.store),
            "sources": [[one.node, [*one.addresses], [*one.pins]] for one in self.sources],
            "parts": None if parts is None else parts.facts(),
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """What the file says. :raises KeyError, TypeError, ValueError: it says something else"""
        store, parts = facts["store"], facts["parts"]
        return cls(
            UUID(facts["node"]),
            None if store is None else UUID(store),
            tuple(
                Source(str(node), tuple(map(str, addresses)), tuple(map(str, pins)))
                for node, addresses, pins in facts["sources"]
            ),
            None if parts is None else Parts.of(parts),
        )


class JoiningDirectory:
    """A directory that is this process's alone, and is being made a copy. `close` lets it go."""

    def __init__(self, directory: StoreDirectory) -> None:
        self.directory = directory
        self.now = self._found()

    @classmethod
    def begin(
        cls, path: str, fs: Fs, clock: Clock, rng: Rng, key: Key | None = None
    ) -> JoiningDirectory:
        """Take one: an empty one, or one that is JOINING. A node in an empty one gets its id.

        :param key: what the store is sealed with; None: it is not
        :raises NotJoined, StoreLocked, StoreOpenToOthers, OSError: as `StoreDirectory.begin_copy`
        :raises WrongKey: it was begun with another key; nothing of it was changed
        :raises StoreDamaged, StoreTooNew: JOINING can't be read
        """
        directory = StoreDirectory.begin_copy(path, fs, clock, rng, key)
        try:
            return cls(directory)
        except BaseException:
            directory.close()
            raise

    def _found(self) -> Joining:
        try:
            facts = self.directory.read_joining()
        except StoreNotSealed:
            # Whoever was refused because the others' store is sealed comes again with their key.
            if _has_come(self.directory):
                raise
            self.directory.seal_joining()
            facts = self.directory.read_joining()
        except WrongKey as wrong:
            raise WrongKey(
                f"{wrong.message}. What was begun is gone on with by the key that it was begun"
                " with. If the other nodes have this one, begin with an empty directory, and with a"
                " new token if that one was used"
            ) from None
        if facts is None:
            begun = Joining(new_uuid(self.directory.rng))
            self.directory.mark_joining(begun.facts())
            return begun
        found = _read(self.directory.path, facts)
        if found.store is not None:
            self.directory.store_id = found.store
        return found

    def note(
        self, store: UUID, sources: Sequence[Source] | None = None, parts: Parts | None = None
    ) -> None:
        """Say how far it has come; durable on return.

        :param sources: None: those that it has
        :raises OSError: as the disk says; it is then what it was
        """
        kept = self.now.sources if sources is None else tuple(sources)
        now = replace(self.now, store=store, sources=kept, parts=parts)
        if now != self.now:
            self.directory.mark_joining(now.facts())
            self.now = now
        self.directory.store_id = store

    def give_up(self) -> None:
        """Be an empty directory again, since nobody knows this node: no token was redeemed. Only
        `close` may follow.

        :raises OSError: as the disk says
        """
        assert self.now.store is None, "a token was redeemed"
        self.directory.give_up_copy()

    def close(self) -> None:
        """Let other processes have it."""
        self.directory.close()


def note_anew(directory: StoreDirectory, node: UUID, sources: Sequence[Source]) -> None:
    """The store in an open directory is to be copied anew: the next start does it, and until then
    this is no store any more. Whoever says so is out of the set; durable on return.

    :param node: the id of its node
    :param sources: one at least
    :raises OSError: as the disk says
    """
    assert sources, "a copy comes from somebody"
    directory.mark_joining(Joining(node, directory.store_id, tuple(sources)).facts())


def _has_come(directory: StoreDirectory) -> bool:
    """Whether JOINING, which is in clear, says that some of the copy is on the disk."""
    found = _read(directory.path, directory.read_joining(in_clear=True) or {})
    return found.parts is not None and found.parts.synced > 0


def _read(path: str, facts: Mapping[str, object]) -> Joining:
    try:
        return Joining.of(facts)
    except (KeyError, TypeError, ValueError):
        raise StoreDamaged(f"{path}/JOINING does not say what is joined") from None
