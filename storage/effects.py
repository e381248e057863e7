"""What a commit did, as the bytes of a frame's body.

A body is one msgpack array: by · how · statement · reason · effects, and behind them an entry where
the statement log or the audit trail keeps one (`statements.py`). An effect is an array as well:

| op | then | means |
|---|---|---|
| 1 | key, value | put |
| 2 | key | delete |
| 3 | start, end | delete every key with start <= key < end |
| 4 | key, fields, previous | put a record: the state holds this frame's sequence · fields |
| 5 | key, previous | delete a record |
| 6 | prefix, start, end | entries with this prefix were made of the records from start to end |

`previous` is the sequence of the commit that changed the record before this one, 0 when it did not
exist: following it backwards is the record's history. Effects are absolute. Replaying them decides
nothing, and replaying a frame twice gives what replaying it once does.

What indexes hold of records is no effect: it follows from the records, and `derived.py` makes it of
them where frames are replayed. Op 6 tells it which records the build of an index had visited.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgpack
import msgspec

from protocol import limits
from protocol.values import Tick
from storage import keys
from storage.engine import Batch
from storage.entries import Body, Entry

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
"""The op and what follows it in the table above."""


class Derive(NamedTuple):
    """Of which records the build of an index has put the entries."""

    prefix: bytes
    """What the keys of the entries begin with."""
    start: bytes
    """The key of the first record."""
    end: bytes
    """Behind the last."""


SEQUENCE_BYTES: Final = 8
_DELETIONS: Final = frozenset({DELETE, DELETE_RANGE, DELETE_RECORD})


class EffectsDamaged(Exception):
    """A frame whose checksum holds has a body that no commit of ours would write."""


class Attribution(msgspec.Struct, frozen=True):
    """Who changed the store and how: the part of the statement log that travels in the commit."""

    by: str
    """The user's name."""
    how: str
    """The surface."""
    statement: str | None = None
    """The statement's text with secrets taken out; None for what the node does by itself."""
    reason: str | None = None
    """What the caller gave as REASON."""
    entry: Entry | None = None
    """What is kept of it beside that; None: nothing, it stands in the log alone."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A decoded body."""

    attribution: Attribution
    effects: list[Effect]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Body)


def encode(attribution: Attribution, effects: list[Effect]) -> bytes:
    """The body of a frame."""
    who = attribution
    body: tuple[Any, ...] = (who.by, who.how, who.statement, who.reason, effects)
    return _encoder.encode(body if who.entry is None else (*body, who.entry))


Chunk = tuple[int, bytes]
"""How many effects, and their encodings one after the other."""


def encode_some(effects: list[Effect]) -> Chunk:
    """A part of a body, to be joined with others."""
    return len(effects), _encoder.encode(effects)[len(_array_head(len(effects))) :]


def join(attribution: Attribution, chunks: list[Chunk]) -> bytes:
    """The body of a frame, exactly as `encode` makes it of all the effects at once."""
    who = attribution
    head = _encoder.encode((who.by, who.how, who.statement, who.reason))[1:]
    count = sum(some for some, _ in chunks)
    entry = () if who.entry is None else (_encoder.encode(who.entry),)
    parts = (_array_head(5 + len(entry)), head, _array_head(count))
    return b"".join((*parts, *(encoded for _, encoded in chunks), *entry))


def _array_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return (
        b"\xdc" + count.to_bytes(2, "big") if count < 65_536 else b"\xdd" + count.to_bytes(4, "big")
    )


def decode(body: bytes) -> Commit:
    """What a body says, checked in form. :raises EffectsDamaged:"""
    try:
        found: Body = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise EffectsDamaged(f"the body of a frame is no commit: {error}") from None
    for effect in found.effects:
        _check(effect)
    who = Attribution(found.by, found.how, found.statement, found.reason, found.entry)
    return Commit(who, found.effects)


LONG_BYTES: Final = 64 * limits.KIB
"""A longer body is decoded in steps: at once it would hold up the loop, or every other thread."""
BEFORE_EFFECTS: Final = 4
EFFECTS_A_STEP: Final = 512
PIECE_BYTES: Final = limits.MIB


