"""Feeds of one wire connection.

A feed ends once. UNWATCH or BYE are answered by ANSWER with the last completely sent commit. The
node ends it by ERROR. The end of the connection ends it silently.

Messages of a feed are queued and charged like responses. A feed that reads the log goes on only
while the peer reads (backpressure). A feed that has caught up can't wait: it is ended when too much
is unread, or when the user's memory quota is full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from actors.feeds.feed import Feed
from actors.feeds.request import FeedCursor, FeedEncoding, FeedOpened, FeedSink
from protocol import limits
from protocol.errors import Busy, Refusal, SignInRefused, TooSlow, VersionNotSupported
from protocol.frames import MessageKind, WireMessage, around
from protocol.requests import Caller
from surfaces.wire import feeds
from surfaces.wire.bodies import MAJOR, MINOR_OF_FEEDS
from surfaces.wire.callers import WireCallers
from surfaces.wire.link import WireLink
from surfaces.wire.messages import HOLDS


class _Watch(FeedSink):
    """An open WATCH."""

    def __init__(
        self, owner: WireWatches, id: int, body: dict[str, Any] | None, minor: int
    ) -> None:
        self._owner = owner
        self._form = feeds.form_of(minor)
        self.id = id
        self.body = body
        self.behind = 0
        """Its unread bytes at the last check."""
        self.feed: Feed | None = None
        """None until it is open."""
        self.leaving = False
        """True if UNWATCH came before it was open."""
        self.over = False

    @property
    def form(self) -> FeedEncoding:
        """Encoder for the negotiated minor version."""
        return self._form

    def at(self, place: FeedCursor) -> dict[str, Any]:
        """Return the fields with its position."""
        return self._form.at(place)

    @property
    def waiting(self) -> int:
        """Unread bytes of this feed. A long part counts at most `FEED_PART_BYTES`: the backlog
        behind it is limited, not the part itself."""
        return self._owner.waiting(self)

    @property
    def ready(self) -> bool:
        """True if the peer reads its responses."""
        return self._owner.ready

    def opened(self, opened: FeedOpened) -> None:
        """Send the first message."""
        self._owner.say(self, self._form.opened(opened))

    def send(self, data: bytes) -> None:
        """Send a message."""
        self._owner.say(self, data)

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call back when the peer has read the buffered messages."""
        self._owner.when_ready(call)

    def ended(self, why: Refusal, place: FeedCursor) -> None:
        """Answer with the refusal by which the node has ended it; that contains the position."""
        self._owner.ended(self, why)


