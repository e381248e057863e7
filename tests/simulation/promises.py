"""Checker of a cluster: its guarantees (invariants), held against its nodes at every step.

The judge knows nothing of the implementation. It sees the synced log of each machine, and the
frames that each node shows. It sees the lead and the in-sync replicas (ISR) in etcd, and the
commits that are handed to a log. The first frame shown at a sequence is the truth there, for all
nodes and for ever.

The invariants, checked with each release unless stated otherwise:

- Every member of the ISR in etcd has synced everything that was ever released. This is also checked
  with each change of the ISR, each cut of a log and each start.
- The ISR in etcd has at least `ACKS` members beside the leader: with each change of it.
- A new leader holds everything that was ever released.
- No node shows another frame at a sequence, nor one that no leader has released.
- Epochs rise, and in an epoch only one process releases new frames.
- A released frame is on as many followers' disks as `ACKS` says.
- A node that accepts changes holds the lease: with each commit.
- States are equal at equal sequences: whenever a node has no pending writes.

A disk that was lost, or replaced by an older copy, counts with its content: it has acknowledged
that. A copy that lacks frames whose release was published in etcd never leads. If it lacks only
later ones, `docs/decisions/older-copies.md` says when it may lead (`Excused`).

If an operator forces a lineage on a node that lacks frames, the loss is documented: the truth ends
with the frames of that node, and continues with its later writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from protocol.agreement import AgreedState
from storage.formats.frames import Frame


class ClusterGuaranteeViolated(AssertionError):
    """A guarantee of the cluster is violated."""


LACKS: Final = "leads, and does not hold all that was released"


class Excused(Exception):
    """A documented exception to the guarantees has happened: the rest of the run can't be
    judged."""


class HeldFrame(NamedTuple):
    digest: bytes
    epoch: int


def held(frames: Sequence[Frame]) -> list[HeldFrame]:
    """Return the recorded part of frames: digest and epoch."""
    return [HeldFrame(frame.digest(), frame.epoch) for frame in frames]


@dataclass(eq=False)
class Medium:
    """Synced content of one machine's log from its first frame on, with pruned frames and those
    that came as a copy's state."""

    name: str
    frames: list[HeldFrame] = field(default_factory=list)
    true: int = 0
    """Number of its frames that agree with the truth."""
    went_back: bool = False
    """True for an older copy of itself that lacks newer frames of the truth. It may not lead, and
    its absence is no fault of the cluster."""
    is_lost: bool = False
    """True if the disk is gone. It has acknowledged its frames; a leader may rely on that."""
    before: Medium | None = None
    """The disk that this older copy has replaced, on whose frames a leader may still rely."""

    def copy(self) -> Medium:
        """Return another disk with the same content."""
        frames, before = list(self.frames), self.before
        return Medium(self.name, frames, self.true, self.went_back, before=before)

    def put_back(self, present: Medium) -> Medium:
        """Return another disk with the same content, as an older copy that replaces `present`."""
        return Medium(self.name, list(self.frames), 0, went_back=True, before=present)

    @property
    def once(self) -> int:
        """Largest number of true frames that it ever held."""
        return self.true if self.before is None else max(self.true, self.before.once)

    def stays(self, upto: int) -> None:
        """Shorten the true part to `upto` frames."""
        self.true = min(self.true, upto)
        if self.before is not None:
            self.before.stays(upto)

    def cut(self, after: int) -> None:
        del self.frames[after:]
        self.true = min(self.true, after)


