"""The feeds of one wire connection, from their WATCH until they are over.

A feed is over once: by UNWATCH or BYE, which are answered ANSWER with the last commit that was told
whole; by the node, which says ERROR; or with the connection, and then nobody is told.

What a feed says is handed over as all answers are, and counts as they do. A feed that reads the log
goes on only while the peer takes it; one that has caught up can't wait, and is over when too much
of it does, or when there is no room left among what its user's connections hold.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from actors.feeds import Feed, Form, Opened, Place, Sink
from protocol import limits
from protocol.errors import Busy, Refusal, SignInRefused, TooSlow, VersionNotSupported
from protocol.frames import Kind, Message, around
from protocol.requests import Caller
from surfaces.wire import feeds
from surfaces.wire.bodies import MAJOR, MINOR_OF_FEEDS
from surfaces.wire.callers import Callers
from surfaces.wire.link import Link
from surfaces.wire.messages import HOLDS


class _Watch(Sink):
    """A WATCH whose feed is not over."""

    def __init__(self, owner: Watches, id: int, body: dict[str, Any] | None, minor: int) -> None:
        self._owner = owner
        self._form = feeds.form_of(minor)
        self.id = id
        self.body = body
        self.behind = 0
        """What of it the peer has not taken, where that was last looked at."""
        self.feed: Feed | None = None
        """None until it is open."""
        self.leaving = False
        """Whether UNWATCH came before it was."""
        self.over = False

    @property
    def form(self) -> Form:
        """As the minor agreed on has it."""
        return self._form

    def at(self, place: Place) -> dict[str, Any]:
        """The fields that say where it has come to."""
        return self._form.at(place)

    @property
    def waiting(self) -> int:
        """Bytes of this feed that the peer has not taken. A long part counts as others do: what is
        behind it is judged, not itself."""
        return self._owner.waiting(self)

    @property
    def ready(self) -> bool:
        """Whether the peer takes what there is for it."""
        return self._owner.ready

    def opened(self, opened: Opened) -> None:
        """The feed begins."""
        self._owner.say(self, self._form.opened(opened))

    def send(self, data: bytes) -> None:
        """Something is told."""
        self._owner.say(self, data)

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call when the peer has taken what there was."""
        self._owner.when_ready(call)

    def ended(self, why: Refusal, place: Place) -> None:
        """The node has ended it; the refusal says where."""
        self._owner.ended(self, why)


class Watches:
    """:param link: the connection"""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._open: dict[int, _Watch] = {}
        self._read: list[_Watch] = []
        self._told: deque[tuple[int, int, _Watch]] = deque()
        """What the peer had not taken when that was last looked at: where it ends among all that
        was said, what it counts, whose it is."""
        self._waits: list[Callable[[], None]] = []
        """What goes on once the peer has taken what there was."""
        self._callers = Callers(link)

    @property
    def starting(self) -> asyncio.Future[Caller] | None:
        """Done when it is known whose those are that were read last."""
        return self._callers.starting

    # --- what the peer says -----------------------------------------------------------------------

    def begin(self, message: Message) -> None:
        """A WATCH has been read."""
        link, id = self._link, message.id
        try:
            if link.wire.admission.draining:
                raise link.wire.admission.leaving()
            if message.refusal is not None:
                raise message.refusal
            if link.minor < MINOR_OF_FEEDS:
                raise VersionNotSupported(
                    f"a WATCH needs minor {MINOR_OF_FEEDS}, {link.minor} was agreed on",
                    major=MAJOR,
                    minor=[MINOR_OF_FEEDS, MINOR_OF_FEEDS],
                )
            if link.token is None:
                raise SignInRefused("a WATCH needs a signed-in user")
            if len(self._open) >= limits.CONNECTION_FEEDS:
                raise Busy(f"{limits.CONNECTION_FEEDS} feeds are open here, and that is all")
        except Refusal as refusal:
            link.refuse(id, refusal)
            return
        if not self._open:
            # A feed that reads the log hears when there is room again as soon as there is.
            link.answers_wait_at(limits.FEED_PART_BYTES)
        link.talk.weigh(id, HOLDS)
        one = self._open[id] = _Watch(self, id, message.body, link.minor)
        self._read.append(one)

    def ask(self) -> None:
        """Open all that one read has brought, for who the peer is now: an AUTH behind them changes
        nothing."""
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
        self._link.send(Kind.ANSWER, id, one.at(place))
        self._link.end_if_done()

    def leave(self) -> None:
        """The peer has said BYE: each feed is answered."""
        for id in list(self._open):
            self.unwatch(id)

    def drain(self) -> None:
        """The node begins nothing new, and ends what has no end of its own."""
        for one in list(self._open.values()):
            if one.feed is not None:  # else it is when it is open
                one.feed.end(self._link.wire.admission.leaving())

    def abandon(self) -> None:
        """Nobody is there to be told."""
        for one in list(self._open.values()):
            self._forget(one)
            if one.feed is not None:
                one.feed.close()
        self._waits.clear()
        self._told.clear()

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
        if one.over:  # the connection, or already the feed
            feed.close()
        elif self._link.wire.admission.draining:
            feed.end(self._link.wire.admission.leaving())
        elif one.leaving:
            self.unwatch(one.id)

    # --- telling ----------------------------------------------------------------------------------

    def say(self, one: _Watch, packed: bytes) -> None:
        """Tell something of a feed. :raises TooSlow: there is no room for it"""
        if one.over:
            return
        link, outgoing = self._link, self._link.outgoing
        frame = around(Kind.CHANGE, one.id, packed)
        if not outgoing.takes(len(frame)):
            raise TooSlow("what is to be told finds no room beside what was not read yet")
        link.send(Kind.CHANGE, one.id, None, frame)
        counts = min(len(frame), limits.FEED_PART_BYTES)
        one.behind += counts
        self._told.append((outgoing.said, counts, one))

    def waiting(self, one: _Watch) -> int:
        """As `_Watch.waiting`."""
        if one.behind:
            self._look()
        return one.behind

    def _look(self) -> None:
        """See what the peer has taken."""
        told, taken = self._told, self._link.outgoing.taken
        while told and told[0][0] <= taken:
            _, counts, one = told.popleft()
            one.behind -= counts

    @property
    def ready(self) -> bool:
        """Whether the peer takes what there is for it."""
        link = self._link
        return not link.choked and link.outgoing.unsent <= limits.FEED_PART_BYTES

    @property
    def stand_still(self) -> bool:
        """Whether some wait for that."""
        return bool(self._waits)

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call when it is."""
        self._waits.append(call)

    def go_on(self) -> None:
        """The peer has taken something: go on where something waits for that."""
        self._look()
        if self._waits and self.ready:
            waits, self._waits = self._waits, []
            loop = asyncio.get_running_loop()
            for call in waits:
                loop.call_soon(call)

    # --- the end ----------------------------------------------------------------------------------

    def ended(self, one: _Watch, why: Refusal) -> None:
        """The node has ended a feed, or does not open it."""
        if not one.over:
            self._forget(one)
            self._link.refuse(one.id, why)
            self._link.end_if_done()

    def _forget(self, one: _Watch) -> None:
        one.over = True
        del self._open[one.id]
        if not self._open:
            self._link.answers_wait_at(limits.CONNECTION_BUFFER_BYTES)
