"""Settings of vaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol import limits
from storage.vaults.cipher import Stretch


@dataclass(frozen=True, slots=True)
class VaultSettings:
    """Settings of vaults."""

    unseal_us: int = limits.UNSEAL_SECONDS * 1_000_000
    """Duration of an unseal, in µs."""
    stretch: Stretch = field(default_factory=Stretch)
    """Key derivation parameters of new passphrases."""
