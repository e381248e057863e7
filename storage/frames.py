"""The bytes of the log: segment headers and frames. Pure functions; the files are log.py's.

All integers are big-endian and unsigned.

    segment header, 104 bytes                      frame header, 60 bytes, then the body
    ┌────────┬────┬──────────────────────────┐     ┌────────┬────┬─────────────────────────────┐
    │ offset │ n  │                          │     │ offset │ n  │                             │
    ├────────┼────┼──────────────────────────┤     ├────────┼────┼─────────────────────────────┤
    │      0 │  8 │ magic "STORELOG"         │     │      0 │  4 │ length of the body          │
    │      8 │  2 │ format                   │     │      4 │  4 │ head check                  │
    │     10 │  2 │ range                    │     │      8 │  8 │ checksum                    │
    │     12 │  4 │ flags                    │     │     16 │  8 │ sequence                    │
    │     16 │ 16 │ store id                 │     │     24 │  8 │ epoch                       │
    │     32 │  8 │ salt                     │     │     32 │  8 │ durable up to               │
    │     40 │  8 │ first sequence           │     │     40 │  8 │ released up to              │
    │     48 │  8 │ epoch                    │     │     48 │  8 │ log time, µs since 1970     │
    │     56 │  8 │ log time when begun      │     │     56 │  4 │ flags                       │
    │     64 │  8 │ checksum of the 64 above │     │     60 │  … │ body                        │
    │     72 │ 16 │ digest before the first  │     └────────┴────┴─────────────────────────────┘
    │     88 │  8 │ released up to           │
    │     96 │  8 │ checksum of the 96 above │
    └────────┴────┴──────────────────────────┘

In a sealed store the header goes on behind these, its format is 5, and each body is sealed:

    segment header, on from 104                    body of a frame
    ┌────────┬────┬──────────────────────────┐     ┌────────┬────┬─────────────────────────────┐
    │ offset │ n  │                          │     │ offset │ n  │                             │
    ├────────┼────┼──────────────────────────┤     ├────────┼────┼─────────────────────────────┤
    │    104 │ 16 │ key id                   │     │      0 │  8 │ count of the seal, from 1   │
    │    120 │ 32 │ salt of the key          │     │      8 │  … │ what was sealed             │
    │    152 │ 16 │ tag of the 152 above     │     │      … │ 16 │ tag                         │
    └────────┴────┴──────────────────────────┘     └────────┴────┴─────────────────────────────┘

Key, nonce and tag are AES-256-GCM's (`sealing.FrameSealer`); the tag of the header is that of seal
0. With a body are sealed store id and first sequence of its segment, its length, and bytes 16–60 of
its frame. The counts of a segment have no gaps. Marks have a body then too, of a seal alone. Length
and checks are those of what stands there, so torn bytes are told from whole ones without the key;
what is whole and does not open was not written by this store, and no crash makes it.

The salt is random and new for each segment, and both checks of a frame depend on it: what a user
stores can't pass for a frame, nor can a frame of another segment, nor one left in a disk block
that this segment was given later.

- checksum: blake2b, 8 bytes, keyed with the salt, over bytes 16 to the end of the body. It settles
  the length too: with another length other bytes would have been summed.
- head check: CRC-32 of bytes 16–60 and the length, started from the salt. It proves nothing; it
  lets a search for frames in damaged bytes drop an impostor without summing a body of megabytes.

`durable up to` is the highest sequence that was known to be on the disk when the frame was
encoded. Found behind a damaged frame s with a value ≥ s, it proves that s had been acknowledged.
It is this disk's own number. `released up to` is the leader's: the highest sequence that anybody
had been shown then. A node that runs alone has shown no more than what was durable.

The digest of a frame names the history that ends with it: blake2b, 16 bytes, over sequence, epoch,
time, flags and body. Neither the salt nor the two numbers above are in it, so a frame keeps it when
a recovery copies it to another segment. Each segment carries the digest of the frame before its
first (zeros when there is none), and the state that of the last frame it holds (lineage.py).

A mark is a frame without a body and without a sequence of its own: it carries the last sequence
before it, and says that all up to there is durable. One is written when the log falls idle, and
one, flagged CLEAN, at a clean close.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from protocol.doors import File, Rng
from protocol.errors import WrongKey
from protocol.limits import KIB, MIB, TRANSACTION_BYTES
from storage.sealing import FRAME_SEAL_BYTES, KEY_ID_BYTES, TAG_BYTES, FrameSealer, Key
from storage.sealing import SALT_BYTES as KEY_SALT_BYTES

MAGIC: Final = b"STORELOG"
FORMAT: Final = 4
"""1 had neither digest nor `released up to`; it is refused, never read as this one."""
SEALED_FORMAT: Final = 5
"""The same, sealed."""
READ: Final = frozenset({2, 3, FORMAT, SEALED_FORMAT})
"""Formats that are read. The frames of 2 have no entries for the statement log; those of 2 and 3
say what indexes hold, which those of 4 leave to whoever reads them (derived.py)."""
SALT_BYTES: Final = 8
STORE_RANGE: Final = 1
"""The one range of today, named `store`."""

COPIED: Final = 1
"""Segment flag: begins with frames copied from the end of the segment before it, by a recovery."""
NEW_EPOCH: Final = 2
"""Segment flag: its first frame is of a new epoch, the next one. A restore ended before it."""

MARK: Final = 1
"""Frame flag: a mark."""
CLEAN: Final = 2
"""Frame flag of a mark: the log was closed here."""
LOG_FLAGS: Final = 0xFF
"""Flags that belong to the log. The others are the writer's, and come back as they were given."""

