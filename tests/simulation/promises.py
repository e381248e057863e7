"""What a cluster promises, held against what its nodes do, at every step.

The judge knows nothing of how it is done. It sees what each machine's log holds, synced; what each
node shows, frame by frame; what etcd says of who leads and who is in the set; and which commits are
handed to a log. What was shown first at a sequence is the truth there, for everybody and for good.

Looked at with each release, unless something else is said:

- Every member of the set in etcd holds, synced, everything that was ever released. This also with
  each change of the set, each cut of a log and each start.
- The set in etcd never has fewer than `ACKS` members beside the leader: with each change of it.
- Who takes the lead holds everything that was ever released.
- Nobody shows another frame at a sequence, nor one that nobody who leads has released.
- Epochs rise, and one process alone releases what is new in one.
- What is released is on as many followers' disks as `ACKS` says.
- Who takes changes holds the lease: with each commit.
- States are equal at equal sequences: whenever a node has nothing in flight.

A disk that was lost, or in whose place an older copy was put, counts for what it held: it has
acknowledged that. A copy that lacks what was told to be released never leads; of one that lacks
only what was released since, `docs/decisions/older-copies.md` says when it may (`Excused`).

A lineage that an operator begins by force on a node that lacks something has its price, which is
documented: the truth ends with what that node has, and goes on with what it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from protocol.agreement import Agreed
from storage.frames import Frame


class Broken(AssertionError):
    """A promise of the cluster does not hold."""


LACKS: Final = "leads, and does not hold all that was released"


class Excused(Exception):
    """What is documented not to be promised has come: nothing can be said of the world behind
    it."""


class Held(NamedTuple):
    """One frame of a log."""

    digest: bytes
    epoch: int


def held(frames: Sequence[Frame]) -> list[Held]:
    """What is remembered of frames."""
    return [Held(frame.digest(), frame.epoch) for frame in frames]


@dataclass(eq=False)
class Medium:
    """What one machine's log holds on its disk, from its first frame on: also what was pruned, or
    came as a copy's state."""

    name: str
    frames: list[Held] = field(default_factory=list)
    true: int = 0
    """So many of them are the truth."""
    went_back: bool = False
    """Whether it is an older copy of itself, and does not hold all of the truth since: it may not
    lead, and is no fault of its cluster."""
    is_lost: bool = False
    """Whether nobody has it any more: what it held, it had acknowledged, which a leader that has
    heard so may go by still."""
    before: Medium | None = None
    """The disk in whose place this older copy was put, which a leader may go by likewise."""

    def copy(self) -> Medium:
        """Another disk that holds the same."""
        frames, before = list(self.frames), self.before
        return Medium(self.name, frames, self.true, self.went_back, before=before)

    def put_back(self, present: Medium) -> Medium:
        """Another disk that holds the same, in the place of one that is of later."""
        return Medium(self.name, list(self.frames), 0, went_back=True, before=present)

    @property
    def once(self) -> int:
        """How much of the truth it held, at the most."""
        return self.true if self.before is None else max(self.true, self.before.once)

    def stays(self, upto: int) -> None:
        """No more than this is the truth."""
        self.true = min(self.true, upto)
        if self.before is not None:
            self.before.stays(upto)

    def cut(self, after: int) -> None:
        """The log ends with a frame."""
        del self.frames[after:]
        self.true = min(self.true, after)


