"""Hub: registry of all feeds; follows released commits once for all of them.

It takes released frames from the tail of the commit pipeline and decodes each once. The views of
the changed tables encode it for the feeds that have caught up. Without feeds it follows nothing and
costs nothing.

Invariants:

- `position` is the last commit processed whole. A LIVE feed has delivered all up to it. A feed
  joins only between two commits, and only at `position`. So no feed misses a commit or delivers one
  twice, whether it came from the log or live.
- Costly work for some feeds delays no other: the hub's own fiber computes only things that all
  followers of an unfiltered table share. Filters and before images are for pipelines
  (`pipelines.py`), which have fibers of their own.
- It follows as long as there are feeds, in one fiber. Where the last feed ends in the midst of a
  commit, the fiber takes nothing more: all that it knew is forgotten by then.
- Privileges are checked in the order of the commits: a feed whose user loses its privilege in a
  commit delivers neither that commit nor later ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from actors.commits.committer import Committer
from actors.commits.tail import FellBehind, TailFollower
from actors.execution.blocking import Line
from actors.execution.fiber import Fiber, FiberWait
from actors.execution.registry import Registry, credential_of
from actors.execution.scheduler import FEED, NODE, FiberScheduler
from actors.feeds.feed import Feed, FeedParts, FeedState
from actors.feeds.followed_commits import READ_BYTES, FollowedCommits
from actors.feeds.live_feeds import LiveFeeds
from actors.feeds.pipelines import Pipeline
from actors.feeds.request import FeedCursor
from actors.feeds.views import FeedView, ViewParameters
from actors.log_reads import LogReads
from actors.rights import Rights
from actors.runtime import Runtime
from actors.sessions import Sessions
from language.filters import Filter
from protocol import limits
from protocol.errors import (
    Busy,
    Cancelled,
    Draining,
    Failed,
    LogPruned,
    NotAllowed,
    Refusal,
    SessionEnded,
    TooSlow,
    Unknown,
)
from protocol.shares import fits
from storage.catalog import users
from storage.catalog.tables import Table
from storage.formats.frames import Frame
from storage.records.commit_changes import FeedCommit

TAKEN_BYTES: Final = 256 * limits.KIB
"""Bytes taken from the tail at once."""
ENDS: Final = (SessionEnded, NotAllowed, Unknown, TooSlow, LogPruned, Draining)
"""Usual reasons for the end of a feed. Their counters start at 0, so that a first one shows as a
change."""
BUCKETS: Final = limits.FEED_BEAT_SECONDS
"""Groups of feeds for heartbeats; one group each second."""


class Feeds:
    """Registry of all feeds; decodes and dispatches released commits."""

    def __init__(
        self,
        runtime: Runtime,
        scheduler: FiberScheduler,
        committer: Committer,
        reads: LogReads,
        rights: Rights,
        sessions: Sessions,
        registry: Registry,
    ) -> None:
        self._runtime = runtime
        self._committer = committer
        self.commits = FollowedCommits(reads)
        self._live = LiveFeeds(self.commits, self._have_read)
        self.parts = FeedParts(self.commits, self._place_of, self._make_live, self._ended)
        """Parts of the hub that a feed uses."""
        self._rights = rights
        self._sessions = sessions
        self._registry = registry
        self._scheduler = scheduler
        self._views: dict[ViewParameters, FeedView] = {}
        self._used: Counter[ViewParameters] = Counter()
        """Number of feeds of each view."""
        self._lines: dict[ViewParameters, Pipeline] = {}
        """Pipelines of the views whose changes are costly to encode."""
        self._due: list[Pipeline] = []
        """Pipelines that the present commit is for."""
        self._feeds: dict[Feed, None] = {}
        self._of_user: dict[str, dict[Feed, None]] = {}
        self._buckets: list[dict[Feed, None]] = [{} for _ in range(BUCKETS)]
        self._bucket = 0
        self._passing = False
        """True in the midst of a commit."""
        self._follower: TailFollower | None = None
        self._fiber: Fiber | None = None
        """Fiber that processes released commits; None: there is none."""
        self._joining = Line(self.report_error)
        """Feeds that wait for the end of a commit."""
        self.opened = 0
        self.ends: Counter[str] = Counter({code.__name__: 0 for code in ENDS})
        """Feeds ended by the node, by error code."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._feeds)

    # --- feeds come and go ------------------------------------------------------------------------

    def add(self, feed: Feed) -> None:
        """Add a feed, and have it read the log up to now."""
        if not self._feeds:
            released = self._committer.commit_index
            self._follow(FeedCursor(released, self._committer.ledger.epoch_at(released)))
            self._beat_later()
        self._feeds[feed] = None
        self._of_user.setdefault(feed.caller.user, {})[feed] = None
        self._buckets[self.opened % BUCKETS][feed] = None
        self.opened += 1
        self._enter(feed.view)
        self._registry.enter(feed, credential_of(feed.caller.user, feed.caller.session))
        self._have_read(feed)

    def check_room(self, user: str, where: str | None) -> None:
        """:raises Busy: the limit of open feeds, or of this user's filters, is reached"""
        mine, every = self._of_user.get(user, {}), len(self._feeds)
        if not fits(len(mine), 1, every, limits.FEEDS, limits.FEEDS_OF_OTHERS):
            raise Busy(f"too many feeds are open: {every}, of which {len(mine)} by {user}")
        if where is not None:
            filters = {feed.asked.where for feed in mine} - {None, where}
            if len(filters) >= limits.USER_FILTERS:
                raise Busy(
                    f"too many filters: the feeds of a user have at most {limits.USER_FILTERS}"
                )

    def _ended(self, feed: Feed, code: str | None) -> None:
        """Remove a feed that is over.

        :param code: error code, if the node has ended it; None: its reader has
        """
        del self._feeds[feed]
        mine = self._of_user[feed.caller.user]
        del mine[feed]
        if not mine:
            del self._of_user[feed.caller.user]
        for bucket in self._buckets:
            bucket.pop(feed, None)
        self._live.remove(feed)
        self._registry.leave(feed)
        if code is not None:
            self.ends[code] += 1
        self._leave(feed.view)
        if not self._feeds:
            self._stop_following()

    def end_all(self, why: Refusal) -> None:
        """End every feed."""
        for feed in list(self._feeds):
            feed.end(why)

    def view(self, wanted: ViewParameters, table: Table, condition: Filter | None) -> FeedView:
        """Return the view for feeds with these parameters. The caller adds its feed at once."""
        return self._views.get(wanted) or FeedView(wanted, table, condition)

    def _enter(self, view: FeedView) -> None:
        self._views[view.wanted] = view
        self._used[view.wanted] += 1
        if view.looks_back and view.wanted not in self._lines:
            self._lines[view.wanted] = Pipeline(
                self.commits, self._live, view, partial(self._start_fiber, ""), self.report_error
            )
        self.commits.prefixes |= {view.wanted.prefix}

    def _leave(self, view: FeedView) -> None:
        self._used[view.wanted] -= 1
        if not self._used[view.wanted]:
            del self._used[view.wanted], self._views[view.wanted]
            line = self._lines.pop(view.wanted, None)
            if line is not None:
                line.close()
            self.commits.prefixes = frozenset(wanted.prefix for wanted in self._views)

    def _attribute(self, feed: Feed, attributed: bool) -> None:
        """Show a feed's reader the author and the reason of changes, or hide them from now on."""
        view = feed.view
        if view.wanted.attributed is attributed:
            return
        place = feed.place
        self._live.remove(feed)
        wanted = replace(view.wanted, attributed=attributed)
        feed.view = self.view(wanted, view.table, view.condition)
        self._enter(feed.view)
        self._leave(view)
        if feed.state is not FeedState.LIVE:
            return
        if view.looks_back:  # the pipelines of the two views may differ in position
            feed.fall_behind(place)
            self._have_read(feed)
        else:
            self._live.add(feed)

    # --- reading the log --------------------------------------------------------------------------

    def _have_read(self, feed: Feed) -> None:
        def work(fiber: Fiber) -> None:
            try:
                if feed.state is not FeedState.OVER:
                    feed.read(fiber)
            except Cancelled:
                if feed.state is not FeedState.OVER:
                    raise
            except Refusal as refusal:
                feed.end(refusal)
            except Exception as error:
                self._runtime.report_error("a feed", error, request=feed.id)
                feed.end(Failed(f"the node failed on this feed: see its log for request {feed.id}"))

        self._start_fiber(feed.caller.user, work)

    def _start_fiber(self, user: str, work: Callable[[Fiber], None]) -> None:
        """Start work in a fiber of its own. Not at once: fibers are made on the loop, and this may
        be called inside one."""

        def start() -> None:
            fiber = Fiber(self._scheduler, FEED, user)
            fiber.start_in_line(lambda: work(fiber), _nothing)

        self._runtime.loop.call_soon(start)

    def report_error(self, error: Exception) -> None:
        """Report a failed pipeline."""
        self._runtime.report_error("feeds", error)

    def _make_live(self, feed: Feed, fiber: Fiber) -> bool:
        """Make a feed LIVE that has read the whole log. Return False if there is more to read."""
        assert feed.state is FeedState.BEHIND, "who is over is nobody to be told"
        line, position = self._lines.get(feed.view.wanted), self._place_of(feed.view).sequence
        if feed.position < position:
            return False
        # The log is ahead of the hub, or the hub is in the midst of a commit: wait for its end.
        newest = self.commits.position
        if feed.position > newest or (self._passing and position == newest):
            wait = FiberWait(fiber)
            self._joining.block(wait)
            wait.until_resumed()
            return False
        # Likewise for the view's pipeline.
        if line is not None and (line.passing or feed.position > position):
            line.join(fiber)
            return False
        self._live.add(feed)
        feed.go_live()
        return True

    def _place_of(self, view: FeedView) -> FeedCursor:
        """Return the last commit delivered to all feeds of a view that have caught up."""
        line = self._lines.get(view.wanted)
        return self.commits.place if line is None else line.place

    # --- following --------------------------------------------------------------------------------

    def _follow(self, place: FeedCursor) -> None:
        self.commits.place = place
        self._woken()

    def _stop_following(self) -> None:
        """Stop following: no feed is left."""
        if self._follower is not None:
            self._follower.leave()
            self._follower = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._fiber is not None:
            self._fiber.cancel()
            self._fiber = None
        self._passing = False
        self._joining = Line(self.report_error)
        self._due.clear()
        self.commits.forget()

    def _woken(self) -> None:
        assert self._fiber is None, "it is woken where it has asked to be"
        fiber = self._fiber = Fiber(self._scheduler, NODE, "")

        def work() -> None:
            try:
                self._follow_log(fiber)
            except Cancelled:
                if self._fiber is fiber:
                    raise
            except Refusal as refusal:  # of the log, once it has fallen behind the tail
                self.end_all(refusal)
            except Exception as error:
                self._runtime.report_error("feeds", error)
                self.end_all(Failed("the node failed on what its feeds follow"))
            finally:
                if self._fiber is fiber:
                    self._fiber = None

        fiber.start_in_line(work, _nothing)

    def _follow_log(self, fiber: Fiber) -> None:
        while frames := self._take(fiber):
            for frame in frames:
                before = self.commits.place
                self._passing = True
                self._pass(frame, fiber)
                if self._fiber is not fiber:
                    return  # its last feed has ended: see `_stop_following`
                self.commits.place = FeedCursor(frame.sequence, frame.epoch)
                self._passing = False
                due, self._due = self._due, []
                for line in due:
                    line.start_behind_hub(before)
                self._joining.unblock()
                fiber.tick()

    def _take(self, fiber: Fiber) -> list[Frame]:
        """Return the next frames, mostly from memory. Empty: the tail will wake it."""
        try:
            if self._follower is None:
                self._follower = self._committer.tail.follow(self.commits.position, self._woken)
            return self._follower.take(TAKEN_BYTES)
        except FellBehind as behind:
            self._follower = None
            upto = behind.begins - 1
        return fiber.wait(self.commits.reads.frames(self.commits.position, upto, READ_BYTES))

    def _pass(self, frame: Frame, fiber: Fiber) -> None:
        """Deliver one commit to the feeds that have caught up."""
        commit = self.commits.decode(frame, fiber)
        for name, row in commit.users.items():
            self._judge(commit.sequence, name, row)
        for prefix in commit.changes:
            if prefix in self._live.of_table:
                self._deliver_to_table(commit, prefix, fiber)
        if commit.dropped:
            for prefix in list(self._live.of_table):
                if commit.drops(prefix):
                    self._drop(prefix)

    def _drop(self, prefix: bytes) -> None:
        for wanted in list(self._live.of_table.get(prefix, ())):
            view = self._views.get(wanted)
            if view is None:
                continue  # its last feed ended while another was dropped
            if view.looks_back:
                self._due.append(self._lines[wanted])  # it drops them after the earlier commits
            else:
                for feed in self._live.of_view(view):
                    feed.drop()

    def _judge(self, sequence: int, name: str, row: bytes | None) -> None:
        mine = self._of_user.get(name)
        if mine is None:
            return
        user = None if row is None else users.read_row(name, row)
        privileges = None if user is None else self._rights.privileges_of(user)
        for feed in list(mine):
            if feed.authorized_at < sequence:
                attributed = feed.reauthorize(privileges)
                if attributed is not None:
                    self._attribute(feed, attributed)

    def _deliver_to_table(self, commit: FeedCommit, prefix: bytes, fiber: Fiber) -> None:
        commits = self.commits
        for wanted in list(self._live.of_table[prefix]):
            view = self._views.get(wanted)
            if view is None:
                continue  # its last feed ended while another view was served
            if view.looks_back:
                self._due.append(self._lines[wanted])
                continue
            data = view.encode(commit, commits.images, commits.fetcher(fiber), fiber.tick)
            if data is not None:
                self._live.pass_on(data, view, FeedCursor(commit.sequence, commit.epoch), fiber)

    # --- time -------------------------------------------------------------------------------------

    def _beat_later(self) -> None:
        self._timer = self._runtime.loop.call_later(1, self.beat)

    def beat(self) -> None:
        """Send heartbeats to one group of feeds: keep their sessions alive, and report the store's
        progress."""
        self._beat_later()
        self._bucket = (self._bucket + 1) % BUCKETS
        for feed in list(self._buckets[self._bucket]):
            try:
                self._sessions.keep(feed.caller)
            except SessionEnded as refusal:
                feed.end(refusal)
            else:
                feed.beat()


def _nothing() -> None:
    """Callback before a yield: nothing to do."""
