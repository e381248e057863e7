"""Copy of a store: build the data directory from the snapshot of another node of the cluster.

The copy keeps the store's id, epoch and history; the node id is its own. Its log begins behind the
commit of the snapshot, which the leader has committed. `storage/files/joining_file.py` lists all
steps; those here begin with the snapshot, each durable before the next. After a crash the file
JOINING remains, and the next start repeats the steps from here.

All nodes of a sealed store have the same key, so no disk of the cluster holds it in clear.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from protocol.environment import File
from protocol.errors import WrongKey
from storage.backups.snapshot_file import SnapshotBackup
from storage.backups.state_builder import (
    RestoreEnvironment,
    VerifiedSnapshot,
    make_state,
    verify_snapshot,
)
from storage.faults import CopyFailed, StoreNotSealed
from storage.files import cluster_file
from storage.files.cluster_file import ClusterState, Upstream
from storage.files.directory import StoreDirectory
from storage.files.joining_file import CopySource, JoiningDirectory, Told
from storage.files.node_file import NodeFileContents, save_node
from storage.formats.container import HEADER_BYTES, BackupFileForm, Header, SnapshotFacts
from storage.formats.positions import EpochEnd, LogPosition
from storage.formats.sealing import Key, name_of
from storage.log.log import Log


@dataclass(frozen=True, slots=True)
class CopiedStore:
    """Result of a copy: identity and position of the new store."""

    store: str
    """The id of the store, a UUID."""
    node: str
    """The id of the node, a UUID."""
    at: LogPosition
    """Last commit in the copy."""
    records: int
    hash: str
    """Hash of the state; see `state_hash.py`."""


def check_begins(data: bytes, key: Key | None) -> None:
    """Check from the first bytes of a copy that this node can use it, before the rest has arrived.

    :param data: at least the first `container.HEADER_BYTES` bytes
    :param key: key of this node's store; None: in clear
    :raises WrongKey: the copy is sealed with another key
    :raises StoreNotSealed: the copy is in clear, but this node has a key
    :raises StoreTooNew: a later version made it
    :raises BackupCut, BackupCorrupt: the data is no snapshot
    """
    # Refuse before gigabytes are transferred and the present store is removed.
    header = Header.decode(data[:HEADER_BYTES])
    if header.form is not BackupFileForm.SNAPSHOT:
        raise CopyFailed(f"the copy received is a {header.form.value}, not a snapshot")
    check_key(header.key_id.hex() if header.sealed else "", key)


def check_key(named: str, key: Key | None) -> None:
    """Check that this node's key is that of the store to copy.

    :param named: name of the store's key, as `sealing.name_of`; empty: the store is in clear
    :param key: key of this node's store; None: in clear
    :raises WrongKey, StoreNotSealed: as `check_begins`
    """
    if named and key is None:
        raise WrongKey(
            f"the store is sealed with key {named}, and no key was given: join with the key file"
            " of the other nodes, --key-file"
        )
    if named and key is not None and name_of(key) != named:
        raise WrongKey(
            f"the store is sealed with key {named}, not with the given key {name_of(key)}: join"
            " with the key file of the other nodes"
        )
    if not named and key is not None:
        raise StoreNotSealed(
            "the store is not sealed, so its copy would not be either: join without --key-file"
        )


def make_copy(world: RestoreEnvironment, joining: JoiningDirectory, file: File) -> CopiedStore:
    """Build the store from a snapshot that has arrived completely.

    :param file: the snapshot; closed by the caller
    :raises BackupCut, BackupCorrupt, WrongKey, StoreNotSealed, StoreTooNew, CopyFailed: the file is
        not the requested snapshot; the directory was not changed
    :raises DiskFull, EngineFailed, OSError: the directory holds an incomplete store; calling this
        again resumes
    """
    directory, now = joining.directory, joining.now
    assert now.store is not None and now.parts is not None, "a copy of some store has come"
    check_begins(file.read(0, HEADER_BYTES), world.key)
    backup = SnapshotBackup(file, world.key)
    facts = backup.facts
    _check_facts(facts, str(now.store), now.parts.history)
    # The whole file is proven before the old content goes.
    found = verify_snapshot(world, backup, file.size(), "checking the copy")
    directory.clear_for_copy(now.store)
    made = _make(world, directory, file, found, now.parts.history)
    _keep_own(directory, now.node, now.sources, facts.at.epoch)
    # STORE follows state and log. JOINING goes last: until then no node serves the directory.
    directory.copied(facts.created)
    directory.end_copy()
    return CopiedStore(str(now.store), str(now.node), facts.at, backup.records, made)


def _check_facts(facts: SnapshotFacts, store: str, history: tuple[Told, ...]) -> None:
    """Check that the snapshot matches the announced store and epoch history.

    :raises CopyFailed: another store, only a part of the store, or another history
    """
    if facts.store != store:
        raise CopyFailed(f"the copy received is of store {facts.store}, not of {store}")
    if facts.place is not None:
        raise CopyFailed(f"the copy received holds only {facts.place}, not the whole store")
    at = facts.at
    # Without a history only the start of a log matches, sequence 0.
    last = history[-1] if history else (at.epoch, 0, at.digest)
    grows = all(one[0] < next[0] and one[1] <= next[1] for one, next in pairwise(history))
    if last != (at.epoch, at.sequence, at.digest) or not grows:
        raise CopyFailed(f"the epoch history of the copy does not end at commit {last[1]}")


def _make(
    world: RestoreEnvironment,
    directory: StoreDirectory,
    file: File,
    found: VerifiedSnapshot,
    history: tuple[Told, ...],
) -> str:
    """Build state and log. Return the hash of the state."""
    backup, state = make_state(world, directory, file, world.key, found, "making the store")
    # The last epoch is still open in this log: its end is the log's own (KIP-101).
    ended = [EpochEnd(*told) for told in history[:-1]]
    Log.begin_after(directory, backup.facts.at, ended)
    return state.hash


def _keep_own(
    directory: StoreDirectory, node: UUID, sources: tuple[CopySource, ...], epoch: int
) -> None:
    """Write the node's own files: its id, its promised epoch and its upstream.

    They survive a change of the store that the directory holds.
    """
    if not directory.fs.exists(f"{directory.path}/NODE"):
        save_node(directory, NodeFileContents(node))
    known = cluster_file.load(directory) or ClusterState()
    # The promised epoch never falls: leaders of older epochs stay refused (as Raft's currentTerm).
    known = known._replace(promised=max(known.promised, epoch), founding=None)
    if sources:
        first = sources[0]
        known = known._replace(upstream=Upstream(first.node, first.addresses, first.pins[0]))
    cluster_file.save(directory, known)
