"""Golden files: the bytes of every format on the disk, as stores and backups in use have them.

Each line of `tests/storage/golden/*.txt` is a name and its bytes: a literal, or hexadecimal. What
fails here is a change of a format. The backups of `CommitHistory` have effects and rows of every
kind; they are compressed.
"""

from __future__ import annotations

import ast
import json
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from struct import Struct
from typing import Any
from uuid import UUID

import msgspec
import pytest

from protocol.failover import Policy
from storage.files import cluster_file, peer_file, rebuild_marker
from storage.files.cluster_file import BootstrapState, ClusterState, Upstream
from storage.files.directory import StoreDirectory, restored_from
from storage.files.joining_file import CopyProgress, CopySource, DownloadProgress
from storage.files.node_file import NodeFileContents, load_node, save_node
from storage.files.peer_file import Identities, Identity
from storage.formats import effects, keys
from storage.formats.container import (
    ContainerReader,
    ContainerWriter,
    Facts,
    ScriptFacts,
    SnapshotFacts,
    StateFacts,
)
from storage.formats.effects import Attribution, FrameBody
from storage.formats.entries import Entry, VaultEntry
from storage.formats.frames import Frame
from storage.formats.positions import LogPosition, RestoreOrigin
from storage.formats.sealing import Key
from storage.log.log import Log
from storage.log.state import LogSizes
from storage.txn import trail_rows
from storage.vaults import rows
from storage.vaults.cipher import Argon2Parameters, RootWrap
from storage.vaults.rows import KeysRow, RecordRow, StoreRow, ValueRow
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import START_US, ManualClock, SeededRng
from tests.storage.backups.held import KEY, HeldFile
from tests.storage.backups.stores import CommitHistory, StoreMachine

GOLDEN = Path(__file__).parent / "golden"
STORE, DIGEST = "7b0a7a52-6a5f-4c0e-9d2e-0d3f4a5b6c7d", bytes(range(16))
AT = LogPosition(12, 3, START_US, DIGEST)
OF = "0.1.0", STORE, "2026-01-01T00:00:00+00:00", START_US
ENTRY = Entry(3, "r-1", "192.0.2.1:1", "ns", None, ((1, 2), ()), "list", "Forbidden", "READ", 2)
WHO = Attribution("ana", "http", "CREATE", "why", ENTRY)
EFFECTS: list[Any] = [
    (1, b"\0\1\x20k", b"v"), (2, b"k"), (3, b"a", b"b"), (4, b"\0\1\x30k", b"v", 7),
    (5, b"\0\1\x30k", 7), (6, b"p", b"a", b"b"),
]  # fmt: skip
WRAP = RootWrap(DIGEST, Argon2Parameters(20_000, 3, 2), b"sealed")
POLICY = Policy(("http://etcd",), timedelta(seconds=5), 1, timedelta(seconds=1), "AUTO")
NODE = NodeFileContents(UUID(STORE), ("COORDINATOR",), ("n1:8002",), ("https://a.example",))
UPSTREAM = Upstream(STORE, ("n1:8002",), "ab" * 32)
CLUSTER = ClusterState(
    "cafe", 12, 7, True, UPSTREAM, BootstrapState(frozenset("ab"), POLICY, 9), True
)
COPY = CopyProgress(
    UUID(STORE), UUID(STORE), (CopySource("n", ("n1:8002",), ("ab" * 32,)),),
    DownloadProgress(b"id", 99, ((1, 17, DIGEST),), 50),
)  # fmt: skip
ORIGIN = RestoreOrigin(STORE, AT, "shop.main")
SIZES = LogSizes(segment_frames=2, reserve_bytes=4096)

Case = tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]
"""A value, its encoder and its decoder."""


def golden(name: str) -> dict[str, bytes]:
    found = {}
    for line in (GOLDEN / f"{name}.txt").read_text().splitlines():
        what, _, data = line.partition(" ")
        found[what] = ast.literal_eval(data) if data[:2] == "b'" else bytes.fromhex(data)
    return found


