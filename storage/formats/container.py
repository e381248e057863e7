"""Container format of backup files, in clear or sealed.

It holds snapshots, logs, sealed scripts, and the image that a sealed store keeps of its state.

All integers are big-endian and unsigned.

    header, 72 bytes                               chunk: head of 32 bytes, then the content
    ┌────────┬────┬──────────────────────────┐     ┌────────┬────┬─────────────────────────────┐
    │ offset │ n  │                          │     │ offset │ n  │                             │
    ├────────┼────┼──────────────────────────┤     ├────────┼────┼─────────────────────────────┤
    │      0 │  8 │ magic: `MAGIC`           │     │      0 │  4 │ length of the content       │
    │      8 │  2 │ format                   │     │      4 │  4 │ number, from 0              │
    │     10 │  2 │ flags                    │     │      8 │  1 │ kind                        │
    │     12 │  4 │ zeros                    │     │      9 │  3 │ zeros                       │
    │     16 │ 16 │ key id, or zeros         │     │     12 │  4 │ head check                  │
    │     32 │ 32 │ salt                     │     │     16 │ 16 │ check, or tag               │
    │     64 │  8 │ checksum of the 64 above │     │     32 │  … │ content                     │
    └────────┴────┴──────────────────────────┘     └────────┴────┴─────────────────────────────┘

Chunk 0 is of the kind FACTS: metadata, decoded within bounds and patterns, since users are shown it
and a data directory is built from it. The following chunks are of the kind DATA; each of them but
the last has `CHUNK_BYTES` of content. The last chunk of the file is of the kind END: count, bytes,
and SHA-256 of everything before it. The contents of the DATA chunks form one stream, cut anywhere.

- check: blake2b, 16 bytes, keyed with the salt, over bytes 0–12 of the head and the content. It
  covers number and salt, so a chunk is valid only at its place in its own file.
- tag: the authentication tag of AES-256-GCM in a sealed file. The content is then encrypted
  (`sealing.py`), and no data of the store is in clear.
- head check: CRC-32 of bytes 0–12, started from the salt. It distinguishes a damaged length from a
  file that ends early.

A file that ends before its END is *cut*. One whose bytes differ from those written, or that goes on
behind its END, is *corrupt*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b, sha256
from struct import Struct
from typing import Annotated, Final, Literal, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from protocol.environment import File, Rng
from protocol.errors import BackupCorrupt, BackupCut, WrongKey
from protocol.limits import MIB
from protocol.text import NAME
from storage.faults import StoreTooNew
from storage.formats.frames import MAGIC as SEGMENT_BEGINS
from storage.formats.keys import Pair
from storage.formats.positions import Count, LogPosition, TimeUs
from storage.formats.sealing import KEY_ID_BYTES, NO_KEY, SALT_BYTES, TAG_BYTES, Key, Sealer

MAGIC_BYTES: Final = 8
SCRIPT_BEGINS: Final = b"-- storenode script"
"""First bytes of a script backup in clear."""


class BackupFileForm(StrEnum):
    """Form of a backup. The value is its name in responses, statements and reports."""

    SNAPSHOT = "snapshot"
    LOG = "log"
    SCRIPT = "script"
    STATE = "state"
    """State image of a sealed store. It is no backup, and is never shown to users."""


EXTENSIONS: Final = {
    BackupFileForm.SNAPSHOT: ".storesnap",
    BackupFileForm.LOG: ".storelog",
    BackupFileForm.SCRIPT: ".storeql",
}
MAGIC: Final = {
    BackupFileForm.SNAPSHOT: b"STORSNAP",
    BackupFileForm.LOG: b"STORBLOG",
    BackupFileForm.SCRIPT: b"STORSCRP",
    BackupFileForm.STATE: b"STORSTAT",
}
"""First 8 bytes of a container; a script is in one only if sealed.

