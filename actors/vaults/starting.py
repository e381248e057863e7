"""How the parts of this room are put together."""

from __future__ import annotations

from typing import Any

from actors.commits import Committer
from actors.passwords import Passwords
from actors.rights import Rights
from actors.runtime import Runtime, Supervised
from actors.statements import Statements
from actors.vaults.actor import OpenSessions, VaultsActor
from actors.vaults.keyring import Keyring
from actors.vaults.service import Vaults
from actors.vaults.told import VaultSettings
from actors.vaults.trail import Trail
from protocol.doors import Rng


def begin(
    runtime: Runtime,
    committer: Committer,
    rights: Rights,
    passwords: Passwords,
    sessions: OpenSessions,
    statements: Statements,
    rng: Rng,
    told: VaultSettings,
) -> tuple[Vaults, Supervised[Any]]:
    """What statements use of vaults, and the actor that is asked to unseal them."""
    keyring = Keyring(runtime.clock)
    service = Vaults(
        runtime, committer, keyring, Trail(runtime, committer, keyring), rng, told.stretch
    )
    place: Supervised[Any] = Supervised(
        lambda: VaultsActor.start(
            runtime,
            service,
            keyring,
            committer,
            rights,
            passwords,
            sessions,
            statements,
            rng,
            told,
        ),
        refoldable=True,
    )
    return service, place
