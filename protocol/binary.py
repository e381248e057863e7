"""Values as msgpack, in the log, the state and on the wire; lossless for every type.

| extension | type | content |
|---|---|---|
| -1 | datetime | msgpack's own timestamp |
| 1 | decimal | its text, scale kept |
| 2 | duration | signed 64-bit big-endian microseconds |
| 3 | uuid | 16 bytes |
| 4 | record | msgpack array of table and id |
| 5 | none | nothing |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final
from uuid import UUID

import msgpack
import msgspec
from msgspec import UNSET, Raw
from msgspec.msgpack import Ext

from protocol import limits
from protocol.errors import BadRequest, NumberTooLarge, Refusal, TooLarge
from protocol.text import check_name, parse_decimal
from protocol.values import (
    MICROSECOND,
    NONE,
    NoneValue,
    RecordId,
    Tick,
    Value,
    check,
    check_given,
    is_flat,
    is_low,
    moment,
    paced,
    ticking,
)

EXT_DECIMAL: Final = 1
EXT_DURATION: Final = 2
EXT_UUID: Final = 3
EXT_RECORD: Final = 4
EXT_NONE: Final = 5

STEP_BYTES: Final = 64 * limits.KIB
"""Bytes decoded between two ticks: a millisecond or two of work, whatever they contain."""


def _extension(value: Any) -> msgpack.ExtType:
    kind = type(value)
    if kind is RecordId:
        code, content = EXT_RECORD, pack([value.table, value.id])
    elif kind is timedelta:
        return duration(value // MICROSECOND)
    elif kind is UUID:
        code, content = EXT_UUID, value.bytes
    elif kind is Decimal:
        code, content = EXT_DECIMAL, str(value).encode()
    elif kind is NoneValue:
        code, content = EXT_NONE, b""
    else:
        raise TypeError(f"{kind.__name__} is not a value")
    return _made(msgpack.ExtType, (code, content))


_made: Final = tuple.__new__
"""Creates an ExtType without the checks of its own constructor."""


def duration(microseconds: int) -> msgpack.ExtType:
    """Return a duration as `pack` encodes it, directly from microseconds. Building a timedelta only
    to take it apart again was a twentieth of a read by id."""
    return _made(msgpack.ExtType, (EXT_DURATION, microseconds.to_bytes(8, "big", signed=True)))


def pack(value: Any) -> bytes:
    """Encode a checked value as msgpack. Objects keep the order of their fields.

    :raises OverflowError: an integer beyond 64 bits: `values.check` was not called
    """
    # A new packer allocates 256 KiB, which takes longer than packing, so packers are pooled. One
    # in use is not in the pool: records inside a value are packed by another.
    packer = _idle.pop() if _idle else msgpack.Packer(default=_extension, datetime=True)
    packed: bytes = packer.pack(value)
    if len(packed) < PACKED_BYTES_KEPT:
        _idle.append(packer)
    return packed


_idle: Final[list[msgpack.Packer]] = []
PACKED_BYTES_KEPT: Final = 256 * limits.KIB
"""Buffer size above which a packer is not reused."""


class HoldsNone(Exception):
    """The value contains NONE."""


def pack_some(values: Sequence[Any], enough: int) -> list[bytes]:
    """Pack checked values one by one until they take `enough` bytes or more.

    :raises HoldsNone: one of them contains NONE
    """
    links: dict[int, msgpack.ExtType] = {}
    packer = msgpack.Packer(default=partial(_extension_once, links), datetime=True)
    pack, found = packer.pack, []
    for value in values:
        packed = pack(value)
        found.append(packed)
        enough -= len(packed)
        if enough <= 0:
            break
    return found


class EncodedLinks:
    """Record links with their encodings, kept while rows of one request are packed: these share
    links."""

    def __init__(self) -> None:
        self._encoded: dict[int, Ext] = {}
        """By the identity of the links, all of which are in `_held`."""
        self._held: list[RecordId] = []

    def encode(self, links: list[RecordId]) -> list[Ext]:
        """Return the encoding of each link."""
        encoded = self._encoded
        if len(encoded) > LINKS_KEPT:
            encoded.clear()
            self._held.clear()
        identities = list(map(id, links))
        if not encoded.keys() >= set(identities):
            for link in links:
                if id(link) not in encoded:
                    encoded[id(link)] = Ext(EXT_RECORD, pack([link.table, link.id]))
                    self._held.append(link)
        return list(map(encoded.__getitem__, identities))


LINKS_KEPT: Final = 4_096
"""Links beyond which `EncodedLinks` begins anew."""


def pack_columns(columns: dict[str, list[Any]], enough: int, links: EncodedLinks) -> list[bytes]:
    """Pack objects that are given by field, as `pack_some` does.

    :param columns: checked values of each field, at least one; lists of one length. A NONE field is
        absent
    :param links: kept from call to call
    :raises HoldsNone: a value inside one of them contains NONE
    """
    values = [_encodable(column, links) for column in columns.values()]
    found = []
    for row in _rows_of(tuple(columns), values):
        packed = quick_encode(row)
        found.append(packed)
        enough -= len(packed)
        if enough <= 0:
            break
    return found


def _rows_of(names: tuple[str, ...], values: list[Iterable[Any]]) -> Iterator[Any]:
    """Yield what encodes as objects with these fields."""
    if sum(map(len, names)) <= KEPT_NAMES and all(map(fits_slot, names)):
        return map(_kept_slots(names), *values)
    return _objects(names, values)


def _objects(names: tuple[str, ...], values: list[Iterable[Any]]) -> Iterator[dict[str, Any]]:
    for row in zip(*values, strict=True):
        yield {name: value for name, value in zip(names, row, strict=True) if value is not UNSET}


def _encodable(column: list[Any], links: EncodedLinks) -> Iterable[Any]:
    """Return the values of a field as the fast encoder takes them."""
    kinds = set(map(type, column))
    if kinds <= _AS_THEY_ARE:
        return column
    if kinds == _DECIMALS:
        return [Ext(EXT_DECIMAL, str(value).encode()) for value in column]
    if kinds == _RECORDS:
        return links.encode(column)
    packer = msgpack.Packer(default=partial(_extension_once, {}), datetime=True)
    # Not all at once: a value with parts may be as large as a record.
    return map(partial(_encodable_value, packer.pack), column)


def _encodable_value(pack: Callable[[Any], bytes], value: Any) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    return UNSET if value is NONE else Raw(pack(value))


_AS_THEY_ARE: Final = frozenset({str, int, float, bool, bytes, datetime, type(None)})
"""Types of values that the fast encoder encodes as `pack` does."""
_DECIMALS: Final = frozenset({Decimal})
_RECORDS: Final = frozenset({RecordId})


def _extension_once(links: dict[int, msgpack.ExtType], value: object) -> msgpack.ExtType:
    """Encode a value that msgpack has no form for; a record link once.

    :param links: encoded links by the identity of their values, which have to live on
    """
    if isinstance(value, Decimal):
        return _made(msgpack.ExtType, (EXT_DECIMAL, str(value).encode()))
    if not isinstance(value, RecordId):
        return _extension_but_none(value)
    # Rows of one request share their links.
    made = links.get(id(value))
    if made is None:
        made = links[id(value)] = _extension(value)
    return made


def _extension_but_none(value: object) -> msgpack.ExtType:
    if isinstance(value, NoneValue):
        raise HoldsNone
    return _extension(value)


def unpack(data: bytes | memoryview) -> Value:
    """Decode a value that this node wrote itself: no limits are checked."""
    return _decode(data)  # type: ignore[no-any-return]


def unpack_object(data: bytes | memoryview) -> dict[str, Any]:
    """Decode an object that this node packed itself."""
    value = unpack(data)
    assert isinstance(value, dict)
    return value


def unpack_object_in_steps(data: bytes | memoryview, tick: Tick) -> dict[str, Any]:
    """Decode like `unpack_object`. :param tick: called at intervals for a large one"""
    if len(data) <= STEP_BYTES:
        return unpack_object(data)
    unpacker = msgpack.Unpacker(
        ext_hook=decode_extension,
        timestamp=_AS_DATETIMES,
        max_buffer_size=len(data),
        max_array_len=len(data),
        max_map_len=len(data),
    )
    value = _in_steps(_fed(data, unpacker), tick)
    assert isinstance(value, dict)
    return value


def pack_in_steps(value: Any, tick: Tick, add: Callable[[bytes], None]) -> None:
    """Encode like `pack`, and pass the parts to `add` one after the other.

    :param tick: called at intervals
    :raises Exception: any exception of `tick` or `add`, which can so stop the encoding early
    """
    kind = type(value)
    if kind is list:
        add(_headers.pack_array_header(len(value)))
        _pack_items(value, tick, add)
    elif kind is dict and not is_flat(value):
        add(_headers.pack_map_header(len(value)))
        for name, item in paced(value.items(), tick):
            add(pack(name))
            pack_in_steps(item, tick, add)
    else:
        add(pack(value))


def _pack_items(items: list[Any], tick: Tick, add: Callable[[bytes], None]) -> None:
    for start in range(0, len(items), ITEMS_A_STEP):
        tick()
        part = items[start : start + ITEMS_A_STEP]
        if all(map(is_flat, part)):
            add(b"".join(map(pack, part)))
            continue
        for item in part:
            if is_low(item):
                add(pack(item))
            else:
                pack_in_steps(item, tick, add)


_headers: Final = msgpack.Packer(autoreset=True)
ITEMS_A_STEP: Final = 64
"""Items of a list that are encoded between two ticks."""


Check = Callable[[Any, Tick | None], None]
"""Raises if a decoded message contains something that is not a value."""


def unpack_strictly(
    data: bytes | memoryview, tick: Tick | None = None, refuse: Check = check_given
) -> Value:
    """Decode like `foreign.unpack_foreign`, without trying the fast decoders first."""
    size = len(data)
    longest = min(size, limits.ELEMENTS)  # msgpack allocates an array by its declared length
    if size <= STEP_BYTES:
        tick = None
    exact = _may_hold_nanoseconds(data, tick)
    times = _AS_TIMESTAMPS if exact else _AS_DATETIMES
    try:
        if tick is None:
            value = _unpack_whole(data, longest, times)
        else:
            value = _unpack_in_steps(data, longest, times, tick)
        if exact:
            value = _with_datetimes(value, 0, tick)
    except Refusal:
        raise
    except MemoryError:
        raise TooLarge("a message announces more elements than it has bytes for") from None
    except _NO_VALUE as error:
        raise BadRequest(f"not a msgpack value: {error or type(error).__name__}") from None
    refuse(value, tick)
    return value  # type: ignore[no-any-return]


SHORT_BYTES: Final = 4 * limits.KIB
"""Size up to which a message is tried with the fast decoder first."""


class NeedsStrictDecoder(Exception):
    """The fast decoder cannot guarantee the result of the strict one."""


def unpack_short(data: bytes) -> Any:
    """Decode like `foreign.unpack_foreign`, in about half the time, if the message is in the usual
    encoding.

    The fast decoder silently takes the last of two duplicate keys, and truncates datetimes to the
    microsecond. So its result is encoded again: only if that equals the message, nothing was lost.

    :raises NeedsStrictDecoder: it does not, or the message would be refused
    """
    try:
        value = quick_decode(data)
        if quick_encode(value) == data:
            return _settled(value, 0, _EXAMINED if _ODD(data) else _PLAIN)
    except (Refusal, msgspec.MsgspecError, *_NO_VALUE):
        pass
    raise NeedsStrictDecoder


def _settled(value: Any, depth: int, plain: frozenset[type]) -> Any:
    """Return the fast decoder's result with extensions decoded, checked like `values.check` with
    the levels of an envelope counted. Its strings are valid Unicode already.

    :param plain: types of which every value in the message needs neither decoding nor a check
    """
    if isinstance(value, dict):
        "".join(value)  # TypeError if a key is not a string
        if depth >= limits.DEPTH:
            raise NeedsStrictDecoder
        # Most requests have nothing but scalars: one pass in C.
        if plain.issuperset(map(type, value.values())):
            return value
        for name, part in value.items():
            if type(part) not in plain:
                value[name] = _settled(part, depth + 1, plain)
    elif isinstance(value, list):
        if depth >= limits.DEPTH:
            raise NeedsStrictDecoder
        if plain.issuperset(map(type, value)):
            return value
        for at, part in enumerate(value):
            if type(part) not in plain:
                value[at] = _settled(part, depth + 1, plain)
    elif isinstance(value, Ext):
        found = foreign_extension(value.code, bytes(value.data))
        check(found)
        return found
    else:
        check(value)
    return value


_EXAMINED: Final[frozenset[type]] = frozenset({str, bool, bytes, type(None)})
"""Types that need neither decoding nor a check, in any message."""
_PLAIN: Final[frozenset[type]] = _EXAMINED | {int, float}
"""The same in a message without any byte pair of `_ODD`."""
_ODD: Final = re.compile(rb"\xcf|\xcb[\x7f\xff]").search
"""Finds the first bytes of an unsigned integer of 64 bits, which may be too large, and of a float
that may be NaN or infinite. In other places they mean nothing, and only cost a check."""
_NO_VALUE: Final = (
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    msgpack.UnpackException,
)
"""Exceptions of the decoders on invalid bytes."""
quick_decode: Final = msgspec.msgpack.Decoder().decode
quick_encode: Final = msgspec.msgpack.Encoder().encode

_AS_TIMESTAMPS: Final = 0
_AS_DATETIMES: Final = 3
"""Modes of msgpack for timestamps. Its datetimes are truncated to the microsecond; a `Timestamp` is
exact, and is rounded here."""
_NANOSECONDS: Final = (b"\xd7\xff", b"\xc7\x0c\xff")
"""First bytes of timestamps with fractions of a second; these bytes may occur elsewhere too."""


def _may_hold_nanoseconds(data: bytes | memoryview, tick: Tick | None) -> bool:
    if type(data) is bytes and len(data) <= STEP_BYTES:
        return _NANOSECONDS[0] in data or _NANOSECONDS[1] in data
    view = memoryview(data)
    for start in range(0, len(view), STEP_BYTES):
        if start and tick is not None:
            tick()
        # Pieces overlap by two bytes: a mark may cross the boundary.
        piece = bytes(view[start : start + STEP_BYTES + 2])
        if any(mark in piece for mark in _NANOSECONDS):
            return True
    return False


def _with_datetimes(value: Any, depth: int, tick: Tick | None) -> Any:
    """Replace each timestamp in a value by a datetime, in place.

    :raises OverflowError: one is outside the years 1 to 9999
    """
    kind = type(value)
    if kind is msgpack.Timestamp:
        return moment(value.to_unix_nano())
    # Deeper values are left as they are: the check that follows refuses them.
    if depth <= _WITH_ENVELOPE and (kind is list or kind is dict):
        items = enumerate(value) if kind is list else value.items()
        for at, part in ticking(items, len(value), tick):
            if type(part) in _LOOKED_INTO:
                value[at] = _with_datetimes(part, depth + 1, tick)
    return value


_WITH_ENVELOPE: Final = limits.DEPTH + 4
"""Nesting limit of a value plus the levels of its frame: body, parameters and rows."""
_LOOKED_INTO: Final = frozenset({msgpack.Timestamp, list, dict})


def _unpack_whole(data: bytes | memoryview, longest: int, times: int) -> Any:
    return msgpack.unpackb(
        data,
        ext_hook=foreign_extension,
        timestamp=times,
        strict_map_key=True,
        max_array_len=longest,
        max_map_len=longest,
        **_hooks(len(data)),
    )


def _unpack_in_steps(data: bytes | memoryview, longest: int, times: int, tick: Tick) -> Any:
    return _in_steps(_steps(data, longest, times), tick)


def _in_steps(steps: Generator[None, None, Any], tick: Tick) -> Any:
    while True:
        tick()
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def check_counts(data: bytes) -> Iterator[None]:
    """Check, in steps, that `unpack_foreign` would accept a value that this node packed itself.
    :raises TooLarge: it would not
    """
    if len(data) > limits.CONTAINERS:
        yield from _steps(data, min(len(data), limits.ELEMENTS), _AS_TIMESTAMPS)


def _steps(data: bytes | memoryview, longest: int, times: int) -> Generator[None, None, Any]:
    unpacker = msgpack.Unpacker(
        ext_hook=foreign_extension,
        timestamp=times,
        strict_map_key=True,
        max_buffer_size=len(data),
        max_array_len=longest,
        max_map_len=longest,
        **_hooks(len(data)),
    )
    return _fed(data, unpacker)


def _fed(data: bytes | memoryview, unpacker: msgpack.Unpacker) -> Generator[None, None, Any]:
    """The decoder keeps its place in a value that it has only the beginning of."""
    view = memoryview(data)
    for start in range(0, len(view), STEP_BYTES):
        unpacker.feed(view[start : start + STEP_BYTES])
        try:
            value = unpacker.unpack()
        except msgpack.OutOfData:
            yield
            continue
        if unpacker.tell() != len(view):
            raise ValueError("extra bytes after the value")
        return value
    raise ValueError("truncated")


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Build an object, refusing duplicate keys. Of two values with one key, two readers of a
    message may take different ones: then one checks a request that the other does not execute."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadRequest("a map has a duplicate key")
    return found


def _hooks(size: int) -> dict[str, Callable[[Any], Any]]:
    """Return the decoder's hooks for each container, for a message of `size` bytes."""
    if size <= limits.CONTAINERS:  # too short to exceed it; counting costs a call per array
        return _SHORT
    count = _ElementCount()
    return {"object_pairs_hook": count.unique, "list_hook": count.add}


