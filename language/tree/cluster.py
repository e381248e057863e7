"""AST of the cluster statements: membership and failover policy.

Addresses, roles, ids, fingerprints and bounds are checked by the node, not by the parser.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from language.tree.places import Exists
from protocol.failover import Promotion


@dataclass(frozen=True, slots=True)
class DefineReplica:
    """`DEFINE REPLICA`. At most one of `node` and `certificate` is set; with neither the row waits
    for a join token.

    `roles` None: no ROLES clause; empty: ROLES NONE.
    """

    name: str
    peer: str
    endpoints: tuple[str, ...] = ()
    node: str | None = None
    certificate: str | None = None
    roles: tuple[str, ...] | None = None
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlterReplica:
    """`ALTER REPLICA`. Exactly one of the four changes is set.

    `leads` names the table that the replica shall lead; empty: the store.
    """

    name: str
    roles: tuple[str, ...] | None = None
    peer: str | None = None
    endpoints: tuple[str, ...] | None = None
    leads: tuple[str, ...] | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropReplica:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CreateJoinToken:
    """`CREATE JOIN TOKEN`. `name` None: for the only row that waits for one."""

    name: str | None = None
    expires: timedelta | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RevokeCertificate:
    certificate: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineFailover:
    via: tuple[str, ...]
    """Addresses of the etcd cluster in which the nodes elect a leader."""
    lease: timedelta
    acks: int
    behind: timedelta
    promote: Promotion
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropFailover:
    reason: str | None = None
    at: int = field(default=0, compare=False)
