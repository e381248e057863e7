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

import actors.cluster.coordination
import actors.cluster.courses
import actors.cluster.holding
import actors.cluster.leadership
import actors.cluster.shipping
import actors.cluster.takeover
from actors.cluster.courses import Course
from actors.cluster.holding import Holding
from actors.cluster.leadership import Leadership
from actors.cluster.leading import Leading
from actors.cluster.lease import Lease
from actors.cluster.memory import Memory
from actors.cluster.receiving import Receiving
from actors.commits import Committer
from actors.commits.following import Following
from actors.node import Node
from protocol.agreement import Agreed, Answered, InSync
from protocol.requests import LogEnds
from storage.files.cluster_file import Cluster
from storage.formats.epochs import History, Reign
from storage.formats.frames import Frame
from tests.simulation.agreement import AgreementModel

Patches = Sequence[tuple[Any, str, Any]]


@contextmanager
def _patched(patches: Patches) -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, value in patches:
            stack.enter_context(patch.object(target, name, value))
        yield


# --- rule 1: released when it is on all of the set ------------------------------------------------


def _alone(leading: Leading) -> frozenset[str]:
    return frozenset({leading.node})


def _always(_leading: Leading) -> bool:
    return True


def _may_remove_any(leading: Leading, *gone: str) -> bool:
    return leading.asked is None and len(gone) == 1 and {*gone} <= leading.members - {leading.node}


# --- rule 2: the set ------------------------------------------------------------------------------


def _asked_set(leading: Leading) -> frozenset[str]:
    return leading.asked or leading.members


def _old_set(leading: Leading) -> frozenset[str]:
    return leading.members


def _adds_early(leading: Leading, follower: str) -> bool:
    return leading.asked is None and follower not in leading.members and leading.is_settled


def _adds_unsettled(leading: Leading, follower: str) -> bool:
    holds_all = dict(leading.held).get(follower, -1) >= leading.released
    return leading.asked is None and follower not in leading.members and holds_all


_fine_asks = Leadership.asks


def _forgets_the_change(leadership: Leadership, trusted: frozenset[str]) -> Any:
    """Treat a change without an answer as failed because the ISR does not show it."""
    leadership._leading = replace(leadership._leading, asked=None)
    return _fine_asks(leadership, trusted)


# --- rule 3: election of a leader -----------------------------------------------------------------


def _anyone(agreed: Agreed, _node: str) -> bool:
    return agreed.lead is None and agreed.insync is not None


def _takes_any_set(model: AgreementModel, node: str, lease: int, _insync: int) -> Answered:
    return _fine_take(model, node, lease, model._insync_revision)


_fine_take = AgreementModel.take_lead


def _changes_for_anybody(
    model: AgreementModel, epoch: int, insync: int, members: frozenset[str]
) -> Answered:
    """Change the ISR without comparing the epoch."""
    if model._insync_revision != insync:
        return Answered(False, model.agreed)
    model.insync = InSync(epoch, members, model._write())
    return Answered(True, model.agreed)


def _changes_any_set(
    model: AgreementModel, epoch: int, _insync: int, members: frozenset[str]
) -> Answered:
    """Change the ISR without comparing the ISR that it was derived from."""
    if model.lead is None or model.lead.epoch != epoch:
        return Answered(False, model.agreed)
    model.insync = InSync(epoch, members, model._write())
    return Answered(True, model.agreed)


# --- rule 4: the deadline -------------------------------------------------------------------------


def _never_over(_lease: Lease, _now_us: int) -> bool:
    return False


# --- rule 5: promises, syncing, showing -----------------------------------------------------------


def _takes_all(_receiving: Receiving, _epoch: int) -> None:
    pass


async def _promises_any(memory: Memory, epoch: int) -> None:
    """Accept an older epoch than the promised one."""
    async with memory._saving:
        await memory._keep(memory.now._replace(promised=epoch))


_in_memory = WeakKeyDictionary[Memory, int]()


async def _promises_in_memory(memory: Memory, epoch: int) -> None:
    _in_memory[memory] = max(epoch, _promised_in_memory(memory))


def _promised_in_memory(memory: Memory) -> int:
    return _in_memory.get(memory, 0)


_fine_course = actors.cluster.courses.course


def _follows_any(memory: Cluster, *seen: Any, **how: Any) -> Course:
    return _fine_course(memory._replace(promised=0), *seen, **how)


