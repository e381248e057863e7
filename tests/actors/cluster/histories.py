"""All that can happen to three nodes, breadth first: every order in which frames, acknowledgements,
changes of the set, lapses and crashes can meet, up to small bounds. What decides in it is the
node's own code, `actors/cluster/`; what is made up here is the world: etcd, the network, and disks.

Nothing that is under way has to arrive: a node that is cut off, paused or dead is one for which no
step is taken. Frames that a leader has sent still arrive when it has gone.

Older copies (cluster rule 9): a copy of one disk is taken at any moment, and put back at any later
one while a leader that has released its own first frame sees that node go. The leader publishes its
commit index in etcd when it has released that frame, and when it sees a node go. A loss that no
leader sees is left out: `docs/decisions/older-copies.md` says what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from actors.cluster.election import ClaimLead, decide_role
from actors.cluster.leader_state import DEPOSED, LeaderState
from actors.cluster.log_matching import EpochEnd, EpochHistory, accepts_epoch, frame_at
from actors.cluster.log_matching import last_common_frame as where_they_agree
from protocol.agreement import (
    AgreedState,
    CompareAndSetResult,
    InSyncReplicas,
    LeaderEntry,
    ReleasedFrame,
    ReleaseReport,
)
from storage.files.cluster_file import ClusterState

NAMES = ("a", "b", "c")

Log = tuple[int, ...]
"""By sequence, the epoch of each frame: a leader writes one frame at one sequence."""


def may_take_the_lead(agreed: AgreedState, node: str, log: EpochHistory) -> bool:
    """What a node that coordinates decides, and has forgotten nothing."""
    known = ClusterState(agreed.cluster, agreed.revision)
    found = decide_role(known, agreed, node, log, coordinates=True, asked=True)
    return isinstance(found, ClaimLead)


class ModelEtcd(NamedTuple):
    """What is agreed."""

    lead: str | None
    epoch: int
    insync: InSyncReplicas
    published: ReleasedFrame | None = None
    """The commit index that a leader published last."""

    @property
    def agreed(self) -> AgreedState:
        lead = None if self.lead is None else LeaderEntry(self.lead, self.epoch)
        told = None if self.published is None else ReleaseReport(self.published, 0)
        return AgreedState("etcd", 0, lead, self.insync, told=told)


class SearchedNode(NamedTuple):
    """One node: its disk, and what it is at."""

    log: Log = ()
    synced: int = 0
    shown: int = 0
    promised: int = 0
    follows: int = 0
    """The epoch of the leader that it is attached to; 0: none."""
    leads: LeaderState | None = None


class Write(NamedTuple):
    """A change of the set on its way to etcd."""

    node: str
    epoch: int
    revision: int
    members: frozenset[str]
    waited_for: bool
    """Whether its answer is heard."""


class SearchState(NamedTuple):
    etcd: ModelEtcd
    nodes: tuple[SearchedNode, ...]
    writes: frozenset[Write]
    answers: frozenset[tuple[str, int, CompareAndSetResult]]
    sent: frozenset[tuple[int, Log, int]]
    """What leaders that have gone had sent: epoch, log, and what they had released."""
    released: Log
    """All that was ever released."""
    crashes: int
    copies: int
    copy: tuple[str, SearchedNode] | None = None
    """The copy of a node's disk, to be put back."""
    older: str = ""
    """The node that runs on an older copy, and lacks what was released."""
    wrong: str = ""


