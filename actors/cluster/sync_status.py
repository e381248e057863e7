"""Sync status of a follower, as the follower and its leader report it."""

from __future__ import annotations

from enum import StrEnum


def stranded(leader: str) -> str:
    """Return the message of a stranded node.

    :param leader: display name of the leader it followed
    """
    return (
        f"this node is stranded: it shows commits that {leader} does not have, and follows no"
        f" node. If {leader} has an older copy of its directory, or should not lead, stop it and"
        " start this node again; otherwise delete the directory of this node and join it again"
    )


class SyncStatus(StrEnum):
    """Status word in INFO FOR NODE."""

    COPYING = "copying"
    """Its directory is being filled with a copy of the store."""
    CATCHING_UP = "catching up"
    """It has a log, and lacks frames that it could have."""
    IN_SYNC = "in sync"
    """Everything that it could have had a second ago is on its disk. The leader's report counts all
    frames on its own disk, the follower's report the commit index it has received."""
    COPY_FAILED = "copy failed"
    """It needs a copy and has none, because, say, the leader's log no longer has frames that it
    lacks."""
    STRANDED = "stranded"
    """It shows frames that are not in its leader's history. Nothing was rolled back: an operator
    has to find the cause, and rebuild one of the two nodes."""
