"""Files that are no backups, of each form: damaged ones, of which none is taken for whole, and
forged ones, whose every check holds. All are refused in the node's own words."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec
import pytest

from actors.backups.described import describe
from protocol import limits
from protocol.errors import BackupCorrupt, BackupCut, Refusal
from storage.backups import snapshot_file
from storage.backups.log_file import LogBackupWriter
from storage.backups.scripts import BEGINS, ScriptEncoder, writing
from storage.faults import StoreFault
from storage.formats import container
from storage.formats.container import (
    CHUNK_HEAD_BYTES,
    HEADER_BYTES,
    BackupFileForm,
    BackupScope,
    ContainerWriter,
    Header,
    ScriptFacts,
    SnapshotFacts,
)
from storage.formats.frames import FRAME_HEADER_BYTES, SALT_BYTES, FrameCodec
from storage.formats.positions import LATEST_US, MOST
from storage.formats.sealing import Key
from tests.simulation.environment import SeededRng
from tests.storage.backups import held
from tests.storage.backups.held import KEY, HeldFile
from tests.storage.backups.stores import CommitHistory, StoreMachine
from tests.sweeps import parts

FLIPS, CUTS, SPLICES = 180, 60, 60
"""Of each form and in each part of the sweep."""
PARTS: Final = 10
RESTORED: Final = 40
"""Of each form, every so many of the damaged files are restored too."""
CHUNK_BYTES: Final = 512
BACKUPS: Final = (BackupFileForm.SNAPSHOT, BackupFileForm.LOG, BackupFileForm.SCRIPT)
FORMS: Final = [(form, key) for form in BACKUPS for key in (None, KEY)]
MADE: Final = (FLIPS + CUTS + SPLICES) * len(FORMS)


@pytest.fixture(scope="module")
def history() -> CommitHistory:
    return CommitHistory()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many chunks, of some bytes each."""
    monkeypatch.setattr(container, "CHUNK_BYTES", CHUNK_BYTES)


def script(key: Key | None, seed: int) -> bytes:
    parts: list[bytes] = []
    facts = ScriptFacts("0.1.0", held.STORE, "2026-01-01T00:00:00+00:00", 1, 7)
    text, sealing = writing(facts, parts.append, SeededRng(seed), key), ScriptEncoder()
    text.add(sealing.add(BEGINS))
    for number in range(60):
        text.add(sealing.add(f"CREATE t:{number} SET text = 'number {seed}';\n"))
    text.add(sealing.end(60))
    text.end()
    return b"".join(parts)


def made(
    history: CommitHistory, form: BackupFileForm, key: Key | None, other: bool = False
) -> bytes:
    """A backup, or another one that is much like it."""
    last = history.last - other
    if form is BackupFileForm.SNAPSHOT:
        return history.snapshot(last, key)
    return (
        history.log(1 + other, last, key) if form is BackupFileForm.LOG else script(key, 1 + other)
    )


# --- damage ---------------------------------------------------------------------------------------


def damaged(whole: bytes, other: bytes, in_chunks: bool, part: int) -> Iterator[bytes]:
    """Files that are not what was written."""
    chance = random.Random(len(whole) + part)
    for _ in range(FLIPS):
        at = chance.randrange(len(whole))
        yield whole[:at] + bytes((whole[at] ^ 1 << chance.randrange(8),)) + whole[at + 1 :]
    # A script in clear is whole without the end of its last line.
    for _ in range(CUTS):
        yield whole[: chance.randrange(len(whole) - (not in_chunks))]
    spans = held.chunks(whole) if in_chunks else lines(whole)
    strange = held.chunks(other) if in_chunks else lines(other)
    for _ in range(SPLICES):
        (a, b), (c, d) = sorted(chance.sample(spans, 2))
        e, f = chance.choice(strange)
        yield chance.choice(
            (
                whole[:a] + whole[c:d] + whole[b:c] + whole[a:b] + whole[d:],
                whole[:b] + whole[a:b] + whole[b:],
                whole[:a] + whole[b:],
                whole[:a] + other[e:f] + whole[b:],
                whole[:a] + other[a:],
            )
        )


