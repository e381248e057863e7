"""Interfaces of the node's other parts, as scripts use them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from actors.backups.taking import Backups
from actors.cluster.membership import Peering
from actors.commits.committer import Author, Committer
from actors.execution.executor import Executor
from actors.execution.registry import Registry
from actors.log_reads import LogReads
from actors.node_info import NodeInfo
from actors.passwords import HashRequester
from actors.restores import UnfinishedRestores
from actors.rights import Rights
from actors.scripts.named_snapshots import NamedSnapshots
from actors.statements import Statements
from actors.topics.service import TopicService
from actors.vaults.service import VaultService
from protocol.environment import Clock
from protocol.failover import Policy
from protocol.requests import Caller
from protocol.values import Value
from storage.catalog.failover import StoredPolicy
from storage.catalog.places import Database, Namespace
from storage.catalog.spaces import Space
from storage.txn.tickets import CommitTicket
from storage.vaults.cipher import Argon2Parameters


class NodeRoles(Protocol):
    """Roles of the node, readable on the loop without a request to an actor."""

    @property
    def node_id(self) -> str:
        """Id of this node."""

    def check_answering(self, caller: Caller | None = None) -> None:
        """Check that the node answers the caller.

        :raises Draining: the node has no role
        :raises Busy: it does not know enough of its cluster's store at the moment
        """

    def define(
        self,
        roles: Sequence[str] | None,
        endpoints: Sequence[str] | None,
        origins: Sequence[str] | None = None,
    ) -> asyncio.Future[None]:
        """Apply DEFINE NODE. :raises Unknown: an unknown role word"""

    def info(self) -> dict[str, Value]:
        """Return identity, settings, roles, endpoints."""


class PasswordHashing(Protocol):
    """Password hasher with a bounded queue."""

    def derive(
        self, passphrase: str, salt: bytes, stretch: Argon2Parameters, asker: HashRequester
    ) -> Awaitable[bytearray]:
        """Derive the wrapping key of a vault's passphrase. :raises Busy: the queue is full"""

    def hash(self, password: str, asker: HashRequester) -> Awaitable[str]:
        """Return a PHC string. :raises BadRequest: its length; Busy: the queue is full"""


class OpenSessions(Protocol):
    """Open sessions, as far as scripts affect them."""

    def end_all(self, user: str, but: str | None = None, sparing: str | None = None) -> None:
        """End every session of a user with its running requests, except the spared one, and forget
        cached password checks."""

    def on_user_declared(self, name: str) -> None:
        """End requests of an earlier user whose name is given to a new one."""

    def check_authenticated(self, caller: Caller) -> None:
        """Check a caller. :raises SessionEnded: its credential is no longer good"""


class SpaceNotices(Protocol):
    """Cache spaces, as far as scripts notify them."""

    def expiring(self, space: Space, at_us: int) -> None:
        """Take note that a key with an expiry at that log time was written."""

    def remove_expired(self, lapsed: Sequence[tuple[Space, list[bytes]]]) -> CommitTicket:
        """Remove expired keys that a read skipped. Return the ticket that the answer must wait for.

        :raises Busy, NotEnoughReplicas, Draining: they can't be removed now
        """

    def dropped(self, what: Namespace | Database | Space) -> None:
        """Take note that a space, database or namespace was dropped."""


class IndexBuilder(Protocol):
    """Index builder."""

    def wake(self) -> None:
        """Take note that an index was declared and has to be built."""

    def fold(self) -> None:
        """Notify the builder of a FULLTEXT index that was declared or changed."""


class ClusterRole(Protocol):
    """Role of this node in its cluster, and requests to change it."""

    def info(self) -> dict[str, Value]:
        """Return the node's cluster state, for INFO FOR NODE."""

    def present(self) -> int | asyncio.Future[int]:
        """Read index: return a sequence that covers all that was released anywhere before this
        call. A node that shows it can serve a linearizable read (Raft §6.4).

        :raises Busy: it can't be determined; also from the future
        """

    def in_force(self, kept: StoredPolicy) -> bool:
        """True if this node acts by a stored policy."""

    def define_failover(self, policy: Policy, who: Author) -> asyncio.Future[CommitTicket | None]:
        """Put a policy into force. The future's result is the ticket of the commit, and the policy
        is in force once that is released; None: it is already.

        :raises BadRequest, Busy, NotEnoughReplicas, NotWritable:
        """

    def drop_failover(self, who: Author) -> asyncio.Future[CommitTicket | None]:
        """Drop the policy, like `define_failover`. :raises Unknown, NotWritable,
        NotImplementedHere:"""

    def lead(self, *, force: bool) -> asyncio.Future[None]:
        """Take the lead of a store without a leader. :raises Unknown, NotWritable, Busy:"""

    @property
    def epoch(self) -> int | None:
        """Leader epoch of this node; None: it does not lead, or there is no cluster."""

    def take_out(
        self, nodes: Collection[str], is_over: Callable[[], bool]
    ) -> asyncio.Future[None] | None:
        """Remove nodes from the in-sync replicas: no release waits for them then. None: none does.

        :param is_over: True if the requesting statement has ended
        :raises BadRequest, NotEnoughReplicas, NotWritable:
        """

    def look_again(self) -> None:
        """Take note that the roles of this node have changed."""


@dataclass(frozen=True, slots=True)
class Services:
    """Other parts of the node, passed to the scripts actor at start."""

    committer: Committer
    executor: Executor
    roles: NodeRoles
    rights: Rights
    passwords: PasswordHashing
    sessions: OpenSessions
    spaces: SpaceNotices
    topics: TopicService
    vaults: VaultService
    unfinished: UnfinishedRestores
    registry: Registry
    moments: NamedSnapshots
    statements: Statements
    indexes: IndexBuilder
    clock: Clock
    facts: NodeInfo
    reads: LogReads
    backups: Backups
    peering: Peering
    cluster: ClusterRole
    store_id: str
    slow_us: int
    """Duration (µs) from which a statement is logged as slow."""