A segment of a store's own log has a different magic (`frames.py`), though its file name has the
extension of a log backup. So neither is mistaken for the other.
"""
assert all(len(magic) == MAGIC_BYTES for magic in MAGIC.values())


TO_COPY: Final = (
    "to move the store, copy log/ and STORE of its data directory into a new one (and state/ if"
    " the log does not begin at 1) and serve that; or take a backup with --backup"
)
"""Advice in the error for a log segment that is passed as a backup."""


def not_a_backup(file: File, other: str = "") -> BackupCorrupt:
    """Return the error for a file whose form is unknown.

    :param other: advice appended if the file is no log segment either
    """
    if file.read(0, len(SEGMENT_BEGINS)) == SEGMENT_BEGINS:
        return BackupCorrupt(
            f"this is a segment of a store's log, not a backup: {TO_COPY}", offset=0
        )
    return BackupCorrupt(f"the file does not begin with the signature of a backup{other}", offset=0)


def form_of(file: File) -> BackupFileForm | None:
    """Return the form of a file by its first bytes, whatever its name; None if it is no backup."""
    begins = file.read(0, len(SCRIPT_BEGINS))
    for form, magic in MAGIC.items():
        if begins.startswith(magic):
            # An image is a part of a data directory: no restore may take it for a backup.
            return None if form is BackupFileForm.STATE else form
    return BackupFileForm.SCRIPT if begins == SCRIPT_BEGINS else None


Name = Annotated[str, msgspec.Meta(pattern=f"^{NAME.pattern}")]
Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z.+_-]{1,64}\Z")]
StoreId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]
Date = Annotated[str, msgspec.Meta(pattern=r"^[0-9T:.Z+-]{10,40}\Z")]


class BackupScope(msgspec.Struct, frozen=True):
    """A part of a store: one namespace or one database."""

    namespace: Name
    database: Name | None = None
    """None: all databases of the namespace."""

    def __str__(self) -> str:
        return self.namespace if self.database is None else f"{self.namespace}.{self.database}"


class SnapshotFacts(msgspec.Struct, frozen=True):
    """Metadata of a snapshot."""

    version: Version
    """Version of the node that wrote the file."""
    store: StoreId
    """Id of the store, a UUID."""
    created: Date
    """Creation time of that store, as ISO 8601."""
    taken_us: TimeUs
    """Wall clock when the snapshot was taken, microseconds since 1970."""
    at: LogPosition
    """Last commit in the snapshot."""
    place: BackupScope | None = None
    """None: the whole store."""
    form: Literal["snapshot"] = "snapshot"


class LogFacts(msgspec.Struct, frozen=True):
    """Metadata of a log backup."""

    version: Version
    """Version of the node that wrote the file."""
    store: StoreId
    """Id of the store, a UUID."""
    created: Date
    """Creation time of that store, as ISO 8601."""
    taken_us: TimeUs
    """Wall clock when the backup was taken, microseconds since 1970."""
    before: LogPosition
    """Position of the frame before the first one in this file."""
    last: Count
    """Sequence of the last frame; `before.sequence` when there is none."""
    form: Literal["log"] = "log"

    @property
    def first(self) -> int:
        """Sequence of the first frame."""
        return self.before.sequence + 1


class ScriptFacts(msgspec.Struct, frozen=True):
    """Metadata of a sealed script. Its text repeats it for human readers."""

    version: Version
    """Version of the node that wrote the file."""
    store: StoreId
    """Id of the store, a UUID."""
    created: Date
    """Creation time of that store, as ISO 8601."""
    taken_us: TimeUs
    """Wall clock when the script was written, microseconds since 1970."""
    sequence: Count
    """Sequence of the last commit in the script."""
    form: Literal["script"] = "script"


class StateFacts(msgspec.Struct, frozen=True):
    """Metadata of a sealed state image. The image is no backup; the rest is in its pairs."""

    version: Version
    """Version of the node that wrote the file."""
    applied: Count
    """Sequence that the state has applied."""
    form: Literal["state"] = "state"


class EndChunk(msgspec.Struct, frozen=True):
    """Content of the END chunk, which marks the file as complete."""

    items: int
    """Pairs of a snapshot, frames of a log, bytes of a script."""
    records: int
    """Records of tables in a snapshot; of a log, frames; of a script, none."""
    sequence: int
    """Sequence of the last commit in the file."""
    size: int
    """Bytes of the file before this chunk."""
    sha256: bytes
    """SHA-256 of those bytes."""
    stream: bytes
    """blake2b digest (32 bytes) of the stream. For a snapshot it is the state hash
    (`state_hash.py`)."""


@dataclass(frozen=True, slots=True)
class WrittenBackup:
    """Summary of a completely written backup."""

    form: BackupFileForm
    records: int
    """Records or frames, see `EndChunk.records`."""
    sequence: int
    """Sequence of the last commit in the file."""
    size: int
    """Bytes of the whole file."""
    sha256: bytes
    """SHA-256 of the whole file."""
    version: str
    """Version of the node that wrote the file."""


FORMAT: Final = 1
SEALED: Final = 1
"""Header flag: the chunks are sealed."""
CHUNK_BYTES: Final = MIB
"""Bytes of content in a DATA chunk; the last one may hold fewer."""
CONTENT_BYTES_MAX: Final = MIB
"""Largest valid length of a chunk's content. Facts and end are far smaller, so a longer length is
damage."""

FACTS: Final = 0
DATA: Final = 1
END: Final = 2

_HEADER: Final = Struct(f">8sHHI{KEY_ID_BYTES}s{SALT_BYTES}s")
_SUM_BYTES: Final = 8
_HEAD: Final = Struct(">IIB3x")
_WORD: Final = Struct(">I")
CHECK_BYTES: Final = 16
STREAM_DIGEST_BYTES: Final = 32
HEADER_BYTES: Final = 72
CHUNK_HEAD_BYTES: Final = 32

assert _HEADER.size + _SUM_BYTES == HEADER_BYTES
assert _HEAD.size + _WORD.size + CHECK_BYTES == CHUNK_HEAD_BYTES
assert CHECK_BYTES == TAG_BYTES

Sink = Callable[[bytes], None]
"""Callback that takes the bytes of a file in order, in parts."""
AnyFacts = SnapshotFacts | LogFacts | ScriptFacts | StateFacts
Facts = TypeVar("Facts", SnapshotFacts, LogFacts, ScriptFacts, StateFacts)
_Decoded = TypeVar("_Decoded", SnapshotFacts, LogFacts, ScriptFacts, StateFacts, EndChunk)


class Header(NamedTuple):
    """First 72 bytes of a container."""

    form: BackupFileForm
    key_id: bytes
    salt: bytes
    sealed: bool

    def encode(self) -> bytes:
        """Encode the header as 72 bytes."""
        flags = SEALED if self.sealed else 0
        head = _HEADER.pack(MAGIC[self.form], FORMAT, flags, 0, self.key_id, self.salt)
        return head + _sum(head)

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Decode a header.

        :raises BackupCut: the file ends inside the header
        :raises BackupCorrupt: the header is damaged, or the file is no backup
        :raises StoreTooNew: a later version wrote the file
        """
        form = next((form for form, magic in MAGIC.items() if data.startswith(magic)), None)
        if form is None:
            raise BackupCorrupt("the file does not begin with the signature of a backup", offset=0)
        # After the magic: a short file of another kind is no truncated backup.
        if len(data) < HEADER_BYTES:
            raise BackupCut(f"the file ends inside its header, at byte {len(data)}", offset=0)
        head = data[: _HEADER.size]
        # Before the format: a damaged number must not pass for that of a later version.
        if _sum(head) != data[_HEADER.size : HEADER_BYTES]:
            raise BackupCorrupt("the checksum of the file header does not match", offset=0)
        _, written, flags, _, key_id, salt = _HEADER.unpack(head)
        # An unknown flag may change how chunks are read, so it counts as a later format.
        if written != FORMAT or flags & ~SEALED:
            raise StoreTooNew(f"the backup has format {written}; this version reads {FORMAT}")
        return cls(form, key_id, salt, bool(flags & SEALED))


