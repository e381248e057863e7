"""One feed: caught up with the store, or reading the log until it is.

| it is | its commits come from | until |
|---|---|---|
| BEHIND | the log, as quickly as its reader takes them | it has come to where the hub is → LIVE |
| LIVE | the hub, or its view's line | there is a long one → BEHIND; no room for one → OVER |
| OVER | – | – |

While it reads the log it holds what a reader has not taken back to one part, and keeps the log from
being pruned before it, for a while (`limits.LOG_PIN_SECONDS`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from actors.commits import Origin, described
from actors.feeds.request import OpenFeed, Place, Sink
from actors.feeds.views import LONG, Parts, View
from actors.rights import Standing
from actors.scripts.turns import Turn
from protocol import limits
from protocol.errors import NotAllowed, Refusal, SessionEnded, TooSlow, Unknown
from protocol.requests import Caller
from protocol.rights import INFO, READ
from protocol.values import Value
from storage.feeds import Commit

if TYPE_CHECKING:
    from actors.feeds.hub import Feeds


class State(Enum):
    """See the table at the head of this file."""

    BEHIND = auto()
    LIVE = auto()
    OVER = auto()


class Feed:
    """Made by `actor.py`, which has judged who asks.

    :param judged: the newest commit that its rights were judged at
    :param start: what it is told comes after this one
    :param known: what its reader is told of where it begins
    """

    def __init__(
        self,
        hub: Feeds,
        asked: OpenFeed,
        view: View,
        judged: int,
        start: Place,
        known: Place,
        began_us: int,
    ) -> None:
        self._hub = hub
        self.asked = asked
        self.view = view
        self.caller: Caller = asked.caller
        self.request = asked.request
        self.began_us = began_us
        self.sink: Sink = asked.sink
        self.state = State.BEHIND
        self.judged = judged
        self._place = start
        self._begins = start, known
        self._caught_up = False
        """Whether it was ever LIVE."""
        self._reading: Turn | None = None

    @property
    def place(self) -> Place:
        """The last commit that it has told whole."""
        if self.state is State.LIVE:
            # In the midst of a commit some have been told of it already.
            return max(self._place, self._hub.place_of(self.view))
        return self._place

    @property
    def position(self) -> int:
        """The sequence of that one."""
        return self.place.sequence

    @property
    def known(self) -> Place:
        """As its reader is told of it: what it can come back with."""
        place, (start, known) = self.place, self._begins
        return known if place == start else place

    # --- what ends it -----------------------------------------------------------------------------

    def end(self, why: Refusal) -> bool:
        """Tell the reader why, and tell nothing more. False: it was over already."""
        if self.state is State.OVER:
            return False
        place = self.known
        self._leave()
        self._hub.ended(self, why.code)
        self.sink.ended(why.also(seq=place.sequence, epoch=place.epoch), place)
        return True

    def close(self) -> None:
        """The reader is gone."""
        if self.state is not State.OVER:
            self._leave()
            self._hub.ended(self, None)

    def _leave(self) -> None:
        self._place = self.place
        self.state = State.OVER
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def judge(self, standing: Standing | None) -> None:
        """Its user is another now: end it, or tell what the user may know.

        :param standing: None: there is no such user any more
        """
        table = self.view.table
        if standing is None:
            self.end(SessionEnded(f"there is no user {self.caller.user} any more: sign in again"))
            return
        try:
            standing.check(table, READ)
        except NotAllowed as refusal:
            self.end(refusal)
            return
        self._hub.attribute(self, standing.holds(table) >= INFO)

    def drop(self) -> None:
        """Its table is no more: what is declared under the name after that is another."""
        path = self.view.table.path
        self.end(Unknown(f"table {path} was dropped", kind="table", name=path))

    # --- telling ----------------------------------------------------------------------------------

    def tell(self, data: bytes, place: Place) -> None:
        """LIVE: a commit, or how far the store has come."""
        sink, before = self.sink, self._place
        if sink.waiting > limits.FEED_BEHIND_BYTES:
            self.end(TooSlow(f"the reader did not keep up: {sink.waiting} bytes wait for it"))
            return
        self._place = place
        try:
            sink.send(data)
        except TooSlow as refusal:
            self._place = before
            self.end(refusal)

    def beat(self) -> None:
        """Say how far it has come; a reader who takes nothing need not be told."""
        if not self.sink.waiting:
            self.tell(self.sink.form.beat(self.known), self.place)

    def fall_behind(self, place: Place) -> None:
        """Read what comes after a commit from the log."""
        assert self.state is State.LIVE, "who is behind falls no further"
        self.state, self._place = State.BEHIND, place

    # --- reading the log --------------------------------------------------------------------------

    def read(self, turn: Turn) -> None:
        """Tell what the log holds until that is all; inside a turn of its own. What it raises has
        ended it."""
        self._reading = turn
        pin = self._hub.reads.pin(self._place.sequence + 1)
        try:
            while not self._hub.take_in(self, turn):
                for commit in self._hub.after(self._place.sequence, turn):
                    place = Place(commit.sequence, commit.epoch)
                    ends = commit.drops(self.view.wanted.prefix)
                    parts = self._tell_short(commit, turn)
                    del commit  # it may be tens of megabytes, and its reader slow
                    self._tell_parts(place.sequence, parts, turn)
                    self._place = place
                    if ends:
                        self.drop()
                        return
                pin.move(self._place.sequence + 1)
                # Behind its reader it stays: who has caught up waits for nobody.
                self._keep_pace(turn)
        finally:
            pin.release()
            self.view.forget()  # who still goes through a commit makes it anew, once
            self._reading = None
        if not self._caught_up:
            self._caught_up = True
            self.tell(self.sink.form.caught_up(self.known), self.place)

    def _tell_short(self, commit: Commit, turn: Turn) -> Parts:
        """Tell a commit that goes into one message; of another the parts, which are to be told."""
        hub, view, tick = self._hub, self.view, turn.tick
        images, fetch = hub.images, hub.fetcher(turn)
        data = view.told(commit, images, fetch, tick)
        if data is LONG:
            return view.parts(commit, images, fetch, tick)
        if data is not None:
            self._send(data, turn)
            hub.told += 1
        return []

    def _tell_parts(self, sequence: int, parts: Parts, turn: Turn) -> None:
        hub = self._hub
        for number in range(1, len(parts) + 1):
            commit, fetch = hub.commit(sequence, turn), hub.fetcher(turn)
            data = self.view.written(commit, parts, number, hub.images, fetch, turn.tick)
            del commit
            self._send(data, turn)
        hub.told += bool(parts)

    def _send(self, data: bytes, turn: Turn) -> None:
        self._keep_pace(turn)
        self.sink.send(data)

    def _keep_pace(self, turn: Turn) -> None:
        """Wait until the reader takes more."""
        while not self.sink.ready:
            self.sink.when_ready(turn.wake)
            turn.park()

    # --- for those who look -----------------------------------------------------------------------

    def info(self, now_us: int) -> dict[str, Value]:
        """What INFO FOR RUNNING says of it."""
        asked, caller = self.asked, self.caller
        return described(
            Origin.of(self.request, caller),
            caller.user,
            (asked.namespace, asked.database),
            asked.text,
            since_us=now_us - self.began_us,
            commit=self.position,
        )
