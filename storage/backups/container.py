"""The bytes of a backup file: one container for snapshot and log, in clear or sealed,
for a script that is sealed, and for the image that a sealed store has of its state.

All integers are big-endian and unsigned.

    header, 72 bytes                               chunk: head of 32 bytes, then the content
    ┌────────┬────┬──────────────────────────┐     ┌────────┬────┬─────────────────────────────┐
    │ offset │ n  │                          │     │ offset │ n  │                             │
    ├────────┼────┼──────────────────────────┤     ├────────┼────┼─────────────────────────────┤
    │      0 │  8 │ magic: forms.py          │     │      0 │  4 │ length of the content       │
    │      8 │  2 │ format                   │     │      4 │  4 │ number, from 0              │
    │     10 │  2 │ flags                    │     │      8 │  1 │ kind                        │
    │     12 │  4 │ zeros                    │     │      9 │  3 │ zeros                       │
    │     16 │ 16 │ key id, or zeros         │     │     12 │  4 │ head check                  │
    │     32 │ 32 │ salt                     │     │     16 │ 16 │ check, or tag               │
    │     64 │  8 │ checksum of the 64 above │     │     32 │  … │ content                     │
    └────────┴────┴──────────────────────────┘     └────────┴────┴─────────────────────────────┘

Chunk 0 is of the kind FACTS, those after it of the kind DATA, each but the last of these with
`CHUNK_BYTES` of content, and the last chunk of the file of the kind END: count, bytes, and SHA-256
of everything before it. Together the contents of DATA are one stream, which chunks cut anywhere.

- check: blake2b, 16 bytes, keyed with the salt, over bytes 0–12 of the head and the content. Number
  and salt are in it, so a chunk is good in its place in its file only.
- tag: that of AES-256-GCM, where the file is sealed; the content then is what `sealing.py` makes of
  it, and nothing of the store is in clear.
- head check: CRC-32 of bytes 0–12, started from the salt. It lets a damaged length be told from a
  file that ends early.

A file that ends before its END is *cut*; one that holds anything else than what was written, or
something behind its END, is *corrupt*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b, sha256
from struct import Struct
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from protocol.doors import File, Rng
from protocol.errors import BackupCorrupt, BackupCut, WrongKey
from protocol.limits import MIB
from storage import state_hash
from storage.backups.facts import End, LogFacts, ScriptFacts, SnapshotFacts, StateFacts
from storage.backups.forms import MAGIC, Form
from storage.faults import StoreTooNew
from storage.sealing import KEY_ID_BYTES, NO_KEY, SALT_BYTES, TAG_BYTES, Key, Sealer

FORMAT: Final = 1
SEALED: Final = 1
"""Header flag: the chunks are sealed."""
CHUNK_BYTES: Final = MIB
"""Content of a chunk of DATA."""
CONTENT_BYTES_MAX: Final = MIB
"""Facts and end are far smaller. A longer length is damage."""

FACTS: Final = 0
DATA: Final = 1
END: Final = 2

_HEADER: Final = Struct(f">8sHHI{KEY_ID_BYTES}s{SALT_BYTES}s")
_SUM_BYTES: Final = 8
_HEAD: Final = Struct(">IIB3x")
_WORD: Final = Struct(">I")
CHECK_BYTES: Final = 16
STREAM_DIGEST_BYTES: Final = state_hash.DIGEST_BYTES
HEADER_BYTES: Final = 72
CHUNK_HEAD_BYTES: Final = 32

assert _HEADER.size + _SUM_BYTES == HEADER_BYTES
assert _HEAD.size + _WORD.size + CHECK_BYTES == CHUNK_HEAD_BYTES
assert CHECK_BYTES == TAG_BYTES

Sink = Callable[[bytes], None]
"""Takes the bytes of a file in their order, some at a time."""
AnyFacts = SnapshotFacts | LogFacts | ScriptFacts | StateFacts
Facts = TypeVar("Facts", SnapshotFacts, LogFacts, ScriptFacts, StateFacts)
_Decoded = TypeVar("_Decoded", SnapshotFacts, LogFacts, ScriptFacts, StateFacts, End)


class Header(NamedTuple):
    """What a container begins with."""

    form: Form
    key_id: bytes
    salt: bytes
    sealed: bool

    def encode(self) -> bytes:
        """The 72 bytes."""
        flags = SEALED if self.sealed else 0
        head = _HEADER.pack(MAGIC[self.form], FORMAT, flags, 0, self.key_id, self.salt)
        return head + _sum(head)

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Read a header back.

        :raises BackupCut: the file ends inside it
        :raises BackupCorrupt: it is damaged, or no backup's
        :raises StoreTooNew: a later version wrote it
        """
        form = next((form for form, magic in MAGIC.items() if data.startswith(magic)), None)
        if form is None:
            raise BackupCorrupt("it does not begin as a backup does", offset=0)
        if len(data) < HEADER_BYTES:
            raise BackupCut(f"it ends inside its header, at byte {len(data)}", offset=0)
        head = data[: _HEADER.size]
        if _sum(head) != data[_HEADER.size : HEADER_BYTES]:
            raise BackupCorrupt("the checksum of its header does not match", offset=0)
        _, written, flags, _, key_id, salt = _HEADER.unpack(head)
        if written != FORMAT or flags & ~SEALED:
            raise StoreTooNew(f"the backup has format {written}; this version reads {FORMAT}")
        return cls(form, key_id, salt, bool(flags & SEALED))


