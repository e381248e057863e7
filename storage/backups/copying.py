"""A data directory made of the snapshot that another node of the cluster gave: the same store.

It keeps the store's id, epoch and history, and has a node id of its own. Its log begins behind the
commit that the snapshot shows, which the leader has released. `storage/joining.py` has the steps;
here are those from the snapshot on, each durable before the next. A crash leaves JOINING, and
whoever goes on begins here again.

Every node of a sealed store has the same key: what is sealed on one disk is in clear on none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from protocol.doors import File
from protocol.errors import WrongKey
from storage import cluster_file
from storage.backups.container import HEADER_BYTES, Header
from storage.backups.facts import SnapshotFacts
from storage.backups.forms import Form
from storage.backups.making import Proven, World, make_state, proven
from storage.backups.snapshots import SnapshotBackup
from storage.cluster_file import Cluster, Upstream
from storage.directory import StoreDirectory
from storage.epochs import Reign
from storage.faults import CopyFailed, StoreNotSealed
from storage.histories import Standing
from storage.joining import JoiningDirectory, Source, Told
from storage.log import Log
from storage.node_file import NodeFacts, save_node
from storage.sealing import Key, name_of


@dataclass(frozen=True, slots=True)
class Copied:
    """What stands in the directory now."""

    store: str
    """The id of the store, a UUID."""
    node: str
    """The id of the node, a UUID."""
    at: Standing
    """The last commit that is in it."""
    records: int
    hash: str
    """Of the state; see `state_hash.py`."""


def check_begins(data: bytes, key: Key | None) -> None:
    """Look whether a copy can be used here by its first bytes, before all of it has come.

    :param data: `container.HEADER_BYTES` of it, or more
    :param key: what this node's store is sealed with; None: it is not
    :raises WrongKey: it is sealed, and not with this key
    :raises StoreNotSealed: it is not, and there is a key
    :raises StoreTooNew: a later version gave it
    :raises BackupCut, BackupCorrupt: it is no snapshot
    """
    header = Header.decode(data[:HEADER_BYTES])
    if header.form is not Form.SNAPSHOT:
        raise CopyFailed(f"what was given as a copy is a {header.form.value}")
    check_key(header.key_id.hex() if header.sealed else "", key)


def check_key(named: str, key: Key | None) -> None:
    """Look whether a store can be copied here by the key that it has.

    :param named: that, as `sealing.name_of`
    :param key: what this node's store is sealed with; None: it is not
    :raises WrongKey, StoreNotSealed: as `check_begins`
    """
    if named and key is None:
        raise WrongKey(
            f"the store is sealed with key {named}, and no key was given: a node that joins needs"
            " the key file of the others, --key-file"
        )
    if named and key is not None and name_of(key) != named:
        raise WrongKey(
            f"the store is sealed with key {named}, and this is key {name_of(key)}: a node that"
            " joins needs the key file of the others"
        )
    if not named and key is not None:
        raise StoreNotSealed(
            "the store is not sealed, and a key was given: its copies are in clear as well. Join"
            " without --key-file"
        )


def make_copy(world: World, joining: JoiningDirectory, file: File) -> Copied:
    """Make the store of a snapshot that has come whole.

    :param file: it; stays the caller's to close
    :raises BackupCut, BackupCorrupt, WrongKey, StoreNotSealed, StoreTooNew, CopyFailed: it is not
        what was asked for; what the directory holds was not touched
    :raises DiskFull, EngineFailed, OSError: what is there is no store, and this goes on with it
    """
    directory, now = joining.directory, joining.now
    assert now.store is not None and now.parts is not None, "a copy of some store has come"
    check_begins(file.read(0, HEADER_BYTES), world.key)
    backup = SnapshotBackup(file, world.key)
    facts = backup.facts
    _check_facts(facts, str(now.store), now.parts.history)
    found = proven(world, backup, file.size(), "checking the copy")
    directory.make_way(now.store)
    made = _make(world, directory, file, found, now.parts.history)
    _keep_own(directory, now.node, now.sources, facts.at.epoch)
    directory.copied(facts.created)
    directory.end_copy()
    return Copied(str(now.store), str(now.node), facts.at, backup.records, made)


def _check_facts(facts: SnapshotFacts, store: str, history: tuple[Told, ...]) -> None:
    """:raises CopyFailed: it is of another store, of a part of it, or its history is another's"""
    if facts.store != store:
        raise CopyFailed(f"what was given is a copy of store {facts.store}, not of {store}")
    if facts.place is not None:
        raise CopyFailed(f"what was given is a copy of {facts.place} alone")
    at = facts.at
    last = history[-1] if history else (at.epoch, 0, at.digest)
    grows = all(one[0] < next[0] and one[1] <= next[1] for one, next in pairwise(history))
    if last != (at.epoch, at.sequence, at.digest) or not grows:
        raise CopyFailed(f"the history that came with the copy does not end with commit {last[1]}")


def _make(
    world: World, directory: StoreDirectory, file: File, found: Proven, history: tuple[Told, ...]
) -> str:
    """State and log; answers the hash of the state."""
    backup, state = make_state(world, directory, file, world.key, found, "making the store")
    ended = [Reign(*told) for told in history[:-1]]
    Log.begin_after(directory, backup.facts.at, ended)
    return state.hash


def _keep_own(
    directory: StoreDirectory, node: UUID, sources: tuple[Source, ...], epoch: int
) -> None:
    """What is the node's own: what it was told, whatever store it held, and whom it follows."""
    if not directory.fs.exists(f"{directory.path}/NODE"):
        save_node(directory, NodeFacts(node))
    known = cluster_file.load(directory) or Cluster()
    # What was promised to others is never taken back.
    known = known._replace(promised=max(known.promised, epoch), founding=None)
    if sources:
        first = sources[0]
        known = known._replace(upstream=Upstream(first.node, first.addresses, first.pins[0]))
    cluster_file.save(directory, known)