BODY_BYTES_MAX: Final = TRANSACTION_BYTES + 16 * MIB
"""A transaction's effects and what their encoding adds."""
LENGTH_MAX: Final = BODY_BYTES_MAX + FRAME_SEAL_BYTES
"""A longer length field is damage."""

_SEGMENT: Final = Struct(">8sHHI16s8sQQQ")
_JOINED: Final = Struct(">16sQ")
_PREFIX: Final = Struct(">II8s")
_COVERED: Final = Struct(">QQQQQI")
_WORD: Final = Struct(">I")
_DIGESTED: Final = Struct(">QQQI")
_SEAL: Final = Struct(f">{KEY_ID_BYTES}s{KEY_SALT_BYTES}s{TAG_BYTES}s")
_NAMED: Final = Struct(">16sQ")

CHECKSUM_BYTES: Final = 8
DIGEST_BYTES: Final = 16
NO_DIGEST: Final = bytes(DIGEST_BYTES)
"""Where the log begins there is no frame before."""
SEGMENT_HEADER_BYTES: Final = 104
SEALED_HEADER_BYTES: Final = 168
FRAME_HEADER_BYTES: Final = 60
_LASTING_BYTES: Final = 72
"""What every format begins with: so damage is not taken for the past or the future."""
_PREFIX_BYTES: Final = 16
_SEQUENCE_AT: Final = 16

assert _SEGMENT.size + CHECKSUM_BYTES == _LASTING_BYTES
assert _LASTING_BYTES + _JOINED.size + CHECKSUM_BYTES == SEGMENT_HEADER_BYTES
assert SEGMENT_HEADER_BYTES + _SEAL.size == SEALED_HEADER_BYTES
assert _PREFIX.size == _PREFIX_BYTES == _SEQUENCE_AT
assert _PREFIX.size + _COVERED.size == FRAME_HEADER_BYTES

_WINDOW_BYTES: Final = MIB
"""Read from a segment at a time, at most …"""
_FIRST_BYTES: Final = 4 * KIB
"""… and at first: whoever wants one frame must not pay for a megabyte."""
_GROWTH: Final = 4


class Frame(NamedTuple):
    """One durable entry of the log."""

    sequence: int
    epoch: int
    time: int
    """Log time, microseconds since 1970."""
    flags: int
    body: bytes

    def digest(self) -> bytes:
        """What names the history that ends with this frame; the same on every node that has it."""
        sequence, epoch, time, flags, body = self
        found = blake2b(_DIGESTED.pack(sequence, epoch, time, flags), digest_size=DIGEST_BYTES)
        found.update(body)
        return found.digest()


class HeaderSeal(NamedTuple):
    """What the header of a sealed segment says of its key."""

    key_id: bytes
    salt: bytes
    tag: bytes


class BadHeader(ValueError):
    """Not the header of a segment; the text says why."""