@dataclass
class Promises:
    """The judge."""

    truth: list[Held] = field(default_factory=list)
    media: dict[str, Medium] = field(default_factory=dict)
    """By the ids of nodes."""
    acks: frozenset[int] = frozenset({0})
    """What the policy in force may say, as far as operators know: the least of it is promised."""
    members: frozenset[str] = frozenset()
    """Those of the set in etcd."""
    led: int = 0
    """The newest epoch that somebody has taken the lead in."""
    gives_back: int = 0
    """An epoch that nothing may be released in: it was taken for who does not hold enough."""
    owners: dict[int, object] = field(default_factory=dict)
    """By epoch, the process that has released something new in it."""
    states: dict[int, str] = field(default_factory=dict)
    """Hashes of the state, by the sequence it stood at."""
    forced: str | None = None
    """The node that begins a new lineage, until it has."""
    cuts: list[tuple[int, int]] = field(default_factory=list)
    """Lineages: the last frame that stayed of the one before, and how many there had been."""

    @property
    def losses(self) -> int:
        """Lineages that began without all that had been released."""
        return sum(stays < had for stays, had in self.cuts)

    # --- what happens -----------------------------------------------------------------------------

    def opened(self, medium: Medium, first: int, frames: Sequence[Frame]) -> None:
        """A process has found these in its log; what was before the first of them is in its state,
        which was pruned or copied."""
        known = medium.frames[: first - 1]
        known += self.truth[len(known) : first - 1]
        if len(known) < first - 1:
            raise Broken(f"{medium.name}: the log begins with {first}, of which nobody knows")
        medium.frames = known + held(frames)
        medium.true = 0
        self._advance(medium)
        self.check_members(f"{medium.name} was started")

    def synced(self, medium: Medium, frames: Sequence[Frame]) -> None:
        """Frames are in a log for good."""
        medium.frames += held(frames)
        self._advance(medium)

    def cut(self, medium: Medium, after: int) -> None:
        """A log was cut."""
        medium.cut(after)
        self.check_members(f"{medium.name} was cut after {after}")

    def agreed(self, agreed: Agreed) -> None:
        """Something was written in etcd."""
        self.members = frozenset() if agreed.insync is None else agreed.insync.members
        self.check_members("the set was written")
        if 0 < len(self.members) < 1 + min(self.acks) and self.forced is None:
            raise Broken(f"the set has shrunk to {len(self.members)}, and ACKS is {min(self.acks)}")
        lead = agreed.lead
        if lead is not None and lead.epoch > self.led:
            self.led, medium = lead.epoch, self.media.get(lead.node)
            if medium is not None and medium.true < len(self.truth) and self.forced is None:
                self._check_excuse(medium, agreed)

    def began_by_force(self, medium: Medium) -> None:
        """A new lineage begins with what one node has."""
        had, stays = len(self.truth), medium.true
        self.cuts.append((stays, had))
        del self.truth[stays:]
        for each in self.media.values():
            each.stays(stays)
        for at in [at for at in self.states if at > stays]:
            del self.states[at]

    def released(self, medium: Medium, process: object, leads: int | None, upto: int) -> None:
        """A node shows all up to a frame from now on.

        :param leads: the epoch in which it leads; None: it does not
        """
        if leads is not None and leads == self.gives_back:
            raise Broken(f"{medium.name} {LACKS}")
        if upto > len(medium.frames):
            raise Broken(f"{medium.name} shows {upto}, and its log ends at {len(medium.frames)}")
        if self.forced is not None and leads is not None:
            at = medium.frames[upto - 1]
            if self.media.get(self.forced) is medium and at.epoch == leads:
                self.forced = None
                self.began_by_force(medium)
        new = medium.frames[len(self.truth) : upto]
        if medium.true < min(upto, len(self.truth)):
            raise Broken(f"{medium.name} shows another frame {medium.true + 1}")
        if not new:
            return
        if leads is None:
            raise Broken(f"{medium.name} shows {upto}, which nobody has released")
        newest = self.truth[-1].epoch if self.truth else 0
        if any(frame.epoch < newest for frame in new) or new[-1].epoch != leads:
            raise Broken(f"{medium.name} releases in epoch {leads}, behind epoch {newest}")
        if self.members and self.owners.setdefault(leads, process) is not process:
            raise Broken(f"{medium.name} releases in epoch {leads}, which was another's")
        self.truth += new
        for each in self.media.values():
            self._advance(each)
        self.check_members(f"{medium.name} has released {upto}")
        self._check_acks(medium, upto)

    def committed(self, name: str, epoch: int, agreed: Agreed) -> None:
        """A node that leads, as it believes, has taken a change."""
        if agreed.lead is None or agreed.lead.epoch != epoch:
            raise Broken(f"{name} takes changes in epoch {epoch}, and does not hold the lease")

    def state(self, name: str, at: int, hash: str) -> None:
        """The state of a node at a sequence."""
        if self.states.setdefault(at, hash) != hash:
            raise Broken(f"the state of {name} at {at} is another one")

    def _check_excuse(self, medium: Medium, agreed: Agreed) -> None:
        """Who leads does not hold all that was released. An older copy of a directory may do so, if
        it holds all that was told to be. One that holds less was named by a request of the process
        that had the newer one, which has come late: it gives the lead back."""
        told = 0 if agreed.released is None else agreed.released.sequence
        if not medium.went_back:
            raise Broken(f"{medium.name} {LACKS}")
        if medium.true < told:
            self.gives_back = self.led
            return
        raise Excused(f"{medium.name} leads, which is an older copy, and holds what was told")

    # --- what must hold ---------------------------------------------------------------------------

    def check_members(self, when: str) -> None:
        """Every member of the set holds everything that was released."""
        for node in sorted(self.members):
            medium = self.media.get(node)
            if medium is None or (medium.went_back and medium.once == len(self.truth)):
                continue  # it has gone back since what was released last
            if medium.true < len(self.truth) and self.forced is None:
                raise Broken(
                    f"{medium.name} is in the set, and holds {medium.true} of the"
                    f" {len(self.truth)} that were released: {when}"
                )

    def _check_acks(self, medium: Medium, upto: int) -> None:
        holding = sum(each.once >= upto for each in self.media.values())
        if holding < 1 + min(self.acks):
            raise Broken(
                f"{medium.name} has released {upto}, which is on {holding} disks, and ACKS is"
                f" {min(self.acks)}"
            )

    def _advance(self, medium: Medium) -> None:
        """See how much of what a log holds is the truth."""
        frames, truth, at = medium.frames, self.truth, medium.true
        while at < len(frames) and at < len(truth) and frames[at].digest == truth[at].digest:
            at += 1
        medium.true = at
        owes, before = False, medium.before
        if before is not None:
            self._advance(before)
            # It had acknowledged more than is released by now: a leader may go by that still.
            ahead = before.true == len(truth) and len(before.frames) > len(frames)
            owes = ahead and at == len(frames)
        medium.went_back &= at < len(truth) or owes
