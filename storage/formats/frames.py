"""Frames: the byte format of the write-ahead log. Pure functions; `storage/log/log.py` owns the
files.

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

In a sealed (encrypted) store the format is 5, the header is longer, and each body is sealed:

    segment header, on from 104                    body of a frame
    ┌────────┬────┬──────────────────────────┐     ┌────────┬────┬─────────────────────────────┐
    │ offset │ n  │                          │     │ offset │ n  │                             │
    ├────────┼────┼──────────────────────────┤     ├────────┼────┼─────────────────────────────┤
    │    104 │ 16 │ key id                   │     │      0 │  8 │ count of the seal, from 1   │
    │    120 │ 32 │ salt of the key          │     │      8 │  … │ ciphertext                  │
    │    152 │ 16 │ tag of the 152 above     │     │      … │ 16 │ tag                         │
    └────────┴────┴──────────────────────────┘     └────────┴────┴─────────────────────────────┘

Key, nonce and tag are those of AES-256-GCM (`sealing.FrameSealer`); the tag of the header is seal
0's. Associated data of a body: store id and first sequence of its segment, its length, and bytes
16–60 of its frame. Seal counts within a segment have no gaps. A mark has a body then too: an empty
seal. Length and checks are over the ciphertext, so a torn write is recognized without the key. An
intact frame that fails to decrypt was not written by this store; no crash produces one.

The salt is random and new for each segment, and both checks of a frame depend on it. User data can
therefore not pass for a frame, nor can a frame of another segment or a stale disk block.

- checksum: blake2b, 8 bytes, keyed with the salt, over bytes 16 to the end of the body. It covers
  the length implicitly: another length would have summed other bytes.
- head check: CRC-32 of bytes 16–60 and the length, started from the salt. It proves nothing; it
  lets a search for frames in damaged bytes reject a candidate without hashing a large body.

`durable up to` is this disk's own synced sequence: the highest known to be durable when the frame
was encoded. Found after a damaged frame s with a value ≥ s, it proves that s was acknowledged.
`released up to` is the leader's commit index: the highest sequence visible to any client then. On a
standalone node it is at most the synced sequence.

The digest of a frame identifies the history that ends with it: blake2b, 16 bytes, over sequence,
epoch, time, flags and body. It covers neither the salt nor the two numbers above, so it survives a
recovery that copies the frame to another segment. Each segment stores the digest of the frame
before its first (zeros if there is none), and the state that of its last frame
(`storage/txn/applied_position.py`).

A mark is a frame without a body and without a sequence of its own. It carries the last sequence
before it and says that everything up to there is durable. One is written when the log becomes idle,
and one with the flag CLEAN at a clean close.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from protocol.environment import File, Rng
from protocol.errors import WrongKey
from protocol.limits import KIB, MIB, TRANSACTION_BYTES
from storage.formats.sealing import FRAME_SEAL_BYTES, KEY_ID_BYTES, TAG_BYTES, FrameSealer, Key
from storage.formats.sealing import SALT_BYTES as KEY_SALT_BYTES

MAGIC: Final = b"STORELOG"
FORMAT: Final = 4
"""Log format of a store in clear. Format 1 had neither digest nor `released up to`; it is refused,
never read as this one."""
SEALED_FORMAT: Final = 5
"""Log format of a sealed (encrypted) store."""
READ: Final = frozenset({2, 3, FORMAT, SEALED_FORMAT})
"""Formats that this version reads. Frames of format 2 have no entries for the statement log. Frames
of 2 and 3 contain index entries; from 4 on the reader derives them from records (derived.py)."""
SALT_BYTES: Final = 8
STORE_RANGE: Final = 1
"""Id of the only range, named `store`."""

COPIED: Final = 1
"""Segment flag: begins with frames that a recovery copied from the end of the previous segment."""
NEW_EPOCH: Final = 2
"""Segment flag: its first frame begins the next epoch. A restore ended before it."""

MARK: Final = 1
"""Frame flag: a mark."""
CLEAN: Final = 2
"""Frame flag of a mark: the log was closed cleanly here."""
LOG_FLAGS: Final = 0xFF
"""Flags reserved for the log. The writer may use the others; they are returned unchanged."""

BODY_BYTES_MAX: Final = TRANSACTION_BYTES + 16 * MIB
"""Limit of a transaction's effects, plus the overhead of their encoding."""
LENGTH_MAX: Final = BODY_BYTES_MAX + FRAME_SEAL_BYTES
"""Upper bound of a valid length field. A larger one is damage."""

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
"""Placeholder for the digest before the first frame of the log."""
SEGMENT_HEADER_BYTES: Final = 104
SEALED_HEADER_BYTES: Final = 168
FRAME_HEADER_BYTES: Final = 60
_LASTING_BYTES: Final = 72
"""Size of the header part that all formats share. With its own checksum, it tells a damaged header
from one of another format."""
_PREFIX_BYTES: Final = 16
_SEQUENCE_AT: Final = 16