def key_for(file: File, keys: Sequence[Key]) -> Key | None:
    """Return the key that sealed the file; the first of `keys` if none matches.

    None if the file is in clear or `keys` is empty.

    :raises BackupCut, BackupCorrupt, StoreTooNew: as `Header.decode`
    """
    header = Header.decode(file.read(0, HEADER_BYTES))
    if not header.sealed or not keys:
        return None
    # Without a match any key will do: the reader then names the key that is missing.
    return next((key for key in keys if key.id == header.key_id), keys[0])


def _sum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SUM_BYTES).digest()


def stream_digest() -> blake2b:
    """Return a new hash object for the digest of a stream."""
    return blake2b(digest_size=STREAM_DIGEST_BYTES)


class _Checks:
    """Per-chunk checksums, or encryption with authentication tags, of one file.

    Writer and reader share it, so that both compute the same checks.
    """

    def __init__(self, header: Header, key: Key | None) -> None:
        self._salt = header.salt
        self._crc_start = crc32(header.salt)
        # Associated data: a chunk opens only behind this very header.
        self._beside = header.encode()
        self._sealer = (
            # The form is a part of the purpose, so chunks of a log never open in a snapshot.
            Sealer(key, header.salt, b"backup " + header.form.encode())
            if header.sealed and key is not None
            else None
        )

    def close_up(self, number: int, kind: int, content: bytes) -> bytes:
        """Encode a chunk: head, head check, check or tag, and content."""
        head = _HEAD.pack(len(content), number, kind)
        if self._sealer is None:
            check = self._check(head, content)
        else:
            # STREAM: the nonce tells the last chunk, so no other one passes for the end of a file.
            sealed = self._sealer.seal(number, kind == END, content, self._beside + head)
            content, check = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
        return b"".join((head, self._head_check(head), check, content))

    def take_apart(self, number: int, kind: int, head: bytes, content: bytes) -> bytes | None:
        """Verify and decode the content of a chunk. None if the check or tag does not match.

        :param head: all 32 bytes of the chunk's head
        """
        covered, check = head[: _HEAD.size], head[_HEAD.size + _WORD.size :]
        if self._sealer is not None:
            return self._sealer.open(number, kind == END, content + check, self._beside + covered)
        return content if self._check(covered, content) == check else None

    def head_holds(self, head: bytes) -> bool:
        """True if the CRC of the chunk's head matches."""
        return head[_HEAD.size : _HEAD.size + _WORD.size] == self._head_check(head[: _HEAD.size])

    def _head_check(self, head: bytes) -> bytes:
        return _WORD.pack(crc32(head, self._crc_start))

    def _check(self, head: bytes, content: bytes) -> bytes:
        digest = blake2b(head, digest_size=CHECK_BYTES, key=self._salt)
        digest.update(content)
        return digest.digest()


