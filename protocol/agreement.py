"""What the nodes of a cluster agree on, and the door to where they do.

Two facts: who leads (`lead`), and who holds all that was ever released (`insync`). Both name nodes
by the id made with their directory, so that a wiped machine under an old name is nobody. Beside
them stands how far that had come when it was last told (`released`), so that an older copy of a
directory, which has the id, is found out. Production passes etcd (`actors/agreement.py`),
simulation a model of it; one suite of tests holds both to what is said here.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Lead(NamedTuple):
    """Who leads. It goes by itself when the lease that it was taken with lapses."""

    node: str
    epoch: int
    """Grows with each taking of the lead, whoever takes it; nobody else gives numbers like it."""


class InSync(NamedTuple):
    """Who holds, synced, everything ever released."""

    epoch: int
    """Of whoever wrote it."""
    members: frozenset[str]
    revision: int
    """Of this writing: a change names the one that it was made from."""


class Released(NamedTuple):
    """A frame that was released: who holds it holds all before it too. By its epoch and sequence,
    since an epoch has one leader, and another may have written other frames at that sequence."""

    epoch: int
    """Of the frame, which may be older than that of whoever told of it."""
    sequence: int


class Told(NamedTuple):
    """What somebody who led has told of."""

    released: Released
    revision: int
    """Of this writing."""


class Agreed(NamedTuple):
    """All of it, as it was at one moment."""

    cluster: str
    """Names the agreement itself: another one means that it was made anew, and knows nothing."""
    revision: int
    """Grows with everything written; a lower one than before means that it was set back."""
    lead: Lead | None
    insync: InSync | None
    lineage: int = 0
    """The epoch in which an operator had a node begin anew with what it has; 0: never. Who knows of
    nothing later goes by what is agreed since, whatever it has heard before."""
    told: Told | None = None
    """What was told last to be released; None: nobody ever told of anything."""

    @property
    def released(self) -> Released | None:
        """What everybody has to hold who may lead; None: nothing is known of. What was told before
        an operator had a node begin anew counts no more: that node may lack it."""
        return (
            None if self.told is None or self.told.revision < self.lineage else self.told.released
        )


class Answered(NamedTuple):
    """What became of something that was conditional."""

    done: bool
    """False: the condition did not hold, and nothing was written."""
    agreed: Agreed
    """As it is behind that, in the same moment."""


class NotAnswered(Exception):
    """Nobody answered in time, or who did could not decide.

    :ivar perhaps: whether what was asked for may have been done, or may still be
    """

    def __init__(self, why: str, *, perhaps: bool) -> None:
        super().__init__(why)
        self.perhaps = perhaps


class LeaseLapsed(Exception):
    """There is no such lease any more, and what was taken with it has gone."""


class Agreement(Protocol):
    """The door. Every call asks a majority: what it answers was so at some moment within the call.

    All raise `NotAnswered`. What is conditional is never repeated here: of one that has not been
    answered, only its author can tell what that means.
    """

    async def look(self) -> Agreed:
        """What is agreed now."""

    async def grant(self, seconds: int) -> int:
        """A new lease, which lapses unless it is renewed; its id, not 0."""

    async def renew(self, lease: int) -> int:
        """Let a lease begin again; the seconds that it has from when it was asked.

        :raises LeaseLapsed: it has ended
        """

    async def revoke(self, lease: int) -> None:
        """End a lease and what was taken with it; one that has ended is fine."""

    async def found(self, members: frozenset[str]) -> Answered:
        """Write the first set, of epoch 0, if there was never one."""

    async def take_lead(self, node: str, lease: int, insync: int) -> Answered:
        """Take the lead if nobody has it and the set is still of this revision.

        :raises LeaseLapsed: there is no such lease
        """

    async def change(self, epoch: int, insync: int, members: frozenset[str]) -> Answered:
        """Write another set if the lead is still of this epoch and the set of this revision."""

    async def begin_lineage(self, epoch: int, insync: int, node: str) -> Answered:
        """Write a set of one node, and that this epoch began a lineage, if the lead is still of
        this epoch and the set of this revision."""

    async def tell(self, epoch: int, released: Released) -> Answered:
        """Write how far was released, if the lead is of this epoch. Nobody who waits in `changed`
        hears of it: it is said again and again, and nothing follows from it as long as somebody
        leads. Of two that are under way together either may come last."""

    async def grow(self, by: int) -> Agreed:
        """Write so often what says nothing: the revision, and so the next epoch, is that much
        greater."""

    async def changed(self, after: int, seconds: float) -> Agreed:
        """Wait until something was written after a revision, or so long; then `look`. What was only
        told does not count."""

    async def faults(self) -> tuple[str, ...]:
        """What an operator should know of who answers: what is wrong with it, in words; none:
        nothing is known to be. Of who does not answer nothing is known."""

    async def close(self) -> None:
        """Give up what waits."""