class OtherFormat(ValueError):
    """The header of a segment in a format that another version wrote.

    :param form: its number
    """

    def __init__(self, form: int) -> None:
        super().__init__(f"log format {form}; this version reads {min(READ)} to {max(READ)}")
        self.newer = form > max(READ)


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What stands at the beginning of a segment."""

    store_id: bytes
    """16 bytes."""
    salt: bytes
    first: int
    """Sequence of the first frame, written or still to come."""
    epoch: int
    """Epoch of the frame before the first, or of the first when there is none before."""
    time: int
    """Log time when the segment was begun: no frame before it is later."""
    range: int = STORE_RANGE
    flags: int = 0
    joins: bytes = NO_DIGEST
    """Digest of the frame before the first."""
    released: int = 0
    """The highest sequence known to have been released when the segment was begun."""
    form: int = field(default_factory=lambda: FORMAT)
    """The format of its frames."""
    seal: HeaderSeal | None = None
    """None: it is not sealed."""

    @property
    def size(self) -> int:
        """Bytes of it in its file."""
        return SEGMENT_HEADER_BYTES if self.seal is None else SEALED_HEADER_BYTES

    @property
    def is_of_this_format(self) -> bool:
        """Whether frames may follow those that it has: older readers know no others."""
        return self.form in (FORMAT, SEALED_FORMAT)

    def encode(self) -> bytes:
        """Its bytes, `size` of them."""
        head = _SEGMENT.pack(
            MAGIC,
            self.form,
            self.range,
            self.flags,
            self.store_id,
            self.salt,
            self.first,
            self.epoch,
            self.time,
        )
        lasting = head + _sum(head)
        joined = lasting + _JOINED.pack(self.joins, self.released)
        whole = joined + _sum(joined)
        return whole if self.seal is None else whole + _SEAL.pack(*self.seal)

    @classmethod
    def decode(cls, data: bytes) -> SegmentHeader:
        """Read a header back.

        :raises BadHeader: cut, damaged, or not a segment at all
        :raises OtherFormat: a segment, in a format this version does not read
        """
        if len(data) < _LASTING_BYTES:
            raise BadHeader(f"a segment header has {SEGMENT_HEADER_BYTES} bytes, not {len(data)}")
        head = data[: _SEGMENT.size]
        magic, form, reach, flags, store_id, salt, first, epoch, time = _SEGMENT.unpack(head)
        if magic != MAGIC:
            raise BadHeader("it does not begin as a segment does")
        if _sum(head) != data[_SEGMENT.size : _LASTING_BYTES]:
            raise BadHeader("the checksum of the segment header does not match")
        if form not in READ:
            raise OtherFormat(form)
        end = SEGMENT_HEADER_BYTES - CHECKSUM_BYTES
        if _sum(data[:end]) != data[end:SEGMENT_HEADER_BYTES]:
            raise BadHeader("the checksum of the segment header does not match")
        joins, released = _JOINED.unpack_from(data, _LASTING_BYTES)
        seal = None
        if form == SEALED_FORMAT:
            if len(data) < SEALED_HEADER_BYTES:
                raise BadHeader(f"a sealed header has {SEALED_HEADER_BYTES} bytes, not {len(data)}")
            seal = HeaderSeal(*_SEAL.unpack_from(data, SEGMENT_HEADER_BYTES))
        return cls(store_id, salt, first, epoch, time, reach, flags, joins, released, form, seal)


def _sum(data: bytes) -> bytes:
    return blake2b(data, digest_size=CHECKSUM_BYTES).digest()


def begin(header: SegmentHeader, key: Key | None, rng: Rng) -> tuple[SegmentHeader, FrameCodec]:
    """A new segment: its header, and what encodes its frames.

    :param header: as it is in clear
    :param key: what it is sealed with; None: it is not
    """
    if key is None:
        return header, FrameCodec(header.salt)
    salt = rng.bytes(KEY_SALT_BYTES)
    sealer = FrameSealer(key, salt, _named(header), count=0)
    seal = HeaderSeal(key.id, salt, b"")
    untold = replace(header, form=SEALED_FORMAT, seal=seal)
    tag = sealer.seal(b"", _covered(untold))[-TAG_BYTES:]
    told = replace(untold, seal=seal._replace(tag=tag))
    return told, FrameCodec(header.salt, sealer)


def opened(header: SegmentHeader, key: Key | None) -> FrameCodec:
    """What reads the frames of a segment.

    :param key: what the store is sealed with; None: it is not
    :raises WrongKey: it is sealed, and not with this key
    :raises BadHeader: its tag does not match, or it is not sealed and the store is
    """
    seal = header.seal
    if seal is None:
        if key is not None:
            raise BadHeader("it is in clear, and the store is sealed")
        return FrameCodec(header.salt)
    if key is None or key.id != seal.key_id:
        given = "no key was given" if key is None else f"this is key {key.id.hex()}"
        raise WrongKey(f"the log is sealed with key {seal.key_id.hex()}, and {given}")
    sealer = FrameSealer(key, seal.salt, _named(header))
    first = bytes(FRAME_SEAL_BYTES - TAG_BYTES)
    if sealer.open(first + seal.tag, _covered(header)) is None:
        raise BadHeader("the tag of the segment header does not match")
    return FrameCodec(header.salt, sealer)


def _named(header: SegmentHeader) -> bytes:
    return _NAMED.pack(header.store_id, header.first)


def _covered(header: SegmentHeader) -> bytes:
    """What the tag of a header is of."""
    return header.encode()[: SEALED_HEADER_BYTES - TAG_BYTES]


class FrameCodec:
    """Encodes and checks the frames of one segment.

    :param sealer: seals and opens their bodies; None: they are in clear
    """

    __slots__ = ("_crc_start", "_seeded", "sealer")

    def __init__(self, salt: bytes, sealer: FrameSealer | None = None) -> None:
        # Copying a keyed hash is cheaper than keying a new one, and this runs for each frame.
        self._seeded = blake2b(digest_size=CHECKSUM_BYTES, key=salt)
        self._crc_start = crc32(salt)
        self.sealer = sealer

    def encode(self, frame: Frame, durable_upto: int, released: int) -> bytes:
        """The bytes of a frame."""
        sequence, epoch, time, flags, body = frame
        covered = _COVERED.pack(sequence, epoch, durable_upto, released, time, flags)
        if self.sealer is not None:
            body = self.sealer.seal(body, _WORD.pack(len(body) + FRAME_SEAL_BYTES) + covered)
        length = len(body)
        digest = self._seeded.copy()
        digest.update(covered)
        digest.update(body)
        check = crc32(_WORD.pack(length), crc32(covered, self._crc_start))
        return _PREFIX.pack(length, check, digest.digest()) + covered + body

    def head_holds(self, data: bytes, at: int) -> bool:
        """Whether the 60 bytes of `data` from `at` pass the head check."""
        check = crc32(data[at + _PREFIX_BYTES : at + FRAME_HEADER_BYTES], self._crc_start)
        return data[at + 4 : at + 8] == _WORD.pack(crc32(data[at : at + 4], check))

    def body_holds(self, covered: bytes, body: bytes, checksum: bytes) -> bool:
        """Whether the checksum is that of these bytes."""
        digest = self._seeded.copy()
        digest.update(covered)
        digest.update(body)
        return digest.digest() == checksum


class Placed(NamedTuple):
    """A frame as it was found in a segment."""

    frame: Frame
    durable_upto: int
    released: int
    offset: int
    """Byte offset of its header."""


class Source(Protocol):
    """What frames are read from: a file, or what can be read like one."""

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer at the end."""


