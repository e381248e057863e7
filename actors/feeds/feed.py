"""A feed: caught up with the store, or reading the log until it is.

| state | its commits come from | until |
|---|---|---|
| PENDING | – | its fiber begins to read → BEHIND; its reader goes → OVER |
| BEHIND | the log, at its reader's pace | it reaches the hub → LIVE; its reader goes → OVER |
| LIVE | the hub, or its view's pipeline | a long commit → BEHIND; reader too slow → OVER |
| OVER | – | – |

While it reads the log, it buffers at most one part beyond the reader's pace (backpressure). It pins
the log there against pruning for a while (`limits.LOG_PIN_SECONDS`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final

from actors.execution.fiber import Fiber, FiberWait
from actors.execution.registry import ENDED
from actors.execution.request import RequestOrigin, described
from actors.feeds.followed_commits import FollowedCommits
from actors.feeds.request import FeedCursor, FeedSink, OpenFeed
from actors.feeds.views import LONG, FeedView, Parts
from actors.rights import Privileges
from protocol import limits
from protocol.errors import NotAllowed, Refusal, SessionEnded, TooSlow, Unknown
from protocol.requests import Caller
from protocol.rights import INFO, READ
from protocol.values import Value
from storage.records.commit_changes import FeedCommit


class FeedState(Enum):
    """States of a feed; the table in the module's docstring has the transitions."""

    PENDING = auto()
    BEHIND = auto()
    LIVE = auto()
    OVER = auto()


FEED_STEPS: Final = {
    FeedState.PENDING: frozenset({FeedState.BEHIND, FeedState.OVER}),
    FeedState.BEHIND: frozenset({FeedState.LIVE, FeedState.OVER}),
    FeedState.LIVE: frozenset({FeedState.BEHIND, FeedState.OVER}),
    FeedState.OVER: frozenset[FeedState](),
}
"""States that may come next, by state."""


class FeedParts:
    """Parts of the hub that a feed uses.

    :param place_of: returns the last commit delivered to all feeds of a view that have caught up
    :param make_live: makes a feed LIVE that has read the whole log; False: there is more to read
    :param on_ended: removes a feed that is over, with the error code if the node has ended it
    """

    def __init__(
        self,
        commits: FollowedCommits,
        place_of: Callable[[FeedView], FeedCursor],
        make_live: Callable[[Feed, Fiber], bool],
        on_ended: Callable[[Feed, str | None], None],
    ) -> None:
        self.commits = commits
        self.place_of = place_of
        self.make_live = make_live
        self.on_ended = on_ended


