"""LIVE feeds by table and view, and the delivery of encoded commits to them."""

from __future__ import annotations

from collections.abc import Callable

from actors.execution.fiber import Fiber
from actors.feeds.feed import Feed, FeedState
from actors.feeds.followed_commits import FollowedCommits
from actors.feeds.request import FeedCursor
from actors.feeds.views import LONG, FeedView, Long, ViewParameters


class LiveFeeds:
    """Feeds that have caught up.

    :param have_read: has a feed read the log: it has fallen behind
    """

    def __init__(self, commits: FollowedCommits, have_read: Callable[[Feed], None]) -> None:
        self._commits = commits
        self._have_read = have_read
        self.of_table: dict[bytes, dict[ViewParameters, dict[Feed, None]]] = {}
        """Feeds by the prefix of their table's records and by view."""

    def add(self, feed: Feed) -> None:
        """Add a feed that has caught up."""
        wanted = feed.view.wanted
        self.of_table.setdefault(wanted.prefix, {}).setdefault(wanted, {})[feed] = None

    def remove(self, feed: Feed) -> None:
        """Remove a feed, if it is here."""
        prefix, wanted = feed.view.wanted.prefix, feed.view.wanted
        views = self.of_table.get(prefix, {})
        feeds_of_view = views.get(wanted, {})
        if feeds_of_view.pop(feed, self) is self:
            return
        if not feeds_of_view:
            del views[wanted]
        if not views:
            del self.of_table[prefix]

    def of_view(self, view: FeedView) -> list[Feed]:
        """Return the feeds of a view that have caught up."""
        return list(self.of_table.get(view.wanted.prefix, {}).get(view.wanted, ()))

    def pass_on(self, data: bytes | Long, view: FeedView, place: FeedCursor, fiber: Fiber) -> None:
        """Deliver an encoded commit to the feeds of a view."""
        for feed in self.of_view(view):
            # During delivery to another feed it may have ended, or moved to another view. It may
            # even have come back from there: with this commit delivered, and with later ones.
            if feed.state is not FeedState.LIVE or feed.view is not view or feed.place >= place:
                continue
            if data is LONG:
                # Each at its reader's pace: the output may be many times the limit of its buffer.
                told = feed.place
                self.remove(feed)
                feed.fall_behind(told)
                self._have_read(feed)
            else:
                feed.deliver(data, place)
                self._commits.told += 1
            fiber.tick()
