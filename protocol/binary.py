"""Values as msgpack: what the log, the state and the wire carry, exact for every type.

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
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgpack
import msgspec
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
"""Read between two ticks: a millisecond or two of work, whatever they hold."""


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
"""Makes an ExtType without the questions that its own constructor asks."""


def duration(microseconds: int) -> msgpack.ExtType:
    """What `pack` takes in the place of a duration, for whoever has none yet: to make one, only to
    have it taken apart again, took a twentieth of a read by id."""
    return _made(msgpack.ExtType, (EXT_DURATION, microseconds.to_bytes(8, "big", signed=True)))


def pack(value: Any) -> bytes:
    """A checked value as msgpack. Objects keep the order of their fields.

    :raises OverflowError: an integer beyond 64 bits: `values.check` was not called
    """
    # A new packer makes room of 256 KiB, which takes longer than packing. One that is in use is
    # not in the list: records inside a value are packed by another.
    packer = _idle.pop() if _idle else msgpack.Packer(default=_extension, datetime=True)
    packed: bytes = packer.pack(value)
    if len(packed) < PACKED_BYTES_KEPT:
        _idle.append(packer)
    return packed


_idle: Final[list[msgpack.Packer]] = []
PACKED_BYTES_KEPT: Final = 256 * limits.KIB
"""A packer whose room has grown past this is let go."""


class HoldsNone(Exception):
    """NONE stands in a value."""


def pack_some(values: Iterable[Any], enough: int) -> list[bytes]:
    """As many of some checked values as take `enough` bytes or just more, packed one by one.

    :raises HoldsNone: NONE stands in one of them
    """
    packer = msgpack.Packer(default=_extension_but_none, datetime=True)
    pack, found = packer.pack, []
    for value in values:
        packed = pack(value)
        found.append(packed)
        enough -= len(packed)
        if enough <= 0:
            break
    return found


def _extension_but_none(value: object) -> msgpack.ExtType:
    if isinstance(value, NoneValue):
        raise HoldsNone
    return _extension(value)


def unpack(data: bytes | memoryview) -> Value:
    """One value from msgpack that this node wrote itself: no limits are checked."""
    return _decode(data)  # type: ignore[no-any-return]


def unpack_object(data: bytes | memoryview) -> dict[str, Any]:
    """One object that this node packed itself."""
    value = unpack(data)
    assert isinstance(value, dict)
    return value


def pack_in_steps(value: Any, tick: Tick, add: Callable[[bytes], None]) -> None:
    """As `pack`, in parts handed to `add` one after the other.

    :param tick: called now and then
    :raises Exception: what `tick` and `add` raise: whoever adds up can stop it early
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
"""Refuses a decoded message that holds what is no value."""


def unpack_foreign(
    data: bytes | memoryview, tick: Tick | None = None, refuse: Check = check_given
) -> Value:
    """One value from msgpack that somebody sent.

    :param tick: called now and then while a long one is read; `data` must stay as it is meanwhile
    :param refuse: checks what was decoded. Where the message is an envelope around values, it
        allows for its levels
    :raises BadRequest: not msgpack, trailing bytes, an unknown extension, a key that stands twice
    :raises NameRefused: a link to a record of a table that no name could be
    :raises TooLarge: more elements than `limits.ELEMENTS`, more arrays and objects than
        `limits.CONTAINERS`, found before they are all built
    :raises Refusal: what `refuse` raises
    """
    if len(data) <= SHORT_BYTES:
        try:
            return unpack_short(bytes(data))  # type: ignore[no-any-return]
        except Unsettled:
            pass  # what is wrong with it, if anything, is for the strict decoder to say
    return unpack_strictly(data, tick, refuse)


def unpack_strictly(
    data: bytes | memoryview, tick: Tick | None = None, refuse: Check = check_given
) -> Value:
    """As `unpack_foreign`, of any message."""
    size = len(data)
    longest = min(size, limits.ELEMENTS)  # room for an array is made when its length is read
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
        raise TooLarge("a message claims more elements than there is room for") from None
    except _NO_VALUE as error:
        raise BadRequest(f"not a msgpack value: {error or type(error).__name__}") from None
    refuse(value, tick)
    return value  # type: ignore[no-any-return]


SHORT_BYTES: Final = 4 * limits.KIB
"""Up to this a message is first given to the quick decoder."""


