"""Settings of vaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol import limits
from storage.vaults.cipher import Argon2Parameters


@dataclass(frozen=True, slots=True)
class VaultSettings:
    """Settings of vaults."""

    unseal_us: int = limits.UNSEAL_SECONDS * 1_000_000
    """Duration of an unseal, in µs."""
    stretch: Argon2Parameters = field(default_factory=Argon2Parameters)
    """Key derivation parameters of new passphrases."""
