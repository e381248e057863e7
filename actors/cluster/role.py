"""The role of this node in its cluster, as one value: with a role come the leadership or the task
that it consists of, so neither is ever there without the other.

| role | life | what it is |
|---|---|---|
| `Alone` | alone | in no cluster, or copied by others as long as no failover policy stands |
| `Founder` | founding | its policy is being put into force: nothing is committed meanwhile |
| `Waiting` | waiting | in a cluster, and follows nobody |
| `Elected` | waiting | it has the lead, and its first frame is not written yet |
| `Leader` | leading | it has the lead, or may not know yet that it has lost it |
| `Follower` | following | another node leads, or is copied: it takes that node's frames |

`coordination.py` moves the node from one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from actors.cluster.follow_task import FollowTask
from actors.cluster.leadership import Leadership


class Life(StrEnum):
    """The word for a role in INFO FOR NODE."""

    ALONE = "alone"
    FOUNDING = "founding"
    LEADING = "leading"
    FOLLOWING = "following"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Alone:
    """See the head of the file, as of all of these."""

    life = Life.ALONE
    leadership = follow_task = None


@dataclass(frozen=True, slots=True)
class Founder:
    """Etcd may have been asked to found the set once the file CLUSTER stands: from then on another
    node may lead."""

    life = Life.FOUNDING
    leadership = follow_task = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """It follows nobody, and nobody follows it."""

    life = Life.WAITING
    leadership = follow_task = None


@dataclass(frozen=True, slots=True)
class Elected:
    """It releases nothing yet."""

    leadership: Leadership
    life = Life.WAITING
    follow_task = None


@dataclass(frozen=True, slots=True)
class Leader:
    """The leadership decides up to which commit it releases."""

    leadership: Leadership
    life = Life.LEADING
    follow_task = None


@dataclass(frozen=True, slots=True)
class Follower:
    """Its task may have ended: it is stranded then, or has to be copied."""

    follow_task: FollowTask
    life = Life.FOLLOWING
    leadership = None


Role = Alone | Founder | Waiting | Elected | Leader | Follower
