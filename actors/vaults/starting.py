"""Construction of the vault components."""

from __future__ import annotations

from typing import Any

from actors.runtime import Supervised
from actors.vaults.actor import VaultsActor
from actors.vaults.keyring import Keyring
from actors.vaults.parts import VaultParts
from actors.vaults.reveals import Reveals
from actors.vaults.service import VaultService
from actors.vaults.trail import Trail


def start_vaults(parts: VaultParts) -> tuple[VaultService, Supervised[Any]]:
    """Return the vault service for statements, and the actor that unseals vaults."""
    runtime, committer = parts.runtime, parts.committer
    keyring = Keyring(runtime.clock)
    trail = Trail(runtime, committer, keyring)
    reveals = Reveals(parts, keyring, trail)
    stretch = parts.told.stretch
    service = VaultService(runtime, committer, keyring, trail, reveals, parts.rng, stretch)
    place: Supervised[Any] = Supervised(
        lambda: VaultsActor.start(parts, keyring, service), refoldable=True
    )
    return service, place