class WireWatches:
    """:param link: the connection"""

    def __init__(self, link: WireLink) -> None:
        self._link = link
        self._open: dict[int, _Watch] = {}
        self._read: list[_Watch] = []
        self._unread: deque[tuple[int, int, _Watch]] = deque()
        """Unread messages at the last check: end offset among all queued bytes, charged bytes,
        feed."""
        self._waits: list[Callable[[], None]] = []
        """Callbacks for when the peer has read the buffered messages."""
        self._callers = WireCallers(link)

    @property
    def starting(self) -> asyncio.Future[Caller] | None:
        """Done when the caller of the newest requests is known."""
        return self._callers.starting

    # --- requests of the peer ---------------------------------------------------------------------

    def receive(self, message: WireMessage) -> None:
        """Accept a WATCH, or refuse it."""
        link, id = self._link, message.id
        try:
            if link.wire.admission.draining:
                raise link.wire.admission.leaving()
            if message.refusal is not None:
                raise message.refusal
            if link.minor < MINOR_OF_FEEDS:
                raise VersionNotSupported(
                    f"a WATCH needs minor {MINOR_OF_FEEDS}, the connection has {link.minor}",
                    major=MAJOR,
                    minor=[MINOR_OF_FEEDS, MINOR_OF_FEEDS],
                )
            if link.token is None:
                raise SignInRefused("a WATCH needs a signed-in user")
            if len(self._open) >= limits.CONNECTION_FEEDS:
                raise Busy(
                    f"too many open feeds: the limit of a connection is {limits.CONNECTION_FEEDS}"
                )
        except Refusal as refusal:
            link.refuse(id, refusal)
            return
        if not self._open:
            # With a low limit, a feed that reads the log is resumed as soon as there is room.
            link.answers_wait_at(limits.FEED_PART_BYTES)
        link.talk.weigh(id, HOLDS)
        one = self._open[id] = _Watch(self, id, message.body, link.minor)
        self._read.append(one)

    def ask(self) -> None:
        """Open all feeds of one read for the present caller. A later AUTH does not affect them."""
        if not self._read:
            return
        read, self._read = self._read, []
        self._callers.ask(
            self._link.name(read[0].id),
            partial(self._open_all, read),
            partial(self._refuse_all, read),
        )

    def unwatch(self, id: int) -> None:
        """End a feed; it may be over by now."""
        one = self._open.get(id)
        if one is None:
            return
        if one.feed is None:
            one.leaving = True
            return
        place = one.feed.known
        one.feed.close()
        self._forget(one)
        self._link.send(MessageKind.ANSWER, id, one.at(place))
        self._link.end_if_done()

    def leave(self) -> None:
        """End and answer every feed: the peer has sent BYE."""
        for id in list(self._open):
            self.unwatch(id)

    def drain(self) -> None:
        """End every feed: the node is draining, and a feed has no end of its own."""
        for one in list(self._open.values()):
            if one.feed is not None:  # else it is ended when it opens
                one.feed.end(self._link.wire.admission.leaving())

    def abandon(self) -> None:
        """Close every feed silently: the connection is over."""
        for one in list(self._open.values()):
            self._forget(one)
            if one.feed is not None:
                one.feed.close()
        self._waits.clear()
        self._unread.clear()

    # --- opening ----------------------------------------------------------------------------------

    def _open_all(self, read: list[_Watch], caller: Caller) -> None:
        for one in read:
            if not one.over:
                self._link.wire.background.spawn(self._open_one(one, caller))

    def _refuse_all(self, read: list[_Watch], refusal: Refusal) -> None:
        for one in read:
            self.ended(one, refusal)

    async def _open_one(self, one: _Watch, caller: Caller) -> None:
        link = self._link
        name = link.name(one.id)
        try:
            asked = feeds.read_watch(one.body, caller, name, link.minor, one)
            one.body = None
            feed = await link.wire.gate.feed(asked)
        except Refusal as refusal:
            self.ended(one, refusal)
        except asyncio.CancelledError:  # the surface closes
            self.ended(one, link.wire.admission.leaving())
            raise
        except Exception:
            self.ended(one, link.failed(name))
        else:
            self._opened(one, feed)

    def _opened(self, one: _Watch, feed: Feed) -> None:
        one.feed = feed
        if one.over:  # the connection is gone, or the feed has ended
            feed.close()
        elif self._link.wire.admission.draining:
            feed.end(self._link.wire.admission.leaving())
        elif one.leaving:
            self.unwatch(one.id)

    # --- sending ----------------------------------------------------------------------------------

    def say(self, one: _Watch, packed: bytes) -> None:
        """Send a message of a feed.

        :raises TooSlow: there is no room for it
        """
        if one.over:
            return
        link, outgoing = self._link, self._link.outgoing
        frame = around(MessageKind.CHANGE, one.id, packed)
        if not outgoing.takes(len(frame)):
            raise TooSlow(
                "the client reads too slowly: the unread changes leave no room for the next"
            )
        link.send(MessageKind.CHANGE, one.id, None, frame)
        counts = min(len(frame), limits.FEED_PART_BYTES)
        one.behind += counts
        self._unread.append((outgoing.said, counts, one))

    def waiting(self, one: _Watch) -> int:
        """Return the unread bytes of a feed."""
        if one.behind:
            self._update_unread()
        return one.behind

    def _update_unread(self) -> None:
        """Update the unread bytes from the peer's progress."""
        told, taken = self._unread, self._link.outgoing.taken
        while told and told[0][0] <= taken:
            _, counts, one = told.popleft()
            one.behind -= counts

    @property
    def ready(self) -> bool:
        """True if the peer reads its responses."""
        link = self._link
        return not link.choked and link.outgoing.unsent <= limits.FEED_PART_BYTES

    @property
    def stand_still(self) -> bool:
        """True if a feed waits for the peer to read."""
        return bool(self._waits)

    def when_ready(self, call: Callable[[], None]) -> None:
        """Register a callback for when the peer reads again."""
        self._waits.append(call)

    def on_peer_read(self) -> None:
        """Continue waiting feeds: the peer has read something."""
        self._update_unread()
        if self._waits and self.ready:
            waits, self._waits = self._waits, []
            loop = asyncio.get_running_loop()
            for call in waits:
                loop.call_soon(call)

    # --- the end ----------------------------------------------------------------------------------

    def ended(self, one: _Watch, why: Refusal) -> None:
        """Answer a feed that the node has ended, or does not open."""
        if not one.over:
            self._forget(one)
            self._link.refuse(one.id, why)
            self._link.end_if_done()

    def _forget(self, one: _Watch) -> None:
        one.over = True
        del self._open[one.id]
        if not self._open:
            self._link.answers_wait_at(limits.CONNECTION_BUFFER_BYTES)
