"""What a node is told of vaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol import limits
from storage.vault_seals import Stretch


@dataclass(frozen=True, slots=True)
class VaultSettings:
    """What a node is told of vaults."""

    unseal_us: int = limits.UNSEAL_SECONDS * 1_000_000
    """How long an unseal lasts."""
    stretch: Stretch = field(default_factory=Stretch)
    """What new passphrases are made keys with."""