class Walk:
    """Reads the frames of a segment in order, checking every byte of each.

    Iteration ends at `end`, or at the first bad frame; then `bad` says what is wrong with it.
    `offset` is where the next frame begins, or the bad one; `forged`, that it is whole and was not
    written by this store.

    :param end: byte offset where the frames end
    """

    def __init__(self, file: Source, codec: FrameCodec, offset: int, end: int) -> None:
        self._file = file
        self._codec = codec
        self._end = end
        self._window = b""
        self._start = offset
        self._step = _FIRST_BYTES
        self.offset = offset
        self.bad: str | None = None
        self.forged = False

    def heads(self, sequence: int) -> Iterator[tuple[int, int, int]]:
        """Walk to the frame of a sequence by the heads of those before it: sequence, flags and
        offset of each. Of their bodies nothing is read, or said."""
        end, codec = self._end, self._codec
        while self.offset < end:
            offset = self.offset
            window, at = self._window, offset - self._start
            if len(window) - at < FRAME_HEADER_BYTES:
                window, at = self._read(offset, 0), 0
                if len(window) < FRAME_HEADER_BYTES:
                    self.bad = "the file ends inside the header of a frame"
                    return
            [length] = _WORD.unpack_from(window, at)
            size = FRAME_HEADER_BYTES + length
            if not codec.head_holds(window, at) or length > LENGTH_MAX:
                self.bad = "the head check of the frame does not match"
                return
            if offset + size > end:
                self.bad = "the file ends inside the frame"
                return
            found, _, _, _, _, flags = _COVERED.unpack_from(window, at + _PREFIX_BYTES)
            if found >= sequence and not flags & MARK:
                return
            self.offset = offset + size
            if size >= _FIRST_BYTES:
                self._step = _FIRST_BYTES  # what is read behind a head is mostly body
            yield found, flags, offset

    def __iter__(self) -> Iterator[Placed]:
        window, start = self._window, self._start
        end, codec, file = self._end, self._codec, self._file
        seeded, sealer, seals = codec._seeded, codec.sealer, None
        while self.offset < end:
            offset = self.offset
            at = offset - start
            if len(window) - at < FRAME_HEADER_BYTES:
                window, start, at = self._read(offset, 0), offset, 0
                if len(window) < FRAME_HEADER_BYTES:
                    self.bad = "the file ends inside the header of a frame"
                    return
            length, _, checksum = _PREFIX.unpack_from(window, at)
            size = FRAME_HEADER_BYTES + length
            if length > LENGTH_MAX:
                self.bad = "the length of the frame is impossible"
                return
            if offset + size > end:
                self.bad = "the file ends inside the frame"
                return
            if len(window) - at < size <= _WINDOW_BYTES:
                window, start, at = self._read(offset, size), offset, 0
                if len(window) < size:
                    self.bad = "the file ends inside the frame"
                    return
            covered_at, body_at = at + _PREFIX_BYTES, at + FRAME_HEADER_BYTES
            if size <= _WINDOW_BYTES:
                body = window[body_at : at + size]
            else:  # by itself: to copy megabytes out of a window holds up every other thread
                body = file.read(offset + FRAME_HEADER_BYTES, length)
                if len(body) < length:
                    self.bad = "the file ends inside the frame"
                    return
            digest = seeded.copy()
            digest.update(window[covered_at:body_at])
            digest.update(body)
            if digest.digest() != checksum or not codec.head_holds(window, at):
                self.bad = "the checksum of the frame does not match"
                return
            if sealer is not None:
                beside = window[at : at + _WORD.size] + window[covered_at:body_at]
                found = sealer.open(body, beside)
                if found is None or (seals is not None and found[0] != seals + 1):
                    self.bad, self.forged = "the frame is not what was sealed here", True
                    return
                seals, body = found
            fields = _COVERED.unpack_from(window, covered_at)
            sequence, epoch, durable, released, time, flags = fields
            self.offset = offset + size
            yield Placed(Frame(sequence, epoch, time, flags, body), durable, released, offset)

    def _read(self, offset: int, least: int) -> bytes:
        """Read on, each time more."""
        count = max(least, min(self._step, self._end - offset))
        self._step = min(self._step * _GROWTH, _WINDOW_BYTES)
        self._window, self._start = self._file.read(offset, count), offset
        return self._window


