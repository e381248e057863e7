"""Feeds on the wire: WATCH requests, and the bodies of CHANGE.

A body is packed once for all feeds that share a view; each feed adds its own header. Stored values
are copied as they are: log, state and wire use the same encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgpack

from actors.feeds.request import (
    ACTIONS,
    CommitHead,
    CommitPart,
    FeedChange,
    FeedCursor,
    FeedEncoding,
    FeedOpened,
    FeedSink,
    OpenFeed,
)
from protocol import binary
from protocol.errors import BadRequest
from protocol.requests import Caller
from protocol.values import instant
from surfaces.wire.bodies import MINOR_OF_EPOCHS, MINOR_OF_SEQUENCES, check_after, field

Body = dict[str, Any]

_WATCH: Final = frozenset(
    {"ns", "db", "table", "from", "actions", "before", "where", "store", "epoch", "after"}
)


def read_watch(
    body: Body | None, caller: Caller, request: str, minor: int, sink: FeedSink
) -> OpenFeed:
    """Decode WATCH.

    :param request: id of the request
    :param minor: the negotiated minor version
    :raises BadRequest: a field is missing, unknown, or of the wrong type
    """
    body = body or {}
    if not body.keys() <= _WATCH:
        unknown = sorted(body.keys() - _WATCH)[0][:64]
        raise BadRequest(f"unknown field {unknown!r} in WATCH", field=unknown)
    names = [field("WATCH", body, name, str) for name in ("ns", "db", "table")]
    namespace, database, table = names
    if namespace is None or database is None or table is None:
        raise BadRequest("WATCH needs ns, db and table", field="table")
    after = field("WATCH", body, "after", int)
    if after is not None:
        check_after("WATCH", after, minor, MINOR_OF_SEQUENCES)
    return OpenFeed(
        caller,
        request,
        namespace,
        database,
        table,
        sink,
        start=_natural(body, "from"),
        store=field("WATCH", body, "store", str),
        epoch=_natural(body, "epoch"),
        actions=_actions(body),
        before=field("WATCH", body, "before", bool) or False,
        where=field("WATCH", body, "where", str),
        after=after,
    )


def _natural(body: Body, name: str) -> int | None:
    number = field("WATCH", body, name, int)
    if number is not None and number < 0:
        raise BadRequest(f"WATCH {name} must be 0 or more", field=name)
    return number


def _actions(body: Body) -> frozenset[str]:
    asked = field("WATCH", body, "actions", list)
    if asked is None:
        return frozenset(ACTIONS)
    words = [word for word in asked if type(word) is str]
    if len(words) < len(asked):
        raise BadRequest("WATCH actions must be a list of strings", field="actions")
    return frozenset(words)


def _text(text: str) -> bytes:
    return binary.pack(text)


_ID: Final = _text("id")
_VALUE: Final = _text("value")
_BEFORE: Final = _text("before")
_CHANGES: Final = _text("changes")
_ACTION_IS: Final = {word: _text("action") + _text(word) for word in ACTIONS}
_MISSING: Final = {
    None: b"",
    "pruned": binary.pack("before_pruned") + binary.pack(True),
    "omitted": binary.pack("before_omitted") + binary.pack(True),
}
_NULL: Final = binary.pack(None)


_heads: Final = msgpack.Packer(autoreset=True)
_map_head: Final[Callable[[int], bytes]] = _heads.pack_map_header
_array_head: Final[Callable[[int], bytes]] = _heads.pack_array_header


def _record(id: bytes, fields: bytes | None) -> bytes:
    """Return a packed record as SELECT shows it: its id, then its fields.

    :param id: packed
    """
    if fields is None:
        return _NULL
    first = fields[0]
    if first & 0xF0 == 0x80:
        count, start = first & 0x0F, 1
    elif first == 0xDE:
        count, start = int.from_bytes(fields[1:3], "big"), 3
    else:
        assert first == 0xDF, "the fields of a record are a map"
        count, start = int.from_bytes(fields[1:5], "big"), 5
    return b"".join((_map_head(count + 1), _ID, id, memoryview(fields)[start:]))


class WireForm(FeedEncoding):
    """Encodes each message of a feed as the body of a CHANGE.

    :param tells_epochs: include the leader epoch of each commit. Before `MINOR_OF_EPOCHS` only the
        first message has one.
    """

    def __init__(self, tells_epochs: bool) -> None:
        self._tells_epochs = tells_epochs

    def opened(self, opened: FeedOpened) -> bytes:
        """Return the body of the first CHANGE."""
        said = {"type": "open", **opened._asdict()}
        if not self._tells_epochs:
            del said["start_epoch"]
        return binary.pack(said)

    def at(self, place: FeedCursor) -> Body:
        """Return the fields with the feed's position."""
        if self._tells_epochs:
            return {"seq": place.sequence, "epoch": place.epoch}
        return {"seq": place.sequence}

    def change(self, change: FeedChange) -> bytes:
        id = binary.pack(change.id)
        parts = [_ACTION_IS[change.action], _ID, id, _VALUE, _record(id, change.fields)]
        count = 3
        if change.shows_before:
            parts += _BEFORE, _record(id, change.before), _MISSING[change.missing]
            count += 1 if change.missing is None else 2
        return _map_head(count) + b"".join(parts)

    def commit(self, head: CommitHead, changes: Sequence[bytes], part: CommitPart | None) -> bytes:
        said: Body = {
            "type": "commit", **self.at(head.place), "at": instant(head.time), "by": head.by,
            "reason": head.reason,
        }  # fmt: skip
        if part is not None:
            said.update(part=part.number, of=part.of)
        # One more field follows those packed here, so the map gets another header.
        fields = binary.pack(said)[1:]
        return b"".join(
            (_map_head(len(said) + 1), fields, _CHANGES, _array_head(len(changes)), *changes)
        )

    def caught_up(self, place: FeedCursor) -> bytes:
        return binary.pack({"type": "caught_up", **self.at(place)})

    def beat(self, place: FeedCursor) -> bytes:
        return binary.pack({"type": "beat", **self.at(place)})


_FORM: Final = WireForm(tells_epochs=True)
_OLD_FORM: Final = WireForm(tells_epochs=False)


def form_of(minor: int) -> WireForm:
    """Return the encoder for a negotiated minor version."""
    return _FORM if minor >= MINOR_OF_EPOCHS else _OLD_FORM