def read(body: bytes, tick: Tick) -> tuple[Attribution, Iterator[Any]]:
    """Who a commit was by, and its effects, as whoever looks for a few of them reads them.

    :param tick: called now and then while a long one is read
    :raises EffectsDamaged: it is no commit; while it is read, where it is long
    """
    if len(body) <= LONG_BYTES:
        found = decode(body)
        return found.attribution, iter(found.effects)
    steps = decode_in_steps(body, tick)
    return next(steps), steps


def decode_in_steps(body: bytes, tick: Tick) -> Generator[Any, None, Attribution]:
    """As `decode`, for a body of megabytes: its `Attribution`, then its effects one by one.

    :param tick: called now and then
    :returns: the attribution with what is kept of it, which stands behind the effects
    :raises EffectsDamaged: at what no commit of ours would write
    """
    reader = msgpack.Unpacker(
        max_buffer_size=max(len(body), 1), use_list=False, strict_map_key=False
    )
    take = _Fed(reader, body, tick).take
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
            return msgspec.structs.replace(who, entry=entry)
        return who
    except (ValueError, TypeError, msgpack.UnpackException, msgspec.MsgspecError) as error:
        raise EffectsDamaged(f"the body of a frame is no commit: {error}") from None


class _Fed:
    """A reader that is given a body piece by piece, as far as it asks for more."""

    def __init__(self, reader: msgpack.Unpacker, body: bytes, tick: Tick) -> None:
        self._reader = reader
        self._body = body
        self._tick = tick
        self._fed = 0

    def take(self, read: Callable[[], Any]) -> Any:
        """What a function of the reader's answers. :raises OutOfData: the body has ended"""
        while True:
            try:
                return read()
            except msgpack.OutOfData:
                if self._fed == len(self._body):
                    raise
                self._tick()
                piece = self._body[self._fed : self._fed + PIECE_BYTES]
                self._reader.feed(piece)
                self._fed += len(piece)


def _check(effect: Effect) -> None:
    shape = _SHAPES.get(effect[0]) if effect and type(effect[0]) is int else None
    if shape is None or tuple(map(type, effect[1:])) != shape:
        raise EffectsDamaged("a commit has an effect of unknown form")


def stamped(key: bytes, value: bytes | None, sequence: int) -> bytes | None:
    """A value of commit `sequence` as the engine is to hold it."""
    if value is None or key[keys.TAG_AT] not in keys.STAMPED:
        return value
    return sequence.to_bytes(SEQUENCE_BYTES, "big") + value[SEQUENCE_BYTES:]


def apply(effects: list[Effect], sequence: int, batch: Batch) -> bool:
    """Add the effects of commit `sequence` to a batch; whether any touched the catalog."""
    stamp = sequence.to_bytes(SEQUENCE_BYTES, "big")
    catalog = False
    for effect in effects:
        op, key = effect[0], effect[1]
        if op == PUT_RECORD:
            batch.put(key, stamp + effect[2])
        elif op == PUT:
            batch.put(key, effect[2])
            catalog = catalog or keys.is_catalog(key)
        elif op == DELETE_RANGE:
            batch.delete_range(key, effect[2])
            catalog = catalog or keys.touches_catalog(key, effect[2])
        else:
            assert op != DERIVE, "what is derived needs more than a batch"
            batch.delete(key)
            catalog = catalog or keys.is_catalog(key)
    return catalog


def only_removes(body: bytes) -> bool:
    """Whether a commit takes away and adds nothing, but for tallies of what is left; False for one
    that is larger than any reserve, and for one that changes nothing: it makes no room. Decodes it:
    for a disk that is full.

    :raises EffectsDamaged: it is no commit
    """
    if len(body) > limits.LOG_RESERVE_BYTES:
        return False
    effects = decode(body).effects
    return bool(effects) and all(
        effect[0] in _DELETIONS or (effect[0] == PUT and effect[1][keys.TAG_AT] in keys.TALLIES)
        for effect in effects
    )
