"""What a change feed says, as JSON text: GET /watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from actors.feeds import (
    ACTIONS,
    Change,
    Feed,
    Form,
    Head,
    JudgeFeed,
    Opened,
    OpenFeed,
    Part,
    Place,
    Sink,
)
from actors.runtime import ask_now
from protocol.binary import unpack_object
from protocol.errors import BadRequest, Draining, Failed, Refusal
from protocol.jsonvalues import encode_plain, to_json
from protocol.requests import Caller
from protocol.text import format_datetime, format_record
from protocol.values import RecordId, instant
from surfaces.http.queries import natural, needed, parameters, sequence
from surfaces.http.websocket import Socket, text_frame

SUBPROTOCOL: Final = "store.watch.v1"
PARAMETERS: Final = (
    "ns", "db", "table", "from", "store", "epoch", "actions", "before", "where", "after",
)  # fmt: skip


class JsonForm(Form):
    """Each message of a feed as one JSON object, ready for a text frame."""

    def opened(self, opened: Opened) -> bytes:
        """The first message."""
        return encode_plain({"type": "open", **opened._asdict()})

    def change(self, change: Change) -> bytes:
        """One of `changes`. `before` stands in it only where it is asked for."""
        said = {
            "action": change.action,
            "id": format_record(change.id),
            "value": _record(change.id, change.fields),
        }
        if change.shows_before:
            said["before"] = _record(change.id, change.before)
            if change.missing is not None:
                said[f"before_{change.missing}"] = True
        return encode_plain(said)

    def commit(self, head: Head, changes: Sequence[bytes], part: Part | None) -> bytes:
        """A commit, or a part of one, around its changes."""
        said: dict[str, Any] = {
            "type": "commit",
            "seq": head.place.sequence,
            "epoch": head.place.epoch,
            "at": format_datetime(instant(head.time)),
            "by": head.by,
            "reason": head.reason,
        }
        if part is not None:
            said.update(part=part.number, of=part.of)
        return b'%s,"changes":[%s]}' % (encode_plain(said)[:-1], b",".join(changes))

    def caught_up(self, place: Place) -> bytes:
        """Said once."""
        return b'{"type":"caught_up","seq":%d,"epoch":%d}' % place

    def beat(self, place: Place) -> bytes:
        """Said now and then."""
        return b'{"type":"beat","seq":%d,"epoch":%d}' % place


def _record(id: RecordId, fields: bytes | None) -> Any:
    return None if fields is None else to_json({"id": id, **unpack_object(fields)})


class FramedForm(JsonForm):
    """The same, ready to be sent to any socket."""

    def commit(self, head: Head, changes: Sequence[bytes], part: Part | None) -> bytes:
        """In a text frame."""
        return text_frame(super().commit(head, changes, part))

    def caught_up(self, place: Place) -> bytes:
        """In a text frame."""
        return text_frame(super().caught_up(place))

    def beat(self, place: Place) -> bytes:
        """In a text frame."""
        return text_frame(super().beat(place))


FORM: Final = FramedForm()


class _Socket(Sink):
    """The way to the reader of a feed.

    :ivar feed: None until it is let in
    """

    form = FORM

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._waits: list[Callable[[], None]] = []
        self.feed: Feed | None = None

    @property
    def waiting(self) -> int:
        """Bytes that the system has not taken."""
        return self._watch.buffered

    @property
    def ready(self) -> bool:
        """Whether it takes what comes."""
        return not self._watch.choked

    def opened(self, opened: Opened) -> None:
        """The first message."""
        self._watch.send(text_frame(self.form.opened(opened)))

    def send(self, data: bytes) -> None:
        """Another."""
        self._watch.send(data)

    def when_ready(self, call: Callable[[], None]) -> None:
        """Called when the peer has caught up."""
        self._waits.append(call)

    def go_on(self) -> None:
        """The peer has caught up."""
        waits, self._waits = self._waits, []
        for call in waits:
            self._watch.surface.loop.call_soon(call)

    def ended(self, why: Refusal, place: Place) -> None:
        """The last message."""
        self._watch.refuse(why)


class Watch(Socket):
    """GET /watch: a table is followed for as long as the socket stands.

    What is known to be wrong before there is a socket is the answer to the request. A page, whose
    token is a subprotocol, can't read that: it is told on the socket, as what comes later is.
    """

    subprotocol = SUBPROTOCOL

    async def admit(self, who: Caller) -> None:
        """Read what is asked for, and have it judged. :raises Refusal: it is not given"""
        self._sink = _Socket(self)
        self._asked = self._read(parameters(self.asked.query, PARAMETERS), who)
        await ask_now(self.surface.node.feeds, JudgeFeed(self._asked))

    def _read(self, asked: dict[str, str], who: Caller) -> OpenFeed:
        start, epoch, actions = asked.get("from"), asked.get("epoch"), asked.get("actions")
        after = asked.get("after")
        before = asked.get("before", "0")
        if before not in ("0", "1"):
            raise BadRequest(f"before is 0 or 1, not {before[:40]!r}")
        return OpenFeed(
            who,
            self.exchange.request,
            needed(asked, "ns"),
            needed(asked, "db"),
            needed(asked, "table"),
            self._sink,
            start=None if start is None else natural(start, "from"),
            store=asked.get("store"),
            epoch=None if epoch is None else natural(epoch, "epoch"),
            actions=frozenset(ACTIONS if actions is None else actions.split(",")),
            before=before == "1",
            where=asked.get("where"),
            after=None if after is None else sequence(after, "after"),
        )

    def opened(self) -> None:
        """The socket stands: ask for the feed."""
        self.surface.spawn(self._follow())

    async def _follow(self) -> None:
        try:
            feed = await ask_now(self.surface.node.feeds, self._asked)
        except Refusal as refusal:
            self.refuse(refusal)
        except Exception as error:
            self.exchange.report(error)
            self.refuse(Failed(f"the node failed on this feed; its log has {self._asked.request}"))
        else:
            assert isinstance(feed, Feed)
            self._sink.feed = feed
            if not self.open_still:
                feed.close()

    async def received(self, message: str | bytes) -> None:
        """A reader has nothing to say. :raises BadRequest:"""
        raise BadRequest("a feed takes no messages: what it is to tell stands in its query")

    def has_room(self) -> None:
        """The peer has caught up."""
        self._sink.go_on()

    def leaving(self) -> None:
        """The surface is stopping."""
        self.refuse(Draining("the node is stopping"))

    def parted(self, code: int) -> None:
        """The reader is gone, or has heard why it is over."""
        if self._sink.feed is not None:
            self._sink.feed.close()
