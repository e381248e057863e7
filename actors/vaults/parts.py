"""Dependencies of the vault components on the node."""

from __future__ import annotations

from dataclasses import dataclass

from actors.commits.committer import Committer
from actors.passwords import Passwords
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime
from actors.sessions import Sessions
from actors.statements import Statements
from actors.vaults.told import VaultSettings
from protocol.environment import Rng


@dataclass(frozen=True, slots=True)
class VaultParts:
    """Components of the node that the vaults use."""

    runtime: Runtime
    committer: Committer
    roles: Roles
    rights: Rights
    passwords: Passwords
    sessions: Sessions
    statements: Statements
    rng: Rng
    told: VaultSettings
