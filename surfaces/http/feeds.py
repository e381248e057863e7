"""Change feeds as JSON text: GET /watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from actors.feeds.feed import Feed
from actors.feeds.request import (
    ACTIONS,
    AuthorizeFeed,
    CommitHead,
    CommitPart,
    FeedChange,
    FeedCursor,
    FeedEncoding,
    FeedOpened,
    FeedSink,
    OpenFeed,
)
from actors.runtime import ask_now
from protocol.binary import unpack_object
from protocol.errors import BadRequest, Draining, Failed, Refusal
from protocol.jsonvalues import encode_plain, to_json
from protocol.requests import Caller
from protocol.text import format_datetime, format_record
from protocol.values import RecordId, instant
from surfaces.http.queries import natural, sequence
from surfaces.http.websocket import Socket, text_frame

SUBPROTOCOL: Final = "store.watch.v1"


class JsonForm(FeedEncoding):
    """Encodes each message of a feed as a JSON object, ready for a text frame."""

    def opened(self, opened: FeedOpened) -> bytes:
        """Return the first message."""
        return encode_plain({"type": "open", **opened._asdict()})

    def change(self, change: FeedChange) -> bytes:
        """Return an item of `changes`. It contains `before` only if the client requested that."""
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

    def commit(self, head: CommitHead, changes: Sequence[bytes], part: CommitPart | None) -> bytes:
        """Return a commit, or a part of one, with its changes."""
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

    def caught_up(self, place: FeedCursor) -> bytes:
        """Return the message that is sent once, when the feed has caught up."""
        return b'{"type":"caught_up","seq":%d,"epoch":%d}' % place

    def beat(self, place: FeedCursor) -> bytes:
        """Return the periodic heartbeat."""
        return b'{"type":"beat","seq":%d,"epoch":%d}' % place


def _record(id: RecordId, fields: bytes | None) -> Any:
    return None if fields is None else to_json({"id": id, **unpack_object(fields)})


class FramedForm(JsonForm):
    """Encodes messages as complete text frames, shared by all sockets."""

    def commit(self, head: CommitHead, changes: Sequence[bytes], part: CommitPart | None) -> bytes:
        """Return a commit in a text frame."""
        return text_frame(super().commit(head, changes, part))

    def caught_up(self, place: FeedCursor) -> bytes:
        """Return the message in a text frame."""
        return text_frame(super().caught_up(place))

    def beat(self, place: FeedCursor) -> bytes:
        """Return the heartbeat in a text frame."""
        return text_frame(super().beat(place))


FORM: Final = FramedForm()


class _Socket(FeedSink):
    """Sink of a feed: sends its messages on the socket.

    :ivar feed: None until it is open
    """

    form = FORM

    def __init__(self, watch: FeedSocket) -> None:
        self._watch = watch
        self._waits: list[Callable[[], None]] = []
        self.feed: Feed | None = None

    @property
    def waiting(self) -> int:
        """Bytes that the system has not taken."""
        return self._watch.buffered

    @property
    def ready(self) -> bool:
        """True if the client keeps up."""
        return not self._watch.choked

    def opened(self, opened: FeedOpened) -> None:
        """Send the first message."""
        self._watch.send(text_frame(self.form.opened(opened)))

    def send(self, data: bytes) -> None:
        """Send a further message."""
        self._watch.send(data)

    def when_ready(self, call: Callable[[], None]) -> None:
        """Register a callback for when the client has caught up."""
        self._waits.append(call)

    def resume_feed(self) -> None:
        """Call back: the client has caught up."""
        waits, self._waits = self._waits, []
        for call in waits:
            self._watch.surface.loop.call_soon(call)

    def ended(self, why: Refusal, place: FeedCursor) -> None:
        """Send the last message."""
        self._watch.refuse(why)


class FeedSocket(Socket):
    """GET /watch: a feed on a table, for as long as the socket is open.

    An error found before the upgrade is the response to the request. A page, whose token is a
    subprotocol, can't read that response. It gets the error on the socket, like later errors.
    """

    subprotocol = SUBPROTOCOL

    async def admit(self, who: Caller) -> None:
        """Decode the parameters, and authorize the feed.

        :raises Refusal: an invalid parameter, or a missing privilege
        """
        self._sink = _Socket(self)
        self._asked = self._read(self.exchange.parameters(), who)
        await ask_now(self.surface.node.feeds, AuthorizeFeed(self._asked))

    def _read(self, asked: dict[str, str], who: Caller) -> OpenFeed:
        start, epoch, actions = asked.get("from"), asked.get("epoch"), asked.get("actions")
        after = asked.get("after")
        before = asked.get("before", "0")
        if before not in ("0", "1"):
            raise BadRequest(f"before must be 0 or 1, not {before[:40]!r}")
        return OpenFeed(
            who,
            self.exchange.request,
            asked["ns"],
            asked["db"],
            asked["table"],
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
        """Open the feed: the socket is established."""
        self.surface.spawn(self._follow())

    async def _follow(self) -> None:
        try:
            feed = await ask_now(self.surface.node.feeds, self._asked)
        except Refusal as refusal:
            self.refuse(refusal)
        except Exception as error:
            self.exchange.report(error)
            self.refuse(
                Failed(f"internal error: the node's log has the trace under {self._asked.request}")
            )
        else:
            assert isinstance(feed, Feed)
            self._sink.feed = feed
            if not self.open_still:
                feed.close()

    async def received(self, message: str | bytes) -> None:
        """Refuse a message: a feed takes none.

        :raises BadRequest: always
        """
        raise BadRequest("a feed takes no messages: put its parameters into the query")

    def has_room(self) -> None:
        """Continue: the client has caught up."""
        self._sink.resume_feed()

    def leaving(self) -> None:
        """End the feed: the surface is stopping."""
        self.refuse(Draining("the node is stopping"))

    def parted(self, code: int) -> None:
        """Close the feed: the socket is over."""
        if self._sink.feed is not None:
            self._sink.feed.close()
