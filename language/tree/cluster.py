"""Statements on the cluster: which nodes belong to it, and who takes over from whom.

Addresses, roles, ids, fingerprints and bounds are checked by the node, not by the parser.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from language.tree.places import Exists
from protocol.failover import Promotion


@dataclass(frozen=True, slots=True)
class DefineReplica:
    """At most one of `node` and `certificate` is set; neither: the row waits for a join token.
    `roles` None: not named; empty: ROLES NONE."""

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
    """Exactly one of the four is set. `leads`: names of what it is to lead; empty: the store."""

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
    """`name` None: for the one row that waits."""

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
    """Where the nodes agree."""
    lease: timedelta
    acks: int
    behind: timedelta
    promote: Promotion
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropFailover:
    reason: str | None = None
    at: int = field(default=0, compare=False)
