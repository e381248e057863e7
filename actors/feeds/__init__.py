"""Change feeds: who follows a table, from which commit on, and how each of them hears of it.

A feed is told every commit that changed its table once, whole, and in order, from a position on
that its reader names. It is of the table, not of the name: what is declared anew under the name is
another.

| file | what it holds |
|---|---|
| `request.py` | what a feed is asked for, and what a surface has to bring |
| `pending.py` | waits, where the node does not show yet what a feed is to come after |
| `actor.py` | lets a feed in: who asks, and whether the position is of this history |
| `hub.py` | follows the store once for all feeds that have caught up |
| `feed.py` | one of them: caught up, or reading the log until it is |
| `pipelines.py` | follows the store once for those that want the same, where that takes work |
| `views.py` | what feeds that want the same are told, made once for all of them |
| `before_images.py` | records as they were |
"""

from actors.feeds.actor import FeedsActor
from actors.feeds.feed import Feed
from actors.feeds.hub import Feeds
from actors.feeds.request import (
    ACTIONS,
    Change,
    Form,
    Head,
    JudgeFeed,
    Opened,
    OpenFeed,
    Part,
    Place,
    Sink,
)  # fmt: skip

__all__ = [
    "ACTIONS", "Change", "Feed", "Feeds", "FeedsActor", "Form", "Head", "JudgeFeed",
    "OpenFeed", "Opened", "Part", "Place", "Sink",
]  # fmt: skip