assert _SEGMENT.size + CHECKSUM_BYTES == _LASTING_BYTES
assert _LASTING_BYTES + _JOINED.size + CHECKSUM_BYTES == SEGMENT_HEADER_BYTES
assert SEGMENT_HEADER_BYTES + _SEAL.size == SEALED_HEADER_BYTES
assert _PREFIX.size == _PREFIX_BYTES == _SEQUENCE_AT
assert _PREFIX.size + _COVERED.size == FRAME_HEADER_BYTES

_WINDOW_BYTES: Final = MIB
"""Largest read from a segment at a time."""
_FIRST_BYTES: Final = 4 * KIB
"""Size of the first read, so that reading a single frame does not cost a megabyte."""
_GROWTH: Final = 4


class Frame(NamedTuple):
    """Log entry: the effects of a commit, or a mark."""

    sequence: int
    epoch: int
    time: int
    """Log time, microseconds since 1970."""
    flags: int
    body: bytes

    def digest(self) -> bytes:
        """Return the digest that identifies the log history ending with this frame; equal on all
        replicas."""
        sequence, epoch, time, flags, body = self
        found = blake2b(_DIGESTED.pack(sequence, epoch, time, flags), digest_size=DIGEST_BYTES)
        found.update(body)
        return found.digest()


class HeaderSeal(NamedTuple):
    """Key fields in the header of a sealed segment."""

    key_id: bytes
    salt: bytes
    tag: bytes


class BadHeader(ValueError):
    """The bytes are not a valid segment header; the message says why."""


class OtherFormat(ValueError):
    """The segment is in a format that this version does not read.

    :param form: the number of that format
    """

    def __init__(self, form: int) -> None:
        super().__init__(f"log format {form}; this version reads {min(READ)} to {max(READ)}")
        self.newer = form > max(READ)


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """Header of a segment."""

    store_id: bytes
    """16 bytes."""
    salt: bytes
    first: int
    """Sequence of the first frame, written or still to come."""
    epoch: int
    """Epoch of the frame before the first; if there is none, of the first."""
    time: int
    """Log time at the creation of the segment, in µs: no earlier frame has a later time."""
    range: int = STORE_RANGE
    flags: int = 0
    joins: bytes = NO_DIGEST
    """Digest of the frame before the first."""
    released: int = 0
    """Commit index known when the segment was created."""
    form: int = field(default_factory=lambda: FORMAT)
    """Log format of its frames."""
    seal: HeaderSeal | None = None
    """Key fields of a sealed segment; None: it is in clear."""

    @property
    def size(self) -> int:
        """Size of the encoded header in bytes."""
        return SEGMENT_HEADER_BYTES if self.seal is None else SEALED_HEADER_BYTES

    @property
    def is_of_this_format(self) -> bool:
        """True if frames may be appended: older readers know only their own format."""
        return self.form in (FORMAT, SEALED_FORMAT)

    def encode(self) -> bytes:
        """Return the encoded header, `size` bytes."""
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
        """Parse a header.

        :raises BadHeader: truncated, damaged, or not a segment
        :raises OtherFormat: a segment in a format that this version does not read
        """
        if len(data) < _LASTING_BYTES:
            raise BadHeader(f"a segment header has {SEGMENT_HEADER_BYTES} bytes, not {len(data)}")
        head = data[: _SEGMENT.size]
        magic, form, reach, flags, store_id, salt, first, epoch, time = _SEGMENT.unpack(head)
        if magic != MAGIC:
            raise BadHeader("the file does not begin with the signature of a segment")
        if _sum(head) != data[_SEGMENT.size : _LASTING_BYTES]:
            raise BadHeader("the checksum of the segment header does not match")
        # After the checksum: damage must not pass for the format of another version.
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
    """Create the header and the frame codec of a new segment.

    :param header: in clear
    :param key: to seal the segment with; None: it stays in clear
    """
    if key is None:
        return header, FrameCodec(header.salt)
    salt = rng.bytes(KEY_SALT_BYTES)
    sealer = FrameSealer(key, salt, _named(header), count=0)
    seal = HeaderSeal(key.id, salt, b"")
    untold = replace(header, form=SEALED_FORMAT, seal=seal)
    # Seal 0 authenticates the header. The seals of frames follow from 1 under the same key.
    tag = sealer.seal(b"", _covered(untold))[-TAG_BYTES:]
    told = replace(untold, seal=seal._replace(tag=tag))
    return told, FrameCodec(header.salt, sealer)


