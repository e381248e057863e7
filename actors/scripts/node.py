"""Statements on the node itself and on the scripts it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Final

from actors.scripts.cluster import member_of, outcome_of
from actors.scripts.execution import SEEN_ROLLED_BACK, Execution
from actors.scripts.handlers import Requires, handles, informs
from actors.scripts.transactions import ScriptRun
from language import tree
from protocol.errors import Conflict, NotInTransaction, TypeRefused, Unknown
from protocol.rights import INFO, OWN, SecurableKind
from protocol.values import NONE, Value, type_name
from storage.catalog import replicas
from storage.engine.state_hash import hash_in_slices

ID_CHARACTERS: Final = 128
"""Most characters of an unknown id that a refusal shows."""


@handles(
    tree.DefineNode, "none", writes=False, needs=[Requires(OWN, SecurableKind.NODE)], audited=True
)
def define_node(run: Execution, statement: tree.DefineNode) -> Value:
    """Set the node's roles, endpoints or origins. Not a write: accepted in every role, and kept
    beside the log, so it can't be part of a transaction that might be cancelled."""
    if run.in_block:
        raise NotInTransaction("DEFINE NODE cannot be part of a transaction")
    run.fiber.wait(
        run.services.roles.define(statement.roles, statement.endpoints, statement.origins)
    )
    # Only after the roles: waiting scripts and the cluster read the new ones.
    run.services.topics.roles_changed()
    run.services.cluster.look_again()
    # A node that takes writes again can drop the places of a broken restore.
    run.fiber.wait(asyncio.ensure_future(run.services.unfinished.drop()))
    return NONE


@handles(
    tree.LeadStore, "none", writes=False, needs=[Requires(OWN, SecurableKind.NODE)], audited=True
)
def lead_store(run: Execution, statement: tree.LeadStore) -> Value:
    """Take the lead of a store without a leader. Concerns this node only and is no write, as DEFINE
    NODE.

    :raises NotInTransaction: it stands in one
    :raises Unknown, NotWritable, Busy: it may not, or failed to
    """
    if not run.may_run_again:
        raise NotInTransaction("DEFINE NODE LEADS must be a statement of its own")
    run.reason = statement.reason
    outcome_of(run, run.services.cluster.lead(force=statement.force))
    return NONE


@handles(tree.Kill, "none", writes=False, needs=[Requires(OWN, SecurableKind.NODE)], audited=True)
def kill(run: ScriptRun, statement: tree.Kill) -> Value:
    """End a running script at its next slice.

    :raises Unknown: none has that id
    :raises TypeRefused: it is no string
    """
    # Listed first: a script may end itself by its own id.
    run.enlist()
    id = run.evaluate(statement.id)
    if not isinstance(id, str):
        raise TypeRefused(f"KILL needs the id of a script as a string, not {type_name(id)}")
    if not run.services.registry.kill(id, f"the script was killed by {run.caller.user}"):
        shown = id[:ID_CHARACTERS]
        raise Unknown(f"no script {shown} is running", id=shown)
    return NONE


@informs("NODE", needs=[Requires(INFO, SecurableKind.NODE)])
def info_for_node(run: Execution, statement: tree.Info) -> Value:
    """Return identity, version, roles, endpoints, settings in force, listening addresses, and the
    node's row of the cluster."""
    services = run.services
    more: dict[str, Value] = {
        "member": member_of(replicas.every(run.transaction), services.roles.node_id),
        **services.cluster.info(),
        "epoch": services.committer.ledger.epoch,
        "moments": len(services.moments),
    }
    return {**services.roles.info(), **services.facts.info(), **more}


@informs("RUNNING", needs=[Requires(OWN, SecurableKind.NODE)])
def info_for_running(run: ScriptRun, statement: tree.Info) -> Value:
    """Return the running scripts of all users with their texts, longest first."""
    run.enlist()
    return run.services.registry.describe(run.services.clock.monotonic_us())


@informs("STATE", needs=[Requires(INFO, SecurableKind.NODE)])
def info_for_state(run: Execution, statement: tree.Info) -> Value:
    """Return the hash of the committed state and its sequence. Computed in slices, and cached until
    the next commit.

    A transaction of its own reads the state. The engine alone may hold a part of a commit, and the
    script's transaction may have uncommitted changes.
    """
    committer, facts = run.services.committer, run.services.facts
    with run.reading_beside() as transaction:
        sequence = transaction.sequence
        known = facts.state_hash(sequence)
        if known is not None:
            return {"sequence": sequence, "hash": known}
        # The hash takes many slices: it is of one snapshot.
        transaction.pause()
        digest = _ticking(run, hash_in_slices(transaction))
        if transaction.reads.rolled_back:
            raise Conflict(SEEN_ROLLED_BACK)
        # Released state only: a pending commit may be rolled back, its sequence used again.
        if sequence <= committer.commit_index:
            facts.keep_state_hash(sequence, digest)
        return {"sequence": sequence, "hash": digest}


def _ticking(run: Execution, slices: Generator[None, None, str]) -> str:
    """Return a generator's result; yield between its steps."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return str(done.value)
        run.tick()