def end_of_content(file: File, offset: int, end: int) -> int:
    """Where zeros begin that reach to `end`: `offset` when there is nothing else behind it."""
    while end > offset:
        start = max(offset, end - _WINDOW_BYTES)
        content = file.read(start, end - start).rstrip(b"\0")
        if content:
            return start + len(content)
        end = start
    return offset


def find_proof(file: File, codec: FrameCodec, offset: int, end: int, sequence: int) -> int | None:
    """Look for a valid frame, at any byte from `offset` on, that says `sequence` was durable.

    :returns: the offset of the first one, or None when nothing here shows that `sequence` had been
        acknowledged
    """
    most = sequence + (end - offset) // FRAME_HEADER_BYTES + 1
    # Both numbers of a frame that matters lie in sequence..most, so their leading bytes are known.
    low, high = sequence.to_bytes(8, "big"), most.to_bytes(8, "big")
    shared = next((i for i in range(8) if low[i] != high[i]), 8)
    lead = re.escape(low[:shared]) + b".{%d}" % (8 - shared)
    likely = re.compile(b"(?!\0{8})" + lead + b".{8}" + lead, re.DOTALL)
    start = offset
    while start + FRAME_HEADER_BYTES <= end:
        window = file.read(start, min(_WINDOW_BYTES, end - start))
        if len(window) < FRAME_HEADER_BYTES:
            return None
        search_from = _SEQUENCE_AT
        while (match := likely.search(window, search_from)) is not None:
            search_from = match.start() + 1
            at = match.start() - _SEQUENCE_AT
            if at + FRAME_HEADER_BYTES > len(window):
                break
            length, _, checksum = _PREFIX.unpack_from(window, at)
            covered = window[at + _PREFIX_BYTES : at + FRAME_HEADER_BYTES]
            found, _, durable, _, _, _ = _COVERED.unpack(covered)
            if not (
                sequence <= durable <= found <= most
                and start + at + FRAME_HEADER_BYTES + length <= end
                and codec.head_holds(window, at)
            ):
                continue
            body = file.read(start + at + FRAME_HEADER_BYTES, length)
            if codec.body_holds(covered, body, checksum):
                return start + at
        # Overlap: a header that straddles two windows is whole in the next one.
        start += max(1, len(window) - FRAME_HEADER_BYTES + 1)
    return None
