"""Other parts of the node, as scripts use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors.backups.taking import Backups
    from actors.cluster.membership import Peering
    from actors.cluster.service import ClusterService
    from actors.commits.committer import Committer
    from actors.execution.executor import Executor
    from actors.execution.registry import Registry
    from actors.indexes.service import IndexBuilderHandle
    from actors.log_reads import LogReads
    from actors.node_info import NodeInfo
    from actors.passwords import Passwords
    from actors.restores import UnfinishedRestores
    from actors.rights import Rights
    from actors.roles import Roles
    from actors.scripts.named_snapshots import NamedSnapshots
    from actors.sessions import Sessions
    from actors.spaces.service import SpaceService
    from actors.statements import Statements
    from actors.topics.service import TopicService
    from actors.vaults.service import VaultService
    from protocol.environment import Clock


@dataclass(frozen=True, slots=True)
class Services:
    """Other parts of the node, passed to the scripts actor at start."""

    committer: Committer
    executor: Executor
    roles: Roles
    rights: Rights
    passwords: Passwords
    sessions: Sessions
    spaces: SpaceService
    topics: TopicService
    vaults: VaultService
    unfinished: UnfinishedRestores
    registry: Registry
    moments: NamedSnapshots
    statements: Statements
    indexes: IndexBuilderHandle
    clock: Clock
    facts: NodeInfo
    reads: LogReads
    backups: Backups
    peering: Peering
    cluster: ClusterService
    store_id: str
    slow_us: int
    """Duration (µs) from which a statement is logged as slow."""