def key_for(file: File, keys: Sequence[Key]) -> Key | None:
    """The key that a file was sealed with, or one that it was not; None: it is in clear, or there
    are no keys.

    :raises BackupCut, BackupCorrupt, StoreTooNew: as `Header.decode`
    """
    header = Header.decode(file.read(0, HEADER_BYTES))
    if not header.sealed or not keys:
        return None
    return next((key for key in keys if key.id == header.key_id), keys[0])


def _sum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SUM_BYTES).digest()


def stream_digest() -> blake2b:
    """What sums up a stream."""
    return blake2b(digest_size=STREAM_DIGEST_BYTES)


class _Checks:
    """What chunks of one file are proved with, as the writer makes it and the reader asks it."""

    def __init__(self, header: Header, key: Key | None) -> None:
        self._salt = header.salt
        self._crc_start = crc32(header.salt)
        self._beside = header.encode()
        self._sealer = (
            Sealer(key, header.salt, b"backup " + header.form.encode())
            if header.sealed and key is not None
            else None
        )

    def close_up(self, number: int, kind: int, content: bytes) -> bytes:
        """The bytes of a chunk."""
        head = _HEAD.pack(len(content), number, kind)
        if self._sealer is None:
            check = self._check(head, content)
        else:
            sealed = self._sealer.seal(number, kind == END, content, self._beside + head)
            content, check = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
        return b"".join((head, self._head_check(head), check, content))

    def take_apart(self, number: int, kind: int, head: bytes, content: bytes) -> bytes | None:
        """What was closed up; None: this is not it.

        :param head: all of the chunk's
        """
        covered, check = head[: _HEAD.size], head[_HEAD.size + _WORD.size :]
        if self._sealer is not None:
            return self._sealer.open(number, kind == END, content + check, self._beside + covered)
        return content if self._check(covered, content) == check else None

    def head_holds(self, head: bytes) -> bool:
        """Whether the head of a chunk passes its own check."""
        return head[_HEAD.size : _HEAD.size + _WORD.size] == self._head_check(head[: _HEAD.size])

    def _head_check(self, head: bytes) -> bytes:
        return _WORD.pack(crc32(head, self._crc_start))

    def _check(self, head: bytes, content: bytes) -> bytes:
        digest = blake2b(head, digest_size=CHECK_BYTES, key=self._salt)
        digest.update(content)
        return digest.digest()


class Writer:
    """Writes one container, a chunk at a time. Fit for a thread of its own.

    :param facts: what the file says of itself; its header and these are written at once
    :param sink: takes the bytes of the file
    :param key: what it is sealed with; None: it is not
    """

    def __init__(self, facts: AnyFacts, sink: Sink, rng: Rng, key: Key | None = None) -> None:
        salt = rng.bytes(SALT_BYTES)
        header = Header(Form(facts.form), key.id if key else NO_KEY, salt, key is not None)
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
        """Put something behind what the stream holds."""
        self._stream.update(data)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= CHUNK_BYTES:
            whole = b"".join(self._waiting)
            end = len(whole) - len(whole) % CHUNK_BYTES
            for at in range(0, end, CHUNK_BYTES):
                self._chunk(DATA, whole[at : at + CHUNK_BYTES])
            self._waiting = [whole[end:]]
            self._waiting_bytes = len(whole) - end

    def end(self, items: int, records: int, sequence: int) -> bytes:
        """The stream is complete: close the file. Answers the SHA-256 of all of it."""
        if self._waiting_bytes:
            self._chunk(DATA, b"".join(self._waiting))
        end = End(items, records, sequence, self.size, self._digest.digest(), self._stream.digest())
        self._chunk(END, msgspec.msgpack.encode(end))
        return self._digest.digest()

    def _chunk(self, kind: int, content: bytes) -> None:
        self._put(self._checks.close_up(self._number, kind, content))
        self._number += 1

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self.size += len(data)
        self._sink(data)