@dataclass
class GuaranteeJudge:
    """The judge: checks the invariants."""

    truth: list[HeldFrame] = field(default_factory=list)
    media: dict[str, Medium] = field(default_factory=dict)
    """Media by node id."""
    acks: frozenset[int] = frozenset({0})
    """Values that ACKS may have, as far as operators know; the guarantee is the least of them."""
    members: frozenset[str] = frozenset()
    """In-sync replicas in etcd."""
    led: int = 0
    """Newest epoch that a node has taken the lead in."""
    gives_back: int = 0
    """Epoch in which no frame may be written: its leader holds too few frames."""
    owners: dict[int, object] = field(default_factory=dict)
    """By epoch, the process that has released new frames in it."""
    states: dict[int, str] = field(default_factory=dict)
    """Hashes of the state, by sequence."""
    forced: str | None = None
    """Node that an operator has ordered to begin a lineage by force, until it has."""
    cuts: list[tuple[int, int]] = field(default_factory=list)
    """Lineages: last frame kept of the one before, and number of frames released by then."""

    @property
    def losses(self) -> int:
        """Number of lineages that began without all released frames."""
        return sum(stays < had for stays, had in self.cuts)

    # --- what happens -----------------------------------------------------------------------------

    def opened(self, medium: Medium, first: int, frames: Sequence[Frame]) -> None:
        """Record the frames that a process found in its log. Earlier frames are in its state:
        pruned or copied."""
        known = medium.frames[: first - 1]
        known += self.truth[len(known) : first - 1]
        if len(known) < first - 1:
            raise ClusterGuaranteeViolated(
                f"{medium.name}: the log begins with {first}, of which nobody knows"
            )
        medium.frames = known + held(frames)
        medium.true = 0
        self._advance(medium)
        self.check_members(f"{medium.name} was started")

    def synced(self, medium: Medium, frames: Sequence[Frame]) -> None:
        medium.frames += held(frames)
        self._advance(medium)

    def cut(self, medium: Medium, after: int) -> None:
        medium.cut(after)
        self.check_members(f"{medium.name} was cut after {after}")

    def agreed(self, agreed: AgreedState) -> None:
        self.members = frozenset() if agreed.insync is None else agreed.insync.members
        self.check_members("the set was written")
        if 0 < len(self.members) < 1 + min(self.acks) and self.forced is None:
            raise ClusterGuaranteeViolated(
                f"the set has shrunk to {len(self.members)}, and ACKS is {min(self.acks)}"
            )
        lead = agreed.lead
        if lead is not None and lead.epoch > self.led:
            self.led, medium = lead.epoch, self.media.get(lead.node)
            if medium is not None and medium.true < len(self.truth) and self.forced is None:
                self._check_excuse(medium, agreed)

    def began_by_force(self, medium: Medium) -> None:
        """Begin a new lineage with the frames of one node."""
        had, stays = len(self.truth), medium.true
        self.cuts.append((stays, had))
        del self.truth[stays:]
        for each in self.media.values():
            each.stays(stays)
        for at in [at for at in self.states if at > stays]:
            del self.states[at]

    def released(self, medium: Medium, process: object, leads: int | None, upto: int) -> None:
        """Check that a node shows all frames up to `upto`.

        :param leads: the epoch in which it leads; None: it does not
        """
        if upto > len(medium.frames):
            raise ClusterGuaranteeViolated(
                f"{medium.name} shows {upto}, and its log ends at {len(medium.frames)}"
            )
        if self.forced is not None and leads is not None:
            at = medium.frames[upto - 1]
            if self.media.get(self.forced) is medium and at.epoch == leads:
                self.forced = None
                self.began_by_force(medium)
        new = medium.frames[len(self.truth) : upto]
        if medium.true < min(upto, len(self.truth)):
            raise ClusterGuaranteeViolated(f"{medium.name} shows another frame {medium.true + 1}")
        if not new:
            return
        if leads is None:
            raise ClusterGuaranteeViolated(f"{medium.name} shows {upto}, which nobody has released")
        newest = self.truth[-1].epoch if self.truth else 0
        if any(frame.epoch < newest for frame in new) or new[-1].epoch != leads:
            raise ClusterGuaranteeViolated(
                f"{medium.name} releases in epoch {leads}, behind epoch {newest}"
            )
        if self.members and self.owners.setdefault(leads, process) is not process:
            raise ClusterGuaranteeViolated(
                f"{medium.name} releases in epoch {leads}, which was another's"
            )
        self.truth += new
        for each in self.media.values():
            self._advance(each)
        self.check_members(f"{medium.name} has released {upto}")
        self._check_acks(medium, upto)

    def wrote(self, name: str, epoch: int) -> None:
        """Check a frame that a leader writes, the first one of its epoch too."""
        if epoch == self.gives_back:
            raise ClusterGuaranteeViolated(f"{name} {LACKS}")

    def committed(self, name: str, epoch: int, agreed: AgreedState) -> None:
        """Check a commit of a node that believes to lead."""
        if agreed.lead is None or agreed.lead.epoch != epoch:
            raise ClusterGuaranteeViolated(
                f"{name} takes changes in epoch {epoch}, and does not hold the lease"
            )

    def state(self, name: str, at: int, hash: str) -> None:
        """Compare the state of a node with others at the same sequence."""
        if self.states.setdefault(at, hash) != hash:
            raise ClusterGuaranteeViolated(f"the state of {name} at {at} is another one")

    def _check_excuse(self, medium: Medium, agreed: AgreedState) -> None:
        """Judge a leader that lacks released frames.

        An older copy may lead if it holds all frames whose release was published in etcd. A copy
        that lacks some of these was elected by a late request of the process with the newer
        directory: it must give the lead back.
        """
        told = 0 if agreed.released is None else agreed.released.sequence
        if not medium.went_back:
            raise ClusterGuaranteeViolated(f"{medium.name} {LACKS}")
        if medium.true < told:
            self.gives_back = self.led
            return
        raise Excused(f"{medium.name} leads, which is an older copy, and holds what was told")

    # --- what must hold ---------------------------------------------------------------------------

    def check_members(self, when: str) -> None:
        """Check that every member of the ISR holds all released frames."""
        for node in sorted(self.members):
            medium = self.media.get(node)
            if medium is None or (medium.went_back and medium.once == len(self.truth)):
                continue  # it has gone back since what was released last
            if medium.true < len(self.truth) and self.forced is None:
                raise ClusterGuaranteeViolated(
                    f"{medium.name} is in the set, and holds {medium.true} of the"
                    f" {len(self.truth)} that were released: {when}"
                )

    def _check_acks(self, medium: Medium, upto: int) -> None:
        holding = sum(each.once >= upto for each in self.media.values())
        if holding < 1 + min(self.acks):
            raise ClusterGuaranteeViolated(
                f"{medium.name} has released {upto}, which is on {holding} disks, and ACKS is"
                f" {min(self.acks)}"
            )

    def _advance(self, medium: Medium) -> None:
        """Update how many frames of a log agree with the truth."""
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
