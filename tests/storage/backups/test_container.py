"""The container: what is put in comes out, and nothing else ever does."""

from __future__ import annotations

import random

import pytest

from protocol.errors import BackupCorrupt, BackupCut, WrongKey
from storage.faults import StoreTooNew
from storage.formats import container
from storage.formats.container import CHUNK_BYTES, HEADER_BYTES, ContainerReader, SnapshotFacts
from storage.formats.sealing import Key
from tests.storage.backups import held
from tests.storage.backups.held import KEY, KEYS, OTHER_KEY, HeldFile


def read(data: bytes, key: Key | None = None) -> bytes:
    reader = ContainerReader(HeldFile(data), key)
    assert reader.facts(SnapshotFacts) == held.snapshot_facts()
    stream = b"".join(reader.chunks())
    assert reader.end is not None and reader.offset == len(data)
    return stream


def stream(count: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(count)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of some bytes, so that a file has many of them."""
    monkeypatch.setattr(container, "CHUNK_BYTES", 64)


@KEYS
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1_000])
@pytest.mark.parametrize("piece", [7, 64, 10_000])
@pytest.mark.usefixtures("small")
def test_what_is_put_in_comes_out(key: Key | None, count: int, piece: int) -> None:
    data = stream(count)
    pieces = [data[at : at + piece] for at in range(0, count, piece)]
    file = held.container(pieces, key)
    assert read(file, key) == data
    assert len(held.chunks(file)) == 2 + -(-count // 64)


@KEYS
def test_chunks_are_of_a_mebibyte(key: Key | None) -> None:
    data = stream(2 * CHUNK_BYTES + 5)
    file = held.container([data[:10], data[10:]], key)
    assert read(file, key) == data
    sizes = [end - at - container.CHUNK_HEAD_BYTES for at, end in held.chunks(file)]
    assert sizes[1:-1] == [CHUNK_BYTES, CHUNK_BYTES, 5]


@KEYS
@pytest.mark.usefixtures("small")
def test_a_file_that_ends_early_is_cut_wherever_it_ends(key: Key | None) -> None:
    file = held.container([stream(200)], key)
    for size in range(8, len(file)):
        with pytest.raises(BackupCut) as problem:
            read(file[:size], key)
        whole = [end for _, end in held.chunks(file) if end <= size]
        told = whole[-1] if whole else HEADER_BYTES if size >= HEADER_BYTES else 0
        assert problem.value.detail["offset"] == told


def test_what_follows_the_end_is_damage() -> None:
    file = held.container([b"some"])
    with pytest.raises(BackupCorrupt, match="after the end record") as problem:
        read(file + b"\0")
    assert problem.value.detail["offset"] == len(file)


def test_an_end_of_something_else_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end sums up what comes before it, beside the checks of the chunks."""
    monkeypatch.setattr(container, "sha256", lambda data=b"": Blind())
    file = held.container([b"some"])
    monkeypatch.undo()
    with pytest.raises(BackupCorrupt, match="does not match the data before"):
        read(file)


class Blind:
    """A sum that sees nothing."""

    def update(self, data: bytes) -> None:
        pass

    def copy(self) -> Blind:
        return self

    def digest(self) -> bytes:
        return bytes(32)


def test_only_the_key_opens_what_is_sealed() -> None:
    file = held.container([b"some"], KEY)
    assert read(file, KEY) == b"some"
    with pytest.raises(WrongKey, match=KEY.id.hex()):
        read(file, OTHER_KEY)
    with pytest.raises(WrongKey, match="no key"):
        read(file)


def test_nothing_of_the_store_is_in_clear_where_it_is_sealed() -> None:
    file = held.container([b"a secret that is stored"], KEY)
    for known in (b"secret", held.STORE.encode(), b"2026", b"0.1.0"):
        assert known in held.container([b"a secret that is stored"])
        assert known not in file


def test_a_later_format_is_said_to_be_one() -> None:
    file = held.container([b"some"])
    head = file[:8] + (container.FORMAT + 1).to_bytes(2, "big") + file[10:64]
    later = head + container._sum(head) + file[HEADER_BYTES:]
    with pytest.raises(StoreTooNew, match="format 2"):
        read(later)


@pytest.mark.parametrize("data", [b"", b"S", b"STORELOG" + bytes(100), b"-- storenode script"])
def test_what_begins_otherwise_is_no_container(data: bytes) -> None:
    with pytest.raises(BackupCorrupt, match="signature of a backup"):
        read(data)