class ContainerWriter:
    """Writer of one container, chunk by chunk. Safe to run in a thread of its own.

    :param facts: metadata of the file, written at once behind the header
    :param sink: takes the bytes of the file
    :param key: key that seals the file; None: in clear
    """

    def __init__(self, facts: AnyFacts, sink: Sink, rng: Rng, key: Key | None = None) -> None:
        salt = rng.bytes(SALT_BYTES)
        header = Header(
            BackupFileForm(facts.form), key.id if key else NO_KEY, salt, key is not None
        )
        self.salt = salt
        self._sink = sink
        self._checks = _Checks(header, key)
        self._digest = sha256()
        self._stream = stream_digest()
        self._number = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.size = 0
        """Bytes written so far."""
        self._put(header.encode())
        self._chunk(FACTS, msgspec.msgpack.encode(facts))

    def add(self, data: bytes) -> None:
        """Append data to the stream."""
        self._stream.update(data)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= CHUNK_BYTES:
            # Joined once for each chunk: callers add thousands of small parts.
            whole = b"".join(self._waiting)
            # Only full chunks: the cuts depend on the stream, not on the parts in which it came.
            end = len(whole) - len(whole) % CHUNK_BYTES
            for at in range(0, end, CHUNK_BYTES):
                self._chunk(DATA, whole[at : at + CHUNK_BYTES])
            self._waiting = [whole[end:]]
            self._waiting_bytes = len(whole) - end

    def end(self, items: int, records: int, sequence: int) -> bytes:
        """Write the END chunk. Return the SHA-256 of the whole file."""
        if self._waiting_bytes:
            self._chunk(DATA, b"".join(self._waiting))
        # Size and digest of the bytes before this chunk: it cannot cover itself.
        end = EndChunk(
            items, records, sequence, self.size, self._digest.digest(), self._stream.digest()
        )
        self._chunk(END, msgspec.msgpack.encode(end))
        return self._digest.digest()

    def _chunk(self, kind: int, content: bytes) -> None:
        self._put(self._checks.close_up(self._number, kind, content))
        self._number += 1

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self.size += len(data)
        self._sink(data)


