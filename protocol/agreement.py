"""Agreement: the state on which the nodes of a cluster have consensus, and the interface to its
store.

Two facts: the leader (`lead`), and the in-sync replicas (`insync`), which hold every released
commit. Both name nodes by the id made with their data directory, so a wiped machine under an old
name is a new node. A third fact is the newest released frame that a leader reported (`released`):
it exposes an older copy of a directory, which has the same id. Production uses etcd
(`actors/agreement.py`), simulation a model of it. One test suite checks both against this
interface.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class LeaderEntry(NamedTuple):
    """The leader. Its entry expires with the lease that it was taken with."""

    node: str
    epoch: int
    """Leader epoch: grows with each election, whichever node wins. No other source assigns epochs.
    """


class InSyncReplicas(NamedTuple):
    """The in-sync replicas (ISR): nodes that have synced every released commit."""

    epoch: int
    """Epoch of the leader that wrote it."""
    members: frozenset[str]
    revision: int
    """Revision of this write: a compare-and-set names the revision that it is based on."""


class ReleasedFrame(NamedTuple):
    """A released frame: a node that holds it holds all frames before it too. Named by epoch and
    sequence: each epoch has one leader, and another may have written other frames at that sequence.
    """

    epoch: int
    """Epoch of the frame, which may be older than that of the leader that reported it."""
    sequence: int


class ReleaseReport(NamedTuple):
    """Report of a leader: the newest released frame."""

    released: ReleasedFrame
    revision: int
    """Revision of this write."""


class AgreedState(NamedTuple):
    """The whole agreed state, at one moment."""

    cluster: str
    """Id of the agreement itself: another id means that its store was created again, and is empty.
    """
    revision: int
    """Grows with every write; a lower one than before means that the store was set back."""
    lead: LeaderEntry | None
    insync: InSyncReplicas | None
    lineage: int = 0
    """Epoch in which an operator made a node start again from its own data; 0: never. A node that
    knows no later one accepts the state agreed since, whatever it saw before."""
    told: ReleaseReport | None = None
    """The last report of a released frame; None: there was none."""

    @property
    def released(self) -> ReleasedFrame | None:
        """Newest frame that every future leader must hold; None: unknown. A report from before an
        operator made a node start again no longer counts: that node may lack the frame."""
        return (
            None if self.told is None or self.told.revision < self.lineage else self.told.released
        )


class CompareAndSetResult(NamedTuple):
    """Result of a conditional write (compare-and-set)."""

    done: bool
    """False: the condition did not hold, and nothing was written."""
    agreed: AgreedState
    """Agreed state right after the write, in the same transaction."""


class NotAnswered(Exception):
    """No server answered in time, or those that did had no quorum.

    :ivar perhaps: True if the write may have happened, or may still happen
    """

    def __init__(self, why: str, *, perhaps: bool) -> None:
        super().__init__(why)
        self.perhaps = perhaps


class LeaseLapsed(Exception):
    """The lease has expired, and the entries attached to it are deleted."""


class Agreement(Protocol):
    """Interface to the agreement. Every call asks a majority (quorum): its answer held at some
    moment within the call, so reads are linearizable.

    All raise `NotAnswered`. Conditional writes are never retried here: only the caller knows the
    effect of one that may have happened.
    """

    async def read(self) -> AgreedState:
        """Return the agreed state."""

    async def grant(self, seconds: int) -> int:
        """Grant a lease, which expires unless it is renewed. Return its id, never 0."""

    async def renew(self, lease: int) -> int:
        """Renew a lease. Return its remaining seconds, counted from the request.

        :raises LeaseLapsed: it has expired
        """

    async def revoke(self, lease: int) -> None:
        """End a lease and delete the entries attached to it. No effect on an expired one."""

    async def found(self, members: frozenset[str]) -> CompareAndSetResult:
        """Write the first set of in-sync replicas, of epoch 0, if there was never one."""

    async def take_lead(self, node: str, lease: int, insync: int) -> CompareAndSetResult:
        """Become the leader if there is none and the in-sync replicas are still of this revision.

        :raises LeaseLapsed: there is no such lease
        """

    async def change(self, epoch: int, insync: int, members: frozenset[str]) -> CompareAndSetResult:
        """Replace the in-sync replicas if the leader is still of this epoch and they of this
        revision."""

    async def begin_lineage(self, epoch: int, insync: int, node: str) -> CompareAndSetResult:
        """Reduce the in-sync replicas to one node, and record that this epoch starts a lineage.
        Condition: the leader is still of this epoch, and the in-sync replicas of this revision."""

    async def report_released(self, epoch: int, released: ReleasedFrame) -> CompareAndSetResult:
        """Report the newest released frame, if the leader is of this epoch. It does not wake
        callers of `changed`: reports are frequent, and have no effect while there is a leader. Of
        two concurrent reports either may win."""

    async def grow(self, by: int) -> AgreedState:
        """Write `by` empty entries: raises the revision, and so the next epoch, by as much."""

    async def changed(self, after: int, seconds: float) -> AgreedState:
        """Wait until the revision exceeds `after`, or the time-out; then `read`. Reports of
        `report_released` do not count."""

    async def faults(self) -> tuple[str, ...]:
        """Return known faults of the servers that answer, as texts for an operator; empty: none
        known. Says nothing of servers that do not answer."""

    async def close(self) -> None:
        """Cancel pending calls."""
