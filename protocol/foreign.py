"""Decodes messages of untrusted peers: short ones at once, long ones in pieces.

Both ways use the fast decoder of `msgspec`. A long message is cut where a value ends: its outer
arrays and maps are walked by their headers, and what is inside is decoded some tens of KiB at a
time. As in `binary.unpack_short`, each piece is encoded again, and only if that gives the same
bytes was nothing lost. Anything unusual is left to the strict decoder, which accepts it or raises
the exact error.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgpack
import msgspec
from msgspec.msgpack import Ext

from protocol import limits
from protocol.binary import (
    EXT_DECIMAL,
    EXT_RECORD,
    SHORT_BYTES,
    STEP_BYTES,
    Check,
    NeedsStrictDecoder,
    foreign_extension,
    quick_decode,
    quick_encode,
    unpack_short,
    unpack_strictly,
)
from protocol.errors import Refusal
from protocol.values import FEW, RecordId, Tick, Value, check, check_given, unpaced

GROUP_BYTES: Final = 16 * limits.KIB
PIECE_BYTES: Final = 64 * limits.KIB
STRING_BYTES: Final = 256 * limits.KIB
"""Length of a string from which on the strict decoder is used: it copies it fewer times."""
RECORDS_KEPT: Final = 4_096
"""Different record links of one message that are decoded once."""
_NO_VALUE: Final = (
    Refusal,
    msgspec.MsgspecError,
    msgpack.UnpackException,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    IndexError,
)
_COLUMNS: Final = frozenset({str, int, float, bool})
_UTC_ONLY: Final = frozenset({UTC})
_COLUMNS_OF: Final = frozenset({EXT_DECIMAL, EXT_RECORD})
_PLAIN_NUMBER: Final = "+-.0123456789"
_PLAIN_NUMBERS: Final = _PLAIN_NUMBER + " "
_INT_MIN: Final = limits.INT_MIN
_INT_MAX: Final = limits.INT_MAX


def unpack_foreign(
    data: bytes | memoryview, tick: Tick | None = None, refuse: Check = check_given
) -> Value:
    """Decode a value from an untrusted peer.

    :param tick: called at intervals while a long one is decoded; `data` must not change meanwhile
    :param refuse: checks the decoded message. If it is an envelope around values, the check has to
        allow for its levels
    :raises BadRequest: not msgpack, trailing bytes, an unknown extension, a duplicate key
    :raises NameRefused: a record id with an invalid table name
    :raises TooLarge: more elements than `limits.ELEMENTS`, or more arrays and objects than
        `limits.CONTAINERS`; found before all of them are built
    :raises Refusal: any refusal of `refuse`
    """
    try:
        if len(data) <= SHORT_BYTES:
            return unpack_short(bytes(data))  # type: ignore[no-any-return]
        return LongMessage(bytes(data), tick or unpaced).decode()  # type: ignore[no-any-return]
    except NeedsStrictDecoder:
        pass  # left first: the exception holds all that was decoded so far
    return unpack_strictly(data, tick, refuse)


class LongMessage:
    """A long message while it is decoded.

    :param tick: called between two pieces
    :param group: bytes of a piece from which on no further value is added to it
    :param piece: bytes of an array or map from which on it is cut itself
    """

    def __init__(
        self, data: bytes, tick: Tick, group: int = GROUP_BYTES, piece: int = PIECE_BYTES
    ) -> None:
        self._data = data
        self._tick = tick
        self._group = group
        self._piece = piece
        self._containers = 0
        self._elements = 0
        self._records: dict[bytes, RecordId] = {}

    def decode(self) -> Any:
        """Return the checked value.

        :raises NeedsStrictDecoder: use the strict decoder
        """
        try:
            value, end = self._long(0, 0)
        except _NO_VALUE:
            raise NeedsStrictDecoder from None
        if end != len(self._data):
            raise NeedsStrictDecoder
        return value

    # --- cutting ----------------------------------------------------------------------------------

    def _long(self, at: int, depth: int) -> tuple[Any, int]:
        """Return the value that begins at an offset and is longer than a piece, and its end."""
        is_map, count, start = self._header(at)
        if depth >= limits.DEPTH:
            raise NeedsStrictDecoder
        self._count(count)
        items: list[Any] = []
        fields: dict[str, Any] = {}
        reader = self._skipper(start)
        group, grouped = start, 0
        for number in range(count):
            begun = reader.at
            # A map's keys are read with their values.
            ended = (not is_map or reader.skip()) and reader.skip()
            if ended:
                grouped += 1
            if not ended or reader.at - group >= self._group or number + 1 == count:
                if grouped:
                    piece = self._data[group : reader.at if ended else begun]
                    self._add(piece, grouped, depth, fields if is_map else items)
                    self._tick()
                if not ended:
                    end = self._add_long(begun, depth, fields if is_map else items)
                    reader = self._skipper(end)
                group, grouped = reader.at, 0
        if is_map and len(fields) != count:
            raise NeedsStrictDecoder  # a key came twice, in two pieces
        return (fields if is_map else items), reader.at

    def _skipper(self, at: int) -> _Skipper:
        return _Skipper(self._data, at, self._tick, self._piece)

    def _add_long(self, at: int, depth: int, into: dict[str, Any] | list[Any]) -> int:
        """Add the long value at an offset, of a map with its key. Return its end."""
        if isinstance(into, list):
            value, end = self._value(at, depth + 1)
            into.append(value)
            return end
        key = self._skipper(at)
        if not key.skip():
            raise NeedsStrictDecoder
        name = quick_decode(self._data[at : key.at])
        if type(name) is not str or quick_encode(name) != self._data[at : key.at]:
            raise NeedsStrictDecoder
        value, end = self._value(key.at, depth + 1)
        into[name] = value
        return end

    def _value(self, at: int, depth: int) -> tuple[Any, int]:
        """Return the long value at an offset: a container, or a string or bytes."""
        head = self._data[at]
        width = {0xC5: 2, 0xC6: 4, 0xDA: 2, 0xDB: 4}.get(head)
        if width is None:
            return self._long(at, depth)
        start = at + 1 + width
        end = start + int.from_bytes(self._data[at + 1 : start], "big")
        piece = self._data[at:end]
        if len(piece) > STRING_BYTES:
            raise NeedsStrictDecoder
        value = quick_decode(piece)
        if quick_encode(value) != piece:
            raise NeedsStrictDecoder
        return value, end

    def _header(self, at: int) -> tuple[bool, int, int]:
        """Return of a container: True if it is a map, the number of its items, and where they
        begin."""
        data, head = self._data, self._data[at]
        if 0x80 <= head <= 0x9F:
            return head < 0x90, head & 0x0F, at + 1
        if not 0xDC <= head <= 0xDF:
            raise NeedsStrictDecoder
        start = at + (3 if head in (0xDC, 0xDE) else 5)
        count = int.from_bytes(data[at + 1 : start], "big")
        if count > len(data):
            raise NeedsStrictDecoder
        return head >= 0xDE, count, start

    def _count(self, elements: int) -> None:
        self._containers += 1
        self._elements += elements
        if self._containers > limits.CONTAINERS or self._elements > limits.ELEMENTS:
            raise NeedsStrictDecoder

    def _add(self, piece: bytes, count: int, depth: int, into: dict[str, Any] | list[Any]) -> None:
        """Decode some items of a container."""
        is_map = isinstance(into, dict)
        whole = _head(is_map, count) + piece
        value = quick_decode(whole)
        # Of two equal keys it keeps the last; datetimes it cuts to microseconds.
        if quick_encode(value) != whole:
            raise NeedsStrictDecoder
        if isinstance(into, dict):
            self._map(value, depth)
            into.update(value)
        else:
            self._list(value, depth)
            into.extend(value)

    # --- checking and extensions ------------------------------------------------------------------

    def _map(self, value: dict[Any, Any], depth: int) -> None:
        """Check the parts of a decoded map, and decode extensions in place."""
        "".join(value)  # TypeError if a key is not a string
        for name, part in value.items():
            kind = type(part)
            # Fast path: most parts are plain, and a call for each would dominate.
            if kind is str or (kind is int and _INT_MIN <= part <= _INT_MAX):
                continue
            if kind is float and part - part == 0.0:
                continue
            if (kind is datetime and part.tzinfo is UTC) or kind is bool or part is None:
                continue
            value[name] = self._part(part, depth + 1)

    def _list(self, value: list[Any], depth: int) -> None:
        """Do the same for an array."""
        if len(value) > FEW and self._column(value):
            return
        for at, part in enumerate(value):
            kind = type(part)
            if kind is str or (kind is int and _INT_MIN <= part <= _INT_MAX):
                continue
            if kind is float and part - part == 0.0:
                continue
            if (kind is datetime and part.tzinfo is UTC) or kind is bool or part is None:
                continue
            value[at] = self._part(part, depth + 1)

    def _column(self, value: list[Any]) -> bool:
        """Check the items of an array together, and decode extensions in place, if all are of one
        type: those of a column. Return False, with nothing changed, if each has to be looked at."""
        kind = type(value[0])
        if len(set(map(type, value))) > 1:
            return False
        if kind is Ext:
            return self._extensions(value)
        if kind is datetime:
            return {part.tzinfo for part in value} == _UTC_ONLY
        if kind not in _COLUMNS:
            return False
        if kind is int:
            return bool(min(value) >= _INT_MIN and max(value) <= _INT_MAX)
        if kind is float:
            total = sum(value)
            return bool(total - total == 0.0)  # none is NaN or an infinity
        return True

    def _extensions(self, value: list[Any]) -> bool:
        """Decode an array of decimals or record links in place. Return False, with nothing changed,
        if it is another one, or one of them is unusual."""
        code = value[0].code
        if code not in _COLUMNS_OF or {part.code for part in value} != {code}:
            return False
        contents = [bytes(part.data) for part in value]
        if code == EXT_RECORD:
            known = {content: self._extension(code, content) for content in set(contents)}
            value[:] = map(known.__getitem__, contents)
            return True
        if max(map(len, contents)) > limits.DECIMAL_DIGITS:
            return False
        text = b" ".join(contents).decode("ascii", "replace")
        texts = text.split(" ")
        if text.strip(_PLAIN_NUMBERS) or len(texts) != len(value):
            return False
        try:
            value[:] = list(map(Decimal, texts))
        except InvalidOperation:
            return False
        return True

    def _part(self, part: Any, depth: int) -> Any:
        if isinstance(part, Ext):
            return self._extension(part.code, bytes(part.data))
        if isinstance(part, dict | list):
            if depth >= limits.DEPTH:
                raise NeedsStrictDecoder
            self._count(len(part))
            if isinstance(part, dict):
                self._map(part, depth)
            else:
                self._list(part, depth)
            return part
        check(part)
        return part

    def _extension(self, code: int, data: bytes) -> Any:
        if code != EXT_RECORD:
            # So short, and without an exponent, every decimal is in range.
            if code == EXT_DECIMAL and len(data) <= limits.DECIMAL_DIGITS and data.isascii():
                text = data.decode()
                # `Decimal` alone would accept underscores, blanks, NaN and infinities too.
                if not text.strip(_PLAIN_NUMBER):
                    try:
                        return Decimal(text)
                    except InvalidOperation:
                        pass  # refused below, with the usual message
            found = foreign_extension(code, data)
            check(found)
            return found
        record = self._records.get(data)
        if record is None:
            found = foreign_extension(code, data)
            check(found)
            assert isinstance(found, RecordId)
            if len(self._records) < RECORDS_KEPT:
                self._records[data] = found
            return found
        return record


class _Skipper:
    """Finds where values end, without building them. Ticks at intervals."""

    def __init__(self, data: bytes, at: int, tick: Tick, piece: int) -> None:
        self._data = data
        self._piece = piece
        self._step = min(piece, STEP_BYTES)
        self._base = at
        self._fed = at
        self._tick = tick
        self._unpacker = msgpack.Unpacker(max_buffer_size=len(data))
        self.at = at
        """Offset of the next value."""

    def skip(self) -> bool:
        """Skip a value. Return False if it is longer than a piece; then nothing more is read.

        :raises ValueError: no valid value, or the data ends
        """
        while True:
            try:
                self._unpacker.skip()
            except msgpack.OutOfData:
                if self._fed - self.at > self._piece:
                    return False
                if self._fed >= len(self._data):
                    raise ValueError("truncated") from None
                if self._fed != self._base:
                    self._tick()
                end = self._fed + self._step
                self._unpacker.feed(self._data[self._fed : end])
                self._fed = min(end, len(self._data))
                continue
            self.at = self._base + self._unpacker.tell()
            return True


def _head(is_map: bool, count: int) -> bytes:
    """Return the shortest header of a map or array."""
    if count < 16:
        return bytes(((0x80 if is_map else 0x90) | count,))
    if count < 1 << 16:
        return (b"\xde" if is_map else b"\xdc") + count.to_bytes(2, "big")
    return (b"\xdf" if is_map else b"\xdd") + count.to_bytes(4, "big")