class Reader:
    """Reads one container from its beginning, proving every byte of it.

    :param file: stays the caller's to close
    :param key: what it may have been sealed with
    :raises BackupCut, BackupCorrupt: the header is not whole
    :raises WrongKey: it is sealed, and not with this key
    :raises StoreTooNew: a later version wrote it
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
                f"the backup is sealed with key {self.header.key_id.hex()}, and this is"
                f" {key.id.hex()}"
            )
        self._checks = _Checks(self.header, key)
        self._digest = sha256(data)
        self._stream = stream_digest()
        self._number = 0
        self.offset = HEADER_BYTES
        """Where the next chunk begins, or the one that is not whole."""
        self.end: End | None = None
        """Once the file was read to its end."""

    def facts(self, kind: type[Facts]) -> Facts:
        """What the file says of itself; asked first, and once.

        :raises BackupCut, BackupCorrupt: they are not whole
        """
        assert self._number == 0, "facts are read first"
        found, content = self._chunk()
        if found != FACTS:
            raise self._corrupt("no facts stand in the first chunk")
        return self._decoded(content, kind)

    def chunks(self) -> Iterator[bytes]:
        """The stream, a chunk at a time; when it ends, `end` is there and the file was whole.

        :raises BackupCut: the file ends early
        :raises BackupCorrupt: at the chunk that is not what was written
        """
        while self.end is None:
            begun, before = self.offset, self._digest.copy()
            kind, content = self._chunk()
            if kind == DATA:
                self._stream.update(content)
                yield content
                continue
            if kind != END:
                raise self._corrupt("facts stand between the chunks", begun)
            end = self._decoded(content, End)
            sums = before.digest(), self._stream.digest()
            if end.size != begun or (end.sha256, end.stream) != sums:
                raise self._corrupt("its end is not that of what comes before it", begun)
            if self.offset != self._size:
                raise self._corrupt("something follows its end")
            self.end = end

    @property
    def sha256(self) -> bytes:
        """Of what was read so far."""
        return self._digest.digest()

    @property
    def stream(self) -> bytes:
        """As `End.stream`, of what was read so far."""
        return self._stream.digest()

    def unproven(self) -> bytes:
        """What there is of the content of the chunk that is not whole, for who can prove it by
        itself; nothing of a sealed one, nor of one that does not belong there."""
        head = self._file.read(self.offset, CHUNK_HEAD_BYTES)
        if self.header.sealed or len(head) < CHUNK_HEAD_BYTES or not self._checks.head_holds(head):
            return b""
        length, number, kind = _HEAD.unpack_from(head)
        if number != self._number or kind != DATA or length > CONTENT_BYTES_MAX:
            return b""
        return self._file.read(self.offset + CHUNK_HEAD_BYTES, length)

    def _chunk(self) -> tuple[int, bytes]:
        """The next chunk; `offset` moves on when it is good."""
        offset, file = self.offset, self._file
        head = file.read(offset, CHUNK_HEAD_BYTES)
        if len(head) < CHUNK_HEAD_BYTES:
            raise self._cut()
        if not self._checks.head_holds(head):
            raise self._corrupt("the head of a chunk does not match its check")
        length, number, kind = _HEAD.unpack_from(head)
        if number != self._number:
            raise self._corrupt(f"chunk {number} stands in the place of chunk {self._number}")
        if length > CONTENT_BYTES_MAX:
            raise self._corrupt("the length of a chunk is impossible")
        content = file.read(offset + CHUNK_HEAD_BYTES, length)
        if len(content) < length:
            raise self._cut()
        found = self._checks.take_apart(number, kind, head, content)
        if found is None:
            raise self._corrupt("a chunk does not match its check")
        self._digest.update(head)
        self._digest.update(content)
        self._number += 1
        self.offset = offset + CHUNK_HEAD_BYTES + length
        return kind, found

    def _decoded(self, content: bytes, kind: type[_Decoded]) -> _Decoded:
        try:
            return msgspec.msgpack.decode(content, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._corrupt(f"a chunk is not what it should be: {error}") from None

    def _cut(self) -> BackupCut:
        return BackupCut(
            f"it ends early: what is whole of it ends at byte {self.offset} of {self._size}",
            offset=self.offset,
        )

    def _corrupt(self, what: str, offset: int | None = None) -> BackupCorrupt:
        at = self.offset if offset is None else offset
        return BackupCorrupt(f"it is damaged at byte {at}: {what}", offset=at)