class Unsettled(Exception):
    """The quick decoder can't tell whether a value is what the strict one makes of it."""


def unpack_short(data: bytes) -> Any:
    """As `unpack_foreign`, of a message as nearly everybody sends them, in about half the time.

    The quick decoder takes the last of two values with one key in silence, and cuts a moment to the
    microsecond. But what it has found, packed again, is the message only if nothing was left out.

    :raises Unsettled: so would anything that is to be refused
    """
    try:
        value = _quick_decode(data)
        if _quick_encode(value) == data:
            return _settled(value, 0)
    except (Refusal, msgspec.MsgspecError, *_NO_VALUE):
        pass
    raise Unsettled


def _settled(value: Any, depth: int) -> Any:
    """What the quick decoder has found, with values for extensions, and checked as `values.check`
    does, levels of an envelope counted. Its strings are Unicode already."""
    if isinstance(value, dict):
        "".join(value)  # a TypeError where a key is no string
        if depth >= limits.DEPTH:
            raise Unsettled
        for name, part in value.items():
            # Most parts are strings, or settled as they are.
            if type(part) is not str and not _is_settled(part):
                value[name] = _settled(part, depth + 1)
    elif isinstance(value, list):
        if depth >= limits.DEPTH:
            raise Unsettled
        for at, part in enumerate(value):
            if type(part) is not str and not _is_settled(part):
                value[at] = _settled(part, depth + 1)
    elif isinstance(value, Ext):
        found = _foreign_extension(value.code, bytes(value.data))
        check(found)
        return found
    else:
        check(value)
    return value


def _is_settled(part: Any) -> bool:
    """Whether a part is a scalar that stands for itself. :raises Unsettled: no number, or one of
    more than 64 bits"""
    kind = type(part)
    if kind is int:
        if not _INT_MIN <= part <= _INT_MAX:
            raise Unsettled
        return True
    if kind is float:
        if part - part != 0.0:  # no number, or an infinity
            raise Unsettled
        return True
    return kind is bool or part is None or kind is bytes


_NO_VALUE: Final = (
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    msgpack.UnpackException,
)
"""What decoders raise at bytes that are no value."""
_quick_decode: Final = msgspec.msgpack.Decoder().decode
_quick_encode: Final = msgspec.msgpack.Encoder().encode
_INT_MIN: Final = limits.INT_MIN
_INT_MAX: Final = limits.INT_MAX

_AS_TIMESTAMPS: Final = 0
_AS_DATETIMES: Final = 3
"""What msgpack makes of a timestamp. Its own datetimes are cut to the microsecond; a `Timestamp`
has all of it, and is rounded here."""
_NANOSECONDS: Final = (b"\xd7\xff", b"\xc7\x0c\xff")
"""How timestamps begin that hold parts of a second; the bytes may stand elsewhere too."""


def _may_hold_nanoseconds(data: bytes | memoryview, tick: Tick | None) -> bool:
    if type(data) is bytes and len(data) <= STEP_BYTES:
        return _NANOSECONDS[0] in data or _NANOSECONDS[1] in data
    view = memoryview(data)
    for start in range(0, len(view), STEP_BYTES):
        if start and tick is not None:
            tick()
        # What begins in one piece may end in the next.
        piece = bytes(view[start : start + STEP_BYTES + 2])
        if any(mark in piece for mark in _NANOSECONDS):
            return True
    return False


def _with_datetimes(value: Any, depth: int, tick: Tick | None) -> Any:
    """A value with each timestamp in it made a datetime, in place.

    :raises OverflowError: one lies outside the years 1 to 9999
    """
    kind = type(value)
    if kind is msgpack.Timestamp:
        return moment(value.to_unix_nano())
    # What nests deeper than a value and its envelope is refused as it is, and first.
    if depth <= _WITH_ENVELOPE and (kind is list or kind is dict):
        items = enumerate(value) if kind is list else value.items()
        for at, part in ticking(items, len(value), tick):
            if type(part) in _LOOKED_INTO:
                value[at] = _with_datetimes(part, depth + 1, tick)
    return value


_WITH_ENVELOPE: Final = limits.DEPTH + 4
"""Levels of a frame, its body, its parameters and rows around those of a value."""
_LOOKED_INTO: Final = frozenset({msgpack.Timestamp, list, dict})