def lines(text: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    for line in text.splitlines(keepends=True):
        found.append((at, at + len(line)))
        at += len(line)
    return found


def taken(data: bytes, key: Key | None) -> bool:
    """Whether a file is taken for whole. Whatever else comes of it than a refusal is a fault."""
    try:
        return describe(HeldFile(data), [key] if key else [], lambda *_: None).problem is None
    except (Refusal, StoreFault):
        return False


def undetected(
    history: CommitHistory, form: BackupFileForm, key: Key | None, part: int, every: int = RESTORED
) -> tuple[int, int]:
    """How many damaged files were made, and how many of them were taken for whole.

    :param every: how many of them are restored too: one of so many; 0: none
    """
    whole, other = made(history, form, key), made(history, form, key, other=True)
    assert taken(whole, key) and taken(other, key)
    count = missed = 0
    for data in damaged(whole, other, form is not BackupFileForm.SCRIPT or key is not None, part):
        if data in (whole, other):
            continue
        count += 1
        missed += taken(data, key)
        if every and form is not BackupFileForm.SCRIPT and count % every == 0:
            machine = StoreMachine(clock=history.clock_at_end())
            with pytest.raises((Refusal, StoreFault)):
                machine.restore(data, key)
            assert not machine.disk.exists("/data/store")
    return count, missed


@pytest.mark.parametrize("part", parts(PARTS, always=1))
def test_every_flip_cut_and_splice_is_found(
    history: CommitHistory, figure: Callable[[str, object], None], part: int
) -> None:
    """R8."""
    total = 0
    for form, key in FORMS:
        count, missed = undetected(history, form, key, part)
        assert missed == 0, (form, key is not None)
        total += count
    figure(f"damaged backup files, part {part}", total)
    assert total > MADE // 10 * 9


# --- forgery --------------------------------------------------------------------------------------


def forged(form: BackupFileForm, facts: bytes, stream: bytes, end: tuple[int, int, int]) -> bytes:
    """A container of any facts and stream, whose every check holds."""
    parts: list[bytes] = []
    writer = ContainerWriter(held.snapshot_facts(), lambda _: None, SeededRng(1))
    again = ContainerWriter.__new__(ContainerWriter)
    header = Header(form, bytes(16), writer.salt, sealed=False)
    for name, value in vars(writer).items():
        setattr(again, name, value)
    again._sink, again._number, again.size = parts.append, 0, 0
    again._digest, again._checks = sha256(), container._Checks(header, None)
    again._put(header.encode())
    again._chunk(container.FACTS, facts)
    again.add(stream)
    again.end(*end)
    return b"".join(parts)


def as_dict(facts: object) -> dict[str, Any]:
    found = msgspec.to_builtins(facts, builtin_types=(bytes,))
    assert isinstance(found, dict)
    return found


DEEP: Final = b"\x91" * 100_000 + b"\x90"
FACTS: Final[list[tuple[str, dict[str, object]]]] = [
    (name, {name: value})
    for name, values in {
        "version": ("", "1\nresult=whole", "1 result=whole", "\x1b[2J", "x" * 100_000, 4, None),
        "store": ("", "a\nb", held.STORE + "\n", "no id", 7),
        "created": ("", "yesterday", "2026\n", 1),
        "taken_us": (-1, LATEST_US + 1, 1 << 63, "now", 1.5),
        "sequence": (-1, MOST + 1, (1 << 64) - 1, "1", None),
        "epoch": (-1, MOST + 1, (1 << 64) - 1),
        "time": (-1, LATEST_US + 1, (1 << 64) - 1),
        "digest": (b"", b"x", b"x" * 17, "x" * 16),
        "place": ([1], {"namespace": "a\nb"}, {"namespace": "a", "database": "b c"}, "a.b"),
        "form": ("log", "script", "x", 0),
    }.items()
    for value in values
]


@pytest.mark.parametrize(("name", "change"), FACTS)
def test_facts_that_no_store_writes(
    history: CommitHistory, name: str, change: dict[str, Any]
) -> None:
    at = history.position_at(history.last)
    facts = as_dict(replace_facts(at))
    (facts if name in facts else facts["at"]).update(change)
    data = forged(BackupFileForm.SNAPSHOT, msgspec.msgpack.encode(facts), b"", (0, 0, at.sequence))
    refused(history, data)


def replace_facts(at: Any) -> SnapshotFacts:
    return msgspec.structs.replace(held.snapshot_facts(at), place=BackupScope("a", "b"))


@pytest.mark.parametrize(
    "facts",
    [b"", b"\x05", b"\x91\x01", DEEP, b"\x81\xa1x" + DEEP, b"\xdd\xff\xff\xff\xff", b"\xdb" * 5],
)
@pytest.mark.parametrize("form", BACKUPS)
def test_facts_that_are_none(history: CommitHistory, form: BackupFileForm, facts: bytes) -> None:
    refused(history, forged(form, facts, b"", (0, 0, 0)))


def refused(history: CommitHistory, data: bytes) -> None:
    """Nothing of a file is taken, by anybody, in any way but a refusal."""
    assert not taken(data, None)
    machine = StoreMachine(clock=history.clock_at_end())
    machine.accept_clock = True
    with pytest.raises((Refusal, StoreFault)):
        machine.restore(data)


def pairs_in(data: bytes) -> list[tuple[bytes, bytes]]:
    return [pair for some in snapshot_file.SnapshotBackup(HeldFile(data)).lists() for pair in some]


def snapshot_of(history: CommitHistory, stream: bytes, count: int) -> bytes:
    at = history.position_at(history.last)
    facts = msgspec.msgpack.encode(held.snapshot_facts(at))
    return forged(BackupFileForm.SNAPSHOT, facts, stream, (count, 0, at.sequence))


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x91" * 5_000 + b"\x90", b"\x81\xa1x\x01"])
def test_values_that_no_store_writes(history: CommitHistory, value: bytes) -> None:
    """In the place of each kind that a restore looks at."""
    found = pairs_in(history.snapshot(history.last))
    for tag in (0x10, 0x11, 0x12, 0x13, 0x16, 0x18, 0x1A, 0x1B, 0x51):
        assert any(key[2] == tag for key, _ in found) or tag == 0x51
        if not any(key[2] == tag for key, _ in found):
            continue
        some = [(key, value if key[2] == tag else before) for key, before in found]
        piece = snapshot_file._piece(some)
        parts: list[bytes] = []
        snapshot = snapshot_file.SnapshotWriter(
            held.snapshot_facts(history.position_at(history.last)), parts.append, SeededRng(1)
        )
        snapshot.add(piece)
        snapshot.end()
        machine = StoreMachine(clock=history.clock_at_end())
        with pytest.raises(BackupCorrupt, match="the content is invalid"):
            machine.restore(b"".join(parts))
        machine.restore(history.snapshot(history.last))


KEYS: Final = [b"", b"\0", b"\0\1", b"\0\1\x30", b"\0\1\x50abc", b"\0\2a", b"\xff\xff", b"\xff" * 9]


@pytest.mark.parametrize("key", KEYS)
def test_keys_that_no_state_has(history: CommitHistory, key: bytes) -> None:
    data = snapshot_of(history, container.PAIR_LENGTHS.pack(len(key), 1) + key + b"x", 1)
    refused(history, data)


def test_lengths_and_counts_are_not_believed(
    history: CommitHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for gigabytes that somebody claims, or holds them."""
    monkeypatch.setattr(container, "CHUNK_BYTES", limits.MIB)
    much = bytes(12 * limits.MIB)
    for length in (1 << 27, (1 << 32) - 1):
        data = snapshot_of(
            history, container.PAIR_LENGTHS.pack(5, length) + b"\0\1\x10ab" + much, 0
        )
        tracemalloc.start()
        try:
            refused(history, data)
            assert tracemalloc.get_traced_memory()[1] < 8 * limits.MIB
        finally:
            tracemalloc.stop()
    for count in (1, 1 << 40, (1 << 64) - 1):
        refused(history, snapshot_of(history, b"", count))
    for length in (1 << 27, (1 << 32) - 1):
        last = history.last
        facts = msgspec.msgpack.encode(held.log_facts(last))
        frame = length.to_bytes(4, "big") + bytes(FRAME_HEADER_BYTES) + much
        refused(history, forged(BackupFileForm.LOG, facts, frame, (last, last, last)))


@pytest.mark.parametrize(
    "change",
    [
        {"body": b""},
        {"body": b"\xc1junk"},
        {"body": DEEP},
        {"body": b"\x81\xa1x\x01"},
        {"body": b"\xdd\xff\xff\xff\xff"},
        {"epoch": (1 << 64) - 1},
        {"time": (1 << 64) - 1},
        {"sequence": 3},
    ],
)
def test_frames_that_no_store_writes(history: CommitHistory, change: dict[str, Any]) -> None:
    parts: list[bytes] = []
    last = history.last
    copy = LogBackupWriter(held.log_facts(last), parts.append, SeededRng(1))
    codec = FrameCodec(copy._writer.salt[:SALT_BYTES])
    for number, frame in enumerate(history.frames):
        one = frame._replace(**change) if number == last - 2 else frame
        copy._writer.add(codec.encode(one, number, number))
    copy._last = last
    copy.end()
    machine = StoreMachine(clock=history.clock_at_end())
    machine.accept_clock = True
    with pytest.raises((Refusal, StoreFault)):
        machine.restore(b"".join(parts))


# --- an end that is not there ---------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY])
def test_a_log_without_its_end_is_cut(history: CommitHistory, key: Key | None) -> None:
    """All of its frames are there, and nothing says so."""
    data = history.log(key=key)
    begins, ends = held.chunks(data)[-1]
    for size in (begins, begins + 1, begins + CHUNK_HEAD_BYTES, ends - 1):
        machine = StoreMachine(clock=history.clock_at_end())
        with pytest.raises(BackupCut, match=f"intact up to sequence {history.last}"):
            machine.restore(data[:size], key)
        assert not machine.disk.exists("/data/store")
        done = machine.restore(data[:size], key, history.last)
        assert done.records == history.last
    assert begins > HEADER_BYTES