class ContainerReader:
    """Reader of one container, from its beginning, that verifies every byte.

    :param file: closed by the caller
    :param key: key to decrypt a sealed file with
    :raises BackupCut, BackupCorrupt: the header is incomplete or damaged
    :raises WrongKey: the file is sealed with another key
    :raises StoreTooNew: a later version wrote the file
    """

    def __init__(self, file: File, key: Key | None = None) -> None:
        self._file = file
        self._size = file.size()
        data = file.read(0, HEADER_BYTES)
        self.header = Header.decode(data)
        if self.header.sealed and key is None:
            raise WrongKey("the backup is sealed, and no key was given")
        if self.header.sealed and key is not None and key.id != self.header.key_id:
            raise WrongKey(
                f"the backup is sealed with key {self.header.key_id.hex()}, not with the given"
                f" key {key.id.hex()}"
            )
        self._checks = _Checks(self.header, key)
        self._digest = sha256(data)
        self._stream = stream_digest()
        self._number = 0
        self.offset = HEADER_BYTES
        """Byte offset of the next chunk, or of the first damaged one."""
        self.end: EndChunk | None = None
        """The END chunk; None until the file has been read to its end."""

    def facts(self, kind: type[Facts]) -> Facts:
        """Read the metadata of the file. Must be the first call, and only once.

        :raises BackupCut, BackupCorrupt: the facts are incomplete or damaged
        """
        assert self._number == 0, "facts are read first"
        found, content = self._chunk()
        if found != FACTS:
            raise self._corrupt("the first chunk holds no metadata")
        return self._decoded(content, kind)

    def chunks(self) -> Iterator[bytes]:
        """Yield the stream chunk by chunk. On exhaustion `end` is set and the file is proven whole.

        :raises BackupCut: the file ends early
        :raises BackupCorrupt: a chunk is not as written; raised at that chunk
        """
        while self.end is None:
            # A copy from before the chunk: END names the digest of the bytes before itself.
            begun, before = self.offset, self._digest.copy()
            kind, content = self._chunk()
            if kind == DATA:
                # Verified already: the caller may use each chunk as it comes.
                self._stream.update(content)
                yield content
                continue
            if kind != END:
                raise self._corrupt("a metadata entry is not in the first chunk", begun)
            end = self._decoded(content, EndChunk)
            sums = before.digest(), self._stream.digest()
            if end.size != begun or (end.sha256, end.stream) != sums:
                raise self._corrupt("the end record does not match the data before it", begun)
            # No check covers bytes behind END, so there may be none.
            if self.offset != self._size:
                raise self._corrupt("there is data after the end record")
            self.end = end

    @property
    def sha256(self) -> bytes:
        """SHA-256 of the bytes read so far."""
        return self._digest.digest()

    @property
    def stream(self) -> bytes:
        """Digest of the stream read so far; at the end equal to `EndChunk.stream`."""
        return self._stream.digest()

    def unproven(self) -> bytes:
        """Return the content of the incomplete chunk, for callers with checksums of their own.

        Empty for a sealed chunk, and for one that is out of order.
        """
        head = self._file.read(self.offset, CHUNK_HEAD_BYTES)
        # Without a valid tag nothing of a sealed chunk can be trusted. Frames in clear have
        # checksums of their own, which the caller verifies.
        if self.header.sealed or len(head) < CHUNK_HEAD_BYTES or not self._checks.head_holds(head):
            return b""
        length, number, kind = _HEAD.unpack_from(head)
        if number != self._number or kind != DATA or length > CONTENT_BYTES_MAX:
            return b""
        return self._file.read(self.offset + CHUNK_HEAD_BYTES, length)

    def _chunk(self) -> tuple[int, bytes]:
        """Read and verify the next chunk. Advances `offset` only on success."""
        offset, file = self.offset, self._file
        head = file.read(offset, CHUNK_HEAD_BYTES)
        if len(head) < CHUNK_HEAD_BYTES:
            raise self._cut()
        if not self._checks.head_holds(head):
            raise self._corrupt("the check value of a chunk header does not match")
        length, number, kind = _HEAD.unpack_from(head)
        if number != self._number:
            raise self._corrupt(f"expected chunk {self._number}, found chunk {number}")
        # Before the read: a CRC proves nothing, and a damaged length may claim 4 GiB.
        if length > CONTENT_BYTES_MAX:
            raise self._corrupt("the length of a chunk is impossible")
        content = file.read(offset + CHUNK_HEAD_BYTES, length)
        # The head holds, so its length is right: the file ends early.
        if len(content) < length:
            raise self._cut()
        found = self._checks.take_apart(number, kind, head, content)
        if found is None:
            raise self._corrupt("the check value of a chunk does not match")
        # Digest and offset advance together, and only here: `offset` names the first bad chunk.
        self._digest.update(head)
        self._digest.update(content)
        self._number += 1
        self.offset = offset + CHUNK_HEAD_BYTES + length
        return kind, found

    def _decoded(self, content: bytes, kind: type[_Decoded]) -> _Decoded:
        try:
            return msgspec.msgpack.decode(content, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._corrupt(f"a chunk cannot be decoded: {error}") from None

    def _cut(self) -> BackupCut:
        return BackupCut(
            f"the file is truncated: its last complete chunk ends at byte {self.offset} of"
            f" {self._size}",
            offset=self.offset,
        )

    def _corrupt(self, what: str, offset: int | None = None) -> BackupCorrupt:
        at = self.offset if offset is None else offset
        return BackupCorrupt(f"it is damaged at byte {at}: {what}", offset=at)


PAIR_LENGTHS: Final = Struct(">II")
"""Header of each pair in the stream of a snapshot or state image: bytes of key and of value."""


def pack_pairs(pairs: list[Pair]) -> bytes:
    """Encode pairs for the stream."""
    pack = PAIR_LENGTHS.pack
    parts: list[bytes] = []
    for key, value in pairs:
        parts += (pack(len(key), len(value)), key, value)
    return b"".join(parts)


def decode_pairs(data: bytes) -> tuple[list[Pair], int, int]:
    """Decode the whole pairs of a part of the stream.

    Return the pairs, the offset behind them, and the bytes that the next pair needs from there, as
    far as known.
    """
    pairs: list[Pair] = []
    at, size, unpack = 0, len(data), PAIR_LENGTHS.unpack_from
    while at + PAIR_LENGTHS.size <= size:
        key_bytes, value_bytes = unpack(data, at)
        begins = at + PAIR_LENGTHS.size
        middle = begins + key_bytes
        end = middle + value_bytes
        # The stream is cut anywhere: the rest of this pair comes with the next part.
        if end > size:
            return pairs, at, end - at
        pairs.append((data[begins:middle], data[middle:end]))
        at = end
    return pairs, at, PAIR_LENGTHS.size