def _unpack_whole(data: bytes | memoryview, longest: int, times: int) -> Any:
    return msgpack.unpackb(
        data,
        ext_hook=_foreign_extension,
        timestamp=times,
        strict_map_key=True,
        max_array_len=longest,
        max_map_len=longest,
        **_hooks(len(data)),
    )


def _unpack_in_steps(data: bytes | memoryview, longest: int, times: int, tick: Tick) -> Any:
    steps = _steps(data, longest, times)
    while True:
        tick()
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def check_counts(data: bytes) -> Iterator[None]:
    """Whether a value that this node packed itself could be read again as if somebody had sent it;
    in steps. :raises TooLarge: it holds more than `unpack_foreign` takes"""
    if len(data) > limits.CONTAINERS:
        yield from _steps(data, min(len(data), limits.ELEMENTS), _AS_TIMESTAMPS)


def _steps(data: bytes | memoryview, longest: int, times: int) -> Generator[None, None, Any]:
    """The decoder keeps its place in a value that it has only the beginning of."""
    unpacker = msgpack.Unpacker(
        ext_hook=_foreign_extension,
        timestamp=times,
        strict_map_key=True,
        max_buffer_size=len(data),
        max_array_len=longest,
        max_map_len=longest,
        **_hooks(len(data)),
    )
    view = memoryview(data)
    for start in range(0, len(view), STEP_BYTES):
        unpacker.feed(view[start : start + STEP_BYTES])
        try:
            value = unpacker.unpack()
        except msgpack.OutOfData:
            yield
            continue
        if unpacker.tell() != len(view):
            raise ValueError("there are bytes behind it")
        return value
    raise ValueError("it ends too early")


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """An object of what a message says stands in it. Two readers of one message may each take
    another of two values with one key: what one of them checked is then not what the other does."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadRequest("a key stands twice in a map")
    return found


def _hooks(size: int) -> dict[str, Callable[[Any], Any]]:
    """What the decoder calls for each container of a message of so many bytes."""
    if size <= limits.CONTAINERS:  # there can't be as many: counting costs a call for each array
        return _SHORT
    count = _Count()
    return {"object_pairs_hook": count.unique, "list_hook": count.add}


_SHORT: Final[dict[str, Callable[[Any], Any]]] = {"object_pairs_hook": _unique}


class _Count:
    """Counts what a message is decoded into, while that happens."""

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
        """Count an object."""
        self.add(pairs)
        return _unique(pairs)


def decode_extension(code: int, data: bytes | memoryview) -> Value:
    """The value that an extension carries, checked.

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


def _foreign_extension(code: int, data: bytes | memoryview) -> Value:
    """As `decode_extension`, of what somebody sent. :raises NameRefused: a link into a table that
    there can't be, which would be stored and could never be followed"""
    value = decode_extension(code, data)
    if type(value) is RecordId:
        check_name(value.table, "table")
    return value


def _record(data: bytes) -> RecordId:
    # An id holds no extension but uuids, so decoding never nests into itself: each level would
    # take 30 KB of C stack, and a frame of 2 KB would end the process.
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
"""What msgspec takes in no name: a field with one of these is looked up in the whole object."""


def fits_slot(name: str) -> bool:
    """Whether a field of that name can be a slot of `slots`."""
    return _UNFIT.search(name) is None


KEPT_NAMES: Final = 1024
"""Characters of the names of a Struct that is kept: a thousand of them are, for good."""


def slots(names: tuple[str, ...]) -> type[msgspec.Struct]:
    """The Struct with a slot `f0`, `f1` … for each name; what an object lacks is NONE there."""
    return _slots(names) if sum(map(len, names)) > KEPT_NAMES else _kept_slots(names)


@lru_cache(maxsize=1024)
def _kept_slots(names: tuple[str, ...]) -> type[msgspec.Struct]:
    return _slots(names)


def _slots(names: tuple[str, ...]) -> type[msgspec.Struct]:
    fields = [(f"f{number}", Any, NONE) for number in range(len(names))]
    encoded = {f"f{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Row", fields, rename=encoded, gc=False)


def shape_decoder(shape: type[msgspec.Struct]) -> Callable[[bytes], Any]:
    """A decoder that reads only the fields of `shape` from a packed object and skips the rest
    without building them: about a tenth of the cost of `unpack` for two fields of nine."""
    return msgspec.msgpack.Decoder(shape, ext_hook=decode_extension).decode