@dataclass(frozen=True)
class SearchScope:
    """What is tried, and how far.

    :ivar crashes: how often a node may lose what it has not synced
    :ivar copies: how often an older copy of a disk may be put back
    :ivar repeats: whether a change may be asked for again
    """

    frames: int = 2
    epochs: int = 2
    changes: int = 2
    crashes: int = 0
    copies: int = 0
    acks: int = 0
    repeats: bool = False
    leading: type[LeaderState] = LeaderState
    last_common_frame: Callable[[EpochHistory, EpochHistory], int] = where_they_agree
    may_take: Callable[[AgreedState, str, EpochHistory], bool] = may_take_the_lead
    takes: Callable[[int, int], bool] = accepts_epoch
    keeps_promises: bool = True
    small_sets: bool = False
    """Whether the set may get smaller than was promised, so that what comes of it shows."""
    ends_by_reading: bool = False
    """Planted: a leader reads the set, and takes that for an answer."""

    def first(self) -> SearchState:
        """Everybody in the set, and nobody leads."""
        etcd = ModelEtcd(None, 0, InSyncReplicas(0, frozenset(NAMES), 0))
        nothing = frozenset[Write]()
        return SearchState(
            etcd,
            (SearchedNode(),) * len(NAMES),
            nothing,
            frozenset(),
            frozenset(),
            (),
            self.crashes,
            self.copies,
        )

    # --- steps ------------------------------------------------------------------------------------

    def steps(self, state: SearchState) -> Iterator[tuple[str, SearchState]]:
        """Everything that can happen next."""
        if state.etcd.lead is not None:
            yield "the lease lapses", state._replace(etcd=state.etcd._replace(lead=None))
        for name, node in zip(NAMES, state.nodes, strict=True):
            if node.leads is None:
                yield from self._takes_lead(state, name, node)
                yield from self._takes_frame(state, name, node)
            else:
                yield from self._leads(state, name, node, node.leads)
            if state.crashes:
                yield from self._crashes(state, name, node)
            if state.copies and state.copy is None:
                copy = node._replace(follows=0, leads=None)
                yield f"a copy of {name} is taken", state._replace(copy=(name, copy))
        if state.copies and state.copy is not None:
            yield from self._put_back(state, *state.copy)
        yield from self._etcd_writes(state)
        for answer in state.answers:
            yield from self._hears(state, *answer)

    def _takes_lead(
        self, state: SearchState, name: str, node: SearchedNode
    ) -> Iterator[tuple[str, SearchState]]:
        etcd = state.etcd
        if etcd.epoch >= self.epochs or not self.may_take(etcd.agreed, name, _history(node.log)):
            return
        if not etcd.epoch and name != NAMES[0]:
            return  # nobody has led, so all are alike: the same history under other names
        taken = etcd._replace(lead=name, epoch=etcd.epoch + 1)
        if not self.takes(node.promised, taken.epoch) or len(node.log) >= self.frames:
            return
        leads = self.leading(
            name, taken.epoch, self.acks, etcd.insync, own=len(node.log) + 1, synced=node.synced
        )
        log = (*node.log, taken.epoch)
        promised = taken.epoch
        node = node._replace(log=log, promised=promised, follows=0, leads=leads)
        yield f"{name} leads epoch {taken.epoch}", _put(state, name, node)._replace(etcd=taken)

    def _takes_frame(
        self, state: SearchState, name: str, node: SearchedNode
    ) -> Iterator[tuple[str, SearchState]]:
        for leader, (epoch, log, _) in _sources(state):
            if epoch == node.follows and len(log) > len(node.log):
                took = node._replace(log=(*node.log, log[len(node.log)]), synced=len(node.log) + 1)
                found = _put(state, name, took)
                if leader is not None:
                    at = NAMES.index(leader)
                    leads = found.nodes[at].leads
                    assert leads is not None
                    on_report = found.nodes[at]._replace(leads=leads.on_report(name, took.synced))
                    found = _put(found, leader, on_report)
                yield f"{name} takes and acknowledges frame {took.synced} of {epoch}", found

    def _leads(
        self, state: SearchState, name: str, node: SearchedNode, leads: LeaderState
    ) -> Iterator[tuple[str, SearchState]]:
        etcd = state.etcd
        if len(node.log) < self.frames and leads.is_enough:
            longer = node._replace(log=(*node.log, leads.epoch))
            yield f"{name} writes frame {len(longer.log)}", _put(state, name, longer)
        upto = leads.on_synced(len(node.log)).releasable
        if upto > leads.released:
            yield f"{name} syncs and releases up to {upto}", self._release(state, name, node, upto)
        if etcd.insync.revision < self.changes and leads.asked is None:
            for members in sorted(leads.changes(), key=sorted):
                asks = node._replace(leads=leads.asks(members))
                write = Write(name, leads.epoch, leads.insync.revision, members, True)
                asked = _put(state, name, asks)._replace(writes=state.writes | {write})
                yield f"{name} asks for {sorted(members)}", asked
        if self.repeats and leads.asked is not None:
            write = Write(name, leads.epoch, leads.insync.revision, leads.again, True)
            if write not in state.writes:
                before = (
                    w._replace(waited_for=False) if w.node == name else w for w in state.writes
                )
                others = frozenset(each for each in state.answers if each[0] != name)
                again = state._replace(writes=frozenset([*before, write]), answers=others)
                yield f"{name} asks again for {sorted(write.members)}", again
        if (
            self.ends_by_reading
            and leads.asked is not None
            and etcd.agreed.lead == LeaderEntry(name, leads.epoch)
        ):
            reads = leads.on_answer(CompareAndSetResult(False, etcd.agreed))
            assert reads is not DEPOSED
            yield f"{name} reads the set", _put(state, name, node._replace(leads=reads))
        if etcd.agreed.lead != LeaderEntry(name, leads.epoch):
            yield f"{name} hears that it is deposed", _deposed(state, name)
        yield from self._is_attached_to(state, name, node, leads)

    def _release(self, state: SearchState, name: str, node: SearchedNode, upto: int) -> SearchState:
        assert node.leads is not None
        done = node.leads.on_synced(upto).release()
        told, wrong = node.log[: done.released], ""
        if told[: len(state.released)] != state.released[: len(told)]:
            wrong = "two releases differ at one sequence"
        synced, shown = max(node.synced, upto), max(node.shown, done.released)
        shows = node._replace(leads=done, synced=synced, shown=shown)
        longest = max(told, state.released, key=len)
        found = _put(state, name, shows)._replace(released=longest, wrong=wrong)
        return found if node.leads.is_settled else self._publish(found, name, shows)

    def _publish(self, state: SearchState, name: str, node: SearchedNode) -> SearchState:
        """Publish the commit index in etcd, if that still knows the leader."""
        leads = node.leads
        assert leads is not None
        if not self.copies or state.etcd.agreed.lead != LeaderEntry(name, leads.epoch):
            return state
        published = frame_at(_history(node.log), leads.released)
        return state._replace(etcd=state.etcd._replace(published=published))

    def _is_attached_to(
        self, state: SearchState, name: str, node: SearchedNode, leads: LeaderState
    ) -> Iterator[tuple[str, SearchState]]:
        for follower, other in zip(NAMES, state.nodes, strict=True):
            older = other.leads is None or other.leads.epoch < leads.epoch
            if follower == name or other.follows == leads.epoch or not older:
                continue
            if not self.takes(other.promised, leads.epoch):
                continue
            at = self.last_common_frame(_history(node.log), _history(other.log))
            found = _deposed(state, follower) if other.leads is not None else state
            promised = max(other.promised, leads.epoch)
            cut = other._replace(
                log=other.log[:at], synced=at, promised=promised, follows=leads.epoch, leads=None
            )
            found = _put(found, follower, cut)
            found = _put(found, name, node._replace(leads=leads.attached(follower, at)))
            if at < other.shown:
                found = found._replace(wrong="it is asked to cut what it has shown")
            yield f"{follower} attaches to {name} of {leads.epoch}, cuts at {at}", found

    def _crashes(
        self, state: SearchState, name: str, node: SearchedNode
    ) -> Iterator[tuple[str, SearchState]]:
        gone = _deposed(state, name) if node.leads is not None else state
        for kept in range(node.synced, len(node.log) + 1):
            promised = node.promised
            if not self.keeps_promises:
                promised = max(node.log[:kept], default=0)
            again = node._replace(
                log=node.log[:kept], synced=kept, follows=0, leads=None, promised=promised
            )
            found = _put(gone, name, again)._replace(crashes=state.crashes - 1)
            yield f"{name} crashes, comes back with {kept}", found

    def _put_back(
        self, state: SearchState, name: str, copy: SearchedNode
    ) -> Iterator[tuple[str, SearchState]]:
        """A node goes, which a leader sees, and comes back on an older copy of its disk."""
        for leader, node in zip(NAMES, state.nodes, strict=True):
            leads = node.leads
            if leader == name or leads is None or not leads.is_settled:
                continue
            if state.etcd.agreed.lead != LeaderEntry(leader, leads.epoch):
                continue
            sees = node._replace(leads=leads.left(name))
            gone = state if state.nodes[NAMES.index(name)].leads is None else _deposed(state, name)
            found = self._publish(_put(_put(gone, name, copy), leader, sees), leader, sees)
            found = found._replace(copies=state.copies - 1, copy=None, older=name)
            yield f"{leader} sees {name} go, which comes back with {len(copy.log)}", found

    def _etcd_writes(self, state: SearchState) -> Iterator[tuple[str, SearchState]]:
        etcd = state.etcd
        for write in state.writes:
            leads = etcd.agreed.lead == LeaderEntry(write.node, write.epoch)
            done = leads and etcd.insync.revision == write.revision
            after = etcd
            if done:
                insync = InSyncReplicas(write.epoch, write.members, write.revision + 1)
                after = etcd._replace(insync=insync)
            answers = state.answers
            if write.waited_for:
                answer = CompareAndSetResult(done, after.agreed)
                answers = answers | {(write.node, write.epoch, answer)}
            found = state._replace(etcd=after, writes=state.writes - {write}, answers=answers)
            word = "writes" if done else "refuses"
            yield f"etcd {word} {sorted(write.members)} of {write.node}", found

    def _hears(
        self, state: SearchState, name: str, epoch: int, answer: CompareAndSetResult
    ) -> Iterator[tuple[str, SearchState]]:
        node = state.nodes[NAMES.index(name)]
        found = state._replace(answers=state.answers - {(name, epoch, answer)})
        if node.leads is None or node.leads.epoch != epoch:
            yield f"nobody hears an answer to {name}", found
            return
        leads = node.leads.on_answer(answer)
        if isinstance(leads, LeaderState):
            yield f"{name} hears: {answer.done}", _put(found, name, node._replace(leads=leads))
        else:
            yield f"{name} hears that it is deposed", _deposed(found, name)

    # --- what must hold ---------------------------------------------------------------------------

    def broken(self, state: SearchState) -> str:
        """A promise that does not hold in a state; empty: all do."""
        released = state.released
        for name, node in zip(NAMES, state.nodes, strict=True):
            if node.log[: node.shown] != released[: node.shown]:
                return f"{name} shows what was not released"
            newest = node.leads is not None and node.leads.epoch == state.etcd.epoch
            if newest and node.log[: len(released)] != released:
                return f"{name} leads without what was released"
            member = name in state.etcd.insync.members and name != state.older
            if member and node.log[: node.synced][: len(released)] != released:
                return f"{name} is in the set without what was released"
        holders = sum(n.log[: n.synced][: len(released)] == released for n in state.nodes)
        if released and holders < 1 + self.acks - bool(state.older):
            return f"what was released is on {holders} nodes"
        if len(state.etcd.insync.members) < 1 + self.acks and not self.small_sets:
            return "the set is smaller than was promised"
        return state.wrong