def _any_revision(memory: Memory) -> Cluster:
    return (memory._stands or Cluster())._replace(revision=0)


_fine_receiving_take = Receiving._take


def _acknowledges_early(receiving: Receiving, frames: list[Frame], released: int) -> None:
    _fine_receiving_take(receiving, frames, released)
    receiving._synced = frames[-1].sequence
    receiving._acknowledge_soon()


_fine_hear_released = Receiving._hear_released


def _shows_all(receiving: Receiving, released: int) -> None:
    _fine_hear_released(receiving, max(released, receiving._synced))


_fine_follow_first = Committer.follow_first


def _replays_all(committer: Committer, refusal: Any) -> None:
    _fine_follow_first(committer, refusal)
    committer.show(committer.log_upto)


# --- rule 6: the cut ------------------------------------------------------------------------------


def _by_sequence(ours: History, theirs: History) -> int:
    return min(max((r.last for r in ours), default=0), max((r.last for r in theirs), default=0))


async def _cuts_nothing(_committer: Committer, _after: int) -> None:
    pass


# --- rule 9: a new leader holds all that was published --------------------------------------------


def _lacks_nothing(_log: History, _agreed: Agreed) -> None:
    pass


def _never_back(_leading: Leading, _member: str) -> bool:
    return False


# --- the page's rules for another lineage, and for an etcd that was set back ----------------------


_fine_ends = Following.ends


def _keeps_what_was_told(following: Following, reign: Reign) -> None:
    """Keep the commit index that an earlier leader sent, even for frames that are cut here."""
    told, said = following.told, following._said
    _fine_ends(following, reign)
    following.told, following._said = told, said


_fine_known = Holding._known


def _knows_nothing_older(holding: Holding) -> Any:
    """Accept an older state of etcd, with its ISR, as newer."""
    known = _fine_known.__get__(holding)
    return known._replace(memory=known.memory._replace(revision=0), insync=0)


# --- the page's rule for an etcd that was lost ----------------------------------------------------


def _what_is_shown(node: Node) -> LogEnds | None:
    present = node.committer.present
    return LogEnds(present.epoch, node.committer.released_upto)


_PLACES: Final[dict[str, Patches]] = {
    "1-members": [(Leading, "waited_for", property(_alone))],
    "1-acks-late": [
        (Leading, "is_enough", property(_always)),
        (Leading, "may_remove", _may_remove_any),
    ],
    "2-before": [(Leading, "waited_for", property(_asked_set))],
    "2-add-early": [(Leading, "may_add", _adds_early)],
    "2-add-new": [(Leading, "may_add", _adds_unsettled)],
    "2-union": [(Leading, "waited_for", property(_old_set))],
    "2-read-ends": [(Leadership, "asks", _forgets_the_change)],
    "3-anyone": [(actors.cluster.courses, "may_take", _anyone)],
    "3-set": [(AgreementModel, "take_lead", _takes_any_set)],
    "3-lead": [(AgreementModel, "change", _changes_for_anybody)],
    "3-mod": [(AgreementModel, "change", _changes_any_set)],
    "4-deadline": [(Lease, "is_over", _never_over)],
    "5-epoch": [
        (Receiving, "_check_epoch", _takes_all),
        (Memory, "promise", _promises_any),
        (actors.cluster.coordination, "course", _follows_any),
    ],
    "5-seen-memory": [
        (Memory, "promise", _promises_in_memory),
        (Memory, "promised", property(_promised_in_memory)),
    ],
    "revision": [(Memory, "now", property(_any_revision))],
    "5-ack-early": [(Receiving, "_take", _acknowledges_early)],
    "5-apply-early": [(Receiving, "_hear_released", _shows_all)],
    "5-replay-all": [(Committer, "follow_first", _replays_all)],
    "6-no-cut": [(Committer, "cut", _cuts_nothing)],
    "6-sequence": [(actors.cluster.shipping, "joint", _by_sequence)],
    "9-holds": [
        (actors.cluster.courses, "lack", _lacks_nothing),
        (actors.cluster.takeover, "lack", _lacks_nothing),
    ],
    "9-back": [(Leading, "has_gone_back", _never_back)],
    "log-ends": [(Node, "_log_ends", property(_what_is_shown))],
    "m-shrink": [(Leading, "may_remove", _may_remove_any)],
    "x-told": [(Following, "ends", _keeps_what_was_told)],
    "x-etcd-within": [(Holding, "_known", property(_knows_nothing_older))],
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
