"""What scripts use of the rest of the node, as they see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from actors.backups.taking import Backups
from actors.cluster.peering import Peering
from actors.commits import Committer, Who
from actors.facts import Facts
from actors.log_reads import LogReads
from actors.passwords import Asker
from actors.restores import Unfinished
from actors.rights import Rights
from actors.scripts.moments import Moments
from actors.scripts.running import Running
from actors.statements import Statements
from actors.topics import Topics
from actors.vaults import Vaults
from protocol.doors import Clock
from protocol.failover import Policy
from protocol.requests import Caller
from protocol.values import Value
from storage.catalog import Database, Namespace, Space
from storage.failover import Kept
from storage.tickets import CommitTicket
from storage.vault_seals import Stretch


class Roles(Protocol):
    """The node's roles, read on the loop without asking an actor."""

    @property
    def node_id(self) -> str:
        """This node's id."""

    def check_answering(self, caller: Caller | None = None) -> None:
        """:raises Draining: the node has no role
        :raises Busy: it does not know enough of its cluster's store at the moment"""

    def define(
        self,
        roles: Sequence[str] | None,
        endpoints: Sequence[str] | None,
        origins: Sequence[str] | None = None,
    ) -> asyncio.Future[None]:
        """DEFINE NODE. :raises Unknown: an unknown role word"""

    def info(self) -> dict[str, Value]:
        """Identity, settings, roles, endpoints."""


class Passwords(Protocol):
    """The bounded hasher."""

    def derive(
        self, passphrase: str, salt: bytes, stretch: Stretch, asker: Asker
    ) -> Awaitable[bytearray]:
        """The wrapping key of a vault's passphrase. :raises Busy: the queue is full"""

    def hash(self, password: str, asker: Asker) -> Awaitable[str]:
        """A PHC string. :raises BadRequest: its length; Busy: the queue is full"""


class Sessions(Protocol):
    """Open sessions, as far as scripts touch them."""

    def end_all(self, user: str, but: str | None = None, sparing: str | None = None) -> None:
        """End every session of a user, with what runs in it but for the request to be spared, and
        forget what was remembered of its password."""

    def on_user_declared(self, name: str) -> None:
        """End what was let in as an earlier user of a name that is given to a new one."""

    def check_authenticated(self, caller: Caller) -> None:
        """:raises SessionEnded: the credential of a caller is no longer good"""


class Spaces(Protocol):
    """Cache spaces, as far as scripts have something to tell of them."""

    def expiring(self, space: Space, at_us: int) -> None:
        """A key that was written expires at that log time."""

    def remove_expired(self, lapsed: Sequence[tuple[Space, list[bytes]]]) -> CommitTicket:
        """Remove keys that were passed over as expired. Return what the answer must wait for.

        :raises Busy, NotEnoughReplicas, Draining: they can't be removed now
        """

    def dropped(self, what: Namespace | Database | Space) -> None:
        """A space was dropped, or what it lies in."""


class Indexes(Protocol):
    """Builds indexes."""

    def wake(self) -> None:
        """An index has been declared that is not built yet."""


class Cluster(Protocol):
    """What this node is to its cluster, and what it is asked to be."""

    def info(self) -> dict[str, Value]:
        """For INFO FOR NODE."""

    def present(self) -> int | asyncio.Future[int]:
        """A sequence: who shows that shows all that was released anywhere when this was called.

        :raises Busy: nobody can say, also from the future
        """

    def in_force(self, kept: Kept) -> bool:
        """Whether this node goes by a policy that is kept."""

    def define_failover(self, policy: Policy, who: Who) -> asyncio.Future[CommitTicket | None]:
        """Put a policy into force: it is once the commit is released that this is done with; None:
        it is. :raises BadRequest, Busy, NotEnoughReplicas, NotWritable:"""

    def drop_failover(self, who: Who) -> asyncio.Future[CommitTicket | None]:
        """Done as `define_failover`. :raises Unknown, NotWritable, NotImplementedHere:"""

    def lead(self, *, force: bool) -> asyncio.Future[None]:
        """Take the lead, which nobody has. :raises Unknown, NotWritable, Busy:"""

    @property
    def epoch(self) -> int | None:
        """Of the lead that this node has; None: it has none, or there is no cluster."""

    def take_out(
        self, nodes: Collection[str], is_over: Callable[[], bool]
    ) -> asyncio.Future[None] | None:
        """Let nothing wait for some nodes any more; None: nothing does.

        :param is_over: whether what lets them go has ended
        :raises BadRequest, NotEnoughReplicas, NotWritable:
        """

    def look_again(self) -> None:
        """The roles of this node have changed."""


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to the scripts' actor at start."""

    committer: Committer
    roles: Roles
    rights: Rights
    passwords: Passwords
    sessions: Sessions
    spaces: Spaces
    topics: Topics
    vaults: Vaults
    unfinished: Unfinished
    running: Running
    moments: Moments
    statements: Statements
    indexes: Indexes
    clock: Clock
    facts: Facts
    reads: LogReads
    backups: Backups
    peering: Peering
    cluster: Cluster
    store_id: str
    slow_us: int
    """From how long on a statement is slow."""
