"""The one way by which anything is changed: from a transaction to its answer.

| file | what it holds |
|---|---|
| `committer.py` | the door: takes a change, attributes and commits it, gives its ticket |
| `tickets.py` | tickets of commits, those that were taken back, who waits |
| `following.py` | the frames of another node's log, from the network to the ledger |
| `batches.py` | commits on their way to the log, gathered |
| `gathering.py` | when to run what comes in numbers, so that it shares commits |
| `barriers.py` | who gets a turn, after having lost too often, and for how long |
| `requesters.py` | who has asked on a surface, and hears what came of it |
| `waiters.py` | answers that wait for the disk, and how they are seen and ended |
| `settling.py` | what is released, on its way to the state engine |
| `idle_marks.py` | the mark in a log that has fallen idle |
| `arrivals.py` | who waits for what is not shown yet, wherever it comes from |
| `tail.py` | the newest frames, for whoever follows the store |
| `actor.py` | hears from the log |

Two numbers say how far a commit has come. What is *durable* is on this node's disk. What is
*released* may be shown: answered, settled into the state, given to followers. On a node that stands
alone the one follows the other at once; nothing here relies on that. Where another node leads,
nothing is committed here, and what is durable enters the ledger when it is released.
"""

from actors.commits.actor import CommitsActor
from actors.commits.committer import NODE, By, Committer, Who
from actors.commits.gathering import Gathering
from actors.commits.requesters import Asker, Origin, described
from actors.commits.tail import FellBehind, Follower, Tail
from actors.commits.tickets import Bounded, Stall, Told
from actors.commits.waiters import Waiter

__all__ = [
    "NODE", "Asker", "Bounded", "By", "Committer", "CommitsActor", "FellBehind",
    "Follower", "Gathering", "Origin", "Stall", "Tail", "Told", "Waiter", "Who",
    "described",
]  # fmt: skip
