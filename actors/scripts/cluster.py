"""Statements on the cluster: its rows, join tokens, revoked certificates, and the failover policy.

These statements declare; `actors/cluster/` acts on the declarations.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from actors.commits.tickets import late
from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from actors.scripts.transactions import ScriptRun
from language import tree
from protocol.errors import (
    ENDED,
    BadRequest,
    Conflict,
    Draining,
    NotImplementedHere,
    NotInTransaction,
    Refusal,
    Unknown,
)
from protocol.failover import Policy, check_policy
from protocol.fingerprints import check_fingerprint
from protocol.rights import INFO, OWN, SecurableKind
from protocol.values import NONE, Value, instant
from storage.catalog import failover, join_tokens, replicas
from storage.catalog.replicas import Replica
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction

if TYPE_CHECKING:
    from actors.cluster.service import ClusterService

Outcome = TypeVar("Outcome")
_SHOWN: Final = 10
"""Most rows that a message names."""


# --- rows -----------------------------------------------------------------------------------------


@handles(
    tree.DefineReplica,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.STORE)],
    audited=True,
)
def define_replica(run: Execution, statement: tree.DefineReplica) -> Value:
    """Declare a row. A redeclared row drops its node, unless it still names it; then the node keeps
    its certificates.

    :raises AlreadyExists: the name is taken without IF NOT EXISTS or OVERWRITE; or another row has
        its address, id or certificate
    :raises BadRequest, Unknown, TooLarge: of its clauses
    :raises BadRequest, NotEnoughReplicas: as `_let_go`
    """
    made = Replica(
        statement.name,
        statement.peer,
        statement.endpoints,
        statement.node,
        statement.certificate,
        roles=statement.roles,
        comment=statement.comment,
    )
    before = replicas.every(run.transaction)
    replicas.define(run.transaction, made, IF_TAKEN[statement.exists])
    # By node, not by row: a node that another row names stays in sync.
    named = {row.node for row in replicas.every(run.transaction)}
    _let_go(run, *(row for row in before if row.node not in named))
    return NONE


@handles(
    tree.AlterReplica,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.REPLICA, ("name",))],
    audited=True,
)
def alter_replica(run: Execution, statement: tree.AlterReplica, replica: Replica) -> Value:
    """Change a row.

    :raises BadRequest: it is to lead the store; as `define_replica`
    :raises NotImplementedHere: it is to lead a part of it
    """
    if statement.leads is not None:
        raise _leads(statement.leads)
    replicas.alter(
        run.transaction,
        replica,
        peer=statement.peer,
        endpoints=statement.endpoints,
        roles=statement.roles,
    )
    return NONE


def _leads(names: tuple[str, ...]) -> BadRequest | NotImplementedHere:
    if not names:
        return BadRequest("the lead cannot be moved by this statement")
    return NotImplementedHere(
        f"{'.'.join(names)} cannot have a leader of its own: the store has one leader"
    )


@handles(
    tree.DropReplica,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.REPLICA, ("name",))],
    audited=True,
)
def drop_replica(run: Execution, statement: tree.DropReplica, replica: Replica) -> Value:
    """Drop a row with its join token.

    :raises BadRequest, NotEnoughReplicas: as `_let_go`
    """
    run.reason = statement.reason
    replicas.drop(run.transaction, replica)
    _let_go(run, replica)
    return NONE


# --- admission ------------------------------------------------------------------------------------


@handles(
    tree.CreateJoinToken,
    "value",
    writes=True,
    needs=[Requires(OWN, SecurableKind.STORE), Requires(OWN, SecurableKind.REPLICA, ("name",))],
    audited=True,
)
def create_join_token(
    run: Execution, statement: tree.CreateJoinToken, named: Replica | None
) -> Value:
    """Create a join token, which only this answer contains.

    :raises NotInTransaction: other statements of its transaction could keep the token
    :raises BadRequest: the row does not wait, or several do and none is named
    :raises Unknown: no row waits
    :raises ExpireRefused, TooLarge: of EXPIRES
    """
    if not run.may_run_again:
        raise NotInTransaction(
            "CREATE JOIN TOKEN must be a statement of its own, outside a transaction, IF or FOR:"
            " only its caller may get the token"
        )
    tx, services = run.transaction, run.services
    where = services.peering.where(replicas.every(tx))
    token, expires = join_tokens.create(
        tx, services.store_id, named or _waiting(tx), statement.expires, tx.rng, where
    )
    return {"token": token, "expires": expires}


def _waiting(tx: Transaction) -> Replica:
    """Return the only row that waits for a node. :raises Unknown, BadRequest: none waits, or
    several do"""
    found = [one for one in replicas.every(tx) if one.waits]
    if not found:
        raise Unknown(
            "no replica waits for a node: DEFINE REPLICA first, without NODE or CERTIFICATE"
        )
    if len(found) > 1:
        names = ", ".join(one.name for one in found[:_SHOWN]) + (
            ", …" if len(found) > _SHOWN else ""
        )
        raise BadRequest(f"several replicas wait for a node: CREATE JOIN TOKEN FOR one of {names}")
    return found[0]


@handles(
    tree.RevokeCertificate,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.STORE)],
    audited=True,
)
def revoke_certificate(run: Execution, statement: tree.RevokeCertificate) -> Value:
    """Revoke a certificate, named by a row or not, and drop the node of such a row. Revoking it
    again is no error.

    :raises BadRequest: it is no fingerprint
    :raises TooLarge: too many are revoked
    :raises NotEnoughReplicas: as `_let_go`
    """
    run.reason = statement.reason
    # The reason is kept in the revocation, beside the statement log.
    why = statement.reason or run.request.reason
    revoked = check_fingerprint(statement.certificate)
    rows = replicas.every(run.transaction)
    _let_go(run, *(one for one in rows if revoked in one.certificates))
    replicas.revoke(run.transaction, revoked, why)
    return NONE


def _let_go(run: Execution, *rows: Replica) -> None:
    """Remove the nodes of rows that no longer name or trust them from the in-sync replicas.

    Cluster rule 2 (`actors/cluster/__init__.py`): no node is shut out that a release waits for, or
    that may lead. This node accepts writes, so it is the leader, which others find by its row: that
    row goes last.

    :raises BadRequest: one of them is this node's, which leads, and others have rows
    :raises NotEnoughReplicas: too few in-sync replicas would be left
    :raises NotWritable: the lead was lost meanwhile
    :raises Conflict: at the commit: the lead was lost and taken again
    """
    nodes = [row.node for row in rows if row.node is not None]
    gone = {row.name for row in rows}
    left = [row for row in replicas.every(run.transaction) if row.name not in gone]
    if run.services.roles.node_id in nodes and left:
        raise BadRequest(
            "this node leads, and the other nodes know it by its row and certificate. Stop this"
            " node, and drop them once another leads, or drop the other rows first"
        )
    transaction = run.transaction  # bound here: a retry replaces `run.transaction`
    cluster = run.services.cluster
    # The epoch is noted before the wait, and compared at the commit.
    run.holds += (partial(_check_leads_yet, cluster, cluster.epoch),)
    # First the ISR in etcd, then the commit that shuts the nodes out (Cluster rule 2).
    # They are kept out until this attempt has ended.
    waited = cluster.take_out(nodes, lambda: transaction.reads.ended)
    if waited is not None:
        run.fiber.wait(waited)


def _check_leads_yet(cluster: ClusterService, epoch: int | None) -> None:
    """Check that the lead was held throughout: a new leadership has a new in-sync set, perhaps with
    those nodes in it. :raises Conflict:"""
    # Each epoch is above all before it, so an equal one means an unbroken lead.
    if cluster.epoch != epoch:
        raise Conflict("the lead was lost and taken again while nodes were removed: try again")


# --- failover -------------------------------------------------------------------------------------


@handles(
    tree.DefineFailover,
    "none",
    writes=False,
    needs=[Requires(OWN, SecurableKind.STORE)],
    audited=True,
)
def define_failover(run: ScriptRun, statement: tree.DefineFailover) -> Value:
    """Put a failover policy into force. The coordinator commits it, between further steps.

    :raises UnknownOutcome: it was not released in time: it may still come into force
    :raises BadRequest, TooLarge: of a clause; or this node was never declared coordinating
    :raises NotInTransaction: it stands in one
    :raises NotEnoughReplicas, NotWritable, Busy: nothing was kept
    """
    via = check_policy(statement.via, statement.lease, statement.acks, statement.behind)
    policy = Policy(via, statement.lease, statement.acks, statement.behind, statement.promote)
    # The coordinator commits the policy: no CANCEL of a block could undo that.
    _check_alone(run, "DEFINE FAILOVER")
    _await_policy(run, run.services.cluster.define_failover(policy, run.caller))
    return NONE


@handles(
    tree.DropFailover,
    "none",
    writes=False,
    needs=[Requires(OWN, SecurableKind.STORE)],
    audited=True,
)
def drop_failover(run: ScriptRun, statement: tree.DropFailover) -> Value:
    """Drop the failover policy.

    :raises Unknown: there is no policy
    :raises NotImplementedHere: it is in force
    :raises NotInTransaction: it stands in a transaction
    """
    _check_alone(run, "DROP FAILOVER")
    run.reason = statement.reason
    _await_policy(run, run.services.cluster.drop_failover(run.caller))
    return NONE


def _await_policy(run: ScriptRun, asked: asyncio.Future[CommitTicket | None]) -> None:
    ticket = outcome_of(run, asked)
    if ticket is None:
        return
    try:
        run.until_released(ticket)
    # The commit is made and may still be released: its outcome is unknown.
    except (*ENDED, Draining) as why:
        raise late(ticket.sequence, why) from why


def outcome_of(run: Execution, asked: asyncio.Future[Outcome]) -> Outcome:
    """Return the coordinator's result, which comes within a bound of its own. It counts even if the
    script was ended meanwhile. :raises Refusal: the coordinator refused"""
    try:
        return run.fiber.wait(asked)
    # `wait` ends only once the future is done, even if the script was ended.
    except Refusal:
        return asked.result()


def _check_alone(run: Execution, what: str) -> None:
    if not run.may_run_again:
        raise NotInTransaction(f"{what} must be a statement of its own, outside a transaction")


def _policy(run: Execution) -> Value:
    kept = failover.find(run.transaction)
    if kept is None:
        return None
    policy = kept.policy
    return {
        "via": list(policy.via),
        "lease": policy.lease,
        "acks": policy.acks,
        "behind": policy.behind,
        "promote": policy.promote,
        "since": kept.since,
        "in_force": run.services.cluster.in_force(kept),
    }


# --- INFO -----------------------------------------------------------------------------------------


@informs("CLUSTER", needs=[Requires(INFO, SecurableKind.NODE)])
def info_for_cluster(run: Execution, statement: tree.Info) -> Value:
    """Return the cluster's declarations, as this node has them. Others report their own state."""
    tx, services = run.transaction, run.services
    now = instant(services.clock.wall_us())
    rows = replicas.every(tx)
    revoked: dict[str, Value] = {}
    for some in replicas.each_revocation(tx):
        run.tick()
        for one in some:
            revoked[one.certificate] = {
                "certificate": one.certificate,
                "since": one.at,
                "reason": one.reason,
            }
    return {
        "member": member_of(rows, services.roles.node_id),
        "replicas": [_described(tx, services.store_id, row) for row in rows],
        "trusted": [
            _trusted(row, certificate, expires, now)
            for row in rows
            for certificate, expires in row.certificates.items()
            # A row may still name a revoked certificate, which no node trusts.
            if certificate not in revoked
        ],
        "revoked": list(revoked.values()),
        "failover": _policy(run),
    }


def member_of(rows: list[Replica], node_id: str) -> str | None:
    """Return the name of a node's row; None: it is in no cluster, or under no row yet."""
    return next((row.name for row in rows if row.node == node_id), None)


def _described(tx: Transaction, store: str, row: Replica) -> Value:
    return {
        "name": row.name,
        "peer": row.peer,
        "endpoints": list(row.endpoints),
        "node": row.node,
        "certificate": row.certificate,
        "replicates": "STORE",
        "roles": None if row.roles is None else list(row.roles),
        "comment": row.comment,
        "created": row.created,
        "waits": row.waits,
        "token_expires": join_tokens.usable_until(tx, store, row),
    }


def _trusted(row: Replica, certificate: str, expires: datetime | None, now: datetime) -> Value:
    """Describe a certificate of a row. Its expiry is unknown until its node has shown it."""
    return {
        "certificate": certificate,
        "replica": row.name,
        "expires": expires,
        "days_left": None if expires is None else (expires - now) // timedelta(days=1),
    }