def opened(header: SegmentHeader, key: Key | None) -> FrameCodec:
    """Return the codec for the frames of an existing segment.

    :param key: of the store; None: the store is not sealed
    :raises WrongKey: the segment is sealed with another key
    :raises BadHeader: its tag does not match, or it is in clear in a sealed store
    """
    seal = header.seal
    if seal is None:
        if key is not None:
            # Otherwise a planted segment in clear would be read as the own log of the store.
            raise BadHeader("the segment is not sealed, but the store is")
        return FrameCodec(header.salt)
    if key is None or key.id != seal.key_id:
        given = "and no key was given" if key is None else f"not with the given key {key.id.hex()}"
        raise WrongKey(f"the log is sealed with key {seal.key_id.hex()}, {given}")
    # Without a count, so it can only decrypt: a crash or a truncation may have removed frames
    # whose counts are used up, and a nonce must never be used twice.
    sealer = FrameSealer(key, seal.salt, _named(header))
    first = bytes(FRAME_SEAL_BYTES - TAG_BYTES)
    if sealer.open(first + seal.tag, _covered(header)) is None:
        raise BadHeader("the tag of the segment header does not match")
    return FrameCodec(header.salt, sealer)


def _named(header: SegmentHeader) -> bytes:
    return _NAMED.pack(header.store_id, header.first)


def _covered(header: SegmentHeader) -> bytes:
    """Return the header bytes that the tag authenticates."""
    return header.encode()[: SEALED_HEADER_BYTES - TAG_BYTES]


class FrameCodec:
    """Encodes and checks the frames of one segment.

    :param sealer: encrypts and decrypts their bodies; None: they are in clear
    """

    __slots__ = ("_crc_start", "_seeded", "sealer")

    def __init__(self, salt: bytes, sealer: FrameSealer | None = None) -> None:
        # Copying a keyed hash is cheaper than keying a new one, and this runs for each frame.
        self._seeded = blake2b(digest_size=CHECKSUM_BYTES, key=salt)
        self._crc_start = crc32(salt)
        self.sealer = sealer

    def encode(self, frame: Frame, synced_seq: int, released: int) -> bytes:
        """Encode a frame with its header."""
        sequence, epoch, time, flags, body = frame
        covered = _COVERED.pack(sequence, epoch, synced_seq, released, time, flags)
        if self.sealer is not None:
            # Associated data as a reader finds them: the length in the header is the sealed one.
            body = self.sealer.seal(body, _WORD.pack(len(body) + FRAME_SEAL_BYTES) + covered)
        length = len(body)
        digest = self._seeded.copy()
        digest.update(covered)
        digest.update(body)
        check = crc32(_WORD.pack(length), crc32(covered, self._crc_start))
        return _PREFIX.pack(length, check, digest.digest()) + covered + body

    def head_holds(self, data: bytes, at: int) -> bool:
        """Return True if the 60 bytes of `data` from `at` pass the head check."""
        check = crc32(data[at + _PREFIX_BYTES : at + FRAME_HEADER_BYTES], self._crc_start)
        return data[at + 4 : at + 8] == _WORD.pack(crc32(data[at : at + 4], check))

    def body_holds(self, covered: bytes, body: bytes, checksum: bytes) -> bool:
        """Return True if the checksum matches these bytes."""
        digest = self._seeded.copy()
        digest.update(covered)
        digest.update(body)
        return digest.digest() == checksum


class PlacedFrame(NamedTuple):
    """A frame with its position in a segment."""

    frame: Frame
    synced_seq: int
    released: int
    offset: int
    """Byte offset of its header in the segment."""


class FrameSource(Protocol):
    """Source of frames: a file, or an object that is read like one."""

    def read(self, offset: int, count: int) -> bytes:
        """Read up to `count` bytes from `offset`; fewer at the end."""


