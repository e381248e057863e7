"""Role of this node in its cluster, one value that includes its leadership or its follow task.

So neither exists without the role.

| role | life | meaning |
|---|---|---|
| `Alone` | alone | in no cluster; or copied by other nodes while no policy is in force |
| `Founder` | founding | its first failover policy is coming into force: commits are refused |
| `Waiting` | waiting | in a cluster, with no leader to follow |
| `Elected` | waiting | has the lead, and has not written its first frame yet |
| `Leader` | leading | has the lead, or has lost it and may not know yet |
| `Follower` | following | receives the frames of a leader, or of the node it was copied from |

`coordination.py` moves the node from one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from actors.cluster.follow_task import FollowTask
from actors.cluster.leadership import Leadership


class RoleName(StrEnum):
    """Name of a role in INFO FOR NODE."""

    ALONE = "alone"
    FOUNDING = "founding"
    LEADING = "leading"
    FOLLOWING = "following"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Alone:
    """In no cluster, or copied by other nodes while no failover policy is in force."""

    life = RoleName.ALONE
    leadership = follow_task = None


@dataclass(frozen=True, slots=True)
class Founder:
    """Puts the first policy into force. Once the file CLUSTER exists, etcd may hold the ISR, and
    another node may lead."""

    life = RoleName.FOUNDING
    leadership = follow_task = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Follows no node, and has no followers."""

    life = RoleName.WAITING
    leadership = follow_task = None


@dataclass(frozen=True, slots=True)
class Elected:
    """Has the lead, and releases nothing yet."""

    leadership: Leadership
    # To clients it still waits: no frame of its epoch exists.
    life = RoleName.WAITING
    follow_task = None


@dataclass(frozen=True, slots=True)
class Leader:
    """Has the lead; its leadership decides the commit index."""

    leadership: Leadership
    life = RoleName.LEADING
    follow_task = None


@dataclass(frozen=True, slots=True)
class Follower:
    """Follows a leader. A task that has ended means that the node is stranded or needs a copy."""

    follow_task: FollowTask
    life = RoleName.FOLLOWING
    leadership = None


Role = Alone | Founder | Waiting | Elected | Leader | Follower