def search(world: SearchScope, most: int = 1 << 30) -> tuple[str, list[str], int]:
    """What breaks and the shortest way there, or nothing; and how many states were seen.

    :raises OverflowError: there are more states than that
    """
    begin = world.first()
    came: dict[SearchState, tuple[SearchState, str] | None] = {begin: None}
    level = [begin]
    while level:
        following_level = []
        for state in level:
            for label, after in world.steps(state):
                after = _tidy(after)
                if after in came:
                    continue
                came[after] = state, label
                broken = world.broken(after)
                if broken:
                    return broken, _way(came, after), len(came)
                following_level.append(after)
        if len(came) > most:
            raise OverflowError(f"more than {most} states")
        level = following_level
    return "", [], len(came)


def _tidy(state: SearchState) -> SearchState:
    """A state without what makes no difference any more, so that equal situations are equal: what
    has gone to nobody; and what a follower may show it shows."""
    leads = {node.leads.epoch for node in state.nodes if node.leads is not None}
    follows = {node.follows for node in state.nodes} - leads
    sent = frozenset(one for one in state.sent if one[0] in follows)
    etcd = state.etcd
    writes = frozenset(
        one
        for one in state.writes
        if etcd.agreed.lead == LeaderEntry(one.node, one.epoch)
        and etcd.insync.revision == one.revision
    )
    answers = frozenset(one for one in state.answers if one[1] in leads)
    state = state._replace(sent=sent, writes=writes, answers=answers)
    if state.older:  # until it holds everything again
        node = state.nodes[NAMES.index(state.older)]
        if node.log[: node.synced][: len(state.released)] == state.released:
            state = state._replace(older="")
    reported = {epoch: released for _, (epoch, _, released) in _sources(state)}
    nodes = tuple(
        node
        if node.leads is not None
        else node._replace(shown=max(node.shown, min(len(node.log), reported.get(node.follows, 0))))
        for node in state.nodes
    )
    return state._replace(nodes=nodes)