def compare(name: str, made: dict[str, bytes]) -> dict[str, bytes]:
    """The bytes of a golden file, which are those that were made."""
    held = golden(name)
    for what, data in made.items():
        shown = repr(data) if data.isascii() and data[:1] == b"{" else data.hex()
        assert data == held.get(what), f"{what} {shown}"
    assert held.keys() == made.keys()
    return held


def container(facts: Facts, key: Key | None = None) -> Case:
    def encode(stream: bytes) -> bytes:
        parts: list[bytes] = []
        writer = ContainerWriter(facts, parts.append, SeededRng(1), key)
        writer.add(stream)
        writer.end(2, 1, 12)
        return b"".join(parts)

    def decode(data: bytes) -> bytes:
        reader = ContainerReader(HeldFile(data), key)
        assert reader.facts(type(facts)) == facts
        found = b"".join(reader.chunks())
        assert reader.end is not None and (reader.end.items, reader.end.sequence) == (2, 12)
        return found

    return b"the stream", encode, decode


def formats() -> dict[str, Case]:
    tags = {name: tag for name, tag in vars(keys).items() if name.isupper() and type(tag) is int}
    return {
        "key.tags": (tags, lambda v: json.dumps(v, sort_keys=True).encode(), json.loads),
        "key.field": ((3, "a.b"), lambda v: keys.field(1, 2, *v), keys.field_at),
        "key.trail": (9, lambda v: keys.kept(keys.AUDIT, v), keys.kept_sequence),
        "key.restoring": ((1, 2), lambda v: keys.restoring(*v), keys.restoring_at),
        "body": (
            FrameBody(WHO, EFFECTS), lambda v: effects.encode(v.attribution, v.effects),
            effects.decode,
        ),
        "row.trail": (
            (80, WHO.by, WHO.how, WHO.statement, WHO.reason, ENTRY),
            lambda v: trail_rows.rows(9, v[0], WHO)[keys.kept(keys.AUDIT, 9)],
            lambda b: msgspec.msgpack.decode(b, type=tuple[int, str, str, str, str, Entry]),
        ),
        "row.vault.trail": (
            VaultEntry(5, "ana", "owner", "http", "a", "write", "n.d.v", "granted", "id", 2, "why"),
            msgspec.msgpack.encode, lambda b: msgspec.msgpack.decode(b, type=VaultEntry),
        ),
        "row.vault.store": (StoreRow(DIGEST, WRAP, 2), StoreRow.pack, rows.read_store),
        "row.vault.keys": (KeysRow(2, {1: b"a", 2: b"b"}, WRAP, 7), KeysRow.pack, rows.read_keys),
        "row.vault.record": (RecordRow(3, (1, 3)), RecordRow.pack, rows.read_record),
        "row.vault.value": (ValueRow(1, 2, 3, b"x"), ValueRow.pack, rows.read_value),
        "backup.sealed": container(SnapshotFacts(*OF, AT), KEY),
        "backup.script": container(ScriptFacts(*OF, 12), KEY),
        "state.sealed": container(StateFacts("0.1.0", 12), KEY),
    }  # fmt: skip


def identities() -> Identities:
    """Return the identities of the golden file, since each signature differs."""
    pem = json.loads(golden("plain")["PEER"].partition(b"\n")[0])
    return Identities(Identity(pem["certificate"], pem["key"]))