class FrameWalker:
    """Sequential reader of a segment's frames that verifies every byte of each.

    Iteration stops at `end` or at the first bad frame; `bad` then holds the reason. `offset` is the
    start of the next or the bad frame. `forged` is True if that frame is intact but was not written
    by this store.

    :param end: byte offset of the end of the frames
    """

    def __init__(self, file: FrameSource, codec: FrameCodec, offset: int, end: int) -> None:
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
        """Seek to the frame of a sequence, reading only frame headers. Yield sequence, flags and
        offset of each frame before it. Bodies are neither read nor verified."""
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
                self.bad = "the checksum of the frame header does not match"
                return
            if offset + size > end:
                self.bad = "the file ends inside the frame"
                return
            found, _, _, _, _, flags = _COVERED.unpack_from(window, at + _PREFIX_BYTES)
            if found >= sequence and not flags & MARK:  # a mark repeats the sequence before it
                return
            self.offset = offset + size
            if size >= _FIRST_BYTES:
                self._step = _FIRST_BYTES  # large frame: a longer read would be mostly body
            yield found, flags, offset

    def __iter__(self) -> Iterator[PlacedFrame]:
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
            if length > LENGTH_MAX:  # before a read: a damaged length may claim gigabytes
                self.bad = "the length of the frame is out of range"
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
            else:  # read apart: slicing megabytes would block every other thread (GIL)
                body = file.read(offset + FRAME_HEADER_BYTES, length)
                if len(body) < length:
                    self.bad = "the file ends inside the frame"
                    return
            digest = seeded.copy()
            digest.update(window[covered_at:body_at])
            digest.update(body)
            # Both: the checksum leaves out the head check, on which a search for proof relies.
            if digest.digest() != checksum or not codec.head_holds(window, at):
                self.bad = "the checksum of the frame does not match"
                return
            if sealer is not None:
                beside = window[at : at + _WORD.size] + window[covered_at:body_at]
                found = sealer.open(body, beside)
                # Seal counts have no gaps: a removed, repeated or moved frame shows here.
                if found is None or (seals is not None and found[0] != seals + 1):
                    self.bad, self.forged = (
                        "the frame was not sealed for this place in the log",
                        True,
                    )
                    return
                seals, body = found
            fields = _COVERED.unpack_from(window, covered_at)
            sequence, epoch, durable, released, time, flags = fields
            # Before the yield: a caller that stops early finds `offset` behind the frame it has.
            self.offset = offset + size
            yield PlacedFrame(Frame(sequence, epoch, time, flags, body), durable, released, offset)

    def _read(self, offset: int, least: int) -> bytes:
        """Refill the window, with a larger read each time."""
        count = max(least, min(self._step, self._end - offset))
        self._step = min(self._step * _GROWTH, _WINDOW_BYTES)
        self._window, self._start = self._file.read(offset, count), offset
        return self._window


def end_of_content(file: File, offset: int, end: int) -> int:
    """Return the offset after the last non-zero byte before `end`; `offset` if there is none."""
    # Backwards: zeros ahead of the end fit one window, while the content may fill a segment.
    while end > offset:
        start = max(offset, end - _WINDOW_BYTES)
        content = file.read(start, end - start).rstrip(b"\0")
        if content:
            return start + len(content)
        end = start
    return offset


def find_proof(file: File, codec: FrameCodec, offset: int, end: int, sequence: int) -> int | None:
    """Search, at every byte from `offset` on, for a valid frame that proves `sequence` was durable.
    This tells damage from a torn write at the end of the log.

    :returns: the offset of the first such frame; None: nothing here shows that `sequence` had been
        acknowledged
    """
    # A frame takes at least a header, so these bytes hold no later sequence.
    most = sequence + (end - offset) // FRAME_HEADER_BYTES + 1
    # In a frame that proves it, both numbers lie in sequence..most: their leading bytes are known.
    low, high = sequence.to_bytes(8, "big"), most.to_bytes(8, "big")
    shared = next((i for i in range(8) if low[i] != high[i]), 8)
    lead = re.escape(low[:shared]) + b".{%d}" % (8 - shared)
    # Sequence 0 is left out: zeros ahead of the end of a log could match at every byte.
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
                break  # the next window has this header whole
            length, _, checksum = _PREFIX.unpack_from(window, at)
            covered = window[at + _PREFIX_BYTES : at + FRAME_HEADER_BYTES]
            found, _, durable, _, _, _ = _COVERED.unpack(covered)
            if not (
                sequence <= durable <= found <= most
                and start + at + FRAME_HEADER_BYTES + length <= end
                and codec.head_holds(window, at)
            ):
                continue
            # The large hash comes last, for the few candidates that pass all other checks.
            body = file.read(start + at + FRAME_HEADER_BYTES, length)
            if codec.body_holds(covered, body, checksum):
                return start + at
        # Overlap: a header that straddles two windows is whole in the next one.
        start += max(1, len(window) - FRAME_HEADER_BYTES + 1)
    return None