def _way(came: dict[SearchState, tuple[SearchState, str] | None], state: SearchState) -> list[str]:
    labels = []
    while (before := came[state]) is not None:
        state, label = before
        labels.append(label)
    return labels[::-1]


def _put(state: SearchState, name: str, node: SearchedNode) -> SearchState:
    at = NAMES.index(name)
    return state._replace(nodes=(*state.nodes[:at], node, *state.nodes[at + 1 :]))


def _sources(state: SearchState) -> Iterator[tuple[str | None, tuple[int, Log, int]]]:
    for name, node in zip(NAMES, state.nodes, strict=True):
        if node.leads is not None:
            yield name, (node.leads.epoch, node.log, node.leads.released)
    for sent in state.sent:
        yield None, sent


def _deposed(state: SearchState, name: str) -> SearchState:
    """It leads no more; what it sent is on its way."""
    node = state.nodes[NAMES.index(name)]
    assert node.leads is not None
    sent = node.leads.epoch, node.log, node.leads.released
    found = _put(state, name, node._replace(leads=None))
    return found._replace(sent=state.sent | {sent})


def _history(log: Log) -> list[EpochEnd]:
    last: dict[int, int] = {}
    for sequence, epoch in enumerate(log, 1):
        last[epoch] = sequence
    return [
        EpochEnd(epoch, sequence, b"%d.%d" % (epoch, sequence)) for epoch, sequence in last.items()
    ]
