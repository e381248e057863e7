"""The container: what is put in comes out, and nothing else ever does."""

from __future__ import annotations

import random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from protocol.errors import BackupCorrupt, BackupCut, Refusal, WrongKey
from storage.faults import StoreTooNew
from storage.formats import container
from storage.formats.container import CHUNK_BYTES, HEADER_BYTES, ContainerReader, SnapshotFacts
from storage.formats.sealing import Key, Sealer
from tests.storage.backups import held
from tests.storage.backups.held import KEY, OTHER_KEY, HeldFile

KEYS = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])


def read(data: bytes, key: Key | None = None) -> bytes:
    """The stream of a container that is whole."""
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
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 1_000])
@pytest.mark.parametrize("piece", [1, 7, 64, 100, 10_000])
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


@KEYS
@pytest.mark.usefixtures("small")
def test_a_flipped_bit_is_found_wherever_it_is(key: Key | None) -> None:
    file = held.container([stream(200)], key)
    for at in range(len(file)):
        for bit in (1, 128):
            flipped = bytearray(file)
            flipped[at] ^= bit
            with pytest.raises((BackupCorrupt, WrongKey, StoreTooNew)):
                read(bytes(flipped), key)


@KEYS
@pytest.mark.usefixtures("small")
def test_chunks_are_good_in_their_place_only(key: Key | None) -> None:
    """Swapped, repeated, left out, and taken from another file of the same key and content."""
    file, other = (held.container([stream(300)], key, seed) for seed in (1, 2))
    at = held.chunks(file)

    def build(order: list[tuple[bytes, int]]) -> bytes:
        return file[:HEADER_BYTES] + b"".join(data[slice(*at[n])] for data, n in order)

    own = [(file, n) for n in range(len(at))]
    assert read(build(own), key) == stream(300)
    broken = []
    for n in range(len(own)):
        broken.append(own[:n] + own[n + 1 :])
        broken.append(own[: n + 1] + own[n:])
        broken.append([*own[:n], (other, n), *own[n + 1 :]])
        broken += [
            [own[m] if k == n else own[n] if k == m else own[k] for k in range(len(own))]
            for m in range(n)
        ]
    broken.append([*own, *own[1:]])
    for order in broken:
        with pytest.raises((BackupCorrupt, BackupCut)):
            read(build(order), key)


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


def test_a_key_does_not_stand_in_the_way_of_what_is_plain() -> None:
    assert read(held.container([b"some"]), KEY) == b"some"


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


@pytest.mark.usefixtures("small")
def test_no_nonce_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one key of a file; and no two files have the same key."""
    nonces: list[tuple[bytes, bytes]] = []

    class Watched:
        def __init__(self, key: bytes) -> None:
            self.key, self.cipher = key, AESGCM(key)

        def encrypt(self, nonce: bytes, data: bytes, beside: bytes) -> bytes:
            nonces.append((self.key, nonce))
            return self.cipher.encrypt(nonce, data, beside)

    monkeypatch.setattr("storage.formats.sealing.AESGCM", Watched)
    for seed in range(20):
        held.container([stream(500, seed)], KEY, seed)
    assert len(nonces) == len(set(nonces)) == 20 * (2 + 8)
    assert len({key for key, _ in nonces}) == 20


def test_the_last_chunk_is_not_taken_for_another() -> None:
    sealer = Sealer(KEY, bytes(32), b"test")
    sealed = sealer.seal(3, True, b"end", b"head")
    assert sealer.open(3, True, sealed, b"head") == b"end"
    assert sealer.open(3, False, sealed, b"head") is None
    assert sealer.open(4, True, sealed, b"head") is None
    assert sealer.open(3, True, sealed, b"hear") is None
    assert Sealer(KEY, bytes(32), b"other").open(3, True, sealed, b"head") is None


def test_every_refusal_says_where() -> None:
    file = held.container([stream(100)])
    for broken in (file[:50], file[:100], file[:200] + b"\xff" + file[201:], b"junk"):
        with pytest.raises(Refusal) as problem:
            read(broken)
        assert isinstance(problem.value.detail["offset"], int)
