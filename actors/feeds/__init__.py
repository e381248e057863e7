"""Change feeds (change data capture): every commit that changed a table, from a cursor on.

A feed delivers every commit that changed its table once, whole, and in order, after a position that
its reader names. It follows the table, not the name: a table declared later under the same name is
another.

| file | contents |
|---|---|
| `request.py` | the request to open a feed; interfaces that a surface implements |
| `pending.py` | feeds that wait until the node shows their start |
| `actor.py` | opens feeds: authorization, check of the position's history |
| `hub.py` | follows released commits once for all feeds that have caught up |
| `followed_commits.py` | released commits, decoded once for all feeds |
| `live_feeds.py` | feeds that have caught up, and delivery to them |
| `feed.py` | one feed: caught up, or reading the log until it is |
| `pipelines.py` | follows commits once for feeds with the same costly filter |
| `views.py` | commits encoded once for all feeds that want the same |
| `before_images.py` | before images: records as they were before a change |
"""
