"""Pipelines: process commits for all feeds of one view with a filter or before images.

Such work does not hold up the hub, and each commit is read and evaluated once for all feeds of the
view.

Invariants are the hub's: `position` is the last commit processed whole; a feed joins only between
two commits, and only there. The position of an idle pipeline is that of the hub.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.execution.blocking import Line, ReportError
from actors.execution.fiber import Fiber, FiberWait
from actors.feeds.followed_commits import FollowedCommits
from actors.feeds.live_feeds import LiveFeeds
from actors.feeds.request import FeedCursor
from actors.feeds.views import FeedView
from protocol.errors import Cancelled, Failed, Refusal
from storage.records.commit_changes import FeedCommit


class Pipeline:
    """Processes commits for one view. :param start: starts work soon in a fiber of its own"""

    def __init__(
        self,
        commits: FollowedCommits,
        live: LiveFeeds,
        view: FeedView,
        start: Callable[[Callable[[Fiber], None]], None],
        report_error: ReportError,
    ) -> None:
        self._commits = commits
        self._live = live
        self._view = view
        self._report_error = report_error
        self._start = start
        self._place: FeedCursor | None = None
        """None while it is idle."""
        self._fiber: Fiber | None = None
        self._joining = Line(report_error)
        """Feeds that wait for the end of a commit."""
        self._closed = False
        self.passing = False
        """True in the midst of a commit."""

    @property
    def place(self) -> FeedCursor:
        """The last commit processed whole."""
        return self._commits.place if self._place is None else self._place

    @property
    def position(self) -> int:
        """Sequence of the last commit processed whole."""
        return self.place.sequence

    def join(self, fiber: Fiber) -> None:
        """Have a feed's fiber wait for the end of a commit."""
        wait = FiberWait(fiber)
        self._joining.block(wait)
        wait.until_resumed()

    def start_behind_hub(self, place: FeedCursor) -> None:
        """Start on a commit that the hub has processed and this pipeline has to deliver.

        :param place: the hub's position before that commit
        """
        if self._place is None:
            self._place = place
            self._start(self._run)

    def close(self) -> None:
        """Close the pipeline: its last feed is gone."""
        self._closed = True
        if self._fiber is not None:
            self._fiber.cancel()
        self._wake()

    def _run(self, fiber: Fiber) -> None:
        view = self._view
        try:
            self._fiber = fiber
            if not self._closed:
                self._go_through(fiber)
        except Cancelled:
            if not self._closed:
                raise
        except Refusal as refusal:
            for feed in self._live.of_view(view):
                feed.end(refusal)
        except Exception as error:
            self._report_error(error)
            for feed in self._live.of_view(view):
                feed.end(Failed("the node failed on the filter of its feeds"))
        finally:
            self._fiber = self._place = None
            self.passing = False
            self._wake()

    def _go_through(self, fiber: Fiber) -> None:
        commits, prefix = self._commits, self._view.wanted.prefix
        pin = commits.reads.pin(self.position + 1)
        try:
            while self.position < commits.position:
                for commit in commits.after(self.position, fiber):
                    self.passing = True
                    self._deliver(commit, fiber)
                    if commit.drops(prefix):
                        for feed in self._live.of_view(self._view):
                            feed.drop()
                    self._place = FeedCursor(commit.sequence, commit.epoch)
                    self.passing = False
                    self._wake()
                    fiber.tick()
                pin.move(self.position + 1)
        finally:
            pin.release()

    def _deliver(self, commit: FeedCommit, fiber: Fiber) -> None:
        commits, view = self._commits, self._view
        data = view.encode(commit, commits.images, commits.fetcher(fiber), fiber.tick)
        if data is not None:
            self._live.pass_on(data, view, FeedCursor(commit.sequence, commit.epoch), fiber)

    def _wake(self) -> None:
        self._joining.unblock()
