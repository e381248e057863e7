"""Whether a follower is in sync with who leads, as both of them say it."""

from __future__ import annotations

from enum import StrEnum


def stranded(leader: str) -> str:
    """What is said at a node that is.

    :param leader: whom it followed, as it is called
    """
    return (
        f"this node is stranded: it shows what {leader} does not have, and follows nobody. Where"
        " that one has an older copy of its directory, or should not lead, stop it and start this"
        " node again; else delete the directory of this one, and join it anew"
    )


class SyncStatus(StrEnum):
    """One word, which INFO FOR NODE shows."""

    COPYING = "copying"
    """Its directory is being filled with a copy of the store."""
    CATCHING_UP = "catching up"
    """It has a log, and lacks some of what it could have."""
    IN_SYNC = "in sync"
    """All that it could have a second ago is on its disk: by its leader's word what that one had on
    its own, by its own word what it had heard to be released."""
    COPY_FAILED = "copy failed"
    """It has to be copied, and was not: the leader's log no longer holds what it lacks, say."""
    STRANDED = "stranded"
    """It shows what its leader's history does not hold. Nothing was taken back: an operator has to
    find out why, and to have the one or the other made anew."""