class Feed:
    """An open feed. Made by `actor.py`, after authorization.

    :param authorized_at: the newest commit at which its privileges were checked
    :param start: the feed delivers commits after this one
    :param known: the position where it begins, as reported to its reader
    """

    def __init__(
        self,
        parts: FeedParts,
        asked: OpenFeed,
        view: FeedView,
        authorized_at: int,
        start: FeedCursor,
        known: FeedCursor,
        began_us: int,
    ) -> None:
        self._parts, self._commits = parts, parts.commits
        self.asked = asked
        self.view = view
        self.caller: Caller = asked.caller
        self.id = asked.request
        self.began_us = began_us
        self.sink: FeedSink = asked.sink
        self.state = FeedState.PENDING
        self.authorized_at = authorized_at
        self._place = start
        self._begins = start, known
        self._caught_up = False
        """True if it was LIVE at least once."""
        self._reading: Fiber | None = None

    @property
    def place(self) -> FeedCursor:
        """The cursor: the last commit delivered whole."""
        if self.state is FeedState.LIVE:
            # In the midst of a commit some feeds are ahead of the hub: they have it already.
            return max(self._place, self._parts.place_of(self.view))
        return self._place

    @property
    def position(self) -> int:
        """Sequence of the last commit delivered whole."""
        return self.place.sequence

    @property
    def known(self) -> FeedCursor:
        """The cursor as its reader knows it: the position to resume from."""
        place, (start, known) = self.place, self._begins
        return known if place == start else place

    # --- end --------------------------------------------------------------------------------------

    def end(self, why: Refusal) -> bool:
        """Report the reason to the reader, and deliver nothing more. Return False if it was over
        already."""
        if self.state is FeedState.OVER:
            return False
        place = self.known
        self._leave()
        self._parts.on_ended(self, why.code)
        self.sink.ended(why.also(seq=place.sequence, epoch=place.epoch), place)
        return True

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        """End: later commits are not for this caller."""
        self.end(SessionEnded(ENDED))

    def close(self) -> None:
        """Close the feed: the reader is gone."""
        if self.state is not FeedState.OVER:
            self._leave()
            self._parts.on_ended(self, None)

    def _enter(self, state: FeedState) -> None:
        assert state in FEED_STEPS[self.state], f"no step from {self.state} to {state}"
        self.state = state

    def _leave(self) -> None:
        self._place = self.place
        self._enter(FeedState.OVER)
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def reauthorize(self, privileges: Privileges | None) -> bool | None:
        """Check the privileges again after a change of its user. Return True if the user may see
        the author and the reason of changes; None: the feed has ended.

        :param privileges: its new privileges; None: the user no longer exists
        """
        table = self.view.table
        if privileges is None:
            self.end(SessionEnded(f"user {self.caller.user} no longer exists: sign in again"))
            return None
        try:
            privileges.check(table, READ)
        except NotAllowed as refusal:
            self.end(refusal)
            return None
        return privileges.holds(table) >= INFO

    def drop(self) -> None:
        """End the feed: its table was dropped. A table declared later under the name is another."""
        path = self.view.table.path
        self.end(Unknown(f"table {path} was dropped", kind="table", name=path))

    # --- delivery ---------------------------------------------------------------------------------

    def deliver(self, data: bytes, place: FeedCursor) -> None:
        """LIVE: send a commit, or the progress of the store."""
        sink, before = self.sink, self._place
        if sink.waiting > limits.FEED_BEHIND_BYTES:
            self.end(TooSlow(f"the reader is too slow: {sink.waiting} bytes wait for it"))
            return
        self._place = place
        try:
            sink.send(data)
        except TooSlow as refusal:
            self._place = before
            self.end(refusal)

    def beat(self) -> None:
        """Send the progress, unless output waits: a slow reader needs no heartbeat."""
        if not self.sink.waiting:
            self.deliver(self.sink.form.beat(self.known), self.place)

    def fall_behind(self, place: FeedCursor) -> None:
        """Switch to BEHIND: read the commits after `place` from the log."""
        self._enter(FeedState.BEHIND)
        self._place = place

    def go_live(self) -> None:
        """Switch to LIVE: its commits come from the hub."""
        self._enter(FeedState.LIVE)

    # --- reading the log --------------------------------------------------------------------------

    def read(self, fiber: Fiber) -> None:
        """Deliver from the log until caught up; inside a fiber of its own. An exception has ended
        the feed."""
        self._reading = fiber
        if self.state is FeedState.PENDING:
            self._enter(FeedState.BEHIND)
        pin = self._commits.reads.pin(self._place.sequence + 1)
        try:
            while not self._parts.make_live(self, fiber):
                for commit in self._commits.after(self._place.sequence, fiber):
                    place = FeedCursor(commit.sequence, commit.epoch)
                    ends = commit.drops(self.view.wanted.prefix)
                    parts = self._tell_short(commit, fiber)
                    del commit  # it may be tens of megabytes, and its reader slow
                    self._tell_parts(place.sequence, parts, fiber)
                    self._place = place
                    if ends:
                        self.drop()
                        return
                pin.move(self._place.sequence + 1)
                # A slow reader stays BEHIND: LIVE feeds are not throttled.
                self._keep_pace(fiber)
        finally:
            pin.release()
            self.view.forget()  # another feed in a long commit encodes its parts again, once
            self._reading = None
        if not self._caught_up:
            self._caught_up = True
            self.deliver(self.sink.form.caught_up(self.known), self.place)

    def _tell_short(self, commit: FeedCommit, fiber: Fiber) -> Parts:
        """Deliver a commit that fits into one message; for a longer one return the parts still to
        send."""
        commits, view, tick = self._commits, self.view, fiber.tick
        images, fetch = commits.images, commits.fetcher(fiber)
        data = view.encode(commit, images, fetch, tick)
        if data is LONG:
            return view.parts(commit, images, fetch, tick)
        if data is not None:
            self._send(data, fiber)
            commits.told += 1
        return []

    def _tell_parts(self, sequence: int, parts: Parts, fiber: Fiber) -> None:
        commits = self._commits
        for number in range(1, len(parts) + 1):
            commit, fetch = commits.commit(sequence, fiber), commits.fetcher(fiber)
            data = self.view.written(commit, parts, number, commits.images, fetch, fiber.tick)
            del commit
            self._send(data, fiber)
        commits.told += bool(parts)

    def _send(self, data: bytes, fiber: Fiber) -> None:
        self._keep_pace(fiber)
        self.sink.send(data)

    def _keep_pace(self, fiber: Fiber) -> None:
        """Backpressure: wait until the reader takes more."""
        while not self.sink.ready:
            wait = FiberWait(fiber)
            self.sink.when_ready(partial(wait.resume, None))
            wait.until_resumed()

    # --- INFO FOR RUNNING -------------------------------------------------------------------------

    def describe(self, now_us: int) -> dict[str, Value]:
        """Return the row of INFO FOR RUNNING."""
        asked, caller = self.asked, self.caller
        return described(
            RequestOrigin.of(self.id, caller),
            caller.user,
            (asked.namespace, asked.database),
            asked.text,
            since_us=now_us - self.began_us,
            commit=self.position,
        )