def written(key: Key | None) -> dict[str, bytes]:
    """The files of a data directory that has each of them."""
    disk = SimulatedDisk()
    at = StoreDirectory.open("/s", disk, ManualClock(), SeededRng(1), create=True, key=key)
    log = Log.open(at, SIZES)
    for sequence, epoch in ((1, 1), (2, 4), (3, 4), (4, 4)):
        log.append([Frame(sequence, epoch, log.state.last_time, 0, b"body")], released=sequence - 1)
    log.prune(3)
    log.close(released=4)
    save_node(at, NODE)
    cluster_file.save(at, CLUSTER)
    peer_file.save(at, identities())
    rebuild_marker.record_damage(at, "a reason")
    at.found(ORIGIN)
    at.mark_restoring()
    at.mark_joining(COPY.facts())
    at.close()
    return {
        path.removeprefix("/s/"): data
        for path, data in disk.image().items()
        if data is not None and not path.endswith("LOCK") and "RESERVE" not in path
    }


def check_read(files: dict[str, bytes], key: Key | None) -> None:
    def disk(*without: str) -> SimulatedDisk:
        folders = dict.fromkeys(("", "/s", "/s/log", "/s/state", "/s/tmp"))
        left = {f"/s/{name}": data for name, data in files.items() if name not in without}
        return SimulatedDisk({**folders, **left})

    assert restored_from(disk("JOINING"), "/s", key) == ORIGIN
    copy = StoreDirectory.begin_copy("/s", disk("RESTORING"), ManualClock(), SeededRng(2), key)
    assert CopyProgress.of(copy.read_joining() or {}) == COPY
    copy.close()
    fs = disk("JOINING", "RESTORING")
    at = StoreDirectory.open("/s", fs, ManualClock(), SeededRng(2), key=key)
    assert (load_node(at), cluster_file.load(at), peer_file.load(at)) == (
        NODE, CLUSTER, identities(),
    )  # fmt: skip
    assert (rebuild_marker.damage(at), at.origin) == ("a reason", ORIGIN)
    log = Log.open(at, SIZES)
    assert [(one.sequence, one.epoch, one.body) for one in log.reader.read(3)] == [
        (3, 4, b"body"), (4, 4, b"body"),
    ]  # fmt: skip
    assert (log.state.first, log.state.released, [one[:2] for one in log.state.epoch_ends]) == (
        3,
        4,
        [(1, 1)],
    )
    log.close()
    at.close()


def check_formats() -> None:
    cases = formats()
    held = compare("formats", {name: encode(value) for name, (value, encode, _) in cases.items()})
    for name, (value, _, decode) in cases.items():
        assert decode(held[name]) == value, name


def check_backups() -> None:
    history = CommitHistory()
    for form, made in ("log", history.log()), ("snap", history.snapshot(history.last)):
        held = zlib.decompress((GOLDEN / f"history.store{form}.z").read_bytes())
        assert made == held, form
        restored = StoreMachine(clock=history.clock_at_end()).restore(held)
        assert restored.state.hash == history.hash(history.last), form


CHECKS: dict[str, Callable[[], None]] = {
    "formats": check_formats,
    "plain": lambda: check_read(compare("plain", written(None)), None),
    "sealed": lambda: check_read(compare("sealed", written(KEY)), KEY),
    "backups": check_backups,
}


@pytest.mark.parametrize("check", CHECKS)
def test_bytes_are_as_they_were(check: str) -> None:
    CHECKS[check]()


@pytest.mark.parametrize(
    ("check", "constant", "other"),
    [
        ("formats", "storage.formats.container.FORMAT", 2),
        ("plain", "storage.formats.frames.MAGIC", b"STORELOH"),
        ("backups", "storage.formats.keys._USER", b"\0\1\x19"),
        ("backups", "storage.formats.container.PAIR_LENGTHS", Struct("<II")),
        ("backups", "storage.topics.groups._STATE", Struct("<QQQQQQQQIII")),
        ("plain", "storage.files.metadata_file.FORMAT", 3),
        ("sealed", "storage.formats.sealing._COUNT_BYTES", 10),
    ],
)
def test_a_changed_constant_is_found(
    monkeypatch: pytest.MonkeyPatch, check: str, constant: str, other: object
) -> None:
    monkeypatch.setattr(constant, other)
    with pytest.raises(AssertionError):
        CHECKS[check]()