_SHORT: Final[dict[str, Callable[[Any], Any]]] = {"object_pairs_hook": _unique}


class _ElementCount:
    """Counts containers and elements while a message is decoded."""

    __slots__ = ("containers", "elements")

    def __init__(self) -> None:
        self.containers = 0
        self.elements = 0

    def add(self, container: Any) -> Any:
        self.containers += 1
        self.elements += len(container)
        if self.containers > limits.CONTAINERS:
            raise TooLarge(
                f"a message holds at most {limits.CONTAINERS} arrays and objects",
                limit=limits.CONTAINERS,
            )
        if self.elements > limits.ELEMENTS:
            raise TooLarge(
                f"a message holds at most {limits.ELEMENTS} elements", limit=limits.ELEMENTS
            )
        return container

    def unique(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        """Build and count an object."""
        self.add(pairs)
        return _unique(pairs)


def decode_extension(code: int, data: bytes | memoryview) -> Value:
    """Return the checked value of an extension.

    :raises BadRequest: unknown code, or content that does not fit it
    """
    data = bytes(data)
    if code == EXT_RECORD:
        return _record(data)
    if code == EXT_DURATION and len(data) == 8:
        return _duration(data)
    if code == EXT_UUID and len(data) == 16:
        return UUID(bytes=data)
    if code == EXT_DECIMAL:
        return _decimal(data)
    if code == EXT_NONE and not data:
        return NONE
    raise BadRequest(f"msgpack extension {code} of {len(data)} bytes is not a value")


def foreign_extension(code: int, data: bytes | memoryview) -> Value:
    """Decode an extension from an untrusted peer. :raises NameRefused: a record id with an invalid
    table name, which could be stored but never resolved"""
    value = decode_extension(code, data)
    if type(value) is RecordId:
        check_name(value.table, "table")
    return value


def _record(data: bytes) -> RecordId:
    # An id holds no extension but uuids, so decoding never recurses: each level would take
    # 30 KB of C stack, and a frame of 2 KB could crash the process.
    parts = msgpack.unpackb(data, ext_hook=_inside_record, timestamp=3)
    if not isinstance(parts, list) or len(parts) != 2 or not isinstance(parts[0], str):
        raise BadRequest("a record extension holds an array of table and id")
    return RecordId(parts[0], parts[1])


def _inside_record(code: int, data: bytes | memoryview) -> UUID:
    if code != EXT_UUID or len(data) != 16:
        raise BadRequest(
            f"msgpack extension {code} of {len(data)} bytes is not part of a record id"
        )
    return UUID(bytes=bytes(data))


def _duration(data: bytes) -> timedelta:
    try:
        return timedelta(microseconds=int.from_bytes(data, "big", signed=True))
    except OverflowError:
        raise NumberTooLarge("a duration does not fit 64 bits of microseconds") from None


def _decimal(data: bytes) -> Decimal:
    try:
        return parse_decimal(data.decode("ascii"))
    except UnicodeDecodeError:
        raise BadRequest("a decimal extension holds no decimal") from None


_decode: Final = msgspec.msgpack.Decoder(ext_hook=decode_extension).decode

_UNFIT: Final = re.compile(r'[\x00-\x1f\\"]')
"""Characters that msgspec takes in no field name: such a field is read from the decoded object."""


def fits_slot(name: str) -> bool:
    """True if a field of that name can be a slot of `slots`."""
    return _UNFIT.search(name) is None


KEPT_NAMES: Final = 1024
"""Characters of all names up to which a Struct is cached: up to a thousand are, for ever."""


def slots(names: tuple[str, ...]) -> type[msgspec.Struct]:
    """Return a Struct with a slot `f0`, `f1` … for each name; NONE if an object lacks the field."""
    return _slots(names) if sum(map(len, names)) > KEPT_NAMES else _kept_slots(names)


@lru_cache(maxsize=1024)
def _kept_slots(names: tuple[str, ...]) -> type[msgspec.Struct]:
    return _slots(names)


def _slots(names: tuple[str, ...]) -> type[msgspec.Struct]:
    fields = [(f"f{number}", Any, NONE) for number in range(len(names))]
    encoded = {f"f{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Row", fields, rename=encoded, gc=False)


def shape_decoder(shape: type[msgspec.Struct]) -> Callable[[bytes], Any]:
    """Return a decoder for projection: it reads only the fields of `shape` from a packed object,
    and skips the rest without building them. Two fields of nine cost about a tenth of `unpack`."""
    return msgspec.msgpack.Decoder(shape, ext_hook=decode_extension).decode
