"""Ablation: the rules of a cluster, each disabled in `actors/cluster` as a planted fault that a
simulation must detect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final
from unittest.mock import patch
from weakref import WeakKeyDictionary

import actors.cluster.coordinator
import actors.cluster.election
import actors.cluster.leader
import actors.cluster.leader_state
import actors.cluster.replica_senders
from actors.cluster.durable_state import DurableState
from actors.cluster.election import NextRole
from actors.cluster.leader import LeadHolder
from actors.cluster.leader_state import Leadership, LeaderState, LeadLease
from actors.cluster.replica_receiver import ReplicaReceiver
from actors.commits.committer import Committer
from actors.commits.following import FollowedLog
from actors.node import Node
from protocol.agreement import AgreedState, CompareAndSetResult, InSyncReplicas
from protocol.requests import LogEnds
from storage.files.cluster_file import ClusterState
from storage.formats.frames import Frame
from storage.formats.positions import EpochEnd, EpochHistory
from tests.simulation.agreement import AgreementModel

Patches = Sequence[tuple[Any, str, Any]]


@contextmanager
def _patched(patches: Patches) -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, value in patches:
            stack.enter_context(patch.object(target, name, value))
        yield


# --- cluster rule 1: released when it is on every member of the ISR -------------------------------


def _alone(leading: LeaderState) -> frozenset[str]:
    return frozenset({leading.node})


def _always(_leading: LeaderState) -> bool:
    return True


def _may_remove_any(leading: LeaderState, *gone: str) -> bool:
    return leading.asked is None and len(gone) == 1 and {*gone} <= leading.members - {leading.node}


# --- cluster rule 2: the ISR ----------------------------------------------------------------------


def _asked_set(leading: LeaderState) -> frozenset[str]:
    return leading.asked or leading.members


def _old_set(leading: LeaderState) -> frozenset[str]:
    return leading.members


def _adds_early(leading: LeaderState, follower: str) -> bool:
    return leading.asked is None and follower not in leading.members and leading.is_settled


def _adds_unsettled(leading: LeaderState, follower: str) -> bool:
    holds_all = dict(leading.held).get(follower, -1) >= leading.released
    return leading.asked is None and follower not in leading.members and holds_all


_fine_asks = Leadership.asks


def _forgets_the_change(leadership: Leadership, trusted: frozenset[str]) -> Any:
    """Treat a change without an answer as failed because the ISR does not show it."""
    leadership._leading = replace(leadership._leading, asked=None)
    return _fine_asks(leadership, trusted)


# --- cluster rule 3: election of a leader ---------------------------------------------------------


def _anyone(agreed: AgreedState, _node: str) -> bool:
    return agreed.lead is None and agreed.insync is not None


def _takes_any_set(
    model: AgreementModel, node: str, lease: int, _insync: int
) -> CompareAndSetResult:
    return _fine_take(model, node, lease, model._insync_revision)


_fine_take = AgreementModel.take_lead


def _changes_for_anybody(
    model: AgreementModel, epoch: int, insync: int, members: frozenset[str]
) -> CompareAndSetResult:
    """Change the ISR without comparing the epoch."""
    if model._insync_revision != insync:
        return CompareAndSetResult(False, model.agreed)
    model.insync = InSyncReplicas(epoch, members, model._write())
    return CompareAndSetResult(True, model.agreed)


def _changes_any_set(
    model: AgreementModel, epoch: int, _insync: int, members: frozenset[str]
) -> CompareAndSetResult:
    """Change the ISR without comparing the ISR that it was derived from."""
    if model.lead is None or model.lead.epoch != epoch:
        return CompareAndSetResult(False, model.agreed)
    model.insync = InSyncReplicas(epoch, members, model._write())
    return CompareAndSetResult(True, model.agreed)


# --- cluster rule 4: the deadline -----------------------------------------------------------------


def _never_over(_lease: LeadLease, _now_us: int) -> bool:
    return False


# --- cluster rule 5: promises, syncing, showing ---------------------------------------------------


def _takes_all(_receiving: ReplicaReceiver, _epoch: int) -> None:
    pass


async def _promises_any(memory: DurableState, epoch: int) -> None:
    """Accept an older epoch than the promised one."""
    async with memory._saving:
        await memory._keep(memory.now._replace(promised=epoch))


_in_memory = WeakKeyDictionary[DurableState, int]()


async def _promises_in_memory(memory: DurableState, epoch: int) -> None:
    _in_memory[memory] = max(epoch, _promised_in_memory(memory))


def _promised_in_memory(memory: DurableState) -> int:
    return _in_memory.get(memory, 0)


_fine_course = actors.cluster.election.decide_role


def _follows_any(memory: ClusterState, *seen: Any, **how: Any) -> NextRole:
    return _fine_course(memory._replace(promised=0), *seen, **how)


def _any_revision(memory: DurableState) -> ClusterState:
    return (memory._stands or ClusterState())._replace(revision=0)


_fine_receiving_take = ReplicaReceiver._on_frames


def _acknowledges_early(receiving: ReplicaReceiver, frames: list[Frame], released: int) -> None:
    _fine_receiving_take(receiving, frames, released)
    receiving._synced = frames[-1].sequence
    receiving._acknowledge_soon()


_fine_hear_released = ReplicaReceiver._on_commit_index


def _shows_all(receiving: ReplicaReceiver, released: int) -> None:
    _fine_hear_released(receiving, max(released, receiving._synced))


_fine_follow_first = Committer.follow_first


def _replays_all(committer: Committer, refusal: Any) -> None:
    _fine_follow_first(committer, refusal)
    committer.show(committer.log_upto)


# --- cluster rule 6: truncation -------------------------------------------------------------------


def _by_sequence(ours: EpochHistory, theirs: EpochHistory) -> int:
    return min(max((r.last for r in ours), default=0), max((r.last for r in theirs), default=0))


async def _cuts_nothing(_committer: Committer, _after: int) -> None:
    pass


# --- cluster rule 9: a new leader holds all that was published ------------------------------------


def _lacks_nothing(_log: EpochHistory, _agreed: AgreedState) -> None:
    pass


def _never_back(_leading: LeaderState, _member: str) -> bool:
    return False


# --- the page's rules for another lineage, and for an etcd that was set back ----------------------


_fine_ends = FollowedLog.ends


def _keeps_what_was_told(following: FollowedLog, epoch_end: EpochEnd) -> None:
    """Keep the commit index that an earlier leader sent, even for frames that are cut here."""
    told, said = following.told, following._said
    _fine_ends(following, epoch_end)
    following.told, following._said = told, said


_fine_known = LeadHolder._known


def _knows_nothing_older(holding: LeadHolder) -> Any:
    """Accept an older state of etcd, with its ISR, as newer."""
    known = _fine_known.__get__(holding)
    return known._replace(memory=known.memory._replace(revision=0), insync=0)


# --- the page's rule for an etcd that was lost ----------------------------------------------------


def _what_is_shown(node: Node) -> LogEnds | None:
    present = node.committer.present
    return LogEnds(present.epoch, node.committer.commit_index)


_PLACES: Final[dict[str, Patches]] = {
    "1-members": [(LeaderState, "waited_for", property(_alone))],
    "1-acks-late": [
        (LeaderState, "is_enough", property(_always)),
        (LeaderState, "may_remove", _may_remove_any),
    ],
    "2-before": [(LeaderState, "waited_for", property(_asked_set))],
    "2-add-early": [(LeaderState, "may_add", _adds_early)],
    "2-add-new": [(LeaderState, "may_add", _adds_unsettled)],
    "2-union": [(LeaderState, "waited_for", property(_old_set))],
    "2-read-ends": [(Leadership, "asks", _forgets_the_change)],
    "3-anyone": [(actors.cluster.election, "may_take", _anyone)],
    "3-set": [(AgreementModel, "take_lead", _takes_any_set)],
    "3-lead": [(AgreementModel, "change", _changes_for_anybody)],
    "3-mod": [(AgreementModel, "change", _changes_any_set)],
    "4-deadline": [(LeadLease, "is_over", _never_over)],
    "5-epoch": [
        (ReplicaReceiver, "_check_epoch", _takes_all),
        (DurableState, "promise", _promises_any),
        (actors.cluster.coordinator, "decide_role", _follows_any),
    ],
    "5-seen-memory": [
        (DurableState, "promise", _promises_in_memory),
        (DurableState, "promised", property(_promised_in_memory)),
    ],
    "revision": [(DurableState, "now", property(_any_revision))],
    "5-ack-early": [(ReplicaReceiver, "_on_frames", _acknowledges_early)],
    "5-apply-early": [(ReplicaReceiver, "_on_commit_index", _shows_all)],
    "5-replay-all": [(Committer, "follow_first", _replays_all)],
    "6-no-cut": [(Committer, "cut", _cuts_nothing)],
    "6-sequence": [(actors.cluster.replica_senders, "last_common_frame", _by_sequence)],
    "9-holds": [(actors.cluster.election, "missing_entries", _lacks_nothing)],
    "9-back": [(LeaderState, "has_gone_back", _never_back)],
    "log-ends": [(Node, "_log_ends", property(_what_is_shown))],
    "m-shrink": [(LeaderState, "may_remove", _may_remove_any)],
    "x-told": [(FollowedLog, "ends", _keeps_what_was_told)],
    "x-etcd-within": [(LeadHolder, "_known", property(_knows_nothing_older))],
}

_NINTH: Final = (*_PLACES["9-holds"], *_PLACES["9-back"])
"""Disabled together with each other rule: it would depose a leader that was elected wrongly."""

LEFT_OUT: Final[dict[str, Callable[[], Any]]] = {
    name: partial(_patched, places if name.startswith("9-") else (*places, *_NINTH))
    for name, places in _PLACES.items()
}
"""Contexts that disable a rule, by its name in the model of the rules.

`5-epoch` and `5-seen-memory` alone do no visible harm. A node listens to one other node at a time,
and ends that before it listens to the next or leads itself. It follows the leader that etcd names,
and etcd's answers are never older than the last one. Without the check of etcd's revisions
(`revision`) only the promise is left: `test_bad_histories.py` tests with both, one, and none of
them. In the model of the rules frames of an older leader come by themselves.
"""
