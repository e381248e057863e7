"""Vaults: owner of the plain keys, the reveals of values, and their audit trails."""

from actors.vaults.checking import CheckResult, check
from actors.vaults.parts import VaultParts
from actors.vaults.reveals import PendingReveal, RevealRequest
from actors.vaults.service import VaultService, condition_of
from actors.vaults.starting import start_vaults
from actors.vaults.told import VaultSettings
from actors.vaults.trail import VaultAct

__all__ = [
    "VaultAct", "PendingReveal", "CheckResult", "RevealRequest", "VaultParts", "VaultSettings",
    "VaultService", "start_vaults", "check", "condition_of",
]  # fmt: skip
