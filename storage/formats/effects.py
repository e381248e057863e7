"""Effects: the changes of a commit, encoded as the body of a frame.

A body is one msgpack array: by · how · statement · reason · effects. An entry for the statement log
or the audit trail follows if one is kept (`storage/audit/trail.py`). An effect is an array too:

| op | then | means |
|---|---|---|
| 1 | key, value | put |
| 2 | key | delete |
| 3 | start, end | delete every key with start <= key < end |
| 4 | key, fields, previous | put a record: the state holds this frame's sequence · fields |
| 5 | key, previous | delete a record |
| 6 | prefix, start, end | entries with this prefix were built from records start to end |

`previous` is the sequence of the commit that changed the record before, or 0 if it did not exist.
Following it backwards yields the record's history. Effects are absolute values, so replay makes no
decisions and is idempotent.

Index entries are not effects: replay derives them from the records (`derived.py`). Op 6 says which
records an index build had visited.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgpack
import msgspec

from protocol import limits
from protocol.values import Tick
from storage.formats import keys
from storage.formats.entries import Body, Entry

PUT: Final = 1
DELETE: Final = 2
DELETE_RANGE: Final = 3
PUT_RECORD: Final = 4
DELETE_RECORD: Final = 5
DERIVE: Final = 6

_SHAPES: Final[dict[int, tuple[type, ...]]] = {
    PUT: (bytes, bytes),
    DELETE: (bytes,),
    DELETE_RANGE: (bytes, bytes),
    PUT_RECORD: (bytes, bytes, int),
    DELETE_RECORD: (bytes, int),
    DERIVE: (bytes, bytes, bytes),
}

Effect = tuple[Any, ...]
"""The op and its arguments, as in the table above."""


class Derive(NamedTuple):
    """Range of records whose entries an index build has written."""

    prefix: bytes
    """Key prefix of the entries."""
    start: bytes
    """Key of the first record."""
    end: bytes
    """End of the range, exclusive."""


_DELETIONS: Final = frozenset({DELETE, DELETE_RANGE, DELETE_RECORD})


class EffectsDamaged(Exception):
    """A frame with a valid checksum has a body that no commit writes."""


class Attribution(msgspec.Struct, frozen=True):
    """Author and origin of a commit: the part of the statement log that travels in the frame."""

    by: str
    """Name of the user."""
    how: str
    """Surface: the protocol the request came by."""
    statement: str | None = None
    """Text of the statement without secrets; None for the node's own changes."""
    reason: str | None = None
    """Caller's REASON clause."""
    entry: Entry | None = None
    """Entry for the statement log or audit trail; None: the commit is only in the log."""


@dataclass(frozen=True, slots=True)
class FrameBody:
    """A decoded frame body."""

    attribution: Attribution
    effects: list[Effect]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Body)


def encode(attribution: Attribution, effects: list[Effect]) -> bytes:
    """Encode the body of a frame."""
    who = attribution
    body: tuple[Any, ...] = (who.by, who.how, who.statement, who.reason, effects)
    return _encoder.encode(body if who.entry is None else (*body, who.entry))


Chunk = tuple[int, bytes]
"""Number of effects, and their concatenated encodings."""


def encode_some(effects: list[Effect]) -> Chunk:
    """Encode a part of a body, for `join`."""
    # Without the head of the array: `join` writes one for all parts.
    return len(effects), _encoder.encode(effects)[len(_array_head(len(effects))) :]


def join(attribution: Attribution, chunks: list[Chunk]) -> bytes:
    """Join encoded parts into the body of a frame; the result equals that of `encode`."""
    who = attribution
    # Without its array head (one byte), which must count effects and entry too.
    head = _encoder.encode((who.by, who.how, who.statement, who.reason))[1:]
    count = sum(some for some, _ in chunks)
    entry = () if who.entry is None else (_encoder.encode(who.entry),)
    parts = (_array_head(5 + len(entry)), head, _array_head(count))
    return b"".join((*parts, *(encoded for _, encoded in chunks), *entry))


def _array_head(count: int) -> bytes:
    if count < 16:
        # Always the shortest form, as the encoder does, so that both ways give the same bytes.
        return bytes((0x90 | count,))
    return (
        b"\xdc" + count.to_bytes(2, "big") if count < 65_536 else b"\xdd" + count.to_bytes(4, "big")
    )


def decode(body: bytes) -> FrameBody:
    """Decode and check a body. :raises EffectsDamaged: no commit writes such a body"""
    try:
        found: Body = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise EffectsDamaged(f"the body of a frame is not a valid commit: {error}") from None
    # msgspec has checked the body around the effects; of these, only that they are arrays.
    for effect in found.effects:
        _check(effect)
    who = Attribution(found.by, found.how, found.statement, found.reason, found.entry)
    return FrameBody(who, found.effects)


LONG_BYTES: Final = 64 * limits.KIB
"""Body size above which decoding runs in steps, so that it does not block the loop or other
threads."""
BEFORE_EFFECTS: Final = 4
EFFECTS_A_STEP: Final = 512
PIECE_BYTES: Final = limits.MIB


def read(body: bytes, tick: Tick) -> tuple[Attribution, Iterator[Any]]:
    """Return the attribution and an iterator of effects, for a reader that needs only a few of
    them.

    :param tick: called now and then while a long body is decoded
    :raises EffectsDamaged: the body is invalid; for a long one, raised by the iterator
    """
    if len(body) <= LONG_BYTES:
        found = decode(body)
        return found.attribution, iter(found.effects)
    steps = decode_in_steps(body, tick)
    return next(steps), steps


def decode_in_steps(body: bytes, tick: Tick) -> Generator[Any, None, Attribution]:
    """Decode a body of megabytes incrementally: yield its `Attribution`, then its effects.

    :param tick: called now and then
    :returns: the attribution with its entry, which follows the effects
    :raises EffectsDamaged: no commit writes such a body
    """
    reader = msgpack.Unpacker(
        max_buffer_size=max(len(body), 1), use_list=False, strict_map_key=False
    )
    take = _BodyFeeder(reader, body, tick).take
    try:
        parts = take(reader.read_array_header)
        who = Attribution(*(take(reader.unpack) for _ in range(BEFORE_EFFECTS)))
        yield who
        for number in range(take(reader.read_array_header)):
            if not number % EFFECTS_A_STEP:
                tick()
            effect = take(reader.unpack)
            _check(effect if type(effect) is tuple else ())
            yield effect
        if parts > BEFORE_EFFECTS + 1:
            entry = msgspec.convert(take(reader.unpack), Entry)
            who = msgspec.structs.replace(who, entry=entry)
        if parts > BEFORE_EFFECTS + 2 or reader.tell() < len(body):
            raise ValueError("it is longer than a commit")
        return who
    except (ValueError, TypeError, msgpack.UnpackException, msgspec.MsgspecError) as error:
        raise EffectsDamaged(f"the body of a frame is not a valid commit: {error}") from None


class _BodyFeeder:
    """Feeds a body to a decoder piece by piece, on demand."""

    def __init__(self, reader: msgpack.Unpacker, body: bytes, tick: Tick) -> None:
        self._reader = reader
        self._body = body
        self._tick = tick
        self._fed = 0

    def take(self, read: Callable[[], Any]) -> Any:
        """Return the result of a decoder call, feeding as needed. :raises OutOfData: the body has
        ended"""
        while True:
            try:
                return read()
            except msgpack.OutOfData:
                # The call is made again, and goes on where the decoder stopped.
                if self._fed == len(self._body):
                    raise
                self._tick()
                piece = self._body[self._fed : self._fed + PIECE_BYTES]
                self._reader.feed(piece)
                self._fed += len(piece)


def _check(effect: Effect) -> None:
    shape = _SHAPES.get(effect[0]) if effect and type(effect[0]) is int else None
    # Exact types: `isinstance` would take a boolean for a sequence.
    if shape is None or tuple(map(type, effect[1:])) != shape:
        raise EffectsDamaged("a commit has an effect of an unknown form")


def only_removes(body: bytes) -> bool:
    """Return True if a commit only deletes and rewrites counters, so that a full disk may accept
    it. False if it is larger than the log reserve, or changes nothing and so frees no space.
    Decodes the body.

    :raises EffectsDamaged: the body is invalid
    """
    if len(body) > limits.LOG_RESERVE_BYTES:
        return False
    effects = decode(body).effects
    return bool(effects) and all(
        effect[0] in _DELETIONS or (effect[0] == PUT and effect[1][keys.TAG_AT] in keys.TALLIES)
        for effect in effects
    )
